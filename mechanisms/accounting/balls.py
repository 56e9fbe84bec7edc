"""Arithmetic with proven error bounds: enclosures and tails of the normal law.

**Enclosures.** A ball (Arb) holds the value it stands for whatever was rounded on the way, and a
comparison of balls is true only if it holds for all of their points. A formula is evaluated
at growing precision until its ball is accurate enough, and the doubles returned lie
around that ball. The searches keep this: ``last_true`` ends at points where the condition was
seen, ``supremum`` between a value attained and a bound that holds everywhere.

**Tails.** Arb's complementary error function takes longer the farther out it is asked for. A curve
is asked for at thousands of points of one range, so erfc(x / sqrt 2) is expanded about the nearest
multiple a of 1/64, once for each. With f(x) = erfc(x / sqrt 2), its derivatives are

    f^(n + 1)(x) = -sqrt(2/pi) (-1)^n He_n(x) exp(-x^2/2),

and what a series up to the power N leaves out is, for |x - a| <= 1/64, at most

    sqrt(2/pi) 1.0865 sqrt(N!) exp(-(a - 1/64)^2/4) (1/64)^(N + 1)/(N + 1)!,

by Lagrange's remainder and Cramér's inequality |He_n(x)| <= 1.0865 sqrt(n!) exp(x^2/4). Where
thousands of points are asked for at once, the same series is evaluated in extended numbers, with
a bound on all that is rounded.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from flint import arb, arb_poly, ctx, fmpq
from numpy.typing import NDArray

BITS = 128
"""Of precision, where a formula is evaluated first."""

_MOST_BITS = 4096
_ACCURATE_BITS = 60
_TINY = arb(2) ** -1100  # below it a value need not be accurate
_INVERSE = 2.0**-42  # relative width at which a search for epsilon stops
_FARTHEST = 2.0**20  # no finite epsilon beyond this is looked for
_MOST_GUESSES = 40  # per search, after which halving goes on
_GAP = 2.0**-20  # relative, between the bounds on a supremum
MOST_PIECES = 4000
"""Of a supremum; the bounds are then as wide as they are, and still bounds."""


class Bounds(NamedTuple):
    """A proven enclosure lower <= value <= upper, rounded outwards."""

    lower: float
    upper: float


def ball(value: Fraction) -> arb:
    """The tightest ball around an exact fraction."""
    return arb(fmpq(value.numerator, value.denominator))


def double_below(amount: Decimal | Fraction) -> float:
    """The largest double that is not above an exact number."""
    nearest = float(amount)  # infinite for a decimal beyond the doubles
    exact = Decimal(nearest) if isinstance(amount, Decimal) else Fraction(nearest)
    return nearest if exact <= amount else math.nextafter(nearest, -math.inf)


def double_above(amount: Decimal | Fraction) -> float:
    """The smallest double that is not below an exact number."""
    return -double_below(-amount if isinstance(amount, Fraction) else amount.copy_negate())


def outwards(value: arb, most: float = math.inf) -> Bounds:
    """Doubles around a ball, within 0..most; underflow keeps an upper bound above 0."""
    low, top = float(value.lower()), value.upper()
    high = float(top)
    if low > 0 and high < most:
        return Bounds(math.nextafter(low, -math.inf), math.nextafter(high, math.inf))
    below = math.nextafter(low, -math.inf)
    above = math.nextafter(high, math.inf) if high or top != 0 else 0.0
    return Bounds(min(max(below, 0.0), most), min(max(above, 0.0), most))


def exactly(value: Fraction | int) -> Bounds:
    """Doubles around an exact number, the number itself where it is a double."""
    exact = Fraction(value)
    near = float(exact) if exact < 10**300 else math.inf
    if math.isfinite(near) and Fraction(near) == exact:
        return Bounds(near, near)
    with ctx.workprec(BITS):
        return outwards(ball(exact))


def enclosed(value: Callable[[], arb], most: float = math.inf) -> Bounds:
    """Doubles around a value, at the first precision that is accurate enough."""
    bits = BITS
    while True:
        with ctx.workprec(bits):
            found = value()
            sharp = found.rel_accuracy_bits() >= _ACCURATE_BITS or found.abs_upper() < _TINY
            if (sharp and found.is_finite()) or bits >= _MOST_BITS:
                return outwards(found, most)
        bits *= 2


def last_true(above: Callable[[float], bool], most: float) -> tuple[float, float]:
    """Where a condition becomes false: the last point seen true and the first seen false.

    At ``most`` it is taken as false without a look.
    """
    if not above(0.0):
        return 0.0, 0.0
    low, high = 0.0, min(1.0, most)
    while high < most and above(high):
        if high > _FARTHEST:
            return high, math.inf
        low, high = high, min(2 * high, most)
    return bisected(above, low, high, _INVERSE)


def bisected(
    condition: Callable[[float], bool], low: float, high: float, width: float
) -> tuple[float, float]:
    """Where a condition becomes false, between a point where it is true and one where it is not.

    Args:
        condition: True at ``low``, false at ``high``.
        low: At least 0.
        high: Above ``low``.
        width: Relative distance of the two points at which the search stops.
    """
    if isinstance(condition, Above):
        condition.narrow(low, high, width)
    while high - low > width * high and high > 1e-300:
        middle = (low + high) / 2
        if condition(middle):
            low = middle
        else:
            high = middle
    return low, high


class Above:
    """Whether one bound on a falling curve is above a level, in as few looks as may be.

    What is seen at one point holds for all points on its side: where a lower bound is above the
    level the curve is so at all smaller points too, and where an upper bound is not, the curve is
    not at any larger one. So the ends of a search stay proven, and halving ends where it would
    with a look at every point, but for what the bounds themselves are in error.
    """

    def __init__(self, curve: Callable[[float], Bounds], level: float, side: int) -> None:
        self.curve, self.level, self.side = curve, level, side
        self.sharing: tuple[Above, ...] = (self,)
        self.values: dict[float, float] = {}
        self.last, self.first = -math.inf, math.inf  # seen above the level, and not to be

    @classmethod
    def both(cls, curve: Callable[[float], Bounds], level: float) -> tuple[Above, Above]:
        """The conditions on the lower and on the upper bound, which share what they see.

        Args:
            curve: Falls with its argument, or stays.
            level: Above 0.
        """
        pair = cls(curve, level, 0), cls(curve, level, 1)
        for each in pair:
            each.sharing = pair
        return pair

    def __call__(self, point: float) -> bool:
        if point <= self.last:
            return True
        if point >= self.first:
            return False
        return self._look(point) > self.level

    def narrow(self, low: float, high: float, width: float) -> None:
        """Look where the curve seems to pass the level, till little is left between two looks.

        False position on the curve's logarithm, with Dekker's least step and the end that stays
        weighed less and less (Illinois).
        """
        weights, moved = [1.0, 1.0], -1
        self._look(high)
        for _ in range(_MOST_GUESSES):
            last = self.last if low <= self.last <= high else None
            first = self.first if low <= self.first <= high else None
            a, b = (low if last is None else last), (high if first is None else first)
            if b - a <= width * b / 4 or b <= 1e-300:
                return
            guess = (a + b) / 2
            if last is not None and first is not None:
                over, under = weights[0] * self._height(a), weights[1] * self._height(b)
                if over > under:
                    guess = (b * over - a * under) / (over - under)
                least = min(width * b / 16, (b - a) / 4)
                guess = min(max(guess, a + least), b - least)
            if not a < guess < b:
                return
            end = 0 if self._look(guess) > self.level else 1
            weights[end] = 1.0
            weights[1 - end] = weights[1 - end] / 2 if end == moved else 1.0
            moved = end

    def _look(self, point: float) -> float:
        if point not in self.values:
            bounds = self.curve(point)
            for each in self.sharing:
                each._note(point, bounds[each.side])
        return self.values[point]

    def _note(self, point: float, bound: float) -> None:
        self.values[point] = bound
        if bound > self.level:
            self.last = max(self.last, point)
        else:
            self.first = min(self.first, point)

    def _height(self, point: float) -> float:
        """Of the curve over the level, as a logarithm, cut off where it has all but ended."""
        return math.log(max(self._look(point), self.level / 2**10)) - math.log(self.level)


def supremum(
    cgf: Callable[[arb], arb], mean: arb, largest: arb, *, most_pieces: int = MOST_PIECES
) -> arb:
    """Ball around the supremum over t >= 0 of K(t) / (t (1 + t)), K = cgf, K'(0) = mean.

    K is convex with K(0) = 0 and K(t) <= largest t. On a piece it lies below its chord
    c t - d, d >= 0, and the chord over t (1 + t) has one maximum; from 0 the bound is
    K(b)/b. Best-first branch and bound on these, into ``most_pieces`` pieces at most; the ball is
    then as wide as it is.
    """
    unit = float((1 / largest).mid())

    def ceiling(a: float, b: float, at_a: arb, at_b: arb) -> arb:
        if b == math.inf:
            return largest / (1 + arb(a))
        plain = at_b / b / (1 + arb(a))
        if a == 0:
            return plain
        slope = (at_b - at_a) / (arb(b) - a)
        dip = (slope * a - at_a).max(arb(0))
        peak = (dip + (dip * dip + slope * dip).sqrt()) / slope
        best = (at_a / (a * (1 + arb(a)))).max(at_b / (b * (1 + arb(b))))
        if not (peak < a or peak > b):
            best = best.max((slope * peak - dip) / (peak * (1 + peak)))
        return best.min(plain) if best.is_finite() else plain

    def piece(a: float, b: float, at_a: arb, at_b: arb) -> tuple[float, float, float, arb, arb]:
        return -outwards(ceiling(a, b, at_a, at_b)).upper, a, b, at_a, at_b

    best = mean.lower()
    pieces = [piece(0.0, math.inf, arb(0), arb(0))]
    while -pieces[0][0] > float(best) * (1 + _GAP) and len(pieces) < most_pieces:
        _, a, b, at_a, at_b = heapq.heappop(pieces)
        if b == math.inf:
            cut = 16 * a or unit
        else:
            cut = math.sqrt(a * b) if b > 2 * a and a else (a + b) / 2 if a else b / 16
        at_cut = cgf(arb(cut))
        best = best.max((at_cut / (cut * (1 + arb(cut)))).lower())
        heapq.heappush(pieces, piece(a, cut, at_a, at_cut))
        heapq.heappush(pieces, piece(cut, b, at_cut, at_b))
    return best.union(best.max(arb(-pieces[0][0])))


CRAMER = "1.0865"
"""The constant of Cramér's inequality, above its true value."""

