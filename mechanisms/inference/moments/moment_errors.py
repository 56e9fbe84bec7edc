"""Errors of functions of noisy moments, as forms in the derivatives of two of them.

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
x by itself it falls to .77, .81 and .85 (tests/unit/test_moment_errors.py).

For every r > 0, (1 + r) x + (1 + 1/r) y is at least (sqrt x + sqrt y)^2, with equality at r^2 =
y/x, and it is a form as x and y are. So r is taken at the estimate of t, and holds for all t. Where
sampling decides, sqrt y is small against the sampling error and nothing changes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mechanisms.inference.fieller import Quotient

_Doubles = NDArray[np.float64]


class Slopes(NamedTuple):
    """Derivatives of a function of the five means.

    Attributes:
        first: float64[5, ..].
        second: float64[5, 5, ..].
    """

    first: _Doubles
    second: _Doubles

    def times(self, factor: float) -> Slopes:
        """Those of so many times the function."""
        return Slopes(factor * self.first, factor * self.second)

    def plus(self, other: Slopes) -> Slopes:
        """Those of a sum."""
        return Slopes(self.first + other.first, self.second + other.second)


class Errors(NamedTuple):
    """A form that is linear in the derivatives of each of two functions, the same in either order.

    Attributes:
        spread: g'Sh/n, of sampling; float64[..].
        terms: Its noise in independent standard normal terms; float64[m, ..].
        own: g'Qh, of the noise; float64[..].
        bend: tr(K Q L Q) of the matrices K and L of second derivatives; float64[..].
    """

    spread: _Doubles
    terms: _Doubles
    own: _Doubles
    bend: _Doubles

    def times(self, factor: _Doubles) -> Errors:
        """That of one function so many times as large."""
        return Errors(*(factor * each for each in self))

    def plus(self, other: Errors) -> Errors:
        """That of a sum."""
        return Errors(*(one + two for one, two in zip(self, other, strict=True)))

    @property
    def doubt(self) -> _Doubles:
        """Standard deviation of the noise in the spread."""
        return np.asarray(np.sqrt(np.sum(self.terms**2, axis=0)))

    @property
    def of_noise(self) -> _Doubles:
        """Variance that the noise counts for, products included; of a function with itself."""
        root = np.sqrt(self.own) + np.sqrt(np.maximum(self.bend, 0.0))
        return np.asarray(root**2)

    def noise_form(self, ratio: _Doubles) -> _Doubles:
        """The form that is ``of_noise`` where ``bend`` is ``ratio`` times ``own``, or else more."""
        r = np.sqrt(ratio)
        inverse = np.divide(1.0, r, out=np.zeros_like(r), where=r > 0)
        return np.asarray(self.own * (1 + r) + self.bend * (1 + inverse))


def quotient_of(
    top: _Doubles, below: _Doubles, first: Errors, both: Errors, last: Errors
) -> tuple[Quotient, NDArray[np.bool_]]:
    """A quotient with the errors of its numerator, of numerator and denominator, and of the last.

    The noise of the spread at t is taken as a factor times first.doubt + t^2 last.doubt.

    Returns:
        The quotient; and whether at least half of the variance of its denominator is noise.
    """
    t = top / np.where(below == 0, np.inf, below)
    at_t = first.plus(both.times(-2 * t)).plus(last.times(t**2))
    more = at_t.doubt / (first.doubt + t**2 * last.doubt)
    bend = np.maximum(at_t.bend, 0.0)
    ratio = np.divide(bend, at_t.own, out=np.zeros_like(bend), where=at_t.own > 0)
    spread, last_spread = np.maximum(first.spread, 0.0), np.maximum(last.spread, 0.0)
    most, last_noise = np.sqrt(spread * last_spread), last.noise_form(ratio)
    found = Quotient(
        top,
        below,
        spread + first.noise_form(ratio) + more * first.doubt,
        np.clip(both.spread, -most, most) + both.noise_form(ratio),
        last_spread + last_noise + more * last.doubt,
    )
    return found, np.asarray((last_noise > 0) & (2 * last_noise >= found.below_variance))
