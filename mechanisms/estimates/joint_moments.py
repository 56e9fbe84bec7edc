"""Means, proportions, sums and counts: a mean with its variance for free, from two moments.

For a record x in [0, 1] let u = x - 1/2. Released are the sums of u and of u^2 over all n
records with independent Gaussian noise of standard deviation s and s/w, w^2 <= phi^5 = (11 +
5 sqrt 5)/2 = 11.09, phi the golden ratio. Replace-one neighbours; the pair is as private as
only the first sum: **mu-GDP with mu = 1/s**.

*Proof.* Replacing v by u moves (sum of u, w times sum of u^2) by (u - v, w (u^2 - v^2)), of
squared length (u - v)^2 (1 + w^2 (u + v)^2). Let a = |u - v| and b = |u + v|. Then a + b = 2
max(|u|, |v|) <= 1, so the length is at most (1 - b)^2 (1 + w^2 b^2), which is at most 1 if

    w^2 <= f(b) = (1/(1 - b)^2 - 1) / b^2 = (2 - b) / (b (1 - b)^2) for all b in (0, 1).

(log f)' = 0 is b^2 - 3b + 1 = 0, at b = (3 - sqrt 5)/2 = 1/phi^2 with 1 - b = 1/phi; there
f = (2 - b)/b^2 = phi * phi^4. Both ends are infinite, so this is the least value. QED

**Interval.** With m and q the released means of u and u^2, the mean t of u in the population and s
now of the means: m - t is about normal with variance (E u^2 - t^2)/n + s^2, so take all t with (m
- t)^2 <= z^2 ((q - t^2)/n + s^2). No variance is plugged in, as in Wilson's (1927, doi
10.1080/01621459.1927.10502953) interval for a proportion, whose squares are known. Where q is
noisy, all t are taken with (m - t)^2 <= z^2 (v/n + s^2), v the larger of q - t^2 and of what is
halfway between it and q - m^2, and one standard deviation of q's noise more. Where rare values
decide, q and m go together: with q - t^2 by itself the interval is too short on one side, and with
q - m^2 on the other. Halfway brings the least coverage up as far as all of the way, for half of the
width that it adds (tests/unit/test_rare_values.py). By Popoviciu's inequality the variance is at
most 1/4: the interval is truncated to z sqrt(1/(4n) + s^2) about m, and to the declared bounds.

**Units with several records** (mechanisms.estimates.moments): where each unit counts one, the sums
are of parts of units. They are exact fractions, rounded to the grids, and what is rounded moves by
at most one step more: the squares of its moves, which are at most 2^21 and 2^40 steps, grow by at
most 2^22 + 1 and 2^41 + 1. Over the variances of the noise that is what mu^2 grows by, one part in
10^6.

A sum or a count is n times a mean, n being public. Of a proportion the squares are known, 1/4 each,
so their noisy sum is not used.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np

from statpress.mechanisms.accounting.losses import GaussianLoss
from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.errors import ConfigError, RecordsError
from statpress.mechanisms.estimates.estimand import Estimand
from statpress.mechanisms.estimates.estimate import Estimate, ExpectedInterval, RawEstimates, number
from statpress.mechanisms.estimates.fieller import Floats, normal_quantile
from statpress.mechanisms.estimates.guaranteed import mean_limits
from statpress.mechanisms.estimates.moments import (
    MANY,
    RATES,
    MomentsEstimate,
    other_noise,
    rare_values,
)
from statpress.mechanisms.estimates.statistics import NamedStatistic, Terms
from statpress.mechanisms.mechanism import BALLE_WANG, DONG_ROTH_SU, PROOF, Citation, Target
from statpress.mechanisms.sampling.evidence import Evidence, NoNoise, of_noise
from statpress.mechanisms.sampling.randomness import (
    Progress,
    Randomness,
    equivalent_variance,
    noisy,
    scale_for,
)

WEIGHT = Fraction(333, 100)
"""The w of the proof; its square is 11.0889."""

ABOUT_MEAN = 0.5
"""How far from q - t^2 towards q - m^2 the variance goes, if that is larger."""

_FOR_ROUNDING = Fraction(1, 2**20)  # of mu
_HALF = 1 << 20  # grid steps in a half of the declared range
_MOST_WEIGHT_SQUARED = Fraction(1109, 100)  # below phi**5


@dataclass(frozen=True)
class JointMoments:
    """The release of a mean at fixed parameters; all of them are public."""

    lower: float  # declared lower bound of a record; records beyond it are taken as equal to it
    upper: float  # declared upper bound
    scale: Fraction  # of the discrete Gaussian on the sum of u, in grid steps 2**-21
    square_scale: Fraction  # of the discrete Gaussian on the sum of u^2, in grid steps 2**-42
    rounded: bool = False  # whether the sums are of parts, and rounded

    def __post_init__(self) -> None:
        if not (math.isfinite(self.lower) and math.isfinite(self.upper)):
            raise ConfigError("The bounds of a mean must be finite numbers.")
        if not self.lower < self.upper:
            raise ConfigError("The lower bound of a mean must be below the upper one.")
        one, two = (equivalent_variance(s) for s in (self.scale, self.square_scale))
        if one <= 0 or two <= 0 or one / two * (2 * _HALF) ** 2 > _MOST_WEIGHT_SQUARED:
            raise RecordsError("The noise on the squares is too little for a joint release.")

    @classmethod
    def calibrate(
        cls, mu: Fraction, *, lower: float, upper: float, rounded: bool = False
    ) -> JointMoments:
        """The least noise that makes the pair of sums mu-GDP."""
        if mu <= 0:
            raise RecordsError("mu must be positive.")
        mu *= 1 - rounded * _FOR_ROUNDING
        scale = scale_for((2 * _HALF / mu) ** 2)
        least = equivalent_variance(scale) * (2 * _HALF) ** 2 / WEIGHT**2
        return cls(lower, upper, scale, scale_for(least), rounded)

    def loss(self) -> GaussianLoss:
        """The privacy loss of both sums; takes no data."""
        mu_squared = (2 * _HALF) ** 2 / equivalent_variance(self.scale)
        if self.rounded:
            mu_squared += (4 * _HALF + 1) / equivalent_variance(self.scale)
            mu_squared += (2 * _HALF**2 + 1) / equivalent_variance(self.square_scale)
        return GaussianLoss(Fraction(0), mu_squared)

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise on the sum of records, in ranges upper - lower."""
        return float(self.scale) / (2 * _HALF)

    def noisy_sum(self, total: int, n_records: int) -> tuple[float, float]:
        """The sum of records in ranges from the lower bound, and its noise's standard deviation."""
        return total / (2 * _HALF) + n_records / 2, self.sigma

    @property
    def square_weight(self) -> float:
        """The noise on the sum of records over that on the sum of squares, in ranges."""
        return float(self.scale / self.square_scale) * 2 * _HALF

    def expected_width(
        self, level: float, n_records: int, variance: float, of_unit: int = 1
    ) -> float:
        """2 z sqrt(V/n + s^2), n the number of units, for records of a presumed variance."""
        s = self.sigma / n_records
        scaled = variance / (self.upper - self.lower) ** 2
        width = 2 * normal_quantile(level) * math.sqrt(scaled * of_unit / n_records + s**2)
        return (self.upper - self.lower) * width

    def release(
        self, values: Floats, counts: Codes, rng: Randomness, parts: int = 1
    ) -> NoisyMoments:
        """Add the noise to the exact sums.

        Args:
            values: float64[k], the public value of each cell.
            counts: int64[k], the private count of each cell, in parts of a record.
            rng: Source of noise; charge the ledger before building it.
            parts: How many parts a record has.

        Raises:
            ValueError: A record has several parts, and the loss is that of whole ones.
        """
        if parts > 1 and not self.rounded:
            raise ValueError("the loss is that of sums of whole records")
        if not np.all(np.isfinite(values)):
            raise ConfigError("A cell of the column of a mean has no finite value.")
        share = (np.clip(values, self.lower, self.upper) - self.lower) / (self.upper - self.lower)
        u = np.rint(share * (2 * _HALF)).astype(np.int64) - _HALF
        high, low = np.divmod(u * u, _HALF)
        squares = int(counts @ high) * _HALF + int(counts @ low)
        (total,) = noisy([_nearest(int(counts @ u), parts)], self.scale, rng)
        (square,) = noisy([_nearest(squares, parts)], self.square_scale, rng)
        return NoisyMoments(self, int(counts.sum()) // parts, total, square)


def _nearest(value: int, parts: int) -> int:
    """The whole number nearest to a fraction, the upper one of two."""
    return (2 * value + parts) // (2 * parts)


@dataclass(frozen=True)
class NoisyMoments:
    """What was released, and what follows from it."""

    mechanism: JointMoments  # its parameters
    n_records: int  # number of records n, public
    total: int  # noisy sum of u in grid steps
    squares: int  # noisy sum of u^2 in grid steps
    of_unit: int = 1  # how many records of a unit count one each

    @property
    def mean(self) -> float:
        """The noisy mean of the records, unbiased and so perhaps out of the bounds."""
        scaled = self.total / (2 * _HALF * self.n_records) + 0.5
        return self.mechanism.lower + (self.mechanism.upper - self.mechanism.lower) * scaled

    def interval(self, level: float, *, squares_known: bool = False) -> tuple[float, float]:
        """The interval for the mean of the population at this confidence level.

        Squares are known, and public without noise, where every record is 0 or 1.
        """
        square_noise = float(self.mechanism.square_scale) / (4 * _HALF**2 * self.n_records)
        n, low, high = self.n_records, self.mechanism.lower, self.mechanism.upper
        lower, upper = moment_interval(
            np.float64(self.total / (2 * _HALF * n) + 0.5),
            np.float64(self.squares / (4 * _HALF**2 * n)),
            n_records=n // self.of_unit,
            sigma=self.mechanism.sigma / n,
            level=level,
            square_noise=0.0 if squares_known else square_noise,
        )
        return low + (high - low) * float(lower), low + (high - low) * float(upper)

    def guaranteed_interval(
        self, level: float, *, squares_known: bool = False
    ) -> tuple[float, float]:
        """Limits for the mean that hold for every population, see ``mean_limits``."""
        n, steps, low, high = self.n_records, 2 * _HALF, self.mechanism.lower, self.mechanism.upper
        on_grid = 0.0 if squares_known else n / (2 * steps)
        lower, upper = mean_limits(
            self.total / steps + n / 2,
            None if squares_known else self.squares / _HALF**2,
            n_records=n,
            noise=float(self.mechanism.scale) / steps,
            square_noise=float(self.mechanism.square_scale) / _HALF**2,
            level=level,
            slack=on_grid + 1 / steps,
            square_slack=4 * on_grid + 1 / _HALF**2,
        )
        return low + (high - low) * lower, low + (high - low) * upper


def moment_interval(
    mean: Floats | np.float64,
    second: Floats | np.float64,
    *,
    n_records: int,
    sigma: float,
    level: float,
    square_noise: float = 0.0,
) -> tuple[Floats, Floats]:
    """Both ends, in [0, 1], of intervals for means of records in [0, 1].

    Args:
        mean: float64[..], noisy means of x.
        second: float64[..], noisy means of (x - 1/2)^2.
        n_records: Number of records n.
        sigma: Standard deviation of the noise on the mean.
        level: Confidence level in (0, 1).
        square_noise: Standard deviation of the noise on ``second``; 0 if it is known.
    """
    z, m = normal_quantile(level), np.asarray(mean, np.float64) - 0.5
    c, noise = z**2 / n_records, (z * sigma) ** 2
    q = np.maximum(second, m**2) + square_noise  # a variance is not negative
    root = np.sqrt((1 + c) * (c * q + noise) - c * m**2)
    lower, upper = (m - root) / (1 + c), (m + root) / (1 + c)
    if square_noise:  # (m - t)^2 <= (c q - b m^2 - (c - b) t^2) + noise
        b = ABOUT_MEAN * c
        d = 1 + c - b
        root = np.sqrt(d * (c * q + noise) - (d * (1 + b) - 1) * m**2)
        lower, upper = np.minimum(lower, (m - root) / d), np.maximum(upper, (m + root) / d)
    cap = z * math.sqrt(0.25 / n_records + sigma**2)
    lower, upper = np.maximum(lower, m - cap), np.minimum(upper, m + cap)
    return np.clip(lower + 0.5, 0.0, 1.0), np.clip(upper + 0.5, 0.0, 1.0)


REFERENCE_VARIANCE = 1 / 12
"""Variance of records spread evenly over the declared range, in ranges squared."""

_QUARTER = 1 << 40  # of a square in grid steps 2**-42


@dataclass(frozen=True, kw_only=True)
class MeanEstimate(MomentsEstimate):
    """The release at fixed parameters; all of them are public.

    Attributes:
        moments: The noise on both sums, of columns in [0, 1].
        share: Whether every record counts as 0 or 1.
    """

    name: ClassVar[str] = "joint_moments"
    citations: ClassVar[tuple[Citation, ...]] = (
        BALLE_WANG.at("Theorem 8"),
        DONG_ROTH_SU,
        PROOF.at("Lemma 5.1, Theorems 5.2 and 8.1"),
    )

    moments: JointMoments
    share: bool

    @staticmethod
    def serves(statistic: NamedStatistic) -> bool:
        """Means, and n times one."""
        return statistic.is_mean

    @staticmethod
    def guarantees(statistic: NamedStatistic) -> bool:
        """All that it serves."""
        return statistic.is_mean

    @classmethod
    def calibrated(cls, estimand: Estimand, target: Target) -> dict[str, Any]:
        """The least noise that meets the target."""
        cls.check_all_count(estimand, "means over")
        return {
            "terms": estimand.terms(target.n_records, estimand.spans),
            "moments": JointMoments.calibrate(
                target.largest_mu() / target.unit_records,
                lower=0.0,
                upper=1.0,
                rounded=estimand.knobs.per == "unit",
            ),
            "share": estimand.statistic.is_share,
        }

    def release(
        self, table: ContingencyTable, rng: Randomness, progress: Progress | None = None
    ) -> RawEstimates:
        """Add the noise to the two sums."""
        assert self.estimand is not None
        values = self.estimand.columns(table.domain, table.cells)[:, 0]
        noisy_moments = self.moments.release(values, table.counts, rng, table.domain.parts)
        numbers = {"sum": (noisy_moments.total,), "sum_of_squares": (noisy_moments.squares,)}
        return RawEstimates(numbers, noisy_moments.n_records)

    def evidence(self, one: ContingencyTable, other: ContingencyTable) -> Evidence:
        """For audits: by both sums."""
        exact = [self.release(table, NoNoise()).numbers for table in (one, other)]
        scales = {"sum": self.moments.scale, "sum_of_squares": self.moments.square_scale}
        ratios = {
            name: of_noise([np.array(numbers[name], object) for numbers in exact], float(scale))
            for name, scale in scales.items()
        }
        return lambda release: sum(
            ratio(np.array(release.numbers[name], object)) for name, ratio in ratios.items()
        )

    def estimates(self, raw: RawEstimates) -> tuple[Estimate, ...]:
        """The estimate with its interval."""
        n, (total,), (squares,) = raw.n_records, raw.numbers["sum"], raw.numbers["sum_of_squares"]
        known = n * _QUARTER if self.share else int(squares)
        noisy_moments = NoisyMoments(self.moments, n, int(total), known, self.of_unit)
        (scale,), level = self.terms.scales, self.terms.confidence
        ends = noisy_moments.interval(level, squares_known=self.share)
        standard_error = (ends[1] - ends[0]) / (2 * normal_quantile(level))
        if self.guaranteed:
            ends = noisy_moments.guaranteed_interval(level, squares_known=self.share)
        lower, upper = map(scale.value, ends)
        return (
            Estimate(
                quantity=self.terms.quantities[0],
                value=scale.value(noisy_moments.mean),
                lower=lower,
                upper=upper,
                confidence=level,
                standard_error=scale.factor * standard_error,
                inference=self.inference,
            ),
        )

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedInterval:
        """The width 2 z sqrt(V/n + s^2) at the reference variance V."""
        (scale,) = self.terms.scales
        width = self.expected_width(n_records, guaranteed=self.guaranteed)
        return ExpectedInterval(
            quantities=self.terms.quantities,
            width=(scale.factor * width,),
            noise_sd=(scale.factor * self.moments.sigma / n_records,),
        )

    def expected_width(self, n_records: int, *, guaranteed: bool) -> float:
        """The width for records spread evenly, or half of them counting."""
        variance = 0.25 if self.share else REFERENCE_VARIANCE
        if not guaranteed:
            return self.moments.expected_width(
                self.terms.confidence, n_records, variance, self.of_unit
            )
        squares = int(n_records * variance * 4 * _QUARTER)
        middle = NoisyMoments(self.moments, n_records, 0, squares)
        lower, upper = middle.guaranteed_interval(self.terms.confidence, squares_known=self.share)
        return upper - lower

    @property
    def worst_coverage(self) -> float:
        """Coverage of the interval for populations whose rare values decide."""
        level, noise = self.terms.confidence, self.moments.sigma / self.of_unit
        if self.share:
            return worst_of_share(noise, level)
        return worst_of_mean(noise, self.moments.square_weight, level)

    def parameters(self) -> dict[str, str | int]:
        """The noise on both sums."""
        return {
            "scale": str(self.moments.scale),
            "square_scale": str(self.moments.square_scale),
            "is_share": int(self.share),
            **({"rounded": 1} if self.moments.rounded else {}),
            **self.described(),
        }

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from ``describe``."""
        one, two = (number(description, name) for name in ("scale", "square_scale"))
        return cls(
            terms=Terms.from_description(description),
            moments=JointMoments(0.0, 1.0, one, two, description.get("rounded") == 1),
            share=description["is_share"] == 1,
            **cls.read(description),
        )


_PLACES = (-0.5, -0.1, 0.0, 0.1, 0.3)  # of the common value of a mean, about the middle


@functools.lru_cache(maxsize=256)
def worst_of_mean(noise: float, square_weight: float, level: float) -> float:
    """Least coverage of ``moment_interval`` for rare values (mechanisms.estimates.moments).

    The common value a may be anywhere, and the jump is from there to a bound, 1/2: the variance by
    Wilson's form depends on it, and that about the noisy mean as well. The interval goes halfway
    from the one to the other where that is larger. ``noise`` is the standard deviation of that on
    the sum, in declared ranges, and that on the sum of squares is ``noise / square_weight``.
    """
    if noise >= MANY:
        return level
    z, sq = normal_quantile(level), noise / square_weight
    worst = 1.0
    for a in _PLACES:
        jump = 0.5 - a
        for rate in np.geomspace(0.05 / jump, 300 / jump**1.5, RATES):
            counts, masses, first, first_masses = rare_values(float(rate))
            by_form = (jump * (counts * (0.5 + a) - 2 * a * rate))[:, None]
            about_mean = (counts * jump**2)[:, None] - 2 * a * noise * first
            larger = by_form + ABOUT_MEAN * np.maximum(about_mean - by_form, 0)
            off = ((counts - rate) * jump)[:, None] + noise * first
            covered = 0.0
            for other, mass in other_noise():
                spread = np.maximum(larger + sq * other, 0.0) + sq + noise**2
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
    for rate in np.geomspace(0.01, 100, 4 * RATES):
        counts, masses, _, _ = rare_values(float(rate))
        reach = z * math.sqrt(rate + noise**2)
        upper, lower = ((rate - counts + sign * reach) / noise for sign in (1, -1))
        worst = min(worst, float(masses @ (ndtr(upper) - ndtr(lower))))
    return worst
