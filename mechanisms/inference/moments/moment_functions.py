"""Functions of the means of two columns and of their squares and product, as quotients.

Numerators and denominators are polynomials, so that a confidence set can be made of them without
dividing (mechanisms.inference.fieller). All take arrays as well: float64[5, ..] of means.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Means = NDArray[np.float64]
"""float64[5] or [5, r]: means of x, y, x^2, x y, y^2 of records in [0, 1]^2."""

Polynomial = Callable[[Means], NDArray[np.float64]]


@dataclass(frozen=True)
class Derived:
    """A quotient of polynomials of the five means.

    Attributes:
        numerator: What is divided.
        denominators: None; or one, by which it is divided; or two, by whose geometric mean it is,
            which is then never larger than it in absolute value.
        bounds: Between which it lies.
    """

    numerator: Polynomial
    denominators: tuple[Polynomial, ...] = ()
    bounds: tuple[float, float] = (-math.inf, math.inf)

    def value(self, means: Means) -> float:
        """The quotient; NaN or infinite where a denominator is not positive."""
        with np.errstate(all="ignore"):
            below = [each(means) for each in self.denominators]
            if len(below) == 2:
                below = [np.where(np.minimum(*below) > 0, np.sqrt(below[0] * below[1]), np.nan)]
            divisor = below[0] if below else np.ones(())
            return float(np.divide(self.numerator(means), divisor))


def _first_variance(m: Means) -> NDArray[np.float64]:
    return np.asarray(m[2] - m[0] ** 2)


def _second_variance(m: Means) -> NDArray[np.float64]:
    return np.asarray(m[4] - m[1] ** 2)


def _covariance(m: Means) -> NDArray[np.float64]:
    return np.asarray(m[3] - m[0] * m[1])


CORRELATION = Derived(_covariance, (_first_variance, _second_variance), (-1.0, 1.0))
"""Of x and y."""

SLOPE = Derived(_covariance, (_first_variance,))
"""Of the regression of y on x, in units of the declared ranges."""

RATIO = Derived(lambda m: m[1], (lambda m: m[0],), (0.0, math.inf))
"""Sum of y over sum of x, both columns with a declared lower bound of 0."""

GROUP_DIFFERENCE = Derived(_covariance, (lambda m: m[0] * (1 - m[0]),), (-1.0, 1.0))
"""Mean of y in the group x = 1 less that in the rest, x = 0: a slope, x being 0 or 1."""

COVARIANCE = Derived(_covariance, (), (-0.25, 0.25))
"""Of x and y (with n)."""

VARIANCE = Derived(_first_variance, (), (0.0, 0.25))
"""Of x (with n)."""


def intercept(origin: float) -> Derived:
    """Of the regression of y on x, at x = -origin.

    With x' = x + origin it is E y - (E x') Cov/Var = (E y E x'^2 - E x' E x'y) / Var.
    """

    def numerator(m: Means) -> NDArray[np.float64]:
        square = m[2] + 2 * origin * m[0] + origin**2
        return np.asarray(m[1] * square - (m[0] + origin) * (m[3] + origin * m[1]))

    return Derived(numerator, (_first_variance,))
