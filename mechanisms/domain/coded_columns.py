"""Private records as codes of declared columns, of which only tables are taken.

The joint table of many columns has more cells than an int64 can name, and nearly as many
occupied ones as there are records. Mechanisms that measure low-order marginals take coded columns
instead of a contingency table.

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
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

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
            are held in memory (mechanisms.domain.coded_columns.check_groups).
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
    sizes: Sequence[int], groups: Sequence[tuple[int, ...]]
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
            fitting = [column for column in completed if cells * sizes[column] <= _SHARED]
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


class CodedColumns(Protocol):
    """Private records as codes of declared columns, of which only tables are taken.

    Attributes:
        domain: The declared columns; absent records are counted apart.
        n_records: Public number of records, the absent ones included.
    """

    @property
    def domain(self) -> Domain: ...

    @property
    def n_records(self) -> int: ...

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
        place = [self.coded.domain.names.index(name) for name in self.names]
        return self.coded.tables([tuple(place[column] for column in group) for group in groups])
