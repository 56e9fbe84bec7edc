"""Privacy units of several records, inside the count's query (mechanisms/README.md, section 8).

Of every unit at most ``max_records`` = c records are kept, chosen at random, and a unit
with fewer is padded to exactly c with records in the absent cell. The table has then
c times as many records as there are units, a public number, and replacing one unit moves
exactly c of them.

**The choice.** A unit's records are ordered by a keyed hash of the record's cell (all of its
codes), its number among the unit's records of that cell, and the unit; the first c are kept.
Records of one cell are alike, so with a random key this is a uniform choice. It depends on the
unit's own records alone, and not on other units, the order of the records or the engine's
threads: for every key, two sources that differ in one unit have tables that differ in at most c
records. The mechanism's loss for this pair is then its loss for the release, since a mixture over
keys never tells more (hockey-stick divergence is jointly convex). The same holds where one
release counts several tables, which may keep different records of a unit: for every key each
of them differs in at most c, and the losses of the products compose.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mechanisms.errors import ColumnNotFoundError, ColumnTypeError
from tasks.engines.registry import engine_of

if TYPE_CHECKING:
    import ibis.expr.types as ir


@dataclass(frozen=True)
class Units:
    """The privacy unit of a source with several records a unit (mechanisms/README.md, section 8).

    Attributes:
        column: Source column that names each record's unit; it need not be in the domain.
        max_records: Records of a unit that are counted, c.
    """

    column: str
    max_records: int


def with_units(table: ir.Table, units: Units) -> tuple[ir.Table, str]:
    """The table with the column that names the unit under a name of its own.

    Returns:
        The table and that name, which no column of the source has.

    Raises:
        ColumnNotFoundError: The column is missing.
        ColumnTypeError: Its values are no names: neither text nor whole numbers.
    """
    if units.column not in table.columns:
        what = f"The source has no column '{units.column}' (names are compared exactly)."
        raise ColumnNotFoundError(what, where=units.column)
    found = table[units.column].type()
    whole = found.is_integer() or (found.is_decimal() and found.scale == 0)
    if not (found.is_string() or whole or found.is_uuid()):
        raise ColumnTypeError(
            "The column that names the unit must hold text or whole numbers; the source holds "
            f"{found.copy(nullable=True)}.",
            where=units.column,
        )
    name = "unit"
    while name in table.columns:
        name += "_"
    return table.mutate(**{name: table[units.column]}), name


def kept_records(records: ir.Table, units: Units, key: str) -> ir.Table:
    """The records that are kept.

    Args:
        records: One row per record: ``unit``, and all else that tells two records apart, as
            int64. In what is hashed these are the record's cell.
        units: The privacy unit.
        key: Of the hash.

    Returns:
        The same columns, and ``lacking``: the number of records that the unit is padded with,
        in one row of each unit, and 0 in its others.
    """
    import ibis

    digest = engine_of(records).digest
    words = [name for name in records.columns if name != "unit"]
    numbered = records.mutate(copy=ibis.row_number().over(group_by=["unit", *words]))
    cell = itertools.chain.from_iterable((",", numbered[name].cast("string")) for name in words)
    # The unit comes last: it alone may hold any character.
    parts = [*itertools.islice(cell, 1, None), "|", numbered.copy.cast("string"), "|"]
    text = ibis.literal(f"{key}|").concat(*parts, numbered.unit.cast("string").fill_null(""))
    ranked = numbered.mutate(
        rank=ibis.row_number().over(group_by="unit", order_by=digest(text)),
        size=numbered.count().over(group_by="unit"),
    )
    kept = ranked.filter(ranked["rank"] < units.max_records)
    lacking = units.max_records - ibis.least(kept["size"], units.max_records)
    first = (kept["rank"] == 0).ifelse(lacking, 0).cast("int64")
    return kept.select("unit", *words, lacking=first)


def counts_of_units(cells: ir.Table, units: Units, key: str) -> ir.Table:
    """Counts of the kept records by cell.

    Args:
        cells: Columns ``cell`` and ``unit``, one row per record.
        units: The privacy unit.
        key: Of the hash.

    Returns:
        Columns ``cell``, ``records``, and ``padding``: the number of padded records of
        all units together, in every row.
    """
    kept = kept_records(cells, units, key)
    counts = kept.group_by("cell").aggregate(records=kept.count(), padding=kept.lacking.sum())
    return counts.mutate(padding=counts.padding.sum().cast("int64"))
