"""How much of mu^2 each table may spend, and what an analyst can expect of the result.

Both are known from public quantities and earlier noisy results. All amounts B are those of a unit
of one record, B = 2/s^2 for noise of variance s^2; a unit of c records spends c^2 times as much.

**Expected errors.** How dependent the columns are is private, so what noise does to a pair is
stated for a reference: columns with equally frequent cells, and pairs whose distance from
independence is a total variation of 0.07 on average, about what social surveys have. Among the
pairs of a table it is about lognormal, of a standard deviation of 1 in logarithms (public tables:
few pairs are far above the average, and half of them below six tenths of it). Shares are compared
for one of 2: scores and tables of pairs then get more of a small budget, and the few strong pairs
that this saves weigh more in realised errors than in expected ones. A table of one column has the
noise of its own and of the tables that hold it, projected; a pair has that of both columns,
and what is left of its dependence. They add up in squares, being of independent noise.

With scores, pairs are given by what their score is expected to say: their posterior mean distance
under the reference, with the noise of the score and the bias that the noise of both one-way tables
gives it (``measurement``). The amounts minimise the sum of what is left, d/sqrt(1 + c B) for a pair
at a distance d, whose derivative is one multiplier where B > 0.

**Shares.** What a config leaves open of the first two steps is where the expected error of the
workload is least, on a grid that is refined: for small n nearly all goes to single columns.

A pair whose table is measured with noise of variance 2/B, and then shrunk towards independence,
keeps of its distance g from independence about g sqrt(sum v/(1 + v B/2) / sum v), where v are the
variances of its cells' deviations from independence.

**What survives.** Of a relation of Cramér's V between columns of a and b equally frequent cells,
the squared deviations from independence add up to n^2 V^2 (min(a, b) - 1)/(ab) over (a - 1)(b - 1)
degrees of freedom. Shrinking keeps half of it where one of them has the variance of its noise, 2/B:

    V = sqrt((2/B) a b (max(a, b) - 1)) / n.

The least V of a workload is the one at which three in five of its pairs keep half, with what pairs
may spend divided as if all were related alike. Relations that follow an order, or are few among
scored pairs, survive at less.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.marginals.latent_classes import MOST_CELLS
from statpress.mechanisms.marginals.target_tables import Floats, Group
from statpress.mechanisms.tables.expected import projected_total_variation

MEAN_ABSOLUTE = math.sqrt(2 / math.pi)
"""E|Z| of a standard normal variable."""
SHRUNK = 0.5
"""Exponent for tables of several columns."""
LEAST = 1e-5
"""Share of the total below which a pair is not measured."""


_WEAK, _STRONG = 150.0, 250.0
_MOST_FOR_TRIPLES, _MOST_WITH_TARGET, _MOST_WITH_WEIGHT = 0.1, 0.25, 0.4


@dataclass(frozen=True)
class Shares:
    """How mu^2 is split between the steps.

    Attributes:
        one_way: For the one-way tables.
        screen: For the scores; 0 without them.
        triples: For triples of columns that are chosen once the pairs are measured; 0 without.
    """

    one_way: float
    screen: float
    triples: float = 0.0

    @property
    def rest(self) -> float:
        """What is left for the tables of the workload."""
        return 1.0 - self.one_way - self.screen - self.triples

    @classmethod
    def best(
        cls,
        *,
        n: int,
        mu: float,
        sizes: Sequence[int],
        groups: Sequence[tuple[Group, float]],
        screened: bool,
        one_way: float | None = None,
        screen: float | None = None,
        triples: float = 0.0,
        moved: int = 2,
    ) -> Self:
        """Shares of the least expected error.

        Args:
            n: Number of records.
            mu: Of the whole, divided by the records of a unit, at which noise has the variance
                2/B; three digits of it count.
            sizes: Number of codes of every column.
            groups: The workload.
            screened: Whether pairs are scored.
            one_way: If it is given already.
            screen: If it is given already.
            triples: For triples.
            moved: Counts of a table that a record moves, ``Adjacency.moved``.
        """
        if not groups:
            return cls(1.0, 0.0)
        found = _best_shares(
            n, float(f"{mu:.2e}"), tuple(sizes), tuple(groups), screened, one_way, screen, triples,
            moved,
        )  # fmt: skip
        return cls(*found, triples)

    @staticmethod
    def for_triples(
        *,
        n: float,
        mu: float,
        sizes: Sequence[int],
        n_triples: int,
        targeted: bool,
        weighted: bool = False,
    ) -> float:
        """A share for triples: they can be told from noise where pairs are far above it.

        Args:
            n: Number of records.
            mu: Of the whole, divided by the records of a unit.
            sizes: Number of codes of every column.
            n_triples: How many triples may be chosen.
            targeted: Whether those that hold a target count more.
            weighted: Whether those that hold a survey weight do: of these every weighted table of
                two columns is made.
        """
        cells = (sum(sizes) ** 2 - sum(size**2 for size in sizes)) / 2
        signal = n * mu / math.sqrt(max(cells, 1.0))
        strong = min(max((signal - _WEAK) / (_STRONG - _WEAK), 0.0), 1.0)
        many = min(n_triples / max(len(sizes) * (len(sizes) - 1), 1), 1.0)
        most = _MOST_WITH_TARGET if targeted else _MOST_FOR_TRIPLES
        return (_MOST_WITH_WEIGHT if weighted else most) * strong * many

    def least_part(
        self,
        sizes: Sequence[int],
        groups: Sequence[tuple[Group, float]],
        always: Collection[int] = (),
    ) -> float:
        """Below every part of mu^2 that a step may be given, whatever the scores will be.

        Pairs with a column of ``always`` are measured without a score.
        """
        cells = np.array(sizes, dtype=np.float64)
        single = by_cells(cells, np.ones(len(cells)), self.one_way if groups else 1.0)
        parts = [float(single.min())]
        if groups:
            joint = np.array([math.prod(sizes[c] for c in group) for group, _ in groups], float)
            tables = by_cells(joint, np.array([w for _, w in groups]), self.rest, SHRUNK)
            parts.append(float(tables.min()))
            if self.screen:
                pairs = np.array([is_scored(group, always) for group, _ in groups])
                parts += [self.screen, float(tables[pairs].sum()) * LEAST / 2]
            if self.triples:
                parts.append(self.triples * LEAST / 2)
        return min(parts)


TARGET_WEIGHT, SURVEY_WEIGHT = 32.0, 4.0
"""How much more groups with the target count, and those with the survey weight."""
Emphasis = Mapping[int, float]
"""By column how much more groups that hold it count."""


def towards(
    workload: Sequence[tuple[Group, float]], emphasis: Emphasis
) -> tuple[tuple[Group, float], ...]:
    """A workload whose groups count more where they hold certain columns."""
    return tuple((g, w * math.prod(emphasis.get(c, 1.0) for c in g)) for g, w in workload)


def is_scored(group: Group, always: Collection[int]) -> bool:
    """Whether a group is a pair that a score may leave unmeasured."""
    return len(group) == 2 and not set(group) & set(always)


def by_cells(cells: Floats, workload: Floats, total: float, exponent: float = 2 / 3) -> Floats:
    """Amounts float64[P] proportional to (weight times cells)^exponent.

    With 2/3 they minimise the sum of all absolute errors of tables that are used as they were
    measured. Large tables that are shrunk do with less: ``SHRUNK``.
    """
    parts = (workload * cells) ** exponent
    amounts: Floats = parts * (total / parts.sum())
    return amounts


REFERENCE = 0.07
_KEEPING = 0.6
"""Share of the pairs that keep half of a relation of the least V."""
MOST_TRIPLES, MOST_TRIPLE_CELLS = 200, 20_000
"""Triples that are measured or that records are fitted to, and cells of one."""
_FITTED = 8 * 16  # bytes a cell: the table, its differences, and their copies by block
_MOVING = 24  # bytes a record: orders in which records meet, and a column being drawn
_COPYING = 32  # bytes a record: the same of a copy, with what its thread sets aside
_BASE = 280 * 2**20  # libraries and their kernels, compiled in this process at worst
_DENOISED = 64 + 12 * 8  # bytes a cell: as measured, predicted, judged and smoothed
_CLASSES = 5 * 8  # bytes a pair of codes that classes describe
_COVARIANCES = 4  # of each column: the covariance, its vectors, the start, a similarity
_POSTERIOR = 8 * 16 * 4  # bytes a cell of the pair at hand: a few arrays over a grid of strengths
_FIXED_SECONDS, _SECONDS_A_RECORD = 1.0, 1e-4


@dataclass(frozen=True, kw_only=True)
class ExpectedMarginals:
    """Errors before any data is read.

    Attributes:
        cell_sd_average: Standard deviation of a noisy count of a measured table, in records,
            if all groups of the workload are measured.
        one_way_total_variation: Of the shares of one column, on average over columns.
        pair_total_variation: Of the shares of a pair of columns, on average over the
            workload, for the reference of this module's text.
        one_way_share: Of the squared budget, for tables of one column.
        screen_share: Of the squared budget, for the scores of pairs.
        triple_share: Of the squared budget, for triples that are chosen by what the pairs say.
        memory: Bytes that post-processing needs, about.
        seconds: Processor time of fitting the records, about, as measured on one machine: it goes
            by their number, hardly by that of the columns.
        independent_total_variation: The pairs' error if nothing of any pair were measured, and all
            of the budget spent on single columns; None without pairs.
        least_association: Cramér's V from which on the records keep most of a relation, at most
            1; None without pairs.
        least_slope: The same of a straight line, in standard deviations for one of the other
            column's.
        projected_total_variation: Of the joint table; nothing can be said of it.
        kolmogorov_smirnov: Of the joint table; nothing can be said of it.
    """

    cell_sd_average: float
    one_way_total_variation: float
    pair_total_variation: float
    one_way_share: float
    screen_share: float
    triple_share: float
    memory: int
    seconds: float
    independent_total_variation: float | None = None
    least_association: float | None = None
    least_slope: float | None = None
    projected_total_variation: None = None
    kolmogorov_smirnov: None = None

    @classmethod
    def of(
        cls,
        sizes: Sequence[int],
        groups: Sequence[tuple[Group, float]],
        shares: Shares,
        *,
        mu: float,
        n_records: int,
        published: int,
        moved: int = 2,
        known: Collection[Group] = (),
    ) -> Self:
        """Expected errors of a workload at ``mu`` for a unit of one record.

        Pairs that are ``known`` exactly keep every relation.
        """
        cells = np.array(sizes, dtype=np.float64)
        work = _Workload.of(sizes, groups, moved)
        single, pair = _errors(work, shares, mu, n_records)
        baseline = None
        least: tuple[float, float] | tuple[None, None] = None, None
        if groups:
            rest = shares.rest * mu**2
            joint = np.array([math.prod(sizes[c] for c in group) for group, _ in groups], float)
            amounts = by_cells(joint, np.array([weight for _, weight in groups]), rest, SHRUNK)
            noise = _noise_of_pairs(sizes, groups, amounts) | dict.fromkeys(known, 0.0)
            least = _least_relation(sizes, noise, n_records)
            baseline = _errors(work, Shares(1.0, 0.0), mu, n_records)[1]
            sd = math.sqrt(float(np.mean(2 / amounts)))
        else:
            sd = float(np.mean(by_cells(cells, np.ones(len(cells)), mu**2 / 2) ** -0.5))
        return cls(
            cell_sd_average=sd,
            one_way_total_variation=float(np.mean(single)),
            pair_total_variation=pair,
            one_way_share=shares.one_way,
            screen_share=shares.screen,
            triple_share=shares.triples,
            memory=_memory_needed(sizes, groups, published),
            seconds=_FIXED_SECONDS + _SECONDS_A_RECORD * published,
            independent_total_variation=baseline,
            least_association=least[0],
            least_slope=least[1],
        )

    def deciding(self, criterion: str) -> float:
        """The error that a product with an open mechanism minimises."""
        return {
            "pair_total_variation": self.pair_total_variation,
            "total_variation": math.inf,
            "kolmogorov_smirnov": math.inf,
            "cell_sd": self.cell_sd_average,
        }[criterion]

    def rows(self) -> Iterator[tuple[str, str]]:
        """Labels and values."""
        yield "expected total variation, one column", f"{self.one_way_total_variation:.4f}"
        yield (
            f"expected total variation, pairs {REFERENCE} from independence",
            f"{self.pair_total_variation:.4f}",
        )
        if self.independent_total_variation is not None:
            yield "the same if no pair were measured", f"{self.independent_total_variation:.4f}"
        if self.least_association is not None:
            kept = (
                f"Cramér's V {self.least_association:.2g}" if self.least_association < 1 else "none"
            )
            yield "weakest relation of which the records keep half", kept
            yield "the same, of a straight line", f"a slope of {self.least_slope:.2g} sd"
        yield "sd of a measured count, average", f"{self.cell_sd_average:,.1f} records"
        yield "budget for tables of one column", f"{self.one_way_share:.1%}"
        if self.screen_share:
            yield "budget for scoring pairs", f"{self.screen_share:.1%}"
        if self.triple_share:
            yield "budget for triples that the pairs suggest", f"{self.triple_share:.1%}"
        measured = 1 - self.one_way_share - self.screen_share - self.triple_share
        yield "budget for tables of several columns", f"{measured:.1%}"
        yield "memory for fitting the records, about", f"{self.memory / 2**20:,.0f} MB"
        yield "time for fitting the records, about", _duration(self.seconds)

    def summary(self) -> str:
        """The errors of one column and of two."""
        return (
            f"total variation {self.one_way_total_variation:.4f} for one column, "
            f"{self.pair_total_variation:.4f} for a pair"
        )


def _noise_of_pairs(
    sizes: Sequence[int], groups: Sequence[tuple[Group, float]], amounts: Floats
) -> dict[Group, float]:
    """Variance of a cell of each pair, by the most precise group that holds it."""
    noise: dict[Group, float] = {}
    for (group, _), amount in zip(groups, amounts.tolist(), strict=True):
        whole = math.prod(sizes[c] for c in group)
        for a, b in itertools.combinations(group, 2):
            variance = 2 / amount * whole / (sizes[a] * sizes[b])
            noise[a, b] = min(variance, noise.get((a, b), math.inf))
    return noise


def _least_relation(
    sizes: Sequence[int], noise: Mapping[Group, float], n_records: int
) -> tuple[float, float]:
    """The least Cramér's V that is kept, and the least slope; see the module's text."""
    ends = np.sort([[sizes[a], sizes[b]] for a, b in noise], axis=1)
    squares = np.array(list(noise.values())) * ends.prod(axis=1) * (ends[:, 1] - 1)
    association = np.sqrt(squares) / n_records
    kept = (
        np.quantile(each, _KEEPING) for each in (association, association * (ends[:, 0] - 1) ** 0.5)
    )
    v, slope = (min(float(each), 1.0) for each in kept)
    return v, slope


@dataclass(frozen=True, eq=False)
class _Workload:
    """The groups of a workload by class: those of columns of the same sizes and weight.

    Attributes:
        sizes: int64[columns].
        ends: float64[classes, 2]: codes of the first column, and of the others together.
        cells: float64[classes]: of the whole table.
        weights: float64[classes].
        number: float64[classes]: of groups.
        inside: float64[classes, columns]: in how many groups of a class a column is.
        pairs: bool[classes]: whether these are of two columns.
        moved: Counts of a table that a record moves.
    """

    sizes: Floats
    ends: Floats
    cells: Floats
    weights: Floats
    number: Floats
    inside: Floats
    pairs: NDArray[np.bool_]
    moved: int

    @classmethod
    def of(cls, sizes: Sequence[int], groups: Sequence[tuple[Group, float]], moved: int) -> Self:
        places: dict[tuple[tuple[int, ...], float], int] = {}
        of_class = [
            places.setdefault((tuple(sorted(sizes[c] for c in group)), weight), len(places))
            for group, weight in groups
        ]
        inside = np.zeros((len(places), len(sizes)))
        for (group, _), place in zip(groups, of_class, strict=True):
            inside[place, list(group)] += 1
        ends = [(own[0], math.prod(own[1:])) for own, _ in places]
        found = np.array(ends, dtype=np.float64).reshape(-1, 2)
        return cls(
            np.array(sizes, dtype=np.float64),
            found,
            found.prod(axis=1),
            np.array([weight for _, weight in places]),
            np.bincount(of_class, minlength=len(places)).astype(np.float64),
            inside,
            np.array([len(own) == 2 for own, _ in places], dtype=bool),
            moved,
        )


_NODES, _NODE_WEIGHTS = np.array([-(3**0.5), 0.0, 3**0.5]), np.array([1, 4, 1]) / 6
"""Gauss and Hermite's for a normal variable."""
_LEAST_SHARE = 1e-12  # that says anything


