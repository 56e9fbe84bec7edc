"""Least squares from noisy moments: coefficients with confidence intervals or sets.

Wherever the moments come from, of one joint release or of several published tables, they are the
means of the products z_a z_b over the records, z = (x, y) the predictors, a constant 1 among them,
and the response last. With S their matrix and a = (-b, 1) the coefficients b of least squares solve

    g(a) = S_xz a = 0,   S_xz the rows of the predictors.

At the true b, g has mean 0 and the covariance V(a) = N(a) + s(a) S_xx / n: N(a) is the exact
covariance of the noise, a quadratic form in a, and s(a) = a'S a the mean squared residual; n is the
number of independent units that were sampled. For the coefficients of the records themselves the
second part falls away. It takes residuals to have one variance, whatever the predictors are, since
any other form needs moments of degree 4.

**Wald intervals** b_j +- z sd are given where the noise of S_xx is small: with S_xx = L L' and E
its noise, the matrix W = L^-1 E L'^-1 has E[W W] of operator norm at most ``CLEAR`` squared (by
Weyl's inequality no eigenvalue of L^-1 S_xx L'^-1 is then far from 1, and by noncommutative
Khintchine the norm of W is seldom above 2 ``CLEAR``). The criterion does not depend on the units of
the columns. The variance is that of S_xx^-1 g, by the delta method. The mean squared residual at
the *estimated* b is too small by tr(S_xx^-1 N), which is added, and it is not taken as less than
the standard deviation of its own noise.

**Anderson-Rubin sets** {t : min g(a)'V(a)^-1 g(a) <= q over all b with b_j = t} are given
elsewhere (Anderson and Rubin 1949, doi 10.1214/aoms/1177730090). They cover however weak S_xx is,
with q the quantile of chi-squared with as many degrees of freedom as there are coefficients, or
with one where the others are clear of the noise by the criterion above. The function is
homogeneous in a, and its minima are sought from several starts. Values beyond all bounds are those
with a_y = 0: if it is at most q there, a set has no bounds, and the whole line is given in its
place, which holds it. In s(a) and in its factor the matrix S is replaced by the nearest one without
negative eigenvalues. Coverage is that over all releases, not over those with an interval.

**Interface.** ``RegressionMoments(means, noise, n_sampled)`` takes S and the covariances of the
noise of all pairs of its entries; ``transformed`` moves or combines columns (a constant is a
column), such as to other units or to a difference of two coefficients; ``coefficients(level)``
gives a ``Coefficient`` for each predictor in its order.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from statpress.mechanisms.estimates.fieller import ConfidenceSet, Floats, normal_quantile

CLEAR = 0.4
"""Noise of S_xx in proportion to it, up to which intervals are Wald's."""

_LINE = (-math.inf, math.inf)
_STARTS, _STEPS, _HALVINGS = 3, 40, 12
_NEAR, _GAIN, _FAR = 2e-3, 1e-4, 1e9


@dataclass(frozen=True, eq=False)
class Coefficient:
    """A coefficient of least squares with its confidence set.

    Attributes:
        value: The estimate; NaN if there is none.
        standard_error: Sampling and noise together; None where the set is Anderson and Rubin's.
        noise: Standard deviation of the noise in it, to first order; None likewise.
        set: An interval, or the whole line.
    """

    value: float
    standard_error: float | None
    noise: float | None
    set: ConfidenceSet


