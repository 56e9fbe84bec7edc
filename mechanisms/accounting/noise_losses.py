"""Losses of integer noise, discrete Laplace and discrete Gaussian, added to several cells.

The dominating pair is the noise of all cells that a unit moves against the same noise, each
cell shifted by as much as the unit moves it. The noise is symmetric and its cells are
independent: both orders of the pair have the same curve, and the losses of the cells add up.

The laws of Gaussian noise are sums of exp(-z^2 / (2 variance)) over integers z, enclosed in balls.

**Sum of noise.** Let W be the sum of k independent discrete Gaussians of one variance v.
Completing the square in the convolution shows Pr[W = w] = c(w mod k) exp(-w^2 / (2 k v))
exactly, the c from theta functions.

**All integers.** Little noise is summed term by term, much of it by Poisson summation; what
is left out is at most a geometric series.

**One side.** Summed term by term for little noise and by Euler and Maclaurin for much, whose
remainder is bounded by Cramér's inequality |He_n(x)| <= 1.0865 sqrt(n!) exp(x^2/4).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

from flint import arb, arb_poly, ctx

from mechanisms.accounting.enclosures import (
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
    w the first integer whose loss exceeds epsilon, delta = T(w) - e^epsilon T(w + k s). T is a sum
    of one-sided theta functions.

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
        first = math.floor((2 * square * Fraction(epsilon) - k * s * s) / (2 * s)) + 1
        return enclosed(
            lambda: self._tail(first) - arb(epsilon).exp() * self._tail(first + k * s), 1.0
        )

    def _tail(self, first: int) -> arb:
        """Pr[W >= first]."""
        k, bits = self.cells, int(ctx.prec)
        variance = k * self.sigma_squared
        weights, total = _residue_weights(self.sigma_squared, k, bits), arb(0)
        for start in range(first, first + k):
            if start >= 0:
                part = _one_sided(start, k, variance)
            else:
                whole = _theta(Fraction(start, k), variance / k**2)
                part = whole - _one_sided(k - start, k, variance)
            total += weights[start % k] * part
        return total

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
            ratio = _theta(moved, square) / _theta(Fraction(0), square)
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


@functools.lru_cache(maxsize=64)
def _residue_weights(square: Fraction, cells: int, bits: int) -> tuple[arb, ...]:
    """The c of Pr[W = w] = c(w mod cells) exp(-w^2 / (2 cells square))."""
    with ctx.workprec(bits):
        one = 1 / _theta(Fraction(0), square)
        found: tuple[arb, ...] = (one,)
        for k in range(2, cells + 1):
            j = k - 1  # cells before; the exponent left over is (z - w/k)^2 k / (2 j square)
            left = j * square / k / j**2
            found = tuple(
                one
                * sum(
                    (
                        found[(r - a) % j] * _theta(Fraction(r - k * a, k * j), left)
                        for a in range(j)
                    ),
                    arb(0),
                )
                for r in range(k)
            )
        return found


def _theta(centre: Fraction, variance: Fraction) -> arb:
    """Sum over all integers z of exp(-(z - centre)^2 / (2 variance))."""
    x, v, small = ball(centre - round(centre)), ball(variance), arb(2) ** -int(ctx.prec)
    total, k = arb(0), 0
    if variance >= Fraction(1, 6):  # Poisson summation
        decay = 2 * arb.pi() ** 2 * v
        while True:
            size = (-decay * k * k).exp()
            if size < small:
                rest = 2 * size / (1 - (-decay).exp())
                return (total + rest.union(-rest)) * (2 * arb.pi() * v).sqrt()
            total += size * (1 if k == 0 else 2 * (2 * arb.pi() * k * x).cos())
            k += 1
    total = (-(x**2) / (2 * v)).exp()
    while True:
        k += 1
        size = (-((k - arb(1) / 2) ** 2) / (2 * v)).exp()  # at least either term of this k
        if size < small * total:
            rest = 2 * size / (1 - (-k / v).exp())
            return total + rest.union(arb(0))
        total += (-((k - x) ** 2) / (2 * v)).exp() + (-((k + x) ** 2) / (2 * v)).exp()


def _one_sided(first: int, step: int, variance: Fraction) -> arb:
    """Sum over j >= 0 of exp(-(first + j step)^2 / (2 variance)), first >= 0."""
    v, bits = ball(variance), int(ctx.prec)
    if variance < 256 * step**2:
        term = (-(arb(first) ** 2) / (2 * v)).exp()
        ratio = (-(arb(2 * first + step) * step) / (2 * v)).exp()
        shrink, total, small = (-(arb(step) ** 2) / v).exp(), arb(0), arb(2) ** -bits
        while not term < small * total:
            total += term
            term *= ratio
            ratio *= shrink
        return total + (term / (1 - ratio)).union(arb(0))
    root = v.sqrt()
    x, eta = first / root, step / root
    pairs = bits // 6 + 8
    total = (arb.pi() / 2).sqrt() / eta * (x / arb(2).sqrt()).erfc()
    before, hermite, power, factorial = arb(1), x, eta, arb(2)  # He_0, He_1, eta^1, 2!
    corrections = arb(1) / 2
    for i in range(1, pairs + 1):
        corrections += arb.bernoulli(2 * i) / factorial * power * hermite
        before, hermite = hermite, x * hermite - (2 * i - 1) * before
        if i == pairs:
            break
        before, hermite = hermite, x * hermite - 2 * i * before
        power *= eta**2
        factorial *= (2 * i + 1) * (2 * i + 2)
    rest = (
        2 * arb(2 * pairs).zeta() / (2 * arb.pi()) ** (2 * pairs) * power
        * arb("1.0865") * factorial.sqrt() * arb.pi().sqrt() * (x / 2).erfc()
    )  # fmt: skip
    return total + corrections * (-(x**2) / 2).exp() + rest.union(-rest)
