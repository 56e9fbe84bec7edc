"""Figures of named columns from noisy tables: means, totals, shares, quantiles, differences.

A number counts as its cell is published: the middle of a range of values, of a special value
itself. Records without a number do not count: missing ones, ``other``, and special values beyond
the declared range, which are codes and not amounts. A quantile takes records as evenly spread over
their range. The sums and their intervals are those of
statpress.mechanisms.marginals.linear_moments, and of counts those of
statpress.mechanisms.marginals.residuals.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from statpress.mechanisms.domain.column import Codes, Column, Ranges
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import QueryError
from statpress.mechanisms.marginals.linear_moments import (
    ONE,
    CellFunction,
    Interval,
    LeastSquares,
    Moments,
    correlation,
    moments,
    quantile,
    wald,
)
from statpress.mechanisms.marginals.population import Sample
from statpress.mechanisms.marginals.residuals import Residuals, query
from statpress.mechanisms.marginals.target_tables import Floats
from statpress.mechanisms.marginals.weighted_sums import Weights

Kept = Mapping[str, Collection[int]]
"""Per column the codes of the records that count."""


def numbers_of(column: Column) -> Floats:
    """float64[k]: the number of each code; NaN of a code without one."""
    values = np.full(column.size, np.nan)
    for code, value in enumerate(column.decode(np.arange(column.size)).tolist()):
        if isinstance(value, (bool, int, float)):
            values[code] = value
    values[column.is_missing(np.arange(column.size))] = np.nan
    if isinstance(column, Ranges) and column.outlying:
        values[np.isin(values, column.outlying)] = np.nan
    return values


def ends_of(column: Column) -> tuple[Floats, Floats]:
    """Two float64[k]: the least and the largest value of each code; NaN of one without a number."""
    values = numbers_of(column)
    first, last = values.copy(), values.copy()
    if isinstance(column, Ranges):
        codes = np.flatnonzero(np.isfinite(values))
        codes = codes[~column.is_special(codes)]
        first[codes], last[codes] = column.limits_of(codes)
    return first, last


@dataclass(frozen=True, eq=False, kw_only=True)
class Analyses:
    """Questions to the combined tables of a release, by the names of its columns.

    Attributes:
        domain: The declared columns.
        residuals: The combined tables.
        sample: The units, if they are a random sample of the population that is asked for; None
            if the records themselves are.
        confidence: Of every set, between 0 and 1.
        weights: Of the records, if figures are to be weighted.

    Raises:
        QueryError: By its methods: a column has no numbers, or units of several records, which are
            not households with persons, are asked for a population's figure other than a count.
        NotMeasuredError: By its methods: no measured table holds the columns together.
    """

    domain: Domain
    residuals: Residuals
    sample: Sample | None = None
    confidence: float = 0.95
    weights: Weights | None = None

    @property
    def _level(self) -> float:
        """The confidence of normal sets, wider where clusters leave few degrees of freedom."""
        if self.weights is None or self.sample is None:
            return self.confidence
        return self.weights.level(self.confidence)

    def _ratio(self, top: CellFunction, below: CellFunction) -> Interval:
        """The sum of a number over that of another, which is 0 or 1 in every cell."""
        squares = self._least_squares(top, [below])
        level = self.confidence
        if self.weights is not None and self.sample is not None:
            value = float(squares.estimates()[0])
            group = tuple(sorted({*top.group, *below.group}))
            off = CellFunction(group, (top * below).along(group) - value * below.along(group))
            variance = float(squares.variance(np.array([1.0, -value]))[0, 0])
            level = self.weights.level(level, off, variance)
        return squares.intervals(level)[0].at_level(self.confidence, level)

    def kept(self, where: Kept) -> CellFunction:
        """1 for the records with one of the codes in every column named, else 0."""
        product = ONE
        for name, codes in where.items():
            keep = np.zeros(self.domain[name].size)
            keep[list(codes)] = 1.0
            product = product * self.function(name, keep)
        return product

    def function(self, name: str, values: Floats) -> CellFunction:
        """A number float64[k] for each code of a column."""
        return CellFunction((self.domain.names.index(name),), values)

    def amounts(self, name: str) -> tuple[CellFunction, CellFunction]:
        """The numbers of a column, 0 where there is none, and 1 where there is one, else 0."""
        values = numbers_of(self.domain[name])
        if not np.isfinite(values).any():
            raise QueryError(
                f"The column '{name}' has no numbers.",
                where=name,
                next_step="Ask for the shares of its values.",
            )
        there = np.isfinite(values)
        return (
            self.function(name, np.where(there, values, 0.0)),
            self.function(name, there.astype(np.float64)),
        )

    def mean(self, name: str, where: Kept) -> Interval:
        """The mean of a column's numbers."""
        values, there = self.amounts(name)
        there *= self.kept(where)
        return self._ratio(values * there, there)

    def total(self, name: str, where: Kept) -> Interval:
        """The sum of a column's numbers over the records, or that expected in as many units."""
        values, there = self.amounts(name)
        return self._sum(values * there * self.kept(where))

    def count(self, where: Kept) -> Interval:
        """The number of records, or that expected in as many units."""
        return self._sum(self.kept(where))

    def share(self, name: str, codes: Collection[int], where: Kept) -> Interval:
        """The share of records with one of the codes, of those that are not missing."""
        column = self.domain[name]
        those, there = (each * self.kept(where) for each in self._those(name, codes))
        whole = not where and not column.missing and self.weights is None
        if whole and self.sample and not self.sample.absent:
            n = float(self.residuals.values[()])
            value, error, lower, upper, *_ = self._sum(those)
            return Interval(value / n, error / n, lower / n, upper / n, by="binomial")
        return self._ratio(those, there)

    def quantile(self, name: str, share: float, where: Kept) -> Interval:
        """The value that a share of the records with a number lies below."""
        self.amounts(name)
        self._check_units()
        return quantile(
            self.residuals,
            self.domain.names.index(name),
            ends_of(self.domain[name]),
            share,
            among=self.kept(where),
            sampled=self.sample is not None,
            confidence=self._level,
            weights=self.weights,
        )

    def difference(
        self, name: str, one: Kept, other: Kept, codes: Collection[int] | None = None
    ) -> Interval:
        """The mean of a column among some records less that among others, who are none of them.

        With codes it is the share of records that have one of them, of those that are not missing.
        The p-value is of the hypothesis that both are equal.
        """
        values, there = self.amounts(name) if codes is None else self._those(name, codes)
        first, second = self.kept(one) * there, self.kept(other) * there
        group = tuple(sorted({*first.group, *second.group}))
        both = CellFunction(group, first.along(group) + second.along(group))
        found = self._least_squares(values * both, [both, first]).intervals(self._level)[1]
        return found.at_level(self.confidence, self._level)

    def correlation(self, one: str, other: str, where: Kept) -> Interval:
        """The correlation of two columns' numbers, among records that have both."""
        (x, x_there), (y, y_there) = self.amounts(one), self.amounts(other)
        self._check_units()
        found = correlation(
            self.residuals,
            x,
            y,
            among=x_there * y_there * self.kept(where),
            sampled=self.sample is not None,
            confidence=self._level,
            weights=self.weights,
        )
        return found.at_level(self.confidence, self._level)

    def regression(self, outcome: CellFunction, regressors: list[CellFunction]) -> list[Interval]:
        """The coefficients of least squares."""
        found = self._least_squares(outcome, regressors).intervals(self._level)
        return [each.at_level(self.confidence, self._level) for each in found]

    def sums(self, functions: Sequence[CellFunction]) -> Moments:
        """Sums of functions over the records, weighted if figures are."""
        if self.weights is None:
            return moments(self.residuals, functions)
        return self.weights.sums(functions)

    def clear(self, name: str, errors: float) -> Codes:
        """The codes of a column with more records than so many standard errors of the noise."""
        group = (self.domain.names.index(name),)
        error = self.residuals.table_variance(group) ** 0.5
        return np.flatnonzero(self.residuals.table(group) > errors * error)

    def _those(self, name: str, codes: Collection[int]) -> tuple[CellFunction, CellFunction]:
        """1 for records with one of the codes, and 1 for those that are not missing, else 0."""
        column = self.domain[name]
        there = self.function(name, (~column.is_missing(np.arange(column.size))).astype(float))
        return self.kept({name: codes}) * there, there

    def _least_squares(self, outcome: CellFunction, regressors: list[CellFunction]) -> LeastSquares:
        self._check_units()
        n = float(self.sample.n_units) if self.sample else None
        return LeastSquares.of(
            self.residuals, outcome, regressors, n_sampled=n, weights=self.weights
        )

    def _weighted_sum(self, function: CellFunction, weights: Weights) -> Interval:
        """A weighted sum, scaled to the public number of those whom all records stand for."""
        if weights.total is not None:
            mean = self._ratio(function, ONE)
            return mean._replace(
                value=weights.total * mean.value,
                standard_error=weights.total * mean.standard_error,
                lower=weights.total * mean.lower,
                upper=weights.total * mean.upper,
            )
        self._check_units()
        values, spread = weights.sums([function])
        variance, sampling, level = float(spread[0, 0]), "", self.confidence
        if self.sample is not None:
            added, sampling = weights.sampling([function])
            variance += float(added[0, 0])
            level = weights.level(level, function, variance)
        found = wald(float(values[0]), math.sqrt(max(variance, 0.0)), level)
        return found.at_level(self.confidence, level)._replace(sampling=sampling)

    def _sum(self, function: CellFunction) -> Interval:
        if self.weights is not None:
            return self._weighted_sum(function, self.weights)
        sizes = [self.residuals.sizes[column] for column in function.group]
        weights = np.broadcast_to(function.values, sizes)
        answer = query(
            self.residuals, function.group, weights,
            confidence=self.confidence, sample=self.sample,
        )  # fmt: skip
        return Interval(
            answer.value, answer.standard_error, answer.lower, answer.upper,
            by="binomial" if self.sample else "Wald",
        )  # fmt: skip

    def _check_units(self) -> None:
        several = self.sample and (self.sample.unit_records > 1 or self.sample.absent)
        if several and not self.residuals.sampled_by:
            raise QueryError(
                "For a population only counts and totals have intervals where a unit may have "
                "several records: how alike these are was not measured.",
                where="of",
                next_step="Ask for the records themselves, or for counts.",
            )
