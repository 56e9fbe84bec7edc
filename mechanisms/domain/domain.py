"""The declared, public, finite domain: columns, structural zeros and the privacy unit.

**Cells.** A cell is one combination of codes, one per column. Its int64 code is the number with
those digits, the first column the most significant. Nothing here has as many elements as the domain
has cells, so 2**63 - 1 cells cost nothing. ``absent`` adds one more, the last code, for the records
that a unit does not have (mechanisms/README.md, section 8); it has no columns and is never
published.

**Shares of records.** Where each unit counts one whatever it has, its records share ``parts`` equal
parts of one, and the counts of a table are of parts (mechanisms/README.md, section 8).

**Structural zeros** are combinations of values that no record can have. They keep their codes, so
that decoding stays arithmetic, but no record has one and every mechanism works only on the other
cells, ``n_possible`` of them. A pattern is a box of cells: some columns, and for each a set of
codes; a cell lies in it if all of these columns have such codes, whatever the others are. The union
of a few boxes is counted exactly by inclusion and exclusion and never listed, so it may lie in a
domain of any size.

**Households.** The record of a household has the columns of a fixed number of persons
(``columns.Slot``). That a place has a person exactly if the household is that large follows from
the columns (``mechanisms.marginals.presence``). ``rules`` are further patterns, as many as it
takes; codes are not counted by them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.column import Ranges
from statpress.mechanisms.domain.columns import (
    Categorical,
    Category,
    Codes,
    Column,
    Slot,
    Total,
)
from statpress.mechanisms.errors import (
    ConfigError,
    DomainTooLargeError,
    DuplicateColumnError,
    RecordsError,
)

_TOO_MANY = 2**62  # a table's counts add up to less


class Adjacency(StrEnum):
    """Neighbouring relations; never a default, always written down."""

    REPLACE_ONE = "replace_one"
    """Two datasets of one public size that differ in one privacy unit."""
    ADD_REMOVE = "add_remove"
    """Two datasets of which one has a privacy unit more; the size is private."""

    @property
    def moved(self) -> int:
        """Counts of a table that one record moves by one each."""
        return 2 if self is Adjacency.REPLACE_ONE else 1


class Size(StrEnum):
    """Where the public size of a dataset comes from."""

    DECLARED = "declared"
    """The config states it."""
    FROM_SOURCE = "from_source"
    """A run counts it in the source, which the config declares to be public."""
    ROUGH = "rough"
    """The config states about what it is, for planning."""


class Unit(StrEnum):
    """Whose data is protected, where no column says it."""

    RECORD = "record"
    HOUSEHOLD = "household"
    """All that is recorded of a household, with all its persons: one record."""


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """The guarantee's frame of reference, all of it public.

    Attributes:
        adjacency: The neighbouring relation.
        unit: The privacy unit: ``record``, or the label of a column, see ``of_units``.
        n_records: Number of records n, public under replace-one; under add-remove a public number
            to plan by, which no count depends on.
        unit_records: Records that one unit contributes, c.
        size: Where ``n_records`` comes from.
        expected_records: About how many of the records are there, where units may have fewer than
            ``unit_records``: public, and only planned by. None if nothing is known of it.
    """

    adjacency: Adjacency
    unit: str
    n_records: int
    unit_records: int = 1
    size: Size = Size.DECLARED
    expected_records: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))  # not its text
        object.__setattr__(self, "size", Size(self.size))
        if self.n_records < 1:
            raise RecordsError("n_records must be at least 1.", where="privacy.n_records")
        if self.adjacency is Adjacency.ADD_REMOVE and self.size is not Size.ROUGH:
            raise ConfigError("Under add_remove the size is private, and only a rough one known.")
        if not 1 <= self.unit_records <= self.n_records:
            raise ConfigError("unit_records must be between 1 and n_records.")

    @classmethod
    def of_units(
        cls,
        *,
        adjacency: Adjacency,
        column: str,
        max_records: int,
        n_units: int,
        size: Size = Size.DECLARED,
        expected_records: int | None = None,
    ) -> Privacy:
        """The frame where a column names every record's unit (mechanisms/README.md, section 8).

        Of each unit at most ``max_records`` are kept, and what it lacks is padded with
        records in the absent cell, so that every unit has exactly as many.

        Raises:
            RecordsError: A number is below 1, or there are too many records to count.
        """
        if max_records < 1 or n_units < 1:
            raise RecordsError("max_records and n_units must be at least 1.", where="unit")
        if max_records * n_units >= _TOO_MANY:
            raise RecordsError("max_records times n_units must be below 2**62.", where="n_units")
        if expected_records is not None and size is Size.FROM_SOURCE:  # as near as can be
            expected_records = min(max(expected_records, n_units), max_records * n_units)
        if (
            expected_records is not None
            and not n_units <= expected_records <= max_records * n_units
        ):
            raise RecordsError(
                f"{n_units:,} units have at least as many records, and at most "
                f"{max_records * n_units:,} that are used.",
                where="privacy.unit.expected_records",
            )
        return cls(
            adjacency=adjacency,
            unit=f"column {column}",
            n_records=max_records * n_units,
            unit_records=max_records,
            size=size,
            expected_records=expected_records,
        )

    @property
    def n_units(self) -> int:
        """Number of units, as public as that of records."""
        return self.n_records // self.unit_records

    def counting(self, domain: Domain) -> Privacy:
        """The frame of tables over a domain: one without an absent cell counts units."""
        if domain.absent:
            return self
        return replace(self, n_records=self.n_units, unit_records=1, expected_records=None)

    @property
    def words(self) -> str:
        """The unit in plain words."""
        if self.unit == Unit.RECORD:
            return "one record"
        if self.unit == Unit.HOUSEHOLD:
            return "one household with all its persons"
        column = self.unit.removeprefix("column ")
        return (
            f"all records of one `{column}`, of which at most {self.unit_records}, "
            "chosen at random, are used"
        )


_MOST_PARTS = 2**12


def parts_of(max_records: int) -> int:
    """Parts of one that up to so many records share: the least number that all sizes divide.

    Where that is above 4096 it is 4096, which are dealt as evenly as can be.

    >>> parts_of(1), parts_of(3), parts_of(10), parts_of(11)
    (1, 6, 2520, 4096)
    """
    if max_records > _MOST_PARTS:
        return _MOST_PARTS
    return min(math.lcm(*range(1, max_records + 1)), _MOST_PARTS)


K = TypeVar("K")
MOST_PATTERNS = 12


Runs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class ZeroPattern:
    """Impossible cells: those whose codes lie in all of the given sets at once.

    Args:
        sets: Per column its name and its codes as runs, first and last code of each;
            kept in order and without overlap.
    """

    sets: tuple[tuple[str, Runs], ...]

    def __post_init__(self) -> None:
        if not self.sets:
            raise ConfigError("A structural zero needs at least one column.")
        merged = tuple((name, _merged(runs)) for name, runs in self.sets)
        for name, runs in merged:
            if not runs:
                raise ConfigError("A structural zero needs at least one value.", where=name)
        object.__setattr__(self, "sets", merged)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns it looks at."""
        return tuple(name for name, _ in self.sets)

    def masks(self, codes: Mapping[str, Codes]) -> dict[str, NDArray[np.bool_]]:
        """Of each of its columns bool[k]: which of these codes int64[k] lie in the box."""
        found = {}
        for name, runs in self.sets:
            ends = np.array(runs, dtype=np.int64)
            place = np.searchsorted(ends[:, 0], codes[name], side="right") - 1
            found[name] = (place >= 0) & (codes[name] <= ends[place, 1])
        return found

    def covers(self, record: Mapping[str, int]) -> bool:
        """Whether all records with these codes, perhaps not of all columns, lie in the box."""
        return all(
            name in record and any(first <= record[name] <= last for first, last in runs)
            for name, runs in self.sets
        )


