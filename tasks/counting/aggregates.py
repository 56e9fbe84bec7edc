"""Counting, and the profile of a source, each by itself: for units of several records.

A source is read by the engine, where it lies; what reaches Python is the sparse contingency
table, or a profile of a few numbers a column. Where every record is a unit, one scan finds both
(``tasks.counting.scanning``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.domain.domain import LISTED, Domain
from mechanisms.errors import EmptySourceError
from tasks.counting import discretise
from tasks.counting.units import Units, counts_of_units, with_units
from tasks.engines.engine import OpenSource, Source
from tasks.engines.registry import engine_of, open_source

if TYPE_CHECKING:
    import ibis.expr.types as ir


@dataclass(frozen=True, repr=False)
class ColumnProfile:
    """Private counts of a column; the ``repr`` shows no number.

    Attributes:
        name: Column name.
        n_null: Records with null or NaN.
        n_outside: Records with an undeclared category or a clamped value.
        n_unreadable: Records with text that does not stand for a value of the declared type.
    """

    name: str
    n_null: int
    n_outside: int
    n_unreadable: int = 0

    def __repr__(self) -> str:
        return f"ColumnProfile({self.name})"


@dataclass(frozen=True, repr=False)
class SourceProfile:
    """Private counts of a source; ``repr`` as above.

    Attributes:
        n_records: Records, kept or not.
        columns: In the domain's order.
        n_impossible: Records that lie in a structural zero.
        n_units: Distinct units that are named; None if no column names them.
        n_unnamed: Records whose unit is null.
    """

    n_records: int
    columns: tuple[ColumnProfile, ...]
    n_impossible: int = 0
    n_units: int | None = None
    n_unnamed: int = 0

    def __repr__(self) -> str:
        return f"SourceProfile({', '.join(column.name for column in self.columns)})"


def count(
    source: Source,
    domain: Domain,
    *,
    scratch: Path,
    units: Units | None = None,
    key: str = "",
) -> ContingencyTable:
    """Count the records in each occupied cell, with one GROUP BY in the engine.

    With units, the same query keeps at most ``max_records`` of each unit's records and
    pads every unit to exactly as many with records in the absent cell (tasks.counting.units).

    Args:
        source: The private source.
        domain: The declared domain; with an absent cell if units hold several records.
        scratch: Private directory for what the engine spills.
        units: The privacy unit, if it is not the record.
        key: For the choice of the records that are kept; random, secret, used once.

    Returns:
        The contingency table, private.

    Raises:
        SourceError: Not found, unreadable or empty; a column missing or of a
            wrong type.
        DomainTooLargeError: The domain has no joint table.
    """
    domain.check_joint()
    check_absent(domain, units)

    def run(table: ir.Table, unit: str | None) -> ContingencyTable:
        cells = discretise.packed_table(domain, table, unit=unit, text=opened.text).rename(
            cell="word_0"
        )
        if units is None:
            counts = cells.group_by("cell").aggregate(records=cells.count())
        else:
            counts = counts_of_units(cells, units, key)
        # Of few possible cells the table is put in order without sorting.
        ordered = counts if domain.n_cells <= LISTED else counts.order_by("cell")
        columns = engine_of(table).fetched(ordered)
        if not len(columns):
            raise EmptySourceError("The source has no records.", where=source.where)
        found, records = columns["cell"].to_numpy(), columns["records"].to_numpy()
        padding = columns["padding"][0].as_py() if units is not None else 0
        if padding:
            found = np.append(found, domain.n_cells - 1)  # the absent cell
            records = np.append(records, padding)
        return ContingencyTable.from_cells(domain, found, records)

    with open_source(source, scratch=scratch, wanted=domain.names) as opened:
        return opened.read(lambda: run(*typed(opened, units)))


def profile(
    source: Source,
    domain: Domain,
    *,
    scratch: Path,
    units: Units | None = None,
) -> SourceProfile:
    """Count nulls, values outside the declaration, unreadable ones and units, in one query.

    Takes the arguments of ``count``; of an empty source the profile is all zeros.

    Raises:
        SourceError: Not found or unreadable; a column missing or of a wrong type.
    """

    def run(table: ir.Table, unit: str | None) -> SourceProfile:
        derived, coded = discretise.coded_columns(domain, table, unit=unit, text=opened.text)
        totals = {"records": derived.count()}
        if domain.zeros:
            totals["impossible"] = discretise.impossible(domain, coded).sum()
        if unit is not None:
            totals["units"] = derived.unit.nunique()
            totals["unnamed"] = derived.unit.isnull().sum()
        for index, column in enumerate(coded):
            totals[f"null_{index}"] = column.is_null.sum()
            totals[f"outside_{index}"] = column.is_outside.sum()
            if column.is_unreadable is not None:
                totals[f"unreadable_{index}"] = column.is_unreadable.sum()
        row = engine_of(table).fetched(derived.aggregate(**totals)).to_pylist()[0]
        columns = (
            ColumnProfile(
                name,
                row[f"null_{index}"] or 0,
                row[f"outside_{index}"] or 0,
                row.get(f"unreadable_{index}") or 0,
            )
            for index, name in enumerate(domain.names)
        )
        return SourceProfile(
            n_records=row["records"],
            columns=tuple(columns),
            n_impossible=row.get("impossible") or 0,
            n_units=row.get("units"),
            n_unnamed=row.get("unnamed") or 0,
        )

    with open_source(source, scratch=scratch, wanted=domain.names) as opened:
        return opened.read(lambda: run(*typed(opened, units)))


def typed(opened: OpenSource, units: Units | None) -> tuple[ir.Table, str | None]:
    """The source's table, and the name in it of the column of the units."""
    return with_units(opened.table, units) if units is not None else (opened.table, None)


def check_absent(domain: Domain, units: Units | None) -> None:
    """Units of several records are padded, for which the domain needs its absent cell."""
    if units is not None and units.max_records > 1 and not domain.absent:
        raise ValueError("units of several records need a domain with an absent cell")