_POWER = 22
_PER_UNIT = 64  # points about which it is expanded
_STEP = arb(1) / _PER_UNIT
_FARTHEST_POINT = 12  # where the remainder is still far below the value
_BITS = 128  # of precision up to which a series is accurate enough


def twice_above(x: arb) -> arb:
    """erfc(x / sqrt 2): twice the mass of a standard normal law above x."""
    near = float(x)
    if ctx.prec <= _BITS and abs(near) <= _FARTHEST_POINT:
        centre, series, left_out = _expanded(round(_PER_UNIT * abs(near)))
        moved = (x if near >= 0 else -x) - centre
        if abs(moved) < _STEP:
            found: arb = series(moved) + left_out
            return found if near >= 0 else 2 - found
    return (x / arb(2).sqrt()).erfc()


@functools.cache
def _expanded(place: int, terms: int = _POWER) -> tuple[arb, arb_poly, arb]:
    """A point, the series about it, and a ball around 0 for what that leaves out."""
    with ctx.workprec(2 * _BITS):
        a = arb(place) / _PER_UNIT
        slope = (2 / arb.pi()).sqrt()
        unit = -slope * (-(a**2) / 2).exp()
        before, hermite, factorial = arb(0), arb(1), arb(1)  # He_(n-1)(a), He_n(a), (n + 1)!
        found = [(a / arb(2).sqrt()).erfc()]
        for n in range(terms):
            found.append(unit * (-1) ** n * hermite / factorial)
            before, hermite = hermite, a * hermite - n * before
            factorial *= n + 2
        # now factorial is (N + 1)!
        near = max(place - 1, 0)
        most = slope * arb(CRAMER) * (factorial / (terms + 1)).sqrt() / factorial
        most *= (-((arb(near) / _PER_UNIT) ** 2) / 4).exp() * arb(_PER_UNIT) ** -(terms + 1)
        return a, arb_poly(found), (-most).union(most)


