"""The loss of records drawn from a smoothed table (mechanisms/README.md, section 2).

One draw has the dominating pair

    P = (up, down, rest),  Q = (down, up, rest),

so its privacy loss takes the values +l, -l, 0 with l = log(up/down), and the
loss of m draws is l times a sum S of m independent steps. With j0 the first
integer above epsilon/l,

    delta(epsilon) = sum over j >= j0 of Pr[S = j] (1 - exp(epsilon - l j)).

**The curve.** Of a few draws it is a finite sum over their outcomes, evaluated as it stands. More
of them have too many outcomes for that. With phi(z) = rest + up z + down/z and G(z) = sum over j of
w_j z^-j (w_j the weight above), delta is the mean of phi(z)^m G(z) over a circle |z| = R. We take R
at the saddle point and average over L equispaced nodes. Three things separate the average from
delta, and each is bounded, not estimated:

* *wrap-around.* The average over L nodes adds, for every k != 0, the terms with
  the index of w shifted by kL. All are non-negative, and by Chernoff's bound with
  M(t) = phi(e^t)^m they add up to at most
  M(t) e^(-t j0) / (e^(L|t - log R|) - 1) on either side of log R, for any t in
  the region where the series of G converges;
* *nodes left out.* |phi(Re^(iu))/phi(R)|^2 is a convex quadratic in 1 - cos u, so
  over any run of nodes it is largest at an end of the run; |G| <= G(R);
* *rounding.* All arithmetic is ball arithmetic (Arb, through python-flint), whose
  radius encloses every rounding error.

The number of nodes depends on the accuracy asked for, not on m: a query for
m = 10**12 costs what one for m = 10**4 costs. Where epsilon lies below the mean
loss, 1 - delta is computed in the same way, with the weights min(1, e^(epsilon - l j)).

**Rényi divergence.** The divergence of order alpha is D = log E_Q (P/Q)^alpha / (alpha - 1)
(Mironov 2017, arXiv 1702.07476). For one draw, with t = alpha - 1 and g = sqrt(up down), it is

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

**Approximate zero-concentrated privacy** is in ``truncated_draws.py``.

All arithmetic is ball arithmetic, and every result is rounded outwards.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from flint import acb, arb, arb_poly, ctx, fmpq

from statpress.mechanisms.accounting.balls import (
    Above,
    Bounds,
    ball,
    bisected,
    enclosed,
    outwards,
)
from statpress.mechanisms.accounting.losses import ApproximateRho, Order, PrivacyLoss, exact_order
from statpress.mechanisms.accounting.truncated_draws import approximately_concentrated

FEW_DRAWS = 1000
"""Up to which the masses of all draws are summed."""

_RELATIVE_BITS = 40
_BITS = 192
_MOST_BITS = 8192
_ACCURATE_BITS = 60
_INVERSE = 2.0**-45  # relative width at which a search for epsilon stops
_NEAR = 2.0**-49  # relative, on either side of where it is said to be


@dataclass(frozen=True, kw_only=True)
class DrawsLoss(PrivacyLoss):
    """Loss of ``draws`` independent draws from the pair (up, down, rest).

    Attributes:
        up: Probability of +l under P, an exact fraction.
        down: Probability of -l under P, with 0 < down <= up and up + down <= 1.
        draws: Number of draws m >= 0.
    """

    up: Fraction
    down: Fraction
    draws: int

    def __post_init__(self) -> None:
        if not (0 < self.down <= self.up and self.up + self.down <= 1):
            raise ValueError("the pair needs 0 < down <= up and up + down <= 1")
        if self.draws < 0:
            raise ValueError("draws must not be negative")

    @property
    def is_free(self) -> bool:
        """Whether nothing is lost."""
        return self.up == self.down or self.draws == 0

    @property
    def pure_epsilon(self) -> Bounds:
        """M l, the epsilon at delta = 0 (Wasserman and Zhou, equation 8)."""
        with ctx.workprec(128):
            return outwards(_step(self) * self.draws)

    def _ahead(self, epsilon: float) -> Bounds:
        if self.is_free or self.draws > FEW_DRAWS:
            return contour_delta(self, epsilon)

        def value() -> arb:
            first = (arb(epsilon) / _step(self)).floor().unique_fmpz()
            if first is None:
                return arb(0, math.inf)
            count = max(self.draws - int(first), 0)  # of lattice points above epsilon
            p, q = _draws_sums(self, int(ctx.prec))
            return p[count] - arb(epsilon).exp() * q[count]

        return enclosed(value, 1.0)

    def epsilon(self, delta: float) -> Bounds:
        return self._epsilon(delta)

    def _epsilon(self, delta: float, near: float | None = None) -> Bounds:
        """By the contour's curve; ``near`` is looked at first, and does not move the bounds."""
        if not 0 <= delta < 1:
            raise ValueError("delta must be in [0, 1)")
        if delta == 0:
            return self.pure_epsilon
        curve = functools.partial(contour_delta, self)
        if curve(0.0).upper <= delta:
            return Bounds(0.0, 0.0)
        most = self.pure_epsilon.upper
        lower, upper = Above.both(curve, delta)
        if near is not None:
            for side in (1 - _NEAR, 1 + _NEAR):
                lower(near * side)
        low, _ = bisected(lower, 0.0, most, _INVERSE)
        _, high = bisected(upper, low, most, _INVERSE)
        return Bounds(low, high)

    @property
    def rho(self) -> Bounds:
        return _rho(self)

    def approximate_rho(self, delta: float, rule: str = "") -> ApproximateRho:
        """By the event that leaves less (``RULES``), unless the whole loss has no larger rho."""
        truncated = approximately_concentrated(self, delta, rule)
        if truncated is None or not self._has_more_than(truncated.rho.upper):
            whole = self.rho
            if truncated is None or truncated.rho.upper >= whole.upper:
                return ApproximateRho(whole, 0.0)
        return ApproximateRho(*truncated[:3])

    def _has_more_than(self, rho: float) -> bool:
        """Whether one divergence shows that the whole loss has a larger rho, which is quicker."""
        order = 1 + 16 / math.log1p(float(self.up / self.down - 1))
        return math.isfinite(order) and self.renyi(order).lower > rho * order * (1 + 1e-12)

    def renyi(self, order: Order) -> Bounds:
        t = exact_order(order) - 1
        if self.is_free:
            return Bounds(0.0, 0.0)
        bits = _BITS
        while True:
            with ctx.workprec(bits):
                draw = _Draw(self)
                value = draw.divergence(ball(t)) if t else draw.mean
                if value.rel_accuracy_bits() >= _ACCURATE_BITS or bits >= _MOST_BITS:
                    return outwards(value * self.draws)
            bits *= 2


