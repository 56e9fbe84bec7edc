"""Gaussian noise on statistics computed in floating point, released on an integer grid.

The grid step is 2^-12 of the sensitivity or less. Two steps are added to the move of every
coordinate, a twentieth of a per cent: one for rounding both neighbours to the grid, and one for
the error of floating point, of which half a step is allowed in each. A sum of k products in
[-1, 1] of cell values and counts that add up to n is off by at most k n 2^-53 in doubles, in
any order of summation, so the means, variances and covariances here are within half a step as
long as k n <= 2^37, k the number of occupied cells (and n at most 370 000 for ungrouped
records). Beyond that the mechanisms refuse to be calibrated, by the public bound on k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mechanisms.errors import ConfigError, RecordsError
from mechanisms.sampling.gaussian_noise import equivalent_variance, scale_for
from mechanisms.sampling.randomness import Randomness

_FINENESS = 12
_MOST_PRODUCTS = 2**37
_MOST_STEPS = 2**52  # of a value, so that a double holds it to half a step
_Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class StatisticNoise:
    """Noise for values with a sensitivity, calibrated to a mu.

    Attributes:
        sensitivity: Euclidean length that one moved record can cause.
        dimension: Numbers in one value.
        scale: Of the discrete Gaussian, in grid steps.
    """

    sensitivity: Fraction
    dimension: int
    scale: Fraction

    def __post_init__(self) -> None:
        if self.sensitivity <= 0 or self.dimension < 1:
            raise RecordsError("The sensitivity and the dimension must be positive.")

    @classmethod
    def calibrate(
        cls, mu_squared: Fraction, *, sensitivity: Fraction, dimension: int = 1
    ) -> StatisticNoise:
        """The least noise that makes a value mu-GDP."""
        if mu_squared <= 0:
            raise RecordsError("mu must be positive.")
        move = cls(sensitivity, dimension, Fraction(1)).move
        return cls(sensitivity, dimension, scale_for(move**2 / mu_squared))

    @staticmethod
    def check_accuracy(*, n_records: int, n_cells: int) -> None:
        """Refuse sums that doubles cannot hold accurately enough, from public quantities.

        Args:
            n_records: Number of records n.
            n_cells: Cells of the statistic's columns in the declared domain.
        """
        if n_records * min(n_records, n_cells) > _MOST_PRODUCTS:
            raise RecordsError("There are too many records in too many cells for this statistic.")

    def check_bounds(self, low: float, high: float) -> None:
        """Refuse values that doubles, or the grid's integers, cannot hold.

        Args:
            low: Declared lower bound of the values, in their own units.
            high: Declared upper bound.

        Raises:
            ConfigError: A bound is too far from 0 for the sensitivity.
        """
        if max(abs(Fraction(low)), abs(Fraction(high))) > _MOST_STEPS * self.step:
            raise ConfigError(
                "The declared bounds are too far from 0 for the statistic's sensitivity: doubles "
                "cannot hold such values exactly enough.",
                where="function",
                next_step="Declare the bounds that the statistic has, or take an offset off it.",
            )

    @property
    def step(self) -> Fraction:
        """The grid step, a power of two."""
        _, exponent = math.frexp(float(self.sensitivity))
        return Fraction(2) ** (exponent - 1 - _FINENESS)

    @property
    def move(self) -> Fraction:
        """How far one record can move what is released, in steps."""
        root = Fraction(math.isqrt(self.dimension << 40) + 1, 1 << 20)
        return self.sensitivity / self.step + 2 * root

    @property
    def mu_squared(self) -> Fraction:
        """Square of the mu of one released value."""
        return self.move**2 / equivalent_variance(self.scale)

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise."""
        return float(self.scale * self.step)

    def release(self, values: _Doubles, rng: Randomness) -> _Doubles:
        """Round to the grid and add the noise.

        Args:
            values: float64[..], finite, within 2^62 steps (``check_bounds``).
            rng: Source of noise; charge the ledger before building it.
        """
        step = float(self.step)
        on_grid = np.rint(values / step).astype(np.int64)
        noise = rng.discrete_gaussian(self.scale, values.size).reshape(values.shape)
        found: _Doubles = (on_grid + noise).astype(np.float64) * step
        return found
