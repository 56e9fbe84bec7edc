"""The private steps of ``marginals``: noisy tables and noisy scores, within one filter.

What noisy scores say of how far pairs are from independence.

The score of a pair is its L1 distance from the product of the noisy one-way tables, so it holds
the true distance L, what the noise of the one-ways adds (the bias b) and noise of its own. With
N(sqrt(L^2 + b^2), s^2) as likelihood, the distribution of L over all pairs is estimated from the
scores themselves by expectation maximisation on a grid (nonparametric maximum likelihood, Kiefer
and Wolfowitz 1956, doi 10.1214/aoms/1177728066), and each L by its posterior mean.

A filter for Gaussian differential privacy: what adaptive steps may spend in all.

A step with Euclidean sensitivity D and normal noise of variance s^2 in each coordinate is
D/s-GDP. If the steps, each chosen after looking at the results of those before, are such that the
sum of their D^2/s^2 never passes mu^2, then all of them together are mu-GDP (Smith and Thakurta
2022, arXiv 2210.17520, Theorem 1, whose filter loses nothing against a composition fixed in
advance).

The private steps: noisy tables of groups of columns, and noisy scores of pairs.

**Units and noise.** Counts are multiples of a grid of 2**-20 and get discrete Gaussian noise on
it, which is a post-processing of normal noise (mechanisms.sampling.randomness); each step
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

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.coded_columns import CodedColumns
from statpress.mechanisms.errors import InsufficientBudgetError, RecordsError
from statpress.mechanisms.marginals.target_tables import Floats, Group
from statpress.mechanisms.sampling.randomness import (
    Progress,
    Randomness,
    equivalent_variance,
    scale_for,
)

_POINTS, _ROUNDS = 80, 60


def score_bias(n: float, shares: Floats, sigma: float) -> float:
    """About the distance from the product that the noise of one column's one-way makes."""
    return 0.8 * float(np.minimum(sigma, n * shares + 0.4 * sigma).sum())


def expected_distances(scores: Floats, biases: Floats, sigma: float) -> Floats:
    """Posterior mean float64[P] of every pair's distance from independence, at least 1."""
    top = max(float(scores.max()), 3 * sigma)
    points = np.linspace(0.0, top, _POINTS)
    means = np.sqrt(points**2 + biases[:, None] ** 2)
    logs = -0.5 * ((scores[:, None] - means) / sigma) ** 2
    likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
    prior = np.full(_POINTS, 1 / _POINTS)
    for _ in range(_ROUNDS):
        posterior = likelihood * prior
        posterior /= posterior.sum(axis=1, keepdims=True)
        prior = posterior.mean(axis=0)
    posterior = likelihood * prior
    posterior /= posterior.sum(axis=1, keepdims=True)
    # Sums in a fixed order, whatever the number of threads.
    found: Floats = np.maximum((posterior * points).sum(axis=1), 1.0)
    return found


def pair_bias(one: float, other: float) -> float:
    """The bias of a pair from those of its columns."""
    return math.hypot(one, other)


_BITS = 256  # every spending is rounded up to a multiple of 2**-256


class GdpFilter:
    """Holds a fixed mu^2 and refuses any step that would pass it.

    Attributes:
        mu_squared: All that may ever be spent.
    """

    def __init__(self, mu_squared: Fraction) -> None:
        if not isinstance(mu_squared, Fraction) or mu_squared < 0:
            raise RecordsError("mu squared must be a fraction of at least 0.")
        self._mu_squared = mu_squared
        self._spent = Fraction(0)

    @property
    def mu_squared(self) -> Fraction:
        """All that may ever be spent."""
        return self._mu_squared

    @property
    def spent(self) -> Fraction:
        """What was spent, rounded up."""
        return self._spent

    @property
    def remaining(self) -> Fraction:
        """What may still be spent."""
        return self._mu_squared - self._spent

    def spend(self, sensitivity_squared: int | Fraction, variance: Fraction) -> None:
        """Spend sensitivity^2 / variance, before the noise of that variance is drawn.

        Args:
            sensitivity_squared: Squared Euclidean sensitivity, in the units of the variance.
            variance: Of the equivalent normal noise in each coordinate.

        Raises:
            InsufficientBudgetError: It would pass mu^2; nothing is spent then.
            RecordsError: The sensitivity is negative or the variance not positive, or one of
                them is not exact.
        """
        if not isinstance(sensitivity_squared, int | Fraction) or not isinstance(
            variance, int | Fraction
        ):
            raise RecordsError("A filter takes exact numbers only.")
        if sensitivity_squared < 0 or variance <= 0:
            raise RecordsError("A sensitivity is at least 0, and a variance above 0.")
        amount = Fraction(sensitivity_squared) / variance
        rounded = Fraction(-(-amount.numerator * 2**_BITS // amount.denominator), 2**_BITS)
        if rounded > self.remaining:
            raise InsufficientBudgetError(
                "A step would pass the budget of its mechanism.",
                remaining=self.remaining,
                requested=rounded,
                next_step="Report this: its steps were planned to fit.",
            )
        self._spent += rounded


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
    """Scale in grid steps of noise that spends at most an amount of mu^2."""
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
    """Noisy tables of groups of columns."""
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
    """Noisy L1 distances of the tables of pairs from public tables of integers."""
    pairs = tuple(references)
    squared = score_sensitivity_squared(unit_records, len(pairs))
    scale = scale_of(squared, amount)
    budget.spend(squared * GRID**2, equivalent_variance(scale))
    tables = zip(pairs, coded.tables(pairs), strict=True)
    exact = [int(np.abs(table - references[pair]).sum()) for pair, table in tables]
    noise = rng.discrete_gaussian(scale, len(pairs))
    return NoisyScores(pairs, scale, np.array(exact, dtype=np.int64) * GRID + noise)
