"""The Bernstein mechanism: noise on a function's values at a lattice, exact in integers.

Source: Aldà and Rubinstein (2017, arXiv 1507.04499), Algorithm 1. Adjacency: replace-one. Released
are integers, the values of F_D on {0, 1/k, .., 1}^d in steps of a public grid, with noise; any
point can then be evaluated for ever (mechanisms.functions.polynomials).

**Sensitivity.** The paper adds Laplace noise of scale S(F) (k+1)^d / epsilon, as if all values
could move by S(F) at once. Here the change of the whole vector is bounded: its L1 norm for
Laplace noise, its L2 norm for Gaussian noise, over all neighbours (``Learner.sensitivity``).

**Exactness.** A value is computed in floating point, in error by at most e for all data, and
rounded to the nearest multiple of a grid step g, a power of 2, by which the division is exact. So
it is off by at most e + g/2, and with m lattice points a replaced record moves the vector of
integers by

    |change|_1 <= (l1 + m (g + 2 e)) / g,   |change|_2 <= (l2 + sqrt(m) (g + 2 e)) / g,

l1 and l2 the norms of the change of F. The left sides are an integer and the root of an integer, so
the right sides are rounded down to such. g is so small that this adds some 2^-12. The noise is
integer noise of a rational scale, and the sum of two integers is exact (modulo 2^64): no floating
point touches the distribution of what is released.

**Loss.** Laplace noise of scale t costs the pure epsilon |change|_1 / t. Gaussian noise of scale s
>= 2^8 is a post-processing of normal noise of variance s^2 - 256 at every point of the lattice
(mechanisms.sampling.randomness), and that of a vector which moves by at most |change|_2 is
mu-GDP with mu^2 = |change|_2^2 / (s^2 - 256), whatever the direction of the change. On a coarser
grid it is rho-zCDP with rho = |change|_2^2 / (2 s^2) (Canonne, Kamath and Steinke 2020, arXiv
2004.00010, Theorem 4).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.accounting.balls import double_above
from statpress.mechanisms.accounting.losses import (
    ConcentratedLoss,
    GaussianLoss,
    PrivacyLoss,
    PureLoss,
)
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.errors import ConfigError, InfeasibleBudgetError, RecordsError
from statpress.mechanisms.functions.learner import (
    _MOST_SAMPLES,
    _SAMPLE_SEED,
    _SAMPLE_VALUES,
    Learner,
    Noise,
)
from statpress.mechanisms.functions.polynomials import (
    MOST_DEGREE,
    BernsteinFunction,
    iterated_basis,
)
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.sampling.randomness import (
    LEAST_SCALE,
    Randomness,
    equivalent_variance,
    scale_for,
)

_FINE_BITS = 12  # the rounding adds about 2^-12 to the sensitivity
_MOST_BITS = 60  # of the largest value in grid steps


def step_bits(learner: Learner, degree: int) -> int:
    """The power of 2 of the grid: fine against the sensitivity, and 64 bits hold all values."""
    points = (degree + 1) ** len(learner.axes)
    sensitivity = learner.sensitivity(degree)
    share = min(sensitivity.l1 / points, sensitivity.l2 / math.sqrt(points))
    most = _MOST_BITS - math.frexp(learner.magnitude)[1]
    return min(_FINE_BITS - math.frexp(share)[1] + 1, most) if share > 0 else most


def integer_sensitivity(
    learner: Learner, degree: int, noise: Noise, unit_records: int = 1
) -> Fraction:
    """L1 norm, or the square of the L2 norm, of the change of the integers; an integer."""
    if unit_records < 1:
        raise RecordsError("unit_records must be positive.")
    points = (degree + 1) ** len(learner.axes)
    sensitivity, bits = learner.sensitivity(degree), step_bits(learner, degree)
    step = Fraction(2) ** -bits
    slack = step + 2 * Fraction(learner.rounding)
    point = unit_records * Fraction(sensitivity.point)
    if noise == "laplace":
        l1 = min(unit_records * Fraction(sensitivity.l1), points * point)
        return Fraction(math.floor((l1 + points * slack) / step))
    root = Fraction(math.isqrt(points << 64) + 1, 1 << 32)
    l2 = min(unit_records * Fraction(sensitivity.l2), root * point)
    return Fraction(math.floor(((l2 + root * slack) / step) ** 2))


def integer_values(learner: Learner, table: ContingencyTable, degree: int) -> NDArray[np.int64]:
    """F on the lattice in steps of the grid, rounded: int64[(k + 1,) * d]; private."""
    values = np.nan_to_num(learner.values(table, degree), nan=0.0)
    bounded = np.clip(values, -learner.magnitude, learner.magnitude)
    return np.rint(np.ldexp(bounded, step_bits(learner, degree))).astype(np.int64)


MOST_POINTS = 20_000
"""Most points of a lattice."""

_DEGREES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128, 200)
_ORDERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)


@dataclass(frozen=True, eq=False, repr=False)
class NoisyLattice:
    """What is released: noisy values on the lattice, in steps of the grid."""

    counts: NDArray[np.int64]  # int64[(k + 1,) * d]
    step_bits: int  # the step is 2^-step_bits
    order: int  # h of the operator that evaluates it
    lower: tuple[float, ...]  # lower ends of the variables
    upper: tuple[float, ...]  # upper ends

    def function(self) -> BernsteinFunction:
        """The released function, on the box of the declared bounds."""
        values = np.ldexp(self.counts.astype(np.float64), -self.step_bits)
        return BernsteinFunction(values, self.order, self.lower, self.upper)


@dataclass(frozen=True, kw_only=True)
class BernsteinMechanism:
    """Noise of one scale on the lattice values of a learner.

    Attributes:
        learner: The function, with its public parameters.
        degree: k, so that the lattice has (k + 1)^d points.
        order: h of the iterated operator; it plays no part in the guarantee.
        noise: Laplace for pure privacy, Gaussian for (epsilon, delta).
        scale: Of the noise, in steps of the grid; exactly a double.

    Raises:
        ConfigError: k or h is out of range, or the lattice has too many points.
        RecordsError: The scale is not above 0 or not exactly a double.
    """

    learner: Learner
    degree: int
    order: int
    noise: Noise
    scale: Fraction

    def __post_init__(self) -> None:
        if not 1 <= self.degree <= MOST_DEGREE:
            raise ConfigError(f"k must be from 1 to {MOST_DEGREE}.", where="degree")
        if self.order < 1:
            raise ConfigError("The order h must be at least 1.", where="order")
        if self.points > MOST_POINTS:
            raise ConfigError(f"The lattice has more than {MOST_POINTS:,} points.", where="degree")
        if not (self.scale > 0 and Fraction(float(self.scale)) == self.scale):
            raise RecordsError("The scale must be above 0 and exactly a double.", where="scale")

    @property
    def points(self) -> int:
        """Number of lattice points (k + 1)^d."""
        return int((self.degree + 1) ** len(self.learner.axes))

    @property
    def step_bits(self) -> int:
        """The grid's step is 2 to minus this."""
        return step_bits(self.learner, self.degree)

    @property
    def noise_scale(self) -> float:
        """Scale of the noise in units of the function."""
        return math.ldexp(float(self.scale), -self.step_bits)

    def loss(self, *, unit_records: int = 1) -> PrivacyLoss:
        """The privacy loss of the whole lattice; takes no data.

        A unit can replace several records, one after the other, so the sensitivity is at most this
        many times that of one.
        """
        moved = integer_sensitivity(self.learner, self.degree, self.noise, unit_records)
        return lattice_loss(self.noise, self.scale, moved)

    def release(self, table: ContingencyTable, rng: Randomness) -> NoisyLattice:
        """Add the noise; charge the ledger before building ``rng``."""
        exact = integer_values(self.learner, table, self.degree)
        draw = rng.discrete_laplace if self.noise == "laplace" else rng.discrete_gaussian
        return NoisyLattice(
            counts=exact + draw(self.scale, self.points).reshape(exact.shape),
            step_bits=self.step_bits,
            order=self.order,
            lower=tuple(axis.lower for axis in self.learner.axes),
            upper=tuple(axis.upper for axis in self.learner.axes),
        )

    def expected_sup_error(self) -> float:
        """About the mean largest error over the cube, from public quantities."""
        dimensions = len(self.learner.axes)
        noise = expected_noise(dimensions, self.degree, self.order, self.noise)
        return self.learner.bias(self.degree, self.order) + self.noise_scale * noise

    def error_bound(self, beta: float) -> float:
        """A level that the largest error passes with probability at most beta, for any data.

        Infinite where nothing is known of the function's smoothness.
        """
        dimensions = len(self.learner.axes)
        level = noise_bound(dimensions, self.degree, self.order, self.noise, beta)
        step = math.ldexp(1.0, -self.step_bits)
        widened = self.noise_scale * level + (step + self.learner.rounding) * level
        return self.learner.bias(self.degree, self.order, worst=True) + widened

    @classmethod
    def calibrate(
        cls,
        learner: Learner,
        noise: Noise,
        target: Target,
        *,
        degree: int | None = None,
        order: int | None = None,
    ) -> BernsteinMechanism:
        """The smallest scale that meets the target, at the k and h of least expected error.

        A k or h that is given stays. The others are chosen by the expected largest error, bias plus
        noise: Theorem 3's trade-off with both sides computed.

        Raises:
            InfeasibleBudgetError: No scale meets the target.
        """
        if noise == "laplace":
            ratio = 1 / (Fraction(target.pure_epsilon()) * target.unit_records)
        else:
            ratio = 1 / target.largest_mu()
        dimensions = len(learner.axes)
        best, least = None, math.inf
        for k in _DEGREES if degree is None else (degree,):
            if degree is None and (k + 1) ** dimensions > MOST_POINTS:
                break
            candidate = cls(
                learner=learner,
                degree=k,
                order=1 if order is None else order,
                noise=noise,
                scale=_scale(learner, k, noise, ratio, target.unit_records),
            )
            rises, last = 0, math.inf
            for h in _ORDERS if order is None else (order,):
                if candidate.noise_scale >= least or rises == 2:
                    break  # at a corner of the cube the noise is that of one value
                error = learner.bias(k, h)
                if error < least:
                    error += candidate.noise_scale * expected_noise(dimensions, k, h, noise)
                rises, last = rises + (error > last), error
                if best is None or error < least:
                    best, least = replace(candidate, order=h), error
        assert best is not None
        if not target.allows(best.loss(unit_records=target.unit_records)):
            raise InfeasibleBudgetError("No scale of this noise meets the budget.")
        return best


