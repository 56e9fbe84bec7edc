"""Tables with given margins: scaled to each in turn, the nearest not negative, or of integers.

Scaling is iterative proportional fitting (Deming and Stephan 1940, doi
10.1214/aoms/1177731829); the limit is the table nearest to the start in Kullback-Leibler divergence
(Csiszar 1975, doi 10.1214/aop/1176996454).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np

from statpress.mechanisms.marginals.target_tables import Booleans, Floats, Integers
from statpress.mechanisms.parallel import compiled_kernel

FLOOR = 1e-4
"""Of the independent table: what an empty cell is filled with where it has to be filled."""
_TOLERANCE, _MISSED = 1e-7, 1e-4


def fit_pair(
    table: Floats, rows: Floats, columns: Floats, possible: Booleans, rounds: int = 200
) -> Floats:
    """The two-way table nearest to a start that has these margins.

    Where the cells of the start cannot have them, all possible ones are filled a little.
    """
    total = rows.sum()
    if not total:
        return np.zeros_like(table)
    least = FLOOR * np.multiply.outer(rows, columns) / total
    for start in (np.maximum(table, 0.0), np.maximum(table, least)):
        fitted: Floats = start * possible
        for _ in range(rounds):
            fitted *= _ratio(columns, fitted.sum(axis=0))
            sums = fitted.sum(axis=1)
            fitted *= _ratio(rows, sums)[:, None]
            if np.abs(sums - rows).sum() <= _TOLERANCE * total:
                return fitted
    return fitted


def integer_table(table: Floats, rows: Integers, columns: Integers) -> Integers:
    """Integers with these margins, near to a table that nearly has them.

    Floors first, scaled down where they pass a margin; then the largest remainders go up as
    long as both margins have room, and what is left is filled in where there is room.
    """
    whole = np.floor(table).astype(np.int64)
    for axis, margin in ((1, rows), (0, columns)):
        excess = whole.sum(axis=axis) - margin
        for place in np.flatnonzero(excess > 0).tolist():
            line = whole[place] if axis == 1 else whole[:, place]
            lowered = np.floor(line * (margin[place] / line.sum())).astype(np.int64)
            line[:] = lowered
    row_room, column_room = rows - whole.sum(axis=1), columns - whole.sum(axis=0)
    rests = (table - whole).ravel()
    for cell in np.argsort(-rests, kind="stable").tolist():
        i, j = divmod(cell, whole.shape[1])
        if row_room[i] > 0 and column_room[j] > 0 and rests[cell] > 0:
            whole[i, j] += 1
            row_room[i] -= 1
            column_room[j] -= 1
    # Where the largest room meets the largest fitted value is as good a place as any.
    for i in np.flatnonzero(row_room).tolist():
        for j in np.argsort(-table[i], kind="stable").tolist():
            step = min(int(row_room[i]), int(column_room[j]))
            whole[i, j] += step
            row_room[i] -= step
            column_room[j] -= step
    return whole


def fit_margins(
    table: Floats, margins: Mapping[tuple[int, ...], Floats], rounds: int = 30
) -> Floats:
    """The table nearest to a start that has the given margins."""
    fitted = np.array(table, order="C")
    if [*margins] == [(0, 1), (0, 2), (1, 2)] and fitted.ndim == 3:
        _compiled()(fitted, *map(np.ascontiguousarray, margins.values()), rounds, _MISSED)
        return fitted
    for _ in range(rounds):
        missed = 0.0
        for axes, wanted in margins.items():
            others = tuple(axis for axis in range(fitted.ndim) if axis not in axes)
            sums = fitted.sum(axis=others)
            missed += float(np.abs(sums - wanted).sum())
            shape = [fitted.shape[axis] if axis in axes else 1 for axis in range(fitted.ndim)]
            fitted *= _ratio(wanted, sums).reshape(shape)
        if missed <= _MISSED * float(fitted.sum()):
            break
    return fitted


def _ratio(wanted: Floats, sums: Floats) -> Floats:
    """Wanted / found, 0 where nothing is found."""
    return np.divide(wanted, sums, out=np.zeros(sums.shape), where=sums > 0)


def _fit_three(  # type: ignore[no-untyped-def] # noqa: ANN202
    table,  # noqa: ANN001  float64[a, b, c]: fitted in place
    first,  # noqa: ANN001  float64[a, b]
    second,  # noqa: ANN001  float64[a, c]
    third,  # noqa: ANN001  float64[b, c]
    rounds,  # noqa: ANN001  int
    tolerance,  # noqa: ANN001  float: share of the total that the margins may miss
):
    """What ``fit_margins`` does for three columns, of which a release has hundreds."""
    a, b, c = table.shape
    of_rows, of_planes = np.empty(c), np.empty((b, c))
    for _ in range(rounds):
        missed = 0.0
        of_planes[:] = 0.0
        for i in range(a):
            of_rows[:] = 0.0
            for j in range(b):
                found = 0.0
                for k in range(c):
                    found += table[i, j, k]
                missed += abs(found - first[i, j])
                ratio = first[i, j] / found if found > 0 else 0.0
                for k in range(c):
                    table[i, j, k] *= ratio
                    of_rows[k] += table[i, j, k]
            for k in range(c):
                missed += abs(of_rows[k] - second[i, k])
                of_rows[k] = second[i, k] / of_rows[k] if of_rows[k] > 0 else 0.0
            for j in range(b):
                for k in range(c):
                    table[i, j, k] *= of_rows[k]
                    of_planes[j, k] += table[i, j, k]
        total = 0.0
        for j in range(b):
            for k in range(c):
                missed += abs(of_planes[j, k] - third[j, k])
                of_planes[j, k] = third[j, k] / of_planes[j, k] if of_planes[j, k] > 0 else 0.0
        for i in range(a):
            for j in range(b):
                for k in range(c):
                    table[i, j, k] *= of_planes[j, k]
                    total += table[i, j, k]
        if missed <= tolerance * total:
            break


@functools.cache
def _compiled() -> Callable[..., None]:
    from numba import types as nt

    flat, cube = nt.float64[:, ::1], nt.float64[:, :, ::1]
    signature = nt.void(cube, flat, flat, flat, nt.int64, nt.float64)
    kernel: Callable[..., None] = compiled_kernel(_fit_three, signature)
    return kernel


_PROJECTED, _MOST_ROUNDS = 1e-4, 60
_SOFT, _STEP, _NEAR = 0.02, 0.7, 0.01


def with_margins(
    means: Floats,
    variances: Floats,
    rows: Floats,
    columns: Floats,
    inside: Booleans,
    trends: tuple[Floats, Floats] | None = None,
) -> Floats:
    """The nearest non-negative table with these margins, 0 outside; nearly, where none has them.

    Minimises sum (T - means)^2 / variances. T = max(means - variances (u_i + v_j), 0): the
    multipliers of the rows and of the columns in turn, each set exactly.

    Noise that is cut off at 0 in the corners of a table weakens its trend, by a fifth where noise
    is large. So sums of T along ``trends`` are kept too, those of means: as penalties that count
    ``1 / _SOFT`` times as much as the cells, since they may be beyond what a table can have.

    Args:
        means: float64[k_a, k_b], in records.
        variances: Of the cells.
        rows: Sums of rows.
        columns: Sums of columns.
        inside: The cells that may be positive.
        trends: float64[m_a, k_a] and float64[m_b, k_b]: weights of codes; sums along every row of
            the one and of the other are kept.
    """
    weights = np.where(inside, np.maximum(variances, 1e-9 * variances.max()), 0.0)
    start = np.where(inside, means, 0.0)
    of_columns = np.zeros(len(columns))
    leant = start
    if trends is not None:
        one, other = trends
        wanted = one @ means @ other.T
        scale = np.maximum(one**2 @ weights @ (other**2).T, 1e-300)
        of_trends = np.zeros(wanted.shape)
    for _ in range(_MOST_ROUNDS):
        of_rows = _multipliers(leant - weights * of_columns, weights, inside, rows)
        left = leant - weights * of_rows[:, None]
        of_columns = _multipliers(left.T, weights.T, inside.T, columns)
        table: Floats = np.maximum(left - weights * of_columns, 0.0)
        near = np.abs(table.sum(axis=1) - rows).sum() <= _PROJECTED * rows.sum()
        if trends is not None:
            missed = (one @ table @ other.T - wanted) / scale - _SOFT * of_trends
            of_trends += _STEP * missed
            leant = start - weights * (one.T @ of_trends @ other)
            near &= bool(np.abs(missed * scale).sum() <= _NEAR * np.abs(wanted).sum())
        if near:
            break
    return table


def _multipliers(start: Floats, weights: Floats, inside: Booleans, sums: Floats) -> Floats:
    """For every row the u at which max(start - weights u, 0) adds up to its sum."""
    ends = np.divide(start, weights, out=np.full(start.shape, -np.inf), where=inside)
    row, order = np.arange(len(start)), np.argsort(-ends, axis=1, kind="stable")
    sorted_to = (row[:, None], order)
    totals = start[sorted_to].cumsum(axis=1) - sums[:, None]
    heavy = weights[sorted_to].cumsum(axis=1)
    tried = np.divide(totals, heavy, out=np.full(start.shape, np.inf), where=heavy > 0)
    reached = (tried < ends[sorted_to]).sum(axis=1)
    found = tried[row, np.maximum(reached, 1) - 1]
    multipliers: Floats = np.where(inside.any(axis=1), found, 0.0)
    return multipliers
