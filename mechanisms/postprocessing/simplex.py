"""Euclidean projection onto the simplex: non-negative cells with a known sum.

Post-processing of what is already public, so it costs no privacy.

The projection of x onto {z >= 0, sum z = total} is z_i = max(x_i - t, 0), where the threshold t
solves sum max(x_i - t, 0) = total (Held, Wolfe and Crowder 1974, doi 10.1007/BF01580223; Duchi,
Shalev-Shwartz, Singer and Chandra 2008, doi 10.1145/1390156.1390191). The left side at a value r,

    excess(r) = sum over x_i > r of (x_i - r),

falls as r grows, so the active values, those above t, are the ones with
excess(x_i) < total, and a bisection over the sorted values finds the least of
them, r. Then t = r - lift with lift = (total - excess(r)) / (number active) >= 0.

**Rounding.** Nothing is subtracted from a long sum. The excess is built from
non-negative terms only, each step of the bisection adding one block to what is
known, and z_i = (x_i - r) + lift adds two non-negative numbers. NumPy sums a block
of k terms in pairs, in error by at most (25 + log2 k) units of rounding, so the
sum of the result agrees with the total to about 10**-14 of it, whatever the offset
of the values. The condition is checked on every result, to 10**-12 (and to what
denormal numbers can hold, where a cell's share is below 10**-296).
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

_TOLERANCE = 1e-12
_MOST_CELLS = 2**63
_LEAST = 5e-324


@dataclass(frozen=True, eq=False)
class SimplexProjection:
    """The nearest non-negative cells with the given sum.

    Attributes:
        values: float64[K], in the order of the input, each at least 0.
        threshold: t in values = max(input - t, 0), rounded. Where the sum is 0 any
            t from the largest input upwards would do, and this is the largest.
        absent_value: What every cell that is not listed gets, usually 0.
    """

    values: NDArray[np.float64]
    threshold: float
    absent_value: float


def project_to_simplex(
    values: ArrayLike, total: float, *, n_cells: int | None = None, absent: float = 0.0
) -> SimplexProjection:
    """Project onto {z >= 0, sum z = total}, the nearest point in Euclidean distance.

    Exact up to rounding, O(K log K) for K listed cells; the cells that are not
    listed cost nothing, however many. The result depends only on the values, not
    on their order.

    Source: Held, Wolfe and Crowder 1974; Duchi et al. 2008, doi 10.1145/1390156.1390191, figure 1.

    Args:
        values: float64[K], the listed cells, for instance ``DebiasedTable.estimates``.
        total: Sum to reach, at least 0.
        n_cells: Number of all cells, at most 2**63; K if it is not given.
        absent: Value of each of the n_cells - K cells that are not listed, for
            instance ``DebiasedTable.undrawn_estimate``.

    Raises:
        ValueError: A number is not finite, the total is negative, n_cells is below K
            or above 2**63, or there is no cell to hold a positive total.
        ArithmeticError: The result does not add up to the total (not known to occur).
    """
    listed, unlisted = _checked(values, total, n_cells, absent)
    total, absent = float(total), float(absent)
    if total == 0:
        largest = [float(listed.max())] if len(listed) else []
        largest += [absent] if unlisted else []
        return SimplexProjection(np.zeros(len(listed)), max(largest, default=0.0), 0.0)

    first, excess, ordered = _active(listed, total, unlisted, absent)
    n_listed = len(ordered) - first
    least = float(ordered[first]) if n_listed else math.inf
    # The unlisted cells are active if they reach the least active value, or lie
    # above the next one and still within what is left of the total.
    below = float(ordered[first - 1]) if first else -math.inf
    reach = excess + n_listed * (least - absent) if absent < least and n_listed else 0.0
    joined = unlisted > 0 and (absent >= least or (absent > below and reach < total))
    joined = joined or not n_listed
    reference = min(least, absent) if joined else least
    if n_listed:
        excess += n_listed * (least - reference)
    if joined:
        excess += unlisted * (absent - reference)
    active = n_listed + (unlisted if joined else 0)
    lift = max(total - excess, 0.0) / active

    with np.errstate(over="ignore"):
        result = listed - reference
    result += lift
    result[listed < least] = 0.0
    absent_value = (absent - reference) + lift if joined else 0.0
    gap = abs(float(result.sum()) + unlisted * absent_value - total)
    if not gap <= _TOLERANCE * total + _LEAST * active:
        raise ArithmeticError(
            f"project_to_simplex: the result misses the total {total!r} by {gap!r}. "
            "Report this with the values that were projected."
        )
    return SimplexProjection(result, reference - lift, absent_value)


def _active(
    listed: NDArray[np.float64], total: float, unlisted: int, absent: float
) -> tuple[int, float, NDArray[np.float64]]:
    """Where the active listed values begin, their excess over the least, and all sorted."""
    ordered = np.sort(listed)
    lower, first = 0, len(ordered)
    least, excess = math.inf, 0.0
    with np.errstate(over="ignore"):
        while lower < first:
            middle = (lower + first) // 2
            value = float(ordered[middle])
            found = excess + float((ordered[middle:first] - value).sum())
            if first < len(ordered):
                found += (len(ordered) - first) * (least - value)
            others = unlisted * (absent - value) if absent > value and unlisted else 0.0
            if found + others < total:
                first, least, excess = middle, value, found
            else:
                lower = middle + 1
    if first < len(ordered):  # equal values share one fate, however their excess was rounded
        first = int(np.searchsorted(ordered, least))
    return first, excess, ordered


def _checked(
    values: ArrayLike, total: float, n_cells: int | None, absent: float
) -> tuple[NDArray[np.float64], int]:
    """The listed values as float64[K] and the number of cells that are not listed."""
    given = np.asarray(values)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iuf"):
        raise ValueError("project_to_simplex: values must be a one-dimensional array of numbers.")
    listed = given.astype(np.float64, copy=False)
    finite = np.isfinite(listed)
    if not finite.all():
        raise ValueError(
            f"project_to_simplex: values[{int(np.argmin(finite))}] is not finite. "
            "Drop or fix the cell first."
        )
    if not math.isfinite(absent):
        raise ValueError(f"project_to_simplex: absent is {absent!r}. Give a finite number.")
    if not (math.isfinite(total) and total >= 0):
        raise ValueError(f"project_to_simplex: total is {total!r}. Give a finite total >= 0.")
    cells = len(listed) if n_cells is None else operator.index(n_cells)
    if not len(listed) <= cells <= _MOST_CELLS:
        raise ValueError(
            f"project_to_simplex: n_cells is {cells} with {len(listed)} cells listed. "
            "Give the number of all cells, at least as many and at most 2**63."
        )
    if cells == 0 and total > 0:
        raise ValueError(
            f"project_to_simplex: no cell can hold the total {total!r}. "
            "List a cell, or give n_cells."
        )
    return listed, cells - len(listed)