Floats = NDArray[np.float64]
Wide = NDArray[np.longdouble]

WIDE_UNIT = np.finfo(np.longdouble).eps / 2
"""Relative error of one rounding of an extended number; on some machines that of a double."""

_TERMS = 14  # of a series, within half a step of its point
_SCANT = np.finfo(np.longdouble).tiny


def wide(value: arb) -> np.longdouble:
    """A ball's middle, rounded to an extended number at a precision that has more bits."""
    near = float(value.mid())
    return np.longdouble(near) + np.longdouble(float((value - near).mid()))


def twice_above_each(x: Wide) -> tuple[Wide, Wide]:
    """erfc(x / sqrt 2) at many points, and bounds on the errors of these values.

    By the same series, cut off sooner, as the points are within half a step. Beyond the farthest
    of them the value is taken as 0, and exp(-x^2 / 2) bounds the error.

    Args:
        x: longdouble[...].

    Returns:
        Both longdouble[...].
    """
    series, left_out = _wide_series()
    size = np.abs(x)
    far = size > _FARTHEST_POINT
    place = np.rint(np.minimum(size, _FARTHEST_POINT) * _PER_UNIT).astype(np.intp)
    moved = np.minimum(size, _FARTHEST_POINT) - place / np.longdouble(_PER_UNIT)  # exactly
    value = series[_TERMS - 1, place]
    for coefficients in series[-2::-1]:
        value = value * moved + coefficients[place]
    error = np.where(far, np.exp(-(size**2) / 2) * (1 + 1e-9) + _SCANT, left_out[place])
    value = np.where(far, 0, value)
    behind = x < 0
    return np.where(behind, 2 - value, value), np.where(behind, error + 4 * WIDE_UNIT, error)


@functools.cache
def _wide_series() -> tuple[Wide, Wide]:
    """Coefficients longdouble[n, points], and what each point's errors come to at most.

    Those are the terms left out, at half a step, and Horner's rounding of the others: of 2 n
    operations and of the coefficients themselves.
    """
    series: list[list[np.longdouble]] = []
    errors = []
    with ctx.workprec(2 * _BITS):
        for place in range(_FARTHEST_POINT * _PER_UNIT + 1):
            _, polynomial, left_out = _expanded(place)
            coefficients = polynomial.coeffs()
            sizes = [abs(c) * (_STEP / 2) ** n for n, c in enumerate(coefficients)]
            rounding = 3 * _TERMS * float(WIDE_UNIT) * sum(sizes[:_TERMS], arb(0))
            error = sum(sizes[_TERMS:], rounding + left_out.abs_upper())
            series.append([wide(c) for c in coefficients[:_TERMS]])
            errors.append(wide(error.upper()) * (1 + 1e-9))
    return np.array(series).T.copy(), np.array(errors)