class Boxes(Generic[K]):
    """Sets of codes by column, packed so that one pass finds all boxes that a record lies in.

    Args:
        boxes: Of each box its columns, with bool[k] of their codes inside.
    """

    _BYTES_AT_ONCE = 1 << 22

    def __init__(self, boxes: Sequence[Mapping[K, NDArray[np.bool_]]]) -> None:
        allowed: dict[K, NDArray[np.bool_]] = {}
        for place, box in enumerate(boxes):
            for column, inside in box.items():
                if column not in allowed:
                    allowed[column] = np.ones((len(inside), len(boxes)), dtype=np.bool_)
                allowed[column][:, place] = inside
        self._packed = {column: np.packbits(each, axis=1) for column, each in allowed.items()}

    def around(
        self, codes: Mapping[K, NDArray[Any]], n_records: int
    ) -> Iterator[tuple[slice, NDArray[np.uint8]]]:
        """Some records at a time, and of each a bit for every box that it lies in.

        Args:
            codes: Of every column that a box looks at, integers[n].
            n_records: How many there are.
        """
        if not self._packed:
            return
        width = next(iter(self._packed.values())).shape[1]
        at_once = max(1, self._BYTES_AT_ONCE // width)
        for first in range(0, n_records, at_once):
            some = slice(first, min(first + at_once, n_records))
            within = np.full((some.stop - first, width), 255, dtype=np.uint8)
            for column, bits in self._packed.items():
                within &= bits[codes[column][some]]
            yield some, within


def n_covered(patterns: Sequence[ZeroPattern], sizes: Mapping[str, int]) -> int:
    """Number of cells that lie in at least one pattern, exactly.

    Inclusion and exclusion over the sets of patterns that meet, at most 2**len(patterns).

    Args:
        patterns: Their columns are among the sizes.
        sizes: Number of codes of every column of the domain.
    """

    def meeting(start: int, met: Mapping[str, Runs], sign: int) -> int:
        total = 0
        for i in range(start, len(patterns)):
            both = {**met}
            for name, runs in patterns[i].sets:
                both[name] = _common(met[name], runs) if name in met else runs
            if all(both.values()):
                sides = (_length(both[n]) if n in both else size for n, size in sizes.items())
                total += sign * math.prod(sides) + meeting(i + 1, both, -sign)
        return total

    return meeting(0, {}, 1)


def codes_of_values(column: Column, values: Iterable[Category | None]) -> Runs:
    """The codes of listed values: categories or special values, ``other``, or null for missing.

    Raises:
        ConfigError: A value is not declared.
    """
    runs = []
    for value in values:
        code = column.missing_code if value is None else None
        if isinstance(column, Categorical) and value is not None:
            if any(_same(value, category) for category in column.categories):
                code = column.code_of(value)
            elif value == "other":
                code = column.other_code
        elif value is not None:
            assert isinstance(column, Ranges)
            if isinstance(value, bool) or value not in column.special:
                raise ConfigError(
                    f"The values of a column of kind {column.kind} are given as a range, but for "
                    "those that it declares as special.",
                    where=column.name,
                    next_step="Write {lower: …, upper: …}; one end may be left out.",
                )
            code = column.code_of(value)
        if code is None:
            written = "null" if value is None else repr(value)
            raise ConfigError(
                f"The column does not declare {written[:60]}.",
                where=column.name,
                next_step="Give declared values, 'other' or null, where the column has such cells.",
            )
        runs.append((code, code))
    return tuple(runs)


def _same(one: object, two: object) -> bool:
    """Equal, and both booleans or neither."""
    return one == two and isinstance(one, bool) == isinstance(two, bool)


def _merged(runs: Iterable[tuple[int, int]]) -> Runs:
    """Runs in order, those that touch joined."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(runs):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return tuple(joined)


def _common(one: Runs, two: Runs) -> Runs:
    """The codes in both."""
    pairs = ((max(a, c), min(b, d)) for a, b in one for c, d in two)
    return tuple((first, last) for first, last in pairs if first <= last)


def _length(runs: Runs) -> int:
    return sum(last - first + 1 for first, last in runs)


def _of_each_part(size: int, name: str, zeros: Sequence[ZeroPattern]) -> list[int]:
    """A code of each part into which the patterns' sets divide a column's codes."""
    ends = {0}
    for zero in zeros:
        for first, last in dict(zero.sets).get(name, ()):
            ends |= {first, last + 1}
    return sorted(end for end in ends if end < size)


MAX_CELLS = 2**63 - 1
"""Most cells of a joint table, whose codes are int64."""
_MOST_BITS = 10_000  # of the number of cells, which is written in decimal
LISTED = 1 << 21
"""Cells of a domain that may be listed to draw from; from a larger one is drawn by rejection."""
_LEAST_SHARE = 100  # at least 1/100 of a domain that is not listed must be possible
_CHUNK = 1 << 18
_SHORT = 1 << 16  # columns whose codes are looked up one by one


@dataclass(frozen=True)
class Domain:
    """A product of columns.

    Args:
        columns: At least one column, names distinct.
        zeros: Patterns of impossible cells, at most a dozen.
        absent: Whether there is a cell for the records that a unit does not have.
        parts: How many parts of a record a count of 1 record is; above 1 where a unit's records
            share one.
        rules: Patterns of impossible records of households, which no cell count leaves out.

    Attributes:
        n_possible: Number of cells that ``zeros`` leave, the absent cell included.

    Raises:
        DuplicateColumnError: A name occurs twice.
        DomainTooLargeError: More than 2**10000 cells.
        ConfigError: The patterns leave no cell, or too few to draw from, or are malformed.
    """

    columns: tuple[Column, ...]
    zeros: tuple[ZeroPattern, ...] = ()
    absent: bool = False
    parts: int = 1
    rules: tuple[ZeroPattern, ...] = ()
    strides: tuple[int, ...] = field(init=False, repr=False, compare=False)
    n_possible: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        if not self.columns:
            raise ConfigError("A domain needs at least one column.")
        for name in self.names:
            if self.names.count(name) > 1:
                raise DuplicateColumnError(f"Column '{name}' is declared twice.")
        if self.n_cells.bit_length() > _MOST_BITS:
            raise DomainTooLargeError(f"The domain has more than 2**{_MOST_BITS} cells.")
        strides, stride = [], 1
        for column in reversed(self.columns):
            strides.append(stride)
            stride *= column.size
        object.__setattr__(self, "strides", tuple(reversed(strides)))
        object.__setattr__(self, "zeros", tuple(self.zeros))
        object.__setattr__(self, "rules", tuple(self.rules))
        object.__setattr__(self, "n_possible", self._n_combinations() + self.absent)

    def _n_combinations(self) -> int:
        """Number of combinations of codes that no pattern excludes."""
        if len(self.zeros) > MOST_PATTERNS:
            raise ConfigError(f"More than {MOST_PATTERNS} structural zeros are declared.")
        for zero in self.zeros:
            for name, runs in zero.sets:
                if runs[0][0] < 0 or runs[-1][1] >= self[name].size:
                    raise ConfigError(
                        "A structural zero has a code that does not exist.", where=name
                    )
        sizes = {column.name: column.size for column in self.columns}
        combinations = math.prod(sizes.values())
        left = combinations - n_covered(self.zeros, sizes)
        drawn_from = LISTED < combinations <= MAX_CELLS
        if left == 0 or (drawn_from and left * _LEAST_SHARE < combinations):
            raise ConfigError(
                f"The structural zeros leave {left:,} of {combinations:,} cells.",
                next_step="Leave at least one cell, and of a large domain one in a hundred.",
            )
        return left

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(column.name for column in self.columns)

    @property
    def n_cells(self) -> int:
        """Number of cell codes, impossible and absent ones included; a Python integer."""
        return math.prod(column.size for column in self.columns) + self.absent

    @property
    def absent_cell(self) -> int | None:
        """Code of the absent cell, if there is one: the last."""
        return self.n_cells - 1 if self.absent else None

    @property
    def n_listed(self) -> int:
        """Number of cells that a publication can list: possible and not absent."""
        return self.n_possible - self.absent

    @property
    def declared(self) -> tuple[Column, ...]:
        """The columns as a config has them: of persons once, and not for every place."""
        own = {(c.of if isinstance(c, Slot) else c).name: c for c in self.columns}
        return tuple(c.of if isinstance(c, Slot) else c for c in own.values())

    def counts_as(self, other: Domain) -> bool:
        """Whether tables over both count the same: padded records, units, their parts or totals."""
        return (self.absent, self.parts, self.total) == (other.absent, other.parts, other.total)

    @property
    def total(self) -> Total | None:
        """The only column, where it is of what all records of a unit hold together."""
        (column, *_) = self.columns
        return column if isinstance(column, Total) else None

    def check_joint(self) -> None:
        """Refuse a domain that has too many cells for a joint table.

        Raises:
            DomainTooLargeError: More than 2**63 - 1 cells.
        """
        if self.n_cells > MAX_CELLS:
            sizes = ", ".join(f"{column.name} {column.size:,}" for column in self.columns)
            raise DomainTooLargeError(
                f"The joint table of these columns has {Decimal(self.n_cells):.3e} cells, more "
                f"than 2**63 - 1 ({sizes})."
            )

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise ConfigError(f"The domain has no column '{name}'.")

    def project(self, names: Iterable[str]) -> Domain:
        """The domain of some of the columns, in the order given.

        A pattern stays if all of its columns do: of a combination of fewer columns it
        does not say that it is impossible. The absent cell stays.
        """
        columns = tuple(self[name] for name in names)
        kept = {column.name for column in columns}
        zeros, rules = (
            tuple(each for each in patterns if kept.issuperset(each.names))
            for patterns in (self.zeros, self.rules)
        )
        return Domain(columns, zeros, self.absent, self.parts, rules)

    @property
    def patterns(self) -> tuple[ZeroPattern, ...]:
        """All that is declared impossible."""
        return (*self.zeros, *self.rules)

    def encode(self, codes: Mapping[str, Codes]) -> Codes:
        """Cell codes from column codes.

        Args:
            codes: Column name to int64[k].

        Returns:
            int64[k]; never the absent cell.

        Raises:
            DomainTooLargeError: More than 2**63 - 1 cells.
        """
        self.check_joint()
        parts = (
            np.asarray(codes[column.name], dtype=np.int64) * stride
            for column, stride in zip(self.columns, self.strides, strict=True)
        )
        return np.asarray(sum(parts), dtype=np.int64)

    def codes(self, cells: Codes, name: str) -> Codes:
        """Codes of one column: int64[k] from cell codes int64[k].

        Raises:
            ValueError: The absent cell is among them, which has no columns.
            DomainTooLargeError: More than 2**63 - 1 cells.
        """
        self.check_joint()
        if self.absent and np.any(cells == self.absent_cell):
            raise ValueError("the absent cell has no columns; leave it out first")
        return self._digits(cells, name)

    def _digits(self, cells: Codes, name: str) -> Codes:
        index = self.names.index(name)
        return (cells // self.strides[index]) % self.columns[index].size

    def is_absent(self, cells: Codes) -> NDArray[np.bool_]:
        """bool[k]: which cells int64[k] are the absent one."""
        if not self.absent:
            return np.zeros(len(cells), dtype=np.bool_)
        return np.asarray(cells == self.absent_cell)

    def is_possible(self, cells: Codes) -> NDArray[np.bool_]:
        """bool[k]: which cells int64[k] lie in no pattern; the absent cell lies in none."""
        if not self.patterns:
            return np.ones(len(cells), dtype=np.bool_)
        named = {name for each in self.patterns for name in each.names}
        impossible = self.impossible({name: self._digits(cells, name) for name in named})
        return ~impossible | self.is_absent(cells)

    def impossible(self, codes: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """bool[k]: which records lie in a pattern, from the codes of its columns, integers[k]."""
        found = np.zeros(len(next(iter(codes.values()))), dtype=np.bool_)
        points, boxes = self._boxes
        parts = {
            name: np.searchsorted(firsts, codes[name], side="right") - 1
            if len(firsts) < self[name].size
            else codes[name]
            for name, firsts in points.items()
        }
        for some, within in boxes.around(parts, len(found)):
            found[some] = within.any(axis=1)
        return found

    @functools.cached_property
    def _boxes(self) -> tuple[Mapping[str, Codes], Boxes[str]]:
        """The patterns, with all codes of each column or the first of each part of a long one."""
        points = {}
        for name in sorted({name for each in self.patterns for name in each.names}):
            size = self[name].size
            parts = range(size) if size <= _SHORT else _of_each_part(size, name, self.patterns)
            points[name] = np.array(parts)
        return points, Boxes([each.masks(points) for each in self.patterns])

    @functools.cached_property
    def _instead(self) -> Mapping[str, int]:
        """Codes of the columns that patterns look at, with which every cell is possible."""
        slots = [column for column in self.columns if isinstance(column, Slot) and self.rules]
        nobody = {slot.name: slot.absent_code for slot in slots}  # breaks no rule
        nobody |= {slot.size_name: 0 for slot in slots if slot.size_name in self.names}
        possible = self.completed(nobody)
        assert possible is not None  # the domain has at least one cell
        return possible

    def completed(self, chosen: Mapping[str, int]) -> dict[str, int] | None:
        """Codes of the columns that patterns look at, with which no cell is impossible.

        Args:
            chosen: Codes that some columns have.

        Returns:
            None if there are no such codes.
        """
        names = sorted({name for each in self.patterns for name in each.names} - chosen.keys())

        def extended(chosen: dict[str, int]) -> dict[str, int] | None:
            if any(zero.covers(chosen) for zero in self.patterns):
                return None
            name = next((each for each in names if each not in chosen), None)
            if name is None:
                return chosen
            codes = _of_each_part(self[name].size, name, self.patterns)
            found = (extended({**chosen, name: code}) for code in codes)
            return next((each for each in found if each is not None), None)

        return extended(dict(chosen))

    def made_possible(self, codes: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The codes of records, with those of a structural zero replaced by fixed possible ones.

        A function of each record alone, so that neighbours stay neighbours.

        Args:
            codes: Column name to unsigned or signed integers[k], of all columns.
        """
        moved = dict(codes)
        if not self.patterns:
            return moved
        impossible = self.impossible(codes)
        for name, code in self._instead.items():
            moved[name] = np.where(impossible, np.asarray(code, codes[name].dtype), codes[name])
        return moved

    def possible_cells(self, at_once: int = _CHUNK) -> Codes:
        """Return int64[n_possible], ascending; for domains that may be listed."""
        if not self.zeros:
            return np.arange(self.n_cells)
        return np.concatenate(list(self._possible_chunks(at_once)))

    def _possible_chunks(self, at_once: int) -> Iterator[Codes]:
        for start in range(0, self.n_cells, at_once):
            cells = np.arange(start, min(start + at_once, self.n_cells))
            yield cells[self.is_possible(cells)]

    def decode(self, cells: Codes) -> dict[str, NDArray[Any]]:
        """Public values of every column: name to array[k], see ``Column.decode``."""
        return {c.name: c.decode(self.codes(cells, c.name)) for c in self.columns}

    def cell_of(self, record: Mapping[str, Any]) -> int:
        """Cell code of one record of Python values; the definition of the count."""
        return sum(
            column.code_of(record.get(column.name)) * stride
            for column, stride in zip(self.columns, self.strides, strict=True)
        )
