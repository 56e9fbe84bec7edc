"""The true errors of counts: microdata and tables against the confidential contingency table."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.domain.domain import Domain
from mechanisms.inference.realised_errors import Coverage, coverage, total_variation
from mechanisms.planning.plan import PlannedProduct
from mechanisms.tables.bands import BandKnobs
from mechanisms.tables.mechanism import TableMechanism, drawn_records
from tasks.pages.blocks import Block, Prose, Section
from tasks.pages.numbers import share
from tasks.products.cell_names import cell_names
from tasks.products.counts.sums import EstimatedTable, Floats
from tasks.products.marginal_errors import EXPLAINED, MarginalErrors, marginal_blocks, marginal_rows
from tasks.products.true_errors import (
    LARGEST,
    Compared,
    Missed,
    TrueErrors,
    compared,
    covered,
    largest_grid,
)

if TYPE_CHECKING:
    from tasks.products.counts.product import DerivedCounts

MOST_PAIRS = 200

Planned = PlannedProduct[TableMechanism]


def counts_errors(
    product: Planned, derived: DerivedCounts, private: ContingencyTable
) -> TrueErrors:
    """Of every column, of pairs of columns and of the cells; see ``ProductKind.true_errors``."""
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
    section = Section(
        f"product-{product.name}", product.name, _blocks(product, derived, private, found)
    )
    return TrueErrors(rows, section)


def with_bands(
    found: TrueErrors,
    bands: Mapping[str, Mapping[str, Any]],
    private: ContingencyTable,
    knobs: BandKnobs | None,
) -> TrueErrors:
    """The same with whether the limits of every band hold the counts of all cells at once."""
    rows, domain = list(found.compared), private.domain
    for stem, limits in bands.items():
        assert knobs is not None
        true = _at(private, domain.possible_cells())
        if stem.endswith("_cumulative_band"):
            true = np.cumsum(true)
        wrong = int(np.sum((true < limits["count_lower"]) | (true > limits["count_upper"])))
        rows.append(
            Compared(
                f"limits of {stem} that do not hold the count",
                f"none, with {share(knobs.confidence)}",
                f"{wrong:,} of {len(true):,}",
                "the band does not hold" if wrong else "the band holds",
            )
        )
    return TrueErrors(rows, found.section)


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
    if not unlisted or drawn_records(product.mechanism) is None:
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
    drawn = drawn_records(product.mechanism) is not None
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
