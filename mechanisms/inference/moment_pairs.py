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

**Intervals** are those of mechanisms.inference.moment_sets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting.analytic import GaussianLoss
from mechanisms.domain.columns import Codes
from mechanisms.inference.fieller import ConfidenceSet
from mechanisms.inference.guaranteed import variance_limits
from mechanisms.inference.moment_functions import Derived
from mechanisms.inference.moment_sets import MomentSets
from mechanisms.sampling.randomness import Randomness
from mechanisms.sampling.statistic_noise import StatisticNoise

_Doubles = NDArray[np.float64]
POWERS = tuple((i, degree - i) for degree in range(1, 5) for i in range(degree, -1, -1))
"""Exponents of u and v, in the order of release."""

_BITS = 40


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

    @property
    def noise_in_jumps(self) -> float:
        """Least noise on a covariance, variance or numerator, in moves by a record of most effect.

        Where nearly all records lie in one corner, a record in the opposite one moves the sum for
        a covariance by 1, and the noise on it is that of uv - (u + v)/2 or the like.
        """
        share = 1.0 if self.columns == 1 else math.sqrt(min(1.0, 0.5 + float(_weight(1, 1)) ** -2))
        return self.noise.sigma * share

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
        sums: float64[.., 14] or [.., 4], weighted and noisy; of many releases for simulations.
    """

    mechanism: PairMoments
    n_records: int
    sums: _Doubles

    @property
    def known(self) -> MomentSets:
        """The moments as released; those of v are 0 if it was not released."""
        powers, sigma = self.mechanism.powers, self.mechanism.noise.sigma / self.n_records
        means = {p: np.zeros(self.sums.shape[:-1]) for p in POWERS}
        noise = dict.fromkeys(POWERS, 0.0)
        for k, power in enumerate(powers):
            weight = float(_weight(*power))
            means[power] = self.sums[..., k] / weight / self.n_records
            noise[power] = sigma / weight
        return MomentSets(means, noise, self.n_records)

    def estimate(self, wanted: Derived) -> float:
        """The function of the noisy means, not clipped; NaN where it has no value."""
        return self.known.estimate(wanted)

    def interval(self, wanted: Derived, level: float) -> ConfidenceSet:
        """The confidence set for the function of the population's means."""
        return self.known.sets(wanted, level).one(wanted.bounds)

    def variance_limits(self, level: float) -> tuple[float, float]:
        """Limits of the variance of one column that hold for every population."""
        n, known = self.n_records, self.known
        first, second, fourth = (1, 0), (2, 0), (4, 0)
        u, uu, uuuu = (float(known.means[p]) * n for p in (first, second, fourth))
        # Rounding moves a sum by a step of its grid, and the noise has the same grid.
        step = 2 * float(self.mechanism.noise.step)
        steps = [step / float(_weight(*p)) for p in (first, second, fourth)]
        noises = [known.noise[p] * n for p in (first, second, fourth)]
        return variance_limits(
            u + n / 2,
            4 * uu,
            64 * uuuu - 16 * uu + n,
            n_records=n,
            noises=(noises[0], 4 * noises[1], math.hypot(64 * noises[2], 16 * noises[1])),
            level=level,
            slacks=(steps[0], 4 * steps[1], 64 * steps[2] + 16 * steps[1]),
        )

    def standard_error(self, wanted: Derived) -> float:
        """Of the estimate, sampling and noise together; NaN if there is none."""
        return self.known.standard_error(wanted)

    def noise_sd(self, wanted: Derived) -> float:
        """Standard deviation of the noise in the estimate; NaN if there is none."""
        return self.known.noise_sd(wanted)


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
