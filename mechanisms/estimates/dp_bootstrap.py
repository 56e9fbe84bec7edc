"""The DP bootstrap: estimates from noisy statistics of bootstrap resamples, strictly at finite B.

Algorithm 1 of Wang, Cheng and Awan (2022, arXiv 2210.06140) on weighted cells: a replicate is the
statistic of a bootstrap resample plus normal noise of a known standard deviation sigma. Replace-one
neighbours; a unit is one record. The loss of one replicate is theirs of Theorem 3.4
(mechanisms.accounting.noise_losses), composed B times. Variances and covariances have n - 1.

**calibration: strict** is the least noise that is proven to meet the budget. **paper** takes a mu
and the paper's noise for it, which is asymptotic and too small; the proven loss is charged.

**inference: calibrated** is a normal interval around the mean of the replicates, whose constants
are in the description. The noise on each replicate widens their percentiles by far more than the
mean of the replicates suffers from it: that mean has variance V (1 + 1/B) + sigma^2/B about, V the
variance of the statistic, where the replicates' own is V (n - 1)/n + sigma^2. A normal interval
around the mean needs only V, estimated by what is left of the replicates' variance. The half-width
follows from it by the rule of statpress.mechanisms.estimates.resampling_noise, which keeps the
level for every V from 0 to n D^2/4. **percentile** and **t** are those of the paper; the sampling
distribution is recovered by deconvolution. All of it is post-processing of the replicates.

**Cap.** A statistic that one record moves by at most D has a variance of at most n D^2/4 under any
law of independent records (the bounded-differences form of the inequality of Efron and Stein 1981,
doi 10.1214/aos/1176345462). Every interval is truncated to what follows from that.

**Deconvolution** by g-modelling gives the law of X from Y = X + normal noise of known size. The
model is Efron's (2016, doi 10.1093/biomet/asv068), with the choices of Wang, Cheng and Awan (2022,
arXiv 2210.06140), Section 4.3: X is on 1000 points from q1 - 3 IQR to q3 + 3 IQR of Y, its density
there exp(Q a) up to a factor, Q a natural spline basis of 5 columns, centred and of unit length
(R's ``ns`` and the package deconvolveR). Y is taken in 40 bins, their probabilities P g, and a
minimises

    -sum over bins of count log(P g)  +  c0 |a|,  c0 = 0.1.

The basis depends only on the number of points, so it is computed once. The minimum is found by
Newton's method, damped, with the gradient and the Hessian in closed form (Efron 2016,
doi 10.1093/biomet/asv068, section 3): with W the matrix of g (P/f - 1), f = P g and y the counts,
they are -Q' W' y and

    A' diag(y) A + (A' y) (Q' g)' + (Q' g) (A' y)' - Q' diag(W' y) Q,  A = W Q.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args

import numpy as np

from statpress.mechanisms.accounting.losses import PrivacyLoss
from statpress.mechanisms.accounting.noise_losses import BootstrapLoss
from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.errors import ConfigError, InfeasibleBudgetError, RecordsError
from statpress.mechanisms.estimates.estimand import EstimandKnobs
from statpress.mechanisms.estimates.estimate import RawEstimates, SamplingDistribution, number
from statpress.mechanisms.estimates.fieller import Floats, check_level, normal_quantile
from statpress.mechanisms.estimates.resampled import (
    DeclaredStatistic,
    Interval,
    ResampledEstimate,
    proven,
)
from statpress.mechanisms.estimates.resampling_noise import (
    Goal,
    NoiseSearch,
    NoisyVariance,
    WidthRule,
    composed,
    gaussian_goal,
    largest_mu_squared,
    widths_from_description,
)
from statpress.mechanisms.estimates.statistics import (
    NamedStatistic,
    Scale,
    Statistic,
    Terms,
    evaluated,
)
from statpress.mechanisms.mechanism import (
    BALLE_BARTHE_GABOARDI,
    PROOF,
    WANG_CHENG_AWAN,
    Citation,
    Target,
)
from statpress.mechanisms.sampling.randomness import Randomness, StatisticNoise
from statpress.mechanisms.sampling.record_sampler import BootstrapSampler

POINTS = 1000
DEGREES = 5
PENALTY = 0.1
BINS = 40
_STEPS, _TOLERANCE = 100, 1e-7


class Objective(NamedTuple):
    """What is minimised, and its first two derivatives."""

    value: float
    gradient: Floats
    hessian: Floats


@dataclass(frozen=True, eq=False)
class Deconvolved:
    """A recovered distribution."""

    points: Floats  # float64[1000], equidistant
    masses: Floats  # float64[1000], adding up to 1
    coefficients: Floats  # float64[5], the a of the model
    steps: int  # Newton steps taken

    def quantile(self, share: float) -> float:
        """The point below which this share of the mass lies, interpolated."""
        return float(np.interp(share, np.cumsum(self.masses), self.points))

    def interval(self, level: float) -> tuple[float, float]:
        """The percentile interval of this level."""
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)


def deconvolve(noisy: Floats, sigma: float, *, penalty: float = PENALTY) -> Deconvolved:
    """The law of what noise of standard deviation sigma was added to, from float64[B].

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
    a: Floats, kernel: Floats, counts: Floats, penalty: float, basis: Floats
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
def spline_basis(points: int = POINTS, degrees: int = DEGREES) -> Floats:
    """Natural cubic splines like R's ``ns``, every column of mean 0 and length 1."""
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
    return np.asarray(natural / np.linalg.norm(natural, axis=0))


