"""One sweep of swaps of one column's values, compiled, where any two records may swap.

It does what ``swap_kernel`` does, to the last bit, in some three fifths of the time: every table
has the column, so what moves is known once for all tables of a pair of records.

A sweep may be screened: where the tables of pairs alone get farther away by more than half of what
larger tables usually make up for, these are not looked at and nothing is swapped. No swap is made
that would not be made otherwise, and few are missed that would gain.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from mechanisms.parallel.kernels import compiled_kernel
from mechanisms.records.swap_kernel import UNIT


def _sweep_column(  # type: ignore[no-untyped-def] # noqa: ANN202
    codes,  # noqa: ANN001  unsigned[n, d]: the records, changed in place
    first,  # noqa: ANN001  int: the record to begin at
    visits,  # noqa: ANN001  int: how many records to visit from there, at most n
    shift,  # noqa: ANN001  int: how far apart the records of a pair are
    column,  # noqa: ANN001  int: whose values are exchanged
    part_strides,  # noqa: ANN001  uint64[t]: of each table, the column's stride
    rest_columns,  # noqa: ANN001  uint64[t, r]: of each table, its other columns, r at least 2
    rest_strides,  # noqa: ANN001  uint64[t, r]: their strides, 0 for padding
    n_pairs,  # noqa: ANN001  int: tables of one other column come first,
    n_small,  # noqa: ANN001  int: all of at most two next
    offsets,  # noqa: ANN001  uint64[t]: where each table begins
    weights,  # noqa: ANN001  int64[t]
    gaps,  # noqa: ANN001  int64[cells]: current count less target, in units of 1/64; changed
    screened,  # noqa: ANN001  bool
):
    # Indices are unsigned: none is tried for being negative.
    n = codes.shape[0]
    n_tables = offsets.shape[0]
    moved = np.uintp(column)
    a_columns, b_columns = rest_columns[:, 0].copy(), rest_columns[:, 1].copy()
    a_strides, b_strides = rest_strides[:, 0].copy(), rest_strides[:, 1].copy()
    one_row = np.empty(codes.shape[1], np.uintp)
    other_row = np.empty(codes.shape[1], np.uintp)
    ones = np.empty(n_tables, np.uintp)
    others = np.empty(n_tables, np.uintp)
    usual = np.int64(0)  # change by larger tables, a moving mean
    gain = np.int64(0)
    accepted = np.int64(0)
    for step in range(visits):
        place = first + step
        if place >= n:
            place -= n
        second = place + shift
        if second >= n:
            second -= n
        i, j = np.uintp(place), np.uintp(second)
        if codes[i, moved] == codes[j, moved]:
            continue
        for c in range(codes.shape[1]):
            one_row[c] = codes[i, c]
            other_row[c] = codes[j, c]
        one_code, other_code = one_row[moved], other_row[moved]
        change = np.int64(0)
        for t in range(n_pairs):
            a = a_columns[t]
            one = offsets[t] + one_row[a] * a_strides[t]
            other = offsets[t] + other_row[a] * a_strides[t]
            p = one_code * part_strides[t]
            q = other_code * part_strides[t]
            ones[t] = one
            others[t] = other
            slope = gaps[one + q] - gaps[one + p] + gaps[other + p] - gaps[other + q]
            change += weights[t] * (slope + 2 * UNIT) * (one != other)
        of_pairs = change
        if screened and usual > 0 and of_pairs > usual // 2:
            continue
        for t in range(n_pairs, n_small):
            a, b = a_columns[t], b_columns[t]
            one = offsets[t] + one_row[a] * a_strides[t] + one_row[b] * b_strides[t]
            other = offsets[t] + other_row[a] * a_strides[t] + other_row[b] * b_strides[t]
            p = one_code * part_strides[t]
            q = other_code * part_strides[t]
            ones[t] = one
            others[t] = other
            slope = gaps[one + q] - gaps[one + p] + gaps[other + p] - gaps[other + q]
            change += weights[t] * (slope + 2 * UNIT) * (one != other)
        for t in range(n_small, n_tables):
            one = offsets[t]
            other = offsets[t]
            for r in range(rest_columns.shape[1]):
                one += one_row[rest_columns[t, r]] * rest_strides[t, r]
                other += other_row[rest_columns[t, r]] * rest_strides[t, r]
            p = one_code * part_strides[t]
            q = other_code * part_strides[t]
            ones[t] = one
            others[t] = other
            slope = gaps[one + q] - gaps[one + p] + gaps[other + p] - gaps[other + q]
            change += weights[t] * (slope + 2 * UNIT) * (one != other)
        if screened:
            rest = abs(change - of_pairs)
            usual = usual + ((rest - usual) >> 6) if usual > 0 else rest
        if change >= 0:
            continue
        kept = codes[i, moved]
        codes[i, moved] = codes[j, moved]
        codes[j, moved] = kept
        gain -= change
        accepted += 1
        for t in range(n_tables):
            one = ones[t]
            other = others[t]
            p = one_code * part_strides[t]
            q = other_code * part_strides[t]
            if one != other:
                gaps[one + p] -= UNIT
                gaps[one + q] += UNIT
                gaps[other + q] -= UNIT
                gaps[other + p] += UNIT
    return gain, accepted


@functools.cache
def compiled_column(dtype: str) -> Callable[..., tuple[int, int]]:
    """The sweep for records of an unsigned dtype."""
    import numba
    from numba import types as nt

    vector, matrix = nt.uint64[::1], nt.uint64[:, ::1]
    signature = nt.UniTuple(nt.int64, 2)(  # type: ignore[no-untyped-call]
        numba.from_dtype(np.dtype(dtype))[:, ::1],
        *(nt.int64, nt.int64, nt.int64, nt.int64),
        *(vector, matrix, matrix, nt.int64, nt.int64),
        *(vector, nt.int64[::1], nt.int64[::1], nt.boolean),
    )
    found: Callable[..., tuple[int, int]] = compiled_kernel(_sweep_column, signature)
    return found
