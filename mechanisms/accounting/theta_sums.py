"""Sums of exp(-z^2 / (2 variance)) over integers z, enclosed in balls.

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
from fractions import Fraction

from flint import arb, ctx

from mechanisms.accounting.enclosures import ball


@functools.lru_cache(maxsize=64)
def residue_weights(square: Fraction, cells: int, bits: int) -> tuple[arb, ...]:
    """The c of Pr[W = w] = c(w mod cells) exp(-w^2 / (2 cells square))."""
    with ctx.workprec(bits):
        one = 1 / theta(Fraction(0), square)
        found: tuple[arb, ...] = (one,)
        for k in range(2, cells + 1):
            j = k - 1  # cells before; the exponent left over is (z - w/k)^2 k / (2 j square)
            left = j * square / k / j**2
            found = tuple(
                one
                * sum(
                    (
                        found[(r - a) % j] * theta(Fraction(r - k * a, k * j), left)
                        for a in range(j)
                    ),
                    arb(0),
                )
                for r in range(k)
            )
        return found


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


def one_sided(first: int, step: int, variance: Fraction) -> arb:
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
