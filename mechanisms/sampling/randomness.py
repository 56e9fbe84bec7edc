"""Where random bits come from, and the exact choices and noise made of them.

Mechanisms take their random bits from an argument, never from a global generator.

**Choices** have probabilities exactly proportional to real weights, by interval arithmetic. All
sums are of non-negative terms in balls (Arb), which enclose their rounding errors. A uniform
variate has as many bits, and the balls as many digits, as it takes for the comparison to be
certain, so each outcome is that of arithmetic without error. The epsilon of an exponential
mechanism that chooses in this way needs no addition for rounding.

**Gaussian noise on a fine integer grid**, charged as if it were continuous. No floating point may
touch the noise of a release, so statistics are integers, multiples of a grid far finer than the
noise, and the noise is the discrete Gaussian.

**Lemma.** Up to a factor within 1 +- 10**-2000, the discrete Gaussian with scale s about any
integer is a post-processing of the normal distribution with variance s^2 - 256 about it, by a
kernel that commutes with integer shifts: draw x from the latter, then an integer from the discrete
Gaussian of scale 16 centred at x (Peikert 2010, doi 10.1007/978-3-642-14623-7_5, Theorem 3.1).
*Proof.* That integer is y with probability the integral of phi_{s'}(x) rho(y - x) / rho(Z - x),
where rho(t) = exp(-t^2/512); by Poisson summation rho(Z - x) is 16 sqrt(2 pi) within a factor 1 +-
3 exp(-512 pi^2), whatever x is; without it the integral is phi_s(y).

So the curve of the release is at most that of N(0, s^2 - 256), shifted alike, plus e^epsilon
10**-1999. For epsilon <= 3800 that is less than the smallest double, and every upper bound
is rounded up by at least this much. The same holds coordinate by coordinate.

**Statistics computed in floating point**, released on such a grid. The grid step is 2^-12 of the
sensitivity or less. Two steps are added to the move of every coordinate, a twentieth of a per cent:
one for rounding both neighbours to the grid, and one for the error of floating point, of which half
a step is allowed in each. A sum of k products in [-1, 1] of cell values and counts that add up to n
is off by at most k n 2^-53 in doubles, in any order of summation, so the means, variances and
covariances here are within half a step as long as k n <= 2^37, k the number of occupied cells (and
n at most 370 000 for ungrouped records). Beyond that the mechanisms refuse to be calibrated, by the
public bound on k.
"""

from __future__ import annotations

import abc
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import arb, ctx, fmpq
from numpy.typing import NDArray

from statpress.mechanisms.accounting.balls import double_above
from statpress.mechanisms.errors import ConfigError, RecordsError

Progress = Callable[[int], None]
"""Called with the number of units of work done since the last call."""


class Randomness(np.random.Generator, abc.ABC):
    """A generator of random bits that also draws exact discrete noise.

    ``tasks.release.entropy`` builds the production form, whose bits are cryptographic.
    """

    @abc.abstractmethod
    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """Integers z with probability proportional to exp(-|z| / scale), int64[size]."""

    @abc.abstractmethod
    def discrete_gaussian(self, sigma: Fraction, size: int) -> NDArray[np.int64]:
        """Integers z with probability proportional to exp(-z**2 / (2 sigma**2)), int64[size]."""


WORD = 64
"""Bits that a choice draws at a time; it looks at twice as many digits of the weights."""


def choose_real(weights: Callable[[], Sequence[arb]], rng: np.random.Generator) -> int:
    """An index with probability exactly proportional to non-negative real weights.

    A uniform variate U of the unit interval gets bits until balls show between which
    cumulative weights U times their sum lies; it is never rounded. The number of rounds
    is finite with probability 1, and one but for a chance near the number of weights
    times 2**-64.

    Args:
        weights: Returns enclosures of the weights at the precision of the moment, which
            must narrow as it grows. Their sum is positive.
        rng: Source of bits.
    """
    bits = value = 0
    while True:
        bits += WORD
        value = value << WORD | int.from_bytes(rng.bytes(WORD // 8), "big")
        with ctx.workprec(2 * bits):
            bounds = list(itertools.accumulate(weights()))
            unit = bounds[-1] / arb(2) ** bits
            low, high = unit * value, unit * (value + 1)
            # A comparison of balls is true only if it holds for all of their points.
            last = len(bounds) - 1
            at = next((i for i in range(last) if high <= bounds[i]), last)
            if at == 0 or bounds[at - 1] <= low:
                return at


def rate_of(epsilon: Fraction | float, unit_records: int) -> Fraction:
    """Epsilon/(2c), the rate of the exponential mechanism.

    Raises:
        ValueError: Epsilon is not positive and finite, or c not positive.
    """
    if not (math.isfinite(epsilon) and epsilon > 0 and unit_records >= 1):
        raise ValueError("epsilon must be positive and finite, unit_records at least 1")
    return Fraction(epsilon) / (2 * unit_records)


def decay(rate: Fraction, steps: int | None) -> arb:
    """Enclosure of exp(-rate steps) at the precision of the moment; None is infinity."""
    if steps is None:
        return arb(0)
    return arb(fmpq(-rate.numerator * steps, rate.denominator)).exp()


KERNEL = 256
"""What the discrete Gaussian's variance exceeds that of the equivalent normal by."""

LEAST_SCALE = 2**8
_MOST_SCALE = 2**56


def scale_for(sigma_squared: Fraction) -> Fraction:
    """Scale of the discrete Gaussian, a double, equivalent to at least this normal variance.

    Raises:
        RecordsError: The scale is below 2**8 grid steps, or too large for its sampler.
    """
    square = sigma_squared + KERNEL
    scale = Fraction(double_above(Fraction(math.isqrt(math.ceil(square * 2**64)) + 1, 2**32)))
    if not LEAST_SCALE <= scale <= _MOST_SCALE:
        raise RecordsError("The noise does not suit the grid; mu is too large or too small.")
    return scale


def equivalent_variance(scale: Fraction) -> Fraction:
    """Variance of the normal distribution of which the noise is a post-processing."""
    return scale**2 - KERNEL


def noisy(values: Sequence[int], scale: Fraction, rng: Randomness) -> list[int]:
    """Integers with discrete Gaussian noise of one scale added."""
    noise = rng.discrete_gaussian(scale, len(values)).tolist()
    return [value + z for value, z in zip(values, noise, strict=True)]


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


_SEED = 20_100_301


class SimulatedRandomness(Randomness):
    """Noise of a known seed, for planning: what a mechanism would do to a public table.

    Rounded where the exact noise is discrete. It hides nothing, and so must never meet private
    counts.
    """

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(_SEED))

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """The difference of two geometric numbers."""
        stop = -np.expm1(-1 / float(scale))
        return np.subtract(self.geometric(stop, size), self.geometric(stop, size))

    def discrete_gaussian(self, sigma: Fraction, size: int) -> NDArray[np.int64]:
        """A normal number, rounded."""
        return np.rint(self.normal(0.0, float(sigma), size)).astype(np.int64)
