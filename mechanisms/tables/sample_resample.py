"""Sample and resample: one of N public candidate datasets, chosen by its distance to the data.

Source: Wasserman and Zhou (2010, doi 10.1198/jasa.2009.tm08651), section 6, with the distances of
section 5; the proofs are in mechanisms/README.md, section 4. Draw N candidate datasets
U_1..U_N of k records from a proposal that does not see the data (uniform, or Dirichlet
probabilities with a given ``concentration``), and release U_j with probability proportional to

    exp(-epsilon xi(h, U_j) / (2 Delta)).

**Privacy.** Given the candidates, which may be published and whose number costs nothing, this is
the exponential mechanism with a finite range and the counting measure; its density ratio between
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

**Distances**, and the default of k: ``ks`` and ``cramer_von_mises``, n^(2/3) (Theorems 15
and 16); ``mean``, the Euclidean distance of the mean positions, 1 (section 5.2: one record
carries a mean); ``series``, the L2 distance of orthogonal cosine series with n^(1/(2 gamma
+ 1)) and k^(1/(2 gamma + 1)) terms, sqrt n (Theorem 18, which asks for gamma above 1).
Columns are axes of a grid, in the declared order of their cells; ``series`` takes one.

**Error.** Besides the bias of statpress.mechanisms.tables.exponential_ks, N candidates reach no
nearer than the best of them: of k uniform records, to a Kolmogorov-Smirnov distance of about
pi/sqrt(8 k log N) of data that are near uniform themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from flint import arb, fmpq
from numpy.typing import NDArray

from statpress.mechanisms.accounting.losses import BoundedRangeLoss
from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.errors import ConfigError, RecordsError
from statpress.mechanisms.mechanism import (
    CESAR_ROGERS,
    MCSHERRY_TALWAR,
    PROOF,
    WASSERMAN_ZHOU,
    Citation,
    Target,
)
from statpress.mechanisms.sampling.randomness import Progress, Randomness, choose_real, rate_of
from statpress.mechanisms.tables.expected import BRIDGE, ExpectedCounts
from statpress.mechanisms.tables.exponential_ks import (
    ExponentialRecords,
    check_records,
    dense_counts,
    grid_shape,
    sparse_table,
)

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
    """Candidate datasets from a proposal that knows nothing of the data."""
    if concentration is None:
        return rng.multinomial(records, np.full(n_cells, 1 / n_cells), size=candidates)
    shares = rng.dirichlet(np.full(n_cells, concentration), size=candidates)
    return rng.multinomial(records, shares)


def choose_candidate(
    scores: Scores,
    epsilon: Fraction | float,
    rng: np.random.Generator,
) -> int:
    """Index of the candidate to release."""
    rate, least = rate_of(epsilon, 1), min(scores.numerators)
    smallest = Scores([least], scores.denominator, scores.root)

    def weights() -> list[arb]:
        scale = arb(fmpq(rate.numerator, rate.denominator))
        shift = smallest.enclosures()[0]
        return [((shift - score) * scale).exp() for score in scores.enclosures()]

    return choose_real(weights, rng)


def ks_scores(counts: Codes, candidates: Codes) -> Scores:
    """KS distances over Delta = 1/n: max |k H - n Z| / k."""
    gaps, _, k = _cdf_gaps(counts, candidates)
    return Scores([int(value) for value in np.abs(gaps).max(axis=1)], k)


def cramer_von_mises_scores(counts: Codes, candidates: Codes) -> Scores:
    """Cramer-von Mises distances over Delta = 3/n: sum of h (k H - n Z)^2 / (3 n^2 k^2)."""
    gaps, n, k = _cdf_gaps(counts, candidates)
    if n * (n * k) ** 2 >= _WORD:
        gaps = gaps.astype(object)
    squares = (gaps * gaps) @ counts.reshape(-1)
    return Scores([int(value) for value in squares], 3 * (n * k) ** 2)


def feature_scores(
    counts: Codes,
    candidates: Codes,
    features: Codes,
    candidate_features: Codes | None = None,
    *,
    most_paired: int = _MOST_PAIRED,
) -> Scores:
    """Distances of mean features over Delta = D/n: |k phi h - n phi' z| / (k D)."""
    other = features if candidate_features is None else candidate_features
    n, k = _sizes(counts, candidates)
    most = max(int(np.abs(part).max(initial=0)) for part in (features, other))
    kind: type = object if 2 * n * k * max(most, 1) >= _WORD else np.int64
    data: NDArray[Any] = k * (features.astype(kind) @ counts.astype(kind))
    gaps = data - n * (candidates.astype(kind) @ other.astype(kind).T)
    gaps = gaps.astype(object)
    # With D = 0 the data cannot change the score, and any scale will do.
    square = max(_diameter_square(features, most_paired), 1)
    return Scores([int(value) for value in (gaps * gaps).sum(axis=1)], k * k * square, True)


