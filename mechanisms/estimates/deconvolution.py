"""Deconvolution by g-modelling: the law of X from Y = X + normal noise of known size.

The model is Efron's (2016, doi 10.1093/biomet/asv068), with the choices of Wang, Cheng and Awan
(2022, arXiv 2210.06140), Section 4.3: X is on 1000 points from q1 - 3 IQR to q3 + 3 IQR of Y, its
density there exp(Q a) up to a factor, Q a natural spline basis of 5 columns, centred and of unit
length (R's ``ns`` and the package deconvolveR). Y is taken in 40 bins, their probabilities P g,
and a minimises

    -sum over bins of count log(P g)  +  c0 |a|,  c0 = 0.1.

The basis depends only on the number of points, so it is computed once. The minimum is found by
Newton's method, damped, with the gradient and the Hessian in closed form (Efron 2016,
doi 10.1093/biomet/asv068, section 3): with W the matrix of g (P/f - 1), f = P g and y the counts,
they are -Q' W' y and

    A' diag(y) A + (A' y) (Q' g)' + (Q' g) (A' y)' - Q' diag(W' y) Q,  A = W Q.

Post-processing of noisy replicates, so it costs no privacy.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.estimates.fieller import Floats

POINTS = 1000
DEGREES = 5
PENALTY = 0.1
BINS = 40
_STEPS, _TOLERANCE = 100, 1e-7


class Objective(NamedTuple):
    """What is minimised, and its first two derivatives."""

    value: float
    gradient: Floats
    hessian: Floats


@dataclass(frozen=True, eq=False)
class Deconvolved:
    """A recovered distribution."""

    points: Floats  # float64[1000], equidistant
    masses: Floats  # float64[1000], adding up to 1
    coefficients: Floats  # float64[5], the a of the model
    steps: int  # Newton steps taken

    def quantile(self, share: float) -> float:
        """The point below which this share of the mass lies, interpolated."""
        return float(np.interp(share, np.cumsum(self.masses), self.points))

    def interval(self, level: float) -> tuple[float, float]:
        """The percentile interval of this level."""
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)


def deconvolve(noisy: Floats, sigma: float, *, penalty: float = PENALTY) -> Deconvolved:
    """The law of what noise of standard deviation sigma was added to, from float64[B].

    Raises:
        ConfigError: Too few values, or no noise, or values without any spread.
    """
    from scipy.special import ndtr

    low, high = np.quantile(noisy, (0.25, 0.75)) if len(noisy) else (0.0, 0.0)
    if len(noisy) < 2 or not (sigma > 0 and math.isfinite(sigma)) or not high > low:
        raise ConfigError("A deconvolution needs noisy values that differ, and their noise.")
    span = high - low
    points = np.linspace(low - 3 * span, high + 3 * span, POINTS)
    edges = np.linspace(noisy.min(), noisy.max(), BINS + 1)
    counts = np.histogram(noisy, edges)[0].astype(np.float64)
    below = ndtr((edges[1:-1, None] - points[None, :]) / sigma)
    kernel = np.diff(below, axis=0, prepend=0.0, append=1.0)
    some = counts > 0
    return _minimise(points, kernel[some], counts[some], penalty)


def objective(
    a: Floats, kernel: Floats, counts: Floats, penalty: float, basis: Floats
) -> Objective:
    """The penalised likelihood of the bins at coefficients a, which are not all 0."""
    g = _density(a, basis)
    f = np.maximum(kernel @ g, 1e-300)
    mean = basis.T @ g
    weighted = (kernel * g) @ basis / f[:, None]
    inner = weighted - mean  # A
    pull = inner.T @ counts
    size = float(np.linalg.norm(a))
    value = -float(counts @ np.log(f)) + penalty * size
    gradient = -pull + penalty * a / size
    diagonal = g * ((counts / f) @ kernel - counts.sum())
    hessian = (
        inner.T @ (counts[:, None] * inner)
        + np.outer(pull, mean)
        + np.outer(mean, pull)
        - basis.T @ (diagonal[:, None] * basis)
        + penalty * (np.eye(len(a)) / size - np.outer(a, a) / size**3)
    )
    return Objective(value, gradient, hessian)


@functools.lru_cache(maxsize=4)
def spline_basis(points: int = POINTS, degrees: int = DEGREES) -> Floats:
    """Natural cubic splines like R's ``ns``, every column of mean 0 and length 1."""
    from scipy.interpolate import BSpline

    x = np.linspace(0.0, 1.0, points)
    inner = np.linspace(0.0, 1.0, degrees + 1)[1:-1]
    knots = np.concatenate([np.zeros(4), inner, np.ones(4)])
    count = len(knots) - 4
    every = [BSpline(knots, np.eye(count)[i], 3) for i in range(1, count)]
    values = np.column_stack([spline(x) for spline in every])
    bends = np.column_stack([spline.derivative(2)(np.array([0.0, 1.0])) for spline in every])
    rotation = np.linalg.qr(bends.T, mode="complete")[0]
    natural = (values @ rotation)[:, 2:]
    natural -= natural.mean(axis=0)
    return np.asarray(natural / np.linalg.norm(natural, axis=0))


def _density(a: Floats, basis: Floats) -> Floats:
    """Masses proportional to exp(basis a)."""
    logs = basis @ a
    g = np.exp(logs - logs.max())
    return np.asarray(g / g.sum())


def _minimise(points: Floats, kernel: Floats, counts: Floats, penalty: float) -> Deconvolved:
    """Newton's method from a = 1, with steps downhill and halved until they help."""
    basis = spline_basis()
    a = np.ones(basis.shape[1])
    now, step = objective(a, kernel, counts, penalty, basis), 0
    while step < _STEPS and np.linalg.norm(now.gradient) > _TOLERANCE * counts.sum():
        values, vectors = np.linalg.eigh(now.hessian)
        bend = np.maximum(np.abs(values), 1e-8 * np.abs(values).max())
        move = -vectors @ (vectors.T @ now.gradient / bend)
        slope, share = float(move @ now.gradient), 1.0
        while share > 1e-10:
            tried = objective(a + share * move, kernel, counts, penalty, basis)
            if tried.value <= now.value + 1e-4 * share * slope:
                break
            share /= 2
        else:
            break
        a, now, step = a + share * move, tried, step + 1
    return Deconvolved(points, _density(a, basis), a, step)
