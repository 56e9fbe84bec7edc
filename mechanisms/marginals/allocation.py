"""How much of mu^2 each table may spend, and what an analyst can expect of the result.

Both are known from public quantities and earlier noisy results. All amounts B are those of a unit
of one record, B = 2/s^2 for noise of variance s^2; a unit of c records spends c^2 times as much.

**Expected errors.** How dependent the columns are is private, so what noise does to a pair is
stated for a reference: columns with equally frequent cells, and pairs whose distance from
independence is a total variation of 0.07, about what social surveys have. A table of one column has
the noise of its own and of the tables that hold it, projected; a pair has that of both columns, and
what is left of its dependence. They add up in squares, being of independent noise.

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

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from statpress.mechanisms.marginals.latent_classes import MOST_CELLS
from statpress.mechanisms.marginals.target_tables import Floats, Group
from statpress.mechanisms.tables.expected import projected_total_variation

MEAN_ABSOLUTE = math.sqrt(2 / math.pi)
"""E|Z| of a standard normal variable."""
SHRUNK = 0.5
"""Exponent for tables of several columns."""
LEAST = 1e-5
"""Share of the total below which a pair is not measured."""


@dataclass(frozen=True)
class Shares:
    """How mu^2 is split between the steps.

    Attributes:
        one_way: For the one-way tables.
        screen: For the scores; 0 without them.
    """

    one_way: float
    screen: float

    @classmethod
    def default(
        cls, *, n: float, mu: float, sizes: Sequence[int], screened: bool, tables: bool
    ) -> Self:
        """Shares that were good on public tables of several widths.

        Args:
            n: Number of records.
            mu: Of the whole, divided by the records of a unit.
            sizes: Number of codes of every column.
            screened: Whether pairs are scored.
            tables: Whether there is any table of several columns to be measured.
        """
        if not tables:
            return cls(1.0, 0.0)
        total = sum(sizes)
        cells = (total**2 - sum(size**2 for size in sizes)) / 2
        signal = n * mu / math.sqrt(max(cells, 1.0))
        one_way = min(max(2.6 * signal**-0.7, 0.08), 0.5)
        return cls(one_way, min(max(one_way / 4, 0.02), 0.1) if screened else 0.0)

    def least_part(
        self, sizes: Sequence[int], groups: Sequence[tuple[Sequence[int], float]]
    ) -> float:
        """Below every part of mu^2 that a step may be given, whatever the scores will be."""
        cells = np.array(sizes, dtype=np.float64)
        single = by_cells(cells, np.ones(len(cells)), self.one_way if groups else 1.0)
        parts = [float(single.min())]
        if groups:
            joint = np.array([math.prod(sizes[c] for c in group) for group, _ in groups], float)
            rest = 1.0 - self.one_way - self.screen
            tables = by_cells(joint, np.array([w for _, w in groups]), rest, SHRUNK)
            parts.append(float(tables.min()))
            if self.screen:
                pairs = np.array([len(group) == 2 for group, _ in groups])
                parts += [self.screen, float(tables[pairs].sum()) * LEAST / 2]
        return min(parts)


def column_weights(shares: Floats, n: float) -> Floats:
    """float64[k - 1]: how much the cells of a column deviate, the smallest left out."""
    weights = np.sort(np.maximum(shares, 1 / n) ** 1.5)[1:]
    scaled: Floats = weights * (len(weights) / weights.sum())
    return scaled


def remaining(distance: float, one: Floats, other: Floats, amount: float) -> float:
    """About the distance that is left of one when the pair is measured with an amount."""
    scale = MEAN_ABSOLUTE * np.sqrt(one).sum() * np.sqrt(other).sum()
    values = (distance / scale) ** 2 * np.multiply.outer(one, other)
    kept = (values / (1 + values * (amount / 2))).sum() / values.sum()
    return distance * math.sqrt(float(kept))


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
_TRIPLES, _TRIPLE_CELLS = 200, 20_000  # at most, see statpress.mechanisms.marginals.synthesis
_FITTED = 8 * 16  # bytes a cell: the table, its differences, and their copies by block
_MOVING = 24  # bytes a record: orders in which records meet, and a column being drawn
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
        known: Collection[Group] = (),
    ) -> Self:
        """Expected errors of a workload at ``mu`` for a unit of one record.

        Pairs that are ``known`` exactly keep every relation.
        """
        cells = np.array(sizes, dtype=np.float64)
        precision = by_cells(cells, np.ones(len(cells)), shares.one_way * mu**2) / 2
        amounts = np.zeros(0)
        if groups:
            group_cells = np.array(
                [math.prod(sizes[c] for c in group) for group, _ in groups], float
            )
            weights = np.array([weight for _, weight in groups])
            total = (1 - shares.one_way - shares.screen) * mu**2
            amounts = by_cells(group_cells, weights, total, SHRUNK)
            for (group, _), amount, size in zip(groups, amounts, group_cells, strict=True):
                for column in group:
                    precision[column] += amount / 2 * sizes[column] / size
        single = _single_errors(sizes, precision, n_records)
        pair, baseline = float(np.mean(single)), None
        least: tuple[float, float] | tuple[None, None] = None, None
        if groups:
            errors = [
                _group_error(
                    [sizes[c] for c in group], [single[c] for c in group], amount, n_records
                )
                for (group, _), amount in zip(groups, amounts.tolist(), strict=True)
            ]
            pair = float(np.average(errors, weights=weights))
            alone = by_cells(cells, np.ones(len(cells)), mu**2) / 2
            baseline = _independent(sizes, groups, alone, n_records)
            noise = _noise_of_pairs(sizes, groups, amounts) | dict.fromkeys(known, 0.0)
            least = _least_relation(sizes, noise, n_records)
        sd = math.sqrt(float(np.mean(2 / amounts))) if groups else float(np.mean(precision**-0.5))
        return cls(
            cell_sd_average=sd,
            one_way_total_variation=float(np.mean(single)),
            pair_total_variation=pair,
            one_way_share=shares.one_way,
            screen_share=shares.screen,
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
            f"expected total variation, a pair {REFERENCE} from independence",
            f"{self.pair_total_variation:.4f}",
        )
        if self.independent_total_variation is not None:
            yield "the same if no pair were measured", f"{self.independent_total_variation:.4f}"
        if self.least_association is not None:
            kept = (
                f"Cramér's V {self.least_association:.2g}" if self.least_association < 1 else "none"
            )
            yield "weakest relation that the records keep", kept
            yield "the same, of a straight line", f"a slope of {self.least_slope:.2g} sd"
        yield "sd of a measured count, average", f"{self.cell_sd_average:,.1f} records"
        yield "budget for tables of one column", f"{self.one_way_share:.1%}"
        if self.screen_share:
            yield "budget for scoring pairs", f"{self.screen_share:.1%}"
        measured = 1 - self.one_way_share - self.screen_share
        yield "budget for tables of several columns", f"{measured:.1%}"
        yield "memory for fitting the records, about", f"{self.memory / 2**20:,.0f} MB"
        yield "time for fitting the records, about", _duration(self.seconds)

    def summary(self) -> str:
        """The errors of one column and of two."""
        return (
            f"total variation {self.one_way_total_variation:.4f} for one column, "
            f"{self.pair_total_variation:.4f} for a pair"
        )


def _single_errors(sizes: Sequence[int], precision: Floats, n_records: int) -> list[float]:
    """Expected total variation of every column."""
    return [
        _one_way(size, math.sqrt((1 - 1 / size) / p), n_records)
        for size, p in zip(sizes, precision.tolist(), strict=True)
    ]


def _one_way(size: int, sd: float, n_records: int) -> float:
    """Total variation of projected shares of equally frequent cells."""
    variation = projected_total_variation(
        lambda counts: np.full_like(counts, sd), n_records=n_records, n_cells=size
    )
    return min(variation, 1.0)


def _independent(
    sizes: Sequence[int],
    groups: Sequence[tuple[Group, float]],
    precision: Floats,
    n_records: int,
) -> float:
    """Error of the groups' tables where columns have this precision and no relation is known."""
    single = _single_errors(sizes, precision, n_records)
    errors = [math.hypot(*(single[c] for c in group), REFERENCE) for group, _ in groups]
    return float(np.average(np.minimum(errors, 1.0), weights=[weight for _, weight in groups]))


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


