"""How far rare values can bring the coverage of a normal interval down, by public quantities.

Of n records in [0, 1] nearly all have one value and a few, about Poisson(L) of them, another one
further off: as n grows, these are the populations whose sums are furthest from normal, and no
public bound on the records rules them out. Their skewness is hidden by noise of a few records, and
without noise no normal interval covers at its level for all L. In units of the jump from the one
value to the other, with noise of deviation s in the sum and c s in its estimated variance, the
interval holds the truth if

    (K - L + s e)^2 <= z^2 (max(K + c s e', 0) + c s + s^2),   K ~ Poisson(L),

which is summed here over K and over the noise; the least coverage over a grid of L is what a plan
states. An interval is *approximate* if that is more than 1.5 points below its level: a fact of the
noise and the level, and not of any data.
"""

from __future__ import annotations

import functools
import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mechanisms.inference.intervals import normal_quantile
from mechanisms.inference.moments.one_column import ABOUT_MEAN

MOST_SHORTFALL = 0.015
"""By which the coverage of an interval may be below its level for rare values."""

MANY = 5.0
"""Noise in jumps beyond which rare values are hidden, at levels up to .999."""

SPREAD_NOISE = 1.0
"""The c of a quotient: noise in the estimated variance, over that in the figure, in jumps."""

_Doubles = NDArray[np.float64]
_PLACES = (-0.5, -0.1, 0.0, 0.1, 0.3)  # of the common value of a mean, about the middle
_RATES, _NOISE, _OTHER, _MOST_COUNTS = 24, 121, 5, 60


def inference_words(worst: float, level: float) -> Literal["asymptotic", "approximate"]:
    """What an interval of this worst coverage is called."""
    return "asymptotic" if worst >= level - MOST_SHORTFALL else "approximate"


@functools.lru_cache(maxsize=256)
def worst_of_mean(noise: float, square_weight: float, level: float) -> float:
    """Least coverage of ``moments.moment_interval`` for rare values.

    The common value a may be anywhere, and the jump is from there to a bound, 1/2: the variance by
    Wilson's form depends on it, and that about the noisy mean as well. The interval goes halfway
    from the one to the other where that is larger.

    Args:
        noise: Standard deviation of the noise on the sum, in declared ranges.
        square_weight: That on the sum of squares is ``noise`` over it.
        level: Confidence level.
    """
    if noise >= MANY:
        return level
    z, sq = normal_quantile(level), noise / square_weight
    worst = 1.0
    for a in _PLACES:
        jump = 0.5 - a
        for rate in np.geomspace(0.05 / jump, 300 / jump**1.5, _RATES):
            counts, masses, first, first_masses = _grid(float(rate))
            by_form = (jump * (counts * (0.5 + a) - 2 * a * rate))[:, None]
            about_mean = (counts * jump**2)[:, None] - 2 * a * noise * first
            larger = by_form + ABOUT_MEAN * np.maximum(about_mean - by_form, 0)
            off = ((counts - rate) * jump)[:, None] + noise * first
            covered = 0.0
            for other, mass in _other():
                spread = np.maximum(larger + sq * other, 0.0) + sq + noise**2
                covered += mass * float(masses @ ((off**2 <= z**2 * spread) @ first_masses))
            worst = min(worst, covered)
    return min(worst, level)


@functools.lru_cache(maxsize=256)
def worst_of_quotient(noise: float, level: float) -> float:
    """Least coverage of ``moment_sets.MomentSets`` for rare values.

    The noise in the variance may go along with that in the figure, or against it.

    Args:
        noise: Standard deviation of the noise on N - t D, in jumps of a record.
        level: Confidence level.
    """
    if noise >= MANY:
        return level
    z, c, worst = normal_quantile(level), SPREAD_NOISE * noise, 1.0
    for rate in np.geomspace(0.1, 100, _RATES):
        counts, masses, first, first_masses = _grid(float(rate))
        off = (counts - rate)[:, None] + noise * first
        for along in (-0.95, 0.95):
            covered = 0.0
            for other, mass in _other():
                joint = along * first + math.sqrt(1 - along**2) * other
                spread = np.maximum(counts[:, None] + c * joint, 0.0) + c + noise**2
                covered += mass * float(masses @ ((off**2 <= z**2 * spread) @ first_masses))
            worst = min(worst, covered)
    return min(worst, level)


@functools.lru_cache(maxsize=256)
def worst_of_share(noise: float, level: float) -> float:
    """Least coverage of Wilson's interval for a proportion, where the count K is Poisson(L).

    The variance is then known: the interval holds the truth if (K - L + s e)^2 <= z^2 (L + s^2).
    """
    from scipy.special import ndtr

    z, worst = normal_quantile(level), level
    for rate in np.geomspace(0.01, 100, 4 * _RATES):
        counts, masses, _, _ = _grid(float(rate))
        reach = z * math.sqrt(rate + noise**2)
        upper, lower = ((rate - counts + sign * reach) / noise for sign in (1, -1))
        worst = min(worst, float(masses @ (ndtr(upper) - ndtr(lower))))
    return worst


def _grid(rate: float) -> tuple[_Doubles, _Doubles, _Doubles, _Doubles]:
    """Counts with their Poisson masses, and normal points with theirs."""
    from scipy.special import gammaln

    reach = 7 * math.sqrt(rate) + 7
    every = np.arange(max(0, math.floor(rate - reach)), math.ceil(rate + reach) + 1)
    counts: _Doubles = every[:: max(1, len(every) // _MOST_COUNTS)].astype(np.float64)
    masses = np.exp(counts * math.log(rate) - rate - gammaln(counts + 1))
    points = np.linspace(-5, 5, _NOISE)
    normal = np.exp(-(points**2) / 2)
    return counts, masses / masses.sum(), points, normal / normal.sum()


def _other() -> list[tuple[float, float]]:
    points, masses = np.polynomial.hermite_e.hermegauss(_OTHER)
    return [(float(x), float(w / masses.sum())) for x, w in zip(points, masses, strict=True)]
