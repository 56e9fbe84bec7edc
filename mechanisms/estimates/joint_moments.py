"""Means, proportions, sums and counts: a mean with its variance for free, from two moments.

For a record x in [0, 1] let u = x - 1/2. Released are the sums of u and of u^2 over all n
records with independent Gaussian noise of standard deviation s and s/w, w^2 <= phi^5 = (11 +
5 sqrt 5)/2 = 11.09, phi the golden ratio. With replace-one neighbours the pair is as private as
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
width that it adds (tests/unit/test_joint_moments.py). By Popoviciu's inequality the variance is at
most 1/4: the interval is truncated to z sqrt(1/(4n) + s^2) about m, and to the declared bounds.

**Add-remove.** The number of records is private, and released as well, with noise of deviation r. A
record that is there or not moves (sum of u, sum of u^2, n) by (u, u^2, 1), so that

    mu^2 = max over u of u^2/s^2 + u^4/s_2^2 + 1/r^2 = 1/(4 s^2) + 1/(16 s_2^2) + 1/r^2.

Of mu^2 the sum of u has 1/2, that of u^2 1/10 and the number 2/5, about where the variance of the
mean, s^2 + t^2 r^2 over n^2 for a mean of u of t, is least for the worst of all t. With A, Q, N the
released A - t N has the mean 0 and about the variance n (E u^2 - t^2) + s^2 + t^2 r^2: the interval
has t^2 r^2 in addition, without a bound on t where z r is as large as N. The sum of x is A + N/2,
with noise of variance s^2 + r^2/4; the interval for it is that of a mean times N, but that only 0
bounds it. Units of one record are served, and no interval is guaranteed.

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
from statpress.mechanisms.domain.domain import Adjacency
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
from statpress.mechanisms.estimates.statistics import NamedStatistic, Scale, Terms
from statpress.mechanisms.mechanism import BALLE_WANG, DONG_ROTH_SU, PROOF, Citation, Target
from statpress.mechanisms.postprocessing.covariance import EstimatedTotal
from statpress.mechanisms.sampling.randomness import (
    Evidence,
    NoNoise,
    Progress,
    Randomness,
    equivalent_variance,
    noisy,
    of_noise,
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
    count_scale: Fraction | None = None  # under add-remove: of that on n, in grid steps 2**-21

    def __post_init__(self) -> None:
        if not (math.isfinite(self.lower) and math.isfinite(self.upper)):
            raise ConfigError("The bounds of a mean must be finite numbers.")
        if not self.lower < self.upper:
            raise ConfigError("The lower bound of a mean must be below the upper one.")
        one, two = (equivalent_variance(s) for s in (self.scale, self.square_scale))
        if self.count_scale is not None:
            if min(one, two, equivalent_variance(self.count_scale)) <= 0 or self.rounded:
                raise RecordsError("The noise does not suit a release of whole records.")
        elif one <= 0 or two <= 0 or one / two * (2 * _HALF) ** 2 > _MOST_WEIGHT_SQUARED:
            raise RecordsError("The noise on the squares is too little for a joint release.")

    @classmethod
    def calibrate(
        cls,
        mu: Fraction,
        *,
        lower: float,
        upper: float,
        rounded: bool = False,
        adjacency: Adjacency = Adjacency.REPLACE_ONE,
    ) -> JointMoments:
        """The least noise that makes what is released mu-GDP."""
        if mu <= 0:
            raise RecordsError("mu must be positive.")
        if adjacency is Adjacency.ADD_REMOVE:
            one, two, count = (
                scale_for(move**2 / (part * mu**2))
                for move, part in zip(_ADDED_MOVES, _ADDED_PARTS, strict=True)
            )
            return cls(lower, upper, one, two, count_scale=count)
        mu *= 1 - rounded * _FOR_ROUNDING
        scale = scale_for((2 * _HALF / mu) ** 2)
        least = equivalent_variance(scale) * (2 * _HALF) ** 2 / WEIGHT**2
        return cls(lower, upper, scale, scale_for(least), rounded)

    def loss(self) -> GaussianLoss:
        """The privacy loss of all that is released; takes no data."""
        if self.count_scale is not None:
            scales = (self.scale, self.square_scale, self.count_scale)
            parts = (
                move**2 / equivalent_variance(scale)
                for move, scale in zip(_ADDED_MOVES, scales, strict=True)
            )
            return GaussianLoss(Fraction(0), sum(parts, Fraction(0)))
        mu_squared = (2 * _HALF) ** 2 / equivalent_variance(self.scale)
        if self.rounded:
            mu_squared += (4 * _HALF + 1) / equivalent_variance(self.scale)
            mu_squared += (2 * _HALF**2 + 1) / equivalent_variance(self.square_scale)
        return GaussianLoss(Fraction(0), mu_squared)

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise on the sum of records, in ranges upper - lower."""
        return float(self.scale) / (2 * _HALF)

    @property
    def count_sigma(self) -> float:
        """Standard deviation of the noise on the number of records; 0 where that is public."""
        return float(self.count_scale or 0) / (2 * _HALF)

    def total_sigma(self, offset: float = 0.0) -> float:
        """Standard deviation of the noise on the sum of records from an origin, in ranges.

        Args:
            offset: Of the lower bound from the origin, in ranges.
        """
        return math.hypot(self.sigma, (0.5 + offset) * self.count_sigma)

    @property
    def square_weight(self) -> float:
        """The noise on the sum of records over that on the sum of squares, in ranges."""
        return float(self.scale / self.square_scale) * 2 * _HALF

    def expected_width(
        self, level: float, n_records: int, variance: float, of_unit: int = 1
    ) -> float:
        """2 z sqrt(V/n + s^2), n the number of units, for records of a presumed variance."""
        s = self.total_sigma() / n_records
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
        if self.count_scale is None:
            return NoisyMoments(self, int(counts.sum()) // parts, total, square)
        (count,) = noisy([int(counts.sum()) * 2 * _HALF], self.count_scale, rng)
        return NoisyMoments.added(self, total, square, count)


def _nearest(value: int, parts: int) -> int:
    """The whole number nearest to a fraction, the upper one of two."""
    return (2 * value + parts) // (2 * parts)


@dataclass(frozen=True)
class NoisyMoments:
    """What was released, and what follows from it."""

    mechanism: JointMoments  # its parameters
    n_records: int  # number of records n, public, or the nearest to the noisy one
    total: int  # noisy sum of u in grid steps
    squares: int  # noisy sum of u^2 in grid steps
    of_unit: int = 1  # how many records of a unit count one each
    count: int | None = None  # noisy number of records in grid steps, where it is private

    @classmethod
    def added(cls, mechanism: JointMoments, total: int, squares: int, count: int) -> NoisyMoments:
        """Of a private number of records."""
        n_records = max(1, round(count / (2 * _HALF)))
        return cls(mechanism, n_records, total, squares, count=count)

    @property
    def number(self) -> float:
        """The number of records: public, or noisy and at least 1."""
        return self.n_records if self.count is None else max(1.0, self.count / (2 * _HALF))

    @property
    def noisy_sum(self) -> tuple[float, float]:
        """The sum of records in ranges from the lower bound, and its noise's standard deviation."""
        return self.total / (2 * _HALF) + self.number / 2, self.mechanism.total_sigma()

    @property
    def mean(self) -> float:
        """The noisy mean of the records, perhaps out of the bounds; unbiased if n is public."""
        scaled = self.total / (2 * _HALF * self.number) + 0.5
        return self.mechanism.lower + (self.mechanism.upper - self.mechanism.lower) * scaled

    def interval(self, level: float, *, squares_known: bool = False) -> tuple[float, float]:
        """The interval for the mean of the population at this confidence level.

        Squares are known, and public without noise, where every record is 0 or 1.
        """
        n, low, high = self.number, self.mechanism.lower, self.mechanism.upper
        lower, upper = moment_interval(
            *self._means,
            n_records=n // self.of_unit if self.count is None else n,
            sigma=self.mechanism.sigma / n,
            level=level,
            square_noise=0.0 if squares_known else self._square_noise,
            count_sigma=self.mechanism.count_sigma / n,
        )
        return low + (high - low) * float(lower), low + (high - low) * float(upper)

    def total_interval(
        self, level: float, offset: float, *, squares_known: bool = False
    ) -> tuple[float, float]:
        """The interval for the sum over as many records of the population, n private, in ranges.

        Args:
            level: Of confidence.
            offset: Of the lower bound from the origin of the sum, in ranges.
            squares_known: Whether every record is 0 or 1.
        """
        n = self.number
        ends = moment_interval(
            *self._means,
            n_records=n,
            sigma=self.mechanism.total_sigma(offset) / n,
            level=level,
            square_noise=0.0 if squares_known else self._square_noise,
            bounded=False,
        )
        lower, upper = (n * (offset + float(end)) for end in ends)
        return max(lower, 0.0) if offset >= 0 else lower, upper

    @property
    def _means(self) -> tuple[np.float64, np.float64]:
        """Noisy means of x and of u^2, in ranges."""
        first = self.total / (2 * _HALF * self.number) + 0.5
        return np.float64(first), np.float64(self.squares / (4 * _HALF**2 * self.number))

    @property
    def _square_noise(self) -> float:
        return float(self.mechanism.square_scale) / (4 * _HALF**2 * self.number)

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
    n_records: float,
    sigma: float,
    level: float,
    square_noise: float = 0.0,
    count_sigma: float = 0.0,
    bounded: bool = True,
) -> tuple[Floats, Floats]:
    """Both ends of intervals for means of records in [0, 1].

    Args:
        mean: float64[..], noisy means of x.
        second: float64[..], noisy means of (x - 1/2)^2.
        n_records: Number of records n.
        sigma: Standard deviation of the noise on the mean.
        level: Confidence level in (0, 1).
        square_noise: Standard deviation of the noise on ``second``; 0 if it is known.
        count_sigma: Of that on the number of records, in these.
        bounded: Whether the means are in [0, 1].
    """
    z, m = normal_quantile(level), np.asarray(mean, np.float64) - 0.5
    c, noise, e = z**2 / n_records, (z * sigma) ** 2, (z * count_sigma) ** 2
    if e >= 1:  # the number of records may be nought, and the mean anything
        return np.zeros_like(m), np.ones_like(m)
    q = np.maximum(second, m**2) + square_noise  # a variance is not negative
    root = np.sqrt(np.maximum((1 + c - e) * (c * q + noise) - (c - e) * m**2, 0.0))
    lower, upper = (m - root) / (1 + c - e), (m + root) / (1 + c - e)
    if square_noise:  # (m - t)^2 <= (c q - b m^2 - (c - b) t^2) + noise + e t^2
        b = ABOUT_MEAN * c
        d = 1 + c - b - e
        root = np.sqrt(np.maximum(d * (c * q + noise) - (d * (1 + b) - 1) * m**2, 0.0))
        lower, upper = np.minimum(lower, (m - root) / d), np.maximum(upper, (m + root) / d)
    cap = z * math.sqrt(0.25 / n_records + sigma**2 + 0.25 * count_sigma**2)
    lower, upper = np.maximum(lower, m - cap), np.minimum(upper, m + cap)
    if not bounded:
        return lower + 0.5, upper + 0.5
    return np.clip(lower + 0.5, 0.0, 1.0), np.clip(upper + 0.5, 0.0, 1.0)


