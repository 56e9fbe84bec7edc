"""Regularised empirical risk: support vector machine, logistic and ridge regression.

Minimisers, to a proven distance
--------------------------------

    J(w) = sum over rows of weight * L(label, f(row)) + |w|^2 / 2,  f = <w, phi>

with hinge, logistic or squared loss. J is strongly convex with modulus 1, which proves how
near a candidate w is to the minimiser w*. With w = sum of b phi(row):

* smooth losses: |w - w*| <= |gradient| = |sum of g phi|, g = b + weight L', and that is at
  most kappa sum |g|, kappa^2 = sup K(x, x); Newton's method brings it down to rounding;
* hinge loss: |w - w*|^2 <= 2 (J(w) - D(b)) for any b = label * a, 0 <= a <= weight, where the
  duality gap is a sum of non-negative terms, (weight - a) (1 - label f) where that margin is
  below 1 and a (label f - 1) elsewhere; an interior point method finds a.

The search uses a factor K ~ A A^T of low rank, found by Cholesky's method with pivots; the
proof uses K itself.

The function that is released
-----------------------------
Source: Aldà and Rubinstein (2017, arXiv 1507.04499), section 6 and appendix G; Bousquet and
Elisseeff (2002). F(y) = <w*, phi(y)>, where w* minimises

    J(w) = (C/n) sum over records of L(label, <w, phi(x)>) + |w|^2 / 2

with public C and n. The kernel is Gaussian, or linear with an intercept, K(x, y) = <x, y> + 1,
for which F is linear, so that k = 1 and h = 1 are exact.

**Sensitivity.** Let w and w' minimise J and J', which differ in one replaced record, z or z', and
let slopes of the loss be at most M on both. At a minimum w = -(C/n) sum of s_i phi_i, s_i a slope
of record i's loss. So v = w - w' is g less (C/n) times the sum over the other records of (s_i -
s_i') phi_i, g = (C/n)(s_z' phi_z' - s_z phi_z). L is convex and its slopes rise, so that (s_i -
s_i') <v, phi_i> >= 0, and hence

    |v|^2 <= <v, g>, that is |v - g/2| <= |g|/2,  |g| <= r = 2 M C kappa / n, kappa^2 = sup K(x, x).

So |v| <= r and S(F) <= 2 M C kappa^2 / n. (The paper has half of this, the bound for a record that
is taken out. Ours is attained by the hinge loss and C <= n, with labels in balance at one place or
with one record. A record without a value is in neither table.) On the lattice the change is the
vector of <v, phi(p)>. That of g/2 has at most MC/n times the largest norm of K(x, p) over the
lattice, x the middle of a cell. That of the rest has an L2 norm of at most r/2 times the root of
the largest eigenvalue of K between the lattice points, and an L1 norm, as K >= 0, of at most r/2
times the root of the sum of all its entries.

**Slopes.** Also |w|^2 = -(C/n) sum of s_i f_i, at most C times the largest -L'(f) f: 1 for the
hinge loss, 0.2785 for the logistic loss (of m/(1 + e^m)), B^2/4 for the squared loss (f - l)^2 / 2
with |l| <= B. It is also at most (C M kappa)^2. With R the root, |f| <= kappa R at a minimum, so M
is 1 for the hinge loss, 1/(1 + exp(-kappa R)) for the logistic loss and B + kappa R for the squared
one. And |v| <= 2 R. (Labels are taken from the middle of their range, which is added to F again.)

**Accuracy.** The solver proves |w - w*| <= tau, tau near r / 256, so what is released moves by at
most r + 2 tau.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from statpress.mechanisms.domain.columns import Column
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.errors import ConfigError, InternalError
from statpress.mechanisms.functions.kernels import lattice_sum
from statpress.mechanisms.functions.learner import (
    Axis,
    LatticeSensitivity,
    WeightedPoints,
    check_axes,
    check_binary,
    check_records,
)
from statpress.mechanisms.functions.polynomials import Floats, iterated_basis, lattice

RiskLoss = Literal["hinge", "logistic", "squared"]

_MOST_STEPS = 200
_RANK_TOLERANCE = 1e-15  # of the trace of what the factor leaves out
_PLACES = {1: 401, 2: 65, 3: 25, 4: 13}


@dataclass(frozen=True, eq=False)
class Rows:
    """The points of a risk; private."""

    gram: Floats  # float64[m, m], K between the rows
    labels: Floats  # float64[m]; 1 or -1 for the hinge and the logistic loss
    weights: Floats  # float64[m], above 0


def minimiser(rows: Rows, loss: RiskLoss, tolerance: float) -> Floats:
    """Coefficients float64[m], the b of w = sum of b phi(row).

    The loss is max(0, 1 - l f), log(1 + exp(-l f)) or (f - l)^2 / 2; the tolerance is on the
    duality gap for the hinge loss, and on sum |g| for the others.

    Raises:
        InternalError: The tolerance is not met, which is below what rounding allows.
    """
    if not len(rows.weights):
        return np.empty(0)
    factor = _factor(rows.gram)
    try:
        if loss == "hinge":
            coefficients = _interior(rows, factor, tolerance)
        else:
            coefficients = _newton(rows, factor, loss, tolerance)
    except np.linalg.LinAlgError:
        coefficients = None
    if coefficients is None:
        raise InternalError("A learner did not reach the accuracy that its guarantee needs.")
    return coefficients


def duality_gap(rows: Rows, dual: Floats) -> float:
    """J(w) - D(a) for the hinge loss at 0 <= a <= weight: float64[m]."""
    slack = 1 - rows.labels * (rows.gram @ (rows.labels * dual))
    return float(np.where(slack > 0, (rows.weights - dual) * slack, -dual * slack).sum())


def slopes(rows: Rows, loss: RiskLoss, values: Floats) -> tuple[Floats, Floats]:
    """Weight L' and weight L'' of a smooth loss at f: two float64[m]."""
    if loss == "squared":
        return rows.weights * (values - rows.labels), rows.weights
    share = 1 / (1 + np.exp(np.clip(rows.labels * values, -700, 700)))
    return -rows.weights * rows.labels * share, rows.weights * share * (1 - share)


