"""Privacy losses as values: what a mechanism costs, in every currency the project uses.

A loss is a dominating pair (P, Q) of distributions (theory, introduction). Neighbours are
symmetric, so each loss stands for both orders of its pair, and its curve is

    delta(epsilon) = max(H(P || Q), H(Q || P)),  H(P || Q) = sum of (P - e^epsilon Q)+.

One order at a negative epsilon follows from the other: H_{-e}(P || Q) = 1 - exp(-e) +
exp(-e) H_e(Q || P). Every result is a proven enclosure: ball arithmetic (Arb) evaluates the
formulas, and doubles are rounded outwards.

The trade-off function is the conjugate of the curve (Dong, Roth and Su 2022, Proposition
2.12): f(alpha) is the supremum over x = e^epsilon > 0 of 1 - H(x) - x alpha, concave in x.
Any point gives a lower bound. Three points whose middle one is the highest give an upper
bound: on either side the function lies below the line through the two other points.
"""

from __future__ import annotations

import abc
import functools
import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from flint import arb, arb_poly, ctx

from mechanisms.lattice import Bounds, LatticeLoss, _ball, _outwards
from mechanisms.renyi import concentrated, renyi_divergence

_BITS = 128
_MOST_BITS = 4096
_ACCURATE_BITS = 60
_INVERSE = 2.0**-42  # relative width at which a search for epsilon stops
_FARTHEST = 2.0**20  # no finite epsilon beyond this is looked for
_GAP = 2.0**-20  # relative, between the bounds on a zCDP parameter
_MOST_PIECES = 4000
FEW_DRAWS = 1000

Order = Fraction | int | float


class PrivacyLoss(Protocol):
    """What every loss answers, as enclosures."""

    def __hash__(self) -> int: ...

    @property
    def symmetric(self) -> bool:
        """Whether both orders of the pair have the same curve."""

    @property
    def pure_epsilon(self) -> Bounds:
        """Epsilon at delta = 0, infinite if there is none."""

    @property
    def rho(self) -> Bounds:
        """Smallest rho with Rényi divergence <= rho order at every order above 1 (zCDP)."""

    @property
    def attack_advantage(self) -> Bounds:
        """Largest gap between true and false positives of any test: total variation."""

    def ordered(self, epsilon: float, *, reverse: bool = False) -> Bounds:
        """The curve of (P, Q), or of (Q, P), at any finite epsilon."""

    def delta(self, epsilon: float) -> Bounds:
        """The curve of the worse order at any finite epsilon."""

    def epsilon(self, delta: float) -> Bounds:
        """Smallest epsilon >= 0 at a delta in [0, 1)."""

    def renyi(self, order: Order) -> Bounds:
        """Rényi divergence of the worse order, at an order from 1."""

    def trade_off(self, alpha: float) -> Bounds:
        """Smallest type II error of any test with type I error alpha."""


