"""Private records as codes of declared columns, of which only tables are taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.domain import Domain


class CodedColumns(Protocol):
    """Private records as codes of declared columns, of which only tables are taken.

    Attributes:
        domain: The declared columns; absent records are counted apart.
        n_records: Public number of records, the absent ones included.
    """

    domain: Domain
    n_records: int

    def tables(self, groups: Sequence[tuple[int, ...]]) -> list[NDArray[np.int64]]:
        """Counts of present records by the codes of groups of columns (positions in the domain).

        Returns: for each group an array whose shape is the sizes of its columns.
        """


@dataclass(frozen=True, repr=False, eq=False)
class CodesInMemory:
    """The in-memory form, for tests and small tables.

    Attributes:
        columns: For each column of the domain the codes of the present records, all of one
            length, in the smallest unsigned dtype.
    """

    domain: Domain
    n_records: int
    columns: tuple[NDArray[Any], ...]

    def tables(self, groups: Sequence[tuple[int, ...]]) -> list[NDArray[np.int64]]:
        """Counts of present records by the codes of each group of columns.

        Returns: for each group an array whose shape is the sizes of its columns.
        """
        return [self._table(group) for group in groups]

    def _table(self, group: tuple[int, ...]) -> NDArray[np.int64]:
        shape = tuple(self.domain.columns[column].size for column in group)
        cells = np.zeros(len(self.columns[group[0]]), dtype=np.int64)
        for column, size in zip(group, shape, strict=True):
            cells *= size
            cells += self.columns[column]
        return np.bincount(cells, minlength=int(np.prod(shape))).reshape(shape).astype(np.int64)
