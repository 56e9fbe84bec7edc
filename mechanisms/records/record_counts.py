"""Tables of records by groups of their columns, all in one pass over the records, compiled."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.parallel.kernels import compiled_kernel
from mechanisms.parallel.threads import in_threads, threads
from mechanisms.records.target_table import Group, Integers

_BLOCK = 1 << 10  # records whose codes stay near while table after table is counted
_LEAST = 1 << 18  # records for which a thread is worth its copy of the tables
_MOST_EACH = 1 << 21  # cells of that copy


def counts_of(
    codes: NDArray[Any], groups: Sequence[Group], shapes: Sequence[tuple[int, ...]]
) -> list[Integers]:
    """The counts of records by their codes of each group.

    Args:
        codes: unsigned[n, d], C-contiguous.
        groups: Positions of columns.
        shapes: Of each group the sizes of its columns.

    Returns:
        For each group int64[cells], with the code of the last column running fastest.
    """
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
    return np.split(total, offsets[1:-1])


def tables_of(
    codes: NDArray[Any], shapes: Mapping[Group, tuple[int, ...]]
) -> dict[Group, Integers]:
    """The tables of groups; a pair that lies in a larger group is a sum over its table.

    Args:
        codes: unsigned[n, d], C-contiguous.
        shapes: Of each group, positions of columns in order, the sizes of its columns.
    """
    larger = {
        pair: group
        for group in shapes
        if len(group) > 2
        for pair in itertools.combinations(group, 2)
        if pair in shapes
    }
    apart = [group for group in shapes if group not in larger]
    tables = counts_of(codes, apart, [shapes[group] for group in apart])
    found = {g: table.reshape(shapes[g]) for g, table in zip(apart, tables, strict=True)}
    for pair, group in larger.items():
        others = tuple(axis for axis, column in enumerate(group) if column not in pair)
        found[pair] = found[group].sum(axis=others)
    return found


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
    found: Callable[..., None] = compiled_kernel(_count, signature)
    return found
