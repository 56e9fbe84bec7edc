"""How the errors of a table's estimates vary together, as its mechanism states it.

Refining pools tables by least squares and propagates their errors, so it has to know the
covariance of what was released. Every mechanism states it; there is no default, so that
nothing new is ever treated as independent noise in silence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from mechanisms.postprocessing.debias import DebiasedTable
from mechanisms.postprocessing.reconciliation import ReleasedTable

Floats = NDArray[np.float64]
_REACH = NormalDist().inv_cdf(0.975)  # of the intervals at 95 % that errors of sums are for


class Covariance(ABC):
    """The covariance of the estimates of ``TableMechanism.postprocess``.

    Attributes:
        objection: Why tables with it cannot be pooled, and errors of sums are not known; empty if
            they can and are.
    """

    objection: str = ""

    @abstractmethod
    def released(self, table: DebiasedTable, *, n_records: int) -> ReleasedTable:
        """The estimates of all cells, with the noise on them.

        Raises:
            ValueError: They cannot be pooled, are too many, or some cells are impossible or
                absent.
        """

    @abstractmethod
    def variances_of_sums(
        self, sums: Floats, variances: Floats, cells: Floats, *, n_records: int, n_cells: int
    ) -> Floats:
        """The variances of sums of estimates, over groups of cells that share none or some.

        Args:
            sums: float64[G], the sums, with the estimates of cells that are not listed.
            variances: float64[G], the sums of squared standard errors, of the same cells.
            cells: float64[G], how many possible cells each group has.
            n_records: Public number of records n of the source.
            n_cells: |domain|, of possible cells.

        Returns:
            float64[G], in squared records.

        Raises:
            ValueError: They are not known.
        """

    def errors_of_sums(
        self, sums: Floats, variances: Floats, cells: Floats, *, n_records: int, n_cells: int
    ) -> Floats:
        """What to give and take of such sums, for normal intervals: by default their deviation.

        Args: as of ``variances_of_sums``.

        Returns:
            float64[G], in records.
        """
        found = self.variances_of_sums(sums, variances, cells, n_records=n_records, n_cells=n_cells)
        return np.asarray(np.sqrt(found))


@dataclass(frozen=True)
class IndependentErrors(Covariance):
    """Independent errors of the cells, whole numbers whose variances the table states."""

    def released(self, table: DebiasedTable, *, n_records: int) -> ReleasedTable:
        return ReleasedTable.of_noise(table)

    def variances_of_sums(
        self, sums: Floats, variances: Floats, cells: Floats, *, n_records: int, n_cells: int
    ) -> Floats:
        """Independent errors: Var(sum of y_i) = sum of Var(y_i)."""
        del sums, cells, n_records, n_cells
        return variances

    def errors_of_sums(
        self, sums: Floats, variances: Floats, cells: Floats, *, n_records: int, n_cells: int
    ) -> Floats:
        """The deviation, with which the interval at 95 % ends at a whole number, upwards.

        The noise is whole numbers: an interval that ends just before one of little noise would
        hold as much less often as that number is likely.
        """
        del sums, cells, n_records, n_cells
        whole = np.ceil(_REACH * np.sqrt(variances) - 1e-9)
        return np.asarray(whole / _REACH * (1 + 1e-12))


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

    def variances_of_sums(
        self, sums: Floats, variances: Floats, cells: Floats, *, n_records: int, n_cells: int
    ) -> Floats:
        """Those of binomial counts of draws.

        How many of the m records are drawn from a group A is binomial, so that

            Var(sum over A) = N^2/m p_A (1 - p_A),  p_A = sum over A of p_i,

        which is also the sum of the covariance N^2/m (diag(p) - p p') over A. For p_A stands
        (sum over A + pseudocount |A|)/N, kept within what is known of it: pseudocount |A|/N to
        (n + pseudocount |A|)/N.
        """
        del variances
        share, _, _, total = self._shares(sums, cells, n_records, n_cells)
        return self._binomial(share, total)

    def errors_of_sums(
        self, sums: Floats, variances: Floats, cells: Floats, *, n_records: int, n_cells: int
    ) -> Floats:
        """The deviation at the farther end of the score interval of p_A.

        Few draws often miss a rare group, and the deviation at its share among them is then far
        too small. The score interval holds the shares u from which the drawn one is not farther
        than 1.96 sqrt(u(1 - u)/m), so that with the larger deviation of its two ends the normal
        interval at 95 % reaches over it. Of many draws they are that at p_A.

        Source: E. B. Wilson, Journal of the American Statistical Association 22 (1927), 209-212.
        """
        del variances
        share, low, high, total = self._shares(sums, cells, n_records, n_cells)
        spread = _REACH**2 / self.records
        middle = (share + spread / 2) / (1 + spread)
        reach = np.sqrt(spread * share * (1 - share) + spread**2 / 4) / (1 + spread)
        ends = [np.clip(end, low, high) for end in (middle - reach, middle + reach)]
        return np.asarray(np.sqrt(np.maximum(*(self._binomial(end, total) for end in ends))))

    def _shares(
        self, sums: Floats, cells: Floats, n_records: int, n_cells: int
    ) -> tuple[Floats, Floats, Floats, float]:
        """p_A, the least and the most that it can be, and N."""
        added = float(self.pseudocount)
        total = n_records + added * n_cells
        low = added * cells / total
        high = np.minimum(n_records / total + low, 1.0)
        return np.clip(sums / total + low, low, high), low, high, total

    def _binomial(self, share: Floats, total: float) -> Floats:
        """The variance of a sum of such a share."""
        return np.asarray(total**2 / self.records * share * np.maximum(1 - share, 0))


@dataclass(frozen=True)
class OtherErrors(Covariance):
    """Errors that vary together in a way that least squares here does not know.

    Attributes:
        objection: Why, as a sentence about the product's estimates.
    """

    objection: str

    def released(self, table: DebiasedTable, *, n_records: int) -> ReleasedTable:
        raise ValueError(self.objection)

    def variances_of_sums(
        self, sums: Floats, variances: Floats, cells: Floats, *, n_records: int, n_cells: int
    ) -> Floats:
        raise ValueError(self.objection)
