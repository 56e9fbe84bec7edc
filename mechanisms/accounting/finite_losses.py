"""Losses of pairs on a finite set: given outcome by outcome, or draws on a lattice.

The curve of a pair p, q is a finite sum of (p_i - e^epsilon q_i)+, its Rényi divergence that
of p_i (p_i/q_i)^t with t = order - 1, both evaluated as they stand. The draws of
mechanisms.accounting.draws.lattice make too many outcomes for that when they are many; then the
contour integral of that module takes over.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from flint import arb, arb_poly, ctx

from mechanisms.accounting.draws.lattice import LatticeLoss
from mechanisms.accounting.draws.renyi import concentrated, renyi_divergence
from mechanisms.accounting.draws.truncated_draws import approximately_concentrated
from mechanisms.accounting.enclosures import (
    BITS,
    Bounds,
    ball,
    enclosed,
    exactly,
    larger,
    outwards,
    supremum,
)
from mechanisms.accounting.privacy_loss import ApproximateRho, Loss, Order, exact_order

FEW_DRAWS = 1000
"""Up to which the masses of all draws are summed."""


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
            return exactly(sum((max(a - b, Fraction(0)) for a, b in self._both(p, q)), Fraction(0)))

        def value() -> arb:
            factor = arb(epsilon).exp()
            terms = (ball(a) - factor * ball(b) for a, b in self._both(p, q))
            return sum((term.max(arb(0)) for term in terms), arb(0))

        return enclosed(value, 1.0)

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
        return enclosed(lambda: ball(self._largest()).log())

    def _cgf(self, t: arb, reverse: bool) -> arb:
        p, q = (self.q, self.p) if reverse else (self.p, self.q)
        terms = (ball(a) * (ball(a / b).log() * t).exp() for a, b in self._both(p, q))
        return sum(terms, arb(0)).log()

    def _mean(self, reverse: bool) -> arb:
        p, q = (self.q, self.p) if reverse else (self.p, self.q)
        return sum((ball(a) * ball(a / b).log() for a, b in self._both(p, q)), arb(0))

    @property
    def rho(self) -> Bounds:
        if not self._finite():
            return Bounds(math.inf, math.inf)
        if self.p == self.q:
            return Bounds(0.0, 0.0)
        with ctx.workprec(2 * BITS):
            most = ball(self._largest()).log()
            one, two = (
                outwards(supremum(functools.partial(self._cgf, reverse=r), self._mean(r), most))
                for r in (False, True)
            )
            return larger(one, two)

    def renyi(self, order: Order) -> Bounds:
        t = exact_order(order) - 1
        if self.p == self.q:
            return Bounds(0.0, 0.0)
        if not self._finite():
            if t:
                return Bounds(math.inf, math.inf)
            lost = [any(a and not b for a, b in zip(*two, strict=True)) for two in self._orders()]
            if any(lost):
                return Bounds(math.inf, math.inf)

        def one(reverse: bool) -> arb:
            return self._cgf(ball(t), reverse) / ball(t) if t else self._mean(reverse)

        return larger(enclosed(lambda: one(False)), enclosed(lambda: one(True)))

    def _orders(self) -> tuple[tuple[tuple[Fraction, ...], tuple[Fraction, ...]], ...]:
        return (self.p, self.q), (self.q, self.p)


@dataclass(frozen=True)
class DrawsLoss(Loss):
    """The loss of mechanisms.accounting.draws.lattice as one of these values.

    A few draws are summed from their exact masses, a polynomial power in balls.
    """

    lattice: LatticeLoss

    def _ahead(self, epsilon: float, reverse: bool) -> Bounds:
        up, down, m = self.lattice.up, self.lattice.down, self.lattice.draws
        if not (up > down and 0 < m <= FEW_DRAWS):
            return self.lattice.delta(epsilon)

        def value() -> arb:
            first = (arb(epsilon) / ball(up / down).log()).floor().unique_fmpz()
            if first is None:
                return arb(0, math.inf)
            count = max(m - int(first), 0)  # of lattice points above epsilon
            p, q = _draws_sums(self.lattice, int(ctx.prec))
            return p[count] - arb(epsilon).exp() * q[count]

        return enclosed(value, 1.0)

    def epsilon(self, delta: float) -> Bounds:
        return self.lattice.epsilon(delta)

    @property
    def pure_epsilon(self) -> Bounds:
        return self.lattice.pure_epsilon

    @property
    def rho(self) -> Bounds:
        return concentrated(self.lattice)

    def approximate_rho(self, delta: float) -> ApproximateRho:
        """By the number of draws on the two cells, unless the whole loss has no larger rho."""
        found, whole = approximately_concentrated(self.lattice, delta), self.rho
        if found is None or found.rho.upper >= whole.upper:
            return ApproximateRho(whole, 0.0)
        return ApproximateRho(found.rho, found.delta)

    def renyi(self, order: Order) -> Bounds:
        return renyi_divergence(self.lattice, order)


@functools.lru_cache(maxsize=64)
def _draws_sums(loss: LatticeLoss, bits: int) -> tuple[list[arb], list[arb]]:
    """Running sums of both distributions over the lattice, largest loss first."""
    with ctx.workprec(bits):
        up, down, rest = ball(loss.up), ball(loss.down), ball(1 - loss.up - loss.down)
        powers = (arb_poly([up, rest, down]) ** loss.draws).coeffs()
        p, q = [arb(0)], [arb(0)]
        for mass, mirrored in zip(powers, reversed(powers), strict=True):
            p.append(p[-1] + mass)
            q.append(q[-1] + mirrored)  # the pair is symmetric
        return p, q
