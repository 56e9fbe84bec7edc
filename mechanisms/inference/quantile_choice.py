"""A quantile with an interval that holds for every n and every law, by the exponential mechanism.

Records lie in ordered cells with public edges e_0 < .. < e_K; C_j is the count below e_j. A cell j
is chosen with probability exactly proportional to exp(-epsilon u_j / 2), u_j the distance from a
wanted count r to [C_j, C_{j+1}] (Smith 2011, doi 10.1145/1993636.1993743, on cells). Replace-one
neighbours: every C moves by at most 1, so every u_j does, and a choice is epsilon-DP (McSherry and
Talwar 2007); its loss is epsilon (u'_j - u_j)/2 plus a constant, of range epsilon at most. Some u_j
is 0 if 0 <= r <= n, so u_j >= E has probability at most K exp(-epsilon E / 2).

**Interval.** Let x be a q-quantile of the law of independent records: P(X < x) <= q <= P(X <= x).
The lower end is the lower edge of a cell chosen for r = b - E - 1, b the alpha/4 quantile of
Binomial(n, q). It is above x only if C_j >= #(records <= x), and C_j <= r + E but with
probability alpha/4; #(records <= x) <= r + E < b has probability at most alpha/4. Likewise
the upper end, the upper edge for r = b' + E + 1. A wanted count below 0 or above n is not
asked for: the end is that of the declared range. So the coverage is at least 1 - alpha. Two
thirds of epsilon are for the ends, one third for a point estimate, the middle of a cell.

Records beyond the edges are taken into the end cells: the quantile is that of clamped records.

**Records without a value** are left out: C, r, b and b' are of the m records that have one, and m
is private. (1) A record that comes to have a value raises C_j by 0 or 1, and m by 1. Each wanted
count then rises by 0 or 1 as well, so C_j - r changes by at most 1, as where one value replaces
another, and u_j with it. (2) Whether an end is asked for must not depend on m: it always is, but
the first cell counts as reaching down without end, and the last up, so that some u_j is 0 whatever
r. A lower end in the first cell is the range's own and never above x; in another cell the proof
above holds; likewise the upper end. (3) Given m, the values are independent, of the law given
that there is one, so the coverage holds for every m. For (1) b is replaced by the largest of b(i) -
max(i - m, 0) and b' by the least of b'(i) + max(m - i, 0), over a public grid of sizes i. As a
function of m each term rises by 0 or 1 a step, hence so does their maximum or minimum, whatever the
figures b(i), also as rounded. One more trial raises a binomial quantile by 0 or 1, so that no term
is above b(m), or below b'(m); at m = n one is equal to it.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb

from mechanisms.accounting.analytic import BoundedRangeLoss
from mechanisms.accounting.composition import compose
from mechanisms.accounting.privacy_loss import PrivacyLoss
from mechanisms.domain.columns import Codes
from mechanisms.errors import ConfigError
from mechanisms.inference.intervals import check_level
from mechanisms.sampling.real_weights import choose_real, decay, rate_of

_GRID_STEP = 0.05  # of the square root of a size: what it costs is at most a tenth of that
_MOST_SIZES = 100_000


@dataclass(frozen=True)
class QuantileEstimate:
    """What is released of a quantile."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True)