@functools.lru_cache(maxsize=4096)
def contour_delta(loss: DrawsLoss, epsilon: float) -> Bounds:
    """The curve at epsilon >= 0 by the integral, found once: a plan asks from several sides."""
    if loss.is_free:
        return Bounds(0.0, 0.0)
    bits = 80
    while True:
        with ctx.workprec(bits + _guard_bits(loss, epsilon)):
            value = _by_contour(loss, epsilon, bits)
            if value is not None:
                lower, upper = value
                tight = upper <= lower * (1 + arb(2) ** -_RELATIVE_BITS)
                if tight or bits >= _MOST_BITS:
                    return outwards(lower.union(upper), most=1.0)
        bits *= 2


def _guard_bits(loss: DrawsLoss, epsilon: float) -> int:
    """Bits lost to the m-th power and to a small step l."""
    step = math.log1p(float(loss.up / loss.down - 1)) or 1e-300
    scale = max(loss.draws, 2) * (1 + abs(epsilon)) / min(step, 1.0)
    return 64 + 2 * math.ceil(math.log2(scale))


def _by_contour(loss: DrawsLoss, epsilon: float, bits: int) -> tuple[arb, arb] | None:
    """Enclosure of delta with wrap-around near 2**-bits, None if undecided."""
    step = _step(loss)
    first = (arb(epsilon) / step).floor().unique_fmpz()
    if first is None:
        return None
    j0 = int(first) + 1
    m, p, q = loss.draws, ball(loss.up), ball(loss.down)
    edge = (arb(epsilon) - step * j0).exp()  # e^(epsilon - l j0) < 1
    if j0 > m:
        return arb(0), arb(0)
    if j0 == m:
        value = p**m * (1 - edge)
        return value.lower(), value.upper()

    centre, sd = _saddle(loss, j0)
    spread = 1 / max(sd, 1.0)
    ratio = q / p

    def direct(z: acb) -> acb:
        w = 1 / z
        return w**j0 * (1 / (1 - w) - edge / (1 - ratio * w))

    def complement(z: acb) -> acb:
        return z ** (1 - j0) / (1 - z) + edge * z**-j0 / (1 - ratio / z)

    if centre > -5 * spread:
        contour = _Contour(loss, j0, max(centre, spread), (0.0, math.inf), bits)
        return contour.mean(direct)
    # Just inside the region of convergence -l < theta < 0.
    contour = _Contour(loss, j0, centre, (-float(step.lower()) * (1 - 2**-50), 0.0), bits)
    low, high = contour.mean(complement)
    return 1 - high, 1 - low


