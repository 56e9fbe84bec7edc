"""Tables of groups of columns: targets, counts of records, impossible cells, public totals.

Structural zeros are boxes of codes by column position. Tables of records are counted in one pass
over the records, compiled.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Slot
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.parallel import compiled_kernel, in_threads, threads

Group = tuple[int, ...]
"""Positions of columns, ascending."""
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TargetTable:
    """A table that the records should have.

    Attributes:
        group: Positions of its columns.
        table: float64 of their shape, in published records.
        weight: Of its squared distance, a multiple of 1/64.
        also: Other columns whose tables are counted in it too, in the same order: those of the
            persons in further places of a household.
    """

    group: Group
    table: Floats
    weight: float
    also: Sequence[Group] = ()

    @property
    def groups(self) -> tuple[Group, ...]:
        """All columns whose tables are counted in it."""
        return self.group, *self.also


_BLOCK = 1 << 10  # records whose codes stay near while table after table is counted
_LEAST = 1 << 18  # records for which a thread is worth its copy of the tables
_MOST_EACH = 1 << 21  # cells of that copy


def counts_of(
    codes: NDArray[Any], groups: Sequence[Group], shapes: Sequence[tuple[int, ...]]
) -> list[Integers]:
    """The counts of records by their codes of each group."""
    width = max((len(group) for group in groups), default=1)
    columns = np.zeros((len(groups), width), dtype=np.int64)
    strides = np.zeros((len(groups), width), dtype=np.int64)
    offsets = np.cumsum([0, *(math.prod(shape) for shape in shapes)])
    for place, (group, shape) in enumerate(zip(groups, shapes, strict=True)):
        columns[place, : len(group)] = group
        strides[place, : len(group)] = [math.prod(shape[p + 1 :]) for p in range(len(group))]
    kernel = _compiled(codes.dtype.name)
    parts = max(1, min(threads(), len(codes) // _LEAST)) if offsets[-1] <= _MOST_EACH else 1
    ends = np.linspace(0, len(codes), parts + 1).astype(int).tolist()

    def counted(part: int) -> Integers:
        counts = np.zeros(offsets[-1], dtype=np.int64)
        kernel(codes[ends[part] : ends[part + 1]], columns, strides, offsets[:-1], counts)
        return counts

    total, *others = in_threads(counted, range(parts))
    for each in others:
        total += each
    return np.split(total, offsets[1:-1])[: len(groups)]  # without groups there is one part


def tables_of(
    codes: NDArray[Any], shapes: Mapping[Group, tuple[int, ...]]
) -> dict[Group, Integers]:
    """The tables of groups; a pair that lies in a larger group is a sum over its table."""
    larger = {
        pair: group
        for group in shapes
        if len(group) > 2
        for pair in itertools.combinations(group, 2)
        if pair in shapes
    }
    apart = [group for group in shapes if group not in larger]
    tables = counts_of(codes, apart, [shapes[group] for group in apart])
    tables_by_group = {g: table.reshape(shapes[g]) for g, table in zip(apart, tables, strict=True)}
    for pair, group in larger.items():
        others = tuple(axis for axis, column in enumerate(group) if column not in pair)
        tables_by_group[pair] = tables_by_group[group].sum(axis=others)
    return tables_by_group


def _count(  # type: ignore[no-untyped-def] # noqa: ANN202
    codes,  # noqa: ANN001  unsigned[n, d]
    columns,  # noqa: ANN001  int64[t, w]: of each table its columns
    strides,  # noqa: ANN001  int64[t, w]: their strides, 0 for padding
    offsets,  # noqa: ANN001  int64[t]: where each table begins
    counts,  # noqa: ANN001  int64[cells]: changed
):
    n = codes.shape[0]
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        for t in range(columns.shape[0]):
            for i in range(start, stop):
                cell = offsets[t]
                for c in range(columns.shape[1]):
                    cell += codes[i, columns[t, c]] * strides[t, c]
                counts[cell] += 1


@functools.cache
def _compiled(dtype: str) -> Callable[..., None]:
    """The pass for records of an unsigned dtype."""
    import numba
    from numba import types as nt

    matrix = nt.int64[:, ::1]
    records = numba.from_dtype(np.dtype(dtype))[:, ::1]
    signature = nt.void(records, matrix, matrix, nt.int64[::1], nt.int64[::1])
    kernel: Callable[..., None] = compiled_kernel(_count, signature)
    return kernel


Booleans = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Box:
    """Impossible records: those whose codes lie in all of the given sets at once.

    Attributes:
        columns: Positions, ascending.
        inside: For each column bool[k], its codes in the box.
        presence: Whether it only says which places of a household have a person.
        implied: Whether records outside the other boxes are outside this one.
    """

    columns: Group
    inside: tuple[Booleans, ...]
    presence: bool = False
    implied: bool = False

    def contains(self, codes: NDArray[Any]) -> Booleans:
        """bool[n]: which records unsigned[n, d] lie in the box."""
        contained = np.ones(len(codes), dtype=np.bool_)
        for column, inside in zip(self.columns, self.inside, strict=True):
            contained &= inside[codes[:, column]]
        return contained


@functools.lru_cache(maxsize=8)
def boxes_of(domain: Domain) -> tuple[Box, ...]:
    """What is declared impossible, and which places of a household cannot have a person."""
    names = [column.name for column in domain.columns]
    boxes = list(_presence(domain))
    looked_at = {name for zero in domain.patterns for name in zero.names}
    every = {name: np.arange(domain[name].size) for name in looked_at}
    for zero in domain.patterns:
        masks = zero.masks(every)
        columns = sorted(map(names.index, masks))
        boxes.append(Box(tuple(columns), tuple(masks[names[column]] for column in columns)))
    return tuple(boxes)


def _presence(domain: Domain) -> Iterator[Box]:
    """Where a household has no person, and where it must have one.

    A place has a person exactly if the household is that large. Any two columns of persons say so
    of each other, which tables of them have and records need not be asked for.
    """
    slots = [(j, c) for j, c in enumerate(domain.columns) if isinstance(c, Slot)]
    absent = {j: np.arange(slot.size) == slot.absent_code for j, slot in slots}
    for j, slot in slots:
        if slot.size_name in domain.names:
            size = domain.names.index(slot.size_name)
            smaller = np.arange(domain.columns[size].size) < slot.place
            for sides in ({size: smaller, j: ~absent[j]}, {size: ~smaller, j: absent[j]}):
                yield Box(*_sorted(sides), presence=True)
    for (i, one), (j, other) in itertools.permutations(slots, 2):
        if one.place <= other.place:
            sides = {i: absent[i], j: ~absent[j]}
            yield Box(*_sorted(sides), presence=True, implied=True)


def _sorted(sides: Mapping[int, Booleans]) -> tuple[Group, tuple[Booleans, ...]]:
    columns = tuple(sorted(sides))
    return columns, tuple(sides[column] for column in columns)


@functools.lru_cache(maxsize=8)
def _by_group(boxes: tuple[Box, ...]) -> Mapping[Group, Sequence[Box]]:
    """Boxes by their columns: those of households are thousands."""
    found: dict[Group, list[Box]] = {}
    for box in boxes:
        found.setdefault(box.columns, []).append(box)
    return found


def possible_cells(group: Group, sizes: Sequence[int], boxes: Sequence[Box]) -> Booleans:
    """Bool of the group's shape: the cells that no box of its columns excludes."""
    possible = np.ones([sizes[column] for column in group], dtype=np.bool_)
    by_group = _by_group(tuple(boxes))
    parts = (itertools.combinations(group, size) for size in range(1, len(group) + 1))
    for part in itertools.chain.from_iterable(parts):
        for box in by_group.get(part, ()):
            inside = np.ones(possible.shape, dtype=np.bool_)
            for column, mask in zip(box.columns, box.inside, strict=True):
                shape = [1] * len(group)
                shape[group.index(column)] = -1
                inside &= mask.reshape(shape)
            possible &= ~inside
    return possible


@dataclass(frozen=True, kw_only=True)
class KnownTotal:
    """Public exact totals of one column or two: a file of them, or the counts themselves.

    Attributes:
        columns: Names; by default the one name that the totals are given under.
        file: CSV with a column for each of them and one called ``count``.
        counts: By combination of cells, that of the last column running fastest.
    """

    columns: tuple[str, ...] = ()
    file: str | None = None
    counts: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        if self.counts is not None:
            object.__setattr__(self, "counts", tuple(self.counts))
        if (self.file is None) == (self.counts is None):
            raise ConfigError(
                "Give either a file of known totals, or counts.",
                where="known",
                next_step="Write one of the keys 'file' and 'counts'.",
            )

    def by_column(self, domain: Domain) -> dict[str, tuple[int, ...]]:
        """The count of every cell by column; empty where counts are not one for each cell."""
        shape = [domain[name].size for name in self.columns]
        if self.counts is None or len(self.counts) != math.prod(shape):
            return {}
        table = np.array(self.counts, dtype=object).reshape(shape)  # of any size
        axes = range(len(shape))
        return {
            name: tuple(table.sum(axis=tuple(axis for axis in axes if axis != own)).tolist())
            for own, name in enumerate(self.columns)
        }
