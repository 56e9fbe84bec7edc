"""Privacy losses as values: what a mechanism costs, in every currency the project uses.

A loss is a dominating pair (P, Q) of distributions (mechanisms/README.md, section 1). Neighbours
are symmetric, so each loss stands for both orders of its pair, and its curve is

    delta(epsilon) = max(H(P || Q), H(Q || P)),  H(P || Q) = sum of (P - e^epsilon Q)+.

One order at a negative epsilon follows from the other: H_{-e}(P || Q) = 1 - exp(-e) +
exp(-e) H_e(Q || P). Every result is a proven enclosure (mechanisms.accounting.enclosures).

Here is what all losses share. ``analytic`` has those with a formula for the curve,
``noise_losses`` integer noise, ``finite_losses`` pairs on a finite set, ``composition``
several losses together.
"""

from __future__ import annotations

import abc
import math
from fractions import Fraction
from typing import NamedTuple, Protocol

from flint import arb, ctx

from mechanisms.accounting.enclosures import (
    BITS,
    Above,
    Bounds,
    larger,
    last_true,
    outwards,
)
from mechanisms.accounting.trade_off import conjugate

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
    def symmetric(self) -> bool:
        """Whether both orders of the pair have the same curve."""

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

    def ordered(self, epsilon: float, *, reverse: bool = False) -> Bounds:
        """The curve of (P, Q), or of (Q, P), at any finite epsilon."""

    def delta(self, epsilon: float) -> Bounds:
        """The curve of the worse order at any finite epsilon."""

    def epsilon(self, delta: float) -> Bounds:
        """Smallest epsilon >= 0 at a delta in [0, 1)."""

    def renyi(self, order: Order) -> Bounds:
        """Rényi divergence of the worse order, at an order from 1."""

    def renyi_of_curve(self, order: Order) -> Bounds:
        """That of the pair whose curve this is, where less is proven of the loss itself."""

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

    def approximate_rho(self, delta: float) -> ApproximateRho:
        return ApproximateRho(self.rho, 0.0)

    def renyi_of_curve(self, order: Order) -> Bounds:
        return self.renyi(order)

    @property
    def attack_advantage(self) -> Bounds:
        return self.delta(0.0)

    def ordered(self, epsilon: float, *, reverse: bool = False) -> Bounds:
        if not math.isfinite(epsilon):
            raise ValueError("epsilon must be finite")
        if epsilon >= 0:
            return self._ahead(epsilon, reverse)
        low, high = self._ahead(-epsilon, not reverse)
        with ctx.workprec(BITS):
            factor, rest = arb(epsilon).exp(), -arb(epsilon).expm1()
            return Bounds(
                outwards(rest + factor * low, 1.0).lower,
                outwards(rest + factor * high, 1.0).upper,
            )

    def delta(self, epsilon: float) -> Bounds:
        found = self.ordered(epsilon)
        return found if self.symmetric else larger(found, self.ordered(epsilon, reverse=True))

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
        orders = (False,) if self.symmetric else (False, True)
        found = [conjugate(lambda e, r=r: self.ordered(e, reverse=r), alpha) for r in orders]  # type: ignore[misc]
        return Bounds(min(f.lower for f in found), min(f.upper for f in found))


def exact_order(order: Order) -> Fraction:
    """The order of a divergence, refused unless it is finite and at least 1."""
    if not 1 <= order < math.inf:
        raise ValueError("the order must be finite and at least 1")
    return Fraction(order)
