"""Figures of named columns from copies of the records, combined by Rubin's rule.

They answer what no measured table holds: columns that were not measured together are related there
by guess, which differs between copies. Numbers count as in ``mechanisms.marginals.analyses``.

The variance of a weighted figure in a copy is by linearisation, with the declared strata and
clusters, which every copy has as columns (``mechanisms.marginals.weighted_sums``). Persons were
drawn with their household, and so what they add to a figure is summed over each household first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.errors import QueryError
from statpress.mechanisms.marginals.analyses import Analyses, Kept, numbers_of
from statpress.mechanisms.marginals.copies import combined
from statpress.mechanisms.marginals.linear_moments import Interval
from statpress.mechanisms.marginals.persons import PersonResiduals
from statpress.mechanisms.marginals.target_tables import Floats
from statpress.mechanisms.marginals.weighted_sums import SampleDesign

Flags = NDArray[np.bool_]
HOUSEHOLDS = "households"
"""By what the sampling variance of persons is computed on a copy."""


@dataclass(frozen=True, eq=False)
class Copy:
    """The records of a copy.

    Attributes:
        codes: int64[n, d].
        weights: float64[n], where figures are weighted.
        design: How weighted records were drawn; of persons, their households.
        household: int64[n]: of persons the position of their household.
        n_households: Of persons, with those that nobody is in.
    """

    codes: NDArray[np.int64]
    weights: Floats | None = None
    design: SampleDesign = field(default_factory=SampleDesign)
    household: NDArray[np.int64] | None = None
    n_households: int = 0

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def drawn_alone(self) -> bool:
        """Whether records were drawn one by one, as far as is declared."""
        return self.household is None and not self.design.is_declared

    def variance(self, parts: Floats) -> float:
        """By sampling, of the sum of parts float64[n] over the records."""
        if self.household is not None:
            totals = np.bincount(self.household, parts, minlength=self.n_households)
            parts = totals.astype(np.float64)
        return float(self.design.variance(parts))


def persons_of(households: Copy, tables: PersonResiduals) -> Copy:
    """The persons of a copy, who have the weight of their household and were drawn with it.

    Args:
        households: Their records, persons included.
        tables: Of persons, which say where a household's record has their columns.
    """
    codes, sizes = households.codes, households.codes[:, tables.size]
    there = [np.flatnonzero(sizes > place) for place in range(len(tables.places))]
    persons = [codes[rows][:, own] for rows, own in zip(there, tables.places, strict=True)]
    weights, household = households.weights, np.concatenate(there)
    return Copy(
        np.concatenate(persons),
        None if weights is None else weights[household],
        households.design,
        household,
        len(codes),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class CopiedAnalyses(Analyses):
    """Questions to copies of the records, by the names of their columns.

    Attributes:
        copies: Each of them.
        scale: Confidential records for each record of a copy.

    Raises:
        QueryError: By its methods: a column has no numbers, or a population is asked for where
            units may have several records and are not households with persons.
    """

    copies: Sequence[Copy]
    scale: float = 1.0

    def mean(self, name: str, where: Kept) -> Interval:
        """The mean of a column's numbers."""
        return self._combined(lambda own: _mean(own, self._every_number(own, name, where)))

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
        return self._combined(lambda own: _mean(own, self._hits(own, name, codes, where)))

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
            values = (
                self._every_number(own, name, kept)
                if codes is None
                else self._hits(own, name, codes, kept)
                for kept in (one, other)
            )
            first, second = (_linearised(own, each) for each in values)
            return first.mean - second.mean, _variance(own, first, second)

        return self._combined(apart)

    def correlation(self, one: str, other: str, where: Kept) -> Interval:
        """The correlation of two columns' numbers, by Fisher's transformation of it."""

        def transformed(own: Copy) -> tuple[float, float]:
            x, y = (self._every_number(own, name, where) for name in (one, other))
            both = np.isfinite(x) & np.isfinite(y)
            if both.sum() < 4 or not (x[both].std() and y[both].std()):
                return math.nan, math.nan
            if own.weights is None and own.household is None:
                r = float(np.corrcoef(x[both], y[both])[0, 1])
                return math.atanh(r), 1 / (float(both.sum()) - 3)
            w = np.where(both, 1.0 if own.weights is None else own.weights, 0.0)
            w /= w.sum()
            x, y = (np.where(both, each, 0.0) for each in (x, y))
            x, y = (each - w @ each for each in (x, y))
            x, y = (each / math.sqrt(w @ each**2) for each in (x, y))
            r = float(w @ (x * y))
            parts = w * (x * y - r / 2 * (x**2 + y**2)) / (1 - r**2)
            return math.atanh(r), own.variance(parts)

        z = self._combined(transformed)
        value = math.tanh(z.value)
        error = (1 - value**2) * z.standard_error
        lower, upper = math.tanh(z.lower), math.tanh(z.upper)
        return z._replace(value=value, standard_error=error, lower=lower, upper=upper)

    def _codes(self, own: Copy, name: str) -> NDArray[np.int64]:
        return own.codes[:, self.domain.names.index(name)]

    def _among(self, own: Copy, where: Kept) -> Flags:
        """bool[n]: which records have one of the codes in every column named."""
        among = np.ones(len(own), dtype=np.bool_)
        for name, codes in where.items():
            among &= _one_of(self._codes(own, name), codes)
        return among

    def _every_number(self, own: Copy, name: str, where: Kept) -> Floats:
        """The number of every record, NaN where there is none or the record is not among those."""
        self.amounts(name)
        numbers = numbers_of(self.domain[name])[self._codes(own, name)]
        return np.where(self._among(own, where), numbers, np.nan)

    def _hits(self, own: Copy, name: str, codes: Collection[int], where: Kept) -> Floats:
        """1 for each record with one of the codes, 0 for others, NaN of those that do not count."""
        column = self._codes(own, name)
        there = self._among(own, where) & ~self.domain[name].is_missing(column)
        return np.where(there, _one_of(column, codes), np.nan)

    def _sum_of(self, own: Copy, values: Floats) -> tuple[float, float]:
        parts = values if own.weights is None else own.weights * values
        raked = own.weights is not None and self.weights is not None and self.weights.total
        scale = 1.0 if raked else self.scale  # those of a copy are all of W
        return scale * float(parts.sum()), scale**2 * own.variance(parts)

    def _combined(self, of_copy: Callable[[Copy], tuple[float, float]]) -> Interval:
        """By Rubin's rule; without an estimate where a copy has too few records."""
        several = self.sample and (self.sample.unit_records > 1 or self.sample.absent)
        of_households = self.copies[0].household is not None
        if several and not of_households:
            raise no_population_of_copies()
        figures, variances = zip(*map(of_copy, self.copies), strict=True)
        if not np.isfinite([*figures, *variances]).all():
            return Interval(math.nan, math.nan, -math.inf, math.inf, by="Rubin")
        freedom = max(each.design.freedom for each in self.copies)
        made = combined(
            figures,
            variances if self.sample else None,
            share=1 / self.scale if math.isinf(freedom) else 1.0,  # copies have as many clusters
            freedom=freedom,
        )
        lower, upper = made.interval(self.confidence)
        sampling = ""
        if self.sample and (self.weights is not None or of_households):
            declared = self.copies[0].design.is_declared or not of_households
            sampling = self.weights.design if self.weights and declared else HOUSEHOLDS
        return Interval(
            made.estimate, made.standard_error, lower, upper, made.p_value, "Rubin", sampling
        )


