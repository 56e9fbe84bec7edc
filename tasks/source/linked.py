"""Households with their persons as one record each, joined and ordered where the data lie.

A record has the columns of a household, its number of persons up to a bound, and the columns of the
persons in so many places. **It is a function of the rows of one key alone**: the household with
this key, and the persons that name it. The persons are in the declared order of their cells, and
where these are alike in that of all their cells, and of what became of their values; persons that
are alike in all of them change nothing. Neither the position of a row nor a person's key has a part
in it. So sources that differ in the rows of one key have records of which one differs, and a
person, who names one household, is in one record at most. Where a household's key is there twice,
one of its rows is taken, the first by all declared columns.

All rows of one key are the unit. What may be wrong with keys is counted by keys, so that each count
moves by at most 1 with a unit: keys of several households, rows of households without a key,
households of which two persons have one key, and keys of persons that no household has. Persons who
name no household are in no record.

A column of persons reaches discretisation as its code and fate in one whole number
(``discretise.marked``), null where nobody is there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from statpress.configs.tables import KEY_TWICE, NO_KEY, ORPHANS, PERSON_TWICE, Tables
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ColumnTypeError
from statpress.tasks.source import discretise
from statpress.tasks.source.engine import (
    CsvOptions,
    Limits,
    OpenSource,
    Source,
    engine_of,
    reader_named,
)

if TYPE_CHECKING:
    import ibis.expr.types as ir

_Result = TypeVar("_Result")
_SHARED = ("connection", "session")  # of a source that is held, by which the other is read too


@dataclass(frozen=True)
class LinkedSource:
    """Where households and persons lie, and how they are joined.

    Attributes:
        households: Their source.
        persons: Their source.
        domain: The columns of persons.
        keys: Columns: of households their key; of persons their key, and that of the household.
        order: Columns by whose cells persons are ordered, each with whether it falls.
        most: Places of a household.
        size: Name of the column with the number of persons.
    """

    engine: ClassVar[str] = "linked"

    households: Source
    persons: Source
    domain: Domain
    keys: tuple[str, str, str]
    order: tuple[tuple[str, bool], ...]
    most: int
    size: str

    @property
    def where(self) -> str:
        """Its public name."""
        return f"{self.households.where} and {self.persons.where}"


def source_of(
    tables: Tables, domain: Domain, located: Callable[[str], Path], limits: Limits
) -> LinkedSource:
    """The source that the section ``tables`` declares; nothing is opened.

    Args:
        tables: The section.
        domain: The columns of a household's record.
        located: Makes a path of the config absolute.
        limits: What the engine may take of this machine.
    """
    own, persons = tables.households, tables.persons
    assert persons.by is not None

    def source(declared: Any, columns: tuple[str, ...], unit: str) -> Source:
        reader = reader_named(declared.reader)
        return reader.source_of(declared, located, columns=columns, unit=unit, limits=limits)

    wanted = (*_persons(tables, domain).names, persons.key)
    return joined(
        tables,
        domain,
        source(own.source, tuple(own.domain), own.key),
        source(persons.source, wanted, persons.by),
    )


def joined(tables: Tables, domain: Domain, households: Source, persons: Source) -> LinkedSource:
    """Two sources, joined as the section ``tables`` says."""
    own = tables.persons
    assert own.by is not None and own.order is not None
    return LinkedSource(
        households=households,
        persons=persons,
        domain=_persons(tables, domain),
        keys=(tables.households.key, own.key, own.by),
        order=tuple((name.removeprefix("-"), name.startswith("-")) for name in own.order),
        most=tables.most,
        size=tables.size,
    )


def _persons(tables: Tables, domain: Domain) -> Domain:
    """The declared columns of persons."""
    return Domain(tuple(c for c in domain.declared if c.name in tables.persons.domain))


def _each(source: LinkedSource) -> Iterator[Source]:
    yield source.households
    yield source.persons


def check_place(source: LinkedSource) -> None:
    """See that both could be read."""
    for each in _each(source):
        reader_named(each.engine).check_place(each)


def is_there(source: LinkedSource) -> bool:
    """Whether both are."""
    return all(reader_named(each.engine).is_there(each) for each in _each(source))


def parts_of(source: LinkedSource) -> Iterator[LinkedSource]:
    """None: households of two tables have no order."""
    del source
    return iter(())


@contextmanager
def held(source: LinkedSource, scratch: Path) -> Iterator[LinkedSource]:
    """Both tables as they stand: of a database in one transaction, of Spark in one session."""
    with ExitStack() as stack:
        reader = reader_named(source.households.engine)
        households: Any = stack.enter_context(reader.held(source.households, scratch))
        shared = {name: getattr(households, name) for name in _SHARED if hasattr(households, name)}
        other: Any = source.persons
        persons = stack.enter_context(reader.held(replace(other, **shared), scratch))
        yield replace(source, households=households, persons=persons)


@dataclass(frozen=True)
class OpenHouseholds:
    """The records of households, lazily.

    Attributes:
        table: One record a household.
        households: The source of their own columns, from which they are read.
    """

    table: ir.Table
    households: OpenSource

    @property
    def text(self) -> CsvOptions | None:
        """How the columns of households are written, if they are text."""
        return self.households.text

    def read(self, run: Callable[[], _Result]) -> _Result:
        """Run a step that reads the records."""
        return self.households.read(run)

    def place_of(self, record: int, column: str, unreadable_as: str = "") -> str:
        """Nobody asks for a place where ``parts_of`` gives no part."""
        raise NotImplementedError


@contextmanager
def _both(
    source: LinkedSource, scratch: Path, wanted: Sequence[str], **settings: Any
) -> Iterator[tuple[OpenSource, OpenSource]]:
    """Both tables, open on one engine."""
    members, (_, person, _) = source.domain, source.keys
    beside = scratch / "persons"
    beside.mkdir(mode=0o700, exist_ok=True)
    with ExitStack() as stack:
        reader: Any = reader_named(source.households.engine)
        households = stack.enter_context(
            reader.opened(source.households, scratch, wanted, **settings)
        )
        names = tuple(dict.fromkeys((*members.names, person)))
        persons = stack.enter_context(
            reader.opened(source.persons, beside, names, beside=households.table, **settings)
        )
        _check_keys(source, households.table, persons.table)
        yield households, persons


@contextmanager
def opened(
    source: LinkedSource, scratch: Path, wanted: Sequence[str], **settings: Any
) -> Iterator[OpenHouseholds]:
    """The records of households; of persons all declared columns are read, for their order."""
    places = {f"{name}_{i}" for name in source.domain.names for i in range(1, source.most + 1)}
    own = tuple(name for name in wanted if name not in places and name != source.size)
    with _both(source, scratch, own, **settings) as (households, persons):
        slots = persons.read(functools.partial(_slots, source, persons))
        table = households.read(functools.partial(_records, source, households.table, own, slots))
        yield OpenHouseholds(table, households)


def _check_keys(source: LinkedSource, households: ir.Table, persons: ir.Table) -> None:
    """Refuse keys that cannot be compared."""
    key, _, by = source.keys
    found = households[key].type(), persons[by].type()
    whole = all(each.is_integer() or (each.is_decimal() and not each.scale) for each in found)
    if not (whole or all(each.is_string() for each in found) or all(e.is_uuid() for e in found)):
        held = " and ".join(str(each.copy(nullable=True)) for each in found)
        raise ColumnTypeError(
            "The keys of households must be text in both tables, or whole numbers in both; the "
            f"sources hold {held}.",
            where=f"{key} and {by}",
            next_step="Deliver both in one type.",
        )


def _slots(source: LinkedSource, persons: OpenSource) -> ir.Table:
    """Of every household that persons name: its size, and the marked codes of each place."""
    import ibis

    members, (_, _, by) = source.domain, source.keys
    derived = discretise.read_columns(members, persons.table, unit=by, text=persons.text)
    codes = {
        f"code_{index}": discretise.marked(column, derived, index)
        for index, column in enumerate(members.columns)
    }
    coded = engine_of(derived).stored(derived.select(household=derived.unit, **codes))
    falling = {f"code_{members.names.index(name)}": falls for name, falls in source.order}
    # Each column once: of one that is named twice Ibis takes the last direction.
    ordering = [
        coded[code].desc() if falling.get(code) else coded[code]
        for code in dict.fromkeys([*falling, *codes])
    ]
    ranked = coded.mutate(place=ibis.row_number().over(group_by="household", order_by=ordering))
    kept = ranked.filter(ranked.place < source.most)
    values = {
        f"{column.name}_{place + 1}": kept[f"code_{index}"].max(where=kept.place == place)
        for place in range(source.most)
        for index, column in enumerate(members.columns)
    }
    return kept.group_by("household").aggregate(**{source.size: kept.count()}, **values)


def _records(
    source: LinkedSource, households: ir.Table, own: Sequence[str], slots: ir.Table
) -> ir.Table:
    """One record for each key of a household."""
    import ibis

    key, *_ = source.keys
    listed = households.filter(households[key].notnull())
    named = listed.select(
        household=listed[key], **{f"own_{i}": listed[n] for i, n in enumerate(own)}
    )
    ordering = [named[f"own_{i}"] for i in range(len(own))]
    rank = ibis.row_number().over(group_by="household", order_by=ordering or None)
    ranked = named.mutate(row_of_key=rank)
    first = ranked.filter(ranked.row_of_key == 0)
    joined = first.left_join(slots, first.household == slots.household)
    columns = {name: joined[f"own_{i}"] for i, name in enumerate(own)}
    columns[source.size] = joined[source.size].fill_null(0).cast("int64")
    return joined.select(
        **columns, **{n: joined[n] for n in slots.columns if n not in ("household", source.size)}
    )


def key_faults(source: LinkedSource, scratch: Path) -> dict[str, int]:
    """How many households have each fault of keys; private.

    Raises:
        SourceError: A table can no longer be read.
    """
    key, person, by = source.keys
    with _both(source, scratch, ()) as (households, persons):
        own = households.table.select(household=households.table[key])
        theirs = persons.table.select(household=persons.table[by], person=persons.table[person])

        def number(table: ir.Table) -> int:
            counted = table.aggregate(number=table.count())
            return int(engine_of(table).fetched(counted)["number"][0].as_py())

        def found() -> Mapping[str, int]:
            listed = own.filter(own.household.notnull())
            twice = listed.group_by("household").aggregate(rows=listed.count())
            pairs = theirs.group_by(["household", "person"]).aggregate(rows=theirs.count())
            doubled = pairs.filter(pairs.rows > 1).select("household").distinct()
            keys = theirs.select("household").distinct()
            orphans = keys.anti_join(twice, keys.household == twice.household)
            return {
                KEY_TWICE: number(twice.filter(twice.rows > 1)),
                NO_KEY: number(own.filter(own.household.isnull())),
                PERSON_TWICE: number(doubled),
                ORPHANS: number(orphans),
            }

        return dict(households.read(lambda: persons.read(found)))