@functools.cache
def _reference(spread: float) -> Floats:
    """Distances from independence of pairs, equally frequent."""
    from scipy.special import ndtri

    levels = np.exp(spread * ndtri((np.arange(9) + 0.5) / 9))
    scaled: Floats = levels * (REFERENCE / levels.mean())
    return scaled


STATED, COMPARED = 1.0, 2.0
"""Spread of the pairs for which errors are stated, and of those for which shares are compared."""


def _errors(
    work: _Workload, shares: Shares, mu: float, n: int, spread: float = STATED
) -> tuple[list[float], float]:
    """Expected total variation of every column, and of the groups on average."""
    k = work.sizes
    one_way = max(shares.one_way, _LEAST_SHARE) if len(work.number) else 1.0
    first = by_cells(k, np.ones(len(k)), one_way * mu**2) / 2
    if not len(work.number):
        single = _single_errors(k, first, n)
        return single, float(np.mean(single))
    scale = MEAN_ABSOLUTE * (work.ends - 1).prod(axis=1)
    amounts, left = _allocated(work, scale, first, shares, mu, n, _reference(spread))
    shown = (amounts / 2 / work.cells)[:, None] * work.inside
    single = _single_errors(k, first + shown.sum(axis=0) * k, n)
    squares = work.inside @ np.square(single) / work.number
    errors = np.minimum(np.sqrt(squares[:, None, None] + left**2), 1.0)
    by_class = (errors * _NODE_WEIGHTS).sum(axis=2).mean(axis=1)
    return single, float(np.average(by_class, weights=work.weights * work.number))


