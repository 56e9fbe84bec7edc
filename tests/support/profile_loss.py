"""A loss of which only bounds on the curve are known, for tests of composition."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from statpress.mechanisms.accounting.balls import Bounds, exactly
from statpress.mechanisms.accounting.losses import Order, PrivacyLoss, PureLoss, exact_order


@dataclass(frozen=True)
class ProfileLoss(PrivacyLoss):
    """A loss of which only bounds on the curve are known.

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

    def _ahead(self, epsilon: float) -> Bounds:
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
        exact, rho = exact_order(order), self.rho.upper
        if math.isinf(rho):
            return Bounds(0.0, self.most_epsilon)
        return Bounds(0.0, min(self.most_epsilon, exactly(exact * Fraction(rho)).upper))
