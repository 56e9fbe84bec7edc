"""The ``tables`` section: households and their persons, and the rules that both keep.

One record is released for each household: its own columns, its number of persons, and the columns
of as many persons as it may have, in a declared order. ``domain`` and ``structural_zeros`` name the
columns of persons as they are in their table; here they become those of every place.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, StrictInt, StrictStr, model_validator
from pydantic_core import PydanticCustomError

from statpress.configs.declared_columns import (
    Category,
    ColumnConfig,
    FiniteNumber,
    Line,
    Name,
    Section,
    ValuesOrRange,
    build_zero,
)
from statpress.configs.sources import AnySourceConfig
from statpress.mechanisms.domain.column import Ranges
from statpress.mechanisms.domain.columns import Column, Integer, Slot
from statpress.mechanisms.domain.domain import Domain, Runs, ZeroPattern
from statpress.mechanisms.errors import ConfigError

LINKED_KIND = "linked"
"""The kind of product of households and their persons."""
MOST_PLACES, MOST_RULES = 20, 4000
"""Persons of a household, and patterns that its rules come to."""


class TableConfig(Section):
    """A table of households, or one of their persons."""

    source: AnySourceConfig
    key: Line = Field(
        description="Column that tells records apart: all households, or the persons of one."
    )
    of: Name | None = Field(default=None, description="Of persons: the table of households.")
    by: Line | None = Field(default=None, description="Of persons: column with the household.")
    at_most: Annotated[StrictInt, Field(ge=1, le=MOST_PLACES)] | None = Field(
        default=None, description="Persons of a household that are used: the first in the order."
    )
    order: Annotated[list[StrictStr], Field(min_length=1)] | None = Field(
        default=None,
        description="Columns by whose cells the persons of a household are ordered, '-' before one "
        "that falls; all others decide where these are alike.",
    )
    orphans: Literal["refuse", "drop"] = Field(
        default="refuse", description="Of persons without a household: refuse the source, or not."
    )
    domain: Annotated[dict[StrictStr, ColumnConfig], Field(min_length=1)]

    @model_validator(mode="after")
    def _of_persons(self) -> Self:
        needed = {name: getattr(self, name) for name in ("of", "by", "at_most", "order")}
        missing = [name for name, value in needed.items() if value is None]
        if self.of is not None and missing:
            raise PydanticCustomError(
                "ConfigError",
                "persons need the key {name}, as they have 'of'",
                {"name": f"'{missing[0]}'"},
            )
        ordered = [name.removeprefix("-") for name in self.order or ()]
        for name in ordered:
            if name not in self.domain or ordered.count(name) > 1:
                raise PydanticCustomError(
                    "ConfigError",
                    "'order' must name columns of the table's domain, each once, and {name} is not",
                    {"name": f"'{name}'"},
                )
        if self.of is None and (len(missing) < len(needed) or "orphans" in self.model_fields_set):
            raise PydanticCustomError(
                "ConfigError", "a table that has no 'of' is of households; leave out the keys of "
                "persons: by, at_most, order, orphans"
            )  # fmt: skip
        return self


def _listed(value: Any) -> Any:
    """A single value as a list of one."""
    if isinstance(value, dict):
        plain = (str, int, float, bool)
        return {k: [v] if isinstance(v, plain) or v is None else v for k, v in value.items()}
    return value


Where = Annotated[
    dict[StrictStr, ValuesOrRange],
    Field(min_length=1),
    BeforeValidator(_listed, json_schema_input_type=dict[str, ValuesOrRange | Category | None]),
]


class RuleConfig(Section):
    """What the persons of every household keep: one of the three forms."""

    at_most: Annotated[StrictInt, Field(ge=0, le=MOST_PLACES)] | None = Field(
        default=None, description="So many persons at most are as 'where' says."
    )
    where: Where | None = None
    first: Where | None = Field(
        default=None, description="The person in the first place is so, and no other person."
    )
    gap: FiniteNumber | None = Field(
        default=None, description="'younger' persons are below 'older' ones by so much, at least."
    )
    of: StrictStr | None = Field(default=None, description="Column of whole numbers of the gap.")
    younger: Where | None = None
    older: Where | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        given = {name for name in type(self).model_fields if getattr(self, name) is not None}
        if given not in ({"at_most", "where"}, {"first"}, {"gap", "of", "younger", "older"}):
            raise PydanticCustomError(
                "ConfigError",
                "must have at_most and where, or first, or gap, of, younger and older",
            )
        return self


class LinkedSource(Section):
    """The sources of both tables, in place of one ``source``."""

    households: AnySourceConfig
    persons: AnySourceConfig
    reader: ClassVar[str] = "linked"

    @property
    def both(self) -> tuple[Any, Any]:
        """The sections of households and of persons."""
        return self.households, self.persons

    @property
    def kind(self) -> str:
        """What they are, in words."""
        return f"households in {self.households.kind}, persons in {self.persons.kind}"

    @property
    def place(self) -> str:
        """Their public names."""
        return f"{self.households.place} and {self.persons.place}"

    @property
    def files(self) -> tuple[str, ...]:
        """The paths or globs of their files on this machine."""
        return (*self.households.files, *self.persons.files)

    def check_column(self, column: Column) -> None:
        """Every table checks its own columns."""

    def check_installed(self, where: str) -> None:
        """See that both can be read here.

        Raises:
            DependencyError: An extra is not installed.
        """
        for each in self.both:
            each.check_installed(where)


KEY_TWICE, NO_KEY = "keys of more than one household", "households without a key"
PERSON_TWICE, ORPHANS = "households with a person twice", "named by persons but not there"
"""What may be wrong with keys, each counted by households."""


@dataclass(frozen=True)
class Tables:
    """The two tables of a config.

    Attributes:
        names: Of the table of households, and of that of persons.
        households: The former.
        persons: The latter.
    """

    names: tuple[str, str]
    households: TableConfig
    persons: TableConfig

    @classmethod
    def of(cls, tables: Mapping[str, TableConfig]) -> Tables:
        """Those of the section."""
        first, second = sorted(tables, key=lambda name: tables[name].of is not None)
        return cls((first, second), tables[first], tables[second])

    @property
    def source(self) -> LinkedSource:
        """Where their records lie."""
        return LinkedSource(households=self.households.source, persons=self.persons.source)

    @property
    def columns(self) -> dict[str, ColumnConfig]:
        """The declared columns of both, as they are in their tables.

        Raises:
            PydanticCustomError: Both have a column of one name.
        """
        shared = self.households.domain.keys() & self.persons.domain.keys()
        for name in sorted(shared):
            raise PydanticCustomError(
                "ConfigError",
                "{name} is a column of both tables: rename it in a source",
                {"name": f"'{name}'"},
            )
        return self.households.domain | self.persons.domain

    def source_of(self, name: str) -> Any:
        """The source of a declared column."""
        table = self.households if name in self.households.domain else self.persons
        return table.source

    def place_of(self, name: str) -> tuple[str, str, str, str]:
        """Where a column is declared, in keys of the file."""
        table = self.names[name not in self.households.domain]
        return "tables", table, "domain", name

    @property
    def size(self) -> str:
        """Name of the column with the number of a household's persons."""
        return f"n_{self.names[1]}"

    @property
    def most(self) -> int:
        """Persons of a household that are used."""
        assert self.persons.at_most is not None
        return self.persons.at_most

    def slots(self, column: Column) -> list[Slot]:
        """A column of persons for each place."""
        return [
            Slot(name=f"{column.name}_{place}", of=column, place=place, size_name=self.size)
            for place in range(1, self.most + 1)
        ]

    def flat(self, columns: Mapping[str, Column]) -> list[Column]:
        """The columns of a household's record.

        Raises:
            ConfigError: Two have one name.
        """
        own = [column for name, column in columns.items() if name in self.households.domain]
        own.append(Integer(name=self.size, lower=0, upper=self.most))
        by_column = [self.slots(columns[name]) for name in self.persons.domain if name in columns]
        found = [*own, *itertools.chain.from_iterable(zip(*by_column, strict=True))]
        names = [column.name for column in found]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(
                    f"'{name}' is the name of two columns: of one of households, and of one of a "
                    "place or of their size.",
                    where="tables",
                    next_step="Rename it in the source.",
                )
        return found

    def patterns(self, pattern: ZeroPattern) -> Iterator[ZeroPattern]:
        """A pattern of both tables' columns, for every place if it names any of persons."""
        if not {*pattern.names} & {*self.persons.domain}:
            yield pattern
            return
        for place in range(1, self.most + 1):
            yield _with(self._at(pattern, place))

    def _at(self, pattern: ZeroPattern, place: int) -> dict[str, Runs]:
        """The sets of a pattern for the person in a place."""
        return {
            f"{name}_{place}" if name in self.persons.domain else name: runs
            for name, runs in pattern.sets
        }

    def of_product(self, kind: str, names: Sequence[str]) -> tuple[str, ...]:
        """The columns of a household's record that a product's columns are.

        Raises:
            ConfigError: A kind of product other than ``linked`` names columns of persons.
        """
        persons = [name for name in self.persons.domain if name in names]
        if kind != LINKED_KIND:
            for name in persons:
                raise ConfigError(
                    f"'{name}' is a column of persons, which only products of kind "
                    f"'{LINKED_KIND}' can have.",
                    where="columns",
                    next_step=f"Name columns of households or '{self.size}'.",
                )
            return tuple(names)
        own = [name for name in names if name in self.households.domain]
        if not persons:
            raise ConfigError(
                "The product names no column of persons.",
                where="columns",
                next_step="Name some, or release households as 'microdata'.",
            )
        places = range(1, self.most + 1)
        return (*own, self.size, *(f"{name}_{place}" for place in places for name in persons))

    def broken(self, rule: RuleConfig, columns: Mapping[str, Column]) -> Iterator[ZeroPattern]:
        """The patterns of records that break a rule.

        Raises:
            ConfigError: The rule is about columns that are not of persons, or not of numbers.
        """
        places = range(1, self.most + 1)
        if rule.first is not None:
            wanted = self._persons(rule.first, columns)
            for name, runs in wanted.sets:
                if others := _others(runs, columns[name].size):
                    yield _with({f"{name}_1": others})
            for place in places[1:]:
                yield _with(self._at(wanted, place))
        if rule.where is not None and rule.at_most is not None:
            wanted = self._persons(rule.where, columns)
            for some in itertools.combinations(places, rule.at_most + 1):
                sets = (self._at(wanted, place) for place in some)
                yield _with(dict(itertools.chain.from_iterable(each.items() for each in sets)))
        if rule.gap is None or rule.of is None:
            return
        assert rule.younger is not None and rule.older is not None
        younger, older = (self._persons(each, columns) for each in (rule.younger, rule.older))
        column = columns.get(rule.of)
        if rule.of not in self.persons.domain or not isinstance(column, Ranges) or column.special:
            raise ConfigError(
                f"'{rule.of}' is not a column of persons with numbers, without special values.",
                where="of",
            )
        for begin, near in _nearer(column, rule.gap):
            for one, other in itertools.permutations(places, 2):
                sides = self._at(younger, one), self._at(older, other)
                ages = {f"{rule.of}_{one}": near, f"{rule.of}_{other}": begin}
                yield _with(sides[0] | sides[1] | ages)

    def check_possible(self, domain: Domain) -> None:
        """Refuse patterns that are too many, or that no household with a person keeps.

        Raises:
            ConfigError: They are.
        """
        if len(domain.rules) > MOST_RULES:
            raise ConfigError(
                f"The rules come to {len(domain.rules):,} patterns, more than {MOST_RULES:,}.",
                next_step="Use fewer places, or fewer cells in the column of a gap.",
            )
        slots = [column for column in domain.columns if isinstance(column, Slot)]
        nobody = {slot.name: slot.absent_code for slot in slots if slot.place > 1}
        there = tuple(
            _with({slot.name: ((slot.absent_code, slot.absent_code),)})
            for slot in slots
            if slot.place == 1
        )
        inhabited = Domain(domain.columns, domain.zeros, rules=(*domain.rules, *there))
        if inhabited.completed({self.size: 1, **nobody}) is None:
            raise ConfigError(
                "The rules leave no household with a person.",
                next_step="Correct the rules, or the structural zeros.",
            )

    def _persons(self, where: Any, columns: Mapping[str, Column]) -> ZeroPattern:
        for name in where:
            if name not in self.persons.domain:
                raise ConfigError(f"Persons have no column '{name}'.", where=name)
        return build_zero(where, columns)

    def key_advice(self, fault: str) -> str:
        """What to do about a fault of keys, by the declared names of tables and columns."""
        (households, persons), key, by = self.names, self.households.key, self.persons.by
        return {
            KEY_TWICE: f"Give every household one row of its own in '{households}', by '{key}'.",
            NO_KEY: f"Fill '{key}' in every row of '{households}'.",
            PERSON_TWICE: f"Give each person of a household a '{self.persons.key}' of their own in "
            f"'{persons}'.",
            ORPHANS: f"Deliver the households that '{by}' of '{persons}' names, or leave such "
            f"persons out: tables: {persons}: orphans: drop",
        }[fault]


def _with(sets: Mapping[str, Runs]) -> ZeroPattern:
    return ZeroPattern(tuple(sets.items()))


def _others(runs: Runs, size: int) -> Runs:
    """The codes of a column of persons that are not in a set, the absent one left out."""
    inside = {code for first, last in runs for code in range(first, last + 1)}
    return tuple((code, code) for code in range(size) if code not in inside)


def _nearer(column: Ranges, gap: float) -> Iterator[tuple[Runs, Runs]]:
    """Codes of an older person, with those of younger ones that are nearer whatever they hold.

    Nothing is impossible of the last cell, which holds all larger numbers too.
    """
    step = 1 if isinstance(column, Integer) else 0
    for older in range(column.n_bins - 1):
        largest = column.begin_of(older + 1) - step
        near = [code for code in range(column.n_bins) if largest - column.begin_of(code) < gap]
        if near:
            yield ((older, older),), ((near[0], column.n_bins - 1),)


def key_faults(tables: Tables | None) -> tuple[str, ...]:
    """What the input gate refuses of the keys; nothing without tables."""
    if tables is None:
        return ()
    found = (KEY_TWICE, NO_KEY, PERSON_TWICE)
    return found if tables.persons.orphans == "drop" else (*found, ORPHANS)
