"""Intervals from noisy bootstrap replicates of a scalar statistic.

All of it is post-processing of B replicates, each the statistic of a resample plus normal noise of
a known standard deviation sigma (Wang, Cheng and Awan 2022, arXiv 2210.06140).

**Calibrated intervals.** The noise on each replicate widens their percentiles by far more than the
mean of the replicates suffers from it: that mean has variance V (1 + 1/B) + sigma^2/B about, V the
variance of the statistic, where the replicates' own is V (n - 1)/n + sigma^2. A normal interval
around the mean needs V alone, estimated by what is left of the replicates' variance. The half-width
follows from it by the rule of mechanisms.inference.resampling.unknown_variance, which keeps the
level for every V from 0 to n D^2/4.

**Cap.** A statistic that one record moves by at most D has a variance of at most n D^2/4 under any
law of independent records (the bounded-differences form of the inequality of Efron and Stein 1981,
doi 10.1214/aos/1176345462). Every interval is truncated to what follows from that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.errors import ConfigError
from mechanisms.inference.intervals import check_level, normal_quantile
from mechanisms.inference.resampling.deconvolution import Deconvolved, deconvolve
from mechanisms.inference.resampling.unknown_variance import NoisyVariance, WidthRule

FEWEST, MOST = 50, 500
"""Replicates by default: enough to recover a distribution, and no more than gain by it."""


@dataclass(frozen=True)
class PointEstimate:
    """Algorithm 3.

    Attributes:
        value: Mean of the replicates.
        standard_error: Of that mean as an estimate; 0 where its square came out negative.
    """

    value: float
    standard_error: float


@dataclass(frozen=True)
class BootstrapInterval:
    """An interval, and whether its approximation can be trusted."""

    lower: float
    upper: float
    valid: bool


@dataclass(frozen=True, eq=False)
class NoisyReplicates:
    """Replicates of one scalar statistic with what is public about them.

    Attributes:
        values: float64[B].
        sigma: Standard deviation of the noise on each.
        n_records: Number of records n.
        sensitivity: Most that one record moves the statistic.
    """

    values: NDArray[np.float64]
    sigma: float
    n_records: int
    sensitivity: float

    def __post_init__(self) -> None:
        if len(self.values) < 2 or self.n_records < 2:
            raise ConfigError("Intervals need at least two replicates of two records.")

    @property
    def estimate(self) -> PointEstimate:
        """Point estimate with standard error (Algorithm 3)."""
        n, replicates = self.n_records, len(self.values)
        spread = float(np.var(self.values, ddof=1))
        more = n / (n - 1)
        square = (more + 1 / replicates) * spread - more * self.sigma**2
        return PointEstimate(float(np.mean(self.values)), math.sqrt(max(0.0, square)))

    @property
    def spread(self) -> float:
        """The distance of the quartiles."""
        low, high = np.quantile(self.values, (0.25, 0.75))
        return float(high - low)

    def deconvolved(self) -> Deconvolved:
        """The recovered sampling distribution (Algorithm 2)."""
        return deconvolve(self.values, self.sigma)

    def percentile_interval(self, level: float) -> BootstrapInterval:
        """Percentiles of the recovered sampling distribution, capped.

        Where half of the replicates are the same number, nothing can be recovered, and the
        interval is the cap.

        Raises:
            ConfigError: Fewer than 2/(1 - level) replicates (Remark 4.2).
        """
        check_replicates(len(self.values), level)
        if not self.spread:
            return self._capped(-math.inf, math.inf, level, valid=False)
        return self._capped(*self.deconvolved().interval(level), level, valid=True)

    def t_interval(self, level: float) -> BootstrapInterval:
        """Student's interval with adjusted degrees of freedom (Supplement D.2), capped.

        It is valid if the estimated variance is at least three of its standard deviations;
        if not, the interval is the cap.
        """
        from scipy.special import stdtrit

        check_level(level)
        n, replicates = self.n_records, len(self.values)
        spread = float(np.var(self.values, ddof=1))
        variance = n / (n - 1) * (spread - self.sigma**2)
        found = self.estimate
        if variance < 3 * spread * math.sqrt(2 / (replicates - 1)) or not found.standard_error:
            return self._capped(-math.inf, math.inf, level, valid=False)
        degrees = (variance / spread) ** 2 * (replicates - 1)
        reach = float(stdtrit(degrees, (1 + level) / 2)) * found.standard_error
        return self._capped(found.value - reach, found.value + reach, level, valid=True)

    @property
    def known(self) -> NoisyVariance:
        """What the half-width of a calibrated interval follows from."""
        n, replicates = self.n_records, len(self.values)
        return NoisyVariance(
            spread_gain=(n - 1) / n,
            spread_noise=self.sigma**2,
            freedom=replicates - 1,
            centre_gain=1 + (n - 1) / n / replicates,
            centre_noise=self.sigma**2 / replicates,
            most=n * self.sensitivity**2 / 4,
        )

    def calibrated_interval(self, level: float, rule: WidthRule) -> BootstrapInterval:
        """The mean of the replicates, give or take the half-width of a rule."""
        spread, centre = np.var(self.values, ddof=1, keepdims=True), self.estimate.value
        reach = float(rule.half_width(self.known, spread, level)[0])
        return BootstrapInterval(centre - reach, centre + reach, valid=True)

    def _capped(
        self, lower: float, upper: float, level: float, *, valid: bool
    ) -> BootstrapInterval:
        """Truncate an interval by the largest variance there can be."""
        centre, replicates = self.estimate.value, len(self.values)
        most = self.n_records * self.sensitivity**2 / 4 * (1 + 1 / replicates)
        cap = normal_quantile(level) * math.sqrt(most + self.sigma**2 / replicates)
        low = min(max(lower, centre - cap), centre + cap)
        return BootstrapInterval(low, max(min(upper, centre + cap), low), valid)


def default_replicates(
    level: float, *, n_records: int, mu: float, sensitivity: float, variance: float
) -> int:
    """The paper's rule within limits; its arguments are those of ``suggested_replicates``."""
    found = suggested_replicates(
        level, n_records=n_records, mu=mu, sensitivity=sensitivity, variance=variance
    )
    least = math.ceil(2 / (1 - level) - 1e-9)
    return max(least, min(max(found, FEWEST), MOST))


def suggested_replicates(
    level: float, *, n_records: int, mu: float, sensitivity: float, variance: float
) -> int:
    """The paper's rule of thumb for B (Remark 4.2), from public quantities.

    The largest B at which the noise on a replicate is not larger than the statistic's own
    variance, but at least 2/(1 - level), and no more than n.

    Args:
        level: Confidence level.
        n_records: Number of records n.
        mu: Of the whole release.
        sensitivity: Most that one record moves the statistic.
        variance: A presumed variance of the statistic, not of a record.
    """
    check_level(level)
    least = math.ceil(2 / (1 - level) - 1e-9)
    most = variance * mu**2 / (2 * -math.expm1(-1) * sensitivity**2)
    return max(least, min(int(most), n_records))


def check_replicates(replicates: int, level: float) -> None:
    """Refuse fewer replicates than percentiles of this level need."""
    check_level(level)
    least = math.ceil(2 / (1 - level) - 1e-9)
    if replicates < least:
        raise ConfigError(
            f"{replicates} replicates are too few for percentiles at level {level:g}.",
            next_step=f"Ask for at least {least}, or a lower level.",
        )