class NoisyQuantile:
    """The release of a quantile and its interval at fixed parameters; all of them are public.

    Attributes:
        edges: Finite and increasing, one more than there are cells.
        share: The q of the quantile, in (0, 1); 1/2 for the median.
        level: Confidence level of the interval.
        epsilon: Of all three choices together.
        n_records: Number of records n.
        values_lacking: Whether records may lack a value, so that their number is private.
    """

    edges: tuple[float, ...]
    share: Fraction
    level: float
    epsilon: Fraction
    n_records: int
    values_lacking: bool = False

    def __post_init__(self) -> None:
        check_level(self.level)
        if len(self.edges) < 2 or not all(np.isfinite(self.edges)):
            raise ConfigError("A quantile needs at least two finite edges.")
        if np.any(np.diff(self.edges) <= 0):
            raise ConfigError("The edges of a quantile must increase.")
        if not 0 < self.share < 1 or self.epsilon <= 0 or self.n_records < 1:
            raise ConfigError("A quantile needs a share in (0, 1), an epsilon and records.")

    def loss(self) -> PrivacyLoss:
        """The privacy loss of the three choices; takes no data."""
        return quantile_loss(self.epsilon)

    @property
    def error(self) -> int:
        """The E that a choice passes with probability at most (1 - level)/4, in records."""
        odds = 4 * (len(self.edges) - 1) / (1 - self.level)
        return math.ceil(2 * math.log(odds) / float(self.epsilon / 3) * (1 + 1e-12))

    @property
    def wanted(self) -> tuple[int, int, int]:
        """Counts asked for: of the value, the lower and the upper end."""
        n = self.n_records
        low, high = (int(quantiles[0]) for quantiles in self._binomial(np.array([n])))
        return round(n * self.share), low - self.error - 1, high + self.error + 1

    def wanted_of(self, present: int) -> tuple[int, int, int]:
        """The same where so many records have a value: a private number."""
        sizes, low, high = self._grid
        lowest = int(np.max(low - np.maximum(sizes - present, 0)))
        highest = int(np.min(high + np.maximum(present - sizes, 0)))
        return round(present * self.share), lowest - self.error - 1, highest + self.error + 1

    def _binomial(self, sizes: Codes) -> tuple[Codes, Codes]:
        """The (1 - level)/4 quantile of as many trials, and that above which there is as much."""
        tail = (1 - self.level) / 4
        low, high = (_binomial_quantiles(p, sizes, float(self.share)) for p in (tail, 1 - tail))
        return low, high

    @functools.cached_property
    def _grid(self) -> tuple[Codes, Codes, Codes]:
        """Sizes up to n, a fraction of their square root apart, with their quantiles."""
        step = max(_GRID_STEP, 2 * math.sqrt(self.n_records) / _MOST_SIZES)
        points = np.arange(0, 2 * math.sqrt(self.n_records) / step)
        sizes = np.unique(np.append(np.floor((points * step / 2) ** 2), self.n_records))
        whole = sizes[sizes <= self.n_records].astype(np.int64)
        return whole, *self._binomial(whole)

    def release(self, cells: Codes, counts: Codes, rng: np.random.Generator) -> QuantileEstimate:
        """Make the three choices.

        Args:
            cells: int64[k], ascending codes of occupied cells.
            counts: int64[k], their private counts, adding up to n.
            rng: Source of bits; charge the ledger before building it.
        """
        at, low, high = self.chosen(cells, counts, rng)
        lower, upper = self.edges[low], self.edges[high + 1]
        value = (self.edges[at] + self.edges[at + 1]) / 2
        return QuantileEstimate(value, min(lower, upper), max(lower, upper))

    def chosen(self, cells: Codes, counts: Codes, rng: np.random.Generator) -> tuple[int, int, int]:
        """The cells of the value, of the lower end and of the upper end; as for ``release``.

        Where values may lack, the counts are of the records that have one, and may be none.
        """
        if self.values_lacking:
            centre, low, high = self.wanted_of(int(counts.sum()))
            return (
                self._choose(cells, counts, centre, rng),
                self._choose(cells, counts, low, rng, end=True),
                self._choose(cells, counts, high, rng, end=True),
            )
        centre, low, high = self.wanted
        at = self._choose(cells, counts, centre, rng)
        first, last = 0, len(self.edges) - 2
        if low >= 0:
            first = self._choose(cells, counts, low, rng)
        if high <= self.n_records:
            last = self._choose(cells, counts, high, rng)
        return at, first, last

    @property
    def expected_share(self) -> float:
        """Share of the records that the interval is expected to span, at most 1."""
        _, low, high = self.wanted
        n = self.n_records
        return (min(high, n) - max(low, 0)) / n

    def _choose(
        self,
        cells: Codes,
        counts: Codes,
        wanted: int,
        rng: np.random.Generator,
        *,
        end: bool = False,
    ) -> int:
        """A cell; runs of empty cells, which share their score, are drawn together.

        For an ``end`` the first cell reaches down without end, and the last up.
        """
        n_cells = len(self.edges) - 1
        runs = _runs(cells, counts, n_cells)
        if end:
            runs = _outer_cells_apart(runs, n_cells)
        gaps = [
            max(
                0 if end and first == 0 else before - wanted,
                0 if end and first == n_cells - 1 else wanted - after,
                0,
            )
            for first, _, before, after in runs
        ]
        rate = rate_of(self.epsilon / 3, 1)
        least = min(gaps)

        def weights() -> Sequence[arb]:
            return [run[1] * decay(rate, gap - least) for run, gap in zip(runs, gaps, strict=True)]

        first, size, _, _ = runs[choose_real(weights, rng)]
        return first + int(rng.integers(size))


def quantile_loss(epsilon: Fraction) -> PrivacyLoss:
    """The privacy loss of three choices that share an epsilon."""
    return compose([BoundedRangeLoss(epsilon / 3)] * 3)


def _binomial_quantiles(p: float, sizes: Codes, share: float) -> Codes:
    """int64[m]: the least k with P(Binomial(n, share) <= k) >= p, for each n and a p in (0, 1)."""
    from scipy.special import bdtrik, betainc

    def reached(k: Codes) -> Any:
        return (k >= sizes) | (betainc(np.maximum(sizes - k, 1), k + 1, 1 - share) >= p)

    # Near; the incomplete beta function decides.
    found: Codes = np.nan_to_num(bdtrik(p, sizes, share), nan=0.0).astype(np.int64)
    while (below := ~reached(found)).any():
        found = found + below
    while (above := (found > 0) & reached(np.maximum(found - 1, 0))).any():
        found = found - above
    return found


def _outer_cells_apart(
    runs: list[tuple[int, int, int, int]], n_cells: int
) -> list[tuple[int, int, int, int]]:
    """The runs, with the first cell and the last in runs of their own."""
    found = []
    for first, size, before, after in runs:
        cuts = {first, first + size} | ({1, n_cells - 1} & set(range(first, first + size)))
        for start, stop in itertools.pairwise(sorted(cuts)):
            found.append((start, stop - start, before, after))
    return found


def _runs(cells: Codes, counts: Codes, n_cells: int) -> list[tuple[int, int, int, int]]:
    """First cell, number of cells, counts before and after: of each occupied cell and each gap."""
    runs: list[tuple[int, int, int, int]] = []
    at = total = 0
    for cell, count in zip(cells.tolist(), counts.tolist(), strict=True):
        if cell > at:
            runs.append((at, cell - at, total, total))
        runs.append((cell, 1, total, total + count))
        at, total = cell + 1, total + count
    if at < n_cells:
        runs.append((at, n_cells - at, total, total))
    return runs