class Loss(abc.ABC):
    """Epsilon, trade-off and advantage of a loss, from its curves at epsilon >= 0."""

    @property
    def symmetric(self) -> bool:
        return True

    @abc.abstractmethod
    def _ahead(self, epsilon: float, reverse: bool) -> Bounds:
        """One order's curve at epsilon >= 0."""

    @property
    @abc.abstractmethod
    def pure_epsilon(self) -> Bounds: ...

    @property
    @abc.abstractmethod
    def rho(self) -> Bounds: ...

    @abc.abstractmethod
    def renyi(self, order: Order) -> Bounds: ...

    @property
    def attack_advantage(self) -> Bounds:
        return self.delta(0.0)

    def ordered(self, epsilon: float, *, reverse: bool = False) -> Bounds:
        if not math.isfinite(epsilon):
            raise ValueError("epsilon must be finite")
        if epsilon >= 0:
            return self._ahead(epsilon, reverse)
        low, high = self._ahead(-epsilon, not reverse)
        with ctx.workprec(_BITS):
            factor, rest = arb(epsilon).exp(), -arb(epsilon).expm1()
            return Bounds(
                _outwards(rest + factor * low, 1.0).lower,
                _outwards(rest + factor * high, 1.0).upper,
            )

    def delta(self, epsilon: float) -> Bounds:
        found = self.ordered(epsilon)
        return found if self.symmetric else _larger(found, self.ordered(epsilon, reverse=True))

    def epsilon(self, delta: float) -> Bounds:
        if not 0 <= delta < 1:
            raise ValueError("delta must be in [0, 1)")
        if delta == 0:
            return self.pure_epsilon
        most = self.pure_epsilon.upper
        low, _ = _turn(lambda e: self.delta(e).lower > delta, most)
        _, high = _turn(lambda e: self.delta(e).upper > delta, most)
        return Bounds(low, high)

    def trade_off(self, alpha: float) -> Bounds:
        if not 0 <= alpha <= 1:
            raise ValueError("alpha must be in [0, 1]")
        orders = (False,) if self.symmetric else (False, True)
        found = [_conjugate(lambda e, r=r: self.ordered(e, reverse=r), alpha) for r in orders]  # type: ignore[misc]
        return Bounds(min(f.lower for f in found), min(f.upper for f in found))


@dataclass(frozen=True)
class GaussianLoss(Loss):
    """N(0, 1) against N(mu, 1) (Balle and Wang 2018, Theorem 8; Dong, Roth and Su 2022).

    Attributes:
        mu: Distance of the means in standard deviations.
        extra: Added to mu**2, so that the sum of several squares stays exact.
    """

    mu: Fraction
    extra: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.mu < 0 or self.extra < 0:
            raise ValueError("mu and extra must not be negative")

    @property
    def mu_squared(self) -> Fraction:
        return self.mu**2 + self.extra

    def _ahead(self, epsilon: float, reverse: bool) -> Bounds:
        square = self.mu_squared
        if not square:
            return Bounds(0.0, 0.0)

        def value() -> arb:
            mu = _ball(square).sqrt()
            e = arb(epsilon)
            return _below(mu / 2 - e / mu) - e.exp() * _below(-mu / 2 - e / mu)

        return _enclosed(value, 1.0)

    @property
    def pure_epsilon(self) -> Bounds:
        return Bounds(math.inf, math.inf) if self.mu_squared else Bounds(0.0, 0.0)

    @property
    def rho(self) -> Bounds:
        return _exactly(self.mu_squared / 2)

    def renyi(self, order: Order) -> Bounds:
        return _exactly(_order(order) * self.mu_squared / 2)


