"""Means, differences, correlations, quantiles and least squares from noisy tables of few columns.

A sum over the records of a function of the codes of a group of columns is linear in that group's
table, and so in its residuals (statpress.mechanisms.marginals.residuals): of the residual of each
part t of a group Q the function f takes f_t = C_t f / K(Q without t), where C_t sums over the
columns outside t and centres every axis of t. The residuals' noises are uncorrelated, so two sums,
f of Q and h of Q', have the noise covariance

    sum over t within Q and Q' of v_t <C_t f, C_t h> / (K(Q without t) K(Q' without t)).

**Least squares.** With z = (y, x_1, .., x_K), functions of a record's codes, and S = sum of z z',
g(b) = (S (1, -b)) without its first entry is linear in the tables and 0 at the coefficients. Its
covariance V(b) is quadratic in (1, -b). It has two parts: the noise, exactly, and sampling where a
population is asked for. If all columns together were measured, sampling adds the sum of
z_i z_j z_k z_l, which needs no assumption (White 1980, doi 10.2307/1912934); else errors of one
variance are assumed, and it adds s^2 S_xx with s^2 = (1, -b) S (1, -b)'/n. At the estimate this is
tr(S_xx^-1 V) too small, which is added back.

- *Wald* intervals where S_xx is clear of its noise N: with M = S_xx^(-1/2) N S_xx^(-1/2), whatever
  the units of the regressors, the operator norm of E M^2 is at most 1/4. It bounds the variance of
  v' M v for every unit vector v, and 1 - v' M v is what is left of the signal in that direction.
  The coverage of those intervals that pass is in tests/benchmarks/moment_coverage.py.
- Else, for K = 1, Fieller's set (statpress.mechanisms.estimates.fieller), and for more *Anderson
  and Rubin's* (1949, doi 10.1214/aoms/1177730090): the b_j for which some other coefficients have
  g' V^-1 g <= the quantile of chi squared with K degrees of freedom, or with one where the other
  regressors are clear of their noise. It needs no S_xx that is clear. Published is the smallest
  interval that holds it, which may be unbounded.

**Quantiles.** At each value t the number of records below it, less the share q of all, is such a
sum; the values where it is not significantly off 0 are the set. Within a range of values records
count as evenly spread. **Correlations** have normal intervals on Fisher's scale, by the derivatives
of six sums.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple, Protocol

import numpy as np

from statpress.mechanisms.errors import ConfigError, NotMeasuredError
from statpress.mechanisms.estimates.fieller import Quotient, normal_quantile
from statpress.mechanisms.marginals.residuals import Residuals
from statpress.mechanisms.marginals.target_tables import Floats, Group

_CLEAR = 0.5
"""Standard deviations of the noise, in parts of the signal, up to which a matrix is clear of it."""
_ANGLES = 10  # on either side, at which it is asked whether a set goes on
_HALVINGS = 10
_STEPS = 64  # of a code, between which a quantile is found by straight lines
_CLEAR_SQUARES = 4.0  # standard errors of sums of squares that a correlation asks for


@dataclass(frozen=True, eq=False)
class CellFunction:
    """A number for each cell of a group of columns.

    Attributes:
        group: Positions of the columns, ascending.
        values: float64 of the shape of their sizes.
    """

    group: Group
    values: Floats

    def __mul__(self, other: CellFunction) -> CellFunction:
        """The product, a function of the columns of both."""
        group = tuple(sorted({*self.group, *other.group}))
        return CellFunction(group, self.along(group) * other.along(group))

    def along(self, group: Group) -> Floats:
        """The values with an axis for each column of a larger group."""
        shape = iter(self.values.shape)
        return self.values.reshape([next(shape) if c in self.group else 1 for c in group])


ONE = CellFunction((), np.ones(()))
"""What every record counts once."""


class Moments(NamedTuple):
    """Estimated sums of functions over the records."""

    values: Floats  # float64[m]; unbiased
    covariance: Floats  # float64[m, m]: of their noise


def moments(residuals: Residuals, functions: Sequence[CellFunction]) -> Moments:
    """The sums of functions over the records, with the exact covariance of their noise.

    Raises:
        NotMeasuredError: No measured table holds the columns of one of them together.
    """
    values = np.zeros(len(functions))
    covariance = np.zeros((len(functions), len(functions)))
    by_part: dict[Group, list[tuple[int, Floats]]] = {}
    for i, function in enumerate(functions):
        parts = residuals.weights_by_part(function.group, function.values)
        for part, (undivided, cells) in parts.items():
            weights = undivided / cells
            values[i] += float((weights * residuals.values[part]).sum())
            if residuals.variances[part]:
                by_part.setdefault(part, []).append((i, weights.ravel()))
    for part, rows in by_part.items():
        places, weights = [i for i, _ in rows], np.stack([each for _, each in rows])
        covariance[np.ix_(places, places)] += residuals.variances[part] * (weights @ weights.T)
    return Moments(values, covariance)


def sampling(residuals: Residuals, functions: Sequence[CellFunction]) -> Floats:
    """float64[m, m]: what sampling adds to the covariance of sums that are 0 in the population.

    Raises:
        NotMeasuredError: No measured table holds all their columns together.
    """
    group = tuple(sorted({column for each in functions for column in each.group}))
    shape = [residuals.sizes[column] for column in group]
    rows = np.stack([np.broadcast_to(each.along(group), shape) for each in functions])
    return positive(residuals.products(group, rows))


def _sampling(
    residuals: Residuals, functions: Sequence[CellFunction], weights: Weighting | None
) -> tuple[Floats, str]:
    """What sampling adds to the covariance of sums, of weighted ones with what it is made by."""
    if weights is None:
        return sampling(residuals, functions), residuals.sampled_by
    return weights.sampling(functions)


def positive(matrix: Floats) -> Floats:
    """The symmetric matrix without what is below 0, where its rows have one scale."""
    scale = np.sqrt(np.abs(np.diag(matrix)))
    scale[scale == 0] = 1.0
    values, vectors = np.linalg.eigh(matrix / scale / scale[:, None])
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T * scale * scale[:, None])


class Interval(NamedTuple):
    """An estimate with its confidence set, of which an end may be infinite."""

    value: float
    standard_error: float  # by derivatives; NaN where the set is not made by it
    lower: float
    upper: float
    p_value: float = math.nan  # of the hypothesis that the value is 0; NaN if there is no test
    # How the set is made: "Wald", "Fieller", "Anderson-Rubin", "ranks", "limits" or "draws".
    by: str = "Wald"
    sampling: str = ""  # of a weighted figure of a population: by what its sampling variance is

    def at_level(self, confidence: float, level: float) -> Interval:
        """This set in place of one of the level that was asked for, with the p-value of that.

        The p-value is below 1 - confidence exactly if the set leaves out 0.
        """
        if level == confidence or math.isnan(self.p_value):
            return self
        z = NormalDist().inv_cdf(min(max(self.p_value, 1e-300), 1.0) / 2)
        z *= normal_quantile(confidence) / normal_quantile(level)
        return self._replace(p_value=2 * NormalDist().cdf(z))


KISH = "Kish's factor"
"""By what it is where weights only widen what records of equal weights would have."""


class Weighting(Protocol):
    """What weights of records make of sums over them (``marginals.weighted_sums``)."""

    def sums(self, functions: Sequence[CellFunction]) -> Moments:
        """Weighted sums of functions, with the covariance of their noise."""

    def sampling(self, functions: Sequence[CellFunction]) -> tuple[Floats, str]:
        """What sampling adds to the covariance of weighted sums, float64[m, m], and by what."""

    @property
    def kish(self) -> float:
        """The sum of squared weights over that of weights."""


def _p_value(value: float, error: float) -> float:
    return 2 * NormalDist().cdf(-abs(value) / error) if error > 0 else float(value == 0)


def wald(value: float, error: float, confidence: float) -> Interval:
    """A normal interval of an estimate with a standard error."""
    reach = normal_quantile(confidence) * error
    return Interval(value, error, value - reach, value + reach, _p_value(value, error))


def change(earlier: Interval, later: Interval, confidence: float) -> Interval:
    """The later of two independent estimates less the earlier one.

    Their limits l and u are subtracted: the lower one of the difference is
    t2 - t1 - sqrt((t2 - l2)^2 + (u1 - t1)^2), as for normal intervals, whose variances add. The
    p-value goes by the reach towards 0, where that is farther than the standard error says.

    Source: Zou and Donner 2008, "Construction of confidence limits about effect measures",
    Statistics in Medicine 27.

    Args:
        earlier: With its set.
        later: With its set.
        confidence: Of both sets, and of the difference's.
    """
    value = later.value - earlier.value
    error = math.hypot(later.standard_error, earlier.standard_error)
    lower = value - math.hypot(later.value - later.lower, earlier.upper - earlier.value)
    upper = value + math.hypot(later.upper - later.value, earlier.value - earlier.lower)
    reach = (value - lower if value > 0 else upper - value) / normal_quantile(confidence)
    by_reach = _p_value(value, reach)
    if math.isfinite(error):
        p_value = max(_p_value(value, error), by_reach)
        return Interval(value, error, lower, upper, p_value)
    return Interval(value, error, lower, upper, by_reach, "limits")


def rejected(p_values: Sequence[float], level: float) -> list[bool]:
    """Which hypotheses are rejected so that the level holds for all of them together.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure", Scandinavian
    Journal of Statistics 6.
    """
    found = [False] * len(p_values)
    for step, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[place] > level / (len(p_values) - step):
            break
        found[place] = True
    return found


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """Least squares of a function of a record's cells on others.

    Attributes:
        products: float64[K + 1, K + 1]: sums of the products of outcome and regressors, which
            come in this order.
        covariance: float64 of twice that shape: of their errors, with the fourth moments if a
            population is asked for and they are known.
        noise: The same of their noise only.
        n: Number of records if a population with errors of one variance is asked for, else 0; of
            weighted records the sum of their weights.
        factor: By which weights, or units of several records, widen the errors of one variance.
        sampled_by: How the sampling variance of weighted records is made; empty of others.
    """

    products: Floats
    covariance: Floats
    noise: Floats
    n: float = 0.0
    factor: float = 1.0
    sampled_by: str = ""

    @classmethod
    def of(
        cls,
        residuals: Residuals,
        outcome: CellFunction,
        regressors: Sequence[CellFunction],
        *,
        n_sampled: float | None = None,
        weights: Weighting | None = None,
    ) -> LeastSquares:
        """Moments of an outcome and regressors.

        Args:
            residuals: The combined tables.
            outcome: What is explained.
            regressors: By what, with the constant if there is one.
            n_sampled: The number of units, if they are a random sample of the population that is
                asked for.
            weights: Of the records, if they have any.

        Raises:
            NotMeasuredError: No measured table holds two of them together, and the weight.
        """
        z = [outcome, *regressors]
        size = len(z)
        pairs = list(itertools.combinations_with_replacement(range(size), 2))
        functions = [z[i] * z[j] for i, j in pairs]
        sums = moments(residuals, functions) if weights is None else weights.sums(functions)
        place = np.zeros((size, size), dtype=np.int64)
        for at, (i, j) in enumerate(pairs):
            place[i, j] = place[j, i] = at
        products, noise = sums.values[place], sums.covariance[place[:, :, None, None], place]
        if n_sampled is None:
            return cls(products, noise, noise)
        try:
            fourth, sampled_by = _sampling(residuals, functions, weights)
        except NotMeasuredError:
            if weights is None:
                n, by = n_sampled, residuals.sampled_by
                if by:
                    n = max(float(moments(residuals, [ONE]).values[0]), 1.0)
                return cls(products, noise, noise, n, residuals.unit_records, by)
            n = max(float(weights.sums([ONE]).values[0]), 1.0)
            return cls(products, noise, noise, n, weights.kish, KISH)
        fourth = fourth[place[:, :, None, None], place]
        return cls(products, noise + fourth, noise, sampled_by=sampled_by)

    @property
    def size(self) -> int:
        """Number of coefficients."""
        return len(self.products) - 1

    def variance(self, direction: Floats) -> Floats:
        """V float64[K, K] at (1, -b)."""
        square = (self.size, self.size)
        found = (self._by_directions @ np.outer(direction, direction).ravel()).reshape(square)
        return np.asarray(found + self._error_variance(direction) * self._sampled)

    def estimates(self) -> Floats:
        """The coefficients float64[K]."""
        return np.asarray(self._inverse @ self.products[1:, 0])

    def is_clear(self, without: int | None = None) -> bool:
        """Whether the products of the regressors, or of all but one, are clear of their noise."""
        kept = np.array([j for j in range(self.size) if j != without])
        scale, places = self._scale[kept], 1 + kept
        scales = np.outer(scale, scale)
        values, vectors = np.linalg.eigh(self.products[np.ix_(places, places)] / scales)
        if values[0] <= 1e-12 * max(values[-1], 0.0):
            return False
        root = (vectors / np.sqrt(values)) @ vectors.T
        noise = self.noise[np.ix_(places, places, places, places)]
        spread = np.einsum("abcd,bc->ad", noise, root @ root / scales) / scales
        return float(np.linalg.eigvalsh(root @ spread @ root)[-1]) <= _CLEAR**2

    def errors(self) -> Floats:
        """Covariance float64[K, K] of the coefficients, by derivatives."""
        inverse = self._inverse
        direction = np.append(1.0, -self.estimates())
        variance = self.variance(direction)
        if self.n:  # the squared errors of the estimate are too small by what it was fitted to
            noise = variance - self._error_variance(direction) * self._sampled
            squares = float(direction @ self.products @ direction + np.trace(inverse @ noise))
            error = max(squares, 0.0) / max(self.n - self.size, 1.0)
            variance = noise + error * self._sampled
        return np.asarray(inverse @ variance @ inverse)

    def intervals(self, confidence: float) -> list[Interval]:
        """Each coefficient with its set, at a confidence between 0 and 1."""
        return [each._replace(sampling=self.sampled_by) for each in self._intervals(confidence)]

    def _intervals(self, confidence: float) -> list[Interval]:
        if self.size == 1:
            return [self._quotient(confidence)]
        values = self.estimates()
        if self.is_clear():
            errors = np.sqrt(np.maximum(np.diag(self.errors()), 0.0))
            return [
                wald(value, error, confidence)
                for value, error in zip(values.tolist(), errors.tolist(), strict=True)
            ]
        return [
            Interval(
                float(values[j]),
                math.nan,
                *self.limits(j, confidence),
                self._p_value(j),
                "Anderson-Rubin",
            )
            for j in range(self.size)
        ]

    def holds(self, j: int, value: float, confidence: float) -> bool:
        """Whether Anderson and Rubin's set of a coefficient holds a value."""
        critical = self._critical(j, confidence)
        return self._minimum(j, self._angle(j, value), enough=critical)[0] <= critical

    def limits(self, j: int, confidence: float) -> tuple[float, float]:
        """The ends of the smallest interval that holds Anderson and Rubin's set.

        The statistic depends on the direction of (1, -b) only, so that it has a value at infinity:
        values of b_j are the angles phi of b_j = estimate + scale tan(phi).
        """
        critical, ends = self._critical(j, confidence), []
        for sign in (-1.0, 1.0):
            angles = sign * np.linspace(0, math.pi / 2, _ANGLES + 1)
            least, rest = np.full(len(angles), math.inf), None
            for place in (*range(len(angles)), *reversed(range(len(angles)))):  # out and back
                found, rest = self._minimum(j, float(angles[place]), rest, critical)
                least[place] = min(least[place], found)
                rest = None if place == len(angles) - 1 else rest
            if least[-1] <= critical:
                return -math.inf, math.inf
            last = int(np.flatnonzero(least <= critical)[-1])
            inside, outside = float(angles[last]), float(angles[last + 1])
            for _ in range(_HALVINGS):
                middle = (inside + outside) / 2
                found, rest = self._minimum(j, middle, rest, critical)
                inside, outside = (middle, outside) if found <= critical else (inside, middle)
            reach = self._reach(j) * math.tan(outside)  # of a right angle some 1e16 in place of inf
            beyond = outside == angles[-1]
            ends.append(sign * math.inf if beyond else float(self.estimates()[j]) + reach)
        return ends[0], ends[1]

    def statistic(self, j: int, value: float) -> float:
        """The least g' V^-1 g over the other coefficients."""
        return self._minimum(j, self._angle(j, value))[0]

    def _angle(self, j: int, value: float) -> float:
        return math.atan((value - float(self.estimates()[j])) / self._reach(j))

    def _reach(self, j: int) -> float:
        """The scale by which a coefficient is an angle: about its error."""
        return math.sqrt(max(float(self.errors()[j, j]), 0.0)) or 1.0

    def _minimum(
        self, j: int, angle: float, start: Floats | None = None, enough: float = 0.0
    ) -> tuple[float, Floats]:
        """The least statistic at an angle of coefficient j, and the other entries there.

        The entries are those of a (1, -b) whose first one is the cosine of the angle. Without a
        start more places are tried, near and far, in which the regressors vary least. No more are
        tried once the statistic is low enough.
        """
        from scipy.optimize import leastsq

        others = [i for i in range(self.size) if i != j]
        columns = [1 + i for i in others]
        cosine = math.cos(angle)
        own = cosine * float(self.estimates()[j]) + self._reach(j) * math.sin(angle)
        square, towards = self.products[1:, 1:], self.products[1:, 0]
        fitted = towards * cosine - square[:, j] * own
        size = math.sqrt(abs(float(self.products[0, 0]))) or 1.0
        scale = size / self._scale[others]

        def at(scaled: Floats) -> tuple[Floats, Floats]:
            direction = np.empty(self.size + 1)
            direction[0], direction[1 + j], direction[columns] = cosine, -own, -scaled * scale
            values, slopes = self._standardised(direction)
            return values, -slopes[:, columns] * scale

        nearest = np.linalg.lstsq(square[:, others] * scale, fitted)[0] * scale
        weak = self._weakest[others] * scale
        far = [reach * weak for reach in (1, -1, 10, -10)]
        best = (math.inf, nearest)
        for first in (nearest, *(far if start is None else [start])):
            made, *_ = leastsq(
                lambda x: at(x)[0], first / scale, Dfun=lambda x: at(x)[1],
                full_output=True, ftol=1e-7, xtol=1e-7, maxfev=100,
            )  # fmt: skip
            least = float(np.sum(at(made)[0] ** 2))
            if least < best[0]:
                best = (least, made * scale)
            if least <= enough:
                break
        return best

    def _standardised(self, direction: Floats) -> tuple[Floats, Floats]:
        """R g at (1, -b) with R' R = V^-1, and its slopes float64[K, K + 1] by all entries of that.

        A slope leaves out a rotation by which R changes, which does not move the sum of squares:
        with w = V^-1 g it is R (dg - dV w / 2), and R g times it is half of d(g' V^-1 g).
        """
        variance = self.variance(direction)
        scale = np.sqrt(np.maximum(np.diag(variance), 1e-300))
        powers, axes = np.linalg.eigh(variance / scale / scale[:, None])
        least = 1e-15 * self.size * powers[-1]  # what is less is rounding
        inverse = np.where(powers > least, np.maximum(powers, 1e-300) ** -0.5, 0.0)
        root = inverse[:, None] * axes.T / scale
        values = root @ (self.products[1:] @ direction)
        w = root.T @ values
        by = (self._by_entries @ w).reshape(self.size, self.size + 1, self.size + 1)
        moved = by @ direction + np.einsum("abc,b->ac", by, direction)
        if self.n and self._error_variance(direction) > 0:
            by_entry = 2 / self.n * (self.products @ direction)
            moved += np.outer(self._sampled @ w, by_entry)
        return values, root @ (self.products[1:] - moved / 2)

    def _error_variance(self, direction: Floats) -> float:
        return max(float(direction @ self.products @ direction) / self.n, 0.0) if self.n else 0.0

    @functools.cached_property
    def _by_directions(self) -> Floats:
        """The covariance as a matrix float64[K * K, (K + 1)^2] of products of the direction."""
        return self.covariance[1:, :, 1:].transpose(0, 2, 1, 3).reshape(self.size**2, -1).copy()

    @functools.cached_property
    def _by_entries(self) -> Floats:
        """The covariance as a matrix float64[K (K + 1)^2, K]."""
        return self.covariance[1:, :, 1:].transpose(0, 1, 3, 2).reshape(-1, self.size).copy()

    @functools.cached_property
    def _scale(self) -> Floats:
        return np.asarray(np.sqrt(np.maximum(np.abs(np.diag(self.products)[1:]), 1e-300)))

    @functools.cached_property
    def _weakest(self) -> Floats:
        """The direction float64[K] in which the regressors vary least, by their scales."""
        scale = self._scale
        values, vectors = np.linalg.eigh(self.products[1:, 1:] / scale / scale[:, None])
        return np.asarray(vectors[:, np.argmin(np.abs(values))])

    @functools.cached_property
    def _inverse(self) -> Floats:
        scale = self._scale
        scaled = np.linalg.pinv(self.products[1:, 1:] / scale / scale[:, None], hermitian=True)
        return np.asarray(scaled / scale / scale[:, None])

    @functools.cached_property
    def _sampled(self) -> Floats:
        return self.factor * positive(self.products[1:, 1:])

    def _freedom(self, j: int) -> int:
        """Degrees of freedom of the statistic of coefficient j, at most."""
        return 1 if self.is_clear(without=j) else self.size

    def _critical(self, j: int, confidence: float) -> float:
        from scipy.special import chdtri

        return float(chdtri(self._freedom(j), 1 - confidence))

    def _p_value(self, j: int) -> float:
        from scipy.special import chdtrc

        return float(chdtrc(self._freedom(j), self.statistic(j, 0.0)))

    def _quotient(self, confidence: float) -> Interval:
        """Fieller's set of a single coefficient."""
        (top, below), spread = self.products[1], self.covariance[1, :, 1, :]
        parts = Quotient(*map(np.asarray, (top, below, spread[0, 0], spread[0, 1], spread[1, 1])))
        line = (-math.inf, math.inf)
        found = parts.cautious_sets(confidence, line, np.asarray(True)).one(line)
        value = float(top / below) if below else math.nan
        variance = float(self.variance(np.array([1.0, -value]))[0, 0]) / below**2
        error = math.sqrt(max(variance, 0.0))
        return Interval(value, error, found.lower, found.upper, by="Fieller")


