"""Sample and resample: the exponential mechanism over public candidates.

Source: Wasserman and Zhou (2010), section 6, doi 10.1198/jasa.2009.tm08651; the proofs are in
mechanisms/README.md, section 4. Draw N candidate datasets
U_1..U_N of k records from a proposal that does not see the data, and release U_j with
probability proportional to

    exp(-epsilon xi(h, U_j) / (2 Delta)).

**Privacy.** Given the candidates, which may be published, this is the exponential
mechanism with a finite range and the counting measure; its density ratio between
neighbours is at most e^epsilon if Delta bounds the change of xi. A mixture over a law of
the candidates that is the same on both sides keeps that bound: the release is epsilon-DP
for every N and every proposal. The paper divides the weights by the proposal's density
a(U_j), which aims at a uniform base measure; here the proposal is the base measure.

**Sensitivities.** Adjacency replace-one, c records in a unit, n records:

* *KS*, sup |F_h - F_z| over the corners of all cells, by the triangle inequality c/n.
* *Cramer-von Mises*, integral of (F_h - F_z)^2 dF_h. With F, G two neighbouring data, the
  change is the integral of (F - G)(F + G - 2 F_z) dF, at most (c/n) 2 as |F + G - 2 F_z|
  <= |F - F_z| + |G - F_z| <= 2, plus that of (G - F_z)^2 (dF - dG), at most c/n as the
  square lies in [0, 1] and c/n of the mass moves. So Delta = 3c/n; Lemma 14 bounds the
  first by 4/n and the second by 2/n, and has 6/n. (For c = 1 and one column enumeration
  finds 1 - (1 - 1/n)^3, so the 3 cannot be lowered for all n.)
* *Features*: xi = |mean of phi over the data - mean of phi' over z|_2 for vectors of
  integers phi, phi' of each cell. A unit moves the first mean by at most c D/n, D being
  the largest distance of phi between two cells, and xi by no more, by the triangle
  inequality. This is the mean of r columns scaled to [0, 1] (D = sqrt r), and by Parseval
  the L2 distance of two orthogonal series (section 5.3): D <= 2 c_0 sqrt(m_n), where
  Lemma 17, through the sup norm, has 2 c_0^2 m_n. Features are rounded to integers before
  any data is seen, which only makes another xi of them, with a D of its own.

**Arithmetic.** All distances are exact fractions or square roots of such, and the choice
is by ``choose_real``: epsilon needs no addition for rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb, fmpq
from numpy.typing import NDArray

from mechanisms.domain.columns import Codes
from mechanisms.sampling.real_weights import choose_real, rate_of

_FEATURE_BITS = 20
_MOST_PAIRED = 2000  # cells whose distances are all computed
_WORD = 1 << 63


@dataclass(frozen=True)
class Scores:
    """Distances of all candidates in units of Delta at c = 1, exactly.

    Attributes:
        numerators: One non-negative integer for each candidate.
        denominator: Of all of them, positive.
        root: Whether the scores are the square roots of the fractions.
    """

    numerators: Sequence[int]
    denominator: int
    root: bool = False

    def enclosures(self) -> list[arb]:
        """Balls around the scores at the precision of the moment."""
        balls = [arb(fmpq(value, self.denominator)) for value in self.numerators]
        return [ball.sqrt() for ball in balls] if self.root else balls


def draw_candidates(
    candidates: int,
    n_cells: int,
    records: int,
    rng: np.random.Generator,
    *,
    concentration: float | None = None,
) -> Codes:
    """Candidate datasets from a proposal that knows nothing of the data.

    Args:
        candidates: Number N of candidates.
        n_cells: Number of cells s.
        records: Records of each, k.
        rng: Source of bits.
        concentration: None draws the records of each candidate iid uniform over the
            cells; a positive number a draws their probabilities first, from the
            Dirichlet distribution with all parameters a. No privacy depends on how
            exact these draws are.

    Returns:
        int64[N, s], counts; each row adds up to k.
    """
    if concentration is None:
        return rng.multinomial(records, np.full(n_cells, 1 / n_cells), size=candidates)
    shares = rng.dirichlet(np.full(n_cells, concentration), size=candidates)
    return rng.multinomial(records, shares)


def choose_candidate(
    scores: Scores,
    epsilon: Fraction | float,
    rng: np.random.Generator,
) -> int:
    """Index of the candidate to release.

    Args:
        scores: Of all candidates, at least one.
        epsilon: Positive and finite; a float is taken as its exact value.
        rng: Source of bits; cryptographic in production.
    """
    rate, least = rate_of(epsilon, 1), min(scores.numerators)
    smallest = Scores([least], scores.denominator, scores.root)

    def weights() -> list[arb]:
        scale = arb(fmpq(rate.numerator, rate.denominator))
        shift = smallest.enclosures()[0]
        return [((shift - score) * scale).exp() for score in scores.enclosures()]

    return choose_real(weights, rng)


def ks_scores(counts: Codes, candidates: Codes) -> Scores:
    """KS distances over Delta = 1/n: max |k H - n Z| / k.

    Args:
        counts: int64[s_1, .., s_r], private counts over the grid of cells.
        candidates: int64[N, s_1, .., s_r], counts of k records each.
    """
    gaps, _, k = _cdf_gaps(counts, candidates)
    return Scores([int(value) for value in np.abs(gaps).max(axis=1)], k)


def cramer_von_mises_scores(counts: Codes, candidates: Codes) -> Scores:
    """Cramer-von Mises distances over Delta = 3/n: sum of h (k H - n Z)^2 / (3 n^2 k^2).

    Args:
        counts: int64[s_1, .., s_r], private counts over the grid of cells.
        candidates: int64[N, s_1, .., s_r], counts of k records each.
    """
    gaps, n, k = _cdf_gaps(counts, candidates)
    if n * (n * k) ** 2 >= _WORD:
        gaps = gaps.astype(object)
    squares = (gaps * gaps) @ counts.reshape(-1)
    return Scores([int(value) for value in squares], 3 * (n * k) ** 2)


def feature_scores(
    counts: Codes, candidates: Codes, features: Codes, candidate_features: Codes | None = None
) -> Scores:
    """Distances of mean features over Delta = D/n: |k phi h - n phi' z| / (k D).

    Args:
        counts: int64[s], private counts.
        candidates: int64[N, s], counts of k records each.
        features: int64[p, s], phi of each cell, public.
        candidate_features: int64[p, s], phi' of each cell; by default phi.

    Returns:
        Square roots of fractions.
    """
    other = features if candidate_features is None else candidate_features
    n, k = _sizes(counts, candidates)
    most = max(int(np.abs(part).max(initial=0)) for part in (features, other))
    kind: type = object if 2 * n * k * max(most, 1) >= _WORD else np.int64
    data: NDArray[Any] = k * (features.astype(kind) @ counts.astype(kind))
    gaps = data - n * (candidates.astype(kind) @ other.astype(kind).T)
    gaps = gaps.astype(object)
    # With D = 0 the data cannot change the score, and any scale will do.
    square = max(_diameter_square(features), 1)
    return Scores([int(value) for value in (gaps * gaps).sum(axis=1)], k * k * square, True)


def _diameter_square(features: Codes) -> int:
    """D^2, the largest square distance of two cells' features, or a bound on it."""
    p, s = features.shape
    if s <= _MOST_PAIRED and 4 * p * max(int(np.abs(features).max(initial=0)), 1) ** 2 < _WORD:
        products = features.T @ features
        norms = products.diagonal()
        return int((norms[:, np.newaxis] + norms - 2 * products).max())
    ranges = features.max(axis=1) - features.min(axis=1)
    return sum(int(value) ** 2 for value in ranges)