def _allocated(
    work: _Workload, scale: Floats, first: Floats, shares: Shares, mu: float, n: int, levels: Floats
) -> tuple[Floats, Floats]:
    """Amounts float64[classes], and what they leave float64[classes, levels, nodes] of distances.

    Args:
        work: The workload.
        scale: Of deviations of cells, by class.
        first: Precision of the one-way tables, by column.
        shares: Of the steps.
        mu: For a unit of one record.
        n: Number of records.
        levels: Distances of the pairs, equally frequent.
    """
    rest = max(shares.rest, 0.0) * mu**2
    parts = (work.weights * work.cells) ** SHRUNK
    amounts = parts * (rest / (parts * work.number).sum())
    given = np.broadcast_to(amounts[:, None, None], (len(parts), len(levels), len(_NODES)))
    is_pair = work.pairs
    if shares.screen > _LEAST_SHARE and (n_pairs := float(work.number[is_pair].sum())) > 1:
        sigma = math.sqrt(2 * work.moved * n_pairs / (shares.screen * mu**2))
        noise = first**-0.5
        bias = 0.8 * work.sizes * np.minimum(noise, n / work.sizes + 0.4 * noise)
        squares = (work.inside @ bias**2 / work.number)[is_pair]
        means = np.sqrt((2 * n * levels) ** 2 + squares[:, None])  # [pairs, levels]
        gaps = means[:, :, None, None] + sigma * _NODES[:, None] - means[:, None, None, :]
        logs = -0.5 * (gaps / sigma) ** 2
        posterior = np.exp(logs - logs.max(axis=3, keepdims=True))
        expected = (posterior * levels).sum(axis=3) / posterior.sum(axis=3)
        frequency = work.number[is_pair, None, None] / len(levels) * _NODE_WEIGHTS
        total = float((amounts * work.number)[is_pair].sum())
        given = given.copy()
        given[is_pair] = _poured(
            expected * work.weights[is_pair, None, None],
            (2 * n * expected / scale[is_pair, None, None]) ** 2 / 2,
            np.ascontiguousarray(np.broadcast_to(frequency, expected.shape)),
            total,
        )
        amounts = amounts.copy()
        amounts[is_pair] = (given[is_pair] * _NODE_WEIGHTS).sum(axis=2).mean(axis=1)
    rates = (2 * n * levels / scale[:, None]) ** 2 / 2
    return amounts, levels[:, None] / np.sqrt(1 + rates[:, :, None] * given)


