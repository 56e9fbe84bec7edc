"""Cells as points of the unit cube: declared middles, scaled by declared bounds.

A function is released on the box that the columns declare. Each cell stands for its middle,
each column's range for [0, 1]; both are public, so that no scaling looks at the data. A record
in a ``missing`` or ``other`` cell of one of the columns is not a point, and is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.columns import Column, Integer, Numeric, Ordinal
from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.domain.domain import Domain
from mechanisms.errors import ConfigError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Axis:
    """One column as a variable.

    Attributes:
        name: Of the column.
        lower: Declared lower end, the 0 of the unit cube.
        upper: Declared upper end, the 1.
        middles: Of the cells, in [0, 1], by code.
        complete: Whether every code of the column is such a cell.
    """

    name: str
    lower: float
    upper: float
    middles: tuple[float, ...]
    complete: bool

    @classmethod
    def of(cls, column: Column) -> Axis:
        """The variable that a column declares.

        Raises:
            ConfigError: The column does not hold numbers, or has only one value.
        """
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


def axes_of(domain: Domain, names: Iterable[str]) -> tuple[Axis, ...]:
    """The variables that these columns declare."""
    return tuple(Axis.of(domain[name]) for name in names)


@dataclass(frozen=True, eq=False, repr=False)
class WeightedPoints:
    """The occupied cells of a table as points with counts; as private as the table.

    Attributes:
        codes: int64[K, d], of the middles.
        counts: int64[K], at least 1.
    """

    codes: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, table: ContingencyTable, names: Iterable[str]) -> WeightedPoints:
        """Records of a table by their codes in some columns, without those of no value."""
        marginal = table.marginal(names)
        columns = marginal.domain.columns
        codes = np.stack([marginal.domain.codes(marginal.cells, c.name) for c in columns], axis=1)
        there = np.all(codes < [column.n_values for column in columns], axis=1)
        return cls(codes[there], marginal.counts[there])
