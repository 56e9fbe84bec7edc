"""The complementary error function in balls, by Taylor series about fixed points.

Arb's own takes longer the farther out it is asked for. A curve is asked for at thousands of points
of one range, so erfc(x / sqrt 2) is expanded about the nearest multiple a of 1/8, once for each.
With f(x) = erfc(x / sqrt 2), its derivatives are

    f^(n + 1)(x) = -sqrt(2/pi) (-1)^n He_n(x) exp(-x^2/2),

and what a series up to the power N leaves out is, for |x - a| <= 1/8, at most

    sqrt(2/pi) 1.0865 sqrt(N!) exp(-(a - 1/8)^2/4) (1/8)^(N + 1)/(N + 1)!,

by Lagrange's remainder and Cramér's inequality |He_n(x)| <= 1.0865 sqrt(n!) exp(x^2/4).
"""

from __future__ import annotations

import functools

from flint import arb, arb_poly, ctx

CRAMER = "1.0865"
"""The constant of Cramér's inequality, above its true value."""

_POWER = 36
_PER_UNIT = 8  # points about which it is expanded
_FARTHEST = 12  # where the remainder is still far below the value
_BITS = 128  # of precision up to which a series is accurate enough


def twice_above(x: arb) -> arb:
    """erfc(x / sqrt 2): twice the mass of a standard normal law above x >= 0."""
    place = round(_PER_UNIT * float(x))
    if ctx.prec <= _BITS and 0 <= place <= _FARTHEST * _PER_UNIT:
        series, left_out = _expanded(place)
        moved = x - arb(place) / _PER_UNIT
        if abs(moved) < 1 / _PER_UNIT:
            found: arb = series(moved) + left_out
            return found
    return (x / arb(2).sqrt()).erfc()


@functools.cache
def _expanded(place: int) -> tuple[arb_poly, arb]:
    """The series about one point, and a ball around 0 for what it leaves out."""
    with ctx.workprec(2 * _BITS):
        a = arb(place) / _PER_UNIT
        slope = (2 / arb.pi()).sqrt()
        unit = -slope * (-(a**2) / 2).exp()
        before, hermite, factorial = arb(0), arb(1), arb(1)  # He_(n-1)(a), He_n(a), (n + 1)!
        found = [(a / arb(2).sqrt()).erfc()]
        for n in range(_POWER):
            found.append(unit * (-1) ** n * hermite / factorial)
            before, hermite = hermite, a * hermite - n * before
            factorial *= n + 2
        # now factorial is (N + 1)!
        near = max(place - 1, 0)
        most = slope * arb(CRAMER) * (factorial / (_POWER + 1)).sqrt() / factorial
        most *= (-((arb(near) / _PER_UNIT) ** 2) / 4).exp() * arb(_PER_UNIT) ** -(_POWER + 1)
        return arb_poly(found), (-most).union(most)