@dataclass(frozen=True)
class PureLoss(Loss):
    """Randomised response, the worst pair of a pure guarantee (Kairouz, Oh and Viswanath 2015).

    With t = order - 1 its divergence is log(cosh(e (t + 1/2)) / cosh(e/2)) / t. Let u =
    (t + 1/2)^2: D / order is the slope of log cosh(e sqrt u) between 1/4 and u, a concave
    function of u, so it is largest at order 1: rho = e tanh(e/2).

    Attributes:
        bound: The epsilon of the guarantee.
    """

    bound: Fraction

    def __post_init__(self) -> None:
        if self.bound < 0:
            raise ValueError("epsilon must not be negative")

    def _ahead(self, epsilon: float, reverse: bool) -> Bounds:
        if Fraction(epsilon) >= self.bound:
            return Bounds(0.0, 0.0)
        rest = self.bound - Fraction(epsilon)
        return _enclosed(lambda: -(-_ball(rest)).expm1() / (1 + (-_ball(self.bound)).exp()), 1.0)

    @property
    def pure_epsilon(self) -> Bounds:
        return _exactly(self.bound)

    @property
    def rho(self) -> Bounds:
        return self.renyi(1)

    def renyi(self, order: Order) -> Bounds:
        t, e = _order(order) - 1, self.bound
        if not t or not e:
            return _enclosed(lambda: _ball(e) * (_ball(e) / 2).tanh())
        half = Fraction(1, 2)
        return _enclosed(
            lambda: (_log_cosh(_ball(e * (t + half))) - _log_cosh(_ball(e * half))) / _ball(t)
        )


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

    def _ahead(self, epsilon: float, reverse: bool) -> Bounds:
        most = self.cells * self.shift
        count = math.ceil((most - Fraction(epsilon) * self.scale) / 2)
        if count <= 0:
            return Bounds(0.0, 0.0)

        def value() -> arb:
            p, q = _laplace_sums(self, int(ctx.prec))
            return p[count] - arb(epsilon).exp() * q[count]

        return _enclosed(value, 1.0)

    @property
    def pure_epsilon(self) -> Bounds:
        return _exactly(self.cells * self.shift / self.scale)

    def _cgf(self, t: arb) -> arb:
        """Log of the mean of e^(t loss) in one cell, by the sum of a geometric series."""
        s, scale = self.shift, _ball(self.scale)
        r, edge = (-1 / scale).exp(), (t * s / scale).exp()
        u = r * (-2 * t / scale).exp()
        inner = (1 - r) * edge * (u - u**s) / (1 - u)
        return ((edge + inner + r**s / edge) / (1 + r)).log()

    def _mean(self) -> arb:
        """Mean loss of one cell: E|Z - s| - E|Z| = s - 2 sum over j < s of Pr[Z > j]."""
        s, scale = self.shift, _ball(self.scale)
        r = (-1 / scale).exp()
        return (s - 2 * r * (1 - r**s) / (1 - r) / (1 + r)) / scale

    @property
    def rho(self) -> Bounds:
        with ctx.workprec(2 * _BITS):
            one = _supremum(self._cgf, self._mean(), _ball(self.shift / self.scale))
            return _outwards(one * self.cells)

    def renyi(self, order: Order) -> Bounds:
        t = _order(order) - 1
        one = self._mean if not t else lambda: self._cgf(_ball(t)) / _ball(t)
        return _enclosed(lambda: one() * self.cells)


