"""Estimates of the cells from a release, how their errors vary together, and one consistent set.

Everything here is free post-processing of what is already public.

**Covariance.** Refining pools tables by least squares and propagates their errors, so it has to
know the covariance of what was released. Every mechanism states it (``Covariance``); there is no
default, so that nothing new is ever treated as independent noise in silence.

**Reconciled tables** of a release agree with each other, with standard errors.
statpress.mechanisms.postprocessing.consistency is the best linear unbiased estimate if
the variances are known. Those of drawn records are not: they follow the counts, so a marginal cell
drawn too rarely by chance would seem the more precise for it and pull the pool downwards (the bias
of Neyman's modified chi-squared), and the errors stated would be too small. So each table is
weighted by one variance that is known before any data is read, the average over its cells. Then
every estimate is a linear function of the released ones with fixed coefficients, hence exactly
unbiased whatever the data, at the price of some variance where cells are uneven; and the closed
form holds, however many constraints there are.

Standard errors are propagated through these coefficients from the noise of every cell:

* noise added to each cell is independent, with a known variance;
* m records drawn from probabilities p have counts that are multinomial, which is
  the law of independent Poisson counts given their sum. With V = diag(N**2 p / m) the
  estimates have the covariance V - V 1 1' V / (1' V 1). Cells that were not drawn share one
  estimate, and have the variance at the least probability there is. The
  p are those of the released estimates, so these standard errors are estimates themselves.

The adjusted table i is sum_k A_ik y_k. An entry of A_ik depends only on the set S of shared
columns in which its two cells agree,

    a(S) = sum over T of coefficient(T) * product over columns of T of ([in S] - 1/size),

so that sums of a(S)**2 v over all cells of a table are sums of its marginals v(T), whose
coefficients are the Moebius transform of a**2. The cost is that of the closed form.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.postprocessing.consistency import (
    ConsistentTable,
    Floats,
    Names,
    NoisyTable,
    Shared,
    make_consistent,
    marginal_of,
    shared_columns,
    spread_over,
)


@dataclass(frozen=True)
class EstimatedTotal:
    """An unbiased estimate of how many records are counted, where that number is private.

    Attributes:
        value: In records; may be negative.
        variance: Of its noise, in squared records.
    """

    value: float
    variance: float

    def times(self, factor: int) -> EstimatedTotal:
        """That of so many times the records."""
        return EstimatedTotal(factor * self.value, factor**2 * self.variance)

    @classmethod
    def combined(cls, estimates: Sequence[EstimatedTotal]) -> EstimatedTotal:
        """The best of independent ones, each by the inverse of its variance."""
        weight = math.fsum(1 / each.variance for each in estimates)
        value = math.fsum(each.value / each.variance for each in estimates) / weight
        return cls(value, 1 / weight)

    @property
    def records(self) -> int:
        """The nearest whole number of records, at least 1."""
        return max(1, round(self.value))


@dataclass(frozen=True, eq=False)
class DebiasedTable:
    """Estimates of the true counts, for the cells that a release lists.

    Unbiased if the mechanism is (``Mechanism.unbiased``).

    Attributes:
        domain: The release's domain.
        cells: int64[K], ascending.
        estimates: float64[K], in records; may be negative, and are not projected,
            since confidence statements need them as they are.
        standard_errors: float64[K], in records.
        undrawn_estimate: The estimate for every cell that is not listed.
        undrawn_standard_error: Its standard error if the cell is empty in the data,
            the least it can be.
        projected: float64[K], the nearest counts that are not negative and add up to the
            number of records, if the mechanism has a way of its own to them.
    """

    domain: Domain
    cells: Codes
    estimates: NDArray[np.float64]
    standard_errors: NDArray[np.float64]
    undrawn_estimate: float
    undrawn_standard_error: float
    projected: NDArray[np.float64] | None = None


MOST_CELLS = 10**7
MOST_SHARED_COLUMNS = 10
_LEAST_VARIANCE = 1e-12


@dataclass(frozen=True, eq=False)
class ReleasedTable:
    """Unbiased estimates of every cell, with the noise on them.

    Attributes:
        domain: Its columns.
        estimates: float64[one axis per column, as long as its size].
        variances: float64 of the same shape: of the cells if they were independent.
        weight: The average variance that is known without data, above 0.
        drawn: Whether the cells are independent only given that their errors add up
            to 0, as those of drawn records are.
    """

    domain: Domain
    estimates: Floats
    variances: Floats
    weight: float
    drawn: bool

    @classmethod
    def of_noise(cls, table: DebiasedTable) -> ReleasedTable:
        """A table with independent noise on every cell."""
        estimates, errors = _dense(table)
        weight = max(float(np.mean(errors**2)), _LEAST_VARIANCE)
        return cls(table.domain, estimates, errors**2, weight, drawn=False)

    @classmethod
    def of_draws(
        cls, table: DebiasedTable, pseudocount: Fraction, *, records: int, n_records: int
    ) -> ReleasedTable:
        """The debiased table of ``records`` drawn records."""
        estimates, _ = _dense(table)
        total = float(n_records + pseudocount * table.domain.n_cells)
        floor, ceiling = float(pseudocount), n_records + float(pseudocount)
        smoothed = np.clip(estimates + float(pseudocount), floor, ceiling)
        weight = total**2 / (records * table.domain.n_cells)
        return cls(table.domain, estimates, smoothed * (total / records), weight, drawn=True)


def reconcile(tables: Sequence[ReleasedTable], *, total: float) -> list[ConsistentTable]:
    """Tables that agree on every marginal they share and add up to the total.

    Source: module text. Estimates as by ``make_consistent`` with one variance per table.

    Args:
        tables: Of one release or of several, their noise independent; a column has the
            same codes in all.
        total: The public number of records.

    Raises:
        ValueError: A column differs between tables, or one table shares more than ten
            columns with the others.
        ArithmeticError: The tables still disagree (see ``make_consistent``).
    """
    shared_names = [_shared_names(tables, i) for i in range(len(tables))]
    if any(len(names) > MOST_SHARED_COLUMNS for names in shared_names):
        raise ValueError(
            f"reconcile: a table shares more than {MOST_SHARED_COLUMNS} columns with the others. "
            "Take fewer tables at a time."
        )
    noisy = [NoisyTable(table.domain, table.estimates, table.weight) for table in tables]
    adjusted = make_consistent(noisy, total=total)
    names = tuple(dict.fromkeys(name for table in tables for name in table.domain.names))
    shared = shared_columns(noisy, names, total)
    return [
        ConsistentTable(
            table.domain, table.estimates, np.sqrt(_variances(tables, i, shared_names[i], shared))
        )
        for i, table in enumerate(adjusted)
    ]


def _dense(table: DebiasedTable) -> tuple[Floats, Floats]:
    """Estimates and standard errors of all cells, one axis per column."""
    size = table.domain.n_cells
    if table.domain.zeros or table.domain.absent:
        raise ValueError(
            f"reconcile: ({', '.join(table.domain.names)}) has structural zeros or an absent cell; "
            "only tables of all combinations of values can agree. Leave this table out."
        )
    if size > MOST_CELLS:
        raise ValueError(
            f"reconcile: the {size:,} cells of ({', '.join(table.domain.names)}) are too many to "
            f"list; at most {MOST_CELLS:,} are. Leave this table out."
        )
    shape = tuple(column.size for column in table.domain.columns)
    estimates = np.full(size, table.undrawn_estimate)
    errors = np.full(size, table.undrawn_standard_error)
    estimates[table.cells], errors[table.cells] = table.estimates, table.standard_errors
    return estimates.reshape(shape), errors.reshape(shape)


def _shared_names(tables: Sequence[ReleasedTable], index: int) -> Names:
    """Columns of a table that another table has too."""
    others = {n for i, table in enumerate(tables) if i != index for n in table.domain.names}
    return tuple(name for name in tables[index].domain.names if name in others)


def _variances(tables: Sequence[ReleasedTable], index: int, own: Names, shared: Shared) -> Floats:
    """Variances of the adjusted cells of one table, float64 of its shape."""
    domain = tables[index].domain
    variances = np.zeros_like(tables[index].estimates)
    for k, table in enumerate(tables):
        v = table.variances
        names = own if k == index else tuple(n for n in own if n in table.domain.names)
        entries = _entries(tables, index, k, names, shared)
        linear = _sums(v, table.domain, domain, names, entries)
        variances += _sums(v, table.domain, domain, names, entries**2)
        if k == index:
            linear = linear + v
            variances += (1 + 2 * float(entries[(1,) * len(names)])) * v
        if table.drawn:
            variances -= linear**2 / v.sum()
    return np.maximum(variances, 0.0)


def _entries(
    tables: Sequence[ReleasedTable], i: int, k: int, names: Names, shared: Shared
) -> Floats:
    """Entries of A_ik, less the identity if i = k: float64[2, ...], 1 where cells agree."""
    domain = tables[i].domain
    coefficients = np.zeros((2,) * len(names))
    for subset, indices in shared:
        if i not in indices or k not in indices:
            continue
        # The weights of the pool, see statpress.mechanisms.postprocessing.consistency; the total is
        # known.
        weights = {j: 1 / (tables[j].weight * tables[j].domain.n_cells) for j in indices}
        part = weights[k] / sum(weights.values()) if subset else 0.0
        size = math.prod(domain[name].size for name in subset) / domain.n_cells
        place = tuple(int(name in subset) for name in names)
        coefficients[place] = size * (part - 1 if i == k else part)
    for axis, name in enumerate(names):
        without, within = np.moveaxis(coefficients, axis, 0)
        mean = within / domain[name].size
        coefficients = np.stack([without - mean, without - mean + within], axis=axis)
    return coefficients


def _sums(values: Floats, source: Domain, target: Domain, names: Names, entries: Floats) -> Floats:
    """Sum of entry times value over all cells of the source, for every cell of the target."""
    for axis in range(len(names)):
        apart, agreed = np.moveaxis(entries, axis, 0)
        entries = np.stack([apart, agreed - apart], axis=axis)
    result = np.zeros([1] * len(target.columns))
    for place in np.ndindex(entries.shape):
        subset = tuple(name for name, inside in zip(names, place, strict=True) if inside)
        marginal = marginal_of(source, values, subset)
        result = result + float(entries[place]) * spread_over(target, marginal, subset)
    return result


_REACH = NormalDist().inv_cdf(0.975)  # of the intervals at 95 % that errors of sums are for


class Covariance(ABC):
    """The covariance of the estimates of ``TableMechanism.postprocess``.

    Attributes:
        objection: Why tables with it cannot be pooled, and errors of sums are not known; empty if
            they can and are.
    """

    objection: str = ""

    @abstractmethod
    def released(self, table: DebiasedTable) -> ReleasedTable:
        """The estimates of all cells, with the noise on them.

        Raises:
            ValueError: They cannot be pooled, are too many, or some cells are impossible or
                absent.
        """

    @abstractmethod
    def variances_of_sums(self, sums: Floats, variances: Floats, cells: Floats) -> Floats:
        """The variances of sums of estimates, over groups of cells that share none or some.

        Args:
            sums: float64[G], the sums, with the estimates of cells that are not listed.
            variances: float64[G], the sums of squared standard errors, of the same cells.
            cells: float64[G], how many possible cells each group has.

        Returns:
            float64[G], in squared records.

        Raises:
            ValueError: They are not known.
        """

    def errors_of_sums(self, sums: Floats, variances: Floats, cells: Floats) -> Floats:
        """What to give and take of such sums, for normal intervals: by default their deviation."""
        return np.asarray(np.sqrt(self.variances_of_sums(sums, variances, cells)))


@dataclass(frozen=True)
class IndependentErrors(Covariance):
    """Independent errors of the cells, whole numbers whose variances the table states."""

    def released(self, table: DebiasedTable) -> ReleasedTable:
        return ReleasedTable.of_noise(table)

    def variances_of_sums(self, sums: Floats, variances: Floats, cells: Floats) -> Floats:
        """Independent errors: Var(sum of y_i) = sum of Var(y_i)."""
        return variances

    def errors_of_sums(self, sums: Floats, variances: Floats, cells: Floats) -> Floats:
        """The deviation, with which the interval at 95 % ends at a whole number, upwards.

        The noise is whole numbers: an interval that ends just before one of little noise would
        hold as much less often as that number is likely.
        """
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
        n_records: Public number of records n of the source.
        n_cells: |domain|, of possible cells.
    """

    pseudocount: Fraction
    records: int
    n_records: int
    n_cells: int

    def released(self, table: DebiasedTable) -> ReleasedTable:
        return ReleasedTable.of_draws(
            table, self.pseudocount, records=self.records, n_records=self.n_records
        )

    def variances_of_sums(self, sums: Floats, variances: Floats, cells: Floats) -> Floats:
        """Variances of binomial counts of draws.

        How many of the m records are drawn from a group A is binomial, so that

            Var(sum over A) = N^2/m p_A (1 - p_A),  p_A = sum over A of p_i,

        which is also the sum of the covariance N^2/m (diag(p) - p p') over A. For p_A stands
        (sum over A + pseudocount |A|)/N, kept within what is known of it: pseudocount |A|/N to
        (n + pseudocount |A|)/N.
        """
        share, _, _ = self._shares(sums, cells)
        return self._binomial(share)

    def errors_of_sums(self, sums: Floats, variances: Floats, cells: Floats) -> Floats:
        """The deviation at the farther end of the score interval of p_A.

        Few draws often miss a rare group, and the deviation at its share among them is then far
        too small. The score interval holds the shares u from which the drawn one is not farther
        than 1.96 sqrt(u(1 - u)/m), so that with the larger deviation of its two ends the normal
        interval at 95 % reaches over it. Of many draws they are that at p_A.

        Source: E. B. Wilson, Journal of the American Statistical Association 22 (1927), 209-212.
        """
        share, low, high = self._shares(sums, cells)
        spread = _REACH**2 / self.records
        middle = (share + spread / 2) / (1 + spread)
        reach = np.sqrt(spread * share * (1 - share) + spread**2 / 4) / (1 + spread)
        ends = [np.clip(end, low, high) for end in (middle - reach, middle + reach)]
        return np.asarray(np.sqrt(np.maximum(*(self._binomial(end) for end in ends))))

    @property
    def _total(self) -> float:
        return self.n_records + float(self.pseudocount) * self.n_cells

    def _shares(self, sums: Floats, cells: Floats) -> tuple[Floats, Floats, Floats]:
        """p_A, the least and the most that it can be."""
        low = float(self.pseudocount) * cells / self._total
        high = np.minimum(self.n_records / self._total + low, 1.0)
        return np.clip(sums / self._total + low, low, high), low, high

    def _binomial(self, share: Floats) -> Floats:
        """The variance of a sum of such a share."""
        return np.asarray(self._total**2 / self.records * share * np.maximum(1 - share, 0))


