"""The declared, public, finite domain: mixed-radix cell codes and back.

A cell is one combination of codes, one per column. Its int64 code is the number
with those digits, the first column the most significant. Nothing here has as
many elements as the domain has cells, so 2**63 - 1 cells cost nothing.

Two declarations change which cells there are. ``absent`` adds one more, the last code,
for the records that a unit does not have (mechanisms/README.md, section 8); it has no columns
and is never published. ``zeros`` are patterns of impossible cells
(mechanisms.domain.structural_zeros): they keep their codes, so that decoding stays
arithmetic, but no record has one and every mechanism works on the other cells alone,
``n_possible`` of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.columns import Codes, Column
from mechanisms.domain.structural_zeros import MOST_PATTERNS, ZeroPattern, n_covered
from mechanisms.errors import ConfigError, DomainTooLargeError, DuplicateColumnError

MAX_CELLS = 2**63 - 1
"""Most cells of a joint table, whose codes are int64."""
_MOST_BITS = 10_000  # of the number of cells, which is written in decimal
LISTED = 1 << 21
"""Cells of a domain that may be listed to draw from; from a larger one is drawn by rejection."""
_LEAST_SHARE = 100  # at least 1/100 of a domain that is not listed must be possible
_CHUNK = 1 << 18


@dataclass(frozen=True)
class Domain:
    """A product of columns.

    Args:
        columns: At least one column, names distinct.
        zeros: Patterns of impossible cells, at most a dozen.
        absent: Whether there is a cell for the records that a unit does not have.

    Attributes:
        n_possible: Number of cells that a record can have, the absent cell included.

    Raises:
        DuplicateColumnError: A name occurs twice.
        DomainTooLargeError: More than 2**10000 cells.
        ConfigError: The patterns leave no cell, or too few to draw from, or are malformed.
    """

    columns: tuple[Column, ...]
    zeros: tuple[ZeroPattern, ...] = ()
    absent: bool = False
    strides: tuple[int, ...] = field(init=False, repr=False, compare=False)
    n_possible: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        if not self.columns:
            raise ConfigError("A domain needs at least one column.")
        for name in self.names:
            if self.names.count(name) > 1:
                raise DuplicateColumnError(f"Column '{name}' is declared twice.")
        if self.n_cells.bit_length() > _MOST_BITS:
            raise DomainTooLargeError(f"The domain has more than 2**{_MOST_BITS} cells.")
        strides, stride = [], 1
        for column in reversed(self.columns):
            strides.append(stride)
            stride *= column.size
        object.__setattr__(self, "strides", tuple(reversed(strides)))
        object.__setattr__(self, "zeros", tuple(self.zeros))
        object.__setattr__(self, "n_possible", self._n_combinations() + self.absent)

    def _n_combinations(self) -> int:
        """Number of combinations of codes that no pattern excludes."""
        if len(self.zeros) > MOST_PATTERNS:
            raise ConfigError(f"More than {MOST_PATTERNS} structural zeros are declared.")
        for zero in self.zeros:
            for name, runs in zero.sets:
                if runs[0][0] < 0 or runs[-1][1] >= self[name].size:
                    raise ConfigError(
                        "A structural zero has a code that does not exist.", where=name
                    )
        sizes = {column.name: column.size for column in self.columns}
        combinations = math.prod(sizes.values())
        left = combinations - n_covered(self.zeros, sizes)
        drawn_from = LISTED < combinations <= MAX_CELLS
        if left == 0 or (drawn_from and left * _LEAST_SHARE < combinations):
            raise ConfigError(
                f"The structural zeros leave {left:,} of {combinations:,} cells.",
                next_step="Leave at least one cell, and of a large domain one in a hundred.",
            )
        return left

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(column.name for column in self.columns)

    @property
    def n_cells(self) -> int:
        """Number of cell codes, impossible and absent ones included; a Python integer."""
        return math.prod(column.size for column in self.columns) + self.absent

    @property
    def absent_cell(self) -> int | None:
        """Code of the absent cell, if there is one: the last."""
        return self.n_cells - 1 if self.absent else None

    @property
    def n_listed(self) -> int:
        """Number of cells that a publication can list: possible and not absent."""
        return self.n_possible - self.absent

    def check_joint(self) -> None:
        """Refuse a domain that has too many cells for a joint table.

        Raises:
            DomainTooLargeError: More than 2**63 - 1 cells.
        """
        if self.n_cells > MAX_CELLS:
            sizes = ", ".join(f"{column.name} {column.size:,}" for column in self.columns)
            raise DomainTooLargeError(
                f"The joint table of these columns has {Decimal(self.n_cells):.3e} cells, more "
                f"than 2**63 - 1 ({sizes})."
            )

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise ConfigError(f"The domain has no column '{name}'.")

    def project(self, names: Iterable[str]) -> Domain:
        """The domain of some of the columns, in the order given.

        A pattern stays if all of its columns do: of a combination of fewer columns it
        does not say that it is impossible. The absent cell stays.
        """
        columns = tuple(self[name] for name in names)
        kept = {column.name for column in columns}
        zeros = tuple(zero for zero in self.zeros if kept.issuperset(zero.names))
        return Domain(columns, zeros, self.absent)

    def encode(self, codes: Mapping[str, Codes]) -> Codes:
        """Cell codes from column codes.

        Args:
            codes: Column name to int64[k].

        Returns:
            int64[k]; never the absent cell.

        Raises:
            DomainTooLargeError: More than 2**63 - 1 cells.
        """
        self.check_joint()
        parts = (
            np.asarray(codes[column.name], dtype=np.int64) * stride
            for column, stride in zip(self.columns, self.strides, strict=True)
        )
        return np.asarray(sum(parts), dtype=np.int64)

    def codes(self, cells: Codes, name: str) -> Codes:
        """Codes of one column: int64[k] from cell codes int64[k].

        Raises:
            ValueError: The absent cell is among them, which has no columns.
            DomainTooLargeError: More than 2**63 - 1 cells.
        """
        self.check_joint()
        if self.absent and np.any(cells == self.absent_cell):
            raise ValueError("the absent cell has no columns; leave it out first")
        return self._digits(cells, name)

    def _digits(self, cells: Codes, name: str) -> Codes:
        index = self.names.index(name)
        return (cells // self.strides[index]) % self.columns[index].size

    def is_absent(self, cells: Codes) -> NDArray[np.bool_]:
        """bool[k]: which cells int64[k] are the absent one."""
        if not self.absent:
            return np.zeros(len(cells), dtype=np.bool_)
        return np.asarray(cells == self.absent_cell)

    def is_possible(self, cells: Codes) -> NDArray[np.bool_]:
        """bool[k]: which cells int64[k] lie in no pattern; the absent cell lies in none."""
        impossible = np.zeros(len(cells), dtype=np.bool_)
        for zero in self.zeros:
            impossible |= zero.contains({name: self._digits(cells, name) for name in zero.names})
        return ~impossible | self.is_absent(cells)

    def possible_cells(self) -> Codes:
        """int64[n_possible], ascending; for domains that may be listed."""
        if not self.zeros:
            return np.arange(self.n_cells)
        return np.concatenate(list(self._possible_chunks()))

    def _possible_chunks(self) -> Iterator[Codes]:
        for start in range(0, self.n_cells, _CHUNK):
            cells = np.arange(start, min(start + _CHUNK, self.n_cells))
            yield cells[self.is_possible(cells)]

    def decode(self, cells: Codes) -> dict[str, NDArray[Any]]:
        """Public values of every column: name to array[k], see ``Column.decode``."""
        return {c.name: c.decode(self.codes(cells, c.name)) for c in self.columns}

    def cell_of(self, record: Mapping[str, Any]) -> int:
        """Cell code of one record of Python values; the definition of the count."""
        return sum(
            column.code_of(record.get(column.name)) * stride
            for column, stride in zip(self.columns, self.strides, strict=True)
        )
