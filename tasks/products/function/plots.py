"""Plots of released functions: a curve with the band of its noise, contours, or a slice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mechanisms.bernstein.polynomials import iterated_basis
from mechanisms.bernstein.released_function import ReleasedFunction
from mechanisms.functions.bernstein import FunctionRelease

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CURVE, _CONTOUR, _LEVELS = 401, 81, 12
_NORMAL_95 = 1.96


def draw_function(
    figure: Figure, title: str, mechanism: FunctionRelease, function: ReleasedFunction
) -> None:
    """One variable: a curve with its band. Two: contours. More: a slice through the middle."""
    figure.suptitle(title, wrap=True, fontsize="medium")
    if len(mechanism.variables) == 1:
        _draw_curve(figure, mechanism, function)
    else:
        _draw_contours(figure, mechanism, function)


def noise_sd(
    mechanism: FunctionRelease, function: ReleasedFunction, shares: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Standard deviation of the noise at points of one variable, from public quantities.

    Args:
        mechanism: Of one variable.
        function: For its factor.
        shares: float64[m] in [0, 1].

    Returns:
        float64[m], of the polynomial before any shape is imposed.
    """
    basis = iterated_basis(mechanism.degree, mechanism.order, shares)
    scale = mechanism.noise_sd * function.factor / mechanism.factor
    return np.asarray(scale * np.sqrt((basis**2).sum(axis=0)))


def _draw_curve(figure: Figure, mechanism: FunctionRelease, function: ReleasedFunction) -> None:
    (variable,), shares = mechanism.variables, np.linspace(0, 1, _CURVE)
    points = np.minimum(variable.lower + (variable.upper - variable.lower) * shares, variable.upper)
    values = function(points)
    reach = _NORMAL_95 * noise_sd(mechanism, function, shares)
    panel = figure.subplots()
    panel.fill_between(
        points, values - reach, values + reach, alpha=0.25, label="noise, about 95 % at a point"
    )
    panel.plot(points, values, label="released")
    panel.set_xlabel(variable.name)
    panel.legend(fontsize="small")


def _draw_contours(figure: Figure, mechanism: FunctionRelease, function: ReleasedFunction) -> None:
    first, second, *others = mechanism.variables
    sides = [np.linspace(v.lower, v.upper, _CONTOUR) for v in (first, second)]
    one, two = np.meshgrid(*sides, indexing="ij")
    middles = [np.full(one.size, v.lower + (v.upper - v.lower) / 2) for v in others]
    values = function(np.stack([one.ravel(), two.ravel(), *middles], axis=1)).reshape(one.shape)
    panel = figure.subplots()
    drawn = panel.contourf(one, two, values, levels=_LEVELS)
    figure.colorbar(drawn, ax=panel)
    panel.set_xlabel(first.name)
    panel.set_ylabel(second.name)
    if others:
        places = ", ".join(f"{v.name} = {m[0]:g}" for v, m in zip(others, middles, strict=True))
        panel.set_title(f"where {places}", fontsize="small")
