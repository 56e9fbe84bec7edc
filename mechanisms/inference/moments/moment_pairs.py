"""Correlation, regression, ratios and group differences from one release of joint moments.

For records (x, y) in [0, 1]^2 let u = x - 1/2, v = y - 1/2. Released are the sums over all n
records of functions of u and v with independent Gaussian noise of one scale. Which functions, and
how far a replaced record can move them, is a design (mechanisms.inference.moments.moment_designs).
The means of all monomials of u and v that a statistic needs follow from them linearly. Replace-one
neighbours.

**Intervals** are those of mechanisms.inference.moments.moment_sets.
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
from mechanisms.inference.guaranteed_variance import variance_limits
from mechanisms.inference.moments.moment_designs import PAIR, POWERS, MomentDesign
from mechanisms.inference.moments.moment_functions import Derived
from mechanisms.inference.moments.moment_sets import MomentSets
from mechanisms.sampling.randomness import Randomness
from mechanisms.sampling.statistic_noise import StatisticNoise

_Doubles = NDArray[np.float64]
_BITS = 40


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

    @property
    def noise_in_jumps(self) -> float:
        """Least noise on a linear figure of the sums, in moves of it by one record: 1/mu.

        A figure a'f has noise |a| sigma; a record moves it by at most |a| times the sensitivity.
        """
        return 1 / math.sqrt(self.noise.mu_squared)

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
        sums: float64[.., m], noisy; of many releases for simulations.
    """

    mechanism: PairMoments
    n_records: int
    sums: _Doubles

    @property
    def known(self) -> MomentSets:
        """The means of the monomials; 0 for those that were not released."""
        slopes, constant = self.mechanism.design.monomials
        means = np.moveaxis(self.sums @ slopes.T / self.n_records + constant, -1, 0)
        sigma = self.mechanism.noise.sigma / self.n_records
        return MomentSets(means, sigma * slopes, self.n_records)

    def estimate(self, wanted: Derived) -> float:
        """The function of the noisy means, not clipped; NaN where it has no value."""
        return self.known.estimate(wanted)

    def interval(self, wanted: Derived, level: float) -> ConfidenceSet:
        """The confidence set for the function of the population's means."""
        return self.known.sets(wanted, level).one(wanted.bounds)

    def variance_limits(self, level: float) -> tuple[float, float]:
        """Limits of the variance of one column that hold for every population."""
        slopes, constant = self.mechanism.design.monomials
        chosen = [POWERS.index((degree, 0)) for degree in range(1, 5)]
        slopes, constant = slopes[chosen], constant[chosen]
        # Rounding moves a sum by at most a step of its grid, and the noise has the same grid.
        return variance_limits(
            slopes @ self.sums + self.n_records * constant,
            self.mechanism.noise.sigma * slopes,
            2 * float(self.mechanism.noise.step) * np.abs(slopes).sum(axis=1),
            n_records=self.n_records,
            level=level,
        )

    def standard_error(self, wanted: Derived) -> float:
        """Of the estimate, sampling and noise together; NaN if there is none."""
        return self.known.standard_error(wanted)

    def noise_sd(self, wanted: Derived) -> float:
        """Standard deviation of the noise in the estimate; NaN if there is none."""
        return self.known.noise_sd(wanted)


def _moves(design: MomentDesign) -> tuple[Fraction, int]:
    """The sensitivity of all sums, rounded up, and their number."""
    root = math.isqrt(math.ceil(design.squared_sensitivity * 2 ** (2 * _BITS))) + 1
    return Fraction(root, 2**_BITS), len(design.functions)
