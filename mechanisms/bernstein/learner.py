"""What the Bernstein mechanism needs of a function, and functions that users bring.

Source: Aldà and Rubinstein (2017, arXiv 1507.04499), Algorithm 1: oracle access to values and a
sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mechanisms.bernstein.accuracy import bump_error
from mechanisms.bernstein.polynomials import MOST_DIMENSIONS, lattice
from mechanisms.bernstein.unit_cube import Axis
from mechanisms.domain.columns import Column
from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.errors import ConfigError, RecordsError

Floats = NDArray[np.float64]
Evaluation = Callable[[ContingencyTable, Floats], Floats]


class LatticeSensitivity(NamedTuple):
    """How far F can move on the lattice when one record is replaced; upper bounds.

    Attributes:
        point: S(F), the largest change at one point.
        l1: Largest sum of the changes over the lattice.
        l2: Largest root of the sum of their squares.
    """

    point: float
    l1: float
    l2: float

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


def check_records(n_records: int) -> None:
    """Refuse a number of records that is not positive.

    Raises:
        RecordsError: It is not.
    """
    if n_records < 1:
        raise RecordsError("n_records must be positive.", where="n_records")


def check_binary(label: Column) -> None:
    """Refuse a column of labels that does not declare two values.

    Raises:
        ConfigError: It does not.
    """
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
        if not 1 <= len(self.axes) <= MOST_DIMENSIONS:
            raise ConfigError(f"A function has from 1 to {MOST_DIMENSIONS} variables.")
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
