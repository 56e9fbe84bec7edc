"""What is counted of a source: contingency tables and coded columns, which are private.

Everything after counting sees only these. **A contingency table** is sparse, so its cost is in
occupied cells, never in records or in the size of the domain.

**Coded columns** are records as codes of declared columns, of which only tables are taken. The
joint table of many columns has more cells than an int64 can name, and nearly as many occupied ones
as there are records. Mechanisms that measure low-order marginals take coded columns instead of a
contingency table.

**Counting.** Tables of groups of columns are counted in one pass over chunks of records. Small
groups are counted together: the table of a few more columns is counted instead, from which each of
them is a sum. A pass over pairs of 40 columns then counts some 130 tables and not 780. Sums of
integers are exact, so a table is the same however it was counted.

**Packing.** The counting engine hands a record's codes over packed into few integers, the words. Of
a domain whose joint table can be counted the one word is the cell. The columns of a wider one are
divided, in order, into runs whose cells a double still holds exactly.
"""

from __future__ import annotations

import collections
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.domain.domain import MAX_CELLS, Domain
from statpress.mechanisms.errors import DomainTooLargeError

Counts = NDArray[np.int64]
_SHARED = 1 << 13
"""Most cells of a table that is counted in place of several."""


def smallest_unsigned(size: int) -> np.dtype[Any]:
    """The smallest unsigned integers that hold the codes 0..size-1."""
    return np.min_scalar_type(size - 1)


class GroupCounts:
    """Counts by groups of columns, as records come in; private.

    Args:
        sizes: Number of codes of each column.
        groups: Of each table the positions of its columns, which are distinct; the tables
            are held in memory (mechanisms.domain.contingency_table.check_groups).
    """

    def __init__(self, sizes: Sequence[int], groups: Sequence[tuple[int, ...]]) -> None:
        self._sizes = tuple(sizes)
        self._groups = list(groups)
        self._shared = dict(_shared(self._sizes, self._groups))
        self._counted = {
            columns: np.zeros(self._cells(columns), dtype=np.int64) for columns in self._shared
        }

    @property
    def columns(self) -> list[int]:
        """The columns whose codes are needed, in order."""
        return sorted({column for group in self._groups for column in group})

    def add(self, codes: Mapping[int, NDArray[Any]]) -> None:
        """Count some records.

        Args:
            codes: Unsigned integers [k] of each of the ``columns``.
        """
        for columns, counts in self._counted.items():
            cells = self._cells_of(codes, columns)
            _counter(cells.dtype.name)(cells, counts)

    @property
    def n_counted(self) -> int:
        """Cells of the tables that are counted, eight bytes each."""
        return sum(map(len, self._counted.values()))

    def merge(self, other: GroupCounts) -> None:
        """Take over what another has counted of other records, by the same groups."""
        for columns, counts in self._counted.items():
            counts += other._counted[columns]

    def tables(self) -> list[Counts]:
        """int64 of the shape of each group."""
        found = {
            group: (columns, self._counted[columns])
            for columns, groups in self._shared.items()
            for group in groups
        }
        return [self._marginal(*found[frozenset(group)], group) for group in self._groups]

    def _marginal(self, columns: Sequence[int], counts: Counts, group: Sequence[int]) -> Counts:
        """A table summed over the columns that are not in a group, its axes in that order."""
        others = tuple(axis for axis, column in enumerate(columns) if column not in group)
        left = [column for column in columns if column in group]
        table = counts.reshape([self._sizes[column] for column in columns])
        summed = table.sum(axis=others) if others else table
        return summed.transpose([left.index(column) for column in group]).copy()

    def _cells(self, columns: Iterable[int]) -> int:
        return math.prod(self._sizes[column] for column in columns)

    def _cells_of(self, codes: Mapping[int, NDArray[Any]], columns: Sequence[int]) -> NDArray[Any]:
        """Mixed-radix cells of records, the first column the most significant."""
        kind = smallest_unsigned(self._cells(columns))
        cells = codes[columns[0]].astype(kind)
        for column in columns[1:]:
            cells *= kind.type(self._sizes[column])
            cells += codes[column]
        return cells


def _count(cells, counts):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
    for cell in cells:
        counts[cell] += 1


@functools.cache
def _counter(dtype: str) -> Callable[[NDArray[Any], Counts], None]:
    """Adds cells unsigned[k] to counts int64[cells]; lets other threads work meanwhile."""
    import numba
    from numba import types as nt

    from statpress.mechanisms.parallel import compiled_kernel

    cells = numba.from_dtype(np.dtype(dtype))[::1]
    signature = nt.void(cells, nt.int64[::1])
    found: Callable[[NDArray[Any], Counts], None] = compiled_kernel(_count, signature)
    return found


