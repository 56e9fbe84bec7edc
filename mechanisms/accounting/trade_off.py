"""The trade-off function as the conjugate of a privacy curve.

With H the curve of one order of a pair (Dong, Roth and Su 2022, doi 10.1111/rssb.12454,
Proposition 2.12), f(alpha) is the supremum over x = e^epsilon > 0 of 1 - H(x) - x alpha, concave
in x. Any point gives a lower bound. Any three points give an upper bound: beside two of them, and
between two of them, the function lies below the line through those two, or through the nearer and
the third.

``missed_at_least`` is only the lower bound, by few looks at the curve, for a statement of what an
attack attains.

**Theorem.** Let delta(e) bound Pr[M(D) in S] - exp(e) Pr[M(D') in S] for every set S and all
neighbours, in either order, at a real number e. Of every test of D' against D, randomised or not,
with a rate of false positives of at most alpha, the rate of false negatives is at least
1 - delta(e) - exp(e) alpha.

*Proof.* A test is a function t of the output to [0, 1], the chance of deciding for D. As
t = integral over u in [0, 1] of the indicator of {t > u}, the bound on sets is one on tests:
E t(M(D)) <= exp(e) E t(M(D')) + delta(e) <= exp(e) alpha + delta(e), and 1 - E t(M(D)) is the rate
of false negatives. QED

So each e gives a bound that holds, the largest of any few does, and where the search stops decides
only how near to the truth it is. What is looked up is the upper end of the curve's enclosure, alpha
is an exact fraction, and the result is rounded down.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from flint import arb, ctx

from statpress.mechanisms.accounting.balls import BITS, Bounds, ball, outwards

_FIRST_LOOKS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25)
"""Where the curve is looked up first, in multiples of the scale."""
_FURTHER_LOOKS = (-1.0, -0.5)
"""Where else, if none of the first is better than 0: of a loss that nearly discloses."""
_LOOKS = 8
"""How often it is looked up between two of those; the error falls with the square of their gap."""
_GOLDEN = (math.sqrt(5) - 1) / 2


def missed_at_least(curve: Callable[[float], Bounds], alpha: Fraction, scale: float) -> float:
    """Proven lower bound on the rate of false negatives of every test.

    Args:
        curve: The privacy curve of a loss at any epsilon, as an enclosure.
        alpha: The rate of false positives that the test may have, in [0, 1].
        scale: An epsilon of the order of the loss; it decides how near the bound is to the truth,
            and never whether it holds.

    Returns:
        The bound, rounded down.

    Raises:
        ValueError: alpha is not in [0, 1].
    """
    if not 0 <= alpha <= 1:
        raise ValueError("alpha must be in [0, 1]")

    def at(epsilon: float) -> float:
        with ctx.workprec(BITS):
            value = 1 - arb(curve(epsilon).upper) - arb(epsilon).exp() * ball(alpha)
            return outwards(value, 1.0).lower

    seen = {scale * factor: at(scale * factor) for factor in _FIRST_LOOKS}
    if max(seen, key=seen.__getitem__) == 0:
        seen |= {scale * factor: at(scale * factor) for factor in _FURTHER_LOOKS}
    looks = sorted(seen)
    best = looks.index(max(seen, key=seen.__getitem__))
    left, right = looks[max(best - 1, 0)], looks[min(best + 1, len(looks) - 1)]
    one, two = right - _GOLDEN * (right - left), left + _GOLDEN * (right - left)
    seen |= {one: at(one), two: at(two)}
    for _ in range(_LOOKS - 2):
        if seen[one] >= seen[two]:
            right, two = two, one
            new = one = right - _GOLDEN * (right - left)
        else:
            left, one = one, two
            new = two = left + _GOLDEN * (right - left)
        seen[new] = at(new)
    return max(seen.values())


@functools.lru_cache(maxsize=64)  # a rehearsal, a report and its statement ask the same
def missed_by_points(
    points: tuple[tuple[float, float], ...], alphas: tuple[Fraction, ...]
) -> tuple[float, ...]:
    """Lower bounds on the rate of false negatives of every test, by a few points of a curve.

    Besides the theorem's bound this takes that of the complement of a test with the neighbours
    changed over: 1 - alpha <= exp(e) beta + delta(e), so beta >= exp(-e) (1 - delta(e) - alpha).

    Args:
        points: Epsilons of at least 0, each with a delta that is proven to hold there for all
            neighbours in either order.
        alphas: Rates of false positives, in [0, 1].

    Returns:
        For each a proven lower bound on the rate of false negatives, rounded down.
    """
    with ctx.workprec(BITS):
        held = [(arb(epsilon).exp(), arb(delta)) for epsilon, delta in points]
        return tuple(
            max(
                outwards(each, 1.0).lower
                for growth, delta in held
                for each in (
                    1 - delta - growth * ball(alpha),
                    (1 - delta - ball(alpha)) / growth,
                )
            )
            for alpha in alphas
        )


def limit_advantage(limit: Mapping[str, str]) -> Decimal:
    """What an attack gains at most from all that an account's limit allows, rounded up.

    (epsilon, delta)-DP bounds the gap between the rates of true and of false positives by
    (e^epsilon - 1 + 2 delta)/(e^epsilon + 1) (Kairouz, Oh and Viswanath 2015, arXiv 1311.0776,
    section 2). Zero-concentrated privacy bounds the divergence of order 1 by rho, and so the gap by
    sqrt(rho/2) (Pinsker's inequality), and what it holds but for by that delta more.

    Args:
        limit: Exact decimals: ``epsilon`` and ``delta``, or ``rho`` and ``rho_delta``.
    """
    up = Context(prec=30, rounding=ROUND_CEILING)
    if "rho" in limit:
        root = up.sqrt(up.divide(Decimal(limit["rho"]), Decimal(2)))
        return min(up.add(up.next_plus(root), Decimal(limit["rho_delta"])), Decimal(1))
    epsilon, delta = Decimal(limit["epsilon"]), Decimal(limit["delta"])
    if epsilon > 100:
        return Decimal(1)
    # 1 - 2 (1 - delta)/(e^epsilon + 1), which rises with e^epsilon.
    power = up.next_plus(up.exp(epsilon))
    down = Context(prec=30, rounding=ROUND_FLOOR)
    least = down.divide(down.multiply(2, down.subtract(1, delta)), up.add(power, 1))
    return min(up.subtract(1, least), Decimal(1))


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
