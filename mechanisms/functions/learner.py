"""What the Bernstein mechanism needs of a function on the unit cube, and how far it errs.

Source: Aldà and Rubinstein (2017, arXiv 1507.04499), Algorithm 1 (oracle access to values and a
sensitivity), Theorems 3, 5 and 6, Propositions 4 and 8.

**Cells as points.** A function is released on the box that the columns declare. Each cell stands
for its middle, each column's range for [0, 1]; both are public, so that no scaling looks at the
data. A record in a ``missing`` or ``other`` cell of one of the columns is not a point, and is left
out.

**The largest error** over the cube, from public quantities, is at most that of the operator, which
falls with k and h, and that of the noise, which grows with k. Theorem 3 balances the two up to
constants that it does not give; here both are computed.

**The operator** is applied to a bump of the width that the function is expected to have: a
public reference, on which no guarantee depends.

**The noise** sum of Z_v b_v(y) has a largest value whose mean is that of a fixed sample of
it. A bound that holds with a given probability is simpler: |Z_v| stays below a level on the
whole lattice, and the operator enlarges this by its Lebesgue constant at most. (The paper's
Proposition 4 bounds every point by itself and then speaks of the largest, which does not
follow.)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.column import Ranges, in_words
from statpress.mechanisms.domain.columns import Column, Integer, Numeric, Ordinal
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.errors import ConfigError, RecordsError
from statpress.mechanisms.functions.polynomials import (
    MOST_DIMENSIONS,
    Floats,
    iterated_basis,
    lattice,
)


@dataclass(frozen=True)
class Axis:
    """One column as a variable."""

    name: str  # of the column
    lower: float  # declared lower end, the 0 of the unit cube
    upper: float  # declared upper end, the 1
    middles: tuple[float, ...]  # of the cells, in [0, 1], by code
    complete: bool  # whether every code of the column is such a cell

    @classmethod
    def of(cls, column: Column) -> Axis:
        """The variable that a column declares; refused if it has no numbers, or only one value."""
        if isinstance(column, Numeric):
            lower, upper = column.edges[0], column.edges[-1]
        elif isinstance(column, Integer):
            lower, upper = float(column.lower), float(column.upper)
        elif isinstance(column, Ordinal) and not isinstance(column.categories[0], (str, bool)):
            numbers = [float(category) for category in column.categories]
            lower, upper = min(numbers), max(numbers)
        else:
            raise ConfigError(
                f"Column '{column.name}' does not hold numbers, so it cannot be a variable of a "
                "function.",
                where=column.name,
                next_step="Use a numeric, an integer or an ordinal column of numbers.",
            )
        if lower == upper:
            raise ConfigError(
                "A variable of a function needs more than one value.", where=column.name
            )
        if isinstance(column, Ranges) and column.outlying:
            raise ConfigError(
                f"The special value {in_words(column.outlying[0])} lies outside the range of "
                f"'{column.name}', and so on no axis of a function.",
                where=column.name,
                next_step="Widen the range, or leave it out of 'special' and let it be null in the "
                "source.",
            )
        codes = np.arange(column.n_values)
        if isinstance(column, Ordinal):
            values = np.array(column.categories, np.float64)
        else:
            values = column.decode(codes).astype(np.float64)
        scaled = np.clip((values - lower) / (upper - lower), 0.0, 1.0)
        return cls(
            name=column.name,
            lower=lower,
            upper=upper,
            middles=tuple(float(middle) for middle in scaled),
            complete=column.size == column.n_values,
        )

    @property
    def width(self) -> float:
        """Length of the declared range."""
        return self.upper - self.lower


@dataclass(frozen=True, eq=False, repr=False)
class WeightedPoints:
    """The occupied cells of a table as points with counts; as private as the table."""

    codes: NDArray[np.int64]  # int64[K, d], of the middles
    counts: NDArray[np.int64]  # int64[K], at least 1

    @classmethod
    def of(cls, table: ContingencyTable, names: Iterable[str]) -> WeightedPoints:
        """Records of a table by their codes in some columns, without those of no value."""
        marginal = table.marginal(names)
        columns = marginal.domain.columns
        codes = np.stack([marginal.domain.codes(marginal.cells, c.name) for c in columns], axis=1)
        there = np.all(codes < [column.n_values for column in columns], axis=1)
        return cls(codes[there], marginal.counts[there])


Shape = Literal["gaussian", "epanechnikov"]
Noise = Literal["laplace", "gaussian"]

_CENTRES, _PLACES = 51, 401
_SAMPLE_VALUES, _MOST_SAMPLES = 1 << 17, 128
_SAMPLE_SEED = 20170211  # of the fixed sample; no release draws from it


@functools.lru_cache(maxsize=4096)
def bump_error(
    widths: tuple[float, ...], degree: int, order: int, shape: Shape = "gaussian"
) -> float:
    """Largest error of the iterated operator on a product of bumps of height 1.

    A bump is exp(-(y - c)^2 / (2 w^2)), or 1 - ((y - c) / w)^2 where that is above 0; looked at are
    51 centres and 401 points for each variable. With errors e_i in each variable that of the
    product is at most prod (1 + e_i) - 1.
    """
    errors = []
    for width in widths:
        centres = np.linspace(0, 1, _CENTRES)[:, None]

        def bump(y: Floats, centres: Floats = centres, width: float = width) -> Floats:
            t = (y - centres) / width
            if shape == "epanechnikov":
                return np.maximum(1 - t * t, 0.0)
            return np.asarray(np.exp(-t * t / 2))

        values = bump(np.arange(degree + 1) / degree)
        gap = bump(np.linspace(0, 1, _PLACES)) - values @ _operator(degree, order)
        errors.append(float(np.abs(gap).max()))
    return math.prod(1 + error for error in errors) - 1


@functools.lru_cache(maxsize=64)
def _operator(degree: int, order: int) -> Floats:
    return iterated_basis(degree, order, np.linspace(0, 1, _PLACES))


Evaluation = Callable[[ContingencyTable, Floats], Floats]


class LatticeSensitivity(NamedTuple):
    """How far F can move on the lattice when one record is replaced; upper bounds."""

    point: float  # S(F), the largest change at one point
    l1: float  # largest sum of the changes over the lattice
    l2: float  # largest root of the sum of their squares

    @classmethod
    def of_point(cls, point: float, points: int) -> LatticeSensitivity:
        """The paper's: every point of the lattice moves as far as one can."""
        return cls(point, point * points, point * math.sqrt(points))


