"""Correlation, regression, ratios and group differences from one release of joint moments.

For records (x, y) in [0, 1]^2 let u = x - 1/2, v = y - 1/2. Released are the sums over all n
records of functions of u and v with independent Gaussian noise of one scale. Which functions, and
how far a replaced record can move them, is a design (mechanisms.inference.moment_designs). The
means of all monomials of u and v that a statistic needs follow from them linearly. Replace-one
neighbours.

**Interval.** A smooth function h of the means of x, y, x^2, xy and y^2 is estimated by putting
the noisy means in its place. Its error is that of the linear function with h's gradient g (the
delta method): variance g'(S/n + N)g, with N the covariance matrix of the noise and S that of
the five monomials, which the moments up to degree 4 give. g'Sg has noise itself; one
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
from mechanisms.inference.moment_designs import PAIR, POWERS, MomentDesign
from mechanisms.inference.moment_functions import Derived, Means
from mechanisms.inference.replicate_intervals import BootstrapInterval
from mechanisms.sampling.randomness import Randomness
from mechanisms.sampling.statistic_noise import StatisticNoise

_Doubles = NDArray[np.float64]
_FIRST = ((1, 0), (0, 1), (2, 0), (1, 1), (0, 2))
_STEP, _BITS = 1e-6, 40


@dataclass(frozen=True)
class PairMoments:
    """The release at fixed parameters; all of them are public.

    Attributes:
        design: Which sums.
        noise: On all of them.
    """

    design: MomentDesign
    noise: StatisticNoise

    @classmethod
    def calibrate(
        cls,
        mu: Fraction,
        *,
        n_records: int,
        n_cells: int | None = None,
        design: MomentDesign = PAIR,
    ) -> PairMoments:
        """The least noise that makes all sums together mu-GDP.

        Args:
            mu: Of the release.
            n_records: Number of records n.
            n_cells: Of the declared domain of both columns; as many as records if not given.
            design: Which sums.
        """
        StatisticNoise.check_accuracy(n_records=n_records, n_cells=n_cells or n_records)
        sensitivity, dimension = _moves(design)
        noise = StatisticNoise.calibrate(mu**2, sensitivity=sensitivity, dimension=dimension)
        return cls(design, noise)

    @classmethod
    def at(cls, scale: Fraction, design: MomentDesign) -> PairMoments:
        """The release with noise of a given scale, in grid steps."""
        return cls(design, StatisticNoise(*_moves(design), scale))

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
        sums = counts @ self.design.values(columns)
        return NoisyPair(self, int(counts.sum()), self.noise.release(sums, rng))


@dataclass(frozen=True, eq=False)
class NoisyPair:
    """What was released, and what follows from it.

    Attributes:
        mechanism: Its parameters.
        n_records: Number of records n, public.
        sums: float64[m], noisy.
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
        """Noisy means of the monomials of u and v; 0 for those that were not released."""
        slopes, constant = self.mechanism.design.monomials
        found = slopes @ self.sums / self.n_records + constant
        return dict(zip(POWERS, found.tolist(), strict=True))

    def _noise(self) -> dict[tuple[int, int], _Doubles]:
        """Of each monomial's mean its noise, float64[m], in independent standard normal terms."""
        sigma = self.mechanism.noise.sigma / self.n_records
        slopes, _ = self.mechanism.design.monomials
        return dict(zip(POWERS, sigma * slopes, strict=True))

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
        own = self._noise()
        total = float(np.sum(sum(c * own[p] for c, p in zip(g, _FIRST, strict=True)) ** 2))
        if sampling:
            centre = float(g @ at)
            slope = dict.fromkeys(POWERS, 0.0)  # of g'Sg, in each monomial's mean
            for (k, one), (m, two) in itertools.product(enumerate(_FIRST), repeat=2):
                slope[one[0] + two[0], one[1] + two[1]] += g[k] * g[m]
            spread = sum(c * found[p] for p, c in slope.items()) - centre**2
            for c, p in zip(g, _FIRST, strict=True):
                slope[p] -= 2 * centre * c
            noise = math.sqrt(np.sum(sum(c * own[p] for p, c in slope.items()) ** 2))
            total += (max(0.0, float(spread)) + noise) / self.n_records
        return total


def _coordinate(function: Callable[[Means], tuple[float, ...]], k: int, means: Means) -> float:
    return function(means)[k]


def _moves(design: MomentDesign) -> tuple[Fraction, int]:
    """The sensitivity of all sums, rounded up, and their number."""
    root = math.isqrt(math.ceil(design.squared_sensitivity * 2 ** (2 * _BITS))) + 1
    return Fraction(root, 2**_BITS), len(design.functions)
