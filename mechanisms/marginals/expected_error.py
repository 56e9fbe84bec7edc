"""What an analyst can expect of marginals and their records, from public quantities only.

How dependent the columns are is private, so what noise does to a pair is stated for a reference:
columns with equally frequent cells, and pairs whose distance from independence is a total
variation of 0.07, about what social surveys have. A table of one column has the noise of its own
and of the tables that hold it, projected; a pair has that of both columns, and what is left of
its dependence. They add up in squares, being of independent noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mechanisms.marginals.allocation import SHRUNK, Shares, by_cells, column_weights, remaining
from mechanisms.records.target_table import Group
from mechanisms.tables.expected_variation import projected_total_variation

REFERENCE = 0.07
_TRIPLES, _TRIPLE_CELLS = 200, 20_000  # at most, see mechanisms.marginals.synthesis
_FITTED = 8 * 16  # bytes a cell: the table, its differences, and their copies by block
_MOVING = 24  # bytes a record: orders in which records meet, and a column being drawn
_BASE = 280 * 2**20  # libraries and their kernels, compiled in this process at worst
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
        projected_total_variation: Of the joint table; nothing can be said of it.
        kolmogorov_smirnov: Likewise.
    """

    cell_sd_average: float
    one_way_total_variation: float
    pair_total_variation: float
    one_way_share: float
    screen_share: float
    memory: int
    seconds: float
    projected_total_variation: None = None
    kolmogorov_smirnov: None = None

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


def expected_marginals(
    sizes: Sequence[int],
    groups: Sequence[tuple[Group, float]],
    shares: Shares,
    *,
    mu: float,
    n_records: int,
    published: int,
) -> ExpectedMarginals:
    """Expected errors.

    Args:
        sizes: Number of codes of every column.
        groups: The workload.
        shares: Of mu^2.
        mu: Of the whole, divided by the records of a unit.
        n_records: Number of records of the source.
        published: Number of records to publish.
    """
    cells = np.array(sizes, dtype=np.float64)
    precision = by_cells(cells, np.ones(len(cells)), shares.one_way * mu**2) / 2
    amounts = np.zeros(0)
    if groups:
        group_cells = np.array([math.prod(sizes[c] for c in group) for group, _ in groups], float)
        weights = np.array([weight for _, weight in groups])
        total = (1 - shares.one_way - shares.screen) * mu**2
        amounts = by_cells(group_cells, weights, total, SHRUNK)
        for (group, _), amount, size in zip(groups, amounts, group_cells, strict=True):
            for column in group:
                precision[column] += amount / 2 * sizes[column] / size
    single = [
        _one_way(size, math.sqrt((1 - 1 / size) / p), n_records)
        for size, p in zip(sizes, precision.tolist(), strict=True)
    ]
    pair = float(np.mean(single))
    if groups:
        errors = [
            _group_error([sizes[c] for c in group], [single[c] for c in group], amount, n_records)
            for (group, _), amount in zip(groups, amounts.tolist(), strict=True)
        ]
        pair = float(np.average(errors, weights=[weight for _, weight in groups]))
    sd = math.sqrt(float(np.mean(2 / amounts))) if groups else float(np.mean(precision**-0.5))
    return ExpectedMarginals(
        cell_sd_average=sd,
        one_way_total_variation=float(np.mean(single)),
        pair_total_variation=pair,
        one_way_share=shares.one_way,
        screen_share=shares.screen,
        memory=memory_needed(sizes, groups, published),
        seconds=_FIXED_SECONDS + _SECONDS_A_RECORD * published,
    )


def _one_way(size: int, sd: float, n_records: int) -> float:
    """Total variation of projected shares of equally frequent cells."""
    found = projected_total_variation(
        lambda counts: np.full_like(counts, sd), n_records=n_records, n_cells=size
    )
    return min(found, 1.0)


def _group_error(
    sizes: Sequence[int], single: Sequence[float], amount: float, n_records: int
) -> float:
    """Of a group's table: its columns' errors, and what is left of the reference."""
    one, other = sizes[0], math.prod(sizes[1:])
    weights = [column_weights(np.full(size, 1 / size), n_records) for size in (one, other)]
    left = remaining(2 * REFERENCE * n_records, weights[0], weights[1], amount) / (2 * n_records)
    return min(math.hypot(*single, left), 1.0)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} minutes"


def memory_needed(
    sizes: Sequence[int], groups: Sequence[tuple[Group, float]], n_records: int
) -> int:
    """Bytes that fitting and the records need together at most, libraries included."""
    cells = (sum(sizes) ** 2 - sum(size**2 for size in sizes)) // 2
    cells += sum(math.prod(sizes[c] for c in group) for group, _ in groups)
    pairs = len(groups) > 0
    squares = pairs * _COVARIANCES * 8 * sum(size**2 for size in sizes)
    largest = math.prod(sorted(sizes)[-2:]) if pairs else 0
    fitted = (cells + _triple_cells(sizes)) * _FITTED
    fixed = _BASE + 64 * cells + squares + _POSTERIOR * largest
    return fixed + fitted + records_kept(sizes, n_records) + _MOVING * n_records


def records_kept(sizes: Sequence[int], n_records: int) -> int:
    """Bytes of the records' codes."""
    return n_records * len(sizes) * (1 if max(sizes) <= 2**8 else 2 if max(sizes) <= 2**16 else 4)


def _triple_cells(sizes: Sequence[int]) -> int:
    """Most cells of the tables of triples that records are fitted to."""
    largest = math.prod(sorted(sizes)[-3:]) if len(sizes) > 2 else 0
    return min(_TRIPLES, math.comb(len(sizes), 3)) * min(_TRIPLE_CELLS, largest)