@functools.lru_cache(maxsize=4096)
def expected_noise(dimensions: int, degree: int, order: int, noise: Noise) -> float:
    """About the mean of the largest |sum of Z_v b_v(y)| for noise of scale 1.

    By a fixed sample on a grid: a guide, not a bound.
    """
    side = degree + 1
    samples = min(_MOST_SAMPLES, max(8, _SAMPLE_VALUES // side**dimensions))
    uniform = np.random.Generator(np.random.PCG64(_SAMPLE_SEED))
    shape = (samples, *(side for _ in range(dimensions)))
    draws = uniform.laplace(size=shape) if noise == "laplace" else uniform.normal(size=shape)
    places = {1: min(8 * degree, 200), 2: 64, 3: 20, 4: 10}[dimensions]
    ends = (1 - np.cos(np.linspace(0, math.pi, places + 1))) / 2  # denser where it is larger
    basis = iterated_basis(degree, order, ends)
    for _ in range(dimensions):
        draws = np.tensordot(draws, basis, axes=(1, 0))
    return float(np.abs(draws).reshape(samples, -1).max(axis=1).mean())


def noise_bound(dimensions: int, degree: int, order: int, noise: Noise, beta: float) -> float:
    """A level that noise of scale 1 passes anywhere on the cube with probability <= beta.

    With m lattice points, Pr[|Z| >= t] <= exp(-t) for the Laplace and 2 exp(-t^2 / 2) for the
    Gaussian distribution. The discrete Gaussian is sub-Gaussian too (Canonne, Kamath and Steinke
    2020, arXiv 2004.00010); the discrete Laplace needs half a step of its grid more.
    """
    if not 0 < beta < 1:
        raise ValueError("beta must be between 0 and 1")
    points = (degree + 1) ** dimensions
    if noise == "laplace":
        level = math.log(points / beta)
    else:
        level = math.sqrt(2 * math.log(2 * points / beta))
    return float(max(level, 1.0) * lebesgue_constant(degree, order) ** dimensions)


def lattice_loss(noise: Noise, scale: Fraction, moved: Fraction) -> PrivacyLoss:
    """The privacy loss of noise on a vector of integers.

    ``moved`` is the L1 norm, or for Gaussian noise the square of the L2 norm, of the largest
    change.
    """
    if noise == "laplace":
        return PureLoss(moved / scale)
    if scale < LEAST_SCALE:
        return ConcentratedLoss(moved / (2 * scale**2))
    return GaussianLoss(Fraction(0), moved / equivalent_variance(scale))


def _scale(
    learner: Learner, degree: int, noise: Noise, ratio: Fraction, unit_records: int
) -> Fraction:
    """Ratio times the sensitivity of the integers, rounded up to a double."""
    moved = integer_sensitivity(learner, degree, noise, unit_records)
    if noise == "gaussian":
        return scale_for(max(ratio**2 * moved, Fraction(LEAST_SCALE**2)))
    return Fraction(double_above(ratio * moved))


def lebesgue_constant(degree: int, order: int) -> float:
    """Upper bound on the largest sum of |basis| over [0, 1], in one variable.

    For any signs the signed sum is a polynomial of degree k, whose largest absolute value is
    at most 1 / cos(k pi / (2 N)) times that at N Chebyshev points (Ehlich and Zeller 1964).
    It is 1 for order 1, where the basis is non-negative, and below 2^h - 1 (the paper,
    equation 12).
    """
    if order == 1:
        return 1.0
    nodes = 16 * degree
    points = (1 - np.cos((np.arange(nodes) + 0.5) * math.pi / nodes)) / 2
    largest = float(np.abs(iterated_basis(degree, order, points)).sum(axis=0).max())
    return min(largest * (1 + 1e-9) / math.cos(math.pi / 32), 2.0**order - 1)
