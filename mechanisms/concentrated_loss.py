"""The loss of which a bound on rho is all that is known: rho-zCDP.

Noise on a vector whose change is bounded by its Euclidean norm alone has no single worst
shift, and so no exact curve; for the discrete Gaussian distribution the bound on every Rényi
divergence is proven all the same (Canonne, Kamath and Steinke 2020, Theorem 4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from flint import arb, ctx

from mechanisms.enclosures import BITS, Bounds, ball, exactly, outwards
from mechanisms.losses import Loss, Order, exact_order


@dataclass(frozen=True)
class ConcentratedLoss(Loss):
    """Rényi divergence of every order a > 1 is at most a times ``most_rho``.

    With t = a - 1, delta(epsilon) <= exp(t (a rho - epsilon)) (1 - 1/a)^a / t for every a
    (Canonne, Kamath and Steinke 2020, Proposition 12). The best t solves
    rho (1 + 2 t) - epsilon = log(1 + 1/t); it is located in floating point, where a miss costs
    accuracy but not validity. At epsilon = 0 Pinsker's inequality, sqrt(rho / 2), is often the
    better bound, and it holds for every epsilon >= 0.

    Attributes:
        most_rho: At least 0.
    """

    most_rho: Fraction

    def __post_init__(self) -> None:
        if self.most_rho < 0:
            raise ValueError("rho must not be negative")

    def _ahead(self, epsilon: float, reverse: bool) -> Bounds:
        if not self.most_rho:
            return Bounds(0.0, 0.0)
        low, high, scale = -700.0, 700.0, float(self.most_rho)
        for _ in range(64):
            middle = (low + high) / 2
            t = math.exp(middle)
            if scale * (1 + 2 * t) - epsilon < math.log1p(1 / t):
                low = middle
            else:
                high = middle
        with ctx.workprec(BITS):
            rho, t_ball = ball(self.most_rho), arb(math.exp(high))
            a = 1 + t_ball
            share = a * (t_ball.log() - t_ball.log1p()) - t_ball.log()
            tail = (t_ball * (a * rho - arb(epsilon)) + share).exp()
            most = min(outwards(tail, 1.0).upper, outwards((rho / 2).sqrt(), 1.0).upper)
        return Bounds(0.0, most)

    @property
    def pure_epsilon(self) -> Bounds:
        return Bounds(0.0, math.inf if self.most_rho else 0.0)

    @property
    def rho(self) -> Bounds:
        return Bounds(0.0, exactly(self.most_rho).upper)

    def renyi(self, order: Order) -> Bounds:
        return Bounds(0.0, exactly(exact_order(order) * self.most_rho).upper)
