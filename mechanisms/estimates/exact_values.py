"""What an estimate is on the confidential records themselves, without noise; private.

For whoever may see it beside what was released (the curator's report), never for a release. No
statistic is written down twice: one with a declared sensitivity is evaluated as its mechanisms
evaluate it, others are the function of joint moments that ``pair_moments`` estimates, and a
quantile is read off the cells that ``noisy_quantile`` chooses from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.estimates.declared_statistics import columns_of, statistic_of
from mechanisms.estimates.estimand import Estimand
from mechanisms.estimates.knobs import EstimandKnobs
from mechanisms.estimates.noisy_quantile import OrderedCells
from mechanisms.estimates.pair_moments import moment_columns
from mechanisms.estimates.statistics.moment_formula import MomentFormula
from mechanisms.estimates.terms import Scale
from mechanisms.inference.statistics import evaluated


def exact_values(
    knobs: EstimandKnobs, table: ContingencyTable, scales: Sequence[Scale]
) -> tuple[float, ...]:
    """The numbers that a product estimates, of the records that were counted.

    Args:
        knobs: What the config says of the product.
        table: Of the product's columns in their order; private.
        scales: Of each number from columns in [0, 1] to its own units, as the mechanism has them.

    Returns:
        One for each scale; NaN where there is none, as a mean of no record.
    """
    estimand = Estimand.resolve(knobs, table.domain)
    statistic = estimand.statistic
    if statistic.is_quantile:
        share = knobs.q or statistic.quantile_share
        assert share is not None
        return (_quantile(estimand, table, share),)
    some = bool(estimand.kept) and not statistic.is_total
    if statistic.bounded is not None and not some:
        columns = columns_of(estimand, table.domain, table.cells)
        found = evaluated(statistic_of(estimand), table.counts[None, :], columns)[0]
    else:
        assert statistic.moments is not None
        found = _of_moments(estimand, statistic.moments, table)
    return tuple(scale.value(float(each)) for scale, each in zip(scales, found, strict=True))


def _of_moments(
    estimand: Estimand, formula: MomentFormula, table: ContingencyTable
) -> NDArray[np.float64]:
    """The functions of the five means, float64[one an estimate]."""
    columns = moment_columns(estimand, table.domain, table.cells)
    x, y = columns[:, 0], columns[:, -1]
    n = table.n_records
    means = np.array([(table.counts * each).sum() / n for each in (x, y, x * x, x * y, y * y)])
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
