"""Regularised empirical risk: support vector machine, logistic and ridge regression.

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

**Accuracy.** The solver proves |w - w*| <= tau, tau near r / 256
(mechanisms.functions.risk_solver), so what is released moves by at most r + 2 tau.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from mechanisms.bernstein.learner import LatticeSensitivity, check_binary, check_records
from mechanisms.bernstein.polynomials import MOST_DIMENSIONS, lattice
from mechanisms.bernstein.unit_cube import Axis, WeightedPoints
from mechanisms.domain.columns import Column
from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.errors import ConfigError
from mechanisms.functions.kernel_norms import Floats, bumps, line_norms, operator_error
from mechanisms.functions.kernels import lattice_sum
from mechanisms.functions.risk_solver import RiskLoss, Rows, minimiser

MOST_ROWS = 6000
"""Of cells and labels, or of records if they are fewer."""

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
        if not 1 <= len(self.axes) <= MOST_DIMENSIONS:
            raise ConfigError(f"A function has from 1 to {MOST_DIMENSIONS} variables.")
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
        """Of floating point in f = sum of b K, as sum |b| <= 2 C M: (rows + 100) units."""
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
            around = [self._kernel(each, points) for each in middles]
            one = math.prod(float(each.sum(axis=1).max()) for each in around)
            two = math.prod(float((each**2).sum(axis=1).max()) for each in around)
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

    def _kernel(self, one: Floats, two: Floats) -> Floats:
        """One variable's factor of the Gaussian kernel: float64[len(one), len(two)]."""
        assert self.width is not None
        return bumps(one, two, self.width)

    def values(self, table: ContingencyTable, degree: int) -> Floats:
        """F on the lattice, float64[(k + 1,) * d]."""
        found = WeightedPoints.of(table, [*(axis.name for axis in self.axes), self.label.name])
        middles = [np.asarray(axis.middles) for axis in self.axes]
        places = [m[found.codes[:, index]] for index, m in enumerate(middles)]
        coefficients = self._coefficients(found, places)
        centre, points = self._centre[0], lattice(degree)
        if self.width is not None:
            factors = [self._kernel(m, points) for m in middles]
            return centre + lattice_sum(factors, found.codes[:, :-1], coefficients)
        grids = np.meshgrid(*[points for _ in self.axes], indexing="ij")
        linear: Floats = np.full(grids[0].shape, centre + float(coefficients.sum()))
        for place, grid in zip(places, grids, strict=True):
            linear += float(coefficients @ place) * grid
        return linear

    def _coefficients(self, found: WeightedPoints, places: list[Floats]) -> Floats:
        """Coefficients b of w = sum of b phi(row); private."""
        if self.loss == "squared":
            axis = Axis.of(self.label)
            scaled = np.asarray(axis.middles)[found.codes[:, -1]]
            labels: Floats = axis.lower + axis.width * scaled - self._centre[0]
        else:
            labels = np.where(found.codes[:, -1] == 1, 1.0, -1.0)
        if self.width is not None:
            grams = [self._kernel(place, place) for place in places]
            gram = np.multiply.reduce(grams)
        else:
            features = np.stack([np.ones(len(labels)), *places], axis=1)
            gram = features @ features.T
        weights = found.counts.astype(np.float64) * (self.cost / self.n_records)
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
