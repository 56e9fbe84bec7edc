"""Limits for a variance that hold for every population in the declared bounds, noise included.

They are limits of means (mechanisms.inference.guaranteed) of squares about every mean that there
can be.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from mechanisms.inference.guaranteed import FOR_SQUARES, MARGIN, mean_limit, mean_limits

_Doubles = NDArray[np.float64]

FOR_MEAN = 1 / 4
"""Share of what the level leaves to 1 that the limits of the mean may use."""

_STRETCHES = 8


def variance_limits(
    sums: _Doubles,
    noise: _Doubles,
    slacks: _Doubles,
    *,
    n_records: int,
    level: float,
) -> tuple[float, float]:
    """Limits of the variance of records in [0, 1].

    Let m be the mean, d = m - 1/2, B = max(m, 1 - m)^2 and z = (x - m)^2/B in [0, 1], so that the
    variance is B E z. For every m, sum z and sum (2z - 1)^2 are known up to noise, being linear in
    the sums of powers of u = x - 1/2. Limits of the mean hold at a quarter of what the level leaves
    to 1; at the true m, those of E z hold at the rest. So the least and the largest that they are
    for any m between the limits of the mean hold as well. They are taken over a few stretches of m:
    with the least sum z for the lower one and the largest for the upper one, and everywhere the
    largest B, noise and squares.

    Args:
        sums: float64[4], noisy sums of u, u^2, u^3 and u^4.
        noise: float64[4, k], of each its noise in independent terms of deviation 1.
        slacks: float64[4], how far rounding may have moved each, with a step of its grid.
        n_records: Number of records n.
        level: Probability with which they hold, at least.
    """
    n, alpha, sizes = n_records, (1 - level) * (1 - MARGIN), np.linalg.norm(noise, axis=1)
    first, last = mean_limits(
        float(sums[0] + n / 2),
        float(4 * sums[1]),
        n_records=n,
        noise=float(sizes[0]),
        square_noise=float(4 * sizes[1]),
        level=1 - (1 - level) * FOR_MEAN,
        slack=float(slacks[0]),
        square_slack=float(4 * slacks[1]),
    )
    alpha *= 1 - FOR_MEAN
    found = []
    for low, high in itertools.pairwise(np.linspace(first - 0.5, last - 0.5, _STRETCHES + 1)):
        half, far = (high - low) / 2, max(-low, high)
        scale = (0.5 + far) ** 2
        nearest = min(max(sums[0] / n, low), high)
        least, most = nearest, low if nearest - low > high - nearest else high
        total = [float(powers(d, 2) @ [n, *sums[:2]]) / scale for d in (least, most)]
        spread = max(np.linalg.norm(powers(d, 2)[1:] @ noise[:2]) for d in (low, high)) / scale
        slack = float(np.abs(powers(-far, 2)[1:]) @ slacks[:2]) / scale
        # 4 z^2 - 4 z + 1 as a polynomial of d, at the middle and how much more it can be.
        middle = (low + high) / 2
        weights = squares_of(middle, scale)
        steepest = _steepest(far, scale)
        squares = float(weights @ [n, *sums] + half * (steepest @ np.abs([n, *sums])))
        moved = float(np.linalg.norm(weights[1:] @ noise) + half * (steepest[1:] @ sizes))
        above = float(squares + (np.abs(weights[1:]) + half * steepest[1:]) @ slacks)
        limit = 1 - mean_limit(n - above, None, n, moved, alpha * FOR_SQUARES)
        one = alpha * (1 - FOR_SQUARES) / 2
        lower = mean_limit(total[0] - slack, limit, n, float(spread), one)
        upper = 1 - mean_limit(n - total[1] - slack, limit, n, float(spread), one)
        found.append((scale * lower, scale * upper))
    return min(ends[0] for ends in found), min(0.25, max(ends[1] for ends in found))


def powers(d: float, degree: int) -> _Doubles:
    """(u - d)^degree as a polynomial of u: float64[degree + 1]."""
    return np.array([math.comb(degree, k) * (-d) ** (degree - k) for k in range(degree + 1)])


def squares_of(d: float, scale: float) -> _Doubles:
    """4 z^2 - 4 z + 1, z = (u - d)^2/scale, as a polynomial of u: float64[5]."""
    found = 4 * powers(d, 4) / scale**2
    found[:3] -= 4 * powers(d, 2) / scale
    found[0] += 1
    return found


def _steepest(far: float, scale: float) -> _Doubles:
    """Bounds on the derivatives of these coefficients in d, for |d| up to ``far``: float64[5]."""
    found = np.zeros(5)
    found[:4] += 16 * np.abs(powers(far, 3)) / scale**2
    found[:2] += 8 * np.abs(powers(far, 1)) / scale
    return found
