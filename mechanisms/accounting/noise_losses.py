"""Losses of integer noise on cells, and of Gaussian noise on resampled records.

**Integer noise**, discrete Laplace and discrete Gaussian, added to several cells. The dominating
pair is the noise of all cells that a unit moves against the same noise, each cell shifted by as
much as the unit moves it. The noise is symmetric and its cells are independent: both orders of the
pair have the same curve, and the losses of the cells add up.

Of discrete Gaussian noise the loss is a function of the sum over cells, whose tails are taken in
balls. The noise has Pr[z] ~ exp(-z^2 / (2 variance)) on the integers.

**Sum of noise.** Let W be the sum of k independent discrete Gaussians of one variance v.
Completing the square in the convolution shows Pr[W = w] = c(w mod k) exp(-w^2 / (2 k v))
exactly, the c from theta functions. Unless v is small the c are alike in every digit of interest:
then one ball holds them all, and the tail is one sum over all integers from w on.

**All integers.** Little noise is summed term by term, much of it by Poisson summation; what
is left out is at most a geometric series.

**One side.** Summed term by term for little noise and by Euler and Maclaurin for much, whose
remainder is bounded by Cramér's inequality |He_n(x)| <= 1.0865 sqrt(n!) exp(x^2/4).

**Gaussian noise on a statistic of resampled records.** A resample holds one person's record i times
with probability p_i, so that a replacement of that record moves the resample by i records and a
mu-GDP statistic by i mu. Balle, Barthe and Gaboardi (2018, arXiv 1807.01647), Theorem 10, with all
of the randomness in what is drawn, give

    delta(epsilon') = sum over i >= 1 of p_i delta_i(epsilon),
    epsilon = log(1 + (e^epsilon' - 1) / p),  p = 1 - p_0,  epsilon' >= 0,

delta_i the curve of the Gaussian loss i mu, for replace-one neighbours and in both orders. It is
Theorem 3.4 with Proposition B.8 of Wang, Cheng and Awan (2022, arXiv 2210.06140) for the
bootstrap.

**Why.** Let w_0 be the output's law given that the record was not drawn, the same for both
neighbours, and w, w' the laws given that it was. Replace each drawn copy in the resample by a
fresh draw from the other records: this turns w and w' both into w_0 (for the bootstrap their
Appendix B.2; for subsets the swap with a record left out) and moves i copies. So the three
laws are pairwise as close as the mixture over i allows: H_epsilon <= D(epsilon) =
sum of (p_i / p) delta_i(epsilon). With a = p_0 + p e^epsilon = e^epsilon' and b = a / e^epsilon,

    p_0 w_0 + p w - a (p_0 w_0 + p w')  =  p (w - e^epsilon (b w' + (1 - b) w_0)),

since p_0 - a p_0 = -p e^epsilon (1 - b) and a p = p e^epsilon b. The divergence is jointly
convex, so its positive part is at most p D(epsilon). The same holds with the neighbours
exchanged.

These losses bound a mechanism from above; their own enclosures are of that bound.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple, Self

import numpy as np
from flint import arb, arb_poly, ctx, fmpz_poly

from statpress.mechanisms.accounting.balls import (
    BITS,
    CRAMER,
    WIDE_UNIT,
    Bounds,
    Floats,
    ball,
    enclosed,
    exactly,
    outwards,
    supremum,
    twice_above,
    twice_above_each,
    wide,
)
from statpress.mechanisms.accounting.losses import Order, PrivacyLoss, exact_order
from statpress.mechanisms.errors import RecordsError

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
        enough = whole.rel_accuracy_bits() >= int(ctx.prec) - _ALIKE
        self.alike = bool(len(self.weights) == 1 or enough)
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
    """The c of Pr[W = w] = c(w mod cells) exp(-w^2 / (2 cells square)); one ball if all are alike.

    The theta of variance v is sqrt(2 pi v) within a factor 1 +- 2 q/(1 - q), q = exp(-2 pi^2 v),
    whatever its centre (Poisson summation). Where that is nothing at this precision, for the least
    of the variances below, each step multiplies every c by the same.
    """
    one = 1 / theta(Fraction(0), square)
    least = (-2 * arb.pi() ** 2 * ball(square / (cells * max(cells - 1, 1)))).exp()
    if least < arb(2) ** -int(ctx.prec):
        apart, weight = 2 * least / (1 - least), one
        for k in range(2, cells + 1):
            weight *= one * (2 * arb.pi() * ball(square * (k - 1) / k)).sqrt()
            weight *= 1 + apart.union(-apart)
        return (weight,)
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


@dataclass(frozen=True)
class DiscreteLaplaceLoss(PrivacyLoss):
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
class DiscreteGaussianLoss(PrivacyLoss):
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


class Hits(NamedTuple):
    """How often a record is drawn.

    Attributes:
        times: Probabilities of 1, 2, .. times.
        beyond: Upper bounds on those of more than 1, 2, .. times.
        any: Probability of any number of times but none.
    """

    times: tuple[arb, ...]
    beyond: tuple[arb, ...]
    any: arb


_LEFT_OUT = arb(2) ** -66
"""Of the curve so far, what all further terms may come to where a sum ends."""

_WIDE_LEFT_OUT = 2.0**-60  # where it is evaluated at many points at once
_SHARP = 2.0**-40  # relative distance of bounds, above which a point is evaluated by itself


class ResampledGaussianLoss(PrivacyLoss):
    """Gaussian noise on a statistic of records drawn at random.

    Attributes:
        mu_squared: Square of the Gaussian loss mu of the statistic for one moved record.
    """

    mu_squared: Fraction
    left_out: ClassVar[arb] = _LEFT_OUT

    @abc.abstractmethod
    def at(self, mu_squared: Fraction) -> Self:
        """This resampling with another noise."""

    @abc.abstractmethod
    def hits(self, bits: int) -> Hits:
        """The law of a record's copies, the rest of it below 2**-bits."""

    def _ahead(self, epsilon: float) -> Bounds:
        if not self.mu_squared:
            return Bounds(0.0, 0.0)

        def value() -> arb:
            law = self.hits(int(ctx.prec))
            factor = 1 + arb(epsilon).expm1() / law.any  # e^epsilon of the statistic itself
            mu = ball(self.mu_squared).sqrt()
            shift, half = factor.log() / mu, mu / 2
            twice, apart, rest = arb(0), arb(0), arb(0)
            for i, (chance, rest) in enumerate(zip(law.times, law.beyond, strict=True), 1):
                middle, apart = shift / i, apart + half
                above, below = twice_above(middle - apart), twice_above(middle + apart)
                twice += chance * (above - factor * below)
                if rest < twice * self.left_out:
                    break
            return twice / 2 + rest.union(arb(0))  # no curve passes 1

        return enclosed(value, 1.0)

    def curve(self, step: float, count: int) -> tuple[Floats, Floats]:
        """As of every loss, in extended numbers where these are accurate enough.

        With u the error of a rounding and exponentials, logarithms and the like right to 4 of
        their last digits' units (8 u), the odds e^epsilon' - 1 = (e^epsilon - 1)/p have a relative
        error of at most 10 u, e^epsilon' 11 u, epsilon' 18 u and both points of a term 24 u of
        their larger one. A tail's relative slope is at most |x| + 1 (Birnbaum 1942).
        """
        if not self.mu_squared:
            return np.zeros(count + 1), np.zeros(count + 1)
        with ctx.workprec(BITS):
            law = self.hits(BITS)
            mu, any_time = wide(ball(self.mu_squared).sqrt()), wide(law.any)
        points = (step * np.arange(count + 1)).astype(np.longdouble)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            odds = np.expm1(points) / any_time
            factor, shift = 1 + odds, np.log1p(odds) / mu
            total, off, rest = np.zeros_like(odds), np.zeros_like(odds), np.longdouble(0)
            for i, (likely, more) in enumerate(zip(law.times, law.beyond, strict=True), 1):
                chance, rest = wide(likely), wide(more) * (1 + 4 * WIDE_UNIT)
                middle, apart = shift / i, i * mu / 2
                near, far = middle - apart, middle + apart
                (above, above_off), (below, below_off) = map(twice_above_each, (near, far))
                moved = 24 * WIDE_UNIT * far
                above_off += moved * (np.abs(near) + 1) * above
                below_off += (moved * (far + 1) + 16 * WIDE_UNIT) * below
                part = chance * (above - factor * below)
                total += part
                off += chance * (above_off + factor * below_off)
                off += WIDE_UNIT * (4 * np.abs(part) + np.abs(total))
                if np.all(rest < total * _WIDE_LEFT_OUT):
                    break
            low, high = total / 2 - 0.51 * off, total / 2 + 0.51 * off + rest
            sharp = high - low <= _SHARP * high
        lower = np.nextafter(low.astype(np.float64), -math.inf).clip(min=0.0)
        upper = np.nextafter(high.astype(np.float64), math.inf).clip(max=1.0)
        for j in np.flatnonzero(~sharp):
            lower[j], upper[j] = self.delta(step * int(j))
        return lower, upper

    @property
    def pure_epsilon(self) -> Bounds:
        return Bounds(math.inf, math.inf) if self.mu_squared else Bounds(0.0, 0.0)

    @property
    def rho(self) -> Bounds:
        """No bound better than that of a whole dataset exchanged is known: none is claimed."""
        return Bounds(0.0, math.inf if self.mu_squared else 0.0)

    def renyi(self, order: Order) -> Bounds:
        exact_order(order)
        return self.rho