def _shared(
    sizes: Sequence[int], groups: Sequence[tuple[int, ...]], most: int = _SHARED
) -> Iterator[tuple[tuple[int, ...], list[frozenset[int]]]]:
    """The columns of each table to count, and the groups that are marginals of it.

    Greedy: a group that is left is joined by the column that completes most others, as long
    as the table stays small.
    """
    left = dict.fromkeys(frozenset(group) for group in groups)
    of_column: dict[int, dict[frozenset[int], None]] = {}
    for group in left:
        for column in group:
            of_column.setdefault(column, {})[group] = None

    def take(columns: frozenset[int], added: int) -> list[frozenset[int]]:
        taken = [group for group in of_column[added] if group <= columns]
        for group in taken:
            del left[group]
            for column in group:
                del of_column[column][group]
        return taken

    while left:
        columns = next(iter(left))
        cells = math.prod(sizes[column] for column in columns)
        taken = [group for column in columns for group in take(columns, column)]
        while True:
            completed = collections.Counter(
                next(iter(group - columns))
                for column in columns
                for group in of_column[column]
                if len(group - columns) == 1
            )
            fitting = [column for column in completed if cells * sizes[column] <= most]
            if not fitting:
                break
            best = min(fitting, key=lambda column: (-completed[column], sizes[column], column))
            columns, cells = columns | {best}, cells * sizes[best]
            taken += take(columns, best)
        yield tuple(sorted(columns)), taken


_EXACT_DOUBLES = 2**53


