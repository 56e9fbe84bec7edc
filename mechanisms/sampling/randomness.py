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

**Discrete Gaussian noise**, exact and many numbers at a time (``discrete_gaussian``).

No floating point decides an output's probability: all that is assumed is that the generator's bits
are uniform and independent, and that NumPy's exponential is right to 2^-34 of its value.

**Law.** Integers z with probability proportional to exp(-z^2 / (2 s^2)), for a rational s > 0. They
are proposed and accepted or refused (von Neumann 1951); the sampler of Canonne, Kamath and Steinke
2020 (arXiv 2004.00010, algorithm 3) differs in what it proposes.

**Proposals.** With w = ceil(s): k with probability 2^-(k+1), k = 0, 1, ..., the number of zeros
before the first one of a row of random bits; r uniform on 0, ..., w - 1; and a sign. Proposed is
z = sign (k w + r), and minus nought is drawn afresh, so that z is proposed with probability in
proportion to 2^-k, k = |z| // w.

**Acceptance** with the probability a(z) = (2/5) 2^(k+1) exp(-z^2 / (2 s^2)). As |z| >= k w >= k s,
that is at most (2/5) 2^(k+1) exp(-k^2/2). Here 2^(k+1) exp(-k^2/2) is 2 at k = 0 and 4 exp(-1/2) <
5/2 at k = 1, and from there on it falls, by factors of 2 exp(-k - 1/2) < 1: so a(z) < 1. What is
accepted has probability in proportion to 2^-k a(z), which is that to exp(-z^2 / (2 s^2)). []

Some half of the proposals are accepted if s is not small.

**The comparison.** A proposal is accepted if U < a(z), with U uniform on [0, 1). U is drawn to 53
bits and compared with a(z) in doubles; where they are nearer to each other than ``BAND``, a(z) is
enclosed by ball arithmetic and bits are added to U until their order is proven. So doubles save
time and decide nothing that is not proven.

**The band.** Let t be half the square of z/s, and k < 63. In doubles t is off by 8 * 2^-53 of its
value. If t is at most 2^11, that is less than 2^-39; then a(z) is off by less than 2^-33 of its
value, which is below 1. If t is more, a(z) is less than 2^-1000 and so is what doubles make of it.
U is off by 2^-53. The band is 2^-32. Where k is 63 or more, once in 2^63 proposals, everything is
done in integers and balls.

**Evidence**: how much likelier a release is of one table than of another, which audits go by.

A mechanism with a method ``evidence`` can be audited: of two tables, it gives a function of a
release, the log of the ratio of its probabilities. It is exact for independent noise, where only
the numbers that differ between the tables count, and takes nothing of a release but what is
published.

What a mechanism would release without noise is found by releasing with ``NoNoise``, so the same
code that an audit puts to the test says where its noise lies. ``HalvedNoise`` makes the broken twin
of a mechanism that adds noise.
"""

from __future__ import annotations

import abc
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb, ctx, fmpq
from numpy.typing import ArrayLike, NDArray

from statpress.mechanisms.accounting.balls import double_above
from statpress.mechanisms.errors import ConfigError, RecordsError

Progress = Callable[[int], None]
"""Called with the number of units of work done since the last call."""


class Randomness(np.random.Generator, abc.ABC):
    """A generator of random bits that also draws exact discrete noise.

    ``tasks.release.entropy`` builds the production form, whose bits are cryptographic. Its Laplace
    noise is OpenDP's, its Gaussian noise that of the function ``discrete_gaussian`` below.
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


Integers = NDArray[np.int64]

BAND = 2.0**-32
AT_ONCE = 2**16
_BITS, _WORD, _ZEROS = 53, 64, 63


def discrete_gaussian(sigma: Fraction, size: int, rng: np.random.Generator) -> Integers:
    """Integers z with probability proportional to exp(-z**2 / (2 sigma**2)), int64[size].

    Args:
        sigma: Above 0 and at most 2**56.
        size: How many.
        rng: Source of bits; charge the ledger before building it.

    Raises:
        ValueError: Sigma is not within its bounds.
    """
    if not 0 < sigma <= 2**56:
        raise ValueError("sigma must be above 0 and at most 2**56")
    noise, filled = np.empty(size, np.int64), 0
    while filled < size:
        accepted = _accepted(sigma, min(AT_ONCE, 2 * (size - filled) + 16), rng)
        accepted = accepted[: size - filled]
        noise[filled : filled + len(accepted)] = accepted
        filled += len(accepted)
    return noise


