"""Iterated Bernstein polynomials in one to four variables; needs only NumPy.

Source: Aldà and Rubinstein, "The Bernstein Mechanism" (2017, arXiv 1507.04499), Definitions 6 to
9; Micchelli (1973). A function f on [0, 1]^d is known by its values on the lattice {0, 1/k, ..,
1}^d. The Bernstein operator is

    (B f)(y) = sum over v of f(v/k) b_v(y),  b_v(y) = C(k, v) y^v (1 - y)^(k - v)

in each variable, and the iterated operator of order h is I - (I - B)^h in each variable. With
M[j, v] = b_v(j/k), the values of b at the lattice, it is the plain operator of the
coefficients S c, S = sum of (I - M)^i over i < h (Definition 8 with the powers collected), so

    f(y) ~ sum over v of b_v1(y1) .. b_vd(yd) (S x .. x S c)[v].

**Rounding.** The eigenvalues of M lie in (0, 1], so the powers of I - M do not grow; there are
no binomial coefficients of alternating sign, as in Definition 8. The basis is built from the
nearer end of [0, 1] by multiplications with positive numbers only.

**Memory.** Query points are taken in batches and contracted one variable at a time: beside
the (k + 1)^d coefficients there are never more than a fixed number of values at once.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

MOST_DIMENSIONS = 4
MOST_DEGREE = 1000
"""Beyond it the largest binomial coefficient leaves the range of doubles."""

_BATCH_VALUES = 1 << 18  # of one intermediate array, 2 MiB


def basis(degree: int, points: Floats) -> Floats:
    """Bernstein basis b_v(y) = C(k, v) y^v (1 - y)^(k - v): float64[k + 1, m].

    It is not negative, and the columns add up to 1.
    """
    near = np.minimum(points, 1 - points)
    odds = near / (1 - near)
    values = np.empty((degree + 1, len(points)))
    np.power(1 - near, degree, out=values[0])
    for v in range(degree):
        np.multiply(values[v], odds, out=values[v + 1])
        values[v + 1] *= (degree - v) / (v + 1)
    flipped = np.flatnonzero(points > 0.5)
    if len(flipped) == len(points):
        return values[::-1]
    if len(flipped):
        values[:, flipped] = values[::-1, flipped]
    return values


def iterate(values: Floats, order: int) -> Floats:
    """Coefficients whose plain Bernstein polynomial is the iterated one of these values.

    Both are float64[(k + 1,) * d]; S is multiplied along every axis.
    """
    matrix = iteration_matrix(values.shape[0] - 1, order)
    for _ in range(values.ndim):  # each product moves the axis it contracts to the end
        values = np.tensordot(values, matrix, axes=(0, 1))
    return values


def iteration_matrix(degree: int, order: int) -> Floats:
    """S = sum of (I - M)^i over i < h: float64[k + 1, k + 1], not writeable."""
    return _iterated(degree, order)[0]


@functools.lru_cache(maxsize=32)
def _iterated(degree: int, order: int) -> tuple[Floats, Floats]:
    """S and (I - M)^h, from those of h / 2."""
    one = np.eye(degree + 1)
    step = one - basis(degree, lattice(degree)).T
    if order == 1:
        total, power = one, step
    else:
        total, power = _iterated(degree, order // 2)
        total, power = total + power @ total, power @ power
        if order % 2:
            total, power = one + step @ total, step @ power
    total.flags.writeable = power.flags.writeable = False
    return total, power


def lattice(degree: int) -> Floats:
    """The points 0, 1/k, .., 1: float64[k + 1]."""
    return np.arange(degree + 1) / degree


def iterated_basis(degree: int, order: int, points: Floats) -> Floats:
    """The basis of the iterated operator in one variable: float64[k + 1, m], S^T b(y).

    The columns add up to 1; from order 2 on some entries are negative.
    """
    return np.asarray(iteration_matrix(degree, order).T @ basis(degree, points))


@dataclass(frozen=True, eq=False)
class BernsteinFunction:
    """A function on a box, by its values on a lattice; callable at any point of the box.

    Attributes:
        values: float64[(k + 1,) * d], at the lattice; the first axis is the first variable.
        order: h of the iterated operator.
        lower: d numbers, the lower ends of the box.
        upper: d numbers, the upper ends.
    """

    values: Floats
    order: int
    lower: tuple[float, ...]
    upper: tuple[float, ...]

    def __post_init__(self) -> None:
        dimensions, sides = np.ndim(self.values), set(np.shape(self.values))
        if not 1 <= dimensions <= MOST_DIMENSIONS or len(sides) != 1:
            raise ValueError(f"values must be (k + 1,) * d with d from 1 to {MOST_DIMENSIONS}")
        if not 2 <= sides.pop() <= MOST_DEGREE + 1 or self.order < 1:
            raise ValueError(f"k must be from 1 to {MOST_DEGREE} and the order at least 1")
        if not len(self.lower) == len(self.upper) == dimensions:
            raise ValueError("lower and upper must have one number for each variable")
        if not all(low < high for low, high in zip(self.lower, self.upper, strict=True)):
            raise ValueError("lower must be below upper")

    def __call__(self, points: ArrayLike) -> Floats:
        """Values at points of the box.

        Args:
            points: float64[m, d]; for one variable float64[m] will do.

        Returns:
            float64[m].

        Raises:
            ValueError: A point is outside the box.
        """
        queries = np.asarray(points, np.float64)
        if queries.ndim == 1 and len(self.lower) == 1:
            queries = queries[:, None]
        low, high = np.asarray(self.lower), np.asarray(self.upper)
        if not np.all((queries >= low) & (queries <= high)):
            raise ValueError("a query point is outside the declared bounds")
        return evaluate(self.values, (queries - low) / (high - low), self.order)


def evaluate(
    values: Floats, points: ArrayLike, order: int = 1, *, batch_values: int = _BATCH_VALUES
) -> Floats:
    """The iterated Bernstein polynomial float64[m] at points float64[m, d] of the unit cube.

    Raises:
        ValueError: The shapes do not agree, or a point is outside [0, 1].
    """
    queries = np.asarray(points, np.float64)
    dimensions, side = values.ndim, values.shape[0]
    if queries.ndim != 2 or queries.shape[1] != dimensions:
        raise ValueError(f"points must have the shape (m, {dimensions})")
    if not np.all((queries >= 0) & (queries <= 1)):
        raise ValueError("a query point is outside [0, 1]")
    coefficients = iterate(np.asarray(values, np.float64), order).reshape(side, -1)
    batch = max(1, batch_values // max(side, coefficients.shape[1]))
    results = np.empty(len(queries))
    for start in range(0, len(queries), batch):
        part = queries[start : start + batch]
        left = basis(side - 1, part[:, 0]).T @ coefficients
        for axis in range(1, dimensions):
            weights = basis(side - 1, part[:, axis]).T
            left = np.einsum("mv,mvr->mr", weights, left.reshape(len(part), side, -1))
        results[start : start + batch] = left[:, 0]
    return results
