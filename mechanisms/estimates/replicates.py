"""Noisy bootstrap replicates of a statistic: intervals and deconvolution.

Deconvolution by g-modelling: the law of X from Y = X + normal noise of known size.

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

Intervals from noisy bootstrap replicates of a scalar statistic.

All of it is post-processing of B replicates, each the statistic of a resample plus normal noise of
a known standard deviation sigma (Wang, Cheng and Awan 2022, arXiv 2210.06140).

**Calibrated intervals.** The noise on each replicate widens their percentiles by far more than the
mean of the replicates suffers from it: that mean has variance V (1 + 1/B) + sigma^2/B about, V the
variance of the statistic, where the replicates' own is V (n - 1)/n + sigma^2. A normal interval
around the mean needs V alone, estimated by what is left of the replicates' variance. The half-width
follows from it by the rule of statpress.mechanisms.estimates.resampling_noise, which keeps the
level for every V from 0 to n D^2/4.

**Cap.** A statistic that one record moves by at most D has a variance of at most n D^2/4 under any
law of independent records (the bounded-differences form of the inequality of Efron and Stein 1981,
doi 10.1214/aos/1176345462). Every interval is truncated to what follows from that.

Noisy bootstrap replicates of a statistic: the DP bootstrap, strictly at finite B.

Algorithm 1 of Wang, Cheng and Awan (2022, arXiv 2210.06140) on weighted cells: a replicate is the
statistic of a bootstrap resample plus Gaussian noise. Replace-one neighbours; a unit is one
record. The loss of one replicate is theirs of Theorem 3.4
(mechanisms.accounting.noise_losses), composed B times; the noise is the least that is proven
to meet the goal, or the paper's, asymptotic and too small, for comparison. Either way ``loss`` is
the proven cost of the noise used.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.accounting.losses import PrivacyLoss
from statpress.mechanisms.accounting.noise_losses import BootstrapLoss
from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.errors import ConfigError, InfeasibleBudgetError, RecordsError
from statpress.mechanisms.estimates.fieller import check_level, normal_quantile
from statpress.mechanisms.estimates.resampling_noise import (
    Goal,
    NoisyVariance,
    WidthRule,
    composed,
    gaussian_goal,
    largest_mu_squared,
    paper_mu_squared,
)
from statpress.mechanisms.estimates.statistics import Statistic, evaluated
from statpress.mechanisms.sampling.randomness import Randomness, StatisticNoise
from statpress.mechanisms.sampling.record_sampler import BootstrapSampler

POINTS = 1000
DEGREES = 5
PENALTY = 0.1
BINS = 40
_STEPS, _TOLERANCE = 100, 1e-7
_Doubles = NDArray[np.float64]


class Objective(NamedTuple):
    """What is minimised, and its first two derivatives."""

    value: float
    gradient: _Doubles
    hessian: _Doubles


@dataclass(frozen=True, eq=False)
class Deconvolved:
    """A recovered distribution.

    Attributes:
        points: float64[1000], equidistant.
        masses: float64[1000], adding up to 1.
        coefficients: float64[5], the a of the model.
        steps: Newton steps taken.
    """

    points: _Doubles
    masses: _Doubles
    coefficients: _Doubles
    steps: int

    def quantile(self, share: float) -> float:
        """The point below which this share of the mass lies, interpolated."""
        return float(np.interp(share, np.cumsum(self.masses), self.points))

    def interval(self, level: float) -> tuple[float, float]:
        """The percentile interval of this level."""
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)


def deconvolve(noisy: _Doubles, sigma: float, *, penalty: float = PENALTY) -> Deconvolved:
    """The law of what the noise was added to.

    Args:
        noisy: float64[B], finite.
        sigma: Standard deviation of the noise, above 0.
        penalty: The c0 of the model.

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
    a: _Doubles, kernel: _Doubles, counts: _Doubles, penalty: float, basis: _Doubles
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
def spline_basis(points: int = POINTS, degrees: int = DEGREES) -> _Doubles:
    """Natural cubic splines on equidistant points, as R's ``ns`` has them, centred and scaled.

    Returns:
        float64[points, degrees], every column of mean 0 and length 1.
    """
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
    found: _Doubles = natural / np.linalg.norm(natural, axis=0)
    return found


def _density(a: _Doubles, basis: _Doubles) -> _Doubles:
    """Masses proportional to exp(basis a)."""
    logs = basis @ a
    g = np.exp(logs - logs.max())
    found: _Doubles = g / g.sum()
    return found


