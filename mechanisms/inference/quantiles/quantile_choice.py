"""A quantile with an interval that holds for every n and every law, by the exponential mechanism.

Records lie in ordered cells with public edges e_0 < .. < e_K; C_j is the count below e_j. A cell j
is chosen with probability exactly proportional to exp(-u_j), u_j the largest of 0, a (C_j - r) and
b (r - C_{j+1}): r is a wanted count, a and b are what a record too many below the cell, and one too
few up to its end, cost (Smith 2011, doi 10.1145/1993636.1993743, on cells, with a = b).

**Loss.** Of replace-one neighbours one has C'_j - C_j in {0, 1} for all j: the records below e_j
grow or fall in number at all edges alike. So every u'_j - u_j lies in [-b, a], and the loss, which
is u'_j - u_j plus a constant, has a range of at most epsilon = a + b (Dong, Durfee and Rogers 2020,
arXiv 1909.13830). How a + b is split is free.

**Interval.** The lower end is the lower edge of a cell chosen for a count r, far enough below the
quantile's, and the upper end likewise. Sampling and choice share one failure probability, (1 -
level)/2 an end, and r is the largest that keeps it: mechanisms.inference.quantiles.quantile_margins
has the proof. As a guards against what is not allowed, and b only against what is needlessly wide,
a is larger. The split is the one with the least expected span for records spread evenly, where the
count at the end chosen is on average r - (1/b - 1/a). A wanted count below 0 or above n is not
asked for: the end is that of the declared range, which never fails, and the other end may fail with
1 - level. The upper end is the lower end seen from above: of the cells in reverse, and share 1 - q.

**Budget.** END_SHARE of epsilon is for each end, the rest for a point estimate: the middle of a
cell chosen between the two ends (which are public by then) for the quantile's own count, with a = b
and base weights 1, 4 and 16 in thirds towards the place where the quantile is if records are spread
evenly between the ends. Base weights that do not depend on the data leave the range of a loss.

Records beyond the edges are taken into the end cells: the quantile is that of clamped records.

**Records without a value** are left out: C and all wanted counts are of the m records that have
one, and m is private. (1) A record that comes to have a value raises C_j by 0 or 1, and m by 1.
Each wanted count then rises by 0 or 1 as well, so that C_j - r changes by 0 or 1 at all edges, or
by 0 or -1 at all, as where one value replaces another, and the range of the loss is a + b. (2)
Whether an end is asked for must not depend on m: it always is, but the first cell counts as
reaching down without end, and the last up, so that some u_j is 0 whatever r. A lower end in the
first cell is the range's own and never above x; in another cell the proof holds; likewise the upper
end. (3) Given m, the values are independent, of the law given that there is one, so the coverage
holds for every m. For (1) the lower r is the largest of R(i) - max(i - m, 0) over a public grid of
sizes i, R(i) the wanted count for i records, and the upper likewise. As a function of m each term
rises by 0 or 1 a step, hence so does their maximum, whatever the figures R(i), also as rounded. As
R(i + 1) is R(i) or R(i) + 1, no term is above R(m); at m = n one is equal to it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from mechanisms.accounting.analytic import BoundedRangeLoss
from mechanisms.accounting.composition import compose
from mechanisms.accounting.privacy_loss import PrivacyLoss
from mechanisms.domain.columns import Codes
from mechanisms.errors import ConfigError
from mechanisms.inference.intervals import check_level
from mechanisms.inference.quantiles.cell_choice import (
    Run,
    between,
    choose_cell,
    runs_of,
    without_end,
)
from mechanisms.inference.quantiles.quantile_margins import EndRule

END_SHARE = Fraction(5, 12)
"""Of epsilon, for each end; the rest is for the value."""
_ZONES, _ZONE_WEIGHT = 3, 4  # of the base weights of the value
_GUARDS = [Fraction(part, 10) for part in range(5, 10)]  # of an end's epsilon, for its guarded side


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

    @functools.cached_property
    def ends(self) -> EndChoices:
        """How both ends are chosen."""
        return min((self._ends(guard) for guard in _GUARDS), key=lambda each: each.span)

    def _ends(self, guard: Fraction) -> EndChoices:
        steep, gentle = (END_SHARE * self.epsilon * part for part in (guard, 1 - guard))
        n, q, others = self.n_records, float(self.share), max(1, len(self.edges) - 2)
        failure = (1 - self.level) / 2
        low, high = (EndRule(each, float(steep), others, failure) for each in (q, 1 - q))
        lower, upper = low.wanted(n), n - high.wanted(n)
        if not self.values_lacking and (lower < 0) != (upper > n):
            low, high = (each._replace(failure=2 * failure) for each in (low, high))
            lower = low.wanted(n) if lower >= 0 else lower
            upper = n - high.wanted(n) if upper <= n else upper
        drift = float(1 / gentle - 1 / steep)
        span = min(upper + drift, n) - max(lower - drift, 0)
        return EndChoices(low, high, steep, gentle, lower, upper, span)

    @property
    def wanted(self) -> tuple[int, int, int]:
        """Counts asked for: of the value, the lower and the upper end."""
        return round(self.n_records * self.share), self.ends.lower, self.ends.upper

    def wanted_of(self, present: int) -> tuple[int, int, int]:
        """The same where so many records have a value: a private number."""
        found = []
        for sizes, counts in self._grids:
            found.append(int(np.max(counts - np.maximum(sizes - present, 0))))
        return round(present * self.share), found[0], present - found[1]

    @functools.cached_property
    def _grids(self) -> tuple[tuple[Codes, Codes], tuple[Codes, Codes]]:
        """Sizes up to n with the wanted counts of a lower end, for either end."""
        low = self.ends.low.on_grid(self.n_records)
        return low, low if self.share == Fraction(1, 2) else self.ends.high.on_grid(self.n_records)

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
        lacking, last = self.values_lacking, len(self.edges) - 2
        runs = runs_of(cells, counts, len(self.edges) - 1)
        steep, gentle = self.ends.steep, self.ends.gentle
        centre, low, high = self.wanted_of(int(counts.sum())) if lacking else self.wanted
        ends = [0, last]
        for_ends = without_end(runs) if lacking else runs
        if lacking or low >= 0:
            ends[0] = choose_cell(for_ends, low, rng, above=steep, below=gentle)
        if lacking or high <= self.n_records:
            ends[1] = choose_cell(for_ends, high, rng, above=gentle, below=steep)
        rate = (1 - 2 * END_SHARE) * self.epsilon / 2
        candidates = self._candidates(runs, min(ends), max(ends))
        return choose_cell(candidates, centre, rng, above=rate, below=rate), ends[0], ends[1]

    def _candidates(self, runs: Sequence[Run], first: int, last: int) -> list[Run]:
        """The cells from a first to a last, with their base weights for the value."""
        lowest, highest = max(self.ends.lower, 0), min(self.ends.upper, self.n_records)
        middle = (self.share * self.n_records - lowest) / max(highest - lowest, 1)
        middle, count = min(max(middle, Fraction(0)), Fraction(1)), last + 1 - first
        left = [first + int(count * middle * zone / _ZONES) for zone in range(_ZONES)]
        right = [last + 1 - int(count * (1 - middle) * zone / _ZONES) for zone in range(_ZONES)]
        cuts, found = sorted({*left, *right}), []
        for start, stop in itertools.pairwise(cuts):
            zone = sum(a <= start and stop <= b for a, b in zip(left, right, strict=True))
            weight = _ZONE_WEIGHT ** (zone - 1)
            found += [run._replace(weight=weight) for run in between(runs, start, stop - 1)]
        return found

    @property
    def expected_share(self) -> float:
        """Share of the records that the interval is expected to span, at most 1."""
        return self.ends.span / self.n_records


class EndChoices(NamedTuple):
    """How both ends are chosen; public.

    Attributes:
        low: What the wanted count of the lower end depends on.
        high: That of the upper end, seen from above.
        steep: What a record beyond the wanted count costs on the side of the quantile.
        gentle: What it costs on the other side.
        lower: The wanted count of the lower end, where every record has a value.
        upper: Of the upper end.
        span: Records that the interval is expected to span, if they are spread evenly.
    """

    low: EndRule
    high: EndRule
    steep: Fraction
    gentle: Fraction
    lower: int
    upper: int
    span: float


def quantile_loss(epsilon: Fraction, end_share: Fraction = END_SHARE) -> PrivacyLoss:
    """The privacy loss of the three choices.

    Args:
        epsilon: Of all three together.
        end_share: Of epsilon, for each end; a third in descriptions that do not say so.
    """
    ends = BoundedRangeLoss(end_share * epsilon)
    return compose([ends, ends, BoundedRangeLoss((1 - 2 * end_share) * epsilon)])
