"""Expected errors of tables and microdata, from public quantities only.

**Total variation after projection.** The projection of noisy counts x_j + Z_j takes
max(x_j + Z_j - t, 0), where t makes the sum n (mechanisms.postprocessing.consistency). With many
cells t hardly varies, and solves

    sum of E (x_j + Z_j - t)+ = n,

so that the expected total variation is the sum of E |max(Z_j - t, -x_j)| over 2n. With
G(a) = E (Z - a)+, known in closed form for normal and Laplace noise, both are sums over cells:

    E (x + Z - t)+ = G(t - x),    E |max(Z - t, -x)| = G(t) + G(-t) - G(x - t).

The true counts x are private, so the mean over three reference shapes stands for them: all
cells alike, counts proportional to 1/rank (Zipf), and the same on a tenth of the cells, the
rest being empty. Ranks are taken in groups, each with its mean. A guide, not a bound.

*Where most cells are never drawn* the estimate of a cell is v = step z - pseudocount, z the number
of its draws, which is Poisson and far from normal. As (v - t)+ adds up to the number of records n,
and so do the true counts x, the total variation between the two is the sum of E (v - t - x)+ over
n, in which E (z - a)+ is a sum of two Poisson tails.

**Microdata.** What is read of them are mostly tables of two columns. So their error is the total
variation (half the sum of absolute differences of the shares) between the table of two columns of
the records and the true one, on average over all pairs of columns; with one column, of its own
table.

The true records are private. In their place stands a *reference population* of n records, whose
columns are independent of each other. Of a column with k codes each is exp(-3/k) times as frequent
as the one before, so that its total variation from uniform shares is about a third, whatever k
is. On real tables what happened was at most 28 % less or more
than the figure (mechanisms/README.md, section 7).

*Drawn records.* With pseudocount k a part u = k |domain|/(n + k |domain|) of the m records is
uniform. A cell of two columns with share p has the share q = (1 - u) p + u/cells of each draw, so
the difference has mean q - p and variance q (1 - q)/m; it is taken as normal, and its absolute
value never above p + q. Columns of one size are alike, so this is quick for any domain.
With many cells all draws are uniform, and the figure is that of a uniform table; it still falls
by a hundredth where columns of two codes are added, whose tables can be less wrong.

*Noisy tables.* Projecting and rounding have no such form where cells outnumber records. The
release of a table drawn from the reference is simulated with noise of a known seed.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from statpress.mechanisms.domain.columns import Codes, Integer
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.postprocessing.consistency import Floats, project_to_simplex

if TYPE_CHECKING:
    from statpress.mechanisms.tables.count_tables import TableMechanism


_MOST_LOOKS = 200
_NARROW = 2.0**-60  # of the first bracket
_CUT = 2.0**-10  # of the level, below which the function counts as this


def falling_root(
    function: Callable[[float], float], level: float, low: float, high: float
) -> float:
    """About the place where a continuous falling function passes a level.

    False position on the function's logarithm, in which an end that stays counts half as much each
    time (the Illinois rule), with a halving at every fourth look.
    """

    def height(point: float) -> float:
        return math.log(max(function(point) / level, _CUT))

    width = (high - low) * _NARROW
    over, under, moved, point = height(low), height(high), 0, high
    for look in range(_MOST_LOOKS):
        if high - low <= width or not over > under:
            break
        share = 0.5 if look % 4 == 3 else over / (over - under)
        point = low + share * (high - low)
        least = min(width / 2, (high - low) / 4)
        point = min(max(point, low + least), high - least)
        reached = height(point)
        if reached > 0:
            low, over = point, reached
            under = under / 2 if moved > 0 else under
            moved = 1
        else:
            high, under = point, reached
            over = over / 2 if moved < 0 else over
            moved = -1
        if not low < (low + high) / 2 < high:
            break
    return point


def _variation_of_few_draws(
    weights: Floats, counts: Floats, pseudocount: float, step: float, n_records: int
) -> float:
    """About the expected total variation between projected and true shares, 0 to 1."""
    means = (counts + pseudocount) / step  # of the numbers of draws

    def excess(a: Any) -> float:
        """Sum over the cells of E (v - a)+ for v = step z - pseudocount, z Poisson."""
        return step * float(weights @ _poisson_excess((a + pseudocount) / step, means))

    low, high = -pseudocount - n_records, float(counts.max()) + 40 * step * (1 + means.max() ** 0.5)
    t = falling_root(excess, n_records, low, high)
    return min(excess(t + counts) / n_records, 1.0)


def _poisson_excess(a: Floats, means: Floats) -> Floats:
    """E (z - a)+ of Poisson numbers z."""
    from scipy.special import gammainc

    first = np.maximum(np.floor(a) + 1, 1)  # the least z above a; gammainc(k, m) = Pr[z >= k]
    before = np.where(first > 1, gammainc(np.maximum(first - 1, 1), means), 1.0)
    above = means * before - a * gammainc(first, means)
    excess: Floats = np.where(a < 0, means - a, np.maximum(above, 0.0))
    return excess


MOST_SIMULATED = 1 << 20
"""Cells of a table up to which its release is simulated."""

_CELLS_IN_ALL, _REPETITIONS = 1 << 15, 16
_MOST_PAIRS = 45
_PAIR_GROUPS = 64
_STEEPNESS = 3.0
_ERF = np.vectorize(math.erf, otypes=[np.float64])  # SciPy's takes longer to import than all
_HALF_NORMAL = math.sqrt(2 / math.pi)


def pair_total_variation(
    mechanism: TableMechanism, uniform_share: float, target: Target
) -> float | None:
    """The expected error of this module's text, 0 to 1; None if there are too many cells."""
    if target.n_cells == 1:
        return 0.0
    domain = target.domain or _domain(target)
    if mechanism.drawn_records is not None:
        if not mechanism.unbiased:
            return 1.0
        sizes = tuple(sorted(column.size for column in domain.columns))
        drawn = max(1, round(mechanism.drawn_records * target.n_there / target.n_records))
        return _of_draws(sizes, drawn, uniform_share)
    if domain.n_possible > MOST_SIMULATED:
        return None
    simulated: Any = mechanism  # frozen, so that results can be kept
    return _simulated(simulated, domain, target.n_there)


