"""Privacy losses as values: what a mechanism costs, in every currency the project uses.

A loss is a dominating pair (P, Q) of distributions (mechanisms/README.md, section 1) with the curve

    delta(epsilon) = H(P || Q) = sum of (P - e^epsilon Q)+.

Neighbours are symmetric, and so is every pair here: (Q, P) has the same curve. (Of a pair that is
not, the larger of both curves is that of a symmetric pair which dominates both orders.) So the
curve at a negative epsilon is 1 - exp(-e) + exp(-e) delta(e). Every result is a proven enclosure
(mechanisms.accounting.numerics.enclosures).

Here is what all losses share. ``analytic`` has those with a formula for the curve,
``noise_losses`` integer noise, ``draws_loss`` draws on a lattice, ``composition`` several losses
together.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple, Protocol

from flint import arb, ctx

from mechanisms.accounting.numerics.enclosures import (
    BITS,
    Above,
    Bounds,
    last_true,
    outwards,
)
from mechanisms.accounting.trade_off import conjugate, missed_at_least

Order = Fraction | int | float


class ApproximateRho(NamedTuple):
    """A rho-zCDP that holds but for a delta (Bun and Steinke 2016, Definition 8.1).

    Attributes:
        rho: Enclosure of the smallest that is proven at this delta.
        delta: Rounded up; 0 if the rho holds for the whole loss.
    """

    rho: Bounds
    delta: float


class PrivacyLoss(Protocol):
    """What every loss answers, as enclosures."""

    def __hash__(self) -> int: ...

    @property
    def pure_epsilon(self) -> Bounds:
        """Epsilon at delta = 0, infinite if there is none."""

    @property
    def rho(self) -> Bounds:
        """Smallest rho with Rényi divergence <= rho order at every order above 1 (zCDP)."""

    def approximate_rho(self, delta: float) -> ApproximateRho:
        """The least rho known that holds but for at most this delta."""

    @property
    def attack_advantage(self) -> Bounds:
        """Largest gap between true and false positives of any test: total variation."""

    def delta(self, epsilon: float) -> Bounds:
        """The curve at any finite epsilon."""

    def epsilon(self, delta: float) -> Bounds:
        """Smallest epsilon >= 0 at a delta in [0, 1)."""

    def renyi(self, order: Order) -> Bounds:
        """Rényi divergence, at an order from 1."""

    def renyi_of_curve(self, order: Order) -> Bounds:
        """That of the pair whose curve this is, where less is proven of the loss itself."""

    def trade_off(self, alpha: float) -> Bounds:
        """Smallest type II error of any test with type I error alpha."""

    def missed_at_least(self, alphas: Sequence[Fraction], scale: float) -> tuple[float, ...]:
        """Lower bounds on that error, quicker: by some looks at the curve, at multiples of scale.

        Args:
            alphas: Type I errors.
            scale: An epsilon of the order of the loss.
        """


class Loss(abc.ABC):
    """Epsilon, trade-off and advantage of a loss, from its curves at epsilon >= 0."""

    @abc.abstractmethod
    def _ahead(self, epsilon: float) -> Bounds:
        """The curve at epsilon >= 0."""

    @property
    @abc.abstractmethod
    def pure_epsilon(self) -> Bounds: ...

    @property
    @abc.abstractmethod
    def rho(self) -> Bounds: ...

    @abc.abstractmethod
    def renyi(self, order: Order) -> Bounds: ...

    def approximate_rho(self, delta: float) -> ApproximateRho:
        return ApproximateRho(self.rho, 0.0)

    def renyi_of_curve(self, order: Order) -> Bounds:
        return self.renyi(order)

    @property
    def attack_advantage(self) -> Bounds:
        return self.delta(0.0)

    def delta(self, epsilon: float) -> Bounds:
        if not math.isfinite(epsilon):
            raise ValueError("epsilon must be finite")
        if epsilon >= 0:
            return self._ahead(epsilon)
        low, high = self._ahead(-epsilon)
        with ctx.workprec(BITS):
            factor, rest = arb(epsilon).exp(), -arb(epsilon).expm1()
            return Bounds(
                outwards(rest + factor * low, 1.0).lower,
                outwards(rest + factor * high, 1.0).upper,
            )

    def epsilon(self, delta: float) -> Bounds:
        if not 0 <= delta < 1:
            raise ValueError("delta must be in [0, 1)")
        if delta == 0:
            return self.pure_epsilon
        most = self.pure_epsilon.upper
        lower, upper = Above.both(self.delta, delta)
        low, _ = last_true(lower, most)
        _, high = last_true(upper, most)
        return Bounds(low, high)

    def trade_off(self, alpha: float) -> Bounds:
        if not 0 <= alpha <= 1:
            raise ValueError("alpha must be in [0, 1]")
        return conjugate(self.delta, alpha)

    def missed_at_least(self, alphas: Sequence[Fraction], scale: float) -> tuple[float, ...]:
        curve = functools.cache(self.delta)
        return tuple(missed_at_least(curve, alpha, scale) for alpha in alphas)


def exact_order(order: Order) -> Fraction:
    """The order of a divergence, refused unless it is finite and at least 1."""
    if not 1 <= order < math.inf:
        raise ValueError("the order must be finite and at least 1")
    return Fraction(order)