@dataclass(frozen=True)
class DiscreteLoss(Loss):
    """A pair of distributions on the same finite set, in both orders.

    Attributes:
        p: Probabilities, exact, summing to 1.
        q: The other distribution.
    """

    p: tuple[Fraction, ...]
    q: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if len(self.p) != len(self.q) or min(*self.p, *self.q) < 0:
            raise ValueError("the distributions need the same outcomes and no negative mass")
        if sum(self.p) != 1 or sum(self.q) != 1:
            raise ValueError("each distribution must sum to 1")

    @property
    def symmetric(self) -> bool:
        return sorted(zip(self.p, self.q, strict=True)) == sorted(zip(self.q, self.p, strict=True))

    def _ahead(self, epsilon: float, reverse: bool) -> Bounds:
        p, q = (self.q, self.p) if reverse else (self.p, self.q)
        if epsilon == 0:  # elsewhere e^epsilon is irrational and no term is exactly 0
            return _exactly(
                sum((max(a - b, Fraction(0)) for a, b in self._both(p, q)), Fraction(0))
            )

        def value() -> arb:
            factor = arb(epsilon).exp()
            terms = (_ball(a) - factor * _ball(b) for a, b in self._both(p, q))
            return sum((term.max(arb(0)) for term in terms), arb(0))

        return _enclosed(value, 1.0)

    @staticmethod
    def _both(
        p: tuple[Fraction, ...], q: tuple[Fraction, ...]
    ) -> Iterable[tuple[Fraction, Fraction]]:
        return ((a, b) for a, b in zip(p, q, strict=True) if a)

    def _finite(self) -> bool:
        return all((a > 0) == (b > 0) for a, b in zip(self.p, self.q, strict=True))

    def _largest(self) -> Fraction:
        pairs = [(a, b) for a, b in self._both(self.p, self.q)]
        return max(max(a / b, b / a) for a, b in pairs)

    @property
    def pure_epsilon(self) -> Bounds:
        if not self._finite():
            return Bounds(math.inf, math.inf)
        return _enclosed(lambda: _ball(self._largest()).log())

    def _cgf(self, t: arb, reverse: bool) -> arb:
        p, q = (self.q, self.p) if reverse else (self.p, self.q)
        terms = (_ball(a) * (_ball(a / b).log() * t).exp() for a, b in self._both(p, q))
        return sum(terms, arb(0)).log()

    def _mean(self, reverse: bool) -> arb:
        p, q = (self.q, self.p) if reverse else (self.p, self.q)
        return sum((_ball(a) * _ball(a / b).log() for a, b in self._both(p, q)), arb(0))

    @property
    def rho(self) -> Bounds:
        if not self._finite():
            return Bounds(math.inf, math.inf)
        if self.p == self.q:
            return Bounds(0.0, 0.0)
        with ctx.workprec(2 * _BITS):
            most = _ball(self._largest()).log()
            one, two = (
                _outwards(_supremum(functools.partial(self._cgf, reverse=r), self._mean(r), most))
                for r in (False, True)
            )
            return _larger(one, two)

    def renyi(self, order: Order) -> Bounds:
        t = _order(order) - 1
        if self.p == self.q:
            return Bounds(0.0, 0.0)
        if not self._finite():
            if t:
                return Bounds(math.inf, math.inf)
            lost = [any(a and not b for a, b in zip(*two, strict=True)) for two in self._orders()]
            if any(lost):
                return Bounds(math.inf, math.inf)

        def one(reverse: bool) -> arb:
            return self._cgf(_ball(t), reverse) / _ball(t) if t else self._mean(reverse)

        return _larger(_enclosed(lambda: one(False)), _enclosed(lambda: one(True)))

    def _orders(self) -> tuple[tuple[tuple[Fraction, ...], tuple[Fraction, ...]], ...]:
        return (self.p, self.q), (self.q, self.p)


@dataclass(frozen=True)
class ProfileLoss(Loss):
    """A loss of which only bounds on the curve are known (theory section 5).

    Attributes:
        upper: Proven upper bound on delta at epsilon >= 0 for both orders, not increasing.
        lower: Proven lower bound, if there is one.
        most_epsilon: Proven upper bound on epsilon at delta = 0.
        most_rho: Proven upper bound on rho.
    """

    upper: Callable[[float], float]
    lower: Callable[[float], float] | None = None
    most_epsilon: float = math.inf
    most_rho: float = math.inf

    def _ahead(self, epsilon: float, reverse: bool) -> Bounds:
        high = 0.0 if epsilon >= self.most_epsilon else min(max(self.upper(epsilon), 0.0), 1.0)
        return Bounds(min(self.lower(epsilon), high) if self.lower else 0.0, high)

    @property
    def pure_epsilon(self) -> Bounds:
        return Bounds(0.0, self.most_epsilon)

    @property
    def rho(self) -> Bounds:
        if math.isinf(self.most_epsilon):
            return Bounds(0.0, self.most_rho)
        return Bounds(0.0, min(self.most_rho, PureLoss(Fraction(self.most_epsilon)).rho.upper))

    def renyi(self, order: Order) -> Bounds:
        exact, rho = _order(order), self.rho.upper
        if math.isinf(rho):
            return Bounds(0.0, self.most_epsilon)
        return Bounds(0.0, min(self.most_epsilon, _exactly(exact * Fraction(rho)).upper))


