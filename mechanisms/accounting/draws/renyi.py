"""Rényi divergence and zero-concentrated privacy of a loss on a lattice.

The divergence of order alpha is D = log E_Q (P/Q)^alpha / (alpha - 1) (Mironov 2017, arXiv
1702.07476). For one draw from the pair of mechanisms.accounting.draws.lattice, with t = alpha - 1,
l = log(up/down) and g = sqrt(up down), it is

    D = log(1 + h) / t,  h = 4 g sinh(l (1 + t) / 2) sinh(l t / 2) >= 0,

and m draws have m times as much. The loss is rho-zCDP when D <= rho alpha for every alpha > 1 (Bun
and Steinke 2016, arXiv 1605.02065), so the smallest rho is m times the supremum over t > 0 of

    f = D / alpha = log(1 + h) / y,  y = t (1 + t).

**The supremum** is found by branch and bound. As a function of y, h is a power series with
non-negative coefficients and h = 0 at y = 0; so it is convex, and on an interval a <= y <= b
it lies below its chord. The logarithm is concave: that of the chord lies below its tangent
at the middle. Hence log(1 + h) is at most a linear function of y, and a linear function
over y is largest at an end. This bound holds everywhere and its excess falls with the
square of the width. For a = 0 the chord gives f <= h(b)/b, which tends to the value
at alpha = 1, the Kullback-Leibler divergence; beyond the last interval f <= l / alpha.
Values of f at the ends are the lower bound.

All arithmetic is ball arithmetic, and every result is rounded outwards.
"""

from __future__ import annotations

import functools
import heapq
import math
from fractions import Fraction

from flint import arb, ctx, fmpq

from mechanisms.accounting.draws.lattice import LatticeLoss
from mechanisms.accounting.numerics.enclosures import Bounds, ball, outwards

_BITS = 192
_MOST_BITS = 8192
_ACCURATE_BITS = 60
_GAP = 2.0**-36  # relative, between the bounds on the supremum
_MOST_PIECES = 100_000  # then the bounds are as wide as they are, and still bounds


class _Draw:
    """One draw, in balls at the precision of the moment."""

    def __init__(self, loss: LatticeLoss) -> None:
        up, down = (fmpq(p.numerator, p.denominator) for p in (loss.up, loss.down))
        self.step = arb(up / down - 1).log1p()
        self.root = arb(up * down).sqrt()
        self.mean = arb(up - down) * self.step  # the Kullback-Leibler divergence

    def excess(self, t: arb) -> arb:
        """The h of the module's text."""
        return 4 * self.root * (self.step * (1 + t) / 2).sinh() * (self.step * t / 2).sinh()

    def divergence(self, t: arb) -> arb:
        """D of order 1 + t."""
        return self.excess(t).log1p() / t

    def ceiling(self, a: arb, b: arb, at_a: arb, at_b: arb) -> arb:
        """At least f on a <= t <= b, given h at both ends."""
        if not b.is_finite():
            return self.step / (1 + a)
        low, high = a * (1 + a), b * (1 + b)
        if a == 0:
            return at_b / high
        middle = (at_a + at_b) / 2
        level, rise = middle.log1p(), (at_b - at_a) / (2 * (1 + middle))
        tangent = ((level - rise) / low).max((level + rise) / high)
        return tangent.min(at_b.log1p() / low)  # far out the tangent is the worse


def renyi_divergence(loss: LatticeLoss, order: Fraction | int | float) -> Bounds:
    """Bounds on the Rényi divergence of all draws.

    Args:
        loss: The loss; its pair is symmetric, so the direction does not matter.
        order: At least 1 and finite; a float is taken as its exact value. Order 1 is the
            Kullback-Leibler divergence.
    """
    if not 1 <= order < math.inf:
        raise ValueError("the order must be finite and at least 1")
    if loss.up == loss.down or loss.draws == 0:
        return Bounds(0.0, 0.0)
    t, bits = Fraction(order) - 1, _BITS
    while True:
        with ctx.workprec(bits):
            draw = _Draw(loss)
            value = draw.divergence(ball(t)) if t else draw.mean
            if value.rel_accuracy_bits() >= _ACCURATE_BITS or bits >= _MOST_BITS:
                return outwards(value * loss.draws)
        bits *= 2


@functools.lru_cache(maxsize=256)
def concentrated(loss: LatticeLoss) -> Bounds:
    """Bounds on the smallest rho at which the loss is rho-zCDP, 2**-35 apart if they can be."""
    if loss.up == loss.down or loss.draws == 0:
        return Bounds(0.0, 0.0)
    with ctx.workprec(_BITS):
        draw = _Draw(loss)
        lower, upper = _supremum(draw)
        rho = draw.mean * loss.draws
        return Bounds(outwards(rho * lower).lower, outwards(rho * upper).upper)


def _supremum(draw: _Draw) -> Bounds:
    """Bounds on sup f over its value at order 1, by best-first branch and bound."""
    unit = (1 / draw.step).mid()  # of t, whose intervals are kept as floats

    def piece(a: float, b: float, at_a: arb, at_b: arb) -> tuple[float, float, float, arb, arb]:
        most = draw.ceiling(a * unit, b * unit, at_a, at_b) / draw.mean
        return -outwards(most).upper if most.is_finite() else -math.inf, a, b, at_a, at_b

    best, pieces = 1.0, [piece(0.0, math.inf, arb(0), arb(0))]
    while -pieces[0][0] > best * (1 + _GAP) and len(pieces) < _MOST_PIECES:
        _, a, b, at_a, at_b = heapq.heappop(pieces)
        if b == math.inf:
            cut = 16 * a or 1.0
        elif b > 2 * a:
            cut = math.sqrt(a * b) or b / 16
        else:
            cut = (a + b) / 2
        t = cut * unit
        at_cut = draw.excess(t)
        best = max(best, outwards(draw.divergence(t) / (1 + t) / draw.mean).lower)
        heapq.heappush(pieces, piece(a, cut, at_a, at_cut))
        heapq.heappush(pieces, piece(cut, b, at_cut, at_b))
    return Bounds(best, max(best, -pieces[0][0]))