@dataclass(frozen=True)
class OtherErrors(Covariance):
    """Errors that vary together in a way that least squares here does not know.

    Attributes:
        objection: Why, as a sentence about the product's estimates.
    """

    objection: str

    def released(self, table: DebiasedTable) -> ReleasedTable:
        raise ValueError(self.objection)

    def variances_of_sums(self, sums: Floats, variances: Floats, cells: Floats) -> Floats:
        raise ValueError(self.objection)


_LEAST_EXPECTED = 1.0
_CLEAR = 3.0
"""Standard deviations by which the squares have to pass those of noise to be told from it."""


def strength(counts: Floats, variance: Floats | float) -> float:
    """Cramér's V of a noisy table of two columns, less what its noise adds.

    With E the counts that independence gives for the sums of rows and columns,

        V^2 = max(0, sum of ((counts - E)^2 - variance) / E') / (n (min(a, b) - 1)),

    E' being E where that is above the standard error of the cell, below which noise decides; or,
    where that shows nothing, above the mean of all cells, so that the noise of rare cells does not
    hide what the others show. A larger E' claims less. The
    variance of counts - E is at most that of the counts, as it is what is left of them by a
    projection; so no more relation is claimed than there is, on average. Of pairs that have
    nothing to do with each other the sum is above 0 by chance as often as not, and its root looks
    like a relation: it counts as one only beyond ``_CLEAR`` of its standard deviations, which under
    normal noise are at most sqrt(2 sum of (variance/E')^2).

    Source: H. Cramér, Mathematical Methods of Statistics (1946), section 21.9.

    Args:
        counts: float64[a, b], estimated; may be negative.
        variance: Of each count, known from what is public.

    Returns:
        In [0, 1]; 0 for a column of one cell, and where noise alone might have shown as much.
    """
    rows, columns = counts.sum(axis=1), counts.sum(axis=0)
    n = float(counts.sum())
    degrees = min(counts.shape) - 1
    if n <= 0 or degrees < 1:
        return 0.0
    expected = np.outer(np.maximum(rows, 0), np.maximum(columns, 0)) / n
    squares = (counts - expected) ** 2 - variance
    for least in (np.sqrt(variance), n / counts.size):
        weight = np.maximum(np.maximum(expected, least), _LEAST_EXPECTED)
        excess = float((squares / weight).sum())
        noise = np.sqrt(2 * ((np.zeros_like(weight) + variance) ** 2 / weight**2).sum())
        if excess > _CLEAR * noise:
            return float(min(1.0, np.sqrt(excess / (n * degrees))))
    return 0.0