def _poured(heights: Floats, rates: Floats, frequency: Floats, total: float) -> Floats:
    """Amounts B of a total that minimise the sum of heights/sqrt(1 + rates B), by frequency."""
    steepest = heights * rates / 2
    grown = steepest ** (2 / 3)  # once: a power takes most of the time

    def at(level: float) -> Floats:
        above: Floats = np.maximum(grown * level ** (-2 / 3) - 1, 0.0)
        return above / rates

    high = float(steepest.max())
    low = high * 1e-12
    for _ in range(50):
        level = math.sqrt(low * high)
        enough = np.vdot(at(level), frequency) > total
        low, high = (level, high) if enough else (low, level)
    found = at(low)
    return found * (total / float((found * frequency).sum()))


ONE_WAYS = np.array([0.08, 0.15, 0.25, 0.4, 0.6, 0.8, 0.9, 0.97])
SCREENS = np.array([0.02, 0.06, 0.15])
"""Shares that are compared, in the range of those that are chosen. Below it the expected errors of
long tables fall by a few hundredths still, and those of records grow: the references of scores and
all that is shrunk hang on the first tables, which no expected error counts."""
_HALVINGS = 5


@functools.lru_cache(maxsize=256)
def _best_shares(
    n: int,
    mu: float,
    sizes: tuple[int, ...],
    groups: tuple[tuple[Group, float], ...],
    screened: bool,
    one_way: float | None,
    screen: float | None,
    triples: float,
    moved: int,
) -> tuple[float, float]:
    """Shares of the one-way tables and of the scores: a grid, then ever closer neighbours."""
    work = _Workload.of(sizes, groups, moved)
    firsts = np.minimum(ONE_WAYS, ONE_WAYS[-1] * (1 - triples - (screen or 0.0)))
    scores = np.clip((1 - triples - (one_way or 0.0)) / 2, 0.0, SCREENS)
    if one_way is not None:
        firsts = np.array([one_way])
    if screen is not None or not screened:
        scores = np.array([screen or 0.0])

    @functools.cache
    def error(point: tuple[float, float]) -> float:
        shares = Shares(*point, triples)
        return _errors(work, shares, mu, n, COMPARED)[1] if shares.rest > 0 else math.inf

    best = min(itertools.product(firsts.tolist(), scores.tolist()), key=error)
    for halving in range(_HALVINGS):
        near = [
            (_moved(best[0], a * 0.6 / 2**halving, firsts), _moved(best[1], b / 2**halving, scores))
            for a, b in itertools.product((-1, 0, 1), repeat=2)
        ]
        best = min(near, key=error)
    return best


