"""What a mechanism for tables of counts and microdata offers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from mechanisms.base.mechanism import Mechanism
from mechanisms.domain.columns import Codes
from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.domain.domain import Domain
from mechanisms.postprocessing.covariance import Covariance
from mechanisms.postprocessing.debias import DebiasedTable
from mechanisms.sampling.randomness import Progress, Randomness
from mechanisms.tables.expected_error import ExpectedCounts


class RawTable(Protocol):
    """What a private step gives back: integers by cell, public from then on."""

    @property
    def domain(self) -> Domain:
        """The release's domain."""

    @property
    def cells(self) -> Codes:
        """int64[K], ascending: the listed cells."""

    @property
    def counts(self) -> Codes:
        """int64[K]: drawn or noisy counts."""

    def figures(self) -> Mapping[str, Codes]:
        """The columns int64[K] of ``Mechanism.raw``, of which ``raw`` are the counts."""


def drawn_records(mechanism: Mechanism) -> int | None:
    """How many records a mechanism draws; None if it gives noisy counts of every cell."""
    records = mechanism.describe().get("records")
    return None if records is None else int(records)


class TableMechanism(Mechanism, Protocol):
    """A mechanism for tables of counts and microdata.

    ``unbiased`` says that the estimates of ``postprocess`` are right on average,
    whatever the data; ``raw`` names the columns that its tables publish as they
    were drawn, and that ``postprocess`` needs no more than.
    """

    raw: ClassVar[tuple[str, ...]]

    @property
    def unbiased(self) -> bool:
        """Whether its estimates are."""

    def rows(self, *, n_cells: int) -> int:
        """Most cells that a release can list."""
        ...

    def release(
        self,
        table: ContingencyTable,
        rng: Randomness,
        progress: Progress | None = None,
    ) -> RawTable:
        """The private step."""
        ...

    def postprocess(self, release: Any, *, n_records: int) -> DebiasedTable:
        """Free improvement of a release."""
        ...

    def covariance(self, *, n_records: int, n_cells: int) -> Covariance:
        """How the errors of the estimates vary together; stated from the parameters alone."""
        ...

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedCounts:
        """Expected error from public quantities only."""
        ...
