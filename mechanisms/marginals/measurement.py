"""The private steps: noisy tables of groups of columns, and noisy scores of pairs.

**Units and noise.** Counts are multiples of a grid of 2**-20 and get discrete Gaussian noise on
it, which is a post-processing of normal noise (mechanisms.sampling.gaussian_noise); each step
spends its squared sensitivity over the variance of that normal from the filter, first.

**Sensitivity** (adjacency: replace-one, a unit holds c records).

* *A table.* The unit's records leave at most c counts and enter at most c: with l_j and e_j the
  records that leave and enter cell j, the change is e - l, both of sum at most c (less, where
  records become present or absent). The square of its norm is |e|^2 + |l|^2 - 2 e.l <= 2 c^2,
  attained when all move from one cell to another.
* *A score* is the L1 distance of a private table and a table of integers that is public by then.
  It changes by at most the L1 norm of the table's change, 2 c. P scores: squared norm 4 c^2 P.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.coded_columns import CodedColumns
from mechanisms.marginals.gdp_filter import GdpFilter
from mechanisms.records.target_table import Floats, Group
from mechanisms.sampling.gaussian_noise import equivalent_variance, scale_for
from mechanisms.sampling.randomness import Progress, Randomness

GRID = 2**20
"""Grid steps to a count."""
MOST_RECORDS = 2**40
"""Records whose counts, with noise, stay within 64 bits on the grid."""


@dataclass(frozen=True, eq=False)
class NoisyTable:
    """A table as it was drawn; public.

    Attributes:
        group: Positions of its columns.
        scale: Of the discrete Gaussian noise, in grid steps.
        values: int64 of the shape of the columns' sizes: grid steps.
    """

    group: Group
    scale: Fraction
    values: NDArray[np.int64]

    @property
    def counts(self) -> Floats:
        """Noisy counts, in records."""
        return self.values / GRID

    @property
    def variance(self) -> float:
        """Of the noise of a count, in squared records."""
        return float(self.scale / GRID) ** 2


@dataclass(frozen=True, eq=False)
class NoisyScores:
    """Distances of pairs from independence as they were drawn; public.

    Attributes:
        pairs: Positions of their columns.
        scale: Of the discrete Gaussian noise, in grid steps.
        values: int64[P]: grid steps.
    """

    pairs: tuple[Group, ...]
    scale: Fraction
    values: NDArray[np.int64]

    @property
    def distances(self) -> Floats:
        """Noisy L1 distances float64[P], in records."""
        return self.values / GRID

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise, in records."""
        return float(self.scale / GRID)


def table_sensitivity_squared(unit_records: int) -> int:
    """Squared Euclidean sensitivity of one table, in squared records."""
    return 2 * unit_records**2


def score_sensitivity_squared(unit_records: int, n_pairs: int) -> int:
    """Squared Euclidean sensitivity of the scores of some pairs, in squared records."""
    return (2 * unit_records) ** 2 * n_pairs


def scale_of(sensitivity_squared: int, amount: Fraction) -> Fraction:
    """Scale in grid steps of noise that spends at most an amount of mu^2.

    Raises:
        RecordsError: The noise does not suit the grid.
    """
    return scale_for(sensitivity_squared * GRID**2 / amount)


def measure_tables(
    coded: CodedColumns,
    groups: Sequence[Group],
    amounts: Sequence[Fraction],
    *,
    unit_records: int,
    budget: GdpFilter,
    rng: Randomness,
    progress: Progress | None = None,
) -> tuple[NoisyTable, ...]:
    """Noisy tables of groups of columns.

    Args:
        coded: The private records.
        groups: Public by now.
        amounts: Of mu^2 that each table may spend, public by now.
        unit_records: Most records of a unit.
        budget: Spent from before any noise is drawn.
        rng: Source of noise.
        progress: Called with the number of cells of each table.

    Raises:
        InsufficientBudgetError: The amounts pass what is left.
    """
    squared = table_sensitivity_squared(unit_records)
    scales = [scale_of(squared, amount) for amount in amounts]
    for scale in scales:
        budget.spend(squared * GRID**2, equivalent_variance(scale))
    found = []
    for group, scale, table in zip(groups, scales, coded.tables(groups), strict=True):
        noise = rng.discrete_gaussian(scale, table.size)
        found.append(NoisyTable(group, scale, table * GRID + noise.reshape(table.shape)))
        if progress is not None:
            progress(table.size)
    return tuple(found)


def score_pairs(
    coded: CodedColumns,
    references: dict[Group, NDArray[np.int64]],
    amount: Fraction,
    *,
    unit_records: int,
    budget: GdpFilter,
    rng: Randomness,
) -> NoisyScores:
    """Noisy L1 distances of the tables of pairs from public tables of integers.

    Args:
        coded: The private records.
        references: For each pair the table that it is compared with.
        amount: Of mu^2, for all scores together.
        unit_records: Most records of a unit.
        budget: Spent from before any noise is drawn.
        rng: Source of noise.

    Raises:
        InsufficientBudgetError: The amount passes what is left.
    """
    pairs = tuple(references)
    squared = score_sensitivity_squared(unit_records, len(pairs))
    scale = scale_of(squared, amount)
    budget.spend(squared * GRID**2, equivalent_variance(scale))
    tables = zip(pairs, coded.tables(pairs), strict=True)
    exact = [int(np.abs(table - references[pair]).sum()) for pair, table in tables]
    noise = rng.discrete_gaussian(scale, len(pairs))
    return NoisyScores(pairs, scale, np.array(exact, dtype=np.int64) * GRID + noise)