def quantile(
    residuals: Residuals,
    column: int,
    ends: tuple[Floats, Floats],
    share: float,
    *,
    among: CellFunction = ONE,
    sampled: bool = False,
    confidence: float = 0.95,
    weights: Weighting | None = None,
) -> Interval:
    """A quantile of a column.

    Args:
        residuals: The combined tables.
        column: Its position.
        ends: float64[k] each: the least and the largest value of every code; NaN of codes that do
            not count. Codes with values are in order.
        share: Of the records that are below it, between 0 and 1.
        among: 1 for the records that count, else 0.
        sampled: Whether the records are a sample of the population that is asked for.
        confidence: Of the interval.
        weights: Of the records, if they have any.

    Raises:
        ConfigError: The share is not between 0 and 1.
        NotMeasuredError: No measured table holds the columns together.
    """
    if not 0 < share < 1:
        raise ConfigError("The share below a quantile lies between 0 and 1.", where="share")
    z = normal_quantile(confidence)
    counted = np.flatnonzero(np.isfinite(ends[0]))
    first, last = (each[counted] for each in ends)
    present = np.isfinite(ends[0]).astype(np.float64)
    functions = []
    for j in range(len(counted) + 1):  # the records of the first j codes, less their share of all
        below = np.zeros(len(present))
        below[counted[:j]] = 1.0
        functions.append(CellFunction((column,), below - share * present) * among)
    values, spread = moments(residuals, functions) if weights is None else weights.sums(functions)
    sampled_by = ""
    if sampled:
        added, sampled_by = _sampling(residuals, functions, weights)
        spread = spread + added
    # At fractions of every code's way up: the sum, its error, and the value that is reached.
    way = np.linspace(0, 1, _STEPS + 1)
    low, high = values[:-1, None], values[1:, None]
    diagonal, beside = np.diag(spread), np.diag(spread, 1)[:, None]
    sums = low + (high - low) * way
    variances = (
        diagonal[:-1, None] * (1 - way) ** 2
        + 2 * beside * way * (1 - way)
        + diagonal[1:, None] * way**2
    )
    errors = z * np.sqrt(np.maximum(variances, 0.0)).ravel()
    sums, reached = sums.ravel(), (first[:, None] + (last - first)[:, None] * way).ravel()
    lower, upper = _first(sums + errors, reached), -_first((errors - sums)[::-1], -reached[::-1])
    value = (_first(sums, reached) - _first(-sums[::-1], -reached[::-1])) / 2
    return Interval(value, math.nan, lower, upper, by="ranks", sampling=sampled_by)


