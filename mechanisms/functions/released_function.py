"""A released function as anyone may evaluate it: coefficients, and the shape imposed on it.

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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from statpress.mechanisms.functions.polynomials import BernsteinFunction, Floats, basis, iterate


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


def evaluate_grid(values: Floats, order: int, axes: Sequence[Floats]) -> Floats:
    """The iterated polynomial on a product of axes: float64[m_1, .., m_d].

    There is one axis float64[m_i] in [0, 1] for each variable.
    """
    grid = iterate(values, order)
    for points in axes:  # each product moves the axis it contracts to the end
        grid = np.tensordot(grid, basis(values.shape[0] - 1, points), axes=(0, 0))
    return grid