def _factor(gram: Floats) -> Floats:
    """A of A A^T ~ gram: float64[m, rank]."""
    from scipy.linalg.lapack import dpstrf

    size = len(gram)
    tolerance = _RANK_TOLERANCE * float(np.trace(gram))
    lower, pivots, rank, _ = dpstrf(gram, lower=1, tol=tolerance)
    factor = np.zeros((size, rank))
    factor[pivots - 1] = np.tril(lower)[:, :rank]
    return factor


def _newton(rows: Rows, factor: Floats, loss: RiskLoss, tolerance: float) -> Floats | None:
    """Newton's method, whose step is halved while it does not lower the risk."""
    from scipy.linalg import cho_factor, cho_solve

    def risk(b: Floats) -> float:
        f = rows.gram @ b
        if loss == "squared":
            losses = (f - rows.labels) ** 2 / 2
        else:
            losses = np.logaddexp(0, -rows.labels * f)
        return float(rows.weights @ losses + b @ f / 2)

    b = np.zeros(len(rows.weights))
    for _ in range(_MOST_STEPS):
        slope, curve = slopes(rows, loss, rows.gram @ b)
        gradient = b + slope
        if np.abs(gradient).sum() <= tolerance:
            return b
        inner = np.eye(factor.shape[1]) + factor.T @ (curve[:, None] * factor)
        solved = cho_solve(cho_factor(inner), factor.T @ gradient)
        step = gradient - curve * (factor @ solved)
        share, before = 1.0, risk(b)
        while share > 2**-30 and risk(b - share * step) > before + 1e-15 * abs(before):
            share /= 2
        b = b - share * step
    return None


