"""Largest squared distance of the functions of two records, bounded by branch and bound.

The proof of statpress.mechanisms.estimates.moment_designs: enclosures of polynomials in balls, sums
of products of them in exact integers, rounded outwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from flint import arb, arb_poly
from numpy.typing import NDArray

from statpress.mechanisms.estimates.moment_designs import (
    MomentDesign,
    Polynomial,
    Product,
    Rectangle,
)

_FIRST, _DEEPEST, _MOST_PAIRS = 3, 14, 200_000
_FINE, _COARSE = 28, 22  # bits of enclosures of polynomials, and of functions

Integers = NDArray[np.int64]
Ends = tuple[Fraction, Fraction]


class Enclosures:
    """Enclosures of polynomials on the intervals of a repeated bisection, in units 2^-28."""

    def __init__(self) -> None:
        self.known: dict[tuple[Polynomial, Ends, int, int], tuple[int, int]] = {}

    def __call__(
        self, polynomial: Polynomial, ends: Ends, level: int, places: Integers
    ) -> Integers:
        """int64[2, k] on the intervals at these places."""
        needed, back = np.unique(places, return_inverse=True)
        found = []
        for place in needed.tolist():
            key = polynomial, ends, level, place
            if key not in self.known:
                width = (ends[1] - ends[0]) / 2**level
                low = ends[0] + width * place
                self.known[key] = enclosure(polynomial, low, low + width)
            found.append(self.known[key])
        return np.array(found, np.int64)[back].T


def enclosure(polynomial: Polynomial, low: Fraction, high: Fraction) -> tuple[int, int]:
    """Integers in units 2^-28 between which the polynomial lies from low to high."""
    p = arb_poly([_ball(c) for c in polynomial])
    middle, reach = _ball((low + high) / 2), _ball((high - low) / 2)
    slope = p.derivative()(middle + reach * arb(0, 1))
    if slope >= 0 or slope <= 0:
        ends = [p(_ball(low)), p(_ball(high))]
        found = ends[0].union(ends[1])
    else:
        found = p(middle) + slope * reach * arb(0, 1)
    unit = arb(2) ** _FINE
    return (
        int((found * unit).lower().floor().unique_fmpz()),
        int((found * unit).upper().ceil().unique_fmpz()),
    )


def is_proven(design: MomentDesign, claim: Fraction) -> bool:
    """Whether no two records' functions are proven to be further apart, squared, than this."""
    limit, enclosures = int(claim * 4**_COARSE), Enclosures()
    support, level = design.support, _FIRST
    rectangles = np.concatenate(
        [
            [(k, i, j) for i in _all(piece.u, level) for j in _all(piece.v, level)]
            for k, piece in enumerate(support)
        ]
    )
    one, two = (rectangles[each] for each in np.triu_indices(len(rectangles)))
    while len(one) and level <= _DEEPEST and len(one) < _MOST_PAIRS:
        both, back = np.unique(np.concatenate([one, two]), axis=0, return_inverse=True)
        low, high = _functions(design, support, both, level, enclosures)
        a, b = back.ravel()[: len(one)], back.ravel()[len(one) :]
        most, least = np.zeros((2, len(one)), np.int64)
        for lower, upper in zip(low, high, strict=True):
            up, down = upper[a] - lower[b], upper[b] - lower[a]
            most += np.maximum(up, down) ** 2
            least += np.maximum(0, -np.minimum(up, down)) ** 2
        if np.any(least > limit):  # refuted
            return False
        left = most > limit
        one, two = _cut(support, one[left], two[left])
        level += 1
    return not len(one)


def _all(ends: Ends, level: int) -> range:
    return range(2**level if ends[0] < ends[1] else 1)


def _functions(
    design: MomentDesign,
    support: Sequence[Rectangle],
    rectangles: Integers,
    level: int,
    enclosures: Enclosures,
) -> tuple[Integers, Integers]:
    """Enclosures int64[m, k] of all functions on the rectangles, in units 2^-22."""
    low = np.zeros((len(design.functions), len(rectangles)), np.int64)
    high = np.zeros_like(low)
    for k, piece in enumerate(support):
        there = np.flatnonzero(rectangles[:, 0] == k)
        if not len(there):
            continue
        for row, products in enumerate(design.functions):
            for product in products:
                ends = _product(product, piece, rectangles[there], level, enclosures)
                low[row, there] += ends.min(axis=0) >> (2 * _FINE - _COARSE)
                high[row, there] -= (-ends.max(axis=0)) >> (2 * _FINE - _COARSE)
    return low, high


def _product(
    product: Product, piece: Rectangle, rectangles: Integers, level: int, enclosures: Enclosures
) -> Integers:
    """int64[4, k] in units 2^-56; all corners of a product of two intervals."""
    weighted = tuple(product.weight * c for c in product.in_u)
    a = enclosures(weighted, piece.u, level, rectangles[:, 1])
    b = enclosures(product.in_v, piece.v, level, rectangles[:, 2])
    assert np.abs(a).max() * np.abs(b).max() < 2**62
    return np.stack([a[i] * b[j] for i in (0, 1) for j in (0, 1)])


def _cut(support: Sequence[Rectangle], one: Integers, two: Integers) -> tuple[Integers, Integers]:
    """Every pair of quarters of pairs of rectangles; points are not cut."""
    is_line = np.array([[u[0] < u[1], v[0] < v[1]] for u, v in support])
    halves = (np.arange(16)[:, None] >> np.arange(4)) & 1
    pairs = np.stack([one, two], axis=1)[:, None].repeat(16, axis=1)
    pairs[..., 1:] = 2 * pairs[..., 1:] + halves.reshape(16, 2, 2)
    allowed = is_line[pairs[..., 0]]  # [pairs, 16, 2, 2]
    fits = np.all(allowed | (halves.reshape(1, 16, 2, 2) == 0), axis=(2, 3))
    pairs = np.where(np.repeat(fits[..., None, None], 2, axis=2), pairs, 0)
    pairs[..., 1:][~np.broadcast_to(allowed, pairs[..., 1:].shape)] = 0
    found = pairs[fits]
    return found[:, 0], found[:, 1]


def _ball(value: Fraction) -> arb:
    return arb(value.numerator) / value.denominator
