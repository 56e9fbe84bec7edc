"""Exact accountant for a privacy loss on a lattice (mechanisms/README.md, section 2).

One draw has the dominating pair

    P = (up, down, rest),  Q = (down, up, rest),

so its privacy loss takes the values +l, -l, 0 with l = log(up/down), and the
loss of m draws is l times a sum S of m independent steps. With j0 the first
integer above epsilon/l,

    delta(epsilon) = sum over j >= j0 of Pr[S = j] (1 - exp(epsilon - l j)).

**Method.** With phi(z) = rest + up z + down/z and G(z) = sum over j of
w_j z^-j (w_j the weight above), delta is the mean of phi(z)^m G(z) over a circle
|z| = R. We take R at the saddle point and average over L equispaced nodes. Three
things separate the average from delta, and each is bounded, not estimated:

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
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from flint import acb, arb, ctx

from mechanisms.accounting.numerics.enclosures import Above, Bounds, ball, bisected, outwards

_RELATIVE_BITS = 40
_MOST_BITS = 8192
_INVERSE = 2.0**-45  # relative width at which a search for epsilon stops
_NEAR = 2.0**-49  # relative, on either side of where it is said to be


@dataclass(frozen=True, kw_only=True)
class LatticeLoss:
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
    def pure_epsilon(self) -> Bounds:
        """M l, the epsilon at delta = 0 (Wasserman and Zhou, equation 8)."""
        with ctx.workprec(128):
            return outwards(_step(self) * self.draws)

    def delta(self, epsilon: float) -> Bounds:
        """Bounds on the smallest delta at which the loss is (epsilon, delta)-DP.

        Args:
            epsilon: Any finite number.
        """
        if not math.isfinite(epsilon):
            raise ValueError("epsilon must be finite")
        return _bounded(self, epsilon)

    def _bounds(self, epsilon: float) -> Bounds:
        if self.up == self.down or self.draws == 0:
            with ctx.workprec(128):
                return outwards(arb(max(0.0, -math.expm1(min(epsilon, 0.0)))))
        bits = 80
        while True:
            with ctx.workprec(bits + self._guard_bits(epsilon)):
                value = self._delta(epsilon, bits)
                if value is not None:
                    lower, upper = value
                    tight = upper <= lower * (1 + arb(2) ** -_RELATIVE_BITS)
                    if tight or bits >= _MOST_BITS:
                        return outwards(lower.union(upper), most=1.0)
            bits *= 2

    def epsilon(self, delta: float, near: float | None = None) -> Bounds:
        """Bounds on the smallest epsilon >= 0 at which the loss is (epsilon, delta)-DP.

        Args:
            delta: In [0, 1).
            near: Where to look first; the bounds do not depend on it.
        """
        if not 0 <= delta < 1:
            raise ValueError("delta must be in [0, 1)")
        if delta == 0:
            return self.pure_epsilon
        at_zero = self.delta(0.0)
        if at_zero.upper <= delta:
            return Bounds(0.0, 0.0)
        most = self.pure_epsilon.upper
        lower, upper = Above.both(self.delta, delta)
        if near is not None:
            for side in (1 - _NEAR, 1 + _NEAR):
                lower(near * side)
        low, _ = bisected(lower, 0.0, most, _INVERSE)
        _, high = bisected(upper, low, most, _INVERSE)
        return Bounds(low, high)

    def _guard_bits(self, epsilon: float) -> int:
        """Bits lost to the m-th power and to a small step l."""
        step = math.log1p(float(self.up / self.down - 1)) or 1e-300
        scale = max(self.draws, 2) * (1 + abs(epsilon)) / min(step, 1.0)
        return 64 + 2 * math.ceil(math.log2(scale))

    def _delta(self, epsilon: float, bits: int) -> tuple[arb, arb] | None:
        """Enclosure of delta with wrap-around near 2**-bits, None if undecided."""
        if epsilon < 0:  # delta(-e) = 1 - e^-e + e^-e delta(e), the pair being symmetric
            mirrored = self._delta(-epsilon, bits)
            scale = arb(epsilon).exp()
            return mirrored and (1 - scale + scale * mirrored[0], 1 - scale + scale * mirrored[1])
        step = _step(self)
        first = (arb(epsilon) / step).floor().unique_fmpz()
        if first is None:
            return None
        j0 = int(first) + 1
        m, p, q = self.draws, ball(self.up), ball(self.down)
        edge = (arb(epsilon) - step * j0).exp()  # e^(epsilon - l j0) < 1
        if j0 > m:
            return arb(0), arb(0)
        if j0 == m:
            value = p**m * (1 - edge)
            return value.lower(), value.upper()

        centre, sd = self._saddle(j0)
        spread = 1 / max(sd, 1.0)
        ratio = q / p

        def direct(z: acb) -> acb:
            w = 1 / z
            return w**j0 * (1 / (1 - w) - edge / (1 - ratio * w))

        def complement(z: acb) -> acb:
            return z ** (1 - j0) / (1 - z) + edge * z**-j0 / (1 - ratio / z)

        if centre > -5 * spread:
            contour = _Contour(self, j0, max(centre, spread), (0.0, math.inf), bits)
            return contour.mean(direct)
        # Just inside the region of convergence -l < theta < 0.
        contour = _Contour(self, j0, centre, (-float(step.lower()) * (1 - 2**-50), 0.0), bits)
        low, high = contour.mean(complement)
        return 1 - high, 1 - low

    def _saddle(self, j0: int) -> tuple[float, float]:
        """The tilt whose mean is j0, and the standard deviation of S there."""
        m, p, q = self.draws, float(self.up), float(self.down)
        rest = float(1 - self.up - self.down)
        root = math.hypot(j0 * rest, 2 * math.sqrt((m - j0) * (m + j0)) * math.sqrt(p * q))
        z = (j0 * rest + root) / (2 * (m - j0) * p)
        total = rest + p * z + q / z
        up, down = p * z / total, q / z / total
        variance = max(up + down - (up - down) ** 2, 4 * up * down)
        return math.log(z), math.sqrt(m * variance)


@functools.lru_cache(maxsize=4096)
def _bounded(loss: LatticeLoss, epsilon: float) -> Bounds:
    """The curve, found once: a plan asks a loss for it at 0 from several sides."""
    return loss._bounds(epsilon)


class _Contour:
    """The circle log|z| = theta with enough nodes for an error near 2**-bits."""

    def __init__(
        self, loss: LatticeLoss, j0: int, theta: float, region: tuple[float, float], bits: int
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


def _step(loss: LatticeLoss) -> arb:
    """L = log(up / down)."""
    return ball(loss.up / loss.down).log()


def _whole(value: arb) -> int:
    """The floor of a ball's midpoint; off by one at most, which its callers allow for."""
    return int(str(value.mid().floor().unique_fmpz()))
