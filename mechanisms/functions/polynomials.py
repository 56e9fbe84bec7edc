"""Iterated Bernstein polynomials in one to four variables, and functions released as such.

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

**A released function** as anyone may evaluate it: coefficients, and the shape imposed on it.

Free post-processing of the noisy lattice (mechanisms.functions.lattice_release). With t the point
in the unit cube and c the coefficients,

    f(y) = factor * max(floor, sum over v of c[v] b_v1(t_1) .. b_vl(t_l)).

``floor`` is 0 for what cannot be negative. ``factor`` puts a density into the units of its
columns, and divides by the integral over the declared range where that is asked for. A monotone
or unimodal function is the least-squares fit to the polynomial on a fine grid, linear in between,
in the place of the sum.

Clipping and the monotone fit leave a function of their shape as it is, and bring no two functions
further apart, neither in the largest difference nor in the sum of squares. So if the true function
has the shape, neither error grows.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

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


def evaluate_grid(values: Floats, order: int, axes: Sequence[Floats]) -> Floats:
    """The iterated polynomial on a product of axes: float64[m_1, .., m_d].

    There is one axis float64[m_i] in [0, 1] for each variable.
    """
    grid = iterate(values, order)
    for points in axes:  # each product moves the axis it contracts to the end
        grid = np.tensordot(grid, basis(values.shape[0] - 1, points), axes=(0, 0))
    return grid


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


def evaluate(values: Floats, points: ArrayLike, order: int = 1) -> Floats:
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
    batch = max(1, _BATCH_VALUES // max(side, coefficients.shape[1]))
    results = np.empty(len(queries))
    for start in range(0, len(queries), batch):
        part = queries[start : start + batch]
        left = basis(side - 1, part[:, 0]).T @ coefficients
        for axis in range(1, dimensions):
            weights = basis(side - 1, part[:, axis]).T
            left = np.einsum("mv,mvr->mr", weights, left.reshape(len(part), side, -1))
        results[start : start + batch] = left[:, 0]
    return results


def clip_below(values: ArrayLike, least: float = 0.0) -> Floats:
    """Values below ``least`` become ``least``."""
    return np.maximum(np.asarray(values, np.float64), least)


def normalise_density(values: ArrayLike, axes: Sequence[Floats]) -> Floats:
    """Clip to >= 0 and divide by the integral; uniform where nothing is above 0.

    Values float64[m_1, .., m_d] on the product of ascending axes; integrals are by the trapezoidal
    rule.

    Raises:
        ValueError: The shapes do not agree or an axis does not ascend.
    """
    density = clip_below(values)
    if density.shape != tuple(len(axis) for axis in axes) or min(density.shape) < 2:
        raise ValueError("values must have the axes' lengths, at least 2 each")
    if any(np.any(np.diff(axis) <= 0) for axis in axes):
        raise ValueError("an axis is not ascending")
    if not density.any():
        density = np.ones_like(density)
    density = density / density.max()  # so that no product is lost below the least double
    total = density
    for axis in reversed(axes):
        total = np.asarray(np.trapezoid(total, axis, axis=-1))
    return np.asarray(density / total)


def monotone(values: ArrayLike, *, increasing: bool = True) -> Floats:
    """The nearest monotone values in the sum of squares: float64[m] to float64[m]."""
    from scipy.optimize import isotonic_regression

    fit = isotonic_regression(np.asarray(values, np.float64), increasing=increasing)
    return np.asarray(fit.x)


def unimodal(values: ArrayLike) -> Floats:
    """The nearest values that rise and then fall, in the sum of squares: float64[m].

    Every place of the mode is tried: the values up to it are fitted rising and the rest
    falling, and any two such pieces are unimodal together. O(m^2).
    """
    given = np.asarray(values, np.float64)
    best, least = given, np.inf
    for mode in range(len(given)):
        pieces = [monotone(given[: mode + 1])]
        if mode + 1 < len(given):
            pieces.append(monotone(given[mode + 1 :], increasing=False))
        fit = np.concatenate(pieces)
        squares = float(((fit - given) ** 2).sum())
        if squares < least:
            best, least = fit, squares
    return best


_PLACES = {1: 1001, 2: 201, 3: 41, 4: 21}
"""Points along each variable of the grid on which shapes are fitted and integrals taken."""


@dataclass(frozen=True, kw_only=True)
class FunctionShape:
    """What is known of a function whatever the data, and imposed on what is released.

    Attributes:
        non_negative: It is nowhere below 0.
        normalise: It is not negative and integrates to 1.
        monotone: It rises, or falls.
        unimodal: It rises, then falls.
    """

    non_negative: bool = False
    normalise: bool = False
    monotone: Literal["increasing", "decreasing"] | None = None
    unimodal: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """What is imposed, as the config calls it."""
        names = [name for name in ("non_negative", "normalise", "unimodal") if getattr(self, name)]
        return (*names, *([self.monotone] if self.monotone else []))

    @classmethod
    def of(cls, names: tuple[str, ...]) -> FunctionShape:
        """From ``names``."""
        trend: Literal["increasing", "decreasing"] | None = None
        if "increasing" in names or "decreasing" in names:
            trend = "increasing" if "increasing" in names else "decreasing"
        return cls(
            non_negative="non_negative" in names,
            normalise="normalise" in names,
            monotone=trend,
            unimodal="unimodal" in names,
        )


@dataclass(frozen=True, eq=False)
class ReleasedFunction:
    """A function on the box of the declared ranges; callable at any point of it.

    Attributes:
        polynomial: On the unit cube's scale, without shape.
        coefficients: float64[(k + 1,) * l], those of the plain Bernstein polynomial.
        factor: As above.
        floor: As above; None for none.
        curve: float64[m], the fit on equally spaced points of the range; None without one.
    """

    polynomial: BernsteinFunction
    coefficients: Floats
    factor: float
    floor: float | None
    curve: Floats | None

    @classmethod
    def shaped(
        cls, polynomial: BernsteinFunction, shape: FunctionShape, factor: float
    ) -> ReleasedFunction:
        """Impose a shape on a polynomial; that of a curve needs a function of one variable.

        The factor is from values on the unit cube to the columns' own units.
        """
        values, order = polynomial.values, polynomial.order
        places = np.linspace(0, 1, _PLACES[values.ndim])
        axes = [places] * values.ndim
        curve = None
        if shape.monotone or shape.unimodal:
            curve = evaluate_grid(values, order, axes)
            increasing = shape.monotone == "increasing"
            curve = monotone(curve, increasing=increasing) if shape.monotone else unimodal(curve)
        floor = 0.0 if shape.non_negative else None
        if shape.normalise:
            clipped = clip_below(evaluate_grid(values, order, axes) if curve is None else curve)
            if clipped.any():
                factor *= float(normalise_density(clipped, axes).max() / clipped.max())
            else:
                floor = 1.0  # the uniform density, where nothing is above 0
        return cls(polynomial, iterate(values, order), factor, floor, curve)

    def __call__(self, points: ArrayLike) -> Floats:
        """Values at points of the box.

        Args:
            points: float64[m, l]; for one variable float64[m] will do.

        Returns:
            float64[m].

        Raises:
            ValueError: A point is outside the box.
        """
        values = self.polynomial(points)
        if self.curve is not None:
            (low,), (high,) = self.polynomial.lower, self.polynomial.upper
            share = (np.asarray(points, np.float64).reshape(-1) - low) / (high - low)
            values = np.interp(share, np.linspace(0, 1, len(self.curve)), self.curve)
        if self.floor is not None:
            values = clip_below(values, self.floor)
        return self.factor * values