def _first(heights: Floats, values: Floats) -> float:
    """The first value where the heights are at least 0, between two by straight lines."""
    place = int(np.argmax(heights >= 0))
    if heights[place] < 0:
        return float(values[-1])
    if place == 0 or values[place] == values[place - 1]:
        return float(values[place])
    part = heights[place] / (heights[place] - heights[place - 1])
    return float(values[place] - part * (values[place] - values[place - 1]))


def correlation(
    residuals: Residuals,
    one: CellFunction,
    other: CellFunction,
    *,
    among: CellFunction = ONE,
    sampled: bool = False,
    confidence: float = 0.95,
    weights: Weighting | None = None,
) -> Interval:
    """The correlation of two functions of a record's cells; its set may be all of [-1, 1].

    Args:
        residuals: The combined tables.
        one: The first.
        other: The second.
        among: 1 for the records that count, else 0.
        sampled: Whether the records are a sample of the population that is asked for.
        confidence: Of the interval.
        weights: Of the records, if they have any.

    Raises:
        NotMeasuredError: No measured table holds the columns together.
    """
    products = (ONE, one, other, one * one, other * other, one * other)
    functions = [each * among for each in products]
    values, spread = moments(residuals, functions) if weights is None else weights.sums(functions)
    sampled_by = ""
    if sampled:
        added, sampled_by = _sampling(residuals, functions, weights)
        spread = spread + added
    n, x, y, xx, yy, xy = values.tolist()
    squares = (n * xx - x * x, n * yy - y * y)
    slopes = np.array([[xx, -2 * x, 0, n, 0, 0], [yy, 0, -2 * y, 0, n, 0], [xy, -y, -x, 0, 0, n]])
    clear = [
        s > _CLEAR_SQUARES * math.sqrt(max(float(d @ spread @ d), 0.0))
        for s, d in zip(squares, slopes, strict=False)
    ]
    product = n * xy - x * y
    r = product / math.sqrt(squares[0] * squares[1]) if min(squares) > 0 else math.nan
    if not all(clear) or abs(r) >= 1:
        return Interval(min(max(r, -1.0), 1.0), math.nan, -1.0, 1.0)
    root = math.sqrt(squares[0] * squares[1])
    slope = slopes[2] / root - r / 2 * (slopes[0] / squares[0] + slopes[1] / squares[1])
    error = math.sqrt(max(float(slope @ spread @ slope), 0.0))
    of_fisher = wald(math.atanh(r), error / (1 - r * r), confidence)
    return of_fisher._replace(
        value=r, standard_error=error, sampling=sampled_by,
        lower=math.tanh(of_fisher.lower), upper=math.tanh(of_fisher.upper),
    )  # fmt: skip