def _group_error(
    sizes: Sequence[int], single: Sequence[float], amount: float, n_records: int
) -> float:
    """Error of a group's table: that of its columns, and what is left of the reference."""
    one, other = sizes[0], math.prod(sizes[1:])
    weights = [column_weights(np.full(size, 1 / size), n_records) for size in (one, other)]
    dependence = remaining(2 * REFERENCE * n_records, weights[0], weights[1], amount) / (
        2 * n_records
    )
    return min(math.hypot(*single, dependence), 1.0)


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
    fitted = (cells + _triple_cells(sizes)) * _FITTED
    classes = pairs * _CLASSES * min(sum(sizes), MOST_CELLS) ** 2
    fixed = _BASE + _DENOISED * cells + squares + classes + _POSTERIOR * largest
    return fixed + fitted + records_kept(sizes, n_records) + _MOVING * n_records


def records_kept(sizes: Sequence[int], n_records: int) -> int:
    """Bytes of the records' codes."""
    return n_records * len(sizes) * (1 if max(sizes) <= 2**8 else 2 if max(sizes) <= 2**16 else 4)


def _triple_cells(sizes: Sequence[int]) -> int:
    """Most cells of the tables of triples that records are fitted to."""
    largest = math.prod(sorted(sizes)[-3:]) if len(sizes) > 2 else 0
    return min(_TRIPLES, math.comb(len(sizes), 3)) * min(_TRIPLE_CELLS, largest)
