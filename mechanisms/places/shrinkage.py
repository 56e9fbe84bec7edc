"""How far a place is like the one it lies in, and what its noisy cells say given that.

**Model.** A child of n records in a parent whose cells have the shares p_k has x_k records in cell
k, with the mean n p_k. Its own rate is r_k ~ Gamma with mean p_k and variance spread * p_k, and
records come in lumps of a size, for instance persons in households: the number of lumps is Poisson
with mean n r_k / lump. So

    P(x_k = 0) = (1 + spread n / lump)^(-p_k / spread),    var x_k = n^2 p_k (spread + lump / n),

and what is not 0 is taken to be Gamma with the first two moments that remain. The lumps' part of
the variance is less for a child that is a large part of its parent, by (1 - n / parent's n). A
spread of 0 and lumps of 1 are a sample from the parent; 15 lumps a child are places that are as
unlike as can be. The noise is Gaussian, of known variance.

**Evidence.** Each child has the mean spread and lumps of a list, by their likelihood given its
noisy cells, with the shares of the list among its siblings as prior, which are found from equal
ones by expectation and maximisation (Dempster, Laird and Rubin 1977, doi
10.1111/j.2517-6161.1977.tb01600.x). So a child that is unlike its siblings is not made like them,
and where no child is like its parent, none is shrunk: a spread of 1 leaves a cell what it is but
for noise and sign.

**Posterior.** With a Gamma prior of shape a and scale b, and noise of variance 1, the density of x
given z is proportional to x^(a-1) exp(-(x - u)^2 / 2), u = z - 1/b, whatever else. Its integral,
mean and quantiles are functions of two numbers, a and u; they are tabulated once, as corrections of
Laplace's approximation in log x, and interpolated. Where the prior is nearly normal (a above 60) or
narrow against the noise (standard deviation below .1) the normal formulas are taken, as
they are for the posterior far from 0 (u above 11).

Nothing here takes private data or random bits.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.places.tree import Places

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SPREADS = np.array(
    [(spread, 1) for spread in (0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1)]
    + [(0, lump) for lump in (5, 20, 40, 100, 300)]
    + [(0.01, 5), (0.01, 20), (0.01, 40), (0.1, 20)]
)
"""The list, float64[17, 2]: pairs of a spread and a size of lumps in records."""

LEVELS = (0.03, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97)
"""Levels of the quantiles of a posterior."""

_ROUNDS = 20
_NORMAL_SHAPE, _NARROW, _FAR = 60.0, 0.01, 11.0
_LOG_SHAPES = np.linspace(np.log(1e-3), np.log(64), 48)
_LOCATIONS = np.linspace(-np.arcsinh(100), np.arcsinh(12), 160)  # inverse hyperbolic sines of u
_PROBABILITIES = np.linspace(0.01, 0.99, 33)


class Prior(NamedTuple):
    """Records of cells before their noisy counts are seen; arrays of one shape, in records.

    Attributes:
        log_zero: Logarithm of the probability of no record.
        mean: Mean of what is not 0.
        shape: Shape of the Gamma distribution of what is not 0.
    """

    log_zero: Floats
    mean: Floats
    shape: Floats

    @classmethod
    def of(
        cls,
        sizes: Floats,
        whole: Floats,
        shares: Floats,
        spread: Floats | float,
        lump: Floats | float,
    ) -> Prior:
        """From records of places and of their parents, both above 0, and the parents' shares.

        Args:
            sizes: float64[n, 1].
            whole: float64[n, 1].
            shares: float64[n, cells].
            spread: float64, one number or [n, 1].
            lump: float64, one number or [n, 1], in records.
        """
        shares, spread = np.maximum(shares, 1e-12), np.maximum(spread, 1e-9)
        part = np.minimum(lump / sizes, 1.0)
        log_zero = -shares / spread * np.log1p(spread / part)
        some = -np.expm1(log_zero)
        mean = sizes * shares / some
        variance = sizes**2 * shares * (spread + part * np.maximum(1 - sizes / whole, 0.01))
        variance = (variance + (sizes * shares) ** 2) / some - mean**2
        return cls(log_zero, mean, mean**2 / np.maximum(variance, 1e-6 * mean**2))


class GammaPosterior:
    """Of x ~ Gamma given z = x + normal noise; all arrays of one shape or broadcast to one."""

    def __init__(self, mean: Floats, shape: Floats, z: Floats, sd: Floats) -> None:
        self._sd, self._mean, self._z = sd, mean / sd, z / sd
        shape = np.maximum(shape, 1e-3)
        self._variance = self._mean**2 / shape
        self._nearly = (shape > _NORMAL_SHAPE) | (self._variance < _NARROW)
        self._shape = np.minimum(shape, _NORMAL_SHAPE)
        self._scale = np.maximum(self._mean / self._shape, 1e-6)
        self._u = self._z - 1 / self._scale
        self._mode = _mode(self._shape, self._u)
        far = self._u > _FAR
        self._normal = self._nearly | far
        middle = _mode(np.maximum(self._shape - 1, -1), np.maximum(self._u, _FAR))
        weight = self._variance / (1 + self._variance)
        shrunk = self._mean + weight * (self._z - self._mean)
        self._middle = np.where(self._nearly, shrunk, middle)
        self._weight = np.where(self._nearly, weight, 1 / (1 + (self._shape - 1) / middle**2))
        row, self._down = _between(np.log(self._shape), _LOG_SHAPES)
        column, self._right = _between(np.arcsinh(self._u), _LOCATIONS)
        self._corner = row * len(_LOCATIONS) + column

    def log_evidence(self) -> Floats:
        """Logarithm of the density of z, times the noise's standard deviation and sqrt(2 pi)."""
        log_integral = _laplace(self._shape, self._u, self._mode) + self._look_up(_tables()[0])
        from scipy.special import gammaln

        log_prior = -gammaln(self._shape) - self._shape * np.log(self._scale)
        gamma = log_integral + log_prior + 0.5 / self._scale**2 - self._z / self._scale
        away = (self._z - self._mean) ** 2 / (1 + self._variance)
        return np.where(self._nearly, -0.5 * (away + np.log1p(self._variance)), gamma)

    def moments(self) -> tuple[Floats, Floats]:
        """Mean and variance of x."""
        mean = self._mode * np.exp(self._look_up(_tables()[1]))
        variance = np.maximum(self._u * mean + self._shape - mean**2, 1e-9)
        return (
            np.where(self._normal, np.maximum(self._middle, 0), mean) * self._sd,
            np.where(self._normal, self._weight, variance) * self._sd**2,
        )

    def quantile(self, level: Floats) -> Floats:
        """Quantile of x at levels, of which those outside .01 to .99 are moved there."""
        from scipy.special import ndtri

        at, further = _between(level, _PROBABILITIES)
        table, width = _tables()[2], len(_PROBABILITIES)
        log = np.zeros(np.shape(self._u))
        for down in (0, 1):
            for right in (0, 1):
                corner = (self._corner + down * len(_LOCATIONS) + right) * width + at
                part = table.take(corner) * (1 - further) + table.take(corner + 1) * further
                log += part * np.abs(1 - down - self._down) * np.abs(1 - right - self._right)
        normal = self._middle + np.sqrt(self._weight) * ndtri(np.clip(level, 0.01, 0.99))
        gamma = np.exp(log) * self._mode
        return np.where(self._normal, np.maximum(normal, 0), gamma) * self._sd

    def _look_up(self, table: Floats) -> Floats:
        below = self._corner + len(_LOCATIONS)
        upper = table.take(self._corner) * (1 - self._right)
        upper += table.take(self._corner + 1) * self._right
        lower = table.take(below) * (1 - self._right) + table.take(below + 1) * self._right
        return np.asarray(upper * (1 - self._down) + lower * self._down)


