"""Figures of named columns from copies of the records, combined by Rubin's rule.

They answer what no measured table holds: columns that were not measured together are related there
by guess, which differs between copies. Numbers count as in ``mechanisms.marginals.analyses``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.errors import QueryError
from statpress.mechanisms.marginals.analyses import Analyses, Kept, numbers_of
from statpress.mechanisms.marginals.copies import combined
from statpress.mechanisms.marginals.linear_moments import Interval
from statpress.mechanisms.marginals.target_tables import Floats

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Copy:
    """The records of a copy.

    Attributes:
        codes: int64[n, d].
        weights: float64[n], where figures are weighted.
    """

    codes: NDArray[np.int64]
    weights: Floats | None = None

    def __len__(self) -> int:
        return len(self.codes)


@dataclass(frozen=True, eq=False, kw_only=True)
class CopiedAnalyses(Analyses):
    """Questions to copies of the records, by the names of their columns.

    Attributes:
        copies: Each of them.
        scale: Confidential records for each record of a copy.

    Raises:
        QueryError: By its methods: a column has no numbers, a copy has too few records for the
            figure, or a population is asked for where units may have several records.
    """

    copies: Sequence[Copy]
    scale: float = 1.0

    def mean(self, name: str, where: Kept) -> Interval:
        """The mean of a column's numbers."""
        return self._combined(lambda own: _mean(*self._numbers(own, name, where)))

    def total(self, name: str, where: Kept) -> Interval:
        """The sum of a column's numbers over the records, or that expected in as many units."""
        self.amounts(name)
        values = np.nan_to_num(numbers_of(self.domain[name]))
        return self._combined(
            lambda own: self._sum_of(own, values[self._codes(own, name)] * self._among(own, where))
        )

    def count(self, where: Kept) -> Interval:
        """The number of records, or that expected in as many units."""
        return self._combined(lambda own: self._sum_of(own, self._among(own, where).astype(float)))

    def share(self, name: str, codes: Collection[int], where: Kept) -> Interval:
        """The share of records with one of the codes, of those that are not missing."""
        return self._combined(lambda own: _mean(*self._hits(own, name, codes, where)))

    def quantile(self, name: str, share: float, where: Kept) -> Interval:
        """Refused: numbers of copies are those of cells, and so would be their quantiles."""
        raise QueryError(
            "Quantiles are not computed on copies, whose numbers are those of cells.",
            where=name,
            next_step="Ask the noisy tables, without copies.",
        )

    def difference(
        self, name: str, one: Kept, other: Kept, codes: Collection[int] | None = None
    ) -> Interval:
        """The mean of a column, or the share of codes, among some records less that among others.

        The p-value is of the hypothesis that both are equal.
        """

        def apart(own: Copy) -> tuple[float, float]:
            (first, of_first), (second, of_second) = (
                _mean(
                    *(
                        self._numbers(own, name, kept)
                        if codes is None
                        else self._hits(own, name, codes, kept)
                    )
                )
                for kept in (one, other)
            )
            return first - second, of_first + of_second

        return self._combined(apart)

    def correlation(self, one: str, other: str, where: Kept) -> Interval:
        """The correlation of two columns' numbers, by Fisher's transformation of it."""

        def transformed(own: Copy) -> tuple[float, float]:
            x, y = (self._every_number(own, name, where) for name in (one, other))
            both = np.isfinite(x) & np.isfinite(y)
            if both.sum() < 4 or not (x[both].std() and y[both].std()):
                return math.nan, math.nan
            weights = np.ones(both.sum()) if own.weights is None else own.weights[both]
            spread = np.cov(x[both], y[both], aweights=weights)
            r = float(spread[0, 1] / math.sqrt(spread[0, 0] * spread[1, 1]))
            effective = float(weights.sum() ** 2 / (weights**2).sum())  # as many of equal weights
            return math.atanh(r), 1 / (effective - 3)

        z = self._combined(transformed)
        value = math.tanh(z.value)
        error = (1 - value**2) * z.standard_error
        return Interval(value, error, math.tanh(z.lower), math.tanh(z.upper), z.p_value, z.by)

    def _codes(self, own: Copy, name: str) -> NDArray[np.int64]:
        return own.codes[:, self.domain.names.index(name)]

    def _among(self, own: Copy, where: Kept) -> Flags:
        """bool[n]: which records have one of the codes in every column named."""
        among = np.ones(len(own), dtype=np.bool_)
        for name, codes in where.items():
            among &= np.isin(self._codes(own, name), list(codes))
        return among

    def _every_number(self, own: Copy, name: str, where: Kept) -> Floats:
        """The number of every record, NaN where there is none or the record is not among those."""
        self.amounts(name)
        numbers = numbers_of(self.domain[name])[self._codes(own, name)]
        return np.where(self._among(own, where), numbers, np.nan)

    def _numbers(self, own: Copy, name: str, where: Kept) -> tuple[Floats, Floats | None]:
        """The numbers of some records, and their weights."""
        numbers = self._every_number(own, name, where)
        there = np.isfinite(numbers)
        return numbers[there], None if own.weights is None else own.weights[there]

    def _hits(
        self, own: Copy, name: str, codes: Collection[int], where: Kept
    ) -> tuple[Floats, Floats | None]:
        """1 for each record with one of the codes, 0 for others not missing; and their weights."""
        column = self._codes(own, name)
        there = self._among(own, where) & ~self.domain[name].is_missing(column)
        hits = np.isin(column[there], list(codes)).astype(np.float64)
        return hits, None if own.weights is None else own.weights[there]

    def _sum_of(self, own: Copy, values: Floats) -> tuple[float, float]:
        mean, variance = _mean(values if own.weights is None else own.weights * values)
        n = self.scale * len(values)
        return n * mean, n**2 * variance

    def _combined(self, of_copy: Callable[[Copy], tuple[float, float]]) -> Interval:
        if self.sample and (self.sample.unit_records > 1 or self.sample.absent):
            raise QueryError(
                "Copies have no intervals for a population where a unit may have several records.",
                where="of",
                next_step="Ask for the records themselves.",
            )
        figures, variances = zip(*map(of_copy, self.copies), strict=True)
        if not np.isfinite([*figures, *variances]).all():
            raise QueryError(
                "A copy has too few records for this figure.", next_step="Ask for larger groups."
            )
        made = combined(figures, variances if self.sample else None, share=1 / self.scale)
        lower, upper = made.interval(self.confidence)
        sampling = "independent draws" if self.sample and self.copies[0].weights is not None else ""
        return Interval(
            made.estimate, made.standard_error, lower, upper, made.p_value, "Rubin", sampling
        )


def _mean(values: Floats, weights: Floats | None = None) -> tuple[float, float]:
    """The mean of some records' values and its variance; NaN of fewer than two.

    That of a weighted mean is by linearisation (Binder 1983, doi 10.2307/1402588).
    """
    n = len(values)
    if n < 2 or (weights is not None and not weights.any()):
        return math.nan, math.nan
    if weights is None:
        return float(values.mean()), float(values.var(ddof=1)) / n
    mean = float(weights @ values / weights.sum())
    parts = weights * (values - mean) / weights.sum()
    return mean, float(parts @ parts) * n / (n - 1)
