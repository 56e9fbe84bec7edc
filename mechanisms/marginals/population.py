"""Confidence limits for a population from one noisy sum of a random sample of privacy units.

The records belong to N units drawn at random, independently and from one population: with
replacement, or as few of many. The total T_i of a unit, the sum of the query's weights over its at
most c records, lies in a public range [a, b]. Wanted are limits for N E T, the expected sum of as
many units. Observed is y = sum T_i + Z, Z normal with a known standard deviation. With
X_i = (T_i - a)/(b - a) in [0, 1], of mean p, all follows from P(sum X_i >= x):

- *One record a unit and two weights*: X_i is 0 or 1, and the sum is Binomial(N, p).
- *Otherwise* records of a unit may be alike, or not at all. Let B_i be 1 with probability X_i,
  else 0, independently. Then sum B_i is Binomial(N, p), and given the X_i its mean is s = sum X_i
  and its median at least floor(s) (Jogdeo and Samuels 1968, doi 10.1214/aoms/1177698243). So
  P(Binomial(N, p) >= floor(x)) >= P(sum X_i >= x)/2, whatever the law of a unit's total is: twice
  the binomial probability of floor(x) is a bound. If all c records of a unit are alike, only the
  factor 2 and the rounding are given away.

The noise is inside: P(sum X_i + Z' >= y') is the mean of this over the scaled noise Z', whose law
is rounded upwards to nodes, so that the probability computed is never less than the truth. The
shares p at which it is at most half of what the level leaves to 1 are below the lower limit
(Clopper and Pearson 1934, doi 10.1093/biomet/26.4.404, with the noise inside), and the upper limit
is that of 1 - X_i. So an interval holds N E T with the stated probability or more, for every N and
p, as far as the noise is normal: it is a sum of discrete normal variables on a grid of 2^-20 of a
record, for which there is ``SLACK``. A noisy sum beyond the possible ones counts as the nearest of
them, which only widens the interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from statpress.mechanisms.errors import RecordsError
from statpress.mechanisms.marginals.target_tables import Floats
from statpress.mechanisms.tables.band_limits import (
    LEFT_OUT,
    MARGIN,
    binomial_at_least,
    place_limits,
)

SLACK = 1e-6
"""Records by which a sum may be off by the grid of its noise and, per unit, by rounding."""
_ROUNDING = 1e-11
_NODES = 16  # to a deviation of the noise


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Privacy units that are a random sample.

    Attributes:
        n_units: Their public number N.
        unit_records: Most records of a unit, c.
        absent: Whether a unit may have fewer.

    Raises:
        RecordsError: A number is below 1.
    """

    n_units: int
    unit_records: int = 1
    absent: bool = False

    def __post_init__(self) -> None:
        if self.n_units < 1 or self.unit_records < 1:
            raise RecordsError("n_units and unit_records must be at least 1.")

    def totals(self, weights: Floats) -> tuple[float, float]:
        """The range [a, b] of a unit's total where its records count by these weights."""
        low, high = float(weights.min()), float(weights.max())
        if self.absent:
            low, high = min(low, 0.0), max(high, 0.0)
        return self.unit_records * low, self.unit_records * high

    def largest_variance(self, value: float, weights: Floats) -> float:
        """The largest variance by sampling of a sum whose expectation is this value.

        Totals of mean m in [a, b] have at most the variance (m - a)(b - m), since the mean of
        (T - a)(b - T) is not negative; those that are a or b have it.
        """
        low, high = self.totals(weights)
        mean = min(max(value / self.n_units, low), high)
        return self.n_units * (mean - low) * (high - mean)

    def limits(
        self, value: float, noise_sd: float, weights: Floats, confidence: float
    ) -> tuple[float, float]:
        """Limits of the expected sum of the weights over as many units.

        Args:
            value: The noisy sum over the sample.
            noise_sd: Standard deviation of its noise.
            weights: float64[..]: by which records are counted.
            confidence: Of the interval, between 0 and 1.
        """
        low, high = self.totals(weights)
        n, width = self.n_units, high - low
        if width <= 0:
            return n * low, n * low
        totals = _NoisyTotals(
            n_units=n,
            noise_sd=noise_sd / width,
            slack=SLACK / width + _ROUNDING * n,
            binary=self.unit_records == 1 and bool(np.isin(weights, (low, high)).all()),
        )
        alpha = (1 - confidence) / 2 * (1 - MARGIN)
        y = np.clip(np.array([(value - n * low) / width]), 0.0, float(n))
        (lower,), (upper,) = place_limits(totals, y, n, y / n, alpha)
        return n * (low + width * float(lower)), n * (low + width * float(upper))


@dataclass(frozen=True)
class _NoisyTotals:
    """A sum of N totals in [0, 1] with normal noise."""

    n_units: int
    noise_sd: float
    slack: float  # by which the sum may be off
    binary: bool  # whether a total is 0 or 1

    def exceeding(self, y: Floats, p: Floats, alpha: float, *, other: bool) -> Floats:
        """P(sum + noise >= y) or a little more, float64[k]."""
        del other  # the bound serves any totals, and the noise is symmetric
        from scipy.special import ndtr, ndtri

        reach = -float(ndtri(LEFT_OUT * alpha)) + 1 / _NODES
        places = np.arange(-reach, reach, 1 / _NODES)
        masses = np.diff(ndtr(places), prepend=0.0)
        least = y - self.noise_sd * places[:, None] - self.slack
        if self.binary:
            chances = binomial_at_least(np.ceil(least), self.n_units, p)
        else:
            chances = np.minimum(2 * binomial_at_least(np.floor(least), self.n_units, p), 1.0)
        return np.asarray(masses @ chances + ndtr(-places[-1]))