class Learner(Protocol):
    """A function of a table and a point of the unit cube, whose parameters are public."""

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The variables, one to four."""

    @property
    def magnitude(self) -> float:
        """Bound on |F| for all data."""

    @property
    def rounding(self) -> float:
        """Bound on the difference between ``values`` and F, for all data."""

    def sensitivity(self, degree: int) -> LatticeSensitivity:
        """Over all pairs of tables that differ in one record; takes no data."""

    def values(self, table: ContingencyTable, degree: int) -> Floats:
        """F on the lattice {0, 1/k, .., 1}^d: float64[(k + 1,) * d]."""

    def bias(self, degree: int, order: int, *, worst: bool = False) -> float:
        """Error of the operator on a public reference, or the most that it can be."""


def check_axes(axes: tuple[Axis, ...]) -> None:
    """Refuse a number of variables that a function cannot have."""
    if not 1 <= len(axes) <= MOST_DIMENSIONS:
        raise ConfigError(f"A function has from 1 to {MOST_DIMENSIONS} variables.")


def check_records(n_records: int) -> None:
    """Refuse a number of records that is not positive."""
    if n_records < 1:
        raise RecordsError("n_records must be positive.", where="n_records")


def check_binary(label: Column) -> None:
    """Refuse a column of labels that does not declare two values."""
    if label.n_values != 2:
        raise ConfigError(
            f"The label '{label.name}' has {label.n_values} values, and a classifier two classes.",
            where=label.name,
            next_step="Declare a column of two categories.",
        )


@dataclass(frozen=True, kw_only=True)
class DeclaredFunction:
    """A function that a user brings, with a sensitivity that the user declares.

    The guarantee is as good as the declaration: it must hold for every pair of tables that
    differ in one replaced record, and every point.

    Attributes:
        axes: The variables.
        function: Values float64[m] at points float64[m, d] of the unit cube.
        sensitivity_bound: S(F), of the function as it is computed, rounding included.
        magnitude: Bound on |F|; values beyond it are clipped, which no guarantee feels.
        feature_width: Of the bumps that the function is made of, as a share of the range;
            k and h are chosen by it.

    Raises:
        ConfigError: No sensitivity, or one of the numbers is out of range.
    """

    axes: tuple[Axis, ...]
    function: Evaluation
    sensitivity_bound: float | None = None
    magnitude: float
    feature_width: float = 0.2

    def __post_init__(self) -> None:
        check_axes(self.axes)
        if self.sensitivity_bound is None:
            raise ConfigError(
                "The function has no sensitivity.",
                where="sensitivity",
                next_step="Declare the most that replacing one record can change it by.",
            )
        numbers = {
            "sensitivity": self.sensitivity_bound,
            "magnitude": self.magnitude,
            "feature_width": self.feature_width,
        }
        for name, number in numbers.items():
            if not 0 < number < math.inf:
                raise ConfigError(f"{name} must be above 0 and finite.", where=name)

    @property
    def rounding(self) -> float:
        """The declared sensitivity is that of the computed function."""
        return 0.0

    def sensitivity(self, degree: int) -> LatticeSensitivity:
        assert self.sensitivity_bound is not None
        points = (degree + 1) ** len(self.axes)
        return LatticeSensitivity.of_point(self.sensitivity_bound, points)

    def values(self, table: ContingencyTable, degree: int) -> Floats:
        grids = np.meshgrid(*[lattice(degree) for _ in self.axes], indexing="ij")
        points = np.stack([grid.ravel() for grid in grids], axis=1)
        return np.reshape(self.function(table, points), grids[0].shape)

    def bias(self, degree: int, order: int, *, worst: bool = False) -> float:
        if worst:
            return math.inf  # nothing is known of it
        widths = (self.feature_width,) * len(self.axes)
        return self.magnitude * bump_error(widths, degree, order)
