"""Confidence sets for functions of moments from noisy moments up to degree 4.

A quotient N/D of two polynomials in the means of x, y, x^2, xy, y^2 has the set of
mechanisms.inference.fieller: {t : |N - t D| <= z sd(N - t D)}. N - t D is a polynomial, and its
error is that of the linear function with its gradient g - t h: variance (g - t h)'(S/n + Q)(g - t
h), with the covariance matrices Q of the noise and S of the five monomials, which the moments up to
degree 4 give. Nothing is divided by, so this approximation does not depend on how
far D is from 0. The entries of S have noise themselves; one standard deviation of it is added, in
proportion as at the estimate, so that the variance is seldom too small. The square of a noisy mean
is too large by the variance of its noise, which is taken off.

What noise does to products, such as the square of a noisy mean, is counted by
mechanisms.inference.moments.moment_errors. Denominators are positive, and sets that are intervals
only since noise made D large are widened (``Quotient.cautious_sets``).

**Correlation.** The set for C/sqrt(V W), C a covariance and V and W variances, is made of sets for
quotients too. For every s > 0, sqrt(V W) <= (s V + W/s)/2, with equality at s^2 = W/V. For that s
the correlation is 2C/(s V + W/s), a quotient of polynomials, and a small error in s does not change
it to first order. Fieller's set for W/V gives an interval for s, at a tenth of what the level
leaves to 1; the set is all that lies between the ends of the sets for the s in it, at the rest.

No law of the records is assumed, and n is taken as large: where a few records with rare values
decide, coverage falls short by what mechanisms.inference.moments.rare_values computes.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.inference.fieller import Quotient, Sets
from mechanisms.inference.moments.moment_designs import POWERS
from mechanisms.inference.moments.moment_errors import Errors, Slopes, quotient_of
from mechanisms.inference.moments.moment_functions import Derived, Means, Polynomial

_Doubles = NDArray[np.float64]
FIRST = ((1, 0), (0, 1), (2, 0), (1, 1), (0, 2))
"""Exponents of u and v in the monomials of which functions are taken."""

_AMONG_ALL = tuple(POWERS.index(power) for power in FIRST)
_STEP, _STRIDE = 1e-4, 1e-2  # of first and of second differences
_FAR = 1e6  # the ratio of two standard deviations, at most
_RATIOS = 33  # at which a correlation is looked at
_FOR_RATIO = 0.1  # of what the level leaves to 1


@dataclass(frozen=True, eq=False)
class MomentSets:
    """Noisy moments and the sets that follow from them.

    Attributes:
        means: float64[14, ..] of the monomials (``POWERS``); 0 for those that are not known.
        noise: float64[14, m], of each its noise in independent standard normal terms.
        n_records: Number of records n.
    """

    means: _Doubles
    noise: _Doubles
    n_records: int

    def estimate(self, wanted: Derived) -> float:
        """The function of the noisy means, not clipped; NaN where it has no value."""
        return wanted.value(self._at)

    def sets(self, wanted: Derived, level: float) -> Sets:
        """The confidence sets for the function of the population's means."""
        if len(wanted.denominators) < 2:
            quotient, by_noise = self._quotient(wanted)
            return quotient.cautious_sets(level, wanted.bounds, by_noise)
        return self._correlation(wanted, level)

    def standard_error(self, wanted: Derived) -> float:
        """Of the estimate, sampling and noise together, by the delta method; NaN: there is none."""
        return self.error(wanted, sampling=True, cautious=True)

    def noise_sd(self, wanted: Derived) -> float:
        """Standard deviation of the noise in the estimate; NaN if there is none."""
        return self.error(wanted, sampling=False, cautious=False)

    def error(self, wanted: Derived, *, sampling: bool, cautious: bool) -> float:
        """The error of a quotient about its estimate: that of N - t D at t, divided by D.

        Args:
            wanted: The quotient.
            sampling: Whether sampling counts, or only the noise.
            cautious: Whether to add a standard deviation of the noise in the variance.
        """
        t, functions = self.estimate(wanted), [wanted.numerator, *wanted.denominators]
        with np.errstate(all="ignore"):
            values = [float(each(self._at)) for each in functions]
            slopes = [1.0]  # of the estimate, in each, times D
            if len(values) == 3:
                slopes += [-t * math.sqrt(abs(b / a)) / 2 if a else math.nan
                           for a, b in (values[1:], values[:0:-1])]  # fmt: skip
                below = math.sqrt(max(values[1] * values[2], 0.0))
            else:
                slopes += [-t] * len(values[1:])
                below = values[1] if values[1:] else 1.0
            parts = [self._slopes(each).times(c) for c, each in zip(slopes, functions, strict=True)]
            both = functools.reduce(Slopes.plus, parts)
            errors = self._errors(both, both)
            variance = float(errors.of_noise if cautious else errors.own + errors.bend / 2)
            if sampling:
                variance += float(np.maximum(errors.spread, 0.0) + cautious * errors.doubt)
            error = math.sqrt(variance) / below if below > 0 else math.nan
        return error if math.isfinite(error) else math.nan

    def _correlation(self, wanted: Derived, level: float) -> Sets:
        """The sets for a covariance over the geometric mean of two variances."""
        spare = (1 - level) * _FOR_RATIO
        functions = (wanted.numerator, *wanted.denominators)
        top, one, two = (self._unbiased(each) for each in functions)
        c, v, w = (self._slopes(each) for each in functions)
        cc, cv, cw = (self._errors(c, each) for each in (c, v, w))
        vv, vw, ww = self._errors(v, v), self._errors(v, w), self._errors(w, w)
        ratio, by_noise = quotient_of(two, one, ww, vw, vv)
        known = ratio.cautious_sets(1 - spare, (_FAR**-2, _FAR**2), by_noise)
        low = np.full(np.shape(known.lower), np.inf)
        high = -low
        for place in np.linspace(0, 1, _RATIOS):
            s = np.sqrt(known.lower ** (1 - place) * known.upper**place)
            a, b = s / 2, 1 / (2 * s)  # what both variances count in the denominator
            quotient, by_noise = quotient_of(
                top,
                a * one + b * two,
                cc,
                cv.times(a).plus(cw.times(b)),
                vv.times(a**2).plus(vw.times(2 * a * b)).plus(ww.times(b**2)),
            )
            found = quotient.cautious_sets(level + spare, wanted.bounds, by_noise)
            low, high = np.minimum(low, found.lower), np.maximum(high, found.upper)
        none = np.full(np.shape(low), np.nan)
        return Sets(low, high, none, none)

    def _quotient(self, wanted: Derived) -> tuple[Quotient, NDArray[np.bool_]]:
        """Numerator and denominator with the covariance matrix of their errors.

        The second is whether most of the denominator's error is noise.
        """
        one = self._slopes(wanted.numerator)
        top, first = self._unbiased(wanted.numerator), self._errors(one, one)
        if not wanted.denominators:
            zero = np.zeros_like(top)
            variance = np.maximum(first.spread, 0.0) + first.of_noise + first.doubt
            return Quotient(top, zero + 1, variance, zero, zero), zero > 0
        (divisor,) = wanted.denominators
        two = self._slopes(divisor)
        both, last = self._errors(one, two), self._errors(two, two)
        return quotient_of(top, self._unbiased(divisor), first, both, last)

    @functools.cached_property
    def _first(self) -> _Doubles:
        return np.asarray(self.means[list(_AMONG_ALL)])

    @functools.cached_property
    def _at(self) -> Means:
        return _plain(self._first)

    def _unbiased(self, function: Polynomial) -> _Doubles:
        """The function of the noisy means, without the bias that noise gives to squares."""
        found = np.asarray(function(self._at), np.float64)
        bias = np.zeros_like(found)
        for move in self.noise[list(_AMONG_ALL)].T:
            up, down = (function(self._moved(sign * move)) for sign in (1, -1))
            bias = bias + (up + down) / 2 - found
        return found - bias

    def _moved(self, move: _Doubles) -> Means:
        """The plain means where those of the monomials are moved, float64[5]."""
        return _plain((self._first.T + move).T)

    def _slopes(self, function: Polynomial) -> Slopes:
        """First and second derivatives in the means of the monomials of u and v.

        Differences of both sides are exact for a polynomial of degree 3, but for rounding.
        """
        steps = np.eye(len(FIRST)) * _STEP
        moved = [(function(self._moved(e)), function(self._moved(-e))) for e in steps]
        first = np.array([(up - down) / (2 * _STEP) for up, down in moved])
        steps = np.eye(len(FIRST)) * _STRIDE
        second = [
            [
                sum(
                    p * q * np.asarray(function(self._moved(p * d + q * e)), np.float64)
                    for p, q in itertools.product((1, -1), repeat=2)
                )
                / (4 * _STRIDE**2)
                for e in steps
            ]
            for d in steps
        ]
        return Slopes(first, np.array(second))

    def _errors(self, one_of: Slopes, two_of: Slopes) -> Errors:
        """What the errors of two functions with these derivatives share."""
        (g, bent), (h, other_bent), at = one_of, two_of, self._first
        one, two = (np.sum(each * at, axis=0) for each in (g, h))
        slope = np.zeros((len(POWERS), *g.shape[1:]))  # in each mean
        for (k, p), (m, q) in itertools.product(enumerate(FIRST), repeat=2):
            slope[POWERS.index((p[0] + q[0], p[1] + q[1]))] += g[k] * h[m]
        spread = np.sum(slope * self.means, axis=0) - one * two
        slope[list(_AMONG_ALL)] -= one * h + two * g
        noise = self.noise[list(_AMONG_ALL)].T
        own = np.sum(np.tensordot(noise, g, 1) * np.tensordot(noise, h, 1), axis=0)
        terms = np.tensordot(self.noise.T, slope, 1)
        turned = (np.tensordot(noise.T @ noise, each, 1) for each in (bent, other_bent))
        bend = np.einsum("ij...,ji...->...", *turned)
        return Errors(spread / self.n_records, terms / self.n_records, np.asarray(own), bend)


def _plain(first: _Doubles) -> Means:
    """Means of x, y, x^2, xy, y^2 from those of the five monomials of u and v."""
    u, v, uu, uv, vv = first
    return np.array([u + 0.5, v + 0.5, uu + u + 0.25, uv + (u + v) / 2 + 0.25, vv + v + 0.25])
