"""A mean with its variance for free: the joint release of two moments.

For a record x in [0, 1] let u = x - 1/2. Released are the sums of u and of u^2 over all n
records with independent Gaussian noise of standard deviation s and s/w, w^2 <= phi^5 = (11 +
5 sqrt 5)/2 = 11.09, phi the golden ratio. Replace-one neighbours; the pair is as private as
the first sum alone: **mu-GDP with mu = 1/s**.

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
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting.analytic import GaussianLoss
from mechanisms.domain.columns import Codes
from mechanisms.errors import ConfigError, RecordsError
from mechanisms.inference.guaranteed import mean_limits
from mechanisms.sampling.gaussian_noise import equivalent_variance, noisy, scale_for
from mechanisms.sampling.randomness import Randomness

WEIGHT = Fraction(333, 100)
"""The w of the proof; its square is 11.0889."""

ABOUT_MEAN = 0.5
"""How far from q - t^2 towards q - m^2 the variance goes, if that is larger."""

_HALF = 1 << 20  # grid steps in a half of the declared range
_MOST_WEIGHT_SQUARED = Fraction(1109, 100)  # below phi**5
_Doubles = NDArray[np.float64]


class Interval(NamedTuple):
    """Both ends of an interval, or arrays of them."""

    lower: _Doubles
    upper: _Doubles


@dataclass(frozen=True)
class JointMoments:
    """The release of a mean at fixed parameters; all of them are public.

    Attributes:
        lower: Declared lower bound of a record; records beyond it are taken as equal to it.
        upper: Declared upper bound.
        scale: Of the discrete Gaussian on the sum of u, in grid steps 2**-21.
        square_scale: Of the discrete Gaussian on the sum of u^2, in grid steps 2**-42.
    """

    lower: float
    upper: float
    scale: Fraction
    square_scale: Fraction

    def __post_init__(self) -> None:
        if not (math.isfinite(self.lower) and math.isfinite(self.upper)):
            raise ConfigError("The bounds of a mean must be finite numbers.")
        if not self.lower < self.upper:
            raise ConfigError("The lower bound of a mean must be below the upper one.")
        one, two = (equivalent_variance(s) for s in (self.scale, self.square_scale))
        if one <= 0 or two <= 0 or one / two * (2 * _HALF) ** 2 > _MOST_WEIGHT_SQUARED:
            raise RecordsError("The noise on the squares is too little for a joint release.")

    @classmethod
    def calibrate(cls, mu: Fraction, *, lower: float, upper: float) -> JointMoments:
        """The least noise that makes the pair of sums mu-GDP."""
        if mu <= 0:
            raise RecordsError("mu must be positive.")
        scale = scale_for((2 * _HALF / mu) ** 2)
        least = equivalent_variance(scale) * (2 * _HALF) ** 2 / WEIGHT**2
        return cls(lower, upper, scale, scale_for(least))

    def loss(self) -> GaussianLoss:
        """The privacy loss of both sums; takes no data."""
        return GaussianLoss(Fraction(0), (2 * _HALF) ** 2 / equivalent_variance(self.scale))

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise on the sum of records, in ranges upper - lower."""
        return float(self.scale) / (2 * _HALF)

    @property
    def square_weight(self) -> float:
        """The noise on the sum of records over that on the sum of squares, in ranges."""
        return float(self.scale / self.square_scale) * 2 * _HALF

    def expected_width(self, level: float, n_records: int, variance: float) -> float:
        """2 z sqrt(V/n + s^2), the width for records of a presumed variance."""
        s = self.sigma / n_records
        scaled = variance / (self.upper - self.lower) ** 2
        width = 2 * _quantile(level) * math.sqrt(scaled / n_records + s**2)
        return (self.upper - self.lower) * width

    def release(self, values: _Doubles, counts: Codes, rng: Randomness) -> NoisyMoments:
        """Add the noise to the exact sums.

        Args:
            values: float64[k], the public value of each cell.
            counts: int64[k], the private count of each cell.
            rng: Source of noise; charge the ledger before building it.
        """
        if not np.all(np.isfinite(values)):
            raise ConfigError("A cell of the column of a mean has no finite value.")
        share = (np.clip(values, self.lower, self.upper) - self.lower) / (self.upper - self.lower)
        u = np.rint(share * (2 * _HALF)).astype(np.int64) - _HALF
        high, low = np.divmod(u * u, _HALF)
        squares = int(counts @ high) * _HALF + int(counts @ low)
        (total,) = noisy([int(counts @ u)], self.scale, rng)
        (square,) = noisy([squares], self.square_scale, rng)
        return NoisyMoments(self, int(counts.sum()), total, square)


@dataclass(frozen=True)
class NoisyMoments:
    """What was released, and what follows from it.

    Attributes:
        mechanism: Its parameters.
        n_records: Number of records n, public.
        total: Noisy sum of u in grid steps.
        squares: Noisy sum of u^2 in grid steps.
    """

    mechanism: JointMoments
    n_records: int
    total: int
    squares: int

    @property
    def mean(self) -> float:
        """The noisy mean of the records, unbiased and so perhaps out of the bounds."""
        scaled = self.total / (2 * _HALF * self.n_records) + 0.5
        return self.mechanism.lower + (self.mechanism.upper - self.mechanism.lower) * scaled

    def interval(self, level: float, *, squares_known: bool = False) -> tuple[float, float]:
        """The interval for the mean of the population at this confidence level.

        Args:
            level: Confidence level in (0, 1).
            squares_known: Whether ``squares`` are public without noise, as those of 0 and 1.
        """
        square_noise = float(self.mechanism.square_scale) / (4 * _HALF**2 * self.n_records)
        n, low, high = self.n_records, self.mechanism.lower, self.mechanism.upper
        found = moment_interval(
            np.float64(self.total / (2 * _HALF * n) + 0.5),
            np.float64(self.squares / (4 * _HALF**2 * n)),
            n_records=n,
            sigma=self.mechanism.sigma / n,
            level=level,
            square_noise=0.0 if squares_known else square_noise,
        )
        return low + (high - low) * float(found.lower), low + (high - low) * float(found.upper)

    def guaranteed_interval(
        self, level: float, *, squares_known: bool = False
    ) -> tuple[float, float]:
        """Limits for the mean that hold for every population (mechanisms.inference.guaranteed).

        Args:
            level: Probability with which they hold, at least.
            squares_known: Whether every record is 0 or 1.
        """
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
    mean: _Doubles | np.float64,
    second: _Doubles | np.float64,
    *,
    n_records: int,
    sigma: float,
    level: float,
    square_noise: float = 0.0,
) -> Interval:
    """Intervals for means of records in [0, 1].

    Args:
        mean: float64[..], noisy means of x.
        second: float64[..], noisy means of (x - 1/2)^2.
        n_records: Number of records n.
        sigma: Standard deviation of the noise on the mean.
        level: Confidence level in (0, 1).
        square_noise: Standard deviation of the noise on ``second``; 0 if it is known.

    Returns:
        Both ends, each in 0..1.
    """
    z, m = _quantile(level), np.asarray(mean, np.float64) - 0.5
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
    return Interval(np.clip(lower + 0.5, 0.0, 1.0), np.clip(upper + 0.5, 0.0, 1.0))


def _quantile(level: float) -> float:
    """The normal quantile of a two-sided interval."""
    if not 0 < level < 1:
        raise ConfigError("A confidence level must be above 0 and below 1.")
    return NormalDist().inv_cdf((1 + level) / 2)