def _saddle(loss: DrawsLoss, j0: int) -> tuple[float, float]:
    """The tilt whose mean is j0, and the standard deviation of S there."""
    m, p, q = loss.draws, float(loss.up), float(loss.down)
    rest = float(1 - loss.up - loss.down)
    root = math.hypot(j0 * rest, 2 * math.sqrt((m - j0) * (m + j0)) * math.sqrt(p * q))
    z = (j0 * rest + root) / (2 * (m - j0) * p)
    total = rest + p * z + q / z
    up, down = p * z / total, q / z / total
    variance = max(up + down - (up - down) ** 2, 4 * up * down)
    return math.log(z), math.sqrt(m * variance)


class _Contour:
    """The circle log|z| = theta with enough nodes for an error near 2**-bits."""

    def __init__(
        self, loss: DrawsLoss, j0: int, theta: float, region: tuple[float, float], bits: int
    ) -> None:
        self.m, self.j0 = loss.draws, j0
        self.p, self.q = ball(loss.up), ball(loss.down)
        self.rest = ball(1 - loss.up - loss.down)
        self.theta, self.bits = arb(theta), bits
        self.radius = self.theta.exp()
        phi = self.phi(self.radius)
        up, down = self.p * self.radius / phi, self.q / self.radius / phi
        # |phi(R e^iu) / phi(R)|^2 = 1 - 2 v x + b x^2 with x = 1 - cos u
        self.v, self.b = up + down - (up - down) ** 2, 4 * up * down
        sd = math.sqrt(self.m * float(self.v))
        reach = min(math.sqrt(2 * bits * math.log(2)) / max(sd, 1e-9), 2.0)
        self.below = arb(min(reach, theta - region[0]))
        self.above = arb(min(reach, region[1] - theta))
        if not (self.below > 0 and self.above > 0):
            raise ArithmeticError("the contour lies outside the region of convergence")
        self.nodes = 2 * math.ceil(self._nodes_needed() / 2) + 1

    def phi(self, z: arb) -> arb:
        return self.rest + self.p * z + self.q / z

    def _chernoff(self, tilt: arb) -> arb:
        """M(t) e^(-t j0) divided by its value on the circle."""
        base = self.phi(tilt.exp()) / self.phi(self.radius)
        return base**self.m * (-(tilt - self.theta) * self.j0).exp()

    def _nodes_needed(self) -> float:
        wanted = self.bits * math.log(2)
        return max(
            float((wanted + self._chernoff(self.theta + s * w).log()) / w)
            for s, w in ((-1, self.below), (1, self.above))
        )

    def _quadratic(self, node: int) -> arb:
        x = 1 - (arb.pi() * 2 * node / self.nodes).cos()
        return 1 - 2 * self.v * x + self.b * x**2

    def _left_out(self) -> tuple[int, int]:
        """Half-open run of nodes in 1..L//2 whose terms are below 2**-bits."""
        half = self.nodes // 2
        none = half + 1, half + 1
        v, b = self.v.mid(), self.b.mid()
        gap = -(arb(-2 * self.bits) * arb(2).log() / self.m).expm1()
        square = (v * v - b * gap).mid()
        if not square > 0:
            return none
        root = square.sqrt()
        x1, x2 = gap / (v + root), (v + root) / b
        if not x1 < 2:
            return none
        circle = self.nodes / (2 * arb.pi())  # nodes in a unit of angle
        first = _whole(2 * (x1 / 2).sqrt().asin() * circle) + 2
        last = half
        if x2 < 2:  # 1 - cos u = x as u = 2 asin sqrt(x/2), which keeps small angles
            last = min(last, _whole((arb.pi() - 2 * (1 - x2 / 2).sqrt().asin()) * circle) - 1)
        return (first, last + 1) if first <= last else none

    def mean(self, weight: Callable[[acb], acb]) -> tuple[arb, arb]:
        """Enclosure of the mean of phi(z)^m weight(z) over the circle."""
        m, nodes = self.m, self.nodes

        def term(node: int) -> acb:
            z = acb(self.radius) * acb.exp_pi_i(acb(arb(2 * node) / nodes))
            return (self.rest + self.p * z + self.q / z) ** m * weight(z)

        on_axis = term(0).real
        total = on_axis
        start, stop = self._left_out()
        for node in (*range(1, start), *range(stop, nodes // 2 + 1)):
            total += 2 * term(node).real
        total /= nodes
        left_out = arb(0)
        if stop > start:
            largest = self._quadratic(start).max(self._quadratic(stop - 1))
            left_out = largest.abs_upper() ** (arb(m) / 2) * on_axis
        height = self.phi(self.radius) ** m * (-self.theta * self.j0).exp()
        wrapped = sum(
            (
                height * self._chernoff(self.theta + s * w) / ((w * nodes).exp() - 1)
                for s, w in ((-1, self.below), (1, self.above))
            ),
            arb(0),
        )
        low, high = total - left_out - wrapped, total + left_out
        return low.lower().max(arb(0)), high.upper()


def _step(loss: DrawsLoss) -> arb:
    """L = log(up / down)."""
    return ball(loss.up / loss.down).log()


def _whole(value: arb) -> int:
    """The floor of a ball's midpoint; off by one at most, which its callers allow for."""
    return int(str(value.mid().floor().unique_fmpz()))


_GAP = 2.0**-36  # relative, between the bounds on the supremum
_MOST_PIECES = 100_000  # then the bounds are as wide as they are, and still bounds


class _Draw:
    """One draw, in balls at the precision of the moment."""

    def __init__(self, loss: DrawsLoss) -> None:
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


@functools.lru_cache(maxsize=256)
def _rho(loss: DrawsLoss) -> Bounds:
    """Bounds on the smallest rho of the whole loss, 2**-35 apart if they can be."""
    if loss.is_free:
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


@functools.lru_cache(maxsize=64)
def _draws_sums(loss: DrawsLoss, bits: int) -> tuple[list[arb], list[arb]]:
    """Running sums of both distributions over the lattice, largest loss first."""
    with ctx.workprec(bits):
        up, down, rest = ball(loss.up), ball(loss.down), ball(1 - loss.up - loss.down)
        powers = (arb_poly([up, rest, down]) ** loss.draws).coeffs()
        p, q = [arb(0)], [arb(0)]
        for mass, mirrored in zip(powers, reversed(powers), strict=True):
            p.append(p[-1] + mass)
            q.append(q[-1] + mirrored)  # the pair is symmetric
        return p, q
