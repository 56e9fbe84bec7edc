"""The curve of many draws from a table of their masses, for many epsilons at once.

``mechanisms.accounting.draws.lattice`` finds one value of the curve with small relative error, by
an integral of its own. Composition asks for thousands of values of the same curve, where an
absolute error far below any delta will do. The sum S of m steps has its masses by a discrete
Fourier transform of length M in ball arithmetic,

    c_j = 1/M sum over k of phi(z_k)^m z_k^-j = sum over r of Pr[S = j + r M],

z_k = e^(2 pi i k/M). Whatever lies outside -W..W, 2 W < M, falls on one c_j, so every sum within
the window is known up to t = Pr[|S| > W], bounded by exp(-x s) phi(e^x)^m for s = W + 1 and
the x near the best (Chernoff). Then delta(epsilon) = Pr[S >= j] - e^epsilon Pr[S <= -j] for the
first j whose loss passes epsilon, the pair being symmetric.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass

from flint import acb, arb, ctx

from mechanisms.accounting.draws.lattice import LatticeLoss
from mechanisms.accounting.draws_loss import DrawsLoss
from mechanisms.accounting.numerics.enclosures import Bounds, ball, outwards

MOST_POINTS = 1 << 14
"""The longest transform; a wider lattice has no table."""

_BITS = 192
_TAIL = 2.0**-120
_STRIDE = 16  # between looks at how much is left


@dataclass(frozen=True)
class TabulatedLoss(DrawsLoss):
    """The loss of a lattice whose window fits a table (``fits``)."""

    @functools.cached_property
    def _table(self) -> tuple[arb, list[tuple[arb, arb]]]:
        """The step between losses, and the sums; kept here, where asking takes no hash."""
        with ctx.workprec(_BITS):
            return ball(self.lattice.up / self.lattice.down).log(), _sums(self.lattice)

    def _ahead(self, epsilon: float) -> Bounds:
        step, table = self._table
        with ctx.workprec(_BITS):
            first = (arb(epsilon) / step).floor().unique_fmpz()
            if first is None:
                return self.lattice.delta(epsilon)
            place = min(int(first) + 1, len(table) - 1)
            above, below = table[place]
            value = above - arb(epsilon).exp() * below
            low, high = outwards(value, 1.0)
            if not value.upper() <= above.upper():
                high = min(high, outwards(above, 1.0).upper)
            return Bounds(low, high)

    def epsilon(self, delta: float) -> Bounds:
        """As the lattice proves it, looked for where the table has it."""
        return self.lattice.epsilon(delta, self._near(delta))

    def _near(self, delta: float) -> float | None:
        """About the epsilon at a delta: up to step j the curve is A_j - e^epsilon B_j."""
        step, table = self._table
        with ctx.workprec(_BITS):
            low, high = 0, len(table) - 1
            while high - low > 1:
                j = (low + high) // 2
                above, below = table[j]
                low, high = (j, high) if above - (step * j).exp() * below > delta else (low, j)
            above, below = table[high]
            found = ((above - delta) / below).log()
            return float(found) if found.is_finite() and found > 0 else None


def fits(loss: LatticeLoss) -> bool:
    """Whether a table of the loss is possible and worth its while."""
    return loss.up > loss.down and loss.draws > 0 and 2 * _window(loss) < MOST_POINTS


@functools.lru_cache(maxsize=256)
def _window(loss: LatticeLoss) -> int:
    """A W with Pr[|S| > W] below the tail."""
    mean = loss.draws * float(loss.up - loss.down)
    sd = math.sqrt(loss.draws * float(loss.up + loss.down))
    width = mean + 13 * sd + 30
    while width < MOST_POINTS and not _outside(loss, math.ceil(width) + 1) < _TAIL:
        width *= 1.25
    return min(math.ceil(width), loss.draws)


def _outside(loss: LatticeLoss, start: int) -> arb:
    """An upper bound on Pr[|S| >= start], at the precision of the moment."""
    if start > loss.draws:
        return arb(0)
    mean, variance = (loss.draws * float(loss.up + s * loss.down) for s in (-1, 1))
    tilt = math.asinh((start - mean) / max(variance, 1e-300))
    z, up, down = arb(tilt).exp(), ball(loss.up), ball(loss.down)
    one, other = (
        (1 + a * (z - 1) + b * (1 / z - 1)) ** loss.draws for a, b in ((up, down), (down, up))
    )
    return (one + other) * (-arb(tilt) * start).exp()


@functools.lru_cache(maxsize=128)
def _sums(loss: LatticeLoss) -> list[tuple[arb, arb]]:
    """Pr[S >= j] and Pr[S <= -j] for j = 0..W + 1."""
    width = _window(loss)
    points = 1 << (2 * width + 1).bit_length()
    with ctx.workprec(_BITS + 2 * max(loss.draws, 2).bit_length()):
        half = _spectrum(loss, points)
        powers = half + [value.conjugate() for value in half[-2:0:-1]]
        masses = [value.real / points for value in acb.dft(powers)]
        moved = _outside(loss, width + 1)
        error = (-moved).union(moved)
        ends = (masses[width::-1], [masses[-j] for j in range(width, -1, -1)])
        above, below = (itertools.accumulate(end, initial=error) for end in ends)
        return [*zip(above, below, strict=True)][::-1]


def _spectrum(loss: LatticeLoss, points: int) -> list[acb]:
    """phi(z_k)^m for k = 0..points/2, at the precision of the moment.

    |phi(e^iu)|^2 = 1 - 2 v x + b x^2 with x = 1 - cos u is convex, so of a run of k it is largest
    at an end. Where it is too small to be seen at both ends of what is left, a ball around 0
    stands for each.
    """
    up, down = ball(loss.up), ball(loss.down)
    rest = ball(1 - loss.up - loss.down)
    v, b = up + down - (up - down) ** 2, 4 * up * down
    last, unseen = points // 2, arb(2) ** -(int(ctx.prec) + 16)

    def height(k: int) -> arb:
        x = 1 - (arb.pi() * 2 * k / points).cos()
        return (1 - 2 * v * x + b * x**2).abs_upper() ** (arb(loss.draws) / 2)

    far, found = height(last), []
    for k in range(last + 1):
        if k % _STRIDE == 0 and far < unseen and (near := height(k)) < unseen:
            most = near.max(far).upper()
            around = (-most).union(most)
            found += [acb(around, around)] * (last + 1 - k)
            break
        z = acb.exp_pi_i(acb(arb(2 * k) / points))
        found.append((rest + up * z + down / z) ** loss.draws)
    return found
