"""The loss of a pair on a finite set, outcome by outcome: what other losses are checked against."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from flint import arb, ctx

from statpress.mechanisms.accounting.balls import (
    BITS,
    Bounds,
    ball,
    enclosed,
    exactly,
    outwards,
    supremum,
)
from statpress.mechanisms.accounting.losses import Order, PrivacyLoss, exact_order


@dataclass(frozen=True)
class DiscreteLoss(PrivacyLoss):
    """A pair of distributions on the same finite set, equal to its mirror image.

    Attributes:
        p: Probabilities, exact, summing to 1.
        q: The other distribution.
    """

    p: tuple[Fraction, ...]
    q: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        assert sum(self.p) == sum(self.q) == 1
        assert sorted(zip(self.p, self.q, strict=True)) == sorted(zip(self.q, self.p, strict=True))

    @classmethod
    def mirrored(cls, p: tuple[Fraction, ...], q: tuple[Fraction, ...]) -> DiscreteLoss:
        """That of a fair coin which says whether the pair is (p, q) or (q, p), and one of these."""
        return cls(tuple(x / 2 for x in (*p, *q)), tuple(x / 2 for x in (*q, *p)))

    def _pairs(self) -> Iterator[tuple[Fraction, Fraction]]:
        return ((a, b) for a, b in zip(self.p, self.q, strict=True) if a)

    def _ahead(self, epsilon: float) -> Bounds:
        if epsilon == 0:  # elsewhere e^epsilon is irrational and no term is exactly 0
            return exactly(sum((max(a - b, Fraction(0)) for a, b in self._pairs()), Fraction(0)))

        def value() -> arb:
            factor = arb(epsilon).exp()
            terms = (ball(a) - factor * ball(b) for a, b in self._pairs())
            return sum((term.max(arb(0)) for term in terms), arb(0))

        return enclosed(value, 1.0)

    def _largest(self) -> Fraction | None:
        """The largest likelihood ratio; None if it has no end."""
        pairs = list(self._pairs())
        return max(a / b for a, b in pairs) if all(b for _, b in pairs) else None

    @property
    def pure_epsilon(self) -> Bounds:
        most = self._largest()
        return Bounds(math.inf, math.inf) if most is None else enclosed(lambda: ball(most).log())

    def _cgf(self, t: arb) -> arb:
        terms = (ball(a) * (ball(a / b).log() * t).exp() for a, b in self._pairs())
        return sum(terms, arb(0)).log()

    def _mean(self) -> arb:
        return sum((ball(a) * ball(a / b).log() for a, b in self._pairs()), arb(0))

    @property
    def rho(self) -> Bounds:
        most = self._largest()
        if most is None:
            return Bounds(math.inf, math.inf)
        if self.p == self.q:
            return Bounds(0.0, 0.0)
        with ctx.workprec(2 * BITS):
            return outwards(supremum(self._cgf, self._mean(), ball(most).log()))

    def renyi(self, order: Order) -> Bounds:
        t = exact_order(order) - 1
        if self._largest() is None:
            return Bounds(math.inf, math.inf)
        return enclosed(lambda: self._cgf(ball(t)) / ball(t) if t else self._mean())
