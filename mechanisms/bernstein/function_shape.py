"""Shapes that a released function is known to have, imposed on its values on a grid.

Post-processing of what is already public, so it costs no privacy. Clipping and the monotone
fit leave a function of their shape as it is, and bring no two functions further apart, neither
in the largest difference nor in the sum of squares. So if the true function has the shape,
neither error grows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def clip_below(values: ArrayLike, least: float = 0.0) -> Floats:
    """Values below ``least`` become ``least``."""
    return np.maximum(np.asarray(values, np.float64), least)


def normalise_density(values: ArrayLike, axes: Sequence[Floats]) -> Floats:
    """Clip to >= 0 and divide by the integral; uniform where nothing is above 0.

    Args:
        values: float64[m_1, .., m_d], on the product of the axes.
        axes: float64[m_i], ascending, at least two points each.

    Returns:
        float64[m_1, .., m_d], with integral 1 by the trapezoidal rule.

    Raises:
        ValueError: The shapes do not agree or an axis does not ascend.
    """
    found = clip_below(values)
    if found.shape != tuple(len(axis) for axis in axes) or min(found.shape) < 2:
        raise ValueError("values must have the axes' lengths, at least 2 each")
    if any(np.any(np.diff(axis) <= 0) for axis in axes):
        raise ValueError("an axis is not ascending")
    if not found.any():
        found = np.ones_like(found)
    found = found / found.max()  # so that no product is lost below the least double
    total = found
    for axis in reversed(axes):
        total = np.asarray(np.trapezoid(total, axis, axis=-1))
    return np.asarray(found / total)


def monotone(values: ArrayLike, *, increasing: bool = True) -> Floats:
    """The nearest monotone values in the sum of squares: float64[m] to float64[m]."""
    from scipy.optimize import isotonic_regression

    found = isotonic_regression(np.asarray(values, np.float64), increasing=increasing)
    return np.asarray(found.x)


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