def log_evidence(prior: Prior, z: Floats, sd: Floats) -> Floats:
    """Logarithm of the density of noisy cells, times sd and sqrt(2 pi): float64[n, cells]."""
    some = np.log(-np.expm1(prior.log_zero))
    some = some + GammaPosterior(prior.mean, prior.shape, z, sd).log_evidence()
    return np.logaddexp(prior.log_zero - 0.5 * (z / sd) ** 2, some)


def quantiles(prior: Prior, z: Floats, sd: Floats) -> Floats:
    """float64[levels, n, cells]: quantiles of cells given their noisy counts, at ``LEVELS``."""
    from scipy.special import expit

    posterior = GammaPosterior(prior.mean, prior.shape, z, sd)
    some = np.log(-np.expm1(prior.log_zero)) + posterior.log_evidence()
    zero = expit(prior.log_zero - 0.5 * (z / sd) ** 2 - some)
    curves = np.empty((len(LEVELS), *z.shape))
    for level, curve in zip(LEVELS, curves, strict=True):
        within = (level - zero) / np.maximum(1 - zero, 1e-12)
        curve[:] = np.where(level <= zero, 0.0, posterior.quantile(within))
    return np.maximum.accumulate(curves, axis=0)


def likely_spreads(evidence: Floats, starts: Places, listed: Floats) -> Floats:
    """float64[n, 2]: mean spread and size of lumps of each child, given its cells and siblings.

    Args:
        evidence: float64[list, n], logarithms.
        starts: int64[parents + 1]: the children of parent i are starts[i] to starts[i + 1].
        listed: float64[list, 2], as ``SPREADS``.
    """
    count, siblings = len(evidence), np.diff(starts)
    owner = np.repeat(np.arange(len(siblings)), siblings)
    likelihood = np.exp(evidence - evidence.max(axis=0))
    share = np.full((count, len(siblings)), 1 / count)
    for _ in range(_ROUNDS):
        own = share[:, owner] * likelihood
        own /= own.sum(axis=0)
        share = (np.add.reduceat(own, starts[:-1], axis=1) + 1 / count) / (siblings + 1)
    return np.asarray(own.T @ listed)