def _interior(rows: Rows, factor: Floats, tolerance: float) -> Floats | None:
    """A primal-dual interior point method for the dual of the hinge loss."""
    from scipy.linalg import cho_factor, cho_solve

    top, signed = rows.weights, rows.labels[:, None] * factor
    a = top / 2
    low, high = np.ones_like(a), np.ones_like(a)  # multipliers of a >= 0 and of a <= top
    for _ in range(_MOST_STEPS):
        if duality_gap(rows, a) <= tolerance:
            return rows.labels * a
        room = top - a
        centre = 0.1 * float(low @ a + high @ room) / (2 * len(a))
        diagonal = low / a + high / room
        right = 1 - signed @ (signed.T @ a) + centre / a - centre / room
        scaled = signed / diagonal[:, None]
        inner = np.eye(signed.shape[1]) + signed.T @ scaled
        step = right / diagonal
        step = step - scaled @ cho_solve(cho_factor(inner), signed.T @ step)
        low_step = centre / a - low - low / a * step
        high_step = centre / room - high + high / room * step
        share = 1.0
        for now, move in ((a, step), (room, -step), (low, low_step), (high, high_step)):
            falls = move < 0
            if falls.any():
                share = min(share, 0.995 * float((now[falls] / -move[falls]).min()))
        a = np.clip(a + share * step, 0, top)
        a = np.clip(a, top * 1e-300, top * (1 - 2**-52))
        low, high = low + share * low_step, high + share * high_step
    return None


MOST_ROWS = 6000
"""Most rows: of cells and labels, or of records if they are fewer."""

_UNIT, _UP = 2.0**-52, 1 + 1e-9


