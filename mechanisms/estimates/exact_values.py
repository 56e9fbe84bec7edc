"""Exact values of estimates, and how many intervals hold them, for the curator's report; private.

The counterpart of what a plan expects: whoever sees these figures and the release can work out
exact counts, so they are as private as the counts are, and never for a release. No statistic is
written down twice: one with a declared sensitivity is evaluated as its mechanisms
evaluate it, others are the function of joint moments that ``pair_moments`` estimates, a quantile is
read off the cells that ``noisy_quantile`` chooses from, and the coefficients of a regression follow
from the sums that ``regression_moments`` releases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.estimates.estimand import Estimand, EstimandKnobs
from statpress.mechanisms.estimates.fieller import normal_quantile
from statpress.mechanisms.estimates.noisy_quantile import OrderedCells
from statpress.mechanisms.estimates.pair_moments import moment_columns
from statpress.mechanisms.estimates.regression_moments import RegressionEstimate
from statpress.mechanisms.estimates.resampled import statistic_of
from statpress.mechanisms.estimates.statistics import MomentFormula, Scale, evaluated

LEVEL = 0.95


def total_variation(published: ArrayLike, true: ArrayLike) -> float:
    """Half the sum of absolute differences of the shares of two sets of counts, 0 to 1.

    Where one of both has no records, they are 1 apart.
    """
    first, second = (np.asarray(counts, np.float64) for counts in (published, true))
    sums = float(first.sum()), float(second.sum())
    if min(sums) <= 0:
        return 0.0 if max(sums) <= 0 else 1.0
    return float(np.abs(first / sums[0] - second / sums[1]).sum() / 2)


@dataclass(frozen=True, repr=False)
class Coverage:
    """How many intervals hold the true value; private."""

    inside: int  # intervals that do
    of: int  # of how many intervals
    level: float = LEVEL  # at which they are stated

    def __add__(self, other: Coverage) -> Coverage:
        return Coverage(self.inside + other.inside, self.of + other.of, self.level)

    @property
    def share(self) -> float:
        """NaN of none."""
        return self.inside / self.of if self.of else float("nan")

    @property
    def missed(self) -> int:
        """How many do not."""
        return self.of - self.inside

    @property
    def at_most(self) -> Fraction:
        """In which share of releases so many or more miss at most, whatever the intervals share.

        Intervals of one release share noise, so that they may miss together, and counting them as
        independent would call honest ones broken. But if each misses with probability 1 - level at
        most, the number that miss has a mean of (1 - level) times their number at most, and by
        Markov's inequality P(missed >= m) <= (1 - level) of/m, which is attained by intervals that
        miss in groups of m. Few that miss say nothing.
        """
        if not self.missed:
            return Fraction(1)
        return min(Fraction(1), (1 - Fraction(str(self.level))) * self.of / self.missed)


def coverage(true: ArrayLike, estimates: ArrayLike, errors: ArrayLike) -> Coverage:
    """How many normal intervals at ``LEVEL`` hold the true values.

    What has a standard error of 0 is known exactly, and has no interval to be counted.
    """
    exact, values, error = np.broadcast_arrays(
        *(np.asarray(array, np.float64) for array in (true, estimates, errors))
    )
    stated = error > 0
    inside = np.abs(values - exact) <= normal_quantile(LEVEL) * error
    return Coverage(int(np.count_nonzero(inside & stated)), int(np.count_nonzero(stated)))


def exact_values(
    knobs: EstimandKnobs, table: ContingencyTable, scales: Sequence[Scale]
) -> tuple[float, ...]:
    """The numbers that a product estimates, of the records that were counted; private.

    The table is of the product's columns in their order, and the scales are the mechanism's. A
    number is NaN where there is none, as a mean of no record.
    """
    estimand = Estimand.resolve(knobs, table.domain)
    statistic = estimand.statistic
    if statistic.is_quantile:
        share = knobs.q or statistic.quantile_share
        assert share is not None
        return (_quantile(estimand, table, share),)
    if statistic.several:
        coefficients = RegressionEstimate.exact_coefficients(estimand, table).tolist()
        return tuple(scale.value(each) for scale, each in zip(scales, coefficients, strict=True))
    some = estimand.of_some and not statistic.is_total
    shared = table.domain.parts > 1 and statistic.moments is not None  # n - 1 is of units
    if statistic.bounded is not None and not some and not shared:
        columns = estimand.columns(table.domain, table.cells)
        figures = evaluated(statistic_of(estimand), table.counts[None, :], columns)[0]
    else:
        assert statistic.moments is not None
        figures = _of_moments(estimand, statistic.moments, table)
    return tuple(scale.value(float(figure)) for scale, figure in zip(scales, figures, strict=True))


def _of_moments(
    estimand: Estimand, formula: MomentFormula, table: ContingencyTable
) -> NDArray[np.float64]:
    """The functions of the five means, float64[one an estimate]."""
    columns = moment_columns(estimand, table.domain, table.cells)
    x, y = columns[:, 0], columns[:, -1]
    n = table.n_records
    shares = table.counts / table.counts.sum()
    means = np.array([(shares * powers).sum() for powers in (x, y, x * x, x * y, y * y)])
    functions = formula.functions(n, formula.origin(estimand.arguments))
    return np.array([function.value(means) for function in functions])


def _quantile(estimand: Estimand, table: ContingencyTable, share: Fraction) -> float:
    """The middle of the first cell up to which the share of the records is reached."""
    column = table.domain[estimand.arguments[0].name]
    cells = OrderedCells.of(column)
    counts = np.zeros(table.domain.n_cells, np.int64)
    counts[table.cells] = table.counts
    reached = np.cumsum(counts[cells.codes])
    if not reached[-1]:
        return math.nan
    wanted = math.ceil(share * int(reached[-1]))
    return float(cells.middle[int(np.searchsorted(reached, wanted))])