def _between(values: Floats, grid: Floats) -> tuple[Integers, Floats]:
    """Position in an even grid, and how far towards the next; values outside go to its ends."""
    at = np.clip((values - grid[0]) / (grid[1] - grid[0]), 0, len(grid) - 1 - 1e-6)
    position = at.astype(np.int64)
    return position, at - position


def _mode(shape: Floats, u: Floats) -> Floats:
    """Mode of log x of the density x^(a-1) exp(-(x-u)^2/2)."""
    root = np.sqrt(u**2 + 4 * shape)
    return np.asarray(np.where(u > 0, (u + root) / 2, 2 * shape / (root - np.minimum(u, 0))))


def _laplace(shape: Floats, u: Floats, mode: Floats) -> Floats:
    """Laplace's approximation of the logarithm of the integral of that density."""
    curvature = mode * np.hypot(u, 2 * np.sqrt(shape))
    peak = shape * np.log(mode) - (mode - u) ** 2 / 2
    return np.asarray(peak - 0.5 * np.log(curvature / (2 * np.pi)))


@functools.cache
def _tables() -> tuple[Floats, Floats, Floats]:
    """By shape and u: log integral less Laplace's; log mean, and log quantiles, over the mode."""
    logs, u = np.linspace(np.log(1e-4), np.log(80), 1200), np.sinh(_LOCATIONS)
    integrals = np.empty((2, len(_LOG_SHAPES), len(u)))
    quantile = np.empty((len(_LOG_SHAPES), len(u), len(_PROBABILITIES)))
    fall = -((np.exp(logs) - u[:, None]) ** 2) / 2 + np.log(logs[1] - logs[0])
    for row, shape in enumerate(np.exp(_LOG_SHAPES)):
        for more in (0, 1):
            below = (shape + more) * logs[0] - np.log(shape + more) - u**2 / 2
            pieces = np.concatenate([below[:, None], (shape + more) * logs + fall], axis=1)
            top = pieces.max(axis=1)
            sums = np.cumsum(np.exp(pieces - top[:, None]), axis=1)
            integrals[more, row] = top + np.log(sums[:, -1])
            if not more:
                ends = np.concatenate([[logs[0] - 3], logs])
                for column, law in enumerate(sums / sums[:, -1:]):
                    quantile[row, column] = np.interp(_PROBABILITIES, law, ends)
    shapes = np.exp(_LOG_SHAPES)[:, None]
    mode = _mode(shapes, u[None])
    return (
        integrals[0] - _laplace(shapes, u[None], mode),
        integrals[1] - integrals[0] - np.log(mode),
        quantile - np.log(mode)[..., None],
    )