def _moved(share: float, step: float, within: Floats) -> float:
    """A share moved on the logit scale, to four digits, and not out of a range."""
    if not step or within[0] == within[-1]:
        return share
    odds = share / (1 - share) * math.exp(step)
    return min(max(round(odds / (1 + odds), 4), float(within[0])), float(within[-1]))


def _single_errors(sizes: Floats, precision: Floats, n_records: int) -> list[float]:
    """Expected total variation of every column."""
    places = _A_DECADE * np.log10(np.sqrt((1 - 1 / sizes) / precision) * sizes / n_records)
    found = []
    for size, place in zip(sizes.tolist(), places.tolist(), strict=True):
        below = math.floor(place)
        ends = [_column_error(int(size), each, n_records) for each in (below, below + 1)]
        found.append(min(ends[0] * (ends[1] / ends[0]) ** (place - below), 1.0))
    return found


_A_DECADE = 5  # places of a tabulated curve


@functools.lru_cache(maxsize=1 << 14)
def _column_error(size: int, place: int, n_records: int) -> float:
    """Total variation of projected shares of equally frequent cells, on a grid of their noise."""
    sd = 10 ** (place / _A_DECADE) * n_records / size
    variation = projected_total_variation(
        lambda counts: np.full_like(counts, sd), n_records=n_records, n_cells=size
    )
    return max(variation, 1e-300)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} minutes"