@dataclass(frozen=True, kw_only=True)
class EmpiricalRisk:
    """The learner with public parameters.

    Attributes:
        axes: The variables.
        label: For the hinge and the logistic loss a column of two values, the second of
            them positive; for the squared loss a column of numbers.
        loss: Of one record.
        n_records: n, public.
        cost: C, against the regulariser.
        width: sigma of the kernel exp(-|x - y|^2 / (2 sigma^2)), as a share of the ranges;
            None for the linear kernel.

    Raises:
        ConfigError: A parameter is out of range, the label does not suit the loss, or there
            are too many cells.
    """

    axes: tuple[Axis, ...]
    label: Column
    loss: RiskLoss
    n_records: int
    cost: float = 1.0
    width: float | None = None

    def __post_init__(self) -> None:
        check_records(self.n_records)
        check_axes(self.axes)
        if not 0 < self.cost < math.inf:
            raise ConfigError("The cost C must be above 0.", where="cost")
        if self.width is not None and not 0 < self.width < math.inf:
            raise ConfigError("A bandwidth must be above 0.", where="width")
        if self.loss != "squared":
            check_binary(self.label)
        else:
            Axis.of(self.label)
        if self._rows > MOST_ROWS:
            raise ConfigError(
                f"The learner would have {self._rows:,} points, more than {MOST_ROWS:,}.",
                next_step="Declare fewer cells.",
            )
        if self.tolerance * self._kappa > self._slope:
            raise ConfigError("No accuracy can be proven for so large a cost.", where="cost")

    @property
    def _rows(self) -> int:
        cells = math.prod(len(axis.middles) for axis in self.axes)
        return min(self.n_records, cells * self.label.n_values)

    @functools.cached_property
    def _centre(self) -> tuple[float, float]:
        """Middle of the labels, and B or 1: the most that they are from it."""
        if self.loss != "squared":
            return 0.0, 1.0
        axis = Axis.of(self.label)
        return (axis.lower + axis.upper) / 2, axis.width / 2 * _UP

    @property
    def _kappa(self) -> float:
        """Largest sqrt K(x, x) on the cube."""
        return 1.0 if self.width is not None else math.sqrt(len(self.axes) + 1) * _UP

    @property
    def _first_radius(self) -> float:
        """R before M is known: from the largest -L'(f) f."""
        most = {"hinge": 1.0, "logistic": 0.2785, "squared": self._centre[1] ** 2 / 4}[self.loss]
        return math.sqrt(self.cost * most) * _UP

    @property
    def _slope(self) -> float:
        """M."""
        most = self._kappa * min(self._first_radius, self.cost * self._kappa)
        return {
            "hinge": 1.0,
            "logistic": _UP / (1 + math.exp(-most)),
            "squared": (self._centre[1] + self._kappa * self._first_radius) * _UP,
        }[self.loss]

    @property
    def _radius(self) -> float:
        """R: |w*| is at most this."""
        return min(self._first_radius, self.cost * self._slope * self._kappa) * _UP

    @property
    def _value_rounding(self) -> float:
        """Rounding of f = sum of b K, as sum |b| <= 2 C M: (rows + 100) units."""
        return (self._rows + 100) * _UNIT * 2 * self.cost * self._slope * self._kappa**2

    @property
    def _distance(self) -> float:
        """Largest |w - w'|, over neighbours."""
        return 2 * min(self._slope * self.cost * self._kappa / self.n_records, self._radius) * _UP

    @property
    def tolerance(self) -> float:
        """tau: the solver's w is at most this far from w*."""
        if self.loss == "hinge":  # the gap is in error by C times that of f, and by units of C,
            # as a coefficient is at least a unit of its weight away from it
            floor = 2 * math.sqrt(self.cost * (self._value_rounding + 4 * _UNIT))
        else:  # and the gradient by kappa C L'' times, L'' <= 1, and some units of itself
            floor = 16 * self._kappa * self.cost * (self._value_rounding + self._slope * _UNIT)
        return max(self._distance / 256, floor)

    @property
    def magnitude(self) -> float:
        centre, _ = self._centre
        return (abs(centre) + self._kappa * (self._radius + self.tolerance)) * _UP

    @property
    def rounding(self) -> float:
        return self._value_rounding + abs(self._centre[0]) * 4 * _UNIT

    def sensitivity(self, degree: int) -> LatticeSensitivity:
        share = self._slope * self.cost / self.n_records * _UP  # |g| is at most 2 kappa times this
        length, spare = self._distance, 2 * self.tolerance
        of_any, of_one = np.sqrt(self._lattice_norms(degree)), self._kernel_norms(degree)
        around_half = share * (np.array(of_one) + self._kappa * of_any)
        l1, l2 = (np.minimum(length * of_any, around_half) + spare * of_any).tolist()
        point = (length + spare) * self._kappa
        return LatticeSensitivity(point * _UP, l1 * _UP, l2 * _UP)

    def _kernel_norms(self, degree: int) -> tuple[float, float]:
        """Largest L1 and L2 norm of K(x, p) over the lattice points p, x the middle of a cell."""
        if self.width is not None:
            points, middles = lattice(degree), [np.asarray(axis.middles) for axis in self.axes]
            around = [bumps(m, points, self.width) for m in middles]
            one = math.prod(float(values.sum(axis=1).max()) for values in around)
            two = math.prod(float((values**2).sum(axis=1).max()) for values in around)
            return one * _UP, math.sqrt(two) * _UP
        moments = self._linear_moments(degree)  # the corner of ones has the largest
        return float(moments[0].sum()) * _UP, math.sqrt(float(moments.sum())) * _UP

    def _lattice_norms(self, degree: int) -> tuple[float, float]:
        """Sum of K between the lattice points, and the largest eigenvalue."""
        if self.width is not None:
            total, largest = line_norms(self.width, degree)
            return total ** len(self.axes), largest ** len(self.axes)
        moments = self._linear_moments(degree)
        return float(moments[0] @ moments[0]), float(np.linalg.eigvalsh(moments)[-1])

    def _linear_moments(self, degree: int) -> Floats:
        """Sums over the lattice of products of 1 and the variables, float64[d + 1, d + 1]."""
        points, d = lattice(degree), len(self.axes)
        side, count = degree + 1, float((degree + 1) ** d)
        sums, squares = count / side * points.sum(), count / side * (points**2).sum()
        cross = count / side**2 * points.sum() ** 2
        moments = np.full((d + 1, d + 1), cross)
        moments[np.diag_indices(d + 1)] = squares
        moments[0, :] = moments[:, 0] = sums
        moments[0, 0] = count
        return moments

    def values(self, table: ContingencyTable, degree: int) -> Floats:
        """F on the lattice, float64[(k + 1,) * d]."""
        points_of_table = WeightedPoints.of(
            table, [*(axis.name for axis in self.axes), self.label.name]
        )
        middles = [np.asarray(axis.middles) for axis in self.axes]
        places = [m[points_of_table.codes[:, index]] for index, m in enumerate(middles)]
        coefficients = self._coefficients(points_of_table, places)
        centre, points = self._centre[0], lattice(degree)
        if self.width is not None:
            factors = [bumps(m, points, self.width) for m in middles]
            return centre + lattice_sum(factors, points_of_table.codes[:, :-1], coefficients)
        grids = np.meshgrid(*[points for _ in self.axes], indexing="ij")
        linear: Floats = np.full(grids[0].shape, centre + float(coefficients.sum()))
        for place, grid in zip(places, grids, strict=True):
            linear += float(coefficients @ place) * grid
        return linear

    def _coefficients(self, points: WeightedPoints, places: list[Floats]) -> Floats:
        """Coefficients b of w = sum of b phi(row); private."""
        if self.loss == "squared":
            axis = Axis.of(self.label)
            scaled = np.asarray(axis.middles)[points.codes[:, -1]]
            labels: Floats = axis.lower + axis.width * scaled - self._centre[0]
        else:
            labels = np.where(points.codes[:, -1] == 1, 1.0, -1.0)
        if self.width is not None:
            grams = [bumps(place, place, self.width) for place in places]
            gram = np.multiply.reduce(grams)
        else:
            features = np.stack([np.ones(len(labels)), *places], axis=1)
            gram = features @ features.T
        weights = points.counts.astype(np.float64) * (self.cost / self.n_records)
        rows = Rows(np.asarray(gram, np.float64), labels, weights)
        if self.loss == "hinge":
            return minimiser(rows, self.loss, self.tolerance**2 / 4)
        return minimiser(rows, self.loss, self.tolerance / (4 * self._kappa))

    def bias(self, degree: int, order: int, *, worst: bool = False) -> float:
        """Error of the operator on (R/2)(K(y, 1/4) - K(y, 3/4)): two classes apart.

        R bounds |w*|. ``worst`` is a bound for all data: |<w, phi(y) - sum of b_v phi(v/k)>| <=
        R times the norm on the right, whose square is 1 - 2 prod a_i + prod c_i with
        a = b^T K(v/k, y) and c = b^T K b in each variable. 0 for the linear kernel.
        """
        if self.width is None:
            return 0.0
        share = operator_error(self.width, len(self.axes), degree, order, worst)
        return self._radius * share


