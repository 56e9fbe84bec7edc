"""Small coded columns for tests of marginals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain import contingency_table
from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.contingency_table import (
    ContingencyTable,
    GroupCounts,
    Room,
    check_groups,
    smallest_unsigned,
)
from statpress.mechanisms.domain.domain import Domain, ZeroPattern
from statpress.tasks.release.entropy import SeededRandomness
from statpress.tasks.source.scanning import counted_at

if TYPE_CHECKING:
    from statpress.tasks.source.scanning import SpilledColumns

_CHUNK = 1 << 17


def domain_of(
    sizes: Sequence[int], zeros: tuple[ZeroPattern, ...] = (), *, absent: bool = False
) -> Domain:
    """Columns c0, c1, ... of these sizes."""
    columns = tuple(Integer(name=f"c{i}", lower=0, upper=k - 1) for i, k in enumerate(sizes))
    return Domain(columns, zeros, absent)


def codes_of(spilled: SpilledColumns) -> list[tuple[int, ...]]:
    """The codes of all records, in order."""
    every = range(len(spilled.domain.columns))
    chunks = [[chunk[c].tolist() for c in every] for chunk in spilled._chunks(every)]
    return sorted(record for chunk in chunks for record in zip(*chunk, strict=True))


@dataclass(frozen=True, repr=False, eq=False)
class CodesInMemory:
    """Coded columns in memory; their ``repr`` shows nothing.

    Attributes:
        columns: For each column of the domain the codes of the present records, all of one
            length, in the smallest unsigned dtype.
    """

    domain: Domain
    n_records: int
    columns: tuple[NDArray[Any], ...]

    def __repr__(self) -> str:
        return f"CodesInMemory({', '.join(self.domain.names)})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("codes of records are never pickled: they may be private")

    @classmethod
    def of(cls, table: ContingencyTable) -> Self:
        """The records of a joint table, one by one."""
        present, domain = table.without_absent(), table.domain
        columns = tuple(
            np.repeat(
                domain.codes(present.cells, column.name).astype(smallest_unsigned(column.size)),
                present.counts,
            )
            for column in domain.columns
        )
        return cls(domain, table.n_records, columns)

    def tables(self, groups: Sequence[tuple[int, ...]]) -> list[NDArray[np.int64]]:
        """Counts of present records by the codes of each group of columns."""
        check_groups(self.domain, groups)
        counting = GroupCounts([column.size for column in self.domain.columns], groups)
        for start in range(0, len(self.columns[0]), _CHUNK):
            counting.add(
                {
                    column: self.columns[column][start : start + _CHUNK]
                    for column in counting.columns
                }
            )
        return counting.tables()

    def table_at(
        self, column: int, places: NDArray[np.int64], n: int, group: tuple[int, ...]
    ) -> NDArray[np.int64]:
        """Counts of present records by place and the codes of a group of columns."""
        sizes = [column.size for column in self.domain.columns]
        chunk = {each: self.columns[each] for each in (column, *group)}
        return counted_at([chunk], sizes, column, places, n, group)

    @property
    def room(self) -> Room:
        """In memory."""
        return contingency_table.in_memory


def in_memory(domain: Domain, codes: np.ndarray, n_records: int | None = None) -> CodesInMemory:
    """The records unsigned[n, d] of a domain."""
    columns = tuple(np.ascontiguousarray(codes[:, j]) for j in range(codes.shape[1]))
    return CodesInMemory(domain, len(codes) if n_records is None else n_records, columns)


class WithoutNoise(SeededRandomness):
    """Noise that is nought, and a note of what was asked for."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(1))
        self.asked: list[tuple[Fraction, int]] = []

    def discrete_gaussian(self, sigma: Fraction, size: int) -> np.ndarray:
        self.asked.append((sigma, size))
        return np.zeros(size, np.int64)


def dependent_codes(n: int, sizes: Sequence[int], seed: int, strength: float = 0.5) -> np.ndarray:
    """uint8[n, d]: each column follows the one before with some probability."""
    rng = np.random.default_rng(seed)
    codes = np.empty((n, len(sizes)), np.uint8)
    for j, k in enumerate(sizes):
        p = rng.dirichlet(np.ones(k))
        codes[:, j] = rng.choice(k, n, p=p)
        if j:
            follows = rng.random(n) < strength
            codes[follows, j] = codes[follows, j - 1] % k
    return codes
