"""Whether guaranteed limits hold a mean, for many releases at once, without computing them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from statpress.mechanisms.estimates import guaranteed
from statpress.mechanisms.estimates.fieller import normal_quantile
from statpress.mechanisms.estimates.guaranteed import FOR_SQUARES, mean_limit
from tests.benchmarks.interval_populations import Doubles


def guaranteed_holds(
    truth: float,
    totals: Doubles,
    squares: Doubles | None,
    n: int,
    noises: tuple[float, float],
    level: float,
) -> NDArray[np.bool_]:
    """Whether guaranteed limits of a mean hold it, by the bounds at the mean itself.

    What excludes it is a sum beyond some figure, which goes with the limit on the squares, and
    that with the squares; both are interpolated between a few.
    """
    alpha = (1 - level) * (1 - guaranteed.MARGIN)
    most = np.zeros(len(totals))
    if squares is not None:
        at = np.linspace(squares.min(), squares.max(), 8)
        limits = [1 - mean_limit(n - each, None, n, noises[1], alpha * FOR_SQUARES) for each in at]
        most = np.interp(squares, at, limits)
        alpha *= 1 - FOR_SQUARES
    held = np.ones(len(totals), bool)
    for side, mean in ((totals, truth), (n - totals, 1 - truth)):
        at = np.linspace(most.min(), most.max(), 1 if squares is None else 6)
        ends = [
            _least_excluded(mean, None if squares is None else each, n, noises[0], alpha / 2)
            for each in at
        ]
        held &= side < np.interp(most, at, ends)
    return held


def _least_excluded(mean: float, most: float | None, n: int, noise: float, alpha: float) -> float:
    """The least sum that excludes a mean: where the bound on its probability is alpha."""
    any_sd = math.sqrt(n * mean * (1 - mean) + noise**2)
    sd, variance = any_sd, mean * (1 - mean)
    if most is not None:
        known = most / 4 - (mean - 0.5) ** 2
        if known < 0:
            return n * mean  # no such mean goes with the squares
        variance = max(min(variance, known), guaranteed._LEAST_VARIANCE)
        sd = math.sqrt(n * variance + noise**2)

    def over(t: float) -> float:
        """Of the bound, as a normal quantile less that of alpha; about linear in t."""
        if most is None:
            bound = guaranteed._exact(t, n, mean, noise)
        else:
            bound = guaranteed._any_law(t, n, mean, noise)
            if variance < mean * (1 - mean):
                bound = min(
                    bound,
                    guaranteed._known_variance(t - n * mean, n, variance, 1 - mean, noise),
                )
        return math.sqrt(-2 * math.log(min(max(bound, 1e-300), 1.0))) - math.sqrt(
            -2 * math.log(alpha)
        )

    reach = normal_quantile(1 - 2 * alpha)
    low, high = n * mean, n * mean + 2 * reach * sd + 1
    while over(high) <= 0:
        low, high = high, high + reach * sd + 1
    return float(brentq(over, low, high, xtol=1e-4 * sd, rtol=1e-12)) if over(low) < 0 else low