def mean_features(shape: Sequence[int]) -> Codes:
    """int64[r, s], the positions of all cells of a grid, scaled to 0..2^20 per column."""
    grid = np.indices(tuple(shape), dtype=np.int64).reshape(len(shape), -1)
    scaled = [
        (row << _FEATURE_BITS) // max(size - 1, 1) for row, size in zip(grid, shape, strict=True)
    ]
    return np.array(scaled, dtype=np.int64)


def series_features(n_cells: int, terms: int) -> Codes:
    """int64[m, s], sqrt 2 cos(pi j x) at the middles x of equal cells of [0, 1], times 2^20.

    Args:
        n_cells: Number of cells s, in order.
        terms: Number m of terms j = 1..m of the cosine basis.
    """
    middles = (np.arange(n_cells) + 0.5) / n_cells
    order = np.arange(1, terms + 1)[:, np.newaxis]
    basis = np.sqrt(2) * np.cos(np.pi * order * middles)
    features: Codes = np.rint(basis * 2**_FEATURE_BITS).astype(np.int64)
    return features


def series_terms(records: int, smoothness: Fraction) -> int:
    """Terms of the series, the floor of records^(1/(2 gamma + 1)) (section 5.3), at least 1."""
    power = 2 * smoothness + 1
    root: int = max(1, math.floor(records ** (1 / float(power))))
    # The float may be off by one: (m + 1)^power <= records decides, in integers.
    while (root + 1) ** power.numerator <= records**power.denominator:
        root += 1
    while root > 1 and root**power.numerator > records**power.denominator:
        root -= 1
    return root


def _cdf_gaps(counts: Codes, candidates: Codes) -> tuple[NDArray[np.int64], int, int]:
    """K H - n Z at every cell, int64[N, s], with n and k."""
    n, k = _sizes(counts, candidates)
    if n * k >= _WORD:
        raise ValueError("too many records for exact distances")
    gaps = k * counts[np.newaxis] - n * candidates
    for axis in range(1, gaps.ndim):
        gaps = gaps.cumsum(axis=axis)
    return gaps.reshape(len(gaps), -1), n, k


def _sizes(counts: Codes, candidates: Codes) -> tuple[int, int]:
    """Records of the data and of each candidate."""
    totals = candidates.reshape(len(candidates), -1).sum(axis=1)
    n, k = int(counts.sum()), int(totals[0])
    if n < 1 or k < 1 or np.any(totals != k) or candidates.shape[1:] != counts.shape:
        raise ValueError("needs n >= 1 and candidates of one size k >= 1 over the same cells")
    return n, k