@dataclass(frozen=True)
class PackedCodes:
    """Which word holds a column's code, and how it is read from there.

    Args:
        words: For each word the positions of its columns, the first the most significant.
        sizes: Number of codes of each column.

    Attributes:
        strides: What each column's code is multiplied with in its word.
    """

    words: tuple[range, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        strides = []
        for word in reversed(self.words):
            stride = 1
            for column in reversed(word):
                strides.append(stride)
                stride *= self.sizes[column]
        object.__setattr__(self, "strides", tuple(reversed(strides)))

    @classmethod
    def of(cls, domain: Domain) -> Self:
        """One word if the domain's cells fit, else as few as follow from the columns' order."""
        sizes = tuple(column.size for column in domain.columns)
        if domain.n_cells <= MAX_CELLS:
            return cls((range(len(sizes)),), sizes)
        return cls.of_sizes(sizes)

    @classmethod
    def of_sizes(cls, numbers: Sequence[int]) -> Self:
        """As few words as hold columns of these numbers of codes."""
        sizes = tuple(numbers)
        if math.prod(sizes) <= MAX_CELLS:
            return cls((range(len(sizes)),), sizes)
        words, start, cells = [], 0, 1
        for column, size in enumerate(sizes):
            if column > start and cells * size > _EXACT_DOUBLES:
                words.append(range(start, column))
                start, cells = column, 1
            cells *= size
        return cls((*words, range(start, len(sizes))), sizes)

    def cells(self, word: int) -> int:
        """Number of values of a word."""
        first = self.words[word][0]
        return self.sizes[first] * self.strides[first]

    def unpack(self, words: list[NDArray[np.int64]]) -> Iterator[NDArray[Any]]:
        """The codes of each column in order, unsigned [k], from words int64[k]."""
        for columns, packed in zip(self.words, words, strict=True):
            left = packed
            for column in columns:
                codes = left // self.strides[column]
                left = left - codes * self.strides[column]
                yield codes.astype(smallest_unsigned(self.sizes[column]))


MOST_TABLE_CELLS = 10**7
"""Most cells of one table of a group of columns: 80 MB of counts."""
MOST_CELLS = 5 * 10**7
"""Most cells of all tables that are asked for at once: 400 MB of counts."""


class Numbers(Protocol):
    """int64[n, ...], in memory or in a file, of which some of the first axis is used at once."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: slice, /) -> NDArray[Any]: ...

    def __setitem__(self, rows: slice, values: NDArray[Any], /) -> None: ...


Room = Callable[[tuple[int, ...]], Numbers]
"""Gives zeros of a shape, to be filled with what a mechanism draws or what follows from that."""


def in_memory(shape: tuple[int, ...]) -> Numbers:
    """Zeros int64 of a shape."""
    return np.zeros(shape, dtype=np.int64)


class CodedColumns(Protocol):
    """Private records as codes of declared columns, of which only tables are taken.

    Attributes:
        domain: The declared columns; absent records are counted apart.
        n_records: Public number of records, the absent ones included.
        room: Where large arrays go.
    """

    @property
    def domain(self) -> Domain: ...

    @property
    def n_records(self) -> int: ...

    @property
    def room(self) -> Room: ...

    def tables(self, groups: Sequence[tuple[int, ...]]) -> list[NDArray[np.int64]]:
        """Counts of present records by the codes of each group of columns.

        Args:
            groups: Positions in the domain, distinct within a group.

        Returns:
            For each group an array whose shape is the sizes of its columns.

        Raises:
            DomainTooLargeError: As ``check_groups``.
        """
        ...

    def table_at(self, column: int, places: Codes, n: int, group: tuple[int, ...]) -> Counts:
        """Counts of present records by place and the codes of a group of columns.

        Args:
            column: Whose codes have places.
            places: int64[codes], from 0 to n - 1; -1 for a code whose records are left out.
            n: Number of places, at least 1.
            group: Positions of other columns, distinct.

        Returns:
            int64[n, *sizes of the group].
        """
        ...


def check_groups(
    domain: Domain,
    groups: Sequence[tuple[int, ...]],
) -> None:
    """Refuse tables that would not fit into memory, from public sizes only.

    Args:
        domain: The declared columns.
        groups: As for ``CodedColumns.tables``.

    Raises:
        DomainTooLargeError: There are more.
        ValueError: A group is empty, or names a column twice or one that is not there.
    """
    total, sizes = 0, [column.size for column in domain.columns]
    for group in groups:
        if not group or len(set(group)) < len(group) or not set(group) <= set(range(len(sizes))):
            raise ValueError("a group is one or more distinct positions of columns")
        cells = math.prod(sizes[column] for column in group)
        if cells > MOST_TABLE_CELLS:
            named = ", ".join(f"{domain.names[column]} {sizes[column]:,}" for column in group)
            raise DomainTooLargeError(
                f"The table of {len(group)} columns ({named}) has {cells:,} cells, more than "
                f"the {MOST_TABLE_CELLS:,} that may be measured together.",
                where=domain.names[max(group, key=lambda column: sizes[column])],
                next_step="Use fewer cells in the largest of these columns, or do not measure "
                "them together.",
            )
        total += cells
    if total > MOST_CELLS:
        raise DomainTooLargeError(
            f"The {len(groups):,} tables to measure have {total:,} cells, more than the "
            f"{MOST_CELLS:,} that are held at once.",
            next_step="Use fewer cells in the largest columns, or measure fewer tables.",
        )


@dataclass(frozen=True, repr=False, eq=False)
class SelectedColumns:
    """Some of the columns of other coded columns, in another order.

    Args:
        coded: The others.
        names: Of the columns.
    """

    coded: CodedColumns
    names: tuple[str, ...]

    def __repr__(self) -> str:
        return f"SelectedColumns({', '.join(self.names)})"

    @property
    def domain(self) -> Domain:
        """The selected columns."""
        return self.coded.domain.project(self.names)

    @property
    def n_records(self) -> int:
        """Public number of records, the absent ones included."""
        return self.coded.n_records

    def tables(self, groups: Sequence[tuple[int, ...]]) -> list[NDArray[np.int64]]:
        """Counts of present records by the codes of each group of the selected columns."""
        place = self._positions
        return self.coded.tables([tuple(place[column] for column in group) for group in groups])

    def table_at(self, column: int, places: Codes, n: int, group: tuple[int, ...]) -> Counts:
        """Counts of present records by place and the codes of a group of the selected columns."""
        at = self._positions
        return self.coded.table_at(at[column], places, n, tuple(at[each] for each in group))

    @property
    def room(self) -> Room:
        """That of the others."""
        return self.coded.room

    @property
    def _positions(self) -> list[int]:
        return [self.coded.domain.names.index(name) for name in self.names]


_SPARSEST = 16
"""Cells of a domain for each that is listed, up to which adding to all of them beats sorting."""


@dataclass(frozen=True, eq=False, repr=False)
class ContingencyTable:
    """Counts of the occupied cells of a domain.

    Its ``repr`` shows no number, since a table may be private.

    Args:
        domain: The declared domain.
        cells: int64[K], strictly ascending codes of possible cells: a table with a
            record in a structural zero cannot be made, so no mechanism meets one.
        counts: int64[K], each at least 1.

    Raises:
        ValueError: The arrays are not such a table.
        DomainTooLargeError: The domain has more than 2**63 - 1 cells.
    """

    domain: Domain
    cells: Codes
    counts: Codes

    def __post_init__(self) -> None:
        self.domain.check_joint()
        for name in ("cells", "counts"):
            array = np.asarray(getattr(self, name))
            if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
                raise ValueError(f"{name} must be a one-dimensional integer array")
            owned = array.astype(np.int64, copy=False).view()
            owned.flags.writeable = False
            object.__setattr__(self, name, owned)
        if len(self.cells) != len(self.counts):
            raise ValueError("cells and counts differ in length")
        if np.any(self.cells[1:] <= self.cells[:-1]):
            raise ValueError("cells are not strictly ascending")
        if len(self.cells) and not (
            self.cells[0] >= 0 and int(self.cells[-1]) < self.domain.n_cells
        ):
            raise ValueError("a cell is outside the domain")
        if self.domain.zeros and not self.domain.is_possible(self.cells).all():
            raise ValueError("a cell is a structural zero")
        if np.any(self.counts < 1):
            raise ValueError("a count is below 1")
        if len(self.counts) and float(self.counts.sum(dtype=np.float64)) >= 2.0**62:
            raise ValueError("the counts add up to 2**62 or more")

    def __repr__(self) -> str:
        return f"ContingencyTable({', '.join(self.domain.names)})"

    def __reduce__(self) -> NoReturn:
        # Results, caches and pools of processes would carry it out of the process.
        raise TypeError("a table of counts is never pickled: it may be private")

    @property
    def n_records(self) -> int:
        """Sum of the counts, or of units where these share parts of one."""
        return int(self.counts.sum()) // self.domain.parts

    def figures(self) -> dict[str, Codes]:
        """The columns that a release of this table publishes as they are."""
        return {"raw": self.counts}

    @classmethod
    def from_cells(cls, domain: Domain, cells: Codes, counts: Codes) -> ContingencyTable:
        """Table of cells in any order and with repeats, whose counts are added."""
        if len(cells) * _SPARSEST >= domain.n_cells and _are_counts(cells, counts, domain.n_cells):
            sums = np.zeros(domain.n_cells, np.int64)
            np.add.at(sums, cells, counts)
            found = np.flatnonzero(sums)
            return cls(domain, found, sums[found])
        return cls(domain, *sum_by_cell(cells, counts))

    def at(self, cells: Codes) -> Codes:
        """The counts int64[k] of cells int64[k], 0 of those that are not listed."""
        places = np.minimum(np.searchsorted(self.cells, cells), len(self.cells) - 1)
        return np.where(self.cells[places] == cells, self.counts[places], 0)

    def marginal(self, names: Iterable[str]) -> ContingencyTable:
        """The table of some of the columns, in the order given."""
        domain = self.domain.project(names)
        if domain == self.domain:
            return self
        present = self.without_absent()
        codes = {name: self.domain.codes(present.cells, name) for name in domain.names}
        # What is absent is absent whatever the columns.
        absent = np.full(len(self.cells) - len(present.cells), domain.n_cells - 1)
        cells = np.append(domain.encode(codes), absent)
        return ContingencyTable.from_cells(domain, cells, self.counts)

    def without_absent(self) -> ContingencyTable:
        """The table without the absent cell, whose code is the last."""
        if not self.domain.is_absent(self.cells[-1:]).any():
            return self
        return ContingencyTable(self.domain, self.cells[:-1], self.counts[:-1])


def _are_counts(cells: Codes, counts: Codes, n_cells: int) -> bool:
    """Whether cells int64[k] exist and their counts int64[k] are positive."""
    return bool(len(cells) and cells.min() >= 0 and cells.max() < n_cells and counts.min() >= 1)


def sum_by_cell(cells: Codes, counts: Codes) -> tuple[Codes, Codes]:
    """Distinct cells int64[k], ascending, and the sums of their counts int64[k]."""
    order = np.argsort(cells, kind="stable")
    ordered = cells[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=np.int64(-1)))
    if not len(starts):
        return ordered, counts[order]
    return ordered[starts], np.add.reduceat(counts[order], starts)


@dataclass(frozen=True, repr=False)
class Counted:
    """Everything that was counted of a source; private.

    Attributes:
        joint: Contingency tables, of which one has all columns of each product that needs one.
        coded: The codes of the records, if a product needs them.
    """

    joint: tuple[ContingencyTable, ...] = ()
    coded: CodedColumns | None = None

    def __repr__(self) -> str:
        return "Counted()"

    def marginal(self, names: Iterable[str], domain: Domain | None = None) -> ContingencyTable:
        """The contingency table of some columns, in the order given.

        Args:
            names: Of the columns.
            domain: Counted as this one is: by records, units or parts; by default as the first.

        Raises:
            LookupError: They were not counted together.
        """
        wanted = tuple(names)
        for table in self.joint:
            alike = domain is None or domain.counts_as(table.domain)
            if alike and set(wanted) <= set(table.domain.names):
                return table.marginal(wanted)
        raise LookupError("no joint table has these columns")

    def columns(self, names: Iterable[str]) -> CodedColumns:
        """The codes of some columns, in the order given.

        Raises:
            LookupError: They were not kept.
        """
        wanted = tuple(names)
        if self.coded is None or not set(wanted) <= set(self.coded.domain.names):
            raise LookupError("the codes of these columns were not kept")
        return SelectedColumns(self.coded, wanted)
