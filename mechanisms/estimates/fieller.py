"""Normal quantiles, and confidence sets for quotients, which may be unbounded (Fieller 1954).

For a quotient t = N/D of two unknown figures, estimated by n and d with about normal errors of
variances v_nn and v_dd and covariance v_nd, N - t D = 0 whatever D is, and n - t d is about normal
with mean 0 at the true t. So the set

    {t : (n - t d)^2 <= z^2 (v_nn - 2 t v_nd + t^2 v_dd)}

holds t with the probability of (-z, z), however close to 0 the denominator is. No gate on d is
needed; one would select the releases in which the noise made d large, and of the intervals that
pass it far fewer hold t than they claim. With a = d^2 - z^2 v_dd, b = n d - z^2 v_nd, c = n^2 - z^2
v_nn the set is a t^2 - 2 b t + c <= 0:

- a > 0 (d is significant): an interval, about n/d;
- a < 0 and b^2 > a c: all but an open interval, the *gap*;
- a < 0 and b^2 <= a c: the whole line;
- a = 0: a half line, or the whole line.

**Sets that are intervals by luck.** Where D is near 0 the set is seldom an interval, but when it
is, d was made large by its error and n/d is far too near 0. Over all releases the set covers; over
those with an interval it need not, and as D goes to 0 no such interval holds t. A rule that gives
intervals at all has such a D, but how seldom intervals are there can be chosen. Let D be w and d be
s = w + e standard deviations of d. Where t is far from 0, n - t d is about -t times the error of d,
and the set holds t just if |e| <= z. Let z be a decreasing function of s that is at most z', so
that the set is an interval for s > z'. It misses t for e > z(w), with z(w) the z at the s where
s - z = w. Of the releases with an interval these are at most alpha/2 if

    1 - Phi(z(w)) = (1 - Phi(z' - w)) alpha/2,

and z(w) is taken so, but for z' where that is larger. With 1 - Phi(z') = alpha ``RARE``/2 it is
so only where intervals are rarer than ``RARE``. For e < -z the set misses t too, more seldom given
an interval than without. So among intervals the coverage is 1 - alpha wherever they are not rarer,
if the errors are normal with a known variance. Noise has such errors; the number of a few sampled
records does not (statpress.mechanisms.estimates.pair_moments).
At the level .95 z falls from 3.29 at s = 4.5 to 2.36 at s = 5.3 and 1.97 at s = 7.2, to Fieller's
1.96. The larger sets hold the smaller ones, so that the coverage over all releases is not less.
If D is known to be positive, an interval for d < 0 is always by luck, and the whole line is taken.

What is known of t beforehand cuts the set: a ratio of amounts is not negative, so that its set may
be a half line. Sets are published whole, as ends and gap. (Fieller 1954,
doi 10.1111/j.2517-6161.1954.tb00159.x. By Gleser and Hwang 1987, doi 10.1214/aos/1176350597, no
set that is always bounded can hold a quotient with a given probability.)
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.errors import ConfigError

Floats = NDArray[np.float64]


def check_level(level: float) -> None:
    """Refuse a confidence level that is not between 0 and 1."""
    if not 0 < level < 1:
        raise ConfigError("A confidence level must be above 0 and below 1.")


def normal_quantile(level: float) -> float:
    """The normal quantile of a two-sided interval."""
    check_level(level)
    return NormalDist().inv_cdf((1 + level) / 2)


INTERVAL, HALF_LINE, GAP = "interval", "half line", "complement of an interval"
WHOLE_LINE, WHOLE_RANGE = "whole line", "whole range"
_REACH, _POINTS = 6.0, 2000
SHAPES = (INTERVAL, HALF_LINE, GAP, WHOLE_LINE, WHOLE_RANGE)
"""What a confidence set can be."""
RARE = 0.02
"""Share of releases: where fewer have an interval, those may hold the value less often."""


def cautious_quantile(significance: Floats, level: float) -> Floats:
    """The normal quantile by which sets hold as often where they are intervals."""
    z, at = _cautious_quantiles(level)
    return np.interp(significance, at, z)


@functools.lru_cache(maxsize=256)
def _cautious_quantiles(level: float) -> tuple[Floats, Floats]:
    """z(w) and w + z(w), ascending."""
    from scipy.special import ndtr, ndtri

    alpha = 1 - level
    most = normal_quantile(1 - RARE * alpha)
    w = np.linspace(-1, most + _REACH, _POINTS)
    z: Floats = np.minimum(-ndtri(alpha / 2 * ndtr(w - most)), most)
    z[-1] = normal_quantile(level)
    return z, w + z


class Quotient(NamedTuple):
    """A numerator and a denominator as estimated, with their errors; float64[..] each."""

    top: Floats  # of the numerator
    below: Floats  # of the denominator
    top_variance: Floats  # of the numerator's error
    covariance: Floats  # of both errors
    below_variance: Floats  # of the denominator's error

    def holds(self, t: float, z: float) -> NDArray[np.bool_]:
        """Whether the set holds t; bool[..]."""
        spread = self.top_variance - 2 * t * self.covariance + t**2 * self.below_variance
        return np.asarray((self.top - t * self.below) ** 2 <= z**2 * spread)

    def sets(self, z: float, bounds: tuple[float, float]) -> Sets:
        """The confidence sets at the normal quantile z, between the bounds of the quotient."""
        with np.errstate(all="ignore"):
            return _cut(*self._roots(z), bounds)

    def cautious_sets(
        self, level: float, bounds: tuple[float, float], by_noise: NDArray[np.bool_]
    ) -> Sets:
        """The sets for a positive denominator: none is an interval only by luck.

        They are widened where ``by_noise``, bool[..]: noise decides how far d is off.
        """
        plain = np.full(np.shape(self.below), normal_quantile(level))
        with np.errstate(all="ignore"):
            significance = self.below / np.sqrt(self.below_variance)
            z = np.where(by_noise, cautious_quantile(significance, level), plain)
            lower, upper, gap_lower, gap_upper = self._roots(z)
            lucky = (self.below <= 0) & np.isfinite(lower) & np.isfinite(upper)
            lower, upper = np.where(lucky, -math.inf, lower), np.where(lucky, math.inf, upper)
            return _cut(lower, upper, gap_lower, gap_upper, bounds)

    def _roots(self, z: float | Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Ends and gap on the whole line; a gap that is not there is NaN."""
        top, below, top_variance, both, below_variance = np.broadcast_arrays(*self)
        a = below**2 - z**2 * below_variance
        b = top * below - z**2 * both
        c = top**2 - z**2 * top_variance
        # The root that does not cancel, and the other by the product of both, c/a.
        root = b + np.copysign(np.sqrt(np.maximum(b**2 - a * c, 0.0)), b)
        one, two = root / a, np.where(root == 0, 0.0, c / root)
        low, high = np.minimum(one, two), np.maximum(one, two)
        none = np.full(a.shape, np.nan)
        whole = (a < 0) & (b**2 <= a * c)
        gap, bounded = (a < 0) & ~whole, a > 0
        half = np.where(b == 0, np.nan, c / (2 * b))  # where a = 0: -2 b t + c <= 0
        flat = (a == 0) & (b != 0)
        lower = np.where(bounded, low, np.where(flat & (b > 0), half, -math.inf))
        upper = np.where(bounded, high, np.where(flat & (b < 0), half, math.inf))
        return lower, upper, np.where(gap, low, none), np.where(gap, high, none)


