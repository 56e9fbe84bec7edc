"""Tables of groups of columns from the codes of records, all in one pass over chunks of records.

Small groups are counted together: the table of a few more columns is counted instead, from
which each of them is a sum. A pass over pairs of 40 columns then counts some 130 tables and
not 780. Sums of integers are exact, so a table is the same however it was counted.
"""

from __future__ import annotations

import collections
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.parallel.kernels import compiled_kernel

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