REFERENCE_VARIANCE = 1 / 12
"""Variance of records spread evenly over the declared range, in ranges squared."""

_QUARTER = 1 << 40  # of a square in grid steps 2**-42
_ADDED_MOVES = (Fraction(_HALF), Fraction(_QUARTER), Fraction(2 * _HALF))
"""By how much a record at a bound moves the sum, that of squares and the number, in grid steps."""
_ADDED_PARTS = (Fraction(1, 2), Fraction(1, 10), Fraction(2, 5))


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

    adjacencies: ClassVar[tuple[Adjacency, ...]] = tuple(Adjacency)

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
        if target.adjacency is Adjacency.ADD_REMOVE:
            _check_added(estimand, target)
        cls.check_all_count(estimand, "means over")
        return {
            "terms": estimand.terms(target.n_records, estimand.spans),
            "moments": JointMoments.calibrate(
                target.largest_mu() / target.unit_records,
                lower=0.0,
                upper=1.0,
                rounded=estimand.knobs.per == "unit",
                adjacency=target.adjacency,
            ),
            "share": estimand.statistic.is_share,
        }

    def release(
        self, table: ContingencyTable, rng: Randomness, progress: Progress | None = None
    ) -> RawEstimates:
        """Add the noise to the two sums, and under add-remove to the number of records."""
        assert self.estimand is not None
        values = self.estimand.columns(table.domain, table.cells)[:, 0]
        noisy_moments = self.moments.release(values, table.counts, rng, table.domain.parts)
        numbers = {"sum": (noisy_moments.total,), "sum_of_squares": (noisy_moments.squares,)}
        if noisy_moments.count is not None:
            numbers["records"] = (noisy_moments.count,)
        return RawEstimates(numbers, noisy_moments.n_records)

    def total(self, raw: RawEstimates) -> EstimatedTotal | None:
        """The number of records, where it is private."""
        if "records" not in raw.numbers:
            return None
        (count,) = raw.numbers["records"]
        return EstimatedTotal(count / (2 * _HALF), self.moments.count_sigma**2)

    def noisy_moments(self, raw: RawEstimates) -> NoisyMoments:
        """What was released, with what follows from it."""
        (total,), (squares,) = raw.numbers["sum"], raw.numbers["sum_of_squares"]
        if "records" in raw.numbers:
            (count,) = raw.numbers["records"]
            known = round(int(count) * _QUARTER / (2 * _HALF)) if self.share else int(squares)
            return NoisyMoments.added(self.moments, int(total), known, int(count))
        known = raw.n_records * _QUARTER if self.share else int(squares)
        return NoisyMoments(self.moments, raw.n_records, int(total), known, self.of_unit)

    def evidence(self, one: ContingencyTable, other: ContingencyTable) -> Evidence:
        """For audits: by all numbers that are released."""
        exact = [self.release(table, NoNoise()).numbers for table in (one, other)]
        scales = {"sum": self.moments.scale, "sum_of_squares": self.moments.square_scale}
        if self.moments.count_scale is not None:
            scales["records"] = self.moments.count_scale
        ratios = {
            name: of_noise([np.array(numbers[name], object) for numbers in exact], float(scale))
            for name, scale in scales.items()
        }
        return lambda release: sum(
            ratio(np.array(release.numbers[name], object)) for name, ratio in ratios.items()
        )

    def estimates(self, raw: RawEstimates) -> tuple[Estimate, ...]:
        """The estimate with its interval."""
        noisy_moments = self.noisy_moments(raw)
        (scale,), level = self.terms.scales, self.terms.confidence
        value, ends = noisy_moments.mean, noisy_moments.interval(level, squares_known=self.share)
        if self._is_added_total:  # scaled for the number of records that was planned for
            assert self.n_records is not None
            scale, offset = Scale(0.0, scale.factor / self.n_records), self._offset
            value = noisy_moments.noisy_sum[0] + offset * noisy_moments.number
            ends = noisy_moments.total_interval(level, offset, squares_known=self.share)
        standard_error = (ends[1] - ends[0]) / (2 * normal_quantile(level))
        if self.guaranteed:
            ends = noisy_moments.guaranteed_interval(level, squares_known=self.share)
        lower, upper = map(scale.value, ends)
        return (
            Estimate(
                quantity=self.terms.quantities[0],
                value=scale.value(value),
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
            noise_sd=(scale.factor * self.moments.total_sigma(self._offset) / n_records,),
        )

    @property
    def _is_added_total(self) -> bool:
        """Whether the estimate is a sum or a count, of a private number of records."""
        if self.moments.count_scale is None or self.estimand is None:
            return False
        return self.estimand.statistic.is_total

    @property
    def _offset(self) -> float:
        """The lower bound of a record from the origin of its sum, in ranges; 0 of a mean."""
        (scale,) = self.terms.scales
        return scale.shift / scale.factor if self._is_added_total else 0.0

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
            **self._added(),
            **self.described(),
        }

    @property
    def has_guarantee(self) -> bool:
        """None is known where the number of records is private."""
        return self.moments.count_scale is None

    def _added(self) -> dict[str, str | int]:
        """What a description holds under add-remove; else nothing."""
        if self.moments.count_scale is None:
            return {}
        return {"count_scale": str(self.moments.count_scale), "adjacency": "add_remove"}

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from ``describe``."""
        count = number(description, "count_scale") if "count_scale" in description else None
        one, two = (number(description, name) for name in ("scale", "square_scale"))
        return cls(
            terms=Terms.from_description(description),
            moments=JointMoments(0.0, 1.0, one, two, description.get("rounded") == 1, count),
            share=description["is_share"] == 1,
            **cls.read(description),
        )


def _check_added(estimand: Estimand, target: Target) -> None:
    """Refuse what has no estimate where the number of records is private."""
    if target.unit_records > 1 or estimand.knobs.per is not None:
        raise ConfigError(
            "Under add_remove estimates are of units of one record each.",
            where="per",
            next_step="Use a table, or ask a bundle of 'marginals' with 'statpress query'.",
        )
    if estimand.knobs.guaranteed:
        raise ConfigError(
            "Intervals are guaranteed for a public number of records, which is private here.",
            where="inference",
            next_step="Leave 'inference' out.",
        )


_PLACES = (-0.5, -0.1, 0.0, 0.1, 0.3)  # of the common value of a mean, about the middle


@functools.lru_cache(maxsize=256)
def worst_of_mean(
    noise: float, square_weight: float, level: float, about_the_mean: float = ABOUT_MEAN
) -> float:
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
            larger = by_form + about_the_mean * np.maximum(about_mean - by_form, 0)
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
