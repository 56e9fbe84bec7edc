"""The trade-off function as the conjugate of a privacy curve.

With H the curve of one order of a pair (Dong, Roth and Su 2022, doi 10.1111/rssb.12454,
Proposition 2.12), f(alpha) is the supremum over x = e^epsilon > 0 of 1 - H(x) - x alpha, concave
in x. Any point gives a lower bound. Any three points give an upper bound: beside two of them, and
between two of them, the function lies below the line through those two, or through the nearer and
the third.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from flint import arb, ctx

from mechanisms.accounting.enclosures import BITS, Bounds, outwards


def conjugate(curve: Callable[[float], Bounds], alpha: float) -> Bounds:
    """The trade-off of one order at alpha, by golden section on log x."""
    if alpha == 1:
        return Bounds(0.0, 0.0)
    far = -math.log(alpha) + 1 if alpha else 64.0
    seen: list[tuple[float, arb, arb]] = []
    best, most = 0.0, min(math.nextafter(1 - alpha, 2), 1.0)

    def at(e: float) -> tuple[float, arb, arb]:
        nonlocal best
        low, high = curve(e)
        x = arb(e).exp()
        value = (1 - arb(low)).union(1 - arb(high)) - x * alpha
        best = max(best, outwards(value.lower().max(arb(0))).lower)
        seen.append((e, x, value))
        return seen[-1]

    with ctx.workprec(BITS):
        left, right = at(-48.0), at(far)
        middle = at(-48.0 + 0.382 * (far + 48))
        for _ in range(80 if alpha else 0):
            most = min(most, _concave_ceiling(left, middle, right, arb(far).exp()))
            if right[0] - left[0] < 1e-12 or most - best < 1e-12:
                break
            longer_left = middle[0] - left[0] > right[0] - middle[0]
            end = left if longer_left else right
            new = at(middle[0] + 0.382 * (end[0] - middle[0]))
            inner, outer = (new, middle) if longer_left else (middle, new)
            if float(inner[2].mid()) >= float(outer[2].mid()):
                middle, right = inner, outer
            else:
                left, middle = inner, outer
        # Where the top is flat, points far from each other tell more than near ones.
        seen.sort(key=lambda point: point[0])
        for gap in (1, 2, 4, 8, 16, 32):
            for three in zip(seen, seen[gap:], seen[2 * gap :], strict=False):
                most = min(most, _concave_ceiling(*three, arb(far).exp()))
    return Bounds(best, max(best, most))


def _concave_ceiling(
    left: tuple[float, arb, arb],
    middle: tuple[float, arb, arb],
    right: tuple[float, arb, arb],
    farthest: arb,
) -> float:
    """Upper bound on a concave function on 0 < x <= farthest, beyond which it is below 0.

    Where the top is flat the points are equal up to rounding; then the rise that cannot
    be excluded next to them is as small as the rounding.
    """
    (_, x1, v1), (_, x2, v2), (_, x3, v3) = left, middle, right
    down, up, none = (v1 - v2) / (x2 - x1), (v3 - v2) / (x3 - x2), arb(0)
    before = v1 + down.max(none) * x1
    after = v3 + up.max(none) * (farthest - x3).max(none)
    between = v2 + (-up).max(none) * (x2 - x1), v2 + (-down).max(none) * (x3 - x2)
    ceiling = outwards(before.max(after).max(between[0]).max(between[1]).max(none))
    return ceiling.upper if math.isfinite(ceiling.upper) else 1.0
