"""Functions of the means of two columns and of their squares and product.

They are smooth where their denominators are away from 0, which the delta method of
mechanisms.inference.moment_pairs needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Means = NDArray[np.float64]
"""float64[5]: means of x, y, x^2, x y, y^2 of records in [0, 1]^2."""


@dataclass(frozen=True)
class Derived:
    """A function of the five means.

    Attributes:
        value: The function.
        denominators: What must be away from 0 for it to be smooth.
        bounds: Between which it lies.
    """

    value: Callable[[Means], float]
    denominators: Callable[[Means], tuple[float, ...]]
    bounds: tuple[float, float] = (-math.inf, math.inf)


def _variances(m: Means) -> tuple[float, float, float]:
    """Variances of x and y, and their covariance."""
    return m[2] - m[0] ** 2, m[4] - m[1] ** 2, m[3] - m[0] * m[1]


def _correlation(m: Means) -> float:
    one, two, both = _variances(m)
    return both / math.sqrt(one * two) if one > 0 and two > 0 else math.nan


CORRELATION = Derived(_correlation, lambda m: _variances(m)[:2], (-1.0, 1.0))
"""Of x and y."""

SLOPE = Derived(lambda m: _variances(m)[2] / _variances(m)[0], lambda m: _variances(m)[:1])
"""Of the regression of y on x, in units of the declared ranges."""

RATIO = Derived(lambda m: m[1] / m[0], lambda m: (m[0],), (0.0, math.inf))
"""Sum of y over sum of x, both columns with a declared lower bound of 0."""

GROUP_DIFFERENCE = Derived(
    lambda m: m[3] / m[0] - (m[1] - m[3]) / (1 - m[0]), lambda m: (m[0], 1 - m[0]), (-1.0, 1.0)
)
"""Mean of y in the group x = 1 less that in the rest, x = 0."""

COVARIANCE = Derived(lambda m: _variances(m)[2], lambda m: (), (-0.25, 0.25))
"""Of x and y (with n)."""

VARIANCE = Derived(lambda m: _variances(m)[0], lambda m: (), (0.0, 0.25))
"""Of x (with n)."""
