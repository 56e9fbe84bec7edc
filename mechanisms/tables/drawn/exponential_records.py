"""What mechanisms share that release k records with probability by a utility.

Source: Wasserman and Zhou (2010, doi 10.1198/jasa.2009.tm08651), sections 5 and 6; McSherry and
Talwar (2007). Released are the counts z of k records, with probability proportional to base(z)
exp(-e u(h, z)/2), where u moves by at most c if c records of the data do and the base knows no
data.

**Privacy.** Adjacency replace-one: with e = ``epsilon_per_record`` the log-ratio of the laws at z
is e (u(h', z) - u(h, z))/2 plus a constant, and a unit of c records moves u by c at most, up or
down. So its range is at most c e, the epsilon at delta 0, and it is charged as the worst of all
such (``BoundedRangeLoss``). Whatever else is fixed (k, distance, candidates) changes only the
utility; candidates that are drawn without the data mix releases of that range.

**Estimates** of the true counts are n z/k. They are biased towards the base, by an amount
that depends on the data. No closed form of their error is known: as a standard error is
given the multinomial one of k iid draws at Laplace's rule (z + 1)/(k + 2), which has
neither the bias nor what the choice between datasets adds or saves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar

import numpy as np

from mechanisms.accounting.analytic import BoundedRangeLoss
from mechanisms.accounting.privacy_loss import PrivacyLoss
from mechanisms.base.kind import Kind
from mechanisms.base.mechanism import check_frame
from mechanisms.domain.columns import Codes
from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.domain.domain import Domain
from mechanisms.errors import BudgetValueError, RecordsError
from mechanisms.postprocessing.covariance import Covariance, OtherErrors
from mechanisms.postprocessing.debias import DebiasedTable
from mechanisms.tables.expected_error import ExpectedCounts
from mechanisms.tables.kind import MICRODATA, TABLE

MOST_RECORDS = 10**9
_LEAST_EPSILON, _MOST_EPSILON, _MOST_DIGITS = Decimal("1e-9"), Decimal(10**6), 30


@dataclass(frozen=True, kw_only=True)
class ExponentialRecords:
    """Mechanisms of this kind at fixed parameters.

    Attributes:
        epsilon_per_record: What a unit costs per record, from 1e-9 to 1e6.
        records: k, the records of a release.
    """

    name: ClassVar[str]
    kinds: ClassVar[tuple[Kind, ...]] = (MICRODATA, TABLE)
    pure: ClassVar[bool] = True
    unbiased: ClassVar[bool] = False
    raw: ClassVar[tuple[str, ...]] = ("raw",)

    epsilon_per_record: Decimal
    records: int

    def __post_init__(self) -> None:
        epsilon = self.epsilon_per_record
        if not (epsilon.is_finite() and _LEAST_EPSILON <= epsilon <= _MOST_EPSILON):
            raise BudgetValueError("The epsilon of a record must be between 1e-9 and 1e6.")
        if len(epsilon.as_tuple().digits) > _MOST_DIGITS:
            raise BudgetValueError("The epsilon of a record has more than 30 digits.")
        check_records(self.records)

    @property
    def epsilon(self) -> Fraction:
        """The same as an exact fraction."""
        return Fraction(self.epsilon_per_record)

    def loss(self, *, n_records: int, n_cells: int, unit_records: int = 1) -> PrivacyLoss:
        """The privacy loss of the release; takes no data."""
        check_frame(n_records=n_records, n_cells=n_cells, unit_records=unit_records)
        if n_cells == 1:  # every dataset of this size is the same table
            return BoundedRangeLoss(Fraction(0))
        return BoundedRangeLoss(self.epsilon * unit_records)

    def rows(self, *, n_cells: int) -> int:
        return min(self.records, n_cells)

    def postprocess(self, release: ContingencyTable, *, n_records: int) -> DebiasedTable:
        """Biased estimates of the true counts, see the module's text."""
        k = self.records
        shares = (release.counts + 1) / (k + 2)
        return DebiasedTable(
            domain=release.domain,
            cells=release.cells,
            estimates=n_records * (release.counts / k),
            standard_errors=n_records * np.sqrt(shares * (1 - shares) / k),
            undrawn_estimate=0.0,
            undrawn_standard_error=n_records * math.sqrt((k + 1) / k) / (k + 2),
        )

    def covariance(self, *, n_records: int, n_cells: int) -> Covariance:
        """Not known: the records are chosen together."""
        return OtherErrors(
            "The records are chosen together, and the bias of their counts is not known."
        )

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedCounts:
        """Sampling error of k records, from public quantities only: a guide, not a bound."""
        return ExpectedCounts.of_records(self.records, n_records=n_records, n_cells=n_cells)

    def describe(self) -> dict[str, str | int]:
        described: dict[str, str | int] = {"mechanism": self.name}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                described[field.name] = value if isinstance(value, int) else str(value)
        return described | {"epsilon_per_record": f"{self.epsilon_per_record:f}"}


def check_records(records: int, where: str = "") -> None:
    """Refuse a number of records that is not from 1 to a thousand million."""
    if not 1 <= records <= MOST_RECORDS:
        raise RecordsError("The number of records must be between 1 and 1e9.", where=where)


def grid_shape(domain: Domain) -> tuple[int, ...]:
    """Number of codes of each column."""
    return tuple(column.size for column in domain.columns)


def dense_counts(table: ContingencyTable) -> Codes:
    """int64[s], the counts of all combinations of codes, occupied or not."""
    counts = np.zeros(math.prod(grid_shape(table.domain)), dtype=np.int64)
    counts[table.cells] = table.counts
    return counts


def sparse_table(domain: Domain, counts: Codes | Sequence[int]) -> ContingencyTable:
    """The table of counts int64[s] of all combinations of codes."""
    counts = np.asarray(counts, dtype=np.int64)
    cells = np.flatnonzero(counts)
    return ContingencyTable(domain, cells, counts[cells])
