"""How the errors of a table's estimates vary together, as its mechanism states it.

Refining pools tables by least squares and propagates their errors, so it has to know the
covariance of what was released. Every mechanism states it; there is no default, so that
nothing new is ever treated as independent noise in silence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction

from mechanisms.postprocessing.debias import DebiasedTable
from mechanisms.postprocessing.reconciliation import ReleasedTable


class Covariance(ABC):
    """The covariance of the estimates of ``TableMechanism.postprocess``.

    Attributes:
        objection: Why tables with it cannot be pooled; empty if they can.
    """

    objection: str = ""

    @abstractmethod
    def released(self, table: DebiasedTable, *, n_records: int) -> ReleasedTable:
        """The estimates of all cells, with the noise on them.

        Raises:
            ValueError: They cannot be pooled, are too many, or some cells are impossible or
                absent.
        """


@dataclass(frozen=True)
class IndependentErrors(Covariance):
    """Independent errors of the cells, whose variances the table states."""

    def released(self, table: DebiasedTable, *, n_records: int) -> ReleasedTable:
        return ReleasedTable.of_noise(table)


@dataclass(frozen=True)
class MultinomialErrors(Covariance):
    """Errors of debiased counts of records drawn independently from smoothed shares.

    With p the smoothed shares, N = n + pseudocount |domain| and m records, the estimates have
    the covariance N^2/m (diag(p) - p p').

    Attributes:
        pseudocount: Added to the count of every cell.
        records: m, the number of records drawn.
    """

    pseudocount: Fraction
    records: int

    def released(self, table: DebiasedTable, *, n_records: int) -> ReleasedTable:
        return ReleasedTable.of_draws(
            table, self.pseudocount, records=self.records, n_records=n_records
        )


@dataclass(frozen=True)
class OtherErrors(Covariance):
    """Errors that vary together in a way that least squares here does not know.

    Attributes:
        objection: Why, as a sentence about the product's estimates.
    """

    objection: str

    def released(self, table: DebiasedTable, *, n_records: int) -> ReleasedTable:
        raise ValueError(self.objection)
