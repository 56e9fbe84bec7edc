"""One sweep of swaps, compiled.

A move exchanges the values of some columns between two records. Of a table on other columns as
well, a record's cell is the sum of a part from the columns that move and a part from those that
stay, so a move changes at most four cells of each table, and the change of the weighted squared
distance from the targets is known from them. All arithmetic is on 64-bit integers: the result is
the same on every machine.

Compilation takes about a second, once (mechanisms.parallel.kernels).
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mechanisms.parallel.kernels import compiled_kernel

Integers = NDArray[np.int64]
UNIT = 64
"""Differences from a target are multiples of 1/64 of a record."""


def _sweep(  # type: ignore[no-untyped-def] # noqa: ANN202
    codes,  # noqa: ANN001  unsigned[n, d]: the records, changed in place
    order,  # noqa: ANN001  int32[n]: the order in which records meet
    first,  # noqa: ANN001  int: the place in that order to begin at
    visits,  # noqa: ANN001  int: how many places to visit from there, at most n
    shift,  # noqa: ANN001  int: how far apart in that order the records of a pair are
    moved,  # noqa: ANN001  int64[m]: columns whose values are exchanged
    fixed,  # noqa: ANN001  int64[f]: columns that must be equal in both records
    part_columns,  # noqa: ANN001  int64[t, p]: of each table, the columns that move
    part_strides,  # noqa: ANN001  int64[t, p]: their strides, 0 for padding
    rest_columns,  # noqa: ANN001  int64[t, r]: of each table, the columns that stay
    rest_strides,  # noqa: ANN001  int64[t, r]
    n_pairs,  # noqa: ANN001  int: tables of one column that moves and one that stays come first
    offsets,  # noqa: ANN001  int64[t]: where each table begins
    weights,  # noqa: ANN001  int64[t]
    gaps,  # noqa: ANN001  int64[cells]: current count less target, in units of 1/64; changed
    pattern_starts,  # noqa: ANN001  int64[z + 1]: of each impossible box, its columns
    pattern_columns,  # noqa: ANN001  int64[s]
    inside,  # noqa: ANN001  bool[s, most codes]: whether a code lies in the box
    tolerance,  # noqa: ANN001  int: most increase of the distance that is accepted
):
    n = order.shape[0]
    n_tables = offsets.shape[0]
    ones = np.empty(n_tables, np.int64)
    others = np.empty(n_tables, np.int64)
    one_parts = np.empty(n_tables, np.int64)
    other_parts = np.empty(n_tables, np.int64)
    gain = np.int64(0)
    accepted = np.int64(0)
    for step in range(visits):
        place = first + step
        if place >= n:
            place -= n
        second = place + shift
        if second >= n:
            second -= n
        i = order[place]
        j = order[second]
        same = True
        for m in moved:
            if codes[i, m] != codes[j, m]:
                same = False
        if same:
            continue
        for f in fixed:
            if codes[i, f] != codes[j, f]:
                same = True
        if same:
            continue
        change = np.int64(0)
        u, v = np.uintp(i), np.uintp(j)  # unsigned: no index is tried for being negative
        for t in range(n_pairs):
            c = np.uintp(rest_columns[t, 0])
            a = np.int64(codes[u, c])
            b = np.int64(codes[v, c])
            one = offsets[t] + a * rest_strides[t, 0]
            other = offsets[t] + b * rest_strides[t, 0]
            m = np.uintp(part_columns[t, 0])
            p = np.int64(codes[u, m]) * part_strides[t, 0]
            q = np.int64(codes[v, m]) * part_strides[t, 0]
            ones[t] = one
            others[t] = other
            one_parts[t] = p
            other_parts[t] = q
            slope = (
                gaps[np.uintp(one + q)]
                - gaps[np.uintp(one + p)]
                + gaps[np.uintp(other + p)]
                - gaps[np.uintp(other + q)]
            )
            change += weights[t] * (slope + 2 * UNIT) * (a != b and p != q)
        for t in range(n_pairs, n_tables):
            one = offsets[t]
            other = one
            for r in range(rest_columns.shape[1]):
                c = np.uintp(rest_columns[t, r])
                one += codes[u, c] * rest_strides[t, r]
                other += codes[v, c] * rest_strides[t, r]
            p = np.int64(0)
            q = np.int64(0)
            for r in range(part_columns.shape[1]):
                c = np.uintp(part_columns[t, r])
                p += codes[u, c] * part_strides[t, r]
                q += codes[v, c] * part_strides[t, r]
            ones[t] = one
            others[t] = other
            one_parts[t] = p
            other_parts[t] = q
            slope = (
                gaps[np.uintp(one + q)]
                - gaps[np.uintp(one + p)]
                + gaps[np.uintp(other + p)]
                - gaps[np.uintp(other + q)]
            )
            change += weights[t] * (slope + 2 * UNIT) * (one != other and p != q)
        if change >= tolerance:
            continue
        if pattern_columns.shape[0] > 0:
            for m in moved:
                kept = codes[i, m]
                codes[i, m] = codes[j, m]
                codes[j, m] = kept
            impossible = False
            for z in range(pattern_starts.shape[0] - 1):
                i_inside = True
                j_inside = True
                for s in range(pattern_starts[z], pattern_starts[z + 1]):
                    c = pattern_columns[s]
                    i_inside = i_inside and inside[s, codes[i, c]]
                    j_inside = j_inside and inside[s, codes[j, c]]
                if i_inside or j_inside:
                    impossible = True
            if impossible:
                for m in moved:
                    kept = codes[i, m]
                    codes[i, m] = codes[j, m]
                    codes[j, m] = kept
                continue
        else:
            for m in moved:
                kept = codes[i, m]
                codes[i, m] = codes[j, m]
                codes[j, m] = kept
        gain -= change
        accepted += 1
        for t in range(n_tables):
            a = ones[t]
            b = others[t]
            p = one_parts[t]
            q = other_parts[t]
            if a != b and p != q:
                gaps[a + p] -= UNIT
                gaps[a + q] += UNIT
                gaps[b + q] -= UNIT
                gaps[b + p] += UNIT
    return gain, accepted


@functools.cache
def compiled(dtype: str) -> Callable[..., tuple[int, int]]:
    """The sweep for records of an unsigned dtype."""
    import numba
    from numba import types as nt

    vector, matrix = nt.int64[::1], nt.int64[:, ::1]
    signature = nt.UniTuple(nt.int64, 2)(  # type: ignore[no-untyped-call]
        numba.from_dtype(np.dtype(dtype))[:, ::1],
        nt.int32[::1],
        *(nt.int64, nt.int64, nt.int64),
        *(vector, vector, matrix, matrix, matrix, matrix, nt.int64, vector, vector, vector),
        *(vector, vector, nt.boolean[:, ::1]),
        nt.int64,
    )
    found: Callable[..., tuple[int, int]] = compiled_kernel(_sweep, signature)
    return found
