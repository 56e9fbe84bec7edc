"""Losses of integer noise, discrete Laplace and discrete Gaussian, added to several cells.

The dominating pair is the noise of all cells that a unit moves against the same noise, each
cell shifted by as much as the unit moves it. The noise is symmetric and its cells are
independent: both orders of the pair have the same curve, and the losses of the cells add up.

The laws of Gaussian noise are those of ``mechanisms.accounting.integer_noise``.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

from flint import arb, arb_poly, ctx

from mechanisms.accounting.integer_noise import SumOfNoise, theta
from mechanisms.accounting.numerics.enclosures import (
    BITS,
    Bounds,
    ball,
    enclosed,
    exactly,
    outwards,
    supremum,
)
from mechanisms.accounting.privacy_loss import Loss, Order, exact_order


@dataclass(frozen=True)
class DiscreteLaplaceLoss(Loss):
    """Integer noise with Pr[z] ~ exp(-|z|/scale) in cells that each move by ``shift``.

    The loss of one cell is (shift - 2j)/scale, j = 0..shift, with probability 1/(1 + r),
    r^j (1 - r)/(1 + r), r^shift/(1 + r) for the first, inner and last j, r = e^(-1/scale).
    Cells are independent, so the sum is a polynomial power, taken in balls: no rounding of
    losses. Moving records from one cell to another is two cells.
    """

    scale: Fraction
    shift: int
    cells: int

    def __post_init__(self) -> None:
        if not (self.scale > 0 and self.shift >= 1 and self.cells >= 1):
            raise ValueError("scale, shift and cells must be positive")

    def _ahead(self, epsilon: float) -> Bounds:
        most = self.cells * self.shift
        count = math.ceil((most - Fraction(epsilon) * self.scale) / 2)
        if count <= 0:
            return Bounds(0.0, 0.0)

        def value() -> arb:
            p, q = _laplace_sums(self, int(ctx.prec))
            return p[count] - arb(epsilon).exp() * q[count]

        return enclosed(value, 1.0)

    @property
    def pure_epsilon(self) -> Bounds:
        return exactly(self.cells * self.shift / self.scale)

    def _cgf(self, t: arb) -> arb:
        """Log of the mean of e^(t loss) in one cell, by the sum of a geometric series."""
        s, scale = self.shift, ball(self.scale)
        r, edge = (-1 / scale).exp(), (t * s / scale).exp()
        u = r * (-2 * t / scale).exp()
        inner = (1 - r) * edge * (u - u**s) / (1 - u)
        return ((edge + inner + r**s / edge) / (1 + r)).log()

    def _mean(self) -> arb:
        """Mean loss of one cell: E|Z - s| - E|Z| = s - 2 sum over j < s of Pr[Z > j]."""
        s, scale = self.shift, ball(self.scale)
        r = (-1 / scale).exp()
        return (s - 2 * r * (1 - r**s) / (1 - r) / (1 + r)) / scale

    @property
    def rho(self) -> Bounds:
        with ctx.workprec(2 * BITS):
            one = supremum(self._cgf, self._mean(), ball(self.shift / self.scale))
            return outwards(one * self.cells)

    def renyi(self, order: Order) -> Bounds:
        t = exact_order(order) - 1
        one = self._mean if not t else lambda: self._cgf(ball(t)) / ball(t)
        return enclosed(lambda: one() * self.cells)


@dataclass(frozen=True)
class DiscreteGaussianLoss(Loss):
    """Integer noise with Pr[z] ~ exp(-z^2 / (2 sigma^2)) in cells that each move by ``shift``.

    The loss (k s^2 + 2 s W) / (2 sigma^2) of k cells is linear in the sum W of their noise
    (Canonne, Kamath and Steinke 2020, arXiv 2004.00010, Theorem 7), so with T(w) = Pr[W >= w] and
    w the first integer whose loss exceeds epsilon, delta = T(w) - e^epsilon T(w + k s).

    Rho is k s^2 / (2 sigma^2): their Theorem 4 bounds the divergence of order a by a rho, and
    order 1 attains it.
    """

    sigma_squared: Fraction
    shift: int
    cells: int

    def __post_init__(self) -> None:
        if not (self.sigma_squared > 0 and self.shift >= 1 and self.cells >= 1):
            raise ValueError("sigma_squared, shift and cells must be positive")

    def _ahead(self, epsilon: float) -> Bounds:
        k, s, square = self.cells, self.shift, self.sigma_squared
        above, below = epsilon.as_integer_ratio()
        # the floor of (2 square epsilon - k s^2) / (2 s), in whole numbers
        unit = square.denominator * below
        first = (2 * square.numerator * above - k * s * s * unit) // (2 * s * unit) + 1

        def value() -> arb:
            noise = _sum_of_noise(square, k, int(ctx.prec))
            return noise.above(first) - arb(epsilon).exp() * noise.above(first + k * s)

        return enclosed(value, 1.0)

    @property
    def pure_epsilon(self) -> Bounds:
        return Bounds(math.inf, math.inf)

    @property
    def rho(self) -> Bounds:
        return exactly(self.cells * self.shift**2 / (2 * self.sigma_squared))

    def renyi(self, order: Order) -> Bounds:
        a, square = exact_order(order), self.sigma_squared
        line = a * self.cells * self.shift**2 / (2 * square)
        if a.denominator == 1:
            return exactly(line)
        moved = (a - 1) * self.shift

        def value() -> arb:
            ratio = theta(moved, square) / theta(Fraction(0), square)
            return ball(line) + self.cells * ratio.log() / ball(a - 1)

        return enclosed(value)


@functools.lru_cache(maxsize=64)
def _laplace_sums(loss: DiscreteLaplaceLoss, bits: int) -> tuple[list[arb], list[arb]]:
    """Running sums of both distributions over the losses, largest loss first."""
    with ctx.workprec(bits):
        s, unit = loss.shift, ball(1 / loss.scale)
        r = (-unit).exp()
        inner = [r**j * (1 - r) for j in range(1, s)]
        masses = (arb_poly([arb(1), *inner, r**s]) ** loss.cells).coeffs()
        norm, most = (1 + r) ** loss.cells, loss.cells * s
        p, q = [arb(0)], [arb(0)]
        for j, mass in enumerate(masses):
            p.append(p[-1] + mass / norm)
            q.append(q[-1] + mass / norm * (-unit * (most - 2 * j)).exp())
        return p, q


@functools.lru_cache(maxsize=256)
def _sum_of_noise(square: Fraction, cells: int, bits: int) -> SumOfNoise:
    """The sum of the noise of all cells, for many points of one curve."""
    with ctx.workprec(bits):
        return SumOfNoise(square, cells)
