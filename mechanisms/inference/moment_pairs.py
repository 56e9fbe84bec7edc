"""Correlation, regression, ratios and group differences from one release of joint moments.

For records (x, y) in [0, 1]^2 let u = x - 1/2, v = y - 1/2. Released are the sums over all n
records of the 14 monomials of u and v of degree 1 to 4, weighted, with independent Gaussian
noise of one scale. Replace-one neighbours.

**Sensitivity.** Let a = |u - u'| and b = |u + u'| for a replacement of u' by u, a + b <= 1 as
in mechanisms.inference.moments. It moves (u, 3 u^2, 5 u^4) by the square root of

    a^2 (1 + b^2 (9 + 25 (u^2 + u'^2)^2)),  u^2 + u'^2 = (a^2 + b^2)/2,

which grows with a, and at a = 1 - b is at most 1 for all b (a polynomial in b; a test proves
it in balls). The same holds for v. Any other monomial moves by at most its range: 1/2 for uv,
1/4 for the cubic ones, 1/8 for u^3 v and u v^3, 1/16 for u^2 v^2. So the square of the length
is at most 2 plus the squares of weight times range. Of a single column the four powers of u are
released, and the bound is 1 plus the square for u^3.

**Interval.** A smooth function h of the means of x, y, x^2, xy and y^2 is estimated by putting
the noisy means in its place. Its error is that of the linear function with h's gradient g (the
delta method): variance g'(S/n + N)g, with N the variances of the noise and S the covariance
matrix of the five monomials, which the moments up to degree 4 give. g'Sg has noise itself; one
standard deviation of that is added to it, so that it is seldom too small. No law of the
records is assumed. The interval is normal; it is marked as not valid, and as wide as can be,
where the estimate is not finite or a denominator is within four standard deviations of its
noise from 0.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting.analytic import GaussianLoss
from mechanisms.domain.columns import Codes
from mechanisms.inference.intervals import normal_quantile
from mechanisms.inference.moment_functions import Derived, Means
from mechanisms.inference.replicate_intervals import BootstrapInterval
from mechanisms.sampling.randomness import Randomness
from mechanisms.sampling.statistic_noise import StatisticNoise

_Doubles = NDArray[np.float64]
POWERS = tuple((i, degree - i) for degree in range(1, 5) for i in range(degree, -1, -1))
"""Exponents of u and v, in the order of release."""

_FIRST = ((1, 0), (0, 1), (2, 0), (1, 1), (0, 2))
_STEP, _BITS = 1e-6, 40


def _weight(i: int, j: int) -> Fraction:
    """The weight of a monomial; more for those that move less."""
    if not i or not j:
        return Fraction({1: 1, 2: 3, 3: 2, 4: 5}[i + j])
    return Fraction({(1, 1): 2, (2, 2): 4}.get((i, j), 2 if i + j == 3 else 3))


def _range(i: int, j: int) -> Fraction:
    """How far a monomial can move."""
    even = i % 2 == 0 and j % 2 == 0
    return Fraction(1, 2 ** (i + j)) * (1 if even else 2)


WEIGHTS: tuple[Fraction, ...] = tuple(_weight(i, j) for i, j in POWERS)
SENSITIVITY_SQUARED = 2 + sum(
    (_weight(i, j) * _range(i, j)) ** 2 for i, j in POWERS if (i and j) or i + j == 3
)
ALONE = tuple(power for power in POWERS if not power[1])
"""The powers of one column."""
ALONE_SQUARED = 1 + (_weight(3, 0) * _range(3, 0)) ** 2


@dataclass(frozen=True)
class PairMoments:
    """The release at fixed parameters; all of them are public.

    Attributes:
        noise: On the 14 weighted sums, or on the 4 of a single column.
    """

    noise: StatisticNoise

    @classmethod
    def calibrate(
        cls, mu: Fraction, *, n_records: int, n_cells: int | None = None, columns: int = 2
    ) -> PairMoments:
        """The least noise that makes all sums together mu-GDP.

        Args:
            mu: Of the release.
            n_records: Number of records n.
            n_cells: Of the declared domain of both columns; as many as records if not given.
            columns: Two, or one.
        """
        StatisticNoise.check_accuracy(n_records=n_records, n_cells=n_cells or n_records)
        sensitivity, dimension = _moves(columns)
        return cls(StatisticNoise.calibrate(mu**2, sensitivity=sensitivity, dimension=dimension))

    @classmethod
    def at(cls, scale: Fraction, columns: int) -> PairMoments:
        """The release with noise of a given scale, in grid steps."""
        return cls(StatisticNoise(*_moves(columns), scale))

    @property
    def columns(self) -> int:
        """How many columns it takes."""
        return 2 if self.noise.dimension == len(POWERS) else 1

    @property
    def powers(self) -> tuple[tuple[int, int], ...]:
        """Exponents of u and v, in the order of release."""
        return POWERS if self.columns == 2 else ALONE

    def loss(self) -> GaussianLoss:
        """The privacy loss; takes no data."""
        return GaussianLoss(Fraction(0), self.noise.mu_squared)

    def release(self, counts: Codes, columns: _Doubles, rng: Randomness) -> NoisyPair:
        """Noisy sums.

        Args:
            counts: int64[k], private counts of the occupied cells.
            columns: float64[k, 2] or [k, 1], values of the columns in [0, 1].
            rng: Source of noise; charge the ledger before building it.
        """
        sums = counts @ weighted_monomials(columns)
        return NoisyPair(self, int(counts.sum()), self.noise.release(sums, rng))


@dataclass(frozen=True, eq=False)
class NoisyPair:
    """What was released, and what follows from it.

    Attributes:
        mechanism: Its parameters.
        n_records: Number of records n, public.
        sums: float64[14] or [4], weighted and noisy.
    """

    mechanism: PairMoments
    n_records: int
    sums: _Doubles

    def estimate(self, wanted: Derived) -> float:
        """The function of the noisy means, not clipped; NaN where it has no value."""
        with np.errstate(all="ignore"):
            return float(wanted.value(self._means()))

    def interval(self, wanted: Derived, level: float) -> BootstrapInterval:
        """The interval for the function of the population's means."""
        z, means, value = normal_quantile(level), self._means(), self.estimate(wanted)
        low, high = wanted.bounds
        for k, divisor in enumerate(wanted.denominators(means)):
            at_k = functools.partial(_coordinate, wanted.denominators, k)
            if divisor < 4 * math.sqrt(self._variance(at_k, False)):
                return BootstrapInterval(low, high, False)
        with np.errstate(all="ignore"):
            reach = z * self.standard_error(wanted)
        if not (math.isfinite(value) and math.isfinite(reach)):
            return BootstrapInterval(low, high, False)
        lower, upper = (min(max(end, low), high) for end in (value - reach, value + reach))
        return BootstrapInterval(lower, upper, True)

    def standard_error(self, wanted: Derived) -> float:
        """Of the estimate, sampling and noise together; NaN if there is none."""
        with np.errstate(all="ignore"):
            return math.sqrt(self._variance(wanted.value, True))

    def noise_sd(self, wanted: Derived) -> float:
        """Standard deviation of the noise in the estimate; NaN if there is none."""
        with np.errstate(all="ignore"):
            return math.sqrt(self._variance(wanted.value, False))

    def _moments(self) -> dict[tuple[int, int], float]:
        """Noisy means of the monomials of u and v; those of v are 0 if it was not released."""
        powers = self.mechanism.powers
        plain = self.sums / np.array([float(_weight(*p)) for p in powers]) / self.n_records
        return dict.fromkeys(POWERS, 0.0) | dict(zip(powers, plain.tolist(), strict=True))

    def _means(self, moments: _Doubles | None = None) -> Means:
        """Means of x, y, x^2, xy, y^2 from those of the five monomials of u and v."""
        found = self._moments()
        u, v, uu, uv, vv = [found[p] for p in _FIRST] if moments is None else moments
        return np.array([u + 0.5, v + 0.5, uu + u + 0.25, uv + (u + v) / 2 + 0.25, vv + v + 0.25])

    def _variance(self, value: Callable[[Means], float], sampling: bool) -> float:
        """Variance of a linear approximation, of the noise and of the sampling or not."""
        found = self._moments()
        at = np.array([found[p] for p in _FIRST])
        slopes = []
        for unit in np.eye(5) * _STEP:
            up, down = (value(self._means(at + sign * unit)) for sign in (1, -1))
            slopes.append((up - down) / (2 * _STEP))
        g = np.array(slopes)
        sigma = self.mechanism.noise.sigma / self.n_records
        own = dict.fromkeys(POWERS, 0.0)
        own |= {p: sigma / float(_weight(*p)) for p in self.mechanism.powers}
        total = float(sum(c**2 * own[p] ** 2 for c, p in zip(g, _FIRST, strict=True)))
        if sampling:
            centre = float(g @ at)
            slope = dict.fromkeys(POWERS, 0.0)  # of g'Sg, in each monomial's mean
            for (k, one), (m, two) in itertools.product(enumerate(_FIRST), repeat=2):
                slope[one[0] + two[0], one[1] + two[1]] += g[k] * g[m]
            spread = sum(c * found[p] for p, c in slope.items()) - centre**2
            for c, p in zip(g, _FIRST, strict=True):
                slope[p] -= 2 * centre * c
            noise = math.sqrt(sum((c * own[p]) ** 2 for p, c in slope.items()))
            total += (max(0.0, float(spread)) + noise) / self.n_records
        return total


def _coordinate(function: Callable[[Means], tuple[float, ...]], k: int, means: Means) -> float:
    return function(means)[k]


def weighted_monomials(columns: _Doubles) -> _Doubles:
    """The weighted monomials float64[k, 14] of records float64[k, 2], or [k, 4] of [k, 1]."""
    centred = np.clip(columns, 0.0, 1.0).T - 0.5
    u, v, powers = centred[0], centred[-1], POWERS if len(centred) == 2 else ALONE
    weights = dict(zip(POWERS, WEIGHTS, strict=True))
    return np.column_stack([float(weights[i, j]) * u**i * v**j for i, j in powers])


def _moves(columns: int) -> tuple[Fraction, int]:
    """The sensitivity of all sums, rounded up, and their number."""
    square, powers = (SENSITIVITY_SQUARED, POWERS) if columns == 2 else (ALONE_SQUARED, ALONE)
    root = math.isqrt(math.ceil(square * 2 ** (2 * _BITS))) + 1
    return Fraction(root, 2**_BITS), len(powers)