@functools.lru_cache(maxsize=1024)
def line_norms(width: float, degree: int) -> tuple[float, float]:
    """Sum of one variable's kernel between lattice points, and the largest eigenvalue."""
    gram = bumps(lattice(degree), lattice(degree), width)
    return float(gram.sum()), float(np.linalg.eigvalsh(gram)[-1])


def _power(factor: Floats, times: int) -> Floats:
    """A product of one factor for each variable: float64[m] to float64[(m,) * times]."""
    product = factor
    for _ in range(times - 1):
        product = np.multiply.outer(product, factor)
    return product


@functools.lru_cache(maxsize=4096)
def operator_error(width: float, d: int, degree: int, order: int, worst: bool) -> float:
    """The ``bias`` of a Gaussian kernel for R = 1."""
    points, places = lattice(degree), np.linspace(0, 1, _PLACES[d])
    basis, around = iterated_basis(degree, order, places), bumps(points, places, width)
    if worst:
        crosses = _power((basis * around).sum(axis=0), d)
        squares = _power((basis * (bumps(points, points, width) @ basis)).sum(axis=0), d)
        return math.sqrt(max(float((1 - 2 * crosses + squares).max()), 0.0))
    error = np.zeros((len(places),) * d)
    for sign, centre in ((1, np.array([0.25])), (-1, np.array([0.75]))):
        error += sign * _power(bumps(centre, places, width)[0], d)
        error -= sign * _power(bumps(centre, points, width)[0] @ basis, d)
    return float(np.abs(error).max()) / 2


def bumps(one: Floats, two: Floats, width: float) -> Floats:
    """Values of the kernel around some points at others: float64[m, k]."""
    t = (one[:, None] - two) / width
    return np.asarray(np.exp(-t * t / 2))
