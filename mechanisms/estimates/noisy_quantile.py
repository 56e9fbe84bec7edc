"""Medians and quantiles by the exponential mechanism, with an interval that holds for every law.

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
level)/2 an end, and r is the largest that keeps it, as is proven below. As a guards against what is
not allowed, and b only against what is needlessly wide, a is larger. The split is the one with the
least expected span for records spread evenly, where the count at the end chosen is on average r -
(1/b - 1/a). A wanted count below 0 or above n is not asked for: the end is that of the declared
range, which never fails, and the other end may fail with 1 - level. The upper end is the lower end
seen from above: of the cells in reverse, and share 1 - q.

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

**Cells.** They are the column's own in the order of their values. What is published of a cell are
numbers that a record in it can have: both edges of a bin and their middle, the first and the last
whole number of a cell of whole numbers, and of categories that are numbers the number itself. **The
upper end may be the last whole number** of a cell, not the first of the next: if that is below the
quantile x, then x is in a later cell, and the records counted up to the cell's end are all below x,
which is what the proof of the interval needs. Numbers within a cell are not told apart: for a bin
the quantile is known up to its width. Cells that follow each other and have the same score are
drawn together, so that what a choice costs grows with the occupied cells and not with all.

Which counts the ends aim at
----------------------------
Sampling and choice share one failure probability. A lower end is the lower edge of a cell chosen
among K with probability proportional to exp(-a (C_j - r)) where the count C_j below the cell
exceeds the wanted count r, and to 1 at most elsewhere; 1 if r lies between the counts at the cell's
ends. Let x be a q-quantile of the law of m independent records, and S = #(records <= x), which is
Binomial(m, q) at the least, in stochastic order.

**Failure.** The end is above x only if the chosen cell is. Such cells have C_j >= S, and there are
at most K' = K - 1 of them, since the cell of x is not one. If S = s >= r, some other cell has
weight 1: that of x if the count below it is at most r, and else one before it. So their
probability, given the data, is at most

    h(s - r),   h(d) = K' e^(-a d)/(1 + K' e^(-a d)) for d >= 0, and h(d) = 1 for d < 0,

and as h falls, the end is above x with probability at most E h(B - r), B ~ Binomial(m, q). The
wanted count R(m) is the largest r for which this is at most the failure allowed. No choice of this
kind can want more: where q of the records are in the first cell and the others in the last,
h(s - r) is the probability itself for all s >= r. h is the tail of a logistic variable of scale 1/a
about ln(K')/a, which explains the size: R(m) is ln(K')/a below a quantile of the sum of a binomial
and a logistic variable.

**One more record.** Binomial(m + 1, q) lies between Binomial(m, q) and the same plus 1, so that
E h(B_{m+1} - r) <= E h(B_m - r) and E h(B_{m+1} - r - 1) >= E h(B_m - r): R(m + 1) is R(m) or
R(m) + 1.

**Rounding.** B - r is rounded down to a grid of offsets (all of them where a is large), h being
what it is at the grid's point below: E h is then a weighted sum of binomial distribution functions,
and too large. What is asked is less than is allowed by one in 10^9, more than the errors of scipy's
incomplete beta function and of the sum.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, Context
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from flint import arb

from statpress.mechanisms.accounting.composition import compose
from statpress.mechanisms.accounting.losses import BoundedRangeLoss, PrivacyLoss
from statpress.mechanisms.domain.column import Ranges
from statpress.mechanisms.domain.columns import Codes, Column
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.estimates.estimand import EstimandKnobs, amounts_of
from statpress.mechanisms.estimates.estimate import (
    Estimate,
    EstimateMechanism,
    ExpectedInterval,
    RawEstimates,
    estimand_for,
    number,
)
from statpress.mechanisms.estimates.fieller import Floats, check_level
from statpress.mechanisms.estimates.statistics import NamedStatistic, Terms
from statpress.mechanisms.mechanism import (
    CESAR_ROGERS,
    MCSHERRY_TALWAR,
    PROOF,
    SMITH,
    Citation,
    Target,
)
from statpress.mechanisms.sampling.randomness import Progress, Randomness, choose_real, decay


class Run(NamedTuple):
    """Neighbouring cells with one score: an occupied cell, or a gap."""

    first: int  # the first of the cells
    size: int  # how many there are
    before: float  # records before them
    after: float  # records up to their end
    weight: int = 1  # base weight of each of the cells


def choose_cell(
    runs: Sequence[Run],
    wanted: int,
    rng: np.random.Generator,
    *,
    above: Fraction,
    below: Fraction,
) -> int:
    """A cell with probability exactly proportional to its base weight times exp(-u).

    A record before the cell beyond the wanted count costs ``above``, one that is missing to the
    count at the cell's end ``below``. Infinite counts are never exceeded.
    """
    costs = [
        above * int(run.before - wanted)
        if run.before > wanted
        else below * int(wanted - run.after)
        if run.after < wanted
        else Fraction(0)
        for run in runs
    ]
    least = min(costs)

    def weights() -> Sequence[arb]:
        return [
            run.size * run.weight * decay(cost - least, 1)
            for run, cost in zip(runs, costs, strict=True)
        ]

    chosen = runs[choose_real(weights, rng)]
    return chosen.first + int(rng.integers(chosen.size))


def runs_of(cells: Codes, counts: Codes, n_cells: int) -> list[Run]:
    """Each occupied cell, by ascending code, and each gap."""
    runs: list[Run] = []
    at = total = 0
    for cell, count in zip(cells.tolist(), counts.tolist(), strict=True):
        if cell > at:
            runs.append(Run(at, cell - at, total, total))
        runs.append(Run(cell, 1, total, total + count))
        at, total = cell + 1, total + count
    if at < n_cells:
        runs.append(Run(at, n_cells - at, total, total))
    return runs


def between(runs: Sequence[Run], first: int, last: int) -> list[Run]:
    """The runs cut to the cells from a first to a last."""
    cut = []
    for run in runs:
        start, stop = max(run.first, first), min(run.first + run.size, last + 1)
        if start < stop:
            cut.append(run._replace(first=start, size=stop - start))
    return cut


def without_end(runs: Sequence[Run]) -> list[Run]:
    """The runs; the first cell reaches down without end, and the last one up."""
    last = runs[-1].first + runs[-1].size - 1
    inner = between(runs, 1, last - 1)
    first = [run._replace(before=-math.inf) for run in between(runs, 0, 0)]
    if not last:
        return [run._replace(after=math.inf) for run in first]
    return [*first, *inner, *(run._replace(after=math.inf) for run in between(runs, last, last))]


_FINE, _COARSE = 0.1, 0.2  # distance of offsets, in 1/a
_ROUNDING = 1 - 1e-9
_SPARSE = 48  # sizes at which R is searched for without a guess
_GRID_STEP = 0.1  # of the square root of a size: what it costs is at most a tenth of that
_MOST_SIZES = 20_000


class EndRule(NamedTuple):
    """What the wanted count of a lower end depends on, besides the number of records."""

    share: float  # the q of the quantile; 1 - q for an upper end, seen from above
    rate: float  # a, what a record beyond the wanted count costs
    others: int  # K', the cells beyond the quantile, at most
    failure: float  # allowed for the end to lie beyond the quantile

    def wanted(self, present: int) -> int:
        """R, or a little less; below 0 where the records are too few."""
        return int(self._largest(np.array([present]), self._steps(_FINE))[0])

    def on_grid(self, most: int) -> tuple[Codes, Codes]:
        """Sizes up to the largest, close in their square roots, with R or a little less."""
        step = max(_GRID_STEP, 2 * math.sqrt(most) / _MOST_SIZES)
        points = np.arange(0, 2 * math.sqrt(most) / step)
        sizes = np.unique(np.append(np.floor((points * step / 2) ** 2), most))
        sizes = sizes[sizes <= most].astype(np.int64)
        steps = self._steps(_COARSE)
        sparse = np.unique(np.linspace(0, len(sizes) - 1, _SPARSE).astype(int))
        margins = np.floor(sizes[sparse] * self.share) - self._largest(sizes[sparse], steps)
        guess = np.interp(np.sqrt(sizes), np.sqrt(sizes[sparse]), margins)
        wanted = (np.floor(sizes * self.share) - np.ceil(guess)).astype(np.int64)
        todo = np.arange(len(sizes))
        while len(todo):
            todo = todo[self._chance(sizes[todo], wanted[todo], steps) > self.failure * _ROUNDING]
            wanted[todo] -= 1
        wanted[-1] = max(int(wanted[-1]), self.wanted(most))
        return sizes, wanted

    def _steps(self, distance: float) -> tuple[Codes, Floats]:
        """Offsets int64[t] from 0, and by how much h falls at each; the last bounds the rest."""
        log_others = math.log(self.others)
        end = (log_others - math.log(self.failure) + 12) / self.rate
        start = max(0.0, (log_others - 12) / self.rate)
        grid = np.arange(start, end, max(1.0, distance / self.rate))
        offsets = np.unique(np.append(np.ceil(grid), [0, math.ceil(end)])).astype(np.int64)
        beyond = np.clip(self.rate * offsets - log_others, -700, 700)
        heights = np.append(1.0, 1 / (1 + np.exp(beyond)))
        return offsets, np.append(-np.diff(heights), heights[-1])

    def _chance(self, sizes: Codes, wanted: Codes, steps: tuple[Codes, Floats]) -> Floats:
        """float64[k]: the bound on E h for each size and wanted count."""
        offsets, falls = steps
        below = _binomial_cdf(wanted[:, None] + offsets - 1, sizes[:, None], self.share)
        chance: Floats = below @ falls[:-1] + falls[-1]
        return chance

    def _largest(self, sizes: Codes, steps: tuple[Codes, Floats]) -> Codes:
        """The largest wanted count that keeps the failure, for each size, by bisection."""
        low, high = np.full(len(sizes), -int(steps[0][-1]) - 1), sizes + 1
        while np.any(high - low > 1):
            middle = (low + high) // 2
            kept = self._chance(sizes, middle, steps) <= self.failure * _ROUNDING
            low, high = np.where(kept, middle, low), np.where(kept, high, middle)
        return low


def _binomial_cdf(at: Codes, sizes: Codes, share: float) -> Any:
    """P(Binomial(size, share) <= at), float64 of the shape of both."""
    from scipy.special import betainc

    inside = (at >= 0) & (at < sizes)
    tail = betainc(np.where(inside, sizes - at, 1), np.where(inside, at + 1, 1), 1 - share)
    return np.where(inside, tail, (at >= sizes) * 1.0)


END_SHARE = Fraction(5, 12)
"""Share of epsilon for each end; the rest is for the value."""
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
        return min((self._ends(guard) for guard in _GUARDS), key=lambda choices: choices.span)

    def _ends(self, guard: Fraction) -> EndChoices:
        steep, gentle = (END_SHARE * self.epsilon * part for part in (guard, 1 - guard))
        n, q, others = self.n_records, float(self.share), max(1, len(self.edges) - 2)
        failure = (1 - self.level) / 2
        low, high = (EndRule(rule, float(steep), others, failure) for rule in (q, 1 - q))
        lower, upper = low.wanted(n), n - high.wanted(n)
        if not self.values_lacking and (lower < 0) != (upper > n):
            low, high = (rule._replace(failure=2 * failure) for rule in (low, high))
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
        """Counts asked for where so many records have a value: a private number."""
        wanted = []
        for sizes, counts in self._grids:
            wanted.append(int(np.max(counts - np.maximum(sizes - present, 0))))
        return round(present * self.share), wanted[0], present - wanted[1]

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
        cuts, weighted = sorted({*left, *right}), []
        for start, stop in itertools.pairwise(cuts):
            zone = sum(a <= start and stop <= b for a, b in zip(left, right, strict=True))
            weight = _ZONE_WEIGHT ** (zone - 1)
            weighted += [run._replace(weight=weight) for run in between(runs, start, stop - 1)]
        return weighted

    @property
    def expected_share(self) -> float:
        """Share of the records that the interval is expected to span, at most 1."""
        return self.ends.span / self.n_records


class EndChoices(NamedTuple):
    """How both ends are chosen; public."""

    low: EndRule  # what the wanted count of the lower end depends on
    high: EndRule  # that of the upper end, seen from above
    steep: Fraction  # what a record beyond the wanted count costs on the side of the quantile
    gentle: Fraction  # what it costs on the other side
    lower: int  # the wanted count of the lower end, where every record has a value
    upper: int  # of the upper end
    span: float  # records that the interval is expected to span, if they are spread evenly


def quantile_loss(epsilon: Fraction, end_share: Fraction = END_SHARE) -> PrivacyLoss:
    """The privacy loss of the three choices of this epsilon together."""
    ends = BoundedRangeLoss(end_share * epsilon)
    return compose([ends, ends, BoundedRangeLoss((1 - 2 * end_share) * epsilon)])


MOST_CELLS = 4_000_000
"""Most cells of a column; they are all held in memory."""

_STEPS, _DIGITS = 40, Context(prec=9, rounding=ROUND_DOWN)
_FIRST_END_SHARE = Fraction(1, 3)  # of descriptions that do not say


class OrderedCells(NamedTuple):
    """The cells of a column of numbers, in the order of their values."""

    codes: Codes  # int64[k], of each cell in this order
    first: Floats  # float64[k], the least value in each
    last: Floats  # float64[k], the largest; of a bin its upper edge
    middle: Floats  # float64[k], as released

    @classmethod
    def of(cls, column: Column) -> Self:
        """The cells of a column that hold a value.

        A special value inside a bin comes before or after all others of the bin. If it is the
        quantile in this order, the quantile by value lies in the bin up to it, or from it on.
        """
        amounts = amounts_of(column)
        codes = np.arange(amounts.start, amounts.stop)
        middle = column.decode(codes).astype(np.float64)
        if not isinstance(column, Ranges):
            order = np.argsort(middle)
            return cls(codes[order], middle[order], middle[order], middle[order])
        first, last = column.limits_of(codes)
        return cls(codes, first, last, middle)


@dataclass(frozen=True, kw_only=True)
class QuantileOfCells(EstimateMechanism):
    """The release at fixed parameters; all of them are public.

    Attributes:
        epsilon: Of all three choices together.
        end_share: Of epsilon, for each end of the interval.
        quantile: The choices; None where the mechanism was rebuilt from its description.
        cells: To count by; None where the mechanism was rebuilt from its description.
    """

    name: ClassVar[str] = "noisy_quantile"
    citations: ClassVar[tuple[Citation, ...]] = (
        SMITH,
        MCSHERRY_TALWAR,
        CESAR_ROGERS,
        PROOF.at("Theorem 4.2"),
    )
    pure: ClassVar[bool] = True

    epsilon: Fraction
    end_share: Fraction = END_SHARE
    quantile: NoisyQuantile | None = dataclasses.field(default=None, compare=False)
    cells: OrderedCells | None = dataclasses.field(default=None, compare=False)

    @staticmethod
    def serves(statistic: NamedStatistic) -> bool:
        """Quantiles."""
        return statistic.is_quantile

    @staticmethod
    def guarantees(statistic: NamedStatistic) -> bool:
        """All that it serves."""
        return statistic.is_quantile

    @classmethod
    def calibrate(cls, knobs: EstimandKnobs, target: Target) -> Self:
        """The largest epsilon that the target allows.

        Raises:
            ConfigError: The statistic is not one of these.
            InfeasibleBudgetError: The budget allows none.
        """
        cls.check_serves(knobs)
        estimand = estimand_for(knobs, target, cls.name)
        assert target.domain is not None
        column = target.domain[estimand.arguments[0].name]
        n_cells = len(amounts_of(column))
        if not 2 <= n_cells <= MOST_CELLS:
            raise ConfigError(
                f"A quantile needs a column of 2 to {MOST_CELLS:,} cells, and '{column.name}' has "
                f"{n_cells:,}.",
                where="columns",
                next_step="Declare a larger width, or fewer bins.",
            )
        cells = OrderedCells.of(column)
        epsilon = largest_epsilon(target)
        share = knobs.q or estimand.statistic.quantile_share
        assert share is not None
        quantile = NoisyQuantile(
            edges=tuple(float(place) for place in range(len(cells.codes) + 1)),
            share=share,
            level=knobs.confidence,
            epsilon=epsilon,
            n_records=target.n_records,
            values_lacking=column.size > n_cells,
        )
        terms = estimand.terms(target.n_records, estimand.arguments)
        return cls(terms=terms, estimand=estimand, epsilon=epsilon, quantile=quantile, cells=cells)

    @property
    def expected_cells(self) -> int:
        """How many cells the interval spans, for records spread evenly over them."""
        assert self.quantile is not None and self.cells is not None
        count = len(self.cells.codes)
        return min(count, int(self.quantile.expected_share * count) + 1)

    def remarks(self) -> Iterator[tuple[str, str]]:
        """Whether narrower cells would tell more."""
        if self.expected_cells == 1:
            yield (
                "the interval is",
                "one cell, if records are spread evenly: then only narrower cells would tell more",
            )

    @property
    def span(self) -> float:
        """From the least to the largest value that the quantile can have."""
        assert self.cells is not None
        return float(self.cells.last[-1] - self.cells.first[0])

    def whole_loss(self) -> PrivacyLoss:
        """The privacy loss of the three choices."""
        return quantile_loss(self.epsilon, self.end_share)

    def release(
        self, table: ContingencyTable, rng: Randomness, progress: Progress | None = None
    ) -> RawEstimates:
        """Make the three choices."""
        assert self.quantile is not None and self.cells is not None
        start = self.cells.codes.min()
        own = table.cells - start
        there = (own >= 0) & (own < len(self.cells.codes))  # other codes are without a value
        places, counts = np.argsort(self.cells.codes)[own[there]], table.counts[there]
        order = np.argsort(places)
        at, low, high = self.quantile.chosen(places[order], counts[order], rng)
        numbers = {
            "value": (float(self.cells.middle[at]),),
            "lower": (float(self.cells.first[low]),),
            "upper": (float(self.cells.last[high]),),
            "cells": (abs(int(high) - int(low)) + 1,),
        }
        return RawEstimates(numbers, table.n_records)

    def estimates(self, raw: RawEstimates) -> tuple[Estimate, ...]:
        """The estimate with its interval."""
        (value,), (one,), (two,) = (raw.numbers[name] for name in ("value", "lower", "upper"))
        return (
            Estimate(
                quantity=self.terms.quantities[0],
                value=value,
                lower=min(one, two),
                upper=max(one, two),
                confidence=self.terms.confidence,
                standard_error=None,
                cells=int(raw.numbers["cells"][0]),
                inference="guaranteed",
            ),
        )

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedInterval:
        """The width for records spread evenly over the cells."""
        assert self.quantile is not None and self.cells is not None
        count, spanned = len(self.cells.codes), self.expected_cells
        start = (count - spanned) // 2
        width = self.cells.last[start + spanned - 1] - self.cells.first[start]
        return ExpectedInterval(
            quantities=self.terms.quantities, width=(float(width),), noise_sd=(None,)
        )

    def parameters(self) -> dict[str, str | int]:
        """Epsilon, and how it is divided."""
        return {
            "epsilon_per_record": str(self.epsilon),
            **({} if self.end_share == _FIRST_END_SHARE else {"end_share": str(self.end_share)}),
        }

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from ``describe``."""
        share = _FIRST_END_SHARE
        if "end_share" in description:
            share = number(description, "end_share")
        if not 0 < 2 * share < 1:
            raise ConfigError("The description's end_share is not between 0 and 1/2.")
        epsilon = number(description, "epsilon_per_record")
        terms = Terms.from_description(description)
        return cls(terms=terms, epsilon=epsilon, end_share=share)


def largest_epsilon(target: Target) -> Fraction:
    """The largest epsilon of three choices together that a target allows.

    A budget of rho, or of a divergence, allows three choices more than one with all of their
    epsilon; at (epsilon, delta) they get epsilon.
    """
    if target.rho is None and target.renyi is None:
        pure = Fraction(dataclasses.replace(target, delta=0.0).pure_epsilon())
        return _rounded(pure, lambda loss: loss.pure_epsilon.upper <= target.epsilon)
    low = Fraction(target.pure_epsilon(BoundedRangeLoss))
    high = 3 * low
    for _ in range(_STEPS):
        middle = Fraction(float(low + high) / 2)
        low, high = (middle, high) if target.allows(quantile_loss(middle)) else (low, middle)
    return _rounded(low, target.allows)


def _rounded(epsilon: Fraction, allows: Callable[[PrivacyLoss], bool]) -> Fraction:
    """The largest that is allowed of those below whose twelfths have nine digits."""
    twelfth = _DIGITS.create_decimal_from_float(float(epsilon / 12))
    while not allows(quantile_loss(12 * Fraction(twelfth))):
        twelfth = twelfth.next_minus(_DIGITS)
    return 12 * Fraction(twelfth)