@dataclass(frozen=True)
class DrawsLoss(Loss):
    """The loss of mechanisms.lattice as one of these values.

    A few draws are summed from their exact masses, a polynomial power in balls.
    """

    lattice: LatticeLoss

    def _ahead(self, epsilon: float, reverse: bool) -> Bounds:
        up, down, m = self.lattice.up, self.lattice.down, self.lattice.draws
        if not (up > down and 0 < m <= FEW_DRAWS):
            return self.lattice.delta(epsilon)

        def value() -> arb:
            first = (arb(epsilon) / _ball(up / down).log()).floor().unique_fmpz()
            if first is None:
                return arb(0, math.inf)
            count = max(m - int(first), 0)  # of lattice points above epsilon
            p, q = _draws_sums(self.lattice, int(ctx.prec))
            return p[count] - arb(epsilon).exp() * q[count]

        return _enclosed(value, 1.0)

    def epsilon(self, delta: float) -> Bounds:
        return self.lattice.epsilon(delta)

    @property
    def pure_epsilon(self) -> Bounds:
        return self.lattice.pure_epsilon

    @property
    def rho(self) -> Bounds:
        return concentrated(self.lattice)

    def renyi(self, order: Order) -> Bounds:
        return renyi_divergence(self.lattice, order)


@dataclass(frozen=True)
class DiscreteGaussianLoss(Loss):
    """Integer noise with Pr[z] ~ exp(-z^2 / (2 sigma^2)) in cells that each move by ``shift``.

    The loss (k s^2 + 2 s W) / (2 sigma^2) of k cells is linear in the sum W of their noise
    (Canonne, Kamath and Steinke 2020, Theorem 7), so with T(w) = Pr[W >= w] and w the first
    integer whose loss exceeds epsilon, delta = T(w) - e^epsilon T(w + k s). Completing the
    square in the convolution shows Pr[W = w] = c(w mod k) exp(-w^2 / (2 k sigma^2)) exactly,
    the c from theta functions. T is summed term by term for little noise and by
    Euler and Maclaurin for much, whose remainder is bounded by Cramér's inequality
    |He_n(x)| <= 1.0865 sqrt(n!) exp(x^2/4).

    Rho is k s^2 / (2 sigma^2): their Theorem 4 bounds the divergence of order a by a rho, and
    order 1 attains it.
    """

    sigma_squared: Fraction
    shift: int
    cells: int

    def __post_init__(self) -> None:
        if not (self.sigma_squared > 0 and self.shift >= 1 and self.cells >= 1):
            raise ValueError("sigma_squared, shift and cells must be positive")

    def _ahead(self, epsilon: float, reverse: bool) -> Bounds:
        k, s, square = self.cells, self.shift, self.sigma_squared
        first = math.floor((2 * square * Fraction(epsilon) - k * s * s) / (2 * s)) + 1
        return _enclosed(
            lambda: self._tail(first) - arb(epsilon).exp() * self._tail(first + k * s), 1.0
        )

    def _tail(self, first: int) -> arb:
        """Pr[W >= first]."""
        k, bits = self.cells, int(ctx.prec)
        variance = k * self.sigma_squared
        weights, total = _noise_classes(self.sigma_squared, k, bits), arb(0)
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
        return _exactly(self.cells * self.shift**2 / (2 * self.sigma_squared))

    def renyi(self, order: Order) -> Bounds:
        a, square = _order(order), self.sigma_squared
        line = a * self.cells * self.shift**2 / (2 * square)
        if a.denominator == 1:
            return _exactly(line)
        moved = (a - 1) * self.shift

        def value() -> arb:
            ratio = _theta(moved, square) / _theta(Fraction(0), square)
            return _ball(line) + self.cells * ratio.log() / _ball(a - 1)

        return _enclosed(value)


@functools.lru_cache(maxsize=64)
def _noise_classes(square: Fraction, cells: int, bits: int) -> tuple[arb, ...]:
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
    x, v, small = _ball(centre - round(centre)), _ball(variance), arb(2) ** -int(ctx.prec)
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
    v, bits = _ball(variance), int(ctx.prec)
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