@dataclass(frozen=True)
class BootstrapLoss(ResampledGaussianLoss):
    """One bootstrap replicate: n draws with replacement, each of n records equally likely.

    Attributes:
        mu_squared: Of the statistic of n records.
        n_records: Number of records n.
    """

    mu_squared: Fraction
    n_records: int

    def __post_init__(self) -> None:
        if self.mu_squared < 0 or self.n_records < 1:
            raise RecordsError("mu_squared must not be negative and n_records at least 1.")

    def at(self, mu_squared: Fraction) -> Self:
        return dataclasses.replace(self, mu_squared=mu_squared)

    def hits(self, bits: int) -> Hits:
        return _binomial_hits(self.n_records, bits)


@dataclass(frozen=True)
class SubsampleLoss(ResampledGaussianLoss):
    """A statistic of a random subset of fixed size, drawn without replacement.

    Attributes:
        mu_squared: Of the statistic of that many records.
        share: Records in the subset over all records, p.
    """

    mu_squared: Fraction
    share: Fraction

    def __post_init__(self) -> None:
        if self.mu_squared < 0 or not 0 < self.share <= 1:
            raise RecordsError("mu_squared must not be negative, share be in (0, 1].")

    def at(self, mu_squared: Fraction) -> Self:
        return dataclasses.replace(self, mu_squared=mu_squared)

    def hits(self, bits: int) -> Hits:
        return Hits((ball(self.share),), (arb(0),), ball(self.share))


@functools.lru_cache(maxsize=32)
def _binomial_hits(n: int, bits: int) -> Hits:
    """Binomial(n, 1/n), as far as 2**-bits; the terms after the i-th fall by 1/2 and more."""
    if n == 1:
        return Hits((arb(1),), (arb(0),), arb(1))
    with ctx.workprec(bits + 32):
        none = (n * (1 - 1 / arb(n)).log()).exp()
        small, last = arb(2) ** -bits, none * n / (n - 1)
        times, more = [last], arb(0)
        while len(times) < n:
            i = len(times)
            last = last * (n - i) / ((i + 1) * (n - 1))
            if 2 * last < small:
                more = 2 * last
                break
            times.append(last)
        beyond = [more.upper()]
        for chance in times[:0:-1]:
            beyond.append((beyond[-1] + chance).upper())
        return Hits(tuple(times), tuple(reversed(beyond)), 1 - none)