def _density(a: Floats, basis: Floats) -> Floats:
    """Masses proportional to exp(basis a)."""
    logs = basis @ a
    g = np.exp(logs - logs.max())
    return np.asarray(g / g.sum())


def _minimise(points: Floats, kernel: Floats, counts: Floats, penalty: float) -> Deconvolved:
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


Calibration = Literal["strict", "paper"]
Inference = Literal["calibrated", "percentile", "t"]
_CHUNK = 1 << 20  # counts held at a time


FEWEST, MOST = 50, 500
"""Replicates by default: enough to recover a distribution, and no more than gain by it."""


@dataclass(frozen=True, eq=False)
class NoisyReplicates:
    """Replicates of one scalar statistic with what is public about them."""

    values: Floats  # float64[B]
    sigma: float  # standard deviation of the noise on each
    n_records: int  # number of records n
    sensitivity: float  # most that one record moves the statistic

    def __post_init__(self) -> None:
        if len(self.values) < 2 or self.n_records < 2:
            raise ConfigError("Intervals need at least two replicates of two records.")

    @property
    def mean(self) -> float:
        """The point estimate (Algorithm 3)."""
        return float(np.mean(self.values))

    @property
    def standard_error(self) -> float:
        """Standard error of the mean (Algorithm 3); 0 where the square came out negative."""
        n, replicates = self.n_records, len(self.values)
        spread = float(np.var(self.values, ddof=1))
        more = n / (n - 1)
        square = (more + 1 / replicates) * spread - more * self.sigma**2
        return math.sqrt(max(0.0, square))

    @property
    def spread(self) -> float:
        """The distance of the quartiles."""
        low, high = np.quantile(self.values, (0.25, 0.75))
        return float(high - low)

    def deconvolved(self) -> Deconvolved:
        """The recovered sampling distribution (Algorithm 2)."""
        return deconvolve(self.values, self.sigma)

    def percentile_interval(self, level: float) -> Interval:
        """Percentiles of the recovered sampling distribution, capped (Remark 4.2).

        Where half of the replicates are the same number, nothing can be recovered, and the
        interval is the cap.
        """
        check_replicates(len(self.values), level)
        if not self.spread:
            return self._capped(-math.inf, math.inf, level, valid=False)
        return self._capped(*self.deconvolved().interval(level), level, valid=True)

    def t_interval(self, level: float) -> Interval:
        """Student's interval with adjusted degrees of freedom (Supplement D.2), capped.

        It is valid if the estimated variance is at least three of its standard deviations;
        if not, the interval is the cap.
        """
        from scipy.special import stdtrit

        check_level(level)
        n, replicates = self.n_records, len(self.values)
        spread = float(np.var(self.values, ddof=1))
        variance = n / (n - 1) * (spread - self.sigma**2)
        centre, error = self.mean, self.standard_error
        if variance < 3 * spread * math.sqrt(2 / (replicates - 1)) or not error:
            return self._capped(-math.inf, math.inf, level, valid=False)
        degrees = (variance / spread) ** 2 * (replicates - 1)
        reach = float(stdtrit(degrees, (1 + level) / 2)) * error
        return self._capped(centre - reach, centre + reach, level, valid=True)

    @property
    def known(self) -> NoisyVariance:
        """What the half-width of a calibrated interval follows from."""
        return _known(self.n_records, len(self.values), self.sigma, self.sensitivity)

    def calibrated_interval(self, level: float, rule: WidthRule) -> Interval:
        """The mean of the replicates, give or take a half-width of ``resampling_noise``.

        Args:
            level: Nominal coverage, between 0 and 1.
            rule: From the spread of the replicates to the half-width.
        """
        spread, centre = np.var(self.values, ddof=1, keepdims=True), self.mean
        reach = float(rule.half_width(self.known, spread, level)[0])
        return Interval(centre, centre - reach, centre + reach, self.standard_error)

    def _capped(self, lower: float, upper: float, level: float, *, valid: bool) -> Interval:
        """Truncate an interval by the largest variance there can be."""
        centre, replicates = self.mean, len(self.values)
        most = self.n_records * self.sensitivity**2 / 4 * (1 + 1 / replicates)
        cap = normal_quantile(level) * math.sqrt(most + self.sigma**2 / replicates)
        low = min(max(lower, centre - cap), centre + cap)
        high = max(min(upper, centre + cap), low)
        return Interval(centre, low, high, self.standard_error, valid)