def _accepted(sigma: Fraction, n: int, rng: np.random.Generator, *, band: float = BAND) -> Integers:
    """Those of n proposals that are accepted."""
    width = math.ceil(sigma)
    words = rng.integers(0, 2**_WORD, n, dtype=np.uint64)
    zeros = words >> np.uint64(1)
    lowest = zeros & (~zeros + np.uint64(1))
    k = np.frexp(lowest.astype(np.float64))[1].astype(np.int64) - 1  # of 0 it is -1
    sizes = np.where(k < 0, 0, k) * width + rng.integers(0, width, n)
    uniform = rng.integers(0, 2**_BITS, n)
    chances = approximate(sizes, k, sigma)
    away = uniform * 2.0**-_BITS - chances
    kept, negative = away < 0, (words & np.uint64(1)).astype(bool)
    for i in np.flatnonzero((np.abs(away) <= band) & (k >= 0)).tolist():
        kept[i] = _is_below(int(uniform[i]), _BITS, int(sizes[i]), int(k[i]), sigma, rng)
    for i in np.flatnonzero(k < 0).tolist():
        more = _ZEROS
        while rng.integers(0, 2):
            more += 1
        size = more * width + int(sizes[i])
        kept[i] = _is_below(int(uniform[i]), _BITS, size, more, sigma, rng)
        if kept[i]:
            sizes[i] = size
    kept &= ~(negative & (sizes == 0))
    return np.where(negative, -sizes, sizes)[kept]


def approximate(sizes: Integers, k: Integers, sigma: Fraction) -> NDArray[np.float64]:
    """The chances a(z) in doubles, of |z| int64[n] and k int64[n] below 64."""
    ratios = sizes / float(sigma)
    return np.asarray(0.4 * np.ldexp(np.exp(-0.5 * ratios * ratios), k + 1))


def chance(size: int, k: int, sigma: Fraction) -> arb:
    """Enclosure of a(z) at the precision of the moment, of |z|."""
    square = Fraction(size) ** 2 / (2 * sigma**2)
    return arb(fmpq(2 ** (k + 2), 5)) * arb(fmpq(-square.numerator, square.denominator)).exp()


def _is_below(
    uniform: int, bits: int, size: int, k: int, sigma: Fraction, rng: np.random.Generator
) -> bool:
    """Whether U, of which so many bits are known, is below a(z)."""
    while True:
        with ctx.workprec(2 * bits + 64):
            exact, unit = chance(size, k, sigma), arb(2) ** -bits
            # A comparison of balls is true only if it holds for all of their points.
            if unit * (uniform + 1) <= exact:
                return True
            if unit * uniform >= exact:
                return False
        uniform = uniform << _WORD | int.from_bytes(rng.bytes(_WORD // 8), "big")
        bits += _WORD


Evidence = Callable[[Any], float]
"""Of a release: the log of how much likelier it is of one table than of another."""


class NoNoise(Randomness):
    """Noise of zeros: what a mechanism would release of a public table without noise."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        return np.zeros(size, np.int64)

    def discrete_gaussian(self, sigma: Fraction, size: int) -> NDArray[np.int64]:
        return np.zeros(size, np.int64)


class HalvedNoise(Randomness):
    """Half the noise that is asked for, a fault that audits must find."""

    def __init__(self, rng: Randomness) -> None:
        super().__init__(rng.bit_generator)
        self._rng = rng

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        return self._rng.discrete_laplace(scale / 2, size)

    def discrete_gaussian(self, sigma: Fraction, size: int) -> NDArray[np.int64]:
        return self._rng.discrete_gaussian(sigma / 2, size)


def of_noise(
    exact: Iterable[ArrayLike], scale: float, *, laplace: bool = False
) -> Callable[[ArrayLike], float]:
    """The evidence of numbers with independent noise of one scale.

    Args:
        exact: The numbers without noise of the one table and of the other, of one shape.
        scale: Of the discrete Gaussian, or with ``laplace`` of exp(-|z|/scale).
        laplace: Which noise it is.

    Returns:
        A function of the noisy numbers.
    """
    first, second = map(np.ravel, exact)
    places = np.flatnonzero(first != second)
    first, second = first[places], second[places]

    def evidence(noisy: ArrayLike) -> float:
        found = np.ravel(noisy)[places]
        near, far = (np.abs(found - exact).astype(np.float64) for exact in (first, second))
        if laplace:
            return float((far - near).sum()) / scale
        return float(((far - near) * (far + near)).sum()) / (2 * scale**2)

    return evidence
