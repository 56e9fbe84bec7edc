"""Dividing integer tables among children, so that every sum is kept: controlled rounding.

A parent's children are halved again and again. At each halving the parent's table, of integers,
is divided between the two halves, cell by cell, so that both are non-negative integers that add up
to it, and so that each half has the total of its children where those are given. The division
nearest to what is wanted in weighted squares has a closed form but for one number a halving, which
moves all cells until the total is right; it is found by Newton's method on a function that is
increasing and piecewise linear. Then floors, and the largest remainders go up to the total
(Balinski and Young 1982). Sums are exact by construction, whatever the values: there is nothing to
solve that might not converge. Without bounds, the halvings together are the least squares over all
children at once, as sums of independent estimates are on any tree.

What a half is rounded by is taken up by its parts, each as its variance, so errors do not add up
however many children there are. Time and memory are linear in cells.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.places.tree import Places

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_DIGITS = 6  # after which remainders are equal, whatever a processor makes of the last bits
_NEAR = 0.1  # to the total of a row; below 1 the remainders reach it
_STEPS = 200


def divide(
    above: Integers,
    wanted: Floats,
    variances: Floats,
    starts: Places,
    totals: Integers | None = None,
) -> Integers:
    """Integer tables of children that add up to their parents', near what is wanted.

    Args:
        above: int64[parents, cells], at least 0.
        wanted: float64[children, cells], the tables to approach.
        variances: float64[children, cells], above 0: a cell takes of a difference as its variance.
        starts: int64[parents + 1]: the children of parent i are starts[i] to starts[i + 1].
        totals: int64[children], at least 0, which add up to the parents' totals; or None if a
            child's total is whatever its cells add up to.

    Returns:
        int64[children, cells], at least 0: over the children of a parent they add up to its
        table, and over cells to the totals.
    """
    first, last, whole = starts[:-1], starts[1:], above
    divided = np.empty(wanted.shape, dtype=np.int64)
    while True:
        single = last - first == 1
        divided[first[single]] = whole[single]
        first, last, whole = first[~single], last[~single], whole[~single]
        if not len(first):
            return divided
        middle = (first + last) // 2
        left, right = _sums(wanted, first, middle, last)
        loose, other = _sums(variances, first, middle, last)
        share = loose / (loose + other)
        half = _half(
            left + share * (whole - left - right),
            share * other,
            whole,
            None if totals is None else _sums(totals, first, middle, last)[0],
        )
        first, last = (np.stack(ends, axis=1).ravel() for ends in ((first, middle), (middle, last)))
        whole = np.stack([half, whole - half], axis=1).reshape(len(first), -1)


def _sums(
    values: NDArray[Any], first: Places, middle: Places, last: Places
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Sums of the rows from first to middle and from middle to last, all in ascending order."""
    ends = np.stack([first, middle, last], axis=1).ravel()
    sums = np.add.reduceat(values, ends[: len(ends) - (last[-1] == len(values))], axis=0)
    return sums[0::3], sums[1::3]


def _half(wanted: Floats, variances: Floats, most: Integers, totals: Integers | None) -> Integers:
    """Integers from 0 to the most, near what is wanted, whose rows have the totals."""
    if totals is None:
        return np.clip(np.rint(np.round(wanted, _DIGITS)), 0, most).astype(np.int64)
    values = np.round(_shifted(wanted, variances, most, totals), _DIGITS)
    floors = np.floor(values)
    order = np.argsort(floors - values, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(order.shape[1])[None], axis=1)
    upwards = totals - floors.sum(axis=1)
    return np.asarray(floors + (rank < upwards[:, None]), dtype=np.int64)


def _shifted(wanted: Floats, variances: Floats, most: Integers, totals: Integers) -> Floats:
    """What is wanted, moved in proportion to variances and cut at 0 and the most, to the totals."""
    low = np.min(-wanted / variances, axis=1) - 1
    high = np.max((most - wanted) / variances, axis=1) + 1
    shift = np.clip(np.zeros(len(wanted)), low, high)
    for _ in range(_STEPS):
        values = np.clip(wanted + shift[:, None] * variances, 0, most)
        gap = totals - values.sum(axis=1)
        if np.all(np.abs(gap) < _NEAR):
            return values
        low, high = np.where(gap > 0, shift, low), np.where(gap < 0, shift, high)
        slope = np.sum(variances * ((values > 0) & (values < most)), axis=1)
        step = shift + gap / np.where(slope > 0, slope, 1)
        inside = (slope > 0) & (step > low) & (step < high)
        shift = np.where(inside, step, (low + high) / 2)
    raise ArithmeticError(
        "divide: no shift reaches the totals. Check that they are from 0 to what their parents "
        "have, and that no value is a NaN."
    )
