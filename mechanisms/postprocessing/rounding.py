"""Controlled rounding to non-negative integers that keep their sums.

Post-processing of what is already public, so it costs no privacy.

An integer is admissible for a value if it is the value's floor or its ceiling, and
so differs from it by less than 1. All functions ask for sums that are integers
but for rounding; a slack decides what counts as one, and is kept so small that
an admissible rounding exists whenever the check passes: the conditions on a table
are those of a flow with integer bounds, and a flow with integer bounds that is
missed at all is missed by at least 1 (Hoffman's circulation theorem), while the
real table misses its snapped sums by less than 1 in all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

_SLACK, _RELATIVE_SLACK = 1e-6, 1e-12
_MOST = 2**62


def round_to_total(values: ArrayLike, total: int | None) -> NDArray[np.int64]:
    """Round to integers that add up to the total: the largest remainders go up.

    The rounding nearest to the values in every p-norm, p >= 1, among all that add up to
    the total. O(K). Of equal remainders the one that comes first goes up.

    Source: Hamilton's method of apportionment (Balinski and Young 1982).

    Args:
        values: float64[K], each at least 0; their sum is the total to within
            10**-6 + 10**-12 total, and never further from it than 1/2.
        total: An integer from 0 to 2**62; or None for the one nearest to the sum of the
            values, which may then be any number.

    Returns:
        int64[K], each the floor or the ceiling of its value.

    Raises:
        ValueError: The values are not such numbers or do not add up to the total.
    """
    floors, rests = _split(values, "round_to_total", dimensions=1)
    if total is None:
        upwards = round(float(rests.sum()))
    else:
        upwards = _upwards(total, int(floors.sum()), float(rests.sum()), "round_to_total")
    if upwards:
        cut = np.partition(rests, len(rests) - upwards)[len(rests) - upwards]
        above = rests > cut
        floors += above
        floors[np.flatnonzero(rests == cut)[: upwards - int(above.sum())]] += 1
    return floors


def round_systematically(values: ArrayLike, total: int) -> NDArray[np.int64]:
    """Round to integers that add up to the total, and over every run of cells nearly do so.

    The remainders are added up in the order of the cells; a cell goes up where the running sum
    passes a half. So the sum over any run of neighbouring cells changes by at most 1, where
    the largest remainders may all lie in one part of the table: with far more cells than
    records, what is rounded up is spread as the values are. O(K).

    Source: systematic sampling (Madow and Madow 1944, doi 10.1214/aoms/1177731312) from a
    fixed start, the middle.

    Args:
        values: As for ``round_to_total``.
        total: An integer from 0 to 2**62.

    Returns:
        int64[K], each the floor or the ceiling of its value.

    Raises:
        ValueError: The values are not such numbers or do not add up to the total.
    """
    floors, rests = _split(values, "round_systematically", dimensions=1)
    upwards = _upwards(total, int(floors.sum()), float(rests.sum()), "round_systematically")
    running = np.cumsum(rests)
    start = 0.5 + upwards - float(running[-1]) if len(running) else 0.5  # so that it ends right
    passed = np.floor(running + min(max(start, 0.0), 1 - 2**-30)).astype(np.int64)
    return np.asarray(floors + np.diff(passed, prepend=0), dtype=np.int64)


def _upwards(total: int, floors: int, rests: float, name: str) -> int:
    """How many go up to reach a total."""
    if total != int(total) or not 0 <= total <= _MOST:
        raise ValueError(f"{name}: total is {total!r}. Give an integer from 0 to 2**62.")
    upwards = int(total) - floors
    gap = rests - upwards
    if abs(gap) > min(_SLACK + _RELATIVE_SLACK * float(total), 0.5):
        raise ValueError(
            f"{name}: the values add up to the total {total} but for {gap!r}. "
            "Project them onto it first (project_to_simplex)."
        )
    return upwards


def round_table(matrix: ArrayLike, *, any_total: bool = False) -> NDArray[np.int64]:
    """Round a two-way table so that its row, column and grand totals are kept.

    Every cell, every row total and every column total becomes its floor or its
    ceiling (itself where it is an integer), and the grand total, an integer, is
    exact. Among all such tables the result has the least sum of squared changes, to
    within the solver's tolerance of 10**-7 a cell; of equal ones, the one it ends at.

    Source: Cox 1987 ("A constructive procedure for unbiased controlled rounding"),
    whose conditions are those of a transportation problem. Its matrix is totally
    unimodular, since the sets to add up are two laminar families (rows with the
    whole table, and columns), so that the vertex which the simplex method ends at is of
    integers. The sum of squared changes is linear in what goes up: 1 - 2 remainder.

    Args:
        matrix: float64[R, C], each at least 0, whose sum is an integer to within
            10**-6 + 10**-12 of it; up to some 10**5 cells.
        any_total: Also take a sum that is not an integer, and make the grand total the integer
            nearest to it. There is such a table: the totals of the integer tables that keep
            rows and columns are all integers between two, which the real total passes by
            at most the slacks of all rows and columns, less than 1/2.

    Returns:
        int64[R, C].

    Raises:
        ValueError: The matrix is not such a table.
        ArithmeticError: The solver found no admissible table (not known to occur).
    """
    floors, rests = _split(matrix, "round_table", dimensions=2)
    bounds = [_ends(rests, floors, axis) for axis in (1, 0)]
    total, above = (int(end) for end in _ends(rests, floors, None))
    if any_total:
        total = round(float(rests.sum()))
    elif total != above:
        raise ValueError(
            f"round_table: the cells add up to {float(rests.sum() + floors.sum())!r}, which is "
            "no integer. Project them onto an integer total first (project_to_simplex)."
        )
    free = np.flatnonzero(rests)
    if not len(free):
        return floors
    chosen = np.zeros(rests.shape, dtype=np.int64)
    chosen.ravel()[free] = _choose(rests.ravel()[free], free, rests.shape, bounds, total)
    sums = [chosen.sum(axis=axis) for axis in (1, 0)]
    kept = all(np.all((s >= b[0]) & (s <= b[1])) for s, b in zip(sums, bounds, strict=True))
    if not (kept and chosen.sum() == total and chosen.min() >= 0 and chosen.max() <= 1):
        raise ArithmeticError(
            "round_table: the solver's table does not keep the totals. "
            "Report this with the table that was rounded."
        )
    return np.asarray(floors + chosen, dtype=np.int64)


def _choose(
    rests: NDArray[np.float64],
    free: NDArray[np.int64],
    shape: tuple[int, ...],
    bounds: list[tuple[NDArray[np.int64], NDArray[np.int64]]],
    total: int,
) -> NDArray[np.int64]:
    """Which of the free cells go up: int64[F] of 0 and 1, from the linear programme."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, vstack

    n, ones = len(free), np.ones(len(free))
    nodes = (free // shape[1], shape[0] + free % shape[1])
    places = (np.concatenate(nodes), np.tile(np.arange(n), 2))
    sums = csr_array((np.tile(ones, 2), places), shape=(sum(shape), n))
    least, most = (np.concatenate([b[i] for b in bounds]) for i in (0, 1))
    loose = np.flatnonzero(most > least)
    tight = np.flatnonzero(most == least)
    between = sums[loose]
    solution = linprog(
        1 - 2 * rests,
        A_ub=vstack([between, -between]) if len(loose) else None,
        b_ub=np.concatenate([most[loose], -least[loose]]) if len(loose) else None,
        A_eq=vstack([sums[tight], csr_array(ones[None, :])]),
        b_eq=np.append(least[tight], total),
        bounds=(0, 1),
        method="highs-ds",
    )
    if solution.x is None:
        raise ArithmeticError(
            f"round_table: the solver stopped with '{solution.message}'. "
            "Report this with the table that was rounded."
        )
    return np.asarray(np.rint(solution.x), dtype=np.int64)


def _split(
    values: ArrayLike, name: str, *, dimensions: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Floors int64 and remainders float64 in [0, 1), both of the shape of the values."""
    given = np.asarray(values)
    if given.ndim != dimensions or (given.size and given.dtype.kind not in "iuf"):
        raise ValueError(f"{name}: give an array of numbers with {dimensions} dimension(s).")
    reals = np.ascontiguousarray(given, dtype=np.float64)
    fit = (reals >= 0) & (reals < _MOST)  # a NaN does not fit either
    if not fit.all():
        place = np.unravel_index(int(np.argmin(fit)), fit.shape)
        raise ValueError(
            f"{name}: the value at {tuple(int(i) for i in place)} is not from 0 to 2**62. "
            "Project the values onto their total first (project_to_simplex)."
        )
    if float(reals.sum()) > _MOST:
        raise ValueError(f"{name}: the values add up to more than 2**62. Round them in parts.")
    floors = np.floor(reals)
    return floors.astype(np.int64), reals - floors


def _ends(
    rests: NDArray[np.float64], floors: NDArray[np.int64], axis: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Least and most cells that may go up along an axis; equal for an integer sum."""
    sums = rests.sum(axis=axis)
    slack = np.minimum(
        _SLACK + _RELATIVE_SLACK * floors.sum(axis=axis), 0.5 / (sum(rests.shape) + 1)
    )
    near = np.rint(sums)
    whole = np.abs(sums - near) <= slack
    least, most = np.where(whole, near, np.floor(sums)), np.where(whole, near, np.ceil(sums))
    return least.astype(np.int64), most.astype(np.int64)
