"""Records to start from: exact one-way tables, and pairs along a tree nearly so.

The tree is the one of the largest mutual information among the fitted pairs (Chow and Liu 1968,
doi 10.1109/TIT.1968.1054142). Each column is drawn given its parent by a table of integers that
has the margins of both exactly and is otherwise within about one of the fitted table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.parallel.kernels import compiled_kernel
from mechanisms.records.target_table import Floats, Group

Integers = NDArray[np.int64]


def tree(
    n_columns: int, pairs: Mapping[Group, Floats], forced: Iterable[Group] = ()
) -> list[tuple[int, int]]:
    """Edges (parent, child) of a tree of largest mutual information, parents first.

    Args:
        n_columns: All columns; those without a pair hang on column 0.
        pairs: Fitted tables, ascending positions.
        forced: Edges that must be in it; they form no cycle.
    """
    strength = {pair: mutual_information(table) for pair, table in pairs.items()}
    ordered = [*forced, *sorted(strength, key=lambda pair: (-strength[pair], pair))]
    component = list(range(n_columns))
    neighbours: list[list[int]] = [[] for _ in range(n_columns)]
    for a, b in ordered:
        if component[a] != component[b]:
            joined, gone = component[a], component[b]
            component = [joined if c == gone else c for c in component]
            neighbours[a].append(b)
            neighbours[b].append(a)
    edges: list[tuple[int, int]] = []
    seen: set[int] = set()
    for root in range(n_columns):
        waiting = [root] if root not in seen else []
        seen.update(waiting)
        for parent in waiting:
            for child in neighbours[parent]:
                if child not in seen:
                    seen.add(child)
                    waiting.append(child)
                    edges.append((parent, child))
    return edges


def mutual_information(table: Floats) -> float:
    """Of a non-negative table, in nats times its total."""
    total = table.sum()
    if not total:
        return 0.0
    independent = np.multiply.outer(table.sum(axis=1), table.sum(axis=0)) / total
    positive = table > 0
    found = (table[positive] * np.log(table[positive] / independent[positive])).sum()
    return round(float(found), 6)


def integer_table(table: Floats, rows: Integers, columns: Integers) -> Integers:
    """Integers with these margins, near to a table that nearly has them.

    Floors first, scaled down where they pass a margin; then the largest remainders go up as
    long as both margins have room, and what is left is filled in where there is room.
    """
    found = np.floor(table).astype(np.int64)
    for axis, margin in ((1, rows), (0, columns)):
        excess = found.sum(axis=axis) - margin
        for place in np.flatnonzero(excess > 0).tolist():
            line = found[place] if axis == 1 else found[:, place]
            lowered = np.floor(line * (margin[place] / line.sum())).astype(np.int64)
            line[:] = lowered
    row_room, column_room = rows - found.sum(axis=1), columns - found.sum(axis=0)
    rests = (table - found).ravel()
    for cell in np.argsort(-rests, kind="stable").tolist():
        i, j = divmod(cell, found.shape[1])
        if row_room[i] > 0 and column_room[j] > 0 and rests[cell] > 0:
            found[i, j] += 1
            row_room[i] -= 1
            column_room[j] -= 1
    # Where the largest room meets the largest fitted value is as good a place as any.
    for i in np.flatnonzero(row_room).tolist():
        for j in np.argsort(-table[i], kind="stable").tolist():
            step = min(int(row_room[i]), int(column_room[j]))
            found[i, j] += step
            row_room[i] -= step
            column_room[j] -= step
    return found


def start_records(
    one_way: Sequence[Integers],
    edges: Sequence[tuple[int, int]],
    pairs: Mapping[Group, Floats],
    exact: Mapping[Group, Integers],
    dtype: np.dtype[Any],
    rng: np.random.Generator,
) -> NDArray[Any]:
    """Codes unsigned[m, d] with the given one-way tables exactly.

    Args:
        one_way: int64[k] of every column, all of one sum m.
        edges: (parent, child), parents first; a column that is not a child begins a tree.
        pairs: Fitted tables of m records.
        exact: Known tables of pairs; where an edge is one of them it is met exactly.
        dtype: Of the codes.
        rng: Public.
    """
    m = int(one_way[0].sum())
    codes = np.empty((m, len(one_way)), dtype=dtype)
    children = {child for _, child in edges}
    for column, counts in enumerate(one_way):
        if column not in children:
            codes[:, column] = rng.permutation(
                np.repeat(np.arange(len(counts), dtype=dtype), counts)
            )
    for parent, child in edges:
        pair = (min(parent, child), max(parent, child))
        if pair in exact:
            table = exact[pair] if parent < child else exact[pair].T
        else:
            wanted = pairs[pair] if parent < child else pairs[pair].T
            table = integer_table(wanted, one_way[parent], one_way[child])
        # The values of each parent code in random order, which its records take in turn.
        values = np.repeat(np.tile(np.arange(table.shape[1], dtype=dtype), len(table)), table.flat)
        places = np.cumsum(table.sum(axis=1)) - table.sum(axis=1)
        for part in np.split(values, places[1:]):
            rng.shuffle(part)
        _compiled(dtype.name)(codes, parent, child, values, places)
    return codes


def _take_children(  # type: ignore[no-untyped-def] # noqa: ANN202
    codes,  # noqa: ANN001  unsigned[m, d]: the column of the child is written
    parent,  # noqa: ANN001  int
    child,  # noqa: ANN001  int
    values,  # noqa: ANN001  unsigned[m]: of the children, by parent code
    places,  # noqa: ANN001  int64[parents]: where those of each parent begin; changed
):
    for i in range(len(codes)):
        row = codes[i, parent]
        codes[i, child] = values[places[row]]
        places[row] += 1


@functools.cache
def _compiled(dtype: str) -> Callable[..., None]:
    """The kernel for records of an unsigned dtype."""
    import numba
    from numba import types as nt

    records = numba.from_dtype(np.dtype(dtype))[:, ::1]
    children = numba.from_dtype(np.dtype(dtype))[::1]
    signature = nt.void(records, nt.int64, nt.int64, children, nt.int64[::1])
    found: Callable[..., None] = compiled_kernel(_take_children, signature)
    return found