class Sets(NamedTuple):
    """Confidence sets; float64[..] each."""

    lower: Floats  # least value; may be infinite
    upper: Floats  # largest value; may be infinite
    gap_lower: Floats  # the values between it and ``gap_upper`` are excluded; NaN: there is no gap
    gap_upper: Floats

    def one(self, bounds: tuple[float, float]) -> ConfidenceSet:
        """The only one, of arrays without axes."""
        lower, upper, gap_lower, gap_upper = (float(array) for array in self)
        gap = None if math.isnan(gap_lower) else (gap_lower, gap_upper)
        return ConfidenceSet(lower, upper, gap, bounds)


@dataclass(frozen=True)
class ConfidenceSet:
    """One confidence set."""

    lower: float  # least value; may be infinite
    upper: float  # largest value; may be infinite
    gap: tuple[float, float] | None  # between which no value is in it; None: it has no gap
    bounds: tuple[float, float]  # between which all values are that are possible

    @property
    def shape(self) -> str:
        """One of ``SHAPES``."""
        if self.gap is not None:
            return GAP
        ends = math.isinf(self.lower) + math.isinf(self.upper)
        if (self.lower, self.upper) == self.bounds:
            return (WHOLE_RANGE, HALF_LINE, WHOLE_LINE)[ends]
        return HALF_LINE if ends else INTERVAL


def _cut(
    lower: Floats,
    upper: Floats,
    gap_lower: Floats,
    gap_upper: Floats,
    bounds: tuple[float, float],
) -> Sets:
    """Sets on the whole line, within bounds; never empty."""
    low, high = bounds
    lower, upper = np.clip(lower, low, high), np.clip(upper, low, high)
    left, right = gap_lower >= low, gap_upper <= high  # what is left on either side of a gap
    lower = np.where(right & ~left & (gap_upper > low), np.maximum(lower, gap_upper), lower)
    upper = np.where(left & ~right & (gap_lower < high), np.minimum(upper, gap_lower), upper)
    inside = left & right
    return Sets(
        lower, upper, np.where(inside, gap_lower, np.nan), np.where(inside, gap_upper, np.nan)
    )
