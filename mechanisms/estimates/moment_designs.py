"""Which moments are released together, their sensitivity, and functions of them.

Functions of the means of two columns and of their squares and product are quotients of polynomials,
so that a confidence set can be made of them without dividing (mechanisms.estimates.fieller). All
take arrays as well: float64[5, ..] of means.

Errors of functions of noisy moments
------------------------------------
For a function f of the means of five monomials with gradient g the error is g'(s + e) to first
order, with the sampling error s and the noise e, which has the covariance matrix Q. For the
confidence set of a quotient N/D the function is N - t D for every t, so that what is known of its
error has to be a quadratic in t: a form in the derivatives of N and of D.

**Products of noise.** The gradient is taken at noisy means: with the matrix K of second derivatives
it is off by K e. That is nothing to first order, but where noise is large it is all: at a noisy
mean near 0 the square of that mean seems to have no error. Let x = g'Qg as estimated and y = tr(K Q
K Q). The second-order term e'K e/2 has the variance y/2, and x is y too large on average and
follows the noise. So the noise is counted as (sqrt x + sqrt y)^2: as if the gradient, in units of
the noise, were longer by what it is off by in the root of the mean square. For a square the
coverage is then an integral in two normal variables, and at least .901, .951 and .990 at the levels
.9, .95 and .99 for every mean in [-1/2, 1/2] and every noise, with the weights of our designs; with
x by itself it falls to .77, .81 and .85 (tests/unit/test_pair_moments.py).

For every r > 0, (1 + r) x + (1 + 1/r) y is at least (sqrt x + sqrt y)^2, with equality at r^2 =
y/x, and it is a form as x and y are. So r is taken at the estimate of t, and holds for all t. Where
sampling decides, sqrt y is small against the sampling error and nothing changes.

Designs
-------
For a record (x, y) in [0, 1]^2 let u = x - 1/2, v = y - 1/2. A *design* lists functions of u and v,
each a weighted sum of products of a polynomial in u and one in v. Released are their sums over all
n records, with independent Gaussian noise of one scale; every monomial that follows from them
linearly is estimated from that. Replace-one neighbours.

**Sensitivity.** The release is mu-GDP with mu the largest distance of the functions of two possible
records over the noise. The square of that distance is proven by branch and bound
(tests/unit/test_pair_moments.py). Records are put into rectangles. A polynomial in one variable
is enclosed on an interval in balls, from its ends where its derivative keeps its sign there; so is
a product of two on a rectangle, in exact integers. For rectangles A and B

    sum over k of max(sup_A f_k - inf_B f_k, sup_B f_k - inf_A f_k)^2

is at least the squared distance of any record in A from any in B. Pairs of rectangles of which this
is above what is claimed are cut into 16, until none is left. The claim is the bound that was proven
in this way, which is 2^-12 above what is attained at

| design | squared distance | attained between |
|---|---|---|
| ``pair`` | 13/4 | (0, 0) and (1, 0) |
| ``one`` | 1 | 0 and 1 |
| ``ratio`` | 2 | (0, 0) and (1, 1) |
| ``group``, x in {0, 1} | 2 | (x, 0) and (x, 1) |
| ``some``, (0, 0) or x = 1 | 1 | (1, 0) and (1, 1) |

**Weights.** Higher moments only enter the estimated variances, so they are taken as functions that
vanish at the corners of the square, where the first ones move furthest, and so cost nothing or
little. The weights were searched for the least mean logarithm of the standard error (sampling,
noise and the noise of the estimated variance), over n and mu from (1000, .3) to (50 000, .7), for
records that are uniform, skewed, normal, near an edge and bimodal, and rounded. For ``some`` the
values are taken from the middle of their range for records that count only, so that leaving a
record out moves little.

**First weights.** Releases before these designs used the 14 monomials of degree 1 to 4, or 4 of
one column, with the squared sensitivities 139/32 and 5/4. They are added up from separate largest
moves: (u, 3 u^2, 5 u^4) moves by at most 1, any other monomial by its range. What was released so
is read and charged so (``FIRST_PAIR``, ``FIRST_ONE``); their largest squared distances are 3 and
5/4.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.estimates.fieller import Floats, Quotient

Means = Floats
"""float64[5] or [5, r]: means of x, y, x^2, x y, y^2 of records in [0, 1]^2."""

MomentPolynomial = Callable[[Means], Floats]


@dataclass(frozen=True)
class Derived:
    """A quotient of polynomials of the five means.

    Attributes:
        numerator: What is divided.
        denominators: None; one, by which it is divided; or two, by whose geometric mean it is,
            which is then never below it in absolute value.
        bounds: Between which it lies.
    """

    numerator: MomentPolynomial
    denominators: tuple[MomentPolynomial, ...] = ()
    bounds: tuple[float, float] = (-math.inf, math.inf)

    def value(self, means: Means) -> float:
        """The quotient; NaN or infinite where a denominator is not positive."""
        with np.errstate(all="ignore"):
            below = [denominator(means) for denominator in self.denominators]
            if len(below) == 2:
                below = [np.where(np.minimum(*below) > 0, np.sqrt(below[0] * below[1]), np.nan)]
            divisor = below[0] if below else np.ones(())
            return float(np.divide(self.numerator(means), divisor))


def _first_variance(m: Means) -> Floats:
    return np.asarray(m[2] - m[0] ** 2)


def _second_variance(m: Means) -> Floats:
    return np.asarray(m[4] - m[1] ** 2)


def _covariance(m: Means) -> Floats:
    return np.asarray(m[3] - m[0] * m[1])


CORRELATION = Derived(_covariance, (_first_variance, _second_variance), (-1.0, 1.0))
"""Correlation of x and y."""

SLOPE = Derived(_covariance, (_first_variance,))
"""Slope of the regression of y on x, in units of the declared ranges."""

RATIO = Derived(lambda m: m[1], (lambda m: m[0],), (0.0, math.inf))
"""Sum of y over sum of x, both columns with a declared lower bound of 0."""

GROUP_DIFFERENCE = Derived(_covariance, (lambda m: m[0] * (1 - m[0]),), (-1.0, 1.0))
"""Mean of y in the group x = 1 less that in the rest, x = 0: a slope, x being 0 or 1."""

COVARIANCE = Derived(_covariance, (), (-0.25, 0.25))
"""Covariance of x and y (with n)."""

VARIANCE = Derived(_first_variance, (), (0.0, 0.25))
"""Variance of x (with n)."""


class Slopes(NamedTuple):
    """Derivatives of a function of the five means."""

    first: Floats  # float64[5, ..]
    second: Floats  # float64[5, 5, ..]

    def times(self, factor: float) -> Slopes:
        """The derivatives of so many times the function."""
        return Slopes(factor * self.first, factor * self.second)

    def plus(self, other: Slopes) -> Slopes:
        """The derivatives of the sum of two functions."""
        return Slopes(self.first + other.first, self.second + other.second)


class Errors(NamedTuple):
    """A symmetric form that is linear in the derivatives of each of two functions."""

    spread: Floats  # g'Sh/n, of sampling; float64[..]
    terms: Floats  # its noise in independent standard normal terms; float64[m, ..]
    own: Floats  # g'Qh, of the noise; float64[..]
    bend: Floats  # tr(K Q L Q) of the matrices K and L of second derivatives; float64[..]

    def times(self, factor: Floats) -> Errors:
        """The form with one of the functions so many times as large."""
        return Errors(*(factor * form for form in self))

    def plus(self, other: Errors) -> Errors:
        """The form of a sum of functions."""
        return Errors(*(one + two for one, two in zip(self, other, strict=True)))

    @property
    def doubt(self) -> Floats:
        """Standard deviation of the noise in the spread."""
        return np.asarray(np.sqrt(np.sum(self.terms**2, axis=0)))

    @property
    def of_noise(self) -> Floats:
        """Variance that the noise counts for, products included; of a function with itself."""
        root = np.sqrt(self.own) + np.sqrt(np.maximum(self.bend, 0.0))
        return np.asarray(root**2)

    def noise_form(self, ratio: Floats) -> Floats:
        """The form that is ``of_noise`` where ``bend`` is ``ratio`` times ``own``, or else more."""
        r = np.sqrt(ratio)
        inverse = np.divide(1.0, r, out=np.zeros_like(r), where=r > 0)
        return np.asarray(self.own * (1 + r) + self.bend * (1 + inverse))


def quotient_of(
    top: Floats, below: Floats, first: Errors, both: Errors, last: Errors
) -> tuple[Quotient, NDArray[np.bool_]]:
    """A quotient, and whether at least half of the variance of its denominator is noise.

    The errors are those of its numerator, of numerator and denominator, and of the denominator. The
    noise of the spread at t is taken as a factor times first.doubt + t^2 last.doubt.
    """
    t = top / np.where(below == 0, np.inf, below)
    at_t = first.plus(both.times(-2 * t)).plus(last.times(t**2))
    more = at_t.doubt / (first.doubt + t**2 * last.doubt)
    bend = np.maximum(at_t.bend, 0.0)
    ratio = np.divide(bend, at_t.own, out=np.zeros_like(bend), where=at_t.own > 0)
    spread, last_spread = np.maximum(first.spread, 0.0), np.maximum(last.spread, 0.0)
    most, last_noise = np.sqrt(spread * last_spread), last.noise_form(ratio)
    quotient = Quotient(
        top,
        below,
        spread + first.noise_form(ratio) + more * first.doubt,
        np.clip(both.spread, -most, most) + both.noise_form(ratio),
        last_spread + last_noise + more * last.doubt,
    )
    return quotient, np.asarray((last_noise > 0) & (2 * last_noise >= quotient.below_variance))


Polynomial = tuple[Fraction, ...]
"""Coefficients, that of the constant first."""

POWERS = tuple((i, degree - i) for degree in range(1, 5) for i in range(degree, -1, -1))
"""Exponents of u and v in the monomials of degree 1 to 4."""

_HALF, _PROVEN = Fraction(1, 2), Fraction(1, 2**12)
_FIFTHS = tuple(Fraction(k, 5) for k in range(6))
_NEGLIGIBLE = 1e-9


class Rectangle(NamedTuple):
    """Where records can be: intervals of u and of v, which may be points."""

    u: tuple[Fraction, Fraction]
    v: tuple[Fraction, Fraction]


_WHOLE = (-_HALF, _HALF)
_SUPPORTS: dict[str, tuple[Rectangle, ...]] = {
    "square": (Rectangle(_WHOLE, _WHOLE),),
    "line": (Rectangle(_WHOLE, (Fraction(0), Fraction(0))),),
    "groups": tuple(Rectangle((u, u), _WHOLE) for u in _WHOLE),
    "some": (Rectangle((-_HALF, -_HALF), (-_HALF, -_HALF)), Rectangle((_HALF, _HALF), _WHOLE)),
}


class Product(NamedTuple):
    """A weight times a polynomial in u times one in v."""

    weight: Fraction
    in_u: Polynomial
    in_v: Polynomial


@dataclass(frozen=True)
class MomentDesign:
    """What is released of records, and how far a replaced record moves it.

    Attributes:
        name: Recorded in descriptions; the first designs have none there.
        records: The records that there can be: any in the square or on a line, those with x in
            {0, 1} ("groups"), or with x = 1 and otherwise both 0 ("some").
        functions: Of a record; each a sum of products.
        squared_sensitivity: At least the largest squared distance of two records' functions.
    """

    name: str
    records: Literal["square", "line", "groups", "some"]
    functions: tuple[tuple[Product, ...], ...]
    squared_sensitivity: Fraction

    @property
    def columns(self) -> int:
        """How many columns it takes."""
        return 1 if self.records == "line" else 2

    @property
    def support(self) -> tuple[Rectangle, ...]:
        """Where records can be."""
        return _SUPPORTS[self.records]

    def values(self, columns: Floats) -> Floats:
        """The functions float64[k, m] of records float64[k, 2], or [k, 1] of a single column.

        Records are brought to where they can be: within [0, 1], x to 0 or 1 and, if some records
        do not count, y to 0 for those.
        """
        x = np.clip(columns[:, 0], 0.0, 1.0)
        y = np.clip(columns[:, -1], 0.0, 1.0) if self.columns == 2 else np.full(len(x), 0.5)
        if self.records in ("groups", "some"):
            x = np.rint(x)
        if self.records == "some":
            y = y * x
        return self._at(x - 0.5, y - 0.5)

    @functools.cached_property
    def monomials(self) -> tuple[Floats, Floats]:
        """The means of the monomials (``POWERS``) from those of the functions.

        They are multiplied by float64[14, m], and float64[14] is added; both are 0 for a monomial
        that does not follow from the functions of the records that there can be.
        """
        places = [
            (float(low + (high - low) * i), float(left + (right - left) * j))
            for (low, high), (left, right) in self.support
            for i, j in itertools.product(_FIFTHS, repeat=2)
        ]
        u, v = np.array(places).T
        known = np.column_stack([self._at(u, v), np.ones(len(u))])
        wanted = np.column_stack([u**i * v**j for i, j in POWERS])
        weights = np.linalg.lstsq(known, wanted, rcond=None)[0]
        follows = np.abs(known @ weights - wanted).max(axis=0) < _NEGLIGIBLE
        weights = np.where(follows & (np.abs(weights) > _NEGLIGIBLE), weights, 0.0)
        return weights[:-1].T, weights[-1]

    def _at(self, u: Floats, v: Floats) -> Floats:
        """float64[k, m] at float64[k]."""
        return np.column_stack(
            [
                sum(
                    (float(w) * _polynomial(a, u) * _polynomial(b, v) for w, a, b in products),
                    np.zeros(len(u)),
                )
                for products in self.functions
            ]
        )


def _polynomial(coefficients: Polynomial, at: Floats) -> Floats:
    value = np.zeros_like(at)
    for coefficient in reversed(coefficients):
        value = value * at + float(coefficient)
    return value


def _of(*coefficients: Fraction | int) -> Polynomial:
    return tuple(Fraction(c) for c in coefficients)


_QUARTER = Fraction(1, 4)
_ONE, _LINE, _SQUARE = _of(1), _of(0, 1), _of(0, 0, 1)
_BUBBLE = _of(-_QUARTER, 0, 1)  # these three are 0 at both ends
_CUBE = _of(0, -_QUARTER, 0, 1)
_FOURTH = _of(0, 0, -_QUARTER, 0, 1)
_SADDLE = _of(Fraction(-1, 8), 0, 1)


def _product(weight: Fraction | int, in_u: Polynomial, in_v: Polynomial) -> tuple[Product]:
    return (Product(Fraction(weight), in_u, in_v),)


def _both(weight: Fraction | int, one: Polynomial, two: Polynomial) -> Sequence[tuple[Product]]:
    """A function and the one with the columns exchanged."""
    return _product(weight, one, two), _product(weight, two, one)


def _monomials(weights: dict[tuple[int, int], int]) -> tuple[tuple[Product], ...]:
    powers = [_of(*[0] * k, 1) for k in range(5)]
    return tuple(_product(w, powers[i], powers[j]) for (i, j), w in weights.items())


PAIR = MomentDesign(
    "pair",
    "square",
    (
        *_both(1, _LINE, _ONE),
        *_both(Fraction(15, 4), _SQUARE, _ONE),
        _product(3, _LINE, _LINE),
        *_both(4, _CUBE, _ONE),
        *_both(4, _BUBBLE, _LINE),
        *_both(12, _FOURTH, _ONE),
        *_both(16, _CUBE, _LINE),
        _product(12, _SADDLE, _SADDLE),
    ),
    Fraction(13, 4) + _PROVEN,
)
"""Covariance, correlation and regression."""

ONE = MomentDesign(
    "one",
    "line",
    (
        _product(1, _LINE, _ONE),
        _product(Fraction(13, 4), _SQUARE, _ONE),
        _product(Fraction(7, 2), _CUBE, _ONE),
        _product(14, _FOURTH, _ONE),
    ),
    1 + _PROVEN,
)
"""The variance of one column."""

RATIO_DESIGN = MomentDesign(
    "ratio",
    "square",
    (
        *_both(1, _LINE, _ONE),
        *_both(Fraction(11, 4), _SQUARE, _ONE),
        _product(2, _LINE, _LINE),
    ),
    2 + _PROVEN,
)
"""The ratio of two sums, for which means up to degree 2 are enough."""

GROUP = MomentDesign(
    "group",
    "groups",
    (
        _product(Fraction(19, 20), _LINE, _ONE),
        _product(1, _ONE, _LINE),
        _product(2, _LINE, _LINE),
        _product(Fraction(5, 2), _ONE, _SQUARE),
        _product(5, _LINE, _of(Fraction(-1, 5), 0, 1)),
    ),
    2 + _PROVEN,
)
"""The means of two groups."""

SOME = MomentDesign(
    "some",
    "some",
    (
        _product(Fraction(4, 5), _LINE, _ONE),
        (Product(Fraction(1), _ONE, _LINE), Product(-_HALF, _LINE, _ONE)),
        (
            Product(Fraction(13, 4), _ONE, _SQUARE),
            Product(Fraction(13, 4) * (_QUARTER - Fraction(1, 6)), _LINE, _ONE),
        ),
    ),
    1 + _PROVEN,
)
"""The mean of the records that count."""

FIRST_PAIR = MomentDesign(
    "",
    "square",
    _monomials(
        {
            (1, 0): 1, (0, 1): 1, (2, 0): 3, (1, 1): 2, (0, 2): 3,
            (3, 0): 2, (2, 1): 2, (1, 2): 2, (0, 3): 2,
            (4, 0): 5, (3, 1): 3, (2, 2): 4, (1, 3): 3, (0, 4): 5,
        }
    ),
    Fraction(139, 32),
)  # fmt: skip
"""What releases before there were designs released: all 14 monomials."""

FIRST_ONE = MomentDesign(
    "", "line", _monomials({(1, 0): 1, (2, 0): 3, (3, 0): 2, (4, 0): 5}), Fraction(5, 4)
)
"""What releases before there were designs released of one column: its powers."""

DESIGNS: dict[str, MomentDesign] = {
    each.name: each for each in (PAIR, ONE, RATIO_DESIGN, GROUP, SOME)
}