def _domain(target: Target) -> Domain:
    """Columns of the target's shape."""
    shape = target.shape if math.prod(target.shape or (0,)) == target.n_cells else ()
    return Domain(
        tuple(
            Integer(name=f"c{i}", lower=0, upper=size - 1)
            for i, size in enumerate(shape or (target.n_cells,))
        )
    )


@functools.lru_cache(maxsize=64)
def _of_draws(sizes: tuple[int, ...], records: int, uniform: float) -> float:
    if len(sizes) == 1:
        return _of_pair(_shares(sizes[0]), _shares(1), records, uniform)
    many = Counter(itertools.combinations(sizes, 2))
    errors = [
        times * _of_pair(_shares(a), _shares(b), records, uniform) for (a, b), times in many.items()
    ]
    return math.fsum(errors) / sum(many.values())


def _of_pair(a: tuple[Floats, Floats], b: tuple[Floats, Floats], records: int, u: float) -> float:
    weights, p = np.outer(a[0], b[0]), np.outer(a[1], b[1])
    q = (1 - u) * p + u / weights.sum()
    error = _absolute(q - p, np.sqrt(q * (1 - q) / records))
    return float((weights * np.minimum(error, p + q)).sum()) / 2


def _absolute(mean: Floats, sd: Floats) -> Floats:
    """Expected absolute value of normal numbers."""
    z = mean / np.maximum(sd, 1e-300)
    absolute: Floats = sd * _HALF_NORMAL * np.exp(-z * z / 2) + mean * _ERF(z / math.sqrt(2))
    return absolute


