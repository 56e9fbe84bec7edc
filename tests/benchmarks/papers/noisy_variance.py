"""NoisyVar and NoisyCov: parametric intervals from noisy moments (Du et al. 2020).

Algorithms 4 and 5 of Wang, Cheng and Awan (2022, arXiv 2210.06140), for comparison with their
bootstrap. Records are in [0, 1]; mean, variance and covariance (with n - 1) then have sensitivity
1/n. The noise variance printed there, 2B/(n mu)^2, is a misprint: two releases at mu-GDP together
take 2/(n mu)^2 each, three take 3/(n mu)^2.

The margin is half the distance of two quantiles of a mean (covariance) of n simulated normal
records plus noise. Those are normal up to the central limit theorem, so the quantiles are
taken in the limit of many simulations, without any. Algorithm 4 clamps the simulated records
to [0, 1], which makes them less dispersed than the data and the interval too short; without
the clamp it is nearly right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from statpress.mechanisms.accounting.losses import GaussianLoss
from statpress.mechanisms.errors import RecordsError
from statpress.mechanisms.estimates.fieller import normal_quantile

_Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class NoisyMoment:
    """Noise for k statistics of sensitivity 1/n that are mu-GDP together.

    Attributes:
        mu: Of all k releases together.
        statistics: Number of releases k: 2 for NoisyVar, 3 for NoisyCov.
    """

    mu: Fraction
    statistics: int

    def __post_init__(self) -> None:
        if self.mu <= 0 or self.statistics < 1:
            raise RecordsError("mu and the number of statistics must be positive.")

    def sigma(self, n_records: int) -> float:
        """Standard deviation of the noise on each statistic, sqrt(k)/(n mu)."""
        return math.sqrt(self.statistics) / (n_records * float(self.mu))

    def loss(self) -> GaussianLoss:
        """The privacy loss of all k releases."""
        return GaussianLoss(self.mu)


def mean_margin(
    mean: _Doubles, variance: _Doubles, *, n_records: int, sigma: float, level: float, clamp: bool
) -> _Doubles:
    """Half the width of NoisyVar's interval about the noisy mean (Algorithm 4).

    Args:
        mean: float64[..], noisy means.
        variance: float64[..], noisy variances; below 0 they are taken as 0.
        n_records: Number of records n.
        sigma: Standard deviation of the noise on each.
        level: Confidence level.
        clamp: Whether simulated records are clamped to [0, 1], as printed.
    """
    square = np.maximum(variance, 0.0)
    if clamp:
        square = clamped_variance(mean, square)
    margin: _Doubles = normal_quantile(level) * np.sqrt(square / n_records + sigma**2)
    return margin


def clamped_variance(mean: _Doubles, variance: _Doubles) -> _Doubles:
    """Variance of a normal record clamped to [0, 1]."""
    s = np.sqrt(np.maximum(variance, 1e-300))
    a, b = -mean / s, (1 - mean) / s
    inside = stats.norm.cdf(b) - stats.norm.cdf(a)
    over = stats.norm.sf(b)
    edge = stats.norm.pdf(a) - stats.norm.pdf(b)
    first = mean * inside + s * edge + over
    turn = a * stats.norm.pdf(a) - b * stats.norm.pdf(b)
    second = mean**2 * inside + 2 * mean * s * edge + s**2 * (inside + turn) + over
    found: _Doubles = np.maximum(second - first**2, 0.0)
    return found


def covariance_interval(
    one: _Doubles,
    two: _Doubles,
    covariance: _Doubles,
    *,
    n_records: int,
    sigma: float,
    level: float,
) -> tuple[_Doubles, _Doubles]:
    """NoisyCov's interval (Algorithm 5): both noisy variances and the noisy covariance.

    The covariance of n normal records has variance (v w + c^2)/(n - 1).
    """
    v, w = np.maximum(one, 0.0), np.maximum(two, 0.0)
    most = np.sqrt(v * w)
    centre = np.clip(covariance, -most, most)
    square = (v * w + centre**2) / (n_records - 1) + sigma**2
    margin = normal_quantile(level) * np.sqrt(square)
    return centre - margin, centre + margin
