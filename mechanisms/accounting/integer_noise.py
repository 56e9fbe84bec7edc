"""Sums of independent discrete Gaussian noise: their tails, in balls.

The noise has Pr[z] ~ exp(-z^2 / (2 variance)) on the integers.

**Sum of noise.** Let W be the sum of k independent discrete Gaussians of one variance v.
Completing the square in the convolution shows Pr[W = w] = c(w mod k) exp(-w^2 / (2 k v))
exactly, the c from theta functions. Unless v is small the c are alike in every digit of interest:
then one ball holds them all, and the tail is one sum over all integers from w on.

**All integers.** Little noise is summed term by term, much of it by Poisson summation; what
is left out is at most a geometric series.

**One side.** Summed term by term for little noise and by Euler and Maclaurin for much, whose
remainder is bounded by Cramér's inequality |He_n(x)| <= 1.0865 sqrt(n!) exp(x^2/4).
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

from flint import arb, arb_poly, ctx, fmpz_poly

from mechanisms.accounting.numerics.enclosures import ball
from mechanisms.accounting.numerics.normal_tails import CRAMER, twice_above

_ALIKE = 24  # bits of the precision that weights taken for one may lose
_SPARE = 64  # bits below the precision at which the corrections of Euler and Maclaurin end


def theta(centre: Fraction, variance: Fraction) -> arb:
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


class SumOfNoise:
    """The W of the module's text, at the precision at which it is made."""

    def __init__(self, square: Fraction, cells: int) -> None:
        self.square, self.cells = square, cells
        self.weights = residue_weights(square, cells)
        whole = functools.reduce(arb.union, self.weights)
        self.alike = bool(whole.rel_accuracy_bits() >= int(ctx.prec) - _ALIKE)
        if self.alike:
            self.weights = (whole,)
        self.sums = _OneSided(1 if self.alike else cells, cells * square)

    def above(self, first: int) -> arb:
        """Pr[W >= first], at the same precision."""
        if self.alike:
            if first >= 0:
                return self.weights[0] * self.sums.at(first)
            return 1 - self.weights[0] * self.sums.at(1 - first)
        k, total = self.cells, arb(0)
        for start in range(first, first + k):
            if start >= 0:
                part = self.sums.at(start)
            else:
                whole = theta(Fraction(start, k), self.square / k)
                part = whole - self.sums.at(k - start)
            total += self.weights[start % k] * part
        return total


def residue_weights(square: Fraction, cells: int) -> tuple[arb, ...]:
    """The c of Pr[W = w] = c(w mod cells) exp(-w^2 / (2 cells square))."""
    one = 1 / theta(Fraction(0), square)
    found: tuple[arb, ...] = (one,)
    for k in range(2, cells + 1):
        j = k - 1  # cells before; the exponent left over is (z - w/k)^2 k / (2 j square)
        left = square / (k * j)
        found = tuple(
            one
            * sum(
                (found[(r - a) % j] * theta(Fraction(r - k * a, k * j), left) for a in range(j)),
                arb(0),
            )
            for r in range(k)
        )
    return found


class _OneSided:
    """Sums over j >= 0 of exp(-(first + j step)^2 / (2 variance)), first >= 0."""

    def __init__(self, step: int, variance: Fraction) -> None:
        self.step, self.variance = step, ball(variance)
        self.few = variance < 256 * step**2
        if self.few:
            self.shrink = (-(arb(step) ** 2) / self.variance).exp()
            return
        self.root = self.variance.sqrt()
        eta = step / self.root
        self.factor = (arb.pi() / 2).sqrt() / eta
        size, bits = math.log2(step) - math.log2(variance) / 2, int(ctx.prec)
        pairs = next(
            p for p in range(1, bits) if p == bits // 6 + 8 or _remainder(p, size) < -bits - _SPARE
        )
        self.corrections, power = arb_poly([0]), eta
        for term in _corrections(pairs, bits):
            self.corrections += term * power
            power *= eta**2
        power /= eta**2  # of the last pair: eta^(2 pairs - 1)
        self.rest = (
            2 * arb(2 * pairs).zeta() / (2 * arb.pi()) ** (2 * pairs) * power
            * arb(CRAMER) * arb(2 * pairs + 1).gamma().sqrt() * arb.pi().sqrt()
        )  # fmt: skip

    def at(self, first: int) -> arb:
        """The sum from one place on."""
        if self.few:
            return self._summed(first)
        x = first / self.root
        square = x * x
        least = (-square / 4).exp()
        rest = self.rest * least  # erfc(y) <= exp(-y^2), for y = x/2
        correction = self.corrections(square) * x + 0.5
        total: arb = self.factor * twice_above(x) + correction * least**2
        return total + rest.union(-rest)

    def _summed(self, first: int) -> arb:
        v, step = self.variance, self.step
        term = (-(arb(first) ** 2) / (2 * v)).exp()
        ratio = (-(arb(2 * first + step) * step) / (2 * v)).exp()
        total, small = arb(0), arb(2) ** -int(ctx.prec)
        while not term < small * total:
            total += term
            term *= ratio
            ratio *= self.shrink
        return total + (term / (1 - ratio)).union(arb(0))


def _remainder(pairs: int, size: float) -> float:
    """About the logarithm of the remainder, relative to the first term."""
    power = (2 * pairs - 1) * (size - math.log2(2 * math.pi))
    return power + size + math.lgamma(2 * pairs + 1) / math.log(4)


@functools.lru_cache(maxsize=256)
def _corrections(pairs: int, bits: int) -> tuple[arb_poly, ...]:
    """B_2i/(2i)! He_(2i-1)(x)/x as polynomials in x^2, for i = 1..pairs."""
    found = []
    with ctx.workprec(bits + _SPARE):
        before, hermite, factorial = fmpz_poly([1]), fmpz_poly([0, 1]), arb(2)
        for i in range(1, pairs + 1):
            odd = fmpz_poly(hermite.coeffs()[1::2])
            found.append(arb_poly(odd) * (arb.bernoulli(2 * i) / factorial))
            for n in (2 * i - 1, 2 * i):
                before, hermite = hermite, fmpz_poly([0, 1]) * hermite - n * before
            factorial *= (2 * i + 1) * (2 * i + 2)
    return tuple(found)