def _memory_needed(
    sizes: Sequence[int], groups: Sequence[tuple[Group, float]], n_records: int
) -> int:
    """Bytes that fitting and the records need together at most, libraries included."""
    cells = (sum(sizes) ** 2 - sum(size**2 for size in sizes)) // 2
    cells += sum(math.prod(sizes[c] for c in group) for group, _ in groups)
    pairs = len(groups) > 0
    squares = pairs * _COVARIANCES * 8 * sum(size**2 for size in sizes)
    largest = math.prod(sorted(sizes)[-2:]) if pairs else 0
    fitted = (cells + triple_cells(sizes)) * _FITTED
    classes = pairs * _CLASSES * min(sum(sizes), MOST_CELLS) ** 2
    fixed = _BASE + _DENOISED * cells + squares + classes + _POSTERIOR * largest
    return fixed + fitted + records_kept(sizes, n_records) + _MOVING * n_records


def records_kept(sizes: Sequence[int], n_records: int) -> int:
    """Bytes of the records' codes."""
    return n_records * len(sizes) * (1 if max(sizes) <= 2**8 else 2 if max(sizes) <= 2**16 else 4)


def copies_at_once(sizes: Sequence[int], n_records: int) -> int:
    """How many copies may be drawn at a time in the memory that is foreseen for one.

    Forecasts count the libraries with what fits and with what writes; in a run they are there once.
    """
    return 1 + _BASE // (records_kept(sizes, n_records) + _COPYING * n_records)


def triple_cells(sizes: Sequence[int]) -> int:
    """Most cells of the tables of triples that are measured, or that records are fitted to."""
    largest = math.prod(sorted(sizes)[-3:]) if len(sizes) > 2 else 0
    return min(MOST_TRIPLES, math.comb(len(sizes), 3)) * min(MOST_TRIPLE_CELLS, largest)
