"""Sparse contingency tables, in which private counts are held, and how a product finds its own.

Everything after counting sees only these tables and coded columns, so the cost of a table is in
occupied cells, never in records or in the size of the domain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from statpress.mechanisms.domain.coded_columns import CodedColumns, SelectedColumns
from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.domain.domain import Domain

_SPARSEST = 16
"""Cells of a domain for each that is listed, up to which adding to all of them beats sorting."""


@dataclass(frozen=True, eq=False, repr=False)
class ContingencyTable:
    """Counts of the occupied cells of a domain.

    Its ``repr`` shows no number, since a table may be private.

    Args:
        domain: The declared domain.
        cells: int64[K], strictly ascending codes of possible cells: a table with a
            record in a structural zero cannot be made, so no mechanism meets one.
        counts: int64[K], each at least 1.

    Raises:
        ValueError: The arrays are not such a table.
        DomainTooLargeError: The domain has more than 2**63 - 1 cells.
    """

    domain: Domain
    cells: Codes
    counts: Codes

    def __post_init__(self) -> None:
        self.domain.check_joint()
        for name in ("cells", "counts"):
            array = np.asarray(getattr(self, name))
            if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
                raise ValueError(f"{name} must be a one-dimensional integer array")
            owned = array.astype(np.int64, copy=False).view()
            owned.flags.writeable = False
            object.__setattr__(self, name, owned)
        if len(self.cells) != len(self.counts):
            raise ValueError("cells and counts differ in length")
        if np.any(self.cells[1:] <= self.cells[:-1]):
            raise ValueError("cells are not strictly ascending")
        if len(self.cells) and not (
            self.cells[0] >= 0 and int(self.cells[-1]) < self.domain.n_cells
        ):
            raise ValueError("a cell is outside the domain")
        if self.domain.zeros and not self.domain.is_possible(self.cells).all():
            raise ValueError("a cell is a structural zero")
        if np.any(self.counts < 1):
            raise ValueError("a count is below 1")
        if len(self.counts) and float(self.counts.sum(dtype=np.float64)) >= 2.0**62:
            raise ValueError("the counts add up to 2**62 or more")

    def __repr__(self) -> str:
        return f"ContingencyTable({', '.join(self.domain.names)})"

    def __reduce__(self) -> NoReturn:
        # Results, caches and pools of processes would carry it out of the process.
        raise TypeError("a table of counts is never pickled: it may be private")

    @property
    def n_records(self) -> int:
        """Sum of the counts, or of units where these share parts of one."""
        return int(self.counts.sum()) // self.domain.parts

    def figures(self) -> dict[str, Codes]:
        """The columns that a release of this table publishes as they are."""
        return {"raw": self.counts}

    @classmethod
    def from_cells(cls, domain: Domain, cells: Codes, counts: Codes) -> ContingencyTable:
        """Table of cells in any order and with repeats, whose counts are added."""
        if len(cells) * _SPARSEST >= domain.n_cells and _are_counts(cells, counts, domain.n_cells):
            sums = np.zeros(domain.n_cells, np.int64)
            np.add.at(sums, cells, counts)
            found = np.flatnonzero(sums)
            return cls(domain, found, sums[found])
        return cls(domain, *sum_by_cell(cells, counts))

    def at(self, cells: Codes) -> Codes:
        """The counts int64[k] of cells int64[k], 0 of those that are not listed."""
        places = np.minimum(np.searchsorted(self.cells, cells), len(self.cells) - 1)
        return np.where(self.cells[places] == cells, self.counts[places], 0)

    def marginal(self, names: Iterable[str]) -> ContingencyTable:
        """The table of some of the columns, in the order given."""
        domain = self.domain.project(names)
        if domain == self.domain:
            return self
        present = self.without_absent()
        codes = {name: self.domain.codes(present.cells, name) for name in domain.names}
        # What is absent is absent whatever the columns.
        absent = np.full(len(self.cells) - len(present.cells), domain.n_cells - 1)
        cells = np.append(domain.encode(codes), absent)
        return ContingencyTable.from_cells(domain, cells, self.counts)

    def without_absent(self) -> ContingencyTable:
        """The table without the absent cell, whose code is the last."""
        if not self.domain.is_absent(self.cells[-1:]).any():
            return self
        return ContingencyTable(self.domain, self.cells[:-1], self.counts[:-1])


def _are_counts(cells: Codes, counts: Codes, n_cells: int) -> bool:
    """Whether cells int64[k] exist and their counts int64[k] are positive."""
    return bool(len(cells) and cells.min() >= 0 and cells.max() < n_cells and counts.min() >= 1)


def sum_by_cell(cells: Codes, counts: Codes) -> tuple[Codes, Codes]:
    """Distinct cells int64[k], ascending, and the sums of their counts int64[k]."""
    order = np.argsort(cells, kind="stable")
    ordered = cells[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=np.int64(-1)))
    if not len(starts):
        return ordered, counts[order]
    return ordered[starts], np.add.reduceat(counts[order], starts)


@dataclass(frozen=True, repr=False)
class Counted:
    """Everything that was counted of a source; private.

    Attributes:
        joint: Contingency tables, of which one has all columns of each product that needs one.
        coded: The codes of the records, if a product needs them.
    """

    joint: tuple[ContingencyTable, ...] = ()
    coded: CodedColumns | None = None

    def __repr__(self) -> str:
        return "Counted()"

    def marginal(self, names: Iterable[str], domain: Domain | None = None) -> ContingencyTable:
        """The contingency table of some columns, in the order given.

        Args:
            names: Of the columns.
            domain: Counted as this one is: by records, units or parts; by default as the first.

        Raises:
            LookupError: They were not counted together.
        """
        wanted = tuple(names)
        for table in self.joint:
            alike = domain is None or domain.counts_as(table.domain)
            if alike and set(wanted) <= set(table.domain.names):
                return table.marginal(wanted)
        raise LookupError("no joint table has these columns")

    def columns(self, names: Iterable[str]) -> CodedColumns:
        """The codes of some columns, in the order given.

        Raises:
            LookupError: They were not kept.
        """
        wanted = tuple(names)
        if self.coded is None or not set(wanted) <= set(self.coded.domain.names):
            raise LookupError("the codes of these columns were not kept")
        return SelectedColumns(self.coded, wanted)