def _diameter_square(features: Codes, most_paired: int) -> int:
    """D^2, the largest square distance of two cells' features, or a bound on it."""
    p, s = features.shape
    if s <= most_paired and 4 * p * max(int(np.abs(features).max(initial=0)), 1) ** 2 < _WORD:
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
    """int64[m, s], sqrt 2 cos(pi j x) at the middles x of equal cells of [0, 1], times 2^20."""
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


Distance = Literal["ks", "cramer_von_mises", "mean", "series"]
_MOST_COUNTS = 4_000_000  # over all cells of all candidates
_MOST_TERMS = 200
_MOST_PRODUCT = 1 << 62  # of n and k, for exact distances
_INSTEAD = "Declare fewer cells, or use 'smoothed_histogram' or 'bootstrap'."
_LEAST, _MOST = Fraction(1, 1000), Fraction(1000)


@dataclass(frozen=True, kw_only=True)
class SampleResampleKnobs:
    """What a config may say about this mechanism.

    Attributes:
        distance: Between the data and a candidate.
        candidates: Their number, N.
        records: Of each, k; by default as the module says.
        smoothness: gamma of ``series``, above 1/2; by default 2.
        concentration: Of the Dirichlet distribution that each candidate's probabilities
            are drawn from first, 1/1000 to 1000; by default they are uniform.
    """

    distance: Distance = "ks"
    candidates: int = 1000
    records: int | None = None
    smoothness: Fraction | None = None
    concentration: Fraction | None = None

    def __post_init__(self) -> None:
        if self.records is not None:
            check_records(self.records, "records")
        _check(self.distance, self.candidates, self.smoothness, self.concentration)