@dataclass(frozen=True, eq=False)
class RegressionMoments:
    """Noisy second moments of predictors and a response.

    Attributes:
        means: float64[d, d], symmetric: the means over the records of the products of columns a
            and b. The response is the last column; a constant 1 is among the others if there is an
            intercept. In any units, without noise where known (as that of the constant squared).
        noise: float64[d, d, d, d]: the covariance of the noise of ``means[a, b]`` and
            ``means[k, l]``, unbiased and about normal; all symmetries filled in.
        n_sampled: Independent units of which the records are; None: the coefficients are those of
            the records themselves, without sampling error.
    """

    means: Floats
    noise: Floats
    n_sampled: float | None

    def transformed(self, matrix: Floats) -> RegressionMoments:
        """The moments of ``matrix @ z``, float64[e, d], whose last row is the response."""
        noise = self.noise
        for _ in range(4):  # each time the first axis moves to the end
            noise = np.tensordot(noise, matrix, axes=([0], [1]))
        return RegressionMoments(matrix @ self.means @ matrix.T, noise, self.n_sampled)

    def coefficients(self, level: float) -> tuple[Coefficient, ...]:
        """Every predictor's coefficient with its set at a confidence level in (0, 1)."""
        number = len(self.means) - 1
        if self._clear(list(range(number))):
            return self._wald(level)
        return tuple(self._anderson_rubin(j, level) for j in range(number))

    def _clear(self, kept: list[int]) -> bool:
        """Whether the moments of these predictors are positive and clear of their noise."""
        try:
            root = np.linalg.cholesky(self.means[np.ix_(kept, kept)])
        except np.linalg.LinAlgError:
            return False
        whitened = self.noise[np.ix_(kept, kept, kept, kept)]
        inverse = np.linalg.inv(root)
        for _ in range(4):
            whitened = np.tensordot(whitened, inverse, axes=([0], [1]))
        square = np.einsum("ijjl->il", whitened)
        return bool(np.max(np.linalg.eigvalsh(square), initial=0.0) <= CLEAR**2)

    @functools.cached_property
    def estimate(self) -> Floats:
        """float64[d - 1]: the coefficients; NaN where the equations have no single solution."""
        try:
            return np.asarray(np.linalg.solve(self.means[:-1, :-1], self.means[:-1, -1]))
        except np.linalg.LinAlgError:
            return np.full(len(self.means) - 1, np.nan)

    @property
    def _at(self) -> Floats:
        """The vector a = (-b, 1) at the estimate."""
        return np.append(-self.estimate, 1.0)

    def _wald(self, level: float) -> tuple[Coefficient, ...]:
        a, number = self._at, len(self.means) - 1
        inverse = np.linalg.inv(self.means[:-1, :-1])
        noise = self._noise_of(a)
        own = inverse @ noise @ inverse
        covariance = own
        if self.n_sampled is not None:
            residual = float(a @ self.means @ a + np.sum(inverse * noise))
            doubt = math.sqrt(max(float(self.noise @ a @ a @ a @ a), 0.0))
            freedom = max(self.n_sampled - number, 1.0)
            covariance = own + max(residual, doubt) * inverse / freedom
        z, known = normal_quantile(level), []
        errors, of_noise = (np.sqrt(np.maximum(np.diag(v), 0.0)) for v in (covariance, own))
        for value, error, own_error in zip(-a[:-1], errors, of_noise, strict=True):
            reach = z * error
            ends = ConfidenceSet(float(value - reach), float(value + reach), None, _LINE)
            known.append(Coefficient(float(value), float(error), float(own_error), ends))
        return tuple(known)

    def _noise_of(self, a: Floats) -> Floats:
        """N(a), the covariance of the noise of g(a)."""
        return np.asarray((self.noise[:-1, :, :-1, :] @ a).swapaxes(1, 2) @ a)

    @functools.cached_property
    def _positive(self) -> Floats:
        """The nearest matrix without negative eigenvalues, of columns of unit size."""
        size = self._size
        values, vectors = np.linalg.eigh(self.means / np.outer(size, size))
        near = (vectors * np.maximum(values, 0.0)) @ vectors.T
        return np.asarray(near * np.outer(size, size))

    @functools.cached_property
    def _size(self) -> Floats:
        """Root mean squares of the columns, or of their noise where that is larger."""
        own = np.sqrt(np.maximum(np.einsum("iiii->i", self.noise), 0.0))
        return np.asarray(np.sqrt(np.maximum(np.abs(np.diag(self.means)), own)))

    def _distance(self, a: Floats) -> tuple[float, Floats, Floats]:
        """g'V^-1 g at a, its gradient, and its second derivatives where V is taken as fixed."""
        rows, positive = self.means[:-1], self._positive
        g, spread, per_unit = rows @ a, self._noise_of(a), 0.0
        if self.n_sampled is not None:
            per_unit = 1 / self.n_sampled
            spread = spread + (a @ positive @ a) * per_unit * positive[:-1, :-1]
        try:
            solved = np.linalg.solve(spread, np.column_stack([g, rows]))
        except np.linalg.LinAlgError:
            return math.inf, np.zeros_like(a), np.eye(len(a))
        w = solved[:, 0]
        bent = w @ ((self.noise[:-1, :, :-1, :] @ a) @ w)
        bent = bent + per_unit * (w @ positive[:-1, :-1] @ w) * (positive @ a)
        return float(g @ w), 2 * (rows.T @ w - bent), 2 * rows.T @ solved[:, 1:]

    def _least(self, normal: Floats, starts: list[Floats]) -> tuple[float, Floats]:
        """The least distance over all a (in columns of unit size) that are normal to a vector.

        From each start by steps of Gauss and Newton, halved until they go down.
        """
        basis, size = np.linalg.svd(normal[None, :])[2][1:].T, self._size
        basis_of_a = basis / size[:, None]
        least, at = math.inf, normal
        for start in starts:
            b = basis.T @ start
            b = b / np.linalg.norm(b)
            value, slope, bend = self._distance(basis_of_a @ b)
            for _ in range(_STEPS):
                step = np.linalg.lstsq(basis_of_a.T @ bend @ basis_of_a, basis_of_a.T @ slope)[0]
                for _ in range(_HALVINGS):
                    moved = (b - step) / np.linalg.norm(b - step)
                    further = self._distance(basis_of_a @ moved)
                    if further[0] < value:
                        break
                    step = step / 2
                gain = value - further[0]
                if gain <= 0:
                    break
                b, (value, slope, bend) = moved, further
                if gain <= _GAIN * value:
                    break
            if value < least:
                least, at = value, basis @ b
        return least, at

    def _weak(self, normal: Floats, number: int) -> list[Floats]:
        """So many directions normal to a vector in which g is least."""
        across = np.eye(len(normal)) - np.outer(normal, normal) / (normal @ normal)
        rows = self.means[:-1] / np.outer(self._size[:-1], self._size)
        return list(np.linalg.svd(rows @ across)[2][-1 - number : -1])

    @functools.cached_property
    def _beyond(self) -> float:
        """The least distance of coefficients beyond all bounds."""
        response = np.eye(len(self.means))[-1]
        return self._least(response, self._weak(response, _STARTS))[0]

    def _anderson_rubin(self, j: int, level: float) -> Coefficient:
        """The set for one coefficient; its ends are found by bisection, and lie outside it."""
        from scipy.stats import chi2

        number, size, at = len(self.means) - 1, self._size, self._at
        value = float(-at[j])
        strong = self._clear([*range(j), *range(j + 1, number)])
        most = float(chi2.ppf(level, 1 if strong else number))
        whole = Coefficient(value, None, None, ConfidenceSet(*_LINE, None, _LINE))
        if not math.isfinite(value) or self._beyond <= most:
            return whole
        near = [at * size]

        def holds(t: float) -> bool:
            normal = np.zeros(number + 1)
            normal[[j, -1]] = 1 / size[j], t / size[-1]
            least, near[0] = self._least(normal, [near[0], at * size, *self._weak(normal, 1)])
            return least <= most

        ends = []
        for sign in (-1.0, 1.0):
            inside, reach, near[0] = 0.0, self._typical_error(j), at * size
            while holds(value + sign * reach):
                inside, reach = reach, 2 * reach
                if reach > _FAR * size[-1] / size[j]:
                    return whole
            while reach - inside > _NEAR * reach:
                middle = (inside + reach) / 2
                if holds(value + sign * middle):
                    inside = middle
                else:
                    reach = middle
            ends.append(value + sign * reach)
        return Coefficient(value, None, None, ConfidenceSet(ends[0], ends[1], None, _LINE))

    def _typical_error(self, j: int) -> float:
        """About the standard error of a coefficient, to begin a search with."""
        inverse, a = np.linalg.inv(self.means[:-1, :-1])[j], self._at
        spread = self._noise_of(a)
        if self.n_sampled is not None:
            spread = spread + (a @ self._positive @ a) / self.n_sampled * self._positive[:-1, :-1]
        least = float(self._size[-1] / self._size[j]) / _FAR
        return max(2 * math.sqrt(max(float(inverse @ spread @ inverse), 0.0)), least)
