"""All measured tables combined: every marginal by its residuals, with exact variances.

The residual of a table on a group t of columns is the table with all other axes summed out and
every axis of t centred. Residuals of different groups are orthogonal, and together they are the
table: with K the product of the sizes of columns,

    x_Q = sum over t within Q of R_t / K(Q without t).

A table measured on c with independent noise of variance s^2 in every cell gives, for every t
within c, an unbiased R_t whose noise is that of independent cells of variance s^2 K(c without t),
centred; the noises of different t are uncorrelated. So the best combination of all tables takes
each R_t by inverse variances, and for a linear query u of x_Q

    Var = sum over t of v_t |C_t u_t|^2 / K(Q without t)^2,

where u_t sums u over the columns outside t, C_t centres every axis and 1/v_t is the sum of
1/(s_c^2 K(c without t)) over the tables c that hold t. For one cell |C_t u_t|^2 is the product
of 1 - 1/k over t. The empty residual is the number of records: known, or estimated likewise.

Source: Xiao, He, Zhang and Kifer 2023, arXiv 2305.08175, who choose what to measure by it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.errors import NotMeasuredError
from mechanisms.marginals.measurement import NoisyTable
from mechanisms.records.target_table import Floats, Group


@dataclass(frozen=True, eq=False)
class Residuals:
    """The combined residuals of all measured groups and their subgroups.

    Attributes:
        sizes: Number of codes of every column.
        values: By group the residual, of the shape of its columns.
        variances: By group the variance v_t before centring; 0 of what is known exactly.
    """

    sizes: tuple[int, ...]
    values: Mapping[Group, Floats]
    variances: Mapping[Group, float]

    def table(self, group: Group) -> Floats:
        """The estimate of a marginal, in records; unbiased, so cells may be negative.

        Raises:
            NotMeasuredError: A residual of it was not measured.
        """
        total = np.zeros([self.sizes[column] for column in group])
        for part in subgroups(group):
            self._check(part)
            total += self._spread(part, group) / self._cells_without(group, part)
        return total

    def table_variance(self, group: Group) -> float:
        """Variance of one cell of ``table``, in squared records; the same for all cells."""
        found = 0.0
        for part in subgroups(group):
            self._check(part)
            lost = math.prod(1 - 1 / self.sizes[column] for column in part)
            found += self.variances[part] * lost / self._cells_without(group, part) ** 2
        return found

    def query_variance(self, group: Group, weights: Floats) -> float:
        """Variance of the sum of weights times the cells of ``table``."""
        found = 0.0
        for part in subgroups(group):
            self._check(part)
            v = self.variances[part]
            if v:
                others = tuple(i for i, column in enumerate(group) if column not in part)
                rest = centred(weights.sum(axis=others))
                found += v * float((rest**2).sum()) / self._cells_without(group, part) ** 2
        return found

    def _check(self, part: Group) -> None:
        if part not in self.values:
            raise NotMeasuredError("No measured table holds these columns together.")

    def _cells_without(self, group: Group, part: Group) -> int:
        return math.prod(self.sizes[column] for column in group if column not in part)

    def _spread(self, part: Group, group: Group) -> Floats:
        shape = [self.sizes[column] if column in part else 1 for column in group]
        return self.values[part].reshape(shape)


def combine(
    sizes: Sequence[int],
    tables: Sequence[NoisyTable],
    *,
    n_present: int | None,
    known: Mapping[Group, NDArray[np.int64]] | None = None,
) -> Residuals:
    """Residuals of all groups that are measured or known, and of their subgroups.

    Args:
        sizes: Number of codes of every column.
        tables: Their groups ascending.
        n_present: Number of records if it is public, None if it is to be estimated.
        known: Public exact tables.
    """
    sums: dict[Group, Floats] = {}
    weights: dict[Group, float] = {}
    for table in tables:
        for part in subgroups(table.group):
            residual, cells = _residual(table.counts, table.group, part)
            weight = 1 / (table.variance * cells)
            sums[part] = sums.get(part, 0) + weight * residual
            weights[part] = weights.get(part, 0.0) + weight
    values = {part: total / weights[part] for part, total in sums.items()}
    variances = {part: 1 / weight for part, weight in weights.items()}
    for group, exact in (known or {}).items():
        for part in subgroups(group):
            values[part], variances[part] = _residual(exact.astype(np.float64), group, part)[0], 0.0
    if n_present is not None:
        values[()], variances[()] = np.array(float(n_present)), 0.0
    return Residuals(tuple(sizes), values, variances)


def subgroups(group: Group) -> list[Group]:
    """All subsets of a group, the empty one first."""
    lengths = range(len(group) + 1)
    return [part for length in lengths for part in itertools.combinations(group, length)]


def centred(table: Floats) -> Floats:
    """The table with its mean along every axis taken off, one axis after the other."""
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def _residual(table: Floats, group: Group, part: Group) -> tuple[Floats, int]:
    """The residual on a part of a table's group, and how many cells each entry sums."""
    others = tuple(i for i, column in enumerate(group) if column not in part)
    cells = math.prod(table.shape[i] for i in others)
    return centred(table.sum(axis=others)), cells