def _known(n: int, replicates: int, sigma: float, sensitivity: float) -> NoisyVariance:
    return NoisyVariance(
        spread_gain=(n - 1) / n,
        spread_noise=sigma**2,
        freedom=replicates - 1,
        centre_gain=1 + (n - 1) / n / replicates,
        centre_noise=sigma**2 / replicates,
        most=n * sensitivity**2 / 4,
    )


def default_replicates(
    level: float, *, n_records: int, mu: float, sensitivity: float, variance: float
) -> int:
    """The paper's rule (see ``suggested_replicates``) within limits."""
    suggested = suggested_replicates(
        level, n_records=n_records, mu=mu, sensitivity=sensitivity, variance=variance
    )
    return max(_least_replicates(level), min(max(suggested, FEWEST), MOST))


def suggested_replicates(
    level: float, *, n_records: int, mu: float, sensitivity: float, variance: float
) -> int:
    """The paper's rule of thumb for B (Remark 4.2), from public quantities.

    The largest B at which the noise on a replicate is not larger than the presumed variance of the
    statistic (not of a record), but at least 2/(1 - level), and no more than n.
    """
    check_level(level)
    most = variance * mu**2 / (2 * -math.expm1(-1) * sensitivity**2)
    return max(_least_replicates(level), min(int(most), n_records))


def _least_replicates(level: float) -> int:
    return math.ceil(2 / (1 - level) - 1e-9)


def check_replicates(replicates: int, level: float) -> None:
    """Refuse fewer replicates than percentiles of this level need."""
    check_level(level)
    least = _least_replicates(level)
    if replicates < least:
        raise ConfigError(
            f"{replicates} replicates are too few for percentiles at level {level:g}.",
            next_step=f"Ask for at least {least}, or a lower level.",
        )