@functools.lru_cache(maxsize=64)
def _draws_sums(loss: LatticeLoss, bits: int) -> tuple[list[arb], list[arb]]:
    """Running sums of both distributions over the lattice, largest loss first."""
    with ctx.workprec(bits):
        up, down, rest = _ball(loss.up), _ball(loss.down), _ball(1 - loss.up - loss.down)
        powers = (arb_poly([up, rest, down]) ** loss.draws).coeffs()
        p, q = [arb(0)], [arb(0)]
        for mass, mirrored in zip(powers, reversed(powers), strict=True):
            p.append(p[-1] + mass)
            q.append(q[-1] + mirrored)  # the pair is symmetric
        return p, q


@functools.lru_cache(maxsize=64)
def _laplace_sums(loss: DiscreteLaplaceLoss, bits: int) -> tuple[list[arb], list[arb]]:
    """Running sums of both distributions over the losses, largest loss first."""
    with ctx.workprec(bits):
        s, unit = loss.shift, _ball(1 / loss.scale)
        r = (-unit).exp()
        inner = [r**j * (1 - r) for j in range(1, s)]
        masses = (arb_poly([arb(1), *inner, r**s]) ** loss.cells).coeffs()
        norm, most = (1 + r) ** loss.cells, loss.cells * s
        p, q = [arb(0)], [arb(0)]
        for j, mass in enumerate(masses):
            p.append(p[-1] + mass / norm)
            q.append(q[-1] + mass / norm * (-unit * (most - 2 * j)).exp())
        return p, q


def _supremum(cgf: Callable[[arb], arb], mean: arb, largest: arb) -> arb:
    """Ball around the supremum over t >= 0 of K(t) / (t (1 + t)), K = cgf, K'(0) = mean.

    K is convex with K(0) = 0 and K(t) <= largest t. On a piece it lies below its chord
    c t - d, d >= 0, and the chord over t (1 + t) has one maximum; from 0 the bound is
    K(b)/b. Best-first branch and bound on these.
    """
    unit = float((1 / largest).mid())

    def ceiling(a: float, b: float, at_a: arb, at_b: arb) -> arb:
        if b == math.inf:
            return largest / (1 + arb(a))
        plain = at_b / b / (1 + arb(a))
        if a == 0:
            return plain
        slope = (at_b - at_a) / (arb(b) - a)
        dip = (slope * a - at_a).max(arb(0))
        peak = (dip + (dip * dip + slope * dip).sqrt()) / slope
        best = (at_a / (a * (1 + arb(a)))).max(at_b / (b * (1 + arb(b))))
        if not (peak < a or peak > b):
            best = best.max((slope * peak - dip) / (peak * (1 + peak)))
        return best.min(plain) if best.is_finite() else plain

    def piece(a: float, b: float, at_a: arb, at_b: arb) -> tuple[float, float, float, arb, arb]:
        return -_outwards(ceiling(a, b, at_a, at_b)).upper, a, b, at_a, at_b

    best = mean.lower()
    pieces = [piece(0.0, math.inf, arb(0), arb(0))]
    while -pieces[0][0] > float(best) * (1 + _GAP) and len(pieces) < _MOST_PIECES:
        _, a, b, at_a, at_b = heapq.heappop(pieces)
        if b == math.inf:
            cut = 16 * a or unit
        else:
            cut = math.sqrt(a * b) if b > 2 * a and a else (a + b) / 2 if a else b / 16
        at_cut = cgf(arb(cut))
        best = best.max((at_cut / (cut * (1 + arb(cut)))).lower())
        heapq.heappush(pieces, piece(a, cut, at_a, at_cut))
        heapq.heappush(pieces, piece(cut, b, at_cut, at_b))
    return best.union(best.max(arb(-pieces[0][0])))


