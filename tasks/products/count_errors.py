"""The true errors of counts and of marginals; private.

The true errors of marginals of one, two or more columns, whatever they were made from.
The true errors of counts: microdata and tables against the confidential contingency table.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Column
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.estimates.exact_values import Coverage, coverage, total_variation
from statpress.mechanisms.planning.plan import PlannedProduct
from statpress.mechanisms.tables.count_tables import TableMechanism
from statpress.tasks.pages.blocks import Bars, Block, Chart, Gallery, Grid, HeatMap, Prose, Section
from statpress.tasks.pages.numbers import measured, share
from statpress.tasks.products.band_files import stem_of
from statpress.tasks.products.distributions import cell_names
from statpress.tasks.products.published_counts import EstimatedTable, Floats
from statpress.tasks.products.true_errors import (
    LARGEST,
    Compared,
    Missed,
    TrueErrors,
    compared,
    covered,
    largest_grid,
)

if TYPE_CHECKING:
    from statpress.tasks.products.count_product import DerivedCounts


MOST_DRAWN = 40
EXPLAINED = (
    "Total variation is half the sum of the absolute differences of the shares: the part of the "
    "records that would have to move."
)


@dataclass(frozen=True, repr=False)
class MarginalErrors:
    """The errors of a marginal; private.

    Attributes:
        names: Of its columns.
        distance: Total variation of what is published.
        coverage: Of the intervals of its cells; None where there are none.
        missed: The cells of the largest errors.
        note: What else is known of it, such as that it was not measured; may be empty.
    """

    names: tuple[str, ...]
    distance: float
    coverage: Coverage | None
    missed: tuple[Missed, ...]
    note: str = ""

    @classmethod
    def of(
        cls,
        columns: Sequence[Column],
        published: NDArray[np.float64],
        true: NDArray[np.float64],
        held: Coverage | None,
        note: str = "",
    ) -> Self:
        """Of counts float64 of the columns' sizes, published and true.

        Those published are compared as shares, at the true number of records.
        """
        total = float(published.sum())
        scaled = published * (float(true.sum()) / total) if total > 0 else published
        gaps = np.abs(scaled - true).ravel()
        most = np.argpartition(-gaps, min(LARGEST, gaps.size) - 1)[:LARGEST]
        names = [cell_names(column, {}) for column in columns]
        missed = []
        for k in most.tolist():
            codes = np.unravel_index(k, true.shape)
            where = " · ".join(
                f"{column.name} {cells[code]}"
                for column, cells, code in zip(columns, names, codes, strict=True)
            )
            missed.append(Missed(where, float(scaled.flat[k]), float(true.flat[k])))
        distance = total_variation(np.maximum(published, 0), true)
        return cls(tuple(c.name for c in columns), distance, held, tuple(missed), note)


def marginal_rows(
    found: Sequence[MarginalErrors],
    *,
    columns: float | None,
    pairs: float | None,
    intervals: bool = True,
) -> list[Compared]:
    """Rows for the summary: errors of columns and groups of them beside what the plan promises."""
    rows = []
    for words, size, promised in (("pairs of columns", 2, pairs), ("single columns", 1, columns)):
        own = [each for each in found if len(each.names) == size]
        if own:
            distance = float(np.mean([each.distance for each in own]))
            rows.append(compared(f"{words}, total variation, mean", promised, distance))
    for words, least, most in (
        ("single columns", 1, 1), ("pairs of columns", 2, 2), ("larger groups", 3, 1000)
    ):  # fmt: skip
        known = [
            each.coverage
            for each in found
            if least <= len(each.names) <= most and each.coverage is not None and each.coverage.of
        ]
        if known and intervals:
            total = sum(known[1:], start=known[0])
            rows.append(covered(f"{words}, cells whose 95 % interval holds the count", total))
    return rows


def marginal_blocks(found: Sequence[MarginalErrors]) -> list[Block]:
    """Charts, tables with a row for each marginal, and the largest errors."""
    blocks: list[Block] = []
    columns = [each for each in found if len(each.names) == 1]
    more = [each for each in found if len(each.names) > 1]
    charts = [_bars(columns[:MOST_DRAWN])] if len(columns) > 1 else []
    names = [each.names[0] for each in columns[:MOST_DRAWN]]
    pairs = {(each.names[0], each.names[1]): each.distance for each in more if len(each.names) == 2}
    if len(names) > 3 and pairs:
        charts.append(_matrix(names, pairs))
    if charts:
        blocks.append(Gallery(charts))
    if more:
        blocks.append(_grid(more, f"Pairs and larger groups, {len(more):,}"))
    for words, own in (("single columns", columns), ("pairs and larger groups", more)):
        if own:
            missed = [miss for each in own for miss in each.missed]
            blocks.append(largest_grid(missed, f"Largest errors, {words}", "records"))
    return blocks


def _bars(columns: Sequence[MarginalErrors]) -> Chart:
    """Total variation of every column."""
    labels, values = [each.names[0] for each in columns], [each.distance for each in columns]
    worst = max(columns, key=lambda each: each.distance)
    return Chart(
        "True error of each column",
        Bars(labels, values, axis="total variation"),
        f"Bars of the total variation of each column; most has {worst.names[0]}, "
        f"{measured(worst.distance, 3)}.",
        _grid(columns, f"Single columns, {len(columns)}"),
    )


def _matrix(names: Sequence[str], pairs: Mapping[tuple[str, str], float]) -> Chart:
    """Total variation of every pair."""
    rows, across = list(names[1:]), list(names[:-1])
    values = [
        [pairs.get((column, row)) if j <= i else float("nan") for j, column in enumerate(across)]
        for i, row in enumerate(rows)
    ]
    order = sorted(pairs.items(), key=lambda each: -each[1])
    cells = [(a, b, measured(value, 3)) for (a, b), value in order[:LARGEST]]
    return Chart(
        "True error of each pair of columns",
        HeatMap(
            rows,
            across,
            values,
            marked="" if len(pairs) == len(names) * (len(names) - 1) // 2 else "not compared",
            scale="total variation",
        ),
        f"Matrix of pairs of columns; most have {cells[0][0]} and {cells[0][1]}, {cells[0][2]}.",
        Grid(("column", "column", "total variation"), cells, title="The worst pairs", folded=True),
    )


def _grid(found: Sequence[MarginalErrors], title: str) -> Grid:
    """A row for each marginal, the worst first, folded."""
    noted = any(each.note for each in found)
    rows = [
        [
            " · ".join(each.names),
            measured(each.distance, 3),
            share(each.coverage.share) if each.coverage and each.coverage.of else "",
            *([each.note] if noted else []),
        ]
        for each in sorted(found, key=lambda each: -each.distance)
    ]
    headings = (
        "columns",
        "total variation",
        "cells within 95 %",
        *(("known by",) if noted else ()),
    )
    return Grid(headings, rows, title=title, folded=True)


MOST_PAIRS = 200

Planned = PlannedProduct[TableMechanism]


def counts_errors(
    product: Planned, derived: DerivedCounts, private: ContingencyTable
) -> TrueErrors:
    """Of every column, of pairs of columns, of the cells and of bands.

    See ``ProductKind.true_errors``.
    """
    estimated = _estimated(product, derived)
    published = _published(product, derived, estimated)
    found = [
        each
        for names in _groups(product.domain)
        if (each := _marginal(names, published, estimated, private)) is not None
    ]
    expected = product.expected_error
    promised = getattr(expected, "pair_total_variation", None)
    distance, cells = _whole(product, derived, private)
    rows = []
    if len(product.domain.names) > 1 or derived.records is not None:
        single = len(product.domain.names) == 1
        rows = marginal_rows(
            found,
            columns=promised if single else None,
            pairs=promised,
            intervals=product.mechanism.unbiased and not (single and cells is not None),
        )
    rows.append(
        compared(
            "all cells, total variation of the projected counts",
            expected.projected_total_variation,
            distance,
        )
    )
    if product.mechanism.unbiased and cells is not None:
        rows.append(covered("all cells whose 95 % interval holds the count", cells))
    rows += _bands(product, derived.bands, private)
    section = Section(
        f"product-{product.name}", product.name, _blocks(product, derived, private, found)
    )
    return TrueErrors(rows, section)


def _bands(
    product: Planned, bands: Mapping[str, Mapping[str, Any]], private: ContingencyTable
) -> Iterator[Compared]:
    """Whether the limits of every band hold the counts of all cells at once."""
    domain = private.domain
    for band, limits in bands.items():
        true = _at(private, domain.possible_cells())
        if band == "cumulative":
            true = np.cumsum(true)
        wrong = int(np.sum((true < limits["count_lower"]) | (true > limits["count_upper"])))
        yield Compared(
            f"limits of {stem_of(product.name, band)} that do not hold the count",
            f"none, with {share(product.further.confidence)}",
            f"{wrong:,} of {len(true):,}",
            "the band does not hold" if wrong else "the band holds",
        )


def _estimated(product: Planned, derived: DerivedCounts) -> EstimatedTable:
    """The estimates as the bundle has them."""
    n_records, n_cells = product.target.n_records, product.domain.n_possible
    uniform = product.expected_error.uniform_share or 0.0
    return EstimatedTable(
        product.domain,
        (),
        derived.raw.cells[: derived.listed],
        derived.figures["estimate"],
        derived.figures["standard_error"],
        unlisted=-n_records * uniform / (1 - uniform) / n_cells,
        n_records=n_records,
        covariance=product.mechanism.covariance(n_records=n_records, n_cells=n_cells),
        unbiased=product.mechanism.unbiased,
    )


def _published(
    product: Planned, derived: DerivedCounts, estimated: EstimatedTable
) -> EstimatedTable:
    """What is read as records or as a table: records, or projected counts."""
    if derived.records is not None:
        records = derived.records[: derived.listed].astype(np.float64)
        return dataclasses.replace(estimated, estimates=records, unlisted=0.0)
    return dataclasses.replace(
        estimated,
        estimates=derived.figures["projected"],
        unlisted=_unlisted_projected(product, derived),
    )


def _unlisted_projected(product: Planned, derived: DerivedCounts) -> float:
    """What the projection leaves to every cell that a mechanism did not draw."""
    unlisted = product.domain.n_possible - len(derived.raw.cells)
    if not unlisted or product.mechanism.drawn_records is None:
        return 0.0
    left = product.target.n_records - float(derived.figures["projected"].sum())
    return max(left, 0.0) / unlisted


def _groups(domain: Domain) -> list[tuple[str, ...]]:
    """All single columns, and the pairs up to a number."""
    pairs = itertools.islice(itertools.combinations(domain.names, 2), MOST_PAIRS)
    return [*((name,) for name in domain.names), *pairs]


def _marginal(
    names: tuple[str, ...],
    published: EstimatedTable,
    estimated: EstimatedTable,
    private: ContingencyTable,
) -> MarginalErrors | None:
    """A marginal; None of too many cells."""
    shown, estimates = published.sums(names), estimated.sums(names, reaching=True)
    if shown is None or estimates is None:
        return None
    part = private.marginal(names).without_absent()
    counts = np.zeros(shown[0].size)
    counts[part.cells] = part.counts
    true = counts.reshape(shown[0].shape)
    found, errors = estimates
    held = None if errors is None else coverage(true, found, errors)
    columns = [private.domain[name] for name in names]
    return MarginalErrors.of(columns, shown[0], true, held)


def _whole(
    product: Planned, derived: DerivedCounts, private: ContingencyTable
) -> tuple[float, Coverage | None]:
    """Total variation of the projected counts, and how many cells their intervals hold.

    Of drawn records only the cells that were drawn are listed, which are not a fair choice of
    all: their intervals are not counted.
    """
    cells = derived.raw.cells[: derived.listed]
    present = private.without_absent()
    true = _at(present, cells)
    drawn = product.mechanism.drawn_records is not None
    projected = derived.figures["projected"]
    elsewhere = np.setdiff1d(present.cells, cells, assume_unique=True)
    rest = _unlisted_projected(product, derived)
    others = product.domain.n_possible - len(derived.raw.cells) - len(elsewhere)
    missed = _at(present, elsewhere)
    distance = total_variation(
        np.concatenate([projected, np.full(len(elsewhere), rest), [rest * max(others, 0)]]),
        np.concatenate([true, missed, [0.0]]),
    )
    if drawn:
        return distance, None
    return distance, coverage(true, derived.figures["estimate"], derived.figures["standard_error"])


def _at(table: ContingencyTable, cells: Any) -> Floats:
    """The counts of some cells, float64[k]."""
    if not len(table.cells):
        return np.zeros(len(cells))
    place = np.minimum(np.searchsorted(table.cells, cells), len(table.cells) - 1)
    return np.where(table.cells[place] == cells, table.counts[place], 0).astype(np.float64)


def _blocks(
    product: Planned,
    derived: DerivedCounts,
    private: ContingencyTable,
    found: Sequence[MarginalErrors],
) -> list[Block]:
    """The details: marginals one by one, and the largest errors."""
    what = "records" if derived.records is not None else "projected counts"
    said = f"Compared are the {what} as published with the records that were counted. {EXPLAINED}"
    columns = len(product.domain.names)
    left = columns * (columns + 1) // 2 - len(found)
    if left:
        said += f" {left:,} columns and pairs are left out for their number or size."
    cells = largest_grid(
        _missed_cells(product, derived, private),
        "Largest errors of the estimates of cells",
        "records",
    )
    return [Prose([said]), *marginal_blocks(found), cells]


def _missed_cells(
    product: Planned, derived: DerivedCounts, private: ContingencyTable
) -> Iterator[Missed]:
    """The largest errors of the estimates of listed cells."""
    cells = derived.raw.cells[: derived.listed]
    true, estimates = _at(private.without_absent(), cells), derived.figures["estimate"]
    order = np.argsort(-np.abs(estimates - true), kind="stable")[:LARGEST]
    domain = product.domain
    names = {name: cell_names(domain[name], {}) for name in domain.names}
    for k in order.tolist():
        codes = {name: int(domain.codes(cells[k : k + 1], name)[0]) for name in domain.names}
        where = " · ".join(f"{name} {names[name][code]}" for name, code in codes.items())
        yield Missed(where, float(estimates[k]), float(true[k]))