@dataclass(frozen=True)
class BootstrapReplicates:
    """The release of B noisy replicates at fixed parameters; all of them are public."""

    statistic: Statistic  # what is replicated
    n_records: int  # number of records n
    replicates: int  # number of replicates B
    noise: StatisticNoise  # on each of them
    calibration: Calibration = "strict"  # how the noise was chosen

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
        search: NoiseSearch = largest_mu_squared,
    ) -> BootstrapReplicates:
        """The least noise proven to meet a goal, or mu-GDP down to delta = 1e-10.

        ``n_cells`` is that of the declared domain; as many as records if not given.
        """
        StatisticNoise.check_accuracy(n_records=n_records, n_cells=n_cells or n_records)
        part = BootstrapLoss(Fraction(1), n_records)
        points = gaussian_goal(goal) if isinstance(goal, Fraction) else goal
        square = search(part, replicates, points)
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
        """Refuse noise, the paper's, of which the proven loss passes a goal."""
        loss = self.loss()
        if any(loss.delta(epsilon).upper > delta for epsilon, delta in goal):
            raise InfeasibleBudgetError(
                "The paper's noise costs more than this budget.",
                next_step="Raise the budget, lower mu, or leave 'calibration' and 'mu' out.",
            )

    def release(
        self, counts: Codes, columns: Floats, rng: Randomness, *, chunk: int = _CHUNK
    ) -> Floats:
        """Noisy replicates float64[B, dimension].

        Args:
            counts: int64[k], private counts of the occupied cells, adding up to n.
            columns: float64[k, c], values of the statistic's columns in [0, 1].
            rng: Source of bits; charge the ledger before building it.
            chunk: Counts held at a time.
        """
        values = np.empty((self.replicates, self.statistic.dimension))
        sampler = BootstrapSampler(counts)
        step = min(self.replicates, max(1, chunk // len(counts)))
        weights = np.empty((step, len(counts)), np.int64)
        for start in range(0, self.replicates, step):
            part = values[start : start + step]
            resamples = sampler.draw(len(part), rng, out=weights[: len(part)])
            part[:] = evaluated(self.statistic, resamples, columns)
        return self.noise.release(values, rng)

    @property
    def known(self) -> NoisyVariance:
        """What the half-width of a calibrated interval follows from."""
        most = float(self.noise.sensitivity)
        return _known(self.n_records, self.replicates, self.noise.sigma, most)

    def inference(self, values: Floats, coordinate: int = 0) -> NoisyReplicates:
        """One coordinate of what was released, with what its intervals need."""
        most = float(self.noise.sensitivity)
        return NoisyReplicates(values[:, coordinate], self.noise.sigma, self.n_records, most)


def paper_mu_squared(mu: Fraction, replicates: int) -> Fraction:
    """Square of the mu of one replicate by the paper's limit, mu^2 / ((2 - 2/e) B), rounded."""
    return Fraction(float(mu**2) / (2 * -math.expm1(-1) * replicates))


def _noise(statistic: Statistic, n_records: int, mu_squared: Fraction) -> StatisticNoise:
    noise = StatisticNoise.calibrate(
        mu_squared,
        sensitivity=Fraction(statistic.constant) / n_records,
        dimension=statistic.dimension,
    )
    noise.check_bounds(*statistic.bounds)
    return noise


@dataclass(frozen=True, kw_only=True)
class BootstrapKnobs(EstimandKnobs):
    """What a config may say about this mechanism.

    Attributes:
        replicates: Their number; by default chosen from public quantities.
        inference: A normal interval that keeps its level whatever the variance, percentiles of the
            recovered distribution, or Student's interval.
        calibration: The least noise that meets the budget, or that of the paper.
        mu: For the paper's noise, what the paper says it costs.
    """

    replicates: int | None = None
    inference: Inference = "calibrated"  # type: ignore[assignment]  # it has three of its own
    calibration: Calibration = "strict"
    mu: Fraction | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.mu is not None) != (self.calibration == "paper"):
            raise ConfigError(
                "A 'mu' goes with 'calibration: paper', which needs one.", where="calibration"
            )
        if self.mu is not None and self.mu <= 0:
            raise RecordsError("mu must be positive.", where="mu")
        if self.replicates is not None:
            if self.replicates < 2:
                raise RecordsError("A bootstrap needs two replicates.", where="replicates")
            if self.inference == "percentile":
                check_replicates(self.replicates, self.confidence)


@dataclass(frozen=True, kw_only=True)
class BootstrapEstimate(ResampledEstimate):
    """The release at fixed parameters; all of them are public.

    Attributes:
        resamples: The replicates and the noise on them.
        inference: How intervals are made of them.
        rules: Of calibrated intervals, from the replicates' variance to the half-width.
        paper_mu: What the paper says that its noise costs, if it was taken.
    """

    name: ClassVar[str] = "dp_bootstrap"
    citations: ClassVar[tuple[Citation, ...]] = (
        WANG_CHENG_AWAN.at("Theorem 3.4"),
        BALLE_BARTHE_GABOARDI.at("Theorem 10"),
        PROOF.at("Theorem 5.3"),
    )
    knobs: ClassVar[type] = BootstrapKnobs

    resamples: BootstrapReplicates
    inference: Inference
    paper_mu: Fraction | None = None

    @staticmethod
    def serves(statistic: NamedStatistic) -> bool:
        """Statistics of known sensitivity."""
        return statistic.bounded is not None

    @classmethod
    def resampling(
        cls,
        knobs: BootstrapKnobs,
        target: Target,
        statistic: Statistic,
        goal: Goal,
        presumed: float,
        search: NoiseSearch,
    ) -> BootstrapReplicates:
        """The least noise that meets the goal, or the paper's if that does."""
        n = target.n_records
        replicates = knobs.replicates or default_replicates(
            knobs.confidence,
            n_records=n,
            mu=float(knobs.mu or target.largest_mu()),
            sensitivity=float(statistic.constant) / n,
            variance=presumed,
        )
        sizes = {"n_records": n, "replicates": replicates, "n_cells": target.n_cells}
        if knobs.mu is None:
            return proven(
                target,
                goal,
                search,
                lambda points: BootstrapReplicates.calibrate(
                    statistic, points, **sizes, search=search
                ),
            )
        paper = BootstrapReplicates.as_in_paper(statistic, knobs.mu, **sizes)
        paper.check_goal(goal)
        return paper

    @classmethod
    def rules_of(
        cls, knobs: BootstrapKnobs, known: NoisyVariance, variances: tuple[float, ...]
    ) -> tuple[WidthRule, ...]:
        """The rules of calibrated intervals; other intervals have none."""
        calibrated = knobs.inference == "calibrated"
        return super().rules_of(knobs, known, variances) if calibrated else ()

    @classmethod
    def kept(cls, knobs: BootstrapKnobs) -> dict[str, Any]:
        """What is kept of the knobs, as fields."""
        return {"inference": knobs.inference, "paper_mu": knobs.mu}

    def draw(self, counts: Codes, columns: Floats, rng: Randomness) -> dict[str, Floats]:
        """Noisy replicates, one array a number of the statistic."""
        replicates = self.resamples.release(counts, columns, rng)
        return {f"replicates_{i}": values for i, values in enumerate(replicates.T, 1)}

    def _replicates(self, raw: RawEstimates, i: int) -> NoisyReplicates:
        values = np.array(raw.numbers[f"replicates_{i + 1}"], np.float64)
        return self.resamples.inference(values[:, None])

    def interval(self, raw: RawEstimates, i: int) -> Interval:
        """The interval of one number."""
        return self._interval(i, self._replicates(raw, i))

    def _interval(self, i: int, replicates: NoisyReplicates) -> Interval:
        level = self.terms.confidence
        if self.inference == "calibrated":
            return replicates.calibrated_interval(level, self.rules[i])
        if self.inference == "percentile":
            return replicates.percentile_interval(level)
        return replicates.t_interval(level)

    def distributions(self, raw: RawEstimates) -> tuple[SamplingDistribution, ...]:
        """The recovered sampling distributions."""
        return tuple(self._recovered(raw))

    def _recovered(self, raw: RawEstimates) -> Iterator[SamplingDistribution]:
        for i, (quantity, scale) in enumerate(
            zip(self.terms.quantities, self.terms.scales, strict=True)
        ):
            replicates = self._replicates(raw, i)
            if replicates.spread:
                recovered = replicates.deconvolved()
                points = scale.shift + scale.factor * recovered.points
                yield SamplingDistribution(quantity, points, recovered.masses)

    def expected_width(self, i: int, variance: float) -> float:
        """A mean for calibrated intervals; others are of replicates at a normal law's quantiles."""
        if self.inference == "calibrated":
            return super().expected_width(i, variance)
        from scipy.special import ndtri

        replicates, noise = self.resamples.replicates, self.resamples.noise.sigma
        normal = ndtri((np.arange(replicates) + 0.5) / replicates)
        spread = self.resamples.inference(normal[:, None] * math.sqrt(variance + noise**2))
        interval = self._interval(i, spread)
        return interval.upper - interval.lower

    def noise_sd(self, scale: Scale) -> float:
        """Standard deviation of the noise on an estimate, in its own units."""
        return scale.factor * self.resamples.noise.sigma / math.sqrt(self.resamples.replicates)

    def own_parameters(self) -> dict[str, str | int]:
        """The replicates, and how their noise and their intervals were chosen."""
        return {
            "n_records": self.resamples.n_records,
            "replicates": self.resamples.replicates,
            "scale": str(self.resamples.noise.scale),
            "calibration": self.resamples.calibration,
            "inference": self.inference,
            **({} if self.paper_mu is None else {"paper_mu": str(self.paper_mu)}),
        }

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from ``describe``."""
        statistic = DeclaredStatistic.from_description(description)
        n, replicates = (int(str(description[key])) for key in ("n_records", "replicates"))
        noise = StatisticNoise(
            statistic.constant / n, statistic.dimension, number(description, "scale")
        )
        calibration: Calibration = "strict" if description["calibration"] == "strict" else "paper"
        kinds: dict[object, Inference] = {kind: kind for kind in get_args(Inference)}
        inference = kinds[description["inference"]]
        count = statistic.dimension if inference == "calibrated" else 0
        return cls(
            terms=Terms.from_description(description),
            resamples=BootstrapReplicates(statistic, n, replicates, noise, calibration),
            rules=widths_from_description(description, count),
            inference=inference,
            paper_mu=None if calibration == "strict" else number(description, "paper_mu"),
        )