def _minimise(points: _Doubles, kernel: _Doubles, counts: _Doubles, penalty: float) -> Deconvolved:
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


Calibration = Literal["strict", "paper"]
_CHUNK = 1 << 20  # counts held at a time


@dataclass(frozen=True)
class BootstrapReplicates:
    """The release of B noisy replicates at fixed parameters; all of them are public.

    Attributes:
        statistic: What is replicated.
        n_records: Number of records n.
        replicates: Number of replicates B.
        noise: On each of them.
        calibration: How the noise was chosen.
    """

    statistic: Statistic
    n_records: int
    replicates: int
    noise: StatisticNoise
    calibration: Calibration = "strict"

    def __post_init__(self) -> None:
        if self.n_records < 2 or self.replicates < 1:
            raise RecordsError("A bootstrap needs two records and one replicate at least.")

    @classmethod
    def calibrate(
        cls,
        statistic: Statistic,
        goal: Goal | Fraction,
        *,
        n_records: int,
        replicates: int,
        n_cells: int | None = None,
    ) -> BootstrapReplicates:
        """The least noise proven to meet a goal, or mu-GDP down to delta = 1e-10.

        Args:
            statistic: What is replicated.
            goal: Points (epsilon, largest delta), or a mu.
            n_records: Number of records n.
            replicates: Number of replicates B.
            n_cells: Of the declared domain; as many as records if not given.
        """
        StatisticNoise.check_accuracy(n_records=n_records, n_cells=n_cells or n_records)
        part = BootstrapLoss(Fraction(1), n_records)
        points = gaussian_goal(goal) if isinstance(goal, Fraction) else goal
        square = largest_mu_squared(part, replicates, points)
        return cls(statistic, n_records, replicates, _noise(statistic, n_records, square))

    @classmethod
    def as_in_paper(
        cls,
        statistic: Statistic,
        mu: Fraction,
        *,
        n_records: int,
        replicates: int,
        n_cells: int | None = None,
    ) -> BootstrapReplicates:
        """The paper's noise, which costs more than mu; ``loss`` says how much."""
        StatisticNoise.check_accuracy(n_records=n_records, n_cells=n_cells or n_records)
        square = paper_mu_squared(mu, replicates)
        noise = _noise(statistic, n_records, square)
        return cls(statistic, n_records, replicates, noise, "paper")

    def loss(self) -> PrivacyLoss:
        """The privacy loss of all replicates; takes no data."""
        return composed(BootstrapLoss(self.noise.mu_squared, self.n_records), self.replicates)

    def check_goal(self, goal: Goal) -> None:
        """Refuse noise, the paper's, of which the proven loss passes a goal.

        Raises:
            InfeasibleBudgetError: It does.
        """
        loss = self.loss()
        if any(loss.delta(epsilon).upper > delta for epsilon, delta in goal):
            raise InfeasibleBudgetError(
                "The paper's noise costs more than this budget.",
                next_step="Raise the budget, lower mu, or leave 'calibration' and 'mu' out.",
            )

    def release(
        self, counts: Codes, columns: NDArray[np.float64], rng: Randomness
    ) -> NDArray[np.float64]:
        """Noisy replicates.

        Args:
            counts: int64[k], private counts of the occupied cells, adding up to n.
            columns: float64[k, c], values of the statistic's columns in [0, 1].
            rng: Source of bits; charge the ledger before building it.

        Returns:
            float64[B, dimension].
        """
        found = np.empty((self.replicates, self.statistic.dimension))
        sampler = BootstrapSampler(counts)
        step = min(self.replicates, max(1, _CHUNK // len(counts)))
        weights = np.empty((step, len(counts)), np.int64)
        for start in range(0, self.replicates, step):
            part = found[start : start + step]
            resamples = sampler.draw(len(part), rng, out=weights[: len(part)])
            part[:] = evaluated(self.statistic, resamples, columns)
        return self.noise.release(found, rng)

    def inference(self, values: NDArray[np.float64], coordinate: int = 0) -> NoisyReplicates:
        """One coordinate of what was released, with what its intervals need."""
        most = float(self.noise.sensitivity)
        return NoisyReplicates(values[:, coordinate], self.noise.sigma, self.n_records, most)


def _noise(statistic: Statistic, n_records: int, mu_squared: Fraction) -> StatisticNoise:
    found = StatisticNoise.calibrate(
        mu_squared,
        sensitivity=Fraction(statistic.constant) / n_records,
        dimension=statistic.dimension,
    )
    found.check_bounds(*statistic.bounds)
    return found
