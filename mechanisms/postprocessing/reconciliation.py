"""One consistent set of tables from the products of a release, with standard errors.

Post-processing of what is already public, so it costs no privacy.

**Weights.** mechanisms.postprocessing.consistency is the best linear unbiased estimate if the
variances are known. Those of drawn records are not: they follow the counts, so a marginal cell
drawn too rarely by chance would seem the more precise for it and pull the pool downwards (the bias
of Neyman's modified chi-squared), and the errors stated would be too small. So each table is
weighted by one variance that is known before any data is read, the average over its cells. Then
every estimate is a linear function of the released ones with fixed coefficients, hence exactly
unbiased whatever the data, at the price of some variance where cells are uneven; and the closed
form holds, however many constraints there are.

**Standard errors** are propagated through these coefficients from the noise of every cell:

* noise added to each cell is independent, with a known variance;
* m records drawn from probabilities p have counts that are multinomial, which is
  the law of independent Poisson counts given their sum. With V = diag(N**2 p / m) the
  estimates have the covariance V - V 1 1' V / (1' V 1). Cells that were not drawn share one
  estimate, and have the variance at the least probability there is. The
  p are those of mechanisms.postprocessing.debias, so these standard errors are estimates
  themselves.

The adjusted table i is sum_k A_ik y_k. An entry of A_ik depends only on the set S of shared
columns in which its two cells agree,

    a(S) = sum over T of coefficient(T) * product over columns of T of ([in S] - 1/size),

so that sums of a(S)**2 v over all cells of a table are sums of its marginals v(T), whose
coefficients are the Moebius transform of a**2. The cost is that of the closed form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mechanisms.domain.domain import Domain
from mechanisms.postprocessing.consistency import (
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
from mechanisms.postprocessing.debias import DebiasedTable

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
        """A table with independent noise on every cell.

        Raises:
            ValueError: There are more than 10**7 cells, or some are impossible or absent.
        """
        estimates, errors = _dense(table)
        weight = max(float(np.mean(errors**2)), _LEAST_VARIANCE)
        return cls(table.domain, estimates, errors**2, weight, drawn=False)

    @classmethod
    def of_draws(
        cls, table: DebiasedTable, pseudocount: Fraction, *, records: int, n_records: int
    ) -> ReleasedTable:
        """The debiased table of ``records`` drawn records.

        Raises:
            ValueError: There are more than 10**7 cells, or some are impossible or absent.
        """
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
    found = np.zeros_like(tables[index].estimates)
    for k, table in enumerate(tables):
        v = table.variances
        names = own if k == index else tuple(n for n in own if n in table.domain.names)
        entries = _entries(tables, index, k, names, shared)
        linear = _sums(v, table.domain, domain, names, entries)
        found += _sums(v, table.domain, domain, names, entries**2)
        if k == index:
            linear = linear + v
            found += (1 + 2 * float(entries[(1,) * len(names)])) * v
        if table.drawn:
            found -= linear**2 / v.sum()
    return np.maximum(found, 0.0)


def _entries(
    tables: Sequence[ReleasedTable], i: int, k: int, names: Names, shared: Shared
) -> Floats:
    """Entries of A_ik, less the identity if i = k: float64[2, ...], 1 where cells agree."""
    domain = tables[i].domain
    coefficients = np.zeros((2,) * len(names))
    for subset, indices in shared:
        if i not in indices or k not in indices:
            continue
        # The weights of the pool, see mechanisms.postprocessing.consistency; the total is known.
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