def no_population_of_copies() -> QueryError:
    """That copies do not say which records are of one unit."""
    return QueryError(
        "Copies have no intervals for a population where a unit may have several records.",
        where="of",
        next_step="Ask for the records themselves.",
    )


def _one_of(column: NDArray[np.int64], codes: Collection[int]) -> Flags:
    """bool[n]: where the column has one of the codes; of a single one, by far the quicker way."""
    if len(codes) == 1:
        (code,) = codes
        return np.asarray(column == code)
    return np.isin(column, list(codes))


class _Linearised(NamedTuple):
    """A mean with what every record adds to it, near the truth."""

    mean: float
    parts: Floats  # float64[n]; 0 of records that do not count
    n: int  # of those that do


def _linearised(own: Copy, values: Floats) -> _Linearised:
    """The mean of the values that are numbers; NaN of fewer than two, or of no weight."""
    there = np.isfinite(values)
    weights = np.where(there, 1.0 if own.weights is None else own.weights, 0.0)
    if there.sum() < 2 or not weights.any():
        return _Linearised(math.nan, np.full(len(values), math.nan), 0)
    weights /= weights.sum()
    numbers = np.where(there, values, 0.0)
    mean = float(weights @ numbers)
    return _Linearised(mean, weights * (numbers - mean), int(there.sum()))


def _mean(own: Copy, values: Floats) -> tuple[float, float]:
    """The mean of the values that are numbers, and its variance."""
    found = _linearised(own, values)
    return found.mean, _variance(own, found)


def _variance(own: Copy, one: _Linearised, other: _Linearised | None = None) -> float:
    """Of a mean, or of one less another of other records."""
    both = [each for each in (one, other) if each is not None]
    if not all(each.n for each in both):
        return math.nan
    if not own.drawn_alone:
        return own.variance(one.parts if other is None else one.parts - other.parts)
    return sum(float(each.parts @ each.parts) * each.n / (each.n - 1) for each in both)
