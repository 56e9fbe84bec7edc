"""Counts and profiles of a source as queries, and bounding the contributions of each unit.

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

**Each unit counts one** in a table without an absent cell. Of parts, a unit has as many as every
other, public, and its k kept records divide them: as many each if k divides their number, else the
first ones have one part more, so that each has 1/k on average over keys. Replacing a unit moves
exactly its parts. Where a record has a single part, one record of each unit is kept, the first.

**Totals** of units are of their kept records with a value. The engine adds their codes, which are
equally far apart, and counts units by how many values they have and by the sum.

A source is read by the engine, where it lies; what reaches Python is the sparse contingency
table, or a profile of a few numbers a column. Where every record is a unit, one scan finds both
(``tasks.source.scanning``).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from statpress.configs.checks import Fate
from statpress.configs.loading import Release
from statpress.configs.release_config import UnitColumn
from statpress.mechanisms.domain.columns import Total
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import LISTED, Domain
from statpress.mechanisms.errors import ColumnTypeError, EmptySourceError
from statpress.tasks.source import discretise, linked
from statpress.tasks.source.engine import (
    Limits,
    OpenSource,
    Source,
    engine_of,
    missing_column,
    open_source,
    reader_named,
)

if TYPE_CHECKING:
    import ibis.expr.types as ir


_RECORD = "number of the record"


def first_of(
    source: Source, domain: Domain, refused: Sequence[tuple[str, Fate]], *, scratch: Path
) -> Iterator[tuple[str, Fate, str]]:
    """The first record with a value of some fate, in the order of the files; none without an order.

    Yields:
        Column, fate and place of each that is found: the record, and of a CSV the line of the file
        and the field.

    Raises:
        SourceError: The source can no longer be read.
    """
    left = list(refused)
    for part in reader_named(source.engine).parts_of(source):
        names = list(dict.fromkeys(column for column, _ in left))
        with open_source(part, scratch=scratch, preserve_insertion_order=True) as opened:
            records = opened.read(
                functools.partial(_records, opened, domain.project(names), tuple(left))
            )
            for (column, fate), record in zip(list(left), records, strict=True):
                if record is not None:
                    left.remove((column, fate))
                    kind = domain[column].kind if fate == "unreadable" else ""
                    yield column, fate, opened.place_of(record, column, kind)
        if not left:
            return


def _records(
    opened: OpenSource, domain: Domain, wanted: Sequence[tuple[str, Fate]]
) -> list[int | None]:
    """The number, from 1, of the first record of each fate in a file."""
    import ibis

    number = _RECORD
    while number in opened.table.columns:
        number += "_"
    numbered = opened.table.mutate(**{number: ibis.row_number() + 1})
    derived, coded = discretise.coded_columns(domain, numbered, unit=number, text=opened.text)
    firsts = {}
    for index, (column, fate) in enumerate(wanted):
        value = coded[domain.names.index(column)]
        met = {
            "missing": value.is_null, "outside": value.is_outside,
            "unreadable": value.is_unreadable,
        }[fate]  # fmt: skip
        firsts[f"first_{index}"] = derived.unit.min(where=met)
    row = engine_of(derived).fetched(derived.aggregate(**firsts)).to_pylist()[0]
    return [row[f"first_{index}"] for index in range(len(wanted))]


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
        raise missing_column(units.column)
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


def kept_records(records: ir.Table, units: Units, key: str, parts: int = 1) -> ir.Table:
    """The records that are kept.

    Args:
        records: One row per record: ``unit``, and all else that tells two records apart, as
            int64. In what is hashed these are the record's cell.
        units: The privacy unit.
        key: Of the hash.
        parts: Of each unit, which its kept records share; 1 to count records.

    Returns:
        The same columns, and ``lacking``: the number of records that the unit is padded with,
        in one row of each unit, and 0 in its others. Where there are several parts, instead
        ``parts``: how many of them the record has.
    """
    import ibis

    digest = engine_of(records).digest
    words = [name for name in records.columns if name != "unit"]
    numbered = records.mutate(copy=ibis.row_number().over(group_by=["unit", *words]))
    cell = itertools.chain.from_iterable((",", numbered[name].cast("string")) for name in words)
    # The unit comes last: it alone may hold any character.
    hashed = [*itertools.islice(cell, 1, None), "|", numbered.copy.cast("string"), "|"]
    text = ibis.literal(f"{key}|").concat(*hashed, numbered.unit.cast("string").fill_null(""))
    ranked = numbered.mutate(
        rank=ibis.row_number().over(group_by="unit", order_by=digest(text)),
        size=numbered.count().over(group_by="unit"),
    )
    kept = ranked.filter(ranked["rank"] < units.max_records)
    if parts > 1:
        size = ibis.least(kept["size"], units.max_records)
        more = (kept["rank"] < parts % size).ifelse(1, 0)
        return kept.select("unit", *words, parts=(parts // size + more).cast("int64"))
    lacking = units.max_records - ibis.least(kept["size"], units.max_records)
    first = (kept["rank"] == 0).ifelse(lacking, 0).cast("int64")
    return kept.select("unit", *words, lacking=first)


def counts_of_units(cells: ir.Table, units: Units, key: str, parts: int = 1) -> ir.Table:
    """Counts of the kept records by cell, in parts of a unit where there are several.

    Args:
        cells: Columns ``cell`` and ``unit``, one row per record.
        units: The privacy unit.
        key: Of the hash.
        parts: Of each unit, which its kept records share; 1 to count records.

    Returns:
        Columns ``cell``, ``records``, and ``padding``: the number of padded records of
        all units together, in every row.
    """
    kept = kept_records(cells, units, key, parts)
    if parts > 1:
        counts = kept.group_by("cell").aggregate(records=kept.parts.sum().cast("int64"))
        return counts.filter(counts.records > 0).mutate(padding=0)
    counts = kept.group_by("cell").aggregate(records=kept.count(), padding=kept.lacking.sum())
    return counts.mutate(padding=counts.padding.sum().cast("int64"))


def totals_of_units(cells: ir.Table, units: Units, key: str, n_values: int) -> ir.Table:
    """Units by how many values their kept records have, and by the sum of the values' codes.

    Args:
        cells: Columns ``cell`` and ``unit``, one row per record.
        units: The privacy unit.
        key: Of the hash.
        n_values: Codes from this one on stand for no value.

    Returns:
        Columns ``number``, ``total`` and ``records``, the number of units.
    """
    kept = kept_records(cells, units, key)
    there = kept.cell < n_values
    of_units = kept.group_by("unit").aggregate(
        number=there.ifelse(1, 0).sum().cast("int64"),
        total=there.ifelse(kept.cell, 0).sum().cast("int64"),
    )
    return of_units.group_by(["number", "total"]).aggregate(records=of_units.count())


def source_of(release: Release) -> Source:
    """Where the records lie, how they are written, and which columns are wanted."""
    declared, units = release.config.source, units_of(release)
    resources = release.config.resources
    limits = Limits.of(resources.memory_bytes, resources.threads)
    if release.config.linked is not None:
        return linked.source_of(release.config.linked, release.domain, release.located, limits)
    return reader_named(declared.reader).source_of(
        declared,
        release.located,
        columns=release.domain.names,
        unit=units.column if units is not None else None,
        limits=limits,
    )


def units_of(release: Release) -> Units | None:
    """The units of the source; None where every record is one."""
    unit = release.config.privacy.unit
    return Units(unit.column, unit.max_records) if isinstance(unit, UnitColumn) else None


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
        keys: Of linked tables, how many households have a fault of keys, by its name.
    """

    n_records: int
    columns: tuple[ColumnProfile, ...]
    n_impossible: int = 0
    n_units: int | None = None
    n_unnamed: int = 0
    keys: Mapping[str, int] = field(default_factory=dict)

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
    pads every unit to exactly as many with records in the absent cell; without that cell each unit
    counts one (tasks.source.aggregates).

    Args:
        source: The private source.
        domain: The declared domain.
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
    total = domain.total
    if units is not None and not domain.absent and domain.parts == 1 and total is None:
        units = Units(units.column, 1)

    def run_totals(
        table: ir.Table, unit: str | None, total: Total, units: Units
    ) -> ContingencyTable:
        coded = discretise.packed_table(Domain((total.of,)), table, unit=unit, text=opened.text)
        cells = coded.rename(cell="word_0")
        found = engine_of(table).fetched(totals_of_units(cells, units, key, total.of.n_values))
        numbers, totals, of_units = (found[name].to_numpy() for name in found.column_names)
        return ContingencyTable.from_cells(domain, total.codes_of(numbers, totals), of_units)

    def run(table: ir.Table, unit: str | None) -> ContingencyTable:
        cells = discretise.packed_table(domain, table, unit=unit, text=opened.text).rename(
            cell="word_0"
        )
        if units is None:
            counts = cells.group_by("cell").aggregate(records=cells.count())
        else:
            counts = counts_of_units(cells, units, key, domain.parts)
        # Of few possible cells the table is put in order without sorting.
        ordered = counts if domain.n_cells <= LISTED else counts.order_by("cell")
        columns = engine_of(table).fetched(ordered)
        if not len(columns):
            raise EmptySourceError("The source has no records.", where=source.where)
        found, records = columns["cell"].to_numpy(), columns["records"].to_numpy()
        if domain.patterns:
            codes = {name: domain.codes(found, name) for name in domain.names}
            found = domain.encode(domain.made_possible(codes))
        padding = columns["padding"][0].as_py() if units is not None else 0
        if padding:
            found = np.append(found, domain.n_cells - 1)  # the absent cell
            records = np.append(records, padding)
        return ContingencyTable.from_cells(domain, found, records)

    with open_source(source, scratch=scratch, wanted=domain.names) as opened:
        if total is not None and units is not None:
            return opened.read(lambda: run_totals(*typed(opened, units), total, units))
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
        if domain.patterns:
            totals["impossible"] = discretise.impossible(
                domain, [each.digit for each in coded]
            ).sum()
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


def size_of(source: Source, domain: Domain, *, scratch: Path, units: Units | None = None) -> int:
    """The number of records, or of distinct units that are named, whatever else they hold.

    Takes the arguments of ``count``. It is as public as the config declares it to be.

    Raises:
        SourceError: Not found, unreadable or empty; a column missing.
    """

    def run(table: ir.Table, unit: str | None) -> int:
        number = table.count() if unit is None else table[unit].nunique()
        return int(engine_of(table).fetched(table.aggregate(size=number))["size"][0].as_py())

    with open_source(source, scratch=scratch, wanted=domain.names) as opened:
        size = opened.read(lambda: run(*typed(opened, units)))
    if not size:
        raise EmptySourceError("The source has no records.", where=source.where)
    return size


def typed(opened: OpenSource, units: Units | None) -> tuple[ir.Table, str | None]:
    """The source's table, and the name in it of the column of the units."""
    return with_units(opened.table, units) if units is not None else (opened.table, None)