def _conjugate(curve: Callable[[float], Bounds], alpha: float) -> Bounds:
    """The trade-off of one order at alpha, by golden section on log x."""
    if alpha == 1:
        return Bounds(0.0, 0.0)
    far = -math.log(alpha) + 1 if alpha else 64.0
    best, most = 0.0, min(math.nextafter(1 - alpha, 2), 1.0)

    def at(e: float) -> tuple[float, arb, arb]:
        nonlocal best
        low, high = curve(e)
        x = arb(e).exp()
        value = (1 - arb(low)).union(1 - arb(high)) - x * alpha
        best = max(best, _outwards(value.lower().max(arb(0))).lower)
        return e, x, value

    with ctx.workprec(_BITS):
        left, right = at(-48.0), at(far)
        middle = at(-48.0 + 0.382 * (far + 48))
        for _ in range(80 if alpha else 0):
            most = min(most, _concave_ceiling(left, middle, right))
            if right[0] - left[0] < 1e-12 or most - best < 1e-12:
                break
            longer_left = middle[0] - left[0] > right[0] - middle[0]
            end = left if longer_left else right
            new = at(middle[0] + 0.382 * (end[0] - middle[0]))
            inner, outer = (new, middle) if longer_left else (middle, new)
            if float(inner[2].mid()) >= float(outer[2].mid()):
                middle, right = inner, outer
            else:
                left, middle = inner, outer
    return Bounds(best, max(best, most))


def _concave_ceiling(*points: tuple[float, arb, arb]) -> float:
    """Upper bound on a concave function whose middle point is proven highest, else 1."""
    (_, x1, v1), (_, x2, v2), (_, x3, v3) = points
    if not (v2 >= v1 and v2 >= v3):
        return 1.0
    on_left = v2 + (v2 - v3) / (x3 - x2) * (x2 - x1)
    on_right = v2 + (v2 - v1) / (x2 - x1) * (x3 - x2)
    return _outwards(on_left.max(on_right)).upper


def _turn(above: Callable[[float], bool], most: float) -> tuple[float, float]:
    """Where a condition turns false: the last point seen true and the first seen false.

    At ``most`` it is false without a look.
    """
    if not above(0.0):
        return 0.0, 0.0
    low, high = 0.0, min(1.0, most)
    while high < most and above(high):
        if high > _FARTHEST:
            return high, math.inf
        low, high = high, min(2 * high, most)
    while high - low > _INVERSE * high and high > 1e-300:
        middle = (low + high) / 2
        if above(middle):
            low = middle
        else:
            high = middle
    return low, high


def _enclosed(value: Callable[[], arb], most: float = math.inf) -> Bounds:
    """Doubles around a value, at the first precision that is accurate enough."""
    bits = _BITS
    while True:
        with ctx.workprec(bits):
            ball = value()
            sharp = ball.rel_accuracy_bits() >= _ACCURATE_BITS or ball.abs_upper() < arb(2) ** -1100
            if (sharp and ball.is_finite()) or bits >= _MOST_BITS:
                return _outwards(ball, most)
        bits *= 2


def _exactly(value: Fraction | int) -> Bounds:
    """Doubles around an exact number, the number itself where it is a double."""
    exact = Fraction(value)
    near = float(exact) if exact < 10**300 else math.inf
    if math.isfinite(near) and Fraction(near) == exact:
        return Bounds(near, near)
    with ctx.workprec(_BITS):
        return _outwards(_ball(exact))


def _order(order: Order) -> Fraction:
    if not 1 <= order < math.inf:
        raise ValueError("the order must be finite and at least 1")
    return Fraction(order)


def _below(x: arb) -> arb:
    """The standard normal distribution function."""
    return (-x / arb(2).sqrt()).erfc() / 2


def _log_cosh(x: arb) -> arb:
    return x + ((-2 * x).exp() + 1).log() - arb(2).log()


def _larger(one: Bounds, two: Bounds) -> Bounds:
    return Bounds(max(one.lower, two.lower), max(one.upper, two.upper))
