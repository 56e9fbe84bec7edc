"""The declared, public, finite domain: mixed-radix cell codes and back.

A cell is one combination of codes, one per column. Its int64 code is the number
with those digits, the first column the most significant. Nothing here has as
many elements as the domain has cells, so 2**63 - 1 cells cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.columns import Codes, Column
from mechanisms.errors import ConfigError, DomainTooLargeError, DuplicateColumnError

MAX_CELLS = 2**63 - 1


@dataclass(frozen=True)
class Domain:
    """A product of columns.

    Args:
        columns: At least one column, names distinct.

    Raises:
        DuplicateColumnError: A name occurs twice.
        DomainTooLargeError: More than 2**63 - 1 cells.
    """

    columns: tuple[Column, ...]
    strides: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        if not self.columns:
            raise ConfigError("A domain needs at least one column.")
        for name in self.names:
            if self.names.count(name) > 1:
                raise DuplicateColumnError(f"Column '{name}' is declared twice.")
        if self.n_cells > MAX_CELLS:
            sizes = ", ".join(f"{column.name} {column.size:,}" for column in self.columns)
            raise DomainTooLargeError(
                f"The domain has {Decimal(self.n_cells):.3e} cells, more than 2**63 - 1 ({sizes})."
            )
        strides, stride = [], 1
        for column in reversed(self.columns):
            strides.append(stride)
            stride *= column.size
        object.__setattr__(self, "strides", tuple(reversed(strides)))

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(column.name for column in self.columns)

    @property
    def n_cells(self) -> int:
        """Number of cells |Σ|, a Python integer."""
        return math.prod(column.size for column in self.columns)

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise ConfigError(f"The domain has no column '{name}'.")

    def project(self, names: Iterable[str]) -> Domain:
        """The domain of some of the columns, in the order given."""
        return Domain(tuple(self[name] for name in names))

    def encode(self, codes: Mapping[str, Codes]) -> Codes:
        """Cell codes from column codes.

        Args:
            codes: Column name to int64[k].

        Returns:
            int64[k] in 0..n_cells-1.
        """
        parts = (
            np.asarray(codes[column.name], dtype=np.int64) * stride
            for column, stride in zip(self.columns, self.strides, strict=True)
        )
        return np.asarray(sum(parts), dtype=np.int64)

    def codes(self, cells: Codes, name: str) -> Codes:
        """Codes of one column: int64[k] from cell codes int64[k]."""
        index = self.names.index(name)
        return (cells // self.strides[index]) % self.columns[index].size

    def decode(self, cells: Codes) -> dict[str, NDArray[Any]]:
        """Public values of every column: name to array[k], see ``Column.decode``."""
        return {c.name: c.decode(self.codes(cells, c.name)) for c in self.columns}

    def cell_of(self, record: Mapping[str, Any]) -> int:
        """Cell code of one record of Python values; the definition of the count."""
        return sum(
            column.code_of(record.get(column.name)) * stride
            for column, stride in zip(self.columns, self.strides, strict=True)
        )
