"""From Rényi divergences and zero-concentrated privacy to epsilon and delta.

All arithmetic is ball arithmetic, and every result is rounded outwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from flint import arb, ctx

from mechanisms.accounting.numerics.enclosures import ball, outwards

_BITS = 192


def epsilon_at(divergences: Sequence[tuple[float, float]], delta: float) -> float:
    """The smallest epsilon >= 0 proven at delta by Rényi divergences.

    Canonne, Kamath and Steinke (2020, arXiv 2004.00010), Proposition 12; infinity where nothing is
    proven.

    Args:
        divergences: Pairs of an order above 1 and an upper bound on the divergence.
        delta: In [0, 1).
    """
    if not 0 <= delta < 1:
        raise ValueError("delta must be in [0, 1)")
    if not all(1 < order < math.inf and value >= 0 for order, value in divergences):
        raise ValueError("orders must be finite and above 1, divergences at least 0")
    with ctx.workprec(_BITS):
        found = (
            _converted(arb(value), arb(order) - 1, delta)
            for order, value in divergences
            if value < math.inf and delta > 0
        )
        return min(found, default=math.inf)


def epsilon_of_rho(rho: Decimal, delta: float) -> float:
    """The smallest epsilon >= 0 proven at delta by rho-zCDP, D <= rho alpha.

    The bound of epsilon_at has one minimum over t = alpha - 1, where
    rho t^2 = log(1 / (delta alpha)). It is located in floating point, where a miss costs
    accuracy but not validity, and evaluated once, rounded up.
    """
    if not (rho.is_finite() and rho >= 0 and 0 <= delta < 1):
        raise ValueError("rho must be finite and at least 0, delta in [0, 1)")
    if delta == 0 or rho == 0:
        return math.inf if rho else 0.0
    low, high, scale = -700.0, 700.0, float(rho)
    for _ in range(64):
        middle = (low + high) / 2
        t = math.exp(middle)
        if scale * t * t + math.log(delta) + math.log1p(t) < 0:
            low = middle
        else:
            high = middle
    with ctx.workprec(_BITS):
        t_ball = arb(math.exp(high))
        return _converted(ball(Fraction(rho)) * (1 + t_ball), t_ball, delta)


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


def tail_of_rho(rho: Decimal, delta: Decimal | float) -> float:
    """An epsilon that the privacy loss exceeds with probability at most delta.

    rho + 2 sqrt(rho log(1/delta)) by Markov's inequality (Bun and Steinke 2016,
    Proposition 1.3).
    """
    if not (rho.is_finite() and rho >= 0 and 0 <= delta <= 1):
        raise ValueError("rho must be finite and at least 0, delta in [0, 1]")
    if delta == 0 or rho == 0:
        return math.inf if rho else 0.0
    with ctx.workprec(_BITS):
        exact, chance = ball(Fraction(rho)), Fraction(delta)
        return outwards(exact + 2 * (exact * ball(1 / chance - 1).log1p()).sqrt()).upper


def _converted(divergence: arb, t: arb, delta: float) -> float:
    """Proposition 12 at order 1 + t, rounded up."""
    share = t.log() - t.log1p()  # log(1 - 1/alpha), also for small t
    return outwards(divergence + share - (arb(delta).log() + t.log1p()) / t).upper
