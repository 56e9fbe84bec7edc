"""Privacy losses as values: what a mechanism costs, in every currency the project uses.

A loss is a dominating pair (P, Q) of distributions (theory, introduction). Neighbours are
symmetric, so each loss stands for both orders of its pair, and its curve is

    delta(epsilon) = max(H(P || Q), H(Q || P)),  H(P || Q) = sum of (P - e^epsilon Q)+.

One order at a negative epsilon follows from the other: H_{-e}(P || Q) = 1 - exp(-e) +
exp(-e) H_e(Q || P). Every result is a proven enclosure (mechanisms.accounting.enclosures).

Here are what all losses share and those with a formula for the curve, or no more than
bounds on it. ``noise_losses`` has integer noise, ``finite_losses`` pairs on a finite set,
``composition`` several losses together.
"""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from flint import arb, ctx

from mechanisms.accounting.enclosures import (
    BITS,
    Bounds,
    ball,
    enclosed,
    exactly,
    larger,
    outwards,
    turn,
)
from mechanisms.accounting.renyi import delta_of_rho
from mechanisms.accounting.trade_off import conjugate

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
        low, _ = turn(lambda e: self.delta(e).lower > delta, most)
        _, high = turn(lambda e: self.delta(e).upper > delta, most)
        return Bounds(low, high)

    def trade_off(self, alpha: float) -> Bounds:
        if not 0 <= alpha <= 1:
            raise ValueError("alpha must be in [0, 1]")
        orders = (False,) if self.symmetric else (False, True)
        found = [conjugate(lambda e, r=r: self.ordered(e, reverse=r), alpha) for r in orders]  # type: ignore[misc]
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
            mu = ball(square).sqrt()
            e = arb(epsilon)
            return _below(mu / 2 - e / mu) - e.exp() * _below(-mu / 2 - e / mu)

        return enclosed(value, 1.0)

    @property
    def pure_epsilon(self) -> Bounds:
        return Bounds(math.inf, math.inf) if self.mu_squared else Bounds(0.0, 0.0)

    @property
    def rho(self) -> Bounds:
        return exactly(self.mu_squared / 2)

    def renyi(self, order: Order) -> Bounds:
        return exactly(exact_order(order) * self.mu_squared / 2)


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
        return enclosed(lambda: -(-ball(rest)).expm1() / (1 + (-ball(self.bound)).exp()), 1.0)

    @property
    def pure_epsilon(self) -> Bounds:
        return exactly(self.bound)

    @property
    def rho(self) -> Bounds:
        return self.renyi(1)

    def renyi(self, order: Order) -> Bounds:
        t, e = exact_order(order) - 1, self.bound
        if not t or not e:
            return enclosed(lambda: ball(e) * (ball(e) / 2).tanh())
        half = Fraction(1, 2)
        return enclosed(
            lambda: (_log_cosh(ball(e * (t + half))) - _log_cosh(ball(e * half))) / ball(t)
        )


@dataclass(frozen=True)
class ConcentratedLoss(Loss):
    """A loss whose Rényi divergences are bounded, and of which one pair may be known.

    Noise on a vector whose change is bounded by its Euclidean norm alone has no single worst
    shift that is known, and so no exact curve.

    Attributes:
        bound: A rho: every divergence of order a, for both orders of the pair, is at most a
            times this (Bun and Steinke 2016).
        attained: The loss of a pair of outputs that the mechanism has, if one is known; the
            lower bound.
    """

    bound: Fraction
    attained: PrivacyLoss = PureLoss(Fraction(0))

    def __post_init__(self) -> None:
        if self.bound < 0:
            raise ValueError("rho must not be negative")

    def _ahead(self, epsilon: float, reverse: bool) -> Bounds:
        return Bounds(self.attained.delta(epsilon).lower, delta_of_rho(self.bound, epsilon))

    @property
    def pure_epsilon(self) -> Bounds:
        return Bounds(self.attained.pure_epsilon.lower, math.inf if self.bound else 0.0)

    @property
    def rho(self) -> Bounds:
        return Bounds(self.attained.rho.lower, exactly(self.bound).upper)

    def renyi(self, order: Order) -> Bounds:
        most = exactly(exact_order(order) * self.bound).upper
        return Bounds(self.attained.renyi(order).lower, most)


def exact_order(order: Order) -> Fraction:
    """The order of a divergence, refused unless it is finite and at least 1."""
    if not 1 <= order < math.inf:
        raise ValueError("the order must be finite and at least 1")
    return Fraction(order)


def _below(x: arb) -> arb:
    """The standard normal distribution function."""
    return (-x / arb(2).sqrt()).erfc() / 2


def _log_cosh(x: arb) -> arb:
    return x + ((-2 * x).exp() + 1).log() - arb(2).log()
