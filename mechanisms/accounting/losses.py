"""Privacy losses as values: what a mechanism costs, in every currency that the project uses.

A loss is a dominating pair (P, Q) of distributions (mechanisms/README.md, section 1) with the curve

    delta(epsilon) = H(P || Q) = sum of (P - e^epsilon Q)+.

Neighbours are symmetric, and so is every pair here: (Q, P) has the same curve. (Of a pair that is
not, the larger of both curves is that of a symmetric pair which dominates both orders.) So the
curve at a negative epsilon is 1 - exp(-e) + exp(-e) delta(e). Every result is a proven enclosure
(mechanisms.accounting.balls).

Here are what all losses share, and the losses with a formula for the curve: Gaussian, pure, of
bounded range, of bounded divergence. ``noise_losses`` has integer noise, ``draws`` draws on a
lattice, ``composition`` several losses together and the conversions from Rényi divergences and
zero-concentrated privacy to epsilon.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from flint import arb, ctx, fmpq

from statpress.mechanisms.accounting.balls import (
    BITS,
    Above,
    Bounds,
    Floats,
    ball,
    enclosed,
    exactly,
    last_true,
    outwards,
    twice_above,
)
from statpress.mechanisms.accounting.trade_off import conjugate, missed_at_least

_BITS = 192


def delta_of_rho(rho: Fraction, epsilon: float) -> float:
    """The smallest delta proven at epsilon >= 0 by rho-zCDP, D <= rho alpha.

    With t = alpha - 1 it is exp(t (rho (1 + t) - epsilon) + t log t - (1 + t) log(1 + t))
    (Canonne, Kamath and Steinke 2020, Proposition 12), smallest where rho (1 + 2 t) -
    epsilon + log(t / (1 + t)) = 0; the left side grows with t, so the place is found by
    bisection in floating point, where a miss costs accuracy but not validity. Near
    epsilon = 0 total variation is at most sqrt(rho / 2), since the divergence of order 1
    is at most rho (Pinsker's inequality).
    """
    if not (rho >= 0 and 0 <= epsilon < math.inf):
        raise ValueError("rho must be at least 0, epsilon finite and at least 0")
    if rho == 0:
        return 0.0
    low, high, scale = -700.0, 700.0, float(rho)
    for _ in range(64):
        middle = (low + high) / 2
        t = math.exp(middle)
        if (2 * t + 1) * scale - epsilon - math.log1p(1 / t) < 0:
            low = middle
        else:
            high = middle
    with ctx.workprec(_BITS):
        exact, order = ball(rho), arb(math.exp(high))
        log_delta = order * (exact * (1 + order) - arb(epsilon) + order.log())
        log_delta -= (1 + order) * order.log1p()
        return min(1.0, outwards(log_delta.exp()).upper, outwards((exact / 2).sqrt()).upper)


Order = Fraction | int | float


class ApproximateRho(NamedTuple):
    """A rho-zCDP that holds but for a delta (Bun and Steinke 2016, Definition 8.1).

    Attributes:
        rho: Enclosure of the smallest that is proven at this delta.
        delta: Rounded up; 0 if the rho holds for the whole loss.
        rule: By which event it holds, of a loss that has several (``truncated_draws.RULES``).
    """

    rho: Bounds
    delta: float
    rule: str = ""


class PrivacyLoss(abc.ABC):
    """What a mechanism costs; every answer is a proven enclosure.

    A subclass gives the curve at epsilon >= 0, the pure epsilon, rho and the Rényi divergences;
    epsilon, the trade-off and the advantage follow from the curve.
    """

    @abc.abstractmethod
    def _ahead(self, epsilon: float) -> Bounds:
        """The curve at epsilon >= 0."""

    @property
    @abc.abstractmethod
    def pure_epsilon(self) -> Bounds:
        """Epsilon at delta = 0, infinite if there is none."""

    @property
    @abc.abstractmethod
    def rho(self) -> Bounds:
        """Smallest rho with Rényi divergence <= rho order at every order above 1 (zCDP)."""

    @abc.abstractmethod
    def renyi(self, order: Order) -> Bounds:
        """Rényi divergence, at an order from 1."""

    def renyi_of_curve(self, order: Order) -> Bounds:
        """That of the pair whose curve this is, where less is proven of the loss itself."""
        return self.renyi(order)

    def approximate_rho(self, delta: float, rule: str = "") -> ApproximateRho:
        """The least rho known that holds but for at most this delta, or the least by one rule."""
        return ApproximateRho(self.rho, 0.0)

    @property
    def attack_advantage(self) -> Bounds:
        """Largest gap between true and false positives of any test: total variation."""
        return self.delta(0.0)

    def delta(self, epsilon: float) -> Bounds:
        """The curve at any finite epsilon."""
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

    def curve(self, step: float, count: int) -> tuple[Floats, Floats]:
        """Lower and upper bounds on the curve at 0, step, .., count step: float64[count + 1]."""
        found = np.array([self.delta(step * j) for j in range(count + 1)], dtype=np.float64)
        return found[:, 0], found[:, 1]

    def epsilon(self, delta: float) -> Bounds:
        """Smallest epsilon >= 0 at a delta in [0, 1)."""
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
        """Smallest type II error of any test with type I error alpha."""
        if not 0 <= alpha <= 1:
            raise ValueError("alpha must be in [0, 1]")
        return conjugate(self.delta, alpha)

    def missed_at_least(self, alphas: Sequence[Fraction], scale: float) -> tuple[float, ...]:
        """Lower bounds on that error, quicker: by some looks at the curve, at multiples of scale.

        Args:
            alphas: Type I errors.
            scale: An epsilon of the order of the loss.
        """
        curve = functools.cache(self.delta)
        return tuple(missed_at_least(curve, alpha, scale) for alpha in alphas)


def exact_order(order: Order) -> Fraction:
    """The order of a divergence, refused unless it is finite and at least 1."""
    if not 1 <= order < math.inf:
        raise ValueError("the order must be finite and at least 1")
    return Fraction(order)


@dataclass(frozen=True)
class GaussianLoss(PrivacyLoss):
    """N(0, 1) against N(mu, 1).

    Source: Balle and Wang 2018, arXiv 1805.06530, Theorem 8; Dong, Roth and Su 2022,
    doi 10.1111/rssb.12454.

    Attributes:
        mu: Distance of the means in standard deviations.
        extra: Added to mu**2, so that the sum of several squares stays exact.
    """

    mu: Fraction
    extra: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.mu < 0 or self.extra < 0:
            raise ValueError("mu and extra must not be negative")

    @functools.cached_property
    def mu_squared(self) -> Fraction:
        return self.mu**2 + self.extra

    @functools.cached_property
    def _square(self) -> fmpq:
        return fmpq(self.mu_squared.numerator, self.mu_squared.denominator)

    def _ahead(self, epsilon: float) -> Bounds:
        if not self.mu_squared:
            return Bounds(0.0, 0.0)

        def value() -> arb:
            mu = arb(self._square).sqrt()
            e = arb(epsilon)
            half, shift = mu / 2, e / mu
            return _below(half - shift) - e.exp() * _below(-half - shift)

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
class _BoundedLoss(PrivacyLoss):
    """A loss of at most ``bound``, whose divergence over the order is largest at order 1."""

    bound: Fraction

    def __post_init__(self) -> None:
        if self.bound < 0:
            raise ValueError("epsilon must not be negative")

    @property
    def pure_epsilon(self) -> Bounds:
        return exactly(self.bound)

    @property
    def rho(self) -> Bounds:
        return self.renyi(1)


@dataclass(frozen=True)
class PureLoss(_BoundedLoss):
    """Randomised response, the worst pair of a pure guarantee.

    Source: Kairouz, Oh and Viswanath 2015, arXiv 1311.0776.

    With t = order - 1 its divergence is log(cosh(e (t + 1/2)) / cosh(e/2)) / t. Let u =
    (t + 1/2)^2: D / order is the slope of log cosh(e sqrt u) between 1/4 and u, a concave
    function of u, so it is largest at order 1: rho = e tanh(e/2).

    Attributes:
        bound: The epsilon of the guarantee.
    """

    def _ahead(self, epsilon: float) -> Bounds:
        if Fraction(epsilon) >= self.bound:
            return Bounds(0.0, 0.0)
        rest = self.bound - Fraction(epsilon)
        return enclosed(lambda: -(-ball(rest)).expm1() / (1 + (-ball(self.bound)).exp()), 1.0)

    def renyi(self, order: Order) -> Bounds:
        t, e = exact_order(order) - 1, self.bound
        if not t or not e:
            return enclosed(lambda: ball(e) * (ball(e) / 2).tanh())
        half = Fraction(1, 2)
        return enclosed(
            lambda: (_log_cosh(ball(e * (t + half))) - _log_cosh(ball(e * half))) / ball(t)
        )


@dataclass(frozen=True)
class BoundedRangeLoss(_BoundedLoss):
    """Any pair whose privacy loss lies in an interval of a given length, wherever that lies.

    So it is for an exponential mechanism: if a unit moves every score by at most Delta, the loss
    at z is -epsilon (u(h, z) - u(h', z))/(2 Delta) plus a constant, and its range is epsilon
    (Dong, Durfee and Rogers 2020, arXiv 1909.13830; Cesar and Rogers 2021, arXiv 2004.07223). A
    pure guarantee allows a range of 2 epsilon. A mixture over what does not depend on the data,
    such as public candidates, keeps every bound here, by convexity.

    **Pairs.** Let e be the range. A loss in [t - e, t] is a mean-preserving contraction, in the
    likelihood ratio, of the one at its two ends, whose probability of t under P is (E - x)/(E - 1),
    E = e^e and x = e^t in [1, E]; so that one dominates. Of all x

    * the curve is largest at x^2 = E e^epsilon: (e^(e/2) - e^(epsilon/2))^2/(E - 1), which falls
      and is convex in e^epsilon, hence the curve of one pair that dominates them all (Zhu, Dong
      and Wang 2022, arXiv 2106.08567, section 3). Its second derivative in e^epsilon is the law of
      the likelihood ratio, so that the loss has a density as e^(loss/2) on [-e, e];
    * the mean of e^(s loss), x^s (A - x B)/(E - 1) with A = E - E^-s and B = 1 - E^-s, is largest
      at x = s A/((s + 1) B). With g(y) = y log(sinh(e y/2)/(e y/2)) its logarithm is then K(s) =
      g(s + 1) - g(s) - g(1), and the divergence of order 1 + s is K(s)/s.

    **Rho** is the divergence of order 1, z coth z - 1 + log(sinh(z)/z) with z = e/2, which is below
    e^2/8, the bound of Cesar and Rogers (Hoeffding's lemma). *Proof* that no order has more:
    K(s)/(s (1 + s)) is the mean of g''(u + v)/(2 (u + v)) over 0 < u < s, 0 < v < 1 with weights
    u + v, and g''(y)/y = e^2 (phi'(z)/(2 z) + phi''(z)/4), phi(z) = log(sinh(z)/z), z = e y/2.
    phi'(z)/z, the sum of 2/(n^2 pi^2 + z^2) over n >= 1, falls, and so does phi''(z) = 1/z^2 -
    1/sinh(z)^2, as (sinh(z)/z)^3 > cosh z (Lazarevic 1966). A larger u moves the weights to larger
    u + v, so the mean falls with s and is largest as s goes to 0. []

    Attributes:
        bound: The length e of the interval.
    """

    def _ahead(self, epsilon: float) -> Bounds:
        if Fraction(epsilon) >= self.bound:
            return Bounds(0.0, 0.0)
        rest = self.bound - Fraction(epsilon)
        return enclosed(
            lambda: (-(-ball(rest) / 2).expm1()) ** 2 / -(-ball(self.bound)).expm1(), 1.0
        )

    def renyi(self, order: Order) -> Bounds:
        s, e = exact_order(order) - 1, self.bound
        if not e:
            return Bounds(0.0, 0.0)
        if not s:
            z = e / 2
            return enclosed(lambda: ball(z) * ball(z).coth() - 1 + _log_sinhc(ball(z)))

        def part(y: Fraction) -> arb:
            return ball(y) * _log_sinhc(ball(e * y / 2))

        return enclosed(lambda: (part(s + 1) - part(s) - part(Fraction(1))) / ball(s))

    def renyi_of_curve(self, order: Order) -> Bounds:
        s, e = exact_order(order) - 1, self.bound
        if not e:
            return Bounds(0.0, 0.0)
        z = e / 2
        if not s:
            return enclosed(lambda: 2 * (ball(z) * ball(z).coth() - 1))
        return enclosed(lambda: (_log_sinhc(ball(z * (2 * s + 1))) - _log_sinhc(ball(z))) / ball(s))


@dataclass(frozen=True)
class ConcentratedLoss(PrivacyLoss):
    """A loss whose Rényi divergences are bounded, and of which one pair may be known.

    Noise on a vector whose change is bounded only in Euclidean norm has no single worst shift that
    is known, and so no exact curve.

    Attributes:
        bound: A rho: every divergence of order a, for both orders of the pair, is at most a
            times this (Bun and Steinke 2016, arXiv 1605.02065).
        attained: The loss of a pair of outputs that the mechanism has, if one is known; the
            lower bound.
    """

    bound: Fraction
    attained: PrivacyLoss = PureLoss(Fraction(0))

    def __post_init__(self) -> None:
        if self.bound < 0:
            raise ValueError("rho must not be negative")

    def _ahead(self, epsilon: float) -> Bounds:
        high = delta_of_rho(self.bound, epsilon)
        return Bounds(min(self.attained.delta(epsilon).lower, high), high)

    @property
    def pure_epsilon(self) -> Bounds:
        return Bounds(self.attained.pure_epsilon.lower, math.inf if self.bound else 0.0)

    @property
    def rho(self) -> Bounds:
        return Bounds(self.attained.rho.lower, exactly(self.bound).upper)

    def renyi(self, order: Order) -> Bounds:
        most = exactly(exact_order(order) * self.bound).upper
        return Bounds(self.attained.renyi(order).lower, most)


def _below(x: arb) -> arb:
    """The standard normal distribution function."""
    return twice_above(-x) / 2


def _log_cosh(x: arb) -> arb:
    return x + ((-2 * x).exp() + 1).log() - arb(2).log()


def _log_sinhc(x: arb) -> arb:
    """log(sinh(x)/x) for x > 0."""
    return x + (-(-2 * x).expm1() / (2 * x)).log()
