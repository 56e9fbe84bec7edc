"""Confidence sets for functions of moments from noisy moments up to degree 4.

A quotient N/D of two polynomials in the means of x, y, x^2, xy, y^2 has the set of
mechanisms.inference.fieller: {t : |N - t D| <= z sd(N - t D)}. N - t D is a polynomial, and its
error is that of the linear function with its gradient g - t h: variance (g - t h)'(S/n + Q)(g - t
h), with the covariance matrices Q of the noise and S of the five monomials, which the moments up to
degree 4 give. Nothing is divided by, so this approximation does not depend on how
far D is from 0. The entries of S have noise themselves; one standard deviation of it is added, in
proportion as at the estimate, so that the variance is seldom too small. The square of a noisy mean
is too large by the variance of its noise, which is taken off.

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
from mechanisms.inference.intervals import normal_quantile
from mechanisms.inference.moments.moment_designs import POWERS
from mechanisms.inference.moments.moment_functions import Derived, Means, Polynomial

_Doubles = NDArray[np.float64]
FIRST = ((1, 0), (0, 1), (2, 0), (1, 1), (0, 2))
"""Exponents of u and v in the monomials of which functions are taken."""

_AMONG_ALL = tuple(POWERS.index(power) for power in FIRST)
_STEP = 1e-4
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
            quotient = self._quotient(wanted)
            return quotient.sets(normal_quantile(level), wanted.bounds)
        return self._correlation(wanted, level)

    def holds(self, wanted: Derived, t: float, level: float) -> NDArray[np.bool_]:
        """Whether the sets hold t; bool[..]."""
        if len(wanted.denominators) < 2:
            return self._quotient(wanted).holds(t, normal_quantile(level))
        found = self.sets(wanted, level)
        return np.asarray((found.lower <= t) & (t <= found.upper))

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
            cautious: Whether to add a standard deviation of the noise in the sampling's variance.
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
            g = sum(c * self._gradient(each) for c, each in zip(slopes, functions, strict=True))
            variance = float(self._noise_form(np.asarray(g), np.asarray(g)))
            if sampling:
                spread, noise = self._sampling(np.asarray(g), np.asarray(g))
                variance += float(spread + cautious * noise)
            error = math.sqrt(variance) / below if below > 0 else math.nan
        return error if math.isfinite(error) else math.nan

    def _correlation(self, wanted: Derived, level: float) -> Sets:
        """The sets for a covariance over the geometric mean of two variances."""
        spare = (1 - level) * _FOR_RATIO
        first, second = wanted.denominators
        ratio = self._quotient(Derived(second, (first,)))
        known = ratio.sets(normal_quantile(1 - spare), (_FAR**-2, _FAR**2))
        z = normal_quantile(level + spare)
        low = np.full(np.shape(known.lower), np.inf)
        high = -low
        for place in np.linspace(0, 1, _RATIOS):
            s = np.sqrt(known.lower ** (1 - place) * known.upper**place)

            def mean_of_both(m: Means, s: _Doubles = s) -> _Doubles:
                return np.asarray((s * first(m) + second(m) / s) / 2)

            quotient = self._quotient(Derived(wanted.numerator, (mean_of_both,)))
            found = quotient.sets(z, wanted.bounds)
            low, high = np.minimum(low, found.lower), np.maximum(high, found.upper)
        none = np.full(np.shape(low), np.nan)
        return Sets(low, high, none, none)

    def _quotient(self, wanted: Derived) -> Quotient:
        """Numerator and denominator with the covariance matrix of their errors."""
        one = self._gradient(wanted.numerator)
        top = self._unbiased(wanted.numerator)
        spread, noise = self._sampling(one, one)
        first = spread + self._noise_form(one, one)
        if not wanted.denominators:
            zero = np.zeros_like(top)
            return Quotient(top, zero + 1, first + noise, zero, zero)
        (divisor,) = wanted.denominators
        two = self._gradient(divisor)
        below = self._unbiased(divisor)
        both, _ = self._sampling(one, two)
        last, last_noise = self._sampling(two, two)
        # The noise of the form at t is taken as this times noise + t^2 last_noise.
        t = top / np.where(below == 0, np.inf, below)
        _, at_t = self._sampling(one - t * two, one - t * two)
        more = at_t / (noise + t**2 * last_noise)
        both = np.clip(both, -np.sqrt(spread * last), np.sqrt(spread * last))
        return Quotient(
            top,
            below,
            first + more * noise,
            both + self._noise_form(one, two),
            last + self._noise_form(two, two) + more * last_noise,
        )

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

    def _gradient(self, function: Polynomial) -> _Doubles:
        """float64[5, ..], in the means of the monomials of u and v."""
        steps = np.eye(len(FIRST)) * _STEP
        moved = [(function(self._moved(e)), function(self._moved(-e))) for e in steps]
        return np.array([(up - down) / (2 * _STEP) for up, down in moved])

    def _noise_form(self, g: _Doubles, h: _Doubles) -> _Doubles:
        """g'Qh, Q the covariance matrix of the noise."""
        own = self.noise[list(_AMONG_ALL)].T
        return np.asarray(np.sum(np.tensordot(own, g, 1) * np.tensordot(own, h, 1), axis=0))

    def _sampling(self, g: _Doubles, h: _Doubles) -> tuple[_Doubles, _Doubles]:
        """g'Sh/n, not negative where g is h, and the standard deviation of its noise."""
        at, same = self._first, g is h
        one, two = (np.sum(each * at, axis=0) for each in (g, h))
        slope = np.zeros((len(POWERS), *g.shape[1:]))  # in each mean
        for (k, p), (m, q) in itertools.product(enumerate(FIRST), repeat=2):
            slope[POWERS.index((p[0] + q[0], p[1] + q[1]))] += g[k] * h[m]
        spread = np.sum(slope * self.means, axis=0) - one * two
        slope[list(_AMONG_ALL)] -= one * h + two * g
        noise = np.sqrt(np.sum(np.tensordot(self.noise.T, slope, 1) ** 2, axis=0))
        if same:
            spread = np.maximum(spread, 0.0)
        return np.asarray(spread / self.n_records), np.asarray(noise / self.n_records)


def _plain(first: _Doubles) -> Means:
    """Means of x, y, x^2, xy, y^2 from those of the five monomials of u and v."""
    u, v, uu, uv, vv = first
    return np.array([u + 0.5, v + 0.5, uu + u + 0.25, uv + (u + v) / 2 + 0.25, vv + v + 0.25])