@dataclass(frozen=True, kw_only=True)
class SampleResample(ExponentialRecords):
    """The mechanism at fixed parameters; see its knobs."""

    name: ClassVar[str] = "sample_resample"
    citations: ClassVar[tuple[Citation, ...]] = (
        WASSERMAN_ZHOU.at("Theorem 5, section 6"),
        MCSHERRY_TALWAR,
        CESAR_ROGERS,
        PROOF.at("Theorem 4.3"),
    )
    knobs: ClassVar[type] = SampleResampleKnobs

    distance: Distance
    candidates: int
    smoothness: Fraction | None = None
    concentration: Fraction | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self.distance, self.candidates, self.smoothness, self.concentration)
        if (self.smoothness is None) == (self.distance == "series"):
            raise ConfigError("'series' has a smoothness and no other distance.")

    def release(
        self, table: ContingencyTable, rng: Randomness, progress: Progress | None = None
    ) -> ContingencyTable:
        """Draw the candidates and choose one, held as counts per drawn cell."""
        counts = dense_counts(table)
        spread = None if self.concentration is None else float(self.concentration)
        public = draw_candidates(
            self.candidates, len(counts), self.records, rng, concentration=spread
        )
        scores = self.scores(counts, public, grid_shape(table.domain))
        chosen = public[choose_candidate(scores, self.epsilon, rng)]
        if progress is not None:
            progress(self.records)
        return sparse_table(table.domain, chosen)

    def scores(self, counts: Codes, public: Codes, shape: tuple[int, ...]) -> Scores:
        """Distances of candidates int64[N, s] to counts int64[s], in sensitivities. Private."""
        if self.distance in ("ks", "cramer_von_mises"):
            score = ks_scores if self.distance == "ks" else cramer_von_mises_scores
            return score(counts.reshape(shape), public.reshape(len(public), *shape))
        if self.distance == "mean":
            return feature_scores(counts, public, mean_features(shape))
        assert self.smoothness is not None
        terms, kept = (
            _terms(records, self.smoothness, len(counts))
            for records in (int(counts.sum()), self.records)
        )
        features = series_features(len(counts), max(terms, kept))
        of_data, of_candidates = (
            np.where(np.arange(len(features))[:, np.newaxis] < number, features, 0)
            for number in (terms, kept)
        )
        return feature_scores(counts, public, of_data, of_candidates)

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedCounts:
        """Sampling error of k records; for ``ks`` as the module says. A guide, not a bound."""
        error = super().expected_error(n_records=n_records, n_cells=n_cells)
        if self.distance != "ks" or self.candidates == 1:
            return error
        k, e = self.records, float(self.epsilon) * n_records
        best = math.pi / math.sqrt(8 * k * math.log(self.candidates))
        chosen = (math.pi**2 / (2 * k * e)) ** (1 / 3)
        distance = min(max(best, chosen), BRIDGE / math.sqrt(k), 1.0)
        return replace(error, kolmogorov_smirnov=distance)

    @classmethod
    def calibrate(cls, knobs: SampleResampleKnobs, target: Target) -> Self:
        """The largest epsilon that the target allows.

        Raises:
            ConfigError: The product has too many columns or cells, or there are too many
                records or candidates for it.
            InfeasibleBudgetError: The budget is next to nothing.
        """
        series = knobs.distance == "series"
        columns, instead = (1, "Use another distance.") if series else (None, _INSTEAD)
        target.grid(cls.name, columns=columns, instead=instead)
        if knobs.candidates * target.n_cells > _MOST_COUNTS:
            raise ConfigError(
                f"{knobs.candidates:,} candidates over {target.n_cells:,} cells are more than "
                f"{_MOST_COUNTS:,} counts.",
                next_step=f"Give fewer candidates. {_INSTEAD}",
            )
        n = target.n_records
        power = {"mean": 0.0, "series": 0.5}.get(knobs.distance, 2 / 3)
        most = max(1, (_MOST_PRODUCT - 1) // n)
        records = knobs.records or min(max(1, round(n**power)), 10**6, most)
        if records > most:
            raise RecordsError(
                f"{records:,} records are too many for exact distances to {n:,}.",
                next_step=f"Give at most {most:,} records.",
            )
        smoothness = (knobs.smoothness or Fraction(2)) if series else None
        if smoothness is not None and _terms(n, smoothness, target.n_cells) > _MOST_TERMS:
            raise ConfigError(
                f"A series of this smoothness has more than {_MOST_TERMS} terms.",
                next_step="Give a larger smoothness.",
            )
        return cls(
            epsilon_per_record=target.pure_epsilon(BoundedRangeLoss),
            records=records,
            distance=knobs.distance,
            candidates=knobs.candidates,
            smoothness=smoothness,
            concentration=knobs.concentration,
        )


def _terms(records: int, smoothness: Fraction, n_cells: int) -> int:
    """Terms of a series; further ones are 0 or repeat others at the middles of s cells."""
    return min(series_terms(records, smoothness), max(n_cells - 1, 1))


def _check(
    distance: str, candidates: int, smoothness: Fraction | None, concentration: Fraction | None
) -> None:
    if distance not in get_args(Distance):
        raise ConfigError(
            f"There is no such distance; there are {', '.join(get_args(Distance))}.",
            where="distance",
        )
    if not 1 <= candidates <= _MOST_COUNTS:
        raise ConfigError(
            f"The number of candidates must be between 1 and {_MOST_COUNTS:,}.", where="candidates"
        )
    if smoothness is not None:
        if distance != "series":
            raise ConfigError("A smoothness goes only with 'distance: series'.", where="smoothness")
        if not Fraction(1, 2) < smoothness <= 100 or smoothness.denominator > 1000:
            raise ConfigError(
                "The smoothness must be above 1/2 and at most 100, with a denominator of at "
                "most 1000.",
                where="smoothness",
            )
    if concentration is not None and not _LEAST <= concentration <= _MOST:
        raise ConfigError(
            "The concentration must be between 1/1000 and 1000.", where="concentration"
        )
