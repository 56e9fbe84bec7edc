"""Error of a released function from public quantities: approximation, noise, lower bound.

Source: Aldà and Rubinstein (2017, arXiv 1507.04499), Theorems 3, 5 and 6, Propositions 4 and 8.
The largest error over the cube is at most that of the operator, which falls with k and h, and that
of the noise, which grows with k. Theorem 3 balances the two up to constants that it does not give;
here both are computed.

**The operator** is applied to a bump of the width that the function is expected to have: a
public reference, on which no guarantee depends.

**The noise** sum of Z_v b_v(y) has a largest value whose mean is that of a fixed sample of
it. A bound that holds with a given probability is simpler: |Z_v| stays below a level on the
whole lattice, and the operator enlarges this by its Lebesgue constant at most. (The paper's
Proposition 4 bounds every point by itself and then speaks of the largest, which does not
follow.)
"""

from __future__ import annotations

import functools
import math
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mechanisms.bernstein.polynomials import iterated_basis, lebesgue_constant

Floats = NDArray[np.float64]
Shape = Literal["gaussian", "epanechnikov"]
Noise = Literal["laplace", "gaussian"]

_CENTRES, _PLACES = 51, 401
_SAMPLE_VALUES, _MOST_SAMPLES = 1 << 17, 128
_SAMPLE_SEED = 20170211  # of the fixed sample; no release draws from it


@functools.lru_cache(maxsize=4096)
def bump_error(
    widths: tuple[float, ...], degree: int, order: int, shape: Shape = "gaussian"
) -> float:
    """Largest error of the iterated operator on a product of bumps of height 1.

    Over 51 centres and 401 points for each variable. With errors e_i in each variable that
    of the product is at most prod (1 + e_i) - 1.

    Args:
        widths: exp(-(y - c)^2 / (2 w^2)), or 1 - ((y - c) / w)^2 where that is above 0.
        degree: k.
        order: h.
        shape: Of the bumps.
    """
    errors = []
    for width in widths:
        centres = np.linspace(0, 1, _CENTRES)[:, None]

        def bump(y: Floats, centres: Floats = centres, width: float = width) -> Floats:
            t = (y - centres) / width
            if shape == "epanechnikov":
                return np.maximum(1 - t * t, 0.0)
            return np.asarray(np.exp(-t * t / 2))

        values = bump(np.arange(degree + 1) / degree)
        gap = bump(np.linspace(0, 1, _PLACES)) - values @ _operator(degree, order)
        errors.append(float(np.abs(gap).max()))
    return math.prod(1 + error for error in errors) - 1


@functools.lru_cache(maxsize=64)
def _operator(degree: int, order: int) -> Floats:
    return iterated_basis(degree, order, np.linspace(0, 1, _PLACES))


@functools.lru_cache(maxsize=4096)
def expected_noise(dimensions: int, degree: int, order: int, noise: Noise) -> float:
    """About the mean of the largest |sum of Z_v b_v(y)| for noise of scale 1.

    By a fixed sample on a grid: a guide, not a bound.
    """
    side = degree + 1
    samples = min(_MOST_SAMPLES, max(8, _SAMPLE_VALUES // side**dimensions))
    uniform = np.random.Generator(np.random.PCG64(_SAMPLE_SEED))
    shape = (samples, *(side for _ in range(dimensions)))
    draws = uniform.laplace(size=shape) if noise == "laplace" else uniform.normal(size=shape)
    places = {1: min(8 * degree, 200), 2: 64, 3: 20, 4: 10}[dimensions]
    ends = (1 - np.cos(np.linspace(0, math.pi, places + 1))) / 2  # denser where it is larger
    basis = iterated_basis(degree, order, ends)
    for _ in range(dimensions):
        draws = np.tensordot(draws, basis, axes=(1, 0))
    return float(np.abs(draws).reshape(samples, -1).max(axis=1).mean())


def noise_bound(dimensions: int, degree: int, order: int, noise: Noise, beta: float) -> float:
    """A level that noise of scale 1 passes anywhere on the cube with probability <= beta.

    With m lattice points, Pr[|Z| >= t] <= exp(-t) for the Laplace and 2 exp(-t^2 / 2) for the
    Gaussian distribution. The discrete Gaussian is sub-Gaussian too (Canonne, Kamath and Steinke
    2020, arXiv 2004.00010); the discrete Laplace needs half a step of its grid more.

    Raises:
        ValueError: beta is not between 0 and 1.
    """
    if not 0 < beta < 1:
        raise ValueError("beta must be between 0 and 1")
    points = (degree + 1) ** dimensions
    if noise == "laplace":
        level = math.log(points / beta)
    else:
        level = math.sqrt(2 * math.log(2 * points / beta))
    return float(max(level, 1.0) * lebesgue_constant(degree, order) ** dimensions)


def least_error(shift: float, epsilon: float, n_records: int) -> float:
    """A lower bound on the expected error of any epsilon-private release, for some data.

    Moving m records changes the function at a point by m times the shift. The answers to the
    two tables have likelihood ratios up to exp(m epsilon), so one of them is nearer to the
    other's value with probability at least 1 / (1 + exp(m epsilon)), and then in error by
    m shift / 2 (the paper's Proposition 8 in a form with constants).

    Args:
        shift: A change at one point that every further record adds to.
        epsilon: Of pure privacy.
        n_records: Most records that can move.
    """
    best = max(1, min(n_records, round(1.278 / epsilon)))  # where m / (1 + e^(m eps)) peaks
    return max(
        m * shift / 2 / (1 + math.exp(min(m * epsilon, 700.0)))
        for m in {1, best, min(best + 1, n_records)}
    )


def least_gaussian_error(shift: float, mu: float, n_records: int) -> float:
    """The same for any mu-GDP release.

    Tables m records apart are m mu-GDP apart (Dong, Roth and Su 2022, doi 10.1111/rssb.12454,
    Theorem 2.14), so one of the two answers is nearer to the other's value with probability at
    least Phi(-m mu / 2).

    Args:
        shift: A change at one point that every further record adds to.
        mu: Of Gaussian differential privacy.
        n_records: Most records that can move.
    """
    best = max(1, min(n_records, round(1.504 / mu)))  # where m Phi(-m mu / 2) peaks
    return max(
        m * shift / 2 * NormalDist().cdf(-m * mu / 2) for m in {1, best, min(best + 1, n_records)}
    )