@functools.lru_cache(maxsize=256)
def _shares(size: int) -> tuple[Floats, Floats]:
    """Numbers of codes float64[g], and the share of each of them float64[g]."""
    groups = min(size, _PAIR_GROUPS)
    edges = [i * size // groups for i in range(groups + 1)]  # a size may be above 2**53
    weights = np.diff(np.array(edges, np.float64))
    falls = np.exp([-_STEEPNESS * (edge / size) for edge in edges])
    shares = -np.diff(falls) / (1 - math.exp(-_STEEPNESS))
    return weights, shares / weights


@functools.lru_cache(maxsize=64)
def _simulated(mechanism: Any, domain: Domain, n_records: int) -> float:
    from statpress.mechanisms.postprocessing.rounding import round_systematically
    from statpress.mechanisms.sampling.randomness import SimulatedRandomness

    counts, table = _reference(domain, n_records)
    rng = SimulatedRandomness()
    repetitions = min(max(_CELLS_IN_ALL // len(counts), 1), _REPETITIONS)
    listed = slice(0, domain.n_listed)
    cells = domain.possible_cells()[listed]
    digits = [domain.codes(cells, name) for name in domain.names]
    errors = []
    for _ in range(repetitions):
        raw = mechanism.release(table, rng)
        derived = mechanism.postprocess(raw, n_records=n_records)
        projected = derived.projected
        if projected is None:
            projected = project_to_simplex(derived.estimates, float(n_records)).values
        records = round_systematically(projected, n_records)
        errors.append(_mean_over_pairs((records - counts)[listed], digits, domain) / n_records)
    return float(np.mean(errors))


def _falling(size: int) -> Floats:
    weights = np.exp(-_STEEPNESS * np.arange(size) / size)
    shares: Floats = weights / weights.sum()
    return shares


@functools.lru_cache(maxsize=2)
def _reference(domain: Domain, n_records: int) -> tuple[Codes, ContingencyTable]:
    """Counts int64[n_possible] of the reference population, no record being absent."""
    from statpress.mechanisms.sampling.randomness import SimulatedRandomness

    shares = np.ones(1)
    for column in domain.columns:
        shares = np.outer(shares, _falling(column.size)).ravel()
    cells = domain.possible_cells()
    shares = np.append(shares, 0.0)[cells] if domain.absent else shares[cells]
    counts = SimulatedRandomness().multinomial(n_records, shares / shares.sum())
    there = np.flatnonzero(counts)
    return counts, ContingencyTable(domain, cells[there], counts[there])


def _mean_over_pairs(differences: Codes, digits: list[Codes], domain: Domain) -> float:
    """Half the sum of absolute differences of a table of two columns, on average."""
    there = np.flatnonzero(differences)
    changed = differences[there].astype(np.float64)
    codes = [each[there] for each in digits]
    sizes = [column.size for column in domain.columns]
    if len(sizes) == 1:
        return float(np.abs(changed).sum()) / 2
    pairs = list(itertools.combinations(range(len(sizes)), 2))
    pairs = pairs[:: -(-len(pairs) // _MOST_PAIRS)]
    errors = [
        np.abs(np.bincount(codes[a] * sizes[b] + codes[b], weights=changed)).sum() / 2
        for a, b in pairs
    ]
    return float(np.mean(errors))


_GROUPS = 80


def projected_total_variation(
    sd: Callable[[Floats], Floats], *, n_records: int, n_cells: int, laplace: bool = False
) -> float:
    """About the expected total variation between projected and true shares, 0 to 1."""
    variations = [
        _variation(weights, counts, sd(counts), n_records, laplace)
        for weights, counts in _references(n_records, n_cells)
    ]
    return float(np.mean(variations))


def _drawn_total_variation(
    pseudocount: Fraction, records: int, *, n_records: int, n_cells: int
) -> float:
    """About the expected total variation of projected estimates from ``records`` draws.

    The draws of a cell are taken as normal, unless there are ten times as many cells as draws.
    """
    total = n_records + pseudocount * n_cells
    if 10 * records < n_cells:
        variations = [
            _variation_of_few_draws(
                weights, counts, float(pseudocount), float(total / records), n_records
            )
            for weights, counts in _references(n_records, n_cells)
        ]
        return float(np.mean(variations))

    def deviations(counts: Floats) -> Floats:
        shares = (counts + float(pseudocount)) / float(total)
        spread: Floats = float(total) * np.sqrt(shares * (1 - shares).clip(min=0) / records)
        return spread

    return projected_total_variation(deviations, n_records=n_records, n_cells=n_cells)


def ordered_references(n_records: int, n_cells: int, rng: np.random.Generator) -> Iterator[Floats]:
    """The reference shapes as counts of cells in an order, float64[n_cells] each.

    Counts fall from the first cell to the last, so that neighbours are alike; where nine tenths
    are empty the others are scattered, so that they are not.
    """
    for flat, occupied in _sizes(n_cells):
        weights, counts = _shape(flat, occupied, n_records)
        listed = np.repeat(counts, weights.astype(np.int64))
        if occupied < n_cells:
            listed = np.append(listed, np.zeros(n_cells - occupied))
            listed = listed[rng.permutation(n_cells)]
        yield listed


def _sizes(n_cells: int) -> tuple[tuple[bool, int], ...]:
    """For every shape, whether it is flat and how many cells are not empty."""
    return (True, n_cells), (False, n_cells), (False, max(1, n_cells // 10))


@functools.lru_cache(maxsize=512)
def _references(n_records: int, n_cells: int) -> tuple[tuple[Floats, Floats], ...]:
    """The reference shapes: numbers of cells float64[k] and their counts float64[k]."""
    shapes = ((_shape(flat, some, n_records), n_cells - some) for flat, some in _sizes(n_cells))
    return tuple(
        (np.append(weights, empty), np.append(counts, 0.0)) for (weights, counts), empty in shapes
    )


def _shape(flat: bool, occupied: int, n_records: int) -> tuple[Floats, Floats]:
    """Numbers of cells float64[k] of equal counts float64[k], which add up to n."""
    if flat:
        return np.array([float(occupied)]), np.array([n_records / occupied])
    edges = np.rint(np.geomspace(1, occupied + 1, _GROUPS))
    edges = edges[np.diff(edges, prepend=0) > 0]  # each once; np.unique imports numpy.ma
    edges[0], edges[-1] = 1, occupied + 1
    weights = np.diff(edges)
    shares = np.diff(_harmonic(edges))  # sums of 1/rank
    counts: Floats = n_records * shares / shares.sum() / weights
    return weights, counts


def _harmonic(places: Floats) -> Floats:
    """Sums of 1/rank over the ranks below some whole numbers from 1 on: digamma plus a constant."""
    near = np.append(0.0, np.cumsum(1 / np.arange(1.0, 32)))
    square = 1 / places**2  # Abramowitz and Stegun 6.3.18
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square / 240)))
    far = np.log(places) - 1 / (2 * places) - series + np.euler_gamma
    sums: Floats = np.where(places > 32, far, near[np.minimum(places, 32).astype(np.int64) - 1])
    return sums


def _variation(weights: Floats, counts: Floats, sd: Floats, n_records: int, laplace: bool) -> float:
    excess = _laplace_excess if laplace else _normal_excess
    sd = np.maximum(sd, 1e-12)
    low, high = -n_records - 40 * float(sd.max()), float((counts + 40 * sd).max())
    t = falling_root(lambda t: float(weights @ excess(t - counts, sd)), n_records, low, high)
    both = excess(np.full_like(sd, t), sd) + excess(np.full_like(sd, -t), sd)
    return float(weights @ (both - excess(counts - t, sd))) / (2 * n_records)


def _normal_excess(a: Floats, sd: Floats) -> Floats:
    z = a / sd
    density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    # SciPy's takes longer to import than all this.
    above = np.array([math.erfc(each) for each in (z / math.sqrt(2)).tolist()]) / 2
    excess: Floats = sd * density - a * above
    return excess


def _laplace_excess(a: Floats, sd: Floats) -> Floats:
    scale = sd / np.sqrt(2)
    tail: Floats = np.maximum(-a, 0.0) + scale / 2 * np.exp(-np.abs(a) / scale)
    return tail


BRIDGE = math.sqrt(math.pi / 2) * math.log(2)
"""Expected largest absolute value of a Brownian bridge (Kolmogorov's law), 0.8687."""


@dataclass(frozen=True, kw_only=True)
class ExpectedCounts:
    """What an analyst can expect before any data is read.

    With N = n + pseudocount |domain| and a cell of sampling probability p, the
    debiased count has standard deviation N sqrt(p(1-p)/m) (mechanisms/README.md,
    section 2).

    Attributes:
        cell_sd_average: That deviation, in records, at p = 1/|domain|.
        cell_sd_empty: That deviation for a cell that is empty in the data.
        cell_sd_most: The largest it can be for any cell of any data: p = 1/2, or the
            largest possible p = (n + pseudocount)/N if that is less.
        total_variation: Bound on the expected total variation distance (half the
            sum of absolute differences) between the debiased shares, which may be
            negative, and the true ones, for any data; it may pass 1. (Cauchy-Schwarz
            over the cells; their deviations add up to most when all are equal.)
        projected_total_variation: About the expected total variation of the projected
            counts, for reference shapes (this module's text): a guide, not a bound.
        kolmogorov_smirnov: About the expected Kolmogorov-Smirnov distance between the
            shares of ordered cells, made to add up to 1, and the true ones, taken as that
            of a Brownian bridge: a guide to compare mechanisms by, not a bound. Few cells
            have less; shares that may be negative and need not add up to 1 have more.
        uniform_share: Expected share of the drawn records that come from the
            pseudocount, uniform over the domain, and not from the data.
    """

    cell_sd_average: float
    cell_sd_empty: float
    cell_sd_most: float
    total_variation: float
    projected_total_variation: float
    kolmogorov_smirnov: float
    uniform_share: float

    def deciding(self, criterion: str) -> float:
        """The error that a product with an open mechanism minimises."""
        return {
            "total_variation": self.projected_total_variation,
            "kolmogorov_smirnov": self.kolmogorov_smirnov,
            "cell_sd": self.cell_sd_average,
        }.get(criterion, math.inf)

    def among(self, share: float) -> Self:
        """The errors relative to this share of the records, where all others are absent."""
        return replace(
            self,
            total_variation=self.total_variation / share,
            projected_total_variation=min(self.projected_total_variation / share, 1.0),
            kolmogorov_smirnov=min(self.kolmogorov_smirnov / share, 1.0),
            uniform_share=min(self.uniform_share / share, 1.0),
        )

    def rows(self) -> Iterator[tuple[str, str]]:
        """Labels and values."""
        yield "expected sd of a cell, average", f"{self.cell_sd_average:,.1f} records"
        yield "expected sd of a cell, at most", f"{self.cell_sd_most:,.1f} records"
        yield "expected total variation, projected", f"{self.projected_total_variation:.4f}"
        yield "the same unprojected, at most", f"{self.total_variation:.4f}"
        if self.uniform_share:
            yield "records that are uniform", f"{self.uniform_share:.1%}"

    def summary(self) -> str:
        """The average error of a cell, and the total variation."""
        return (
            f"sd of a cell {self.cell_sd_average:,.1f} records on average, total variation "
            f"{self.projected_total_variation:.4f} once projected"
        )

    @classmethod
    def of_noise(
        cls, sd: float, *, n_records: int, n_cells: int, laplace: bool = False
    ) -> ExpectedCounts:
        """Expected error of independent noise of this standard deviation on every cell."""
        return cls(
            cell_sd_average=sd,
            cell_sd_empty=sd,
            cell_sd_most=sd,
            total_variation=sd * n_cells / (2 * n_records),
            projected_total_variation=projected_total_variation(
                lambda counts: np.full_like(counts, sd),
                n_records=n_records,
                n_cells=n_cells,
                laplace=laplace,
            ),
            kolmogorov_smirnov=BRIDGE * sd * math.sqrt(n_cells) / n_records,
            uniform_share=0.0,
        )

    @classmethod
    def of_bootstrap(
        cls, pseudocount: Fraction, records: int, *, n_records: int, n_cells: int
    ) -> ExpectedCounts:
        """Expected error of m = ``records`` draws with this pseudocount."""
        total = n_records + pseudocount * n_cells

        def deviation(p: Fraction) -> float:
            return float(total) * math.sqrt(p * (1 - p) / records)

        return cls(
            cell_sd_average=deviation(Fraction(1, n_cells)),
            cell_sd_empty=deviation(pseudocount / total),
            cell_sd_most=deviation(min(Fraction(1, 2), (n_records + pseudocount) / total)),
            total_variation=float(total / n_records) * math.sqrt((n_cells - 1) / records) / 2,
            projected_total_variation=_drawn_total_variation(
                pseudocount, records, n_records=n_records, n_cells=n_cells
            ),
            kolmogorov_smirnov=BRIDGE * float(total / n_records) / math.sqrt(records),
            uniform_share=float(pseudocount * n_cells / total),
        )

    @classmethod
    def of_records(cls, records: int, *, n_records: int, n_cells: int) -> ExpectedCounts:
        """Sampling error of k = ``records`` records that stand for the data as they are.

        What chooses them is biased by an amount that depends on the data, so these
        figures are a guide for data near the base measure, not bounds; that of the
        total variation is the one that always holds.
        """

        def deviation(p: float) -> float:
            return n_records * math.sqrt(p * (1 - p) / records)

        return cls(
            cell_sd_average=deviation(1 / n_cells),
            cell_sd_empty=deviation(1 / (records + 2)),
            cell_sd_most=deviation(0.5),
            total_variation=1.0 if n_cells > 1 else 0.0,
            projected_total_variation=1.0 if n_cells > 1 else 0.0,
            kolmogorov_smirnov=min(BRIDGE / math.sqrt(records), 1.0),
            uniform_share=0.0,
        )


@dataclass(frozen=True, kw_only=True)
class ExpectedRecords(ExpectedCounts):
    """Expected errors of microdata, with what decides between their mechanisms.

    Attributes:
        pair_total_variation: About the expected total variation of the tables of two columns
            of the records, on average (mechanisms.tables.expected); None if it is not
            known.
    """

    pair_total_variation: float | None

    def deciding(self, criterion: str) -> float:
        if criterion != "pair_total_variation":
            return super().deciding(criterion)
        pairs = self.pair_total_variation
        return math.inf if pairs is None else pairs

    def rows(self) -> Iterator[tuple[str, str]]:
        if self.pair_total_variation is not None:
            yield "expected total variation of pairs", f"{self.pair_total_variation:.4f}"
        yield from super().rows()
