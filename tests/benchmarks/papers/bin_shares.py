"""Shares of ordered bins: the private table they come from, and what releases say of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.postprocessing.consistency import project_to_simplex
from statpress.mechanisms.postprocessing.covariance import DebiasedTable
from statpress.mechanisms.tables.density import HistogramKernel, density_epsilon, sample_density

Shares = NDArray[np.float64]
Counts = NDArray[np.int64]


def table_of(counts: Counts) -> ContingencyTable:
    """The table with these counts int64[s] of the bins 0..s-1."""
    domain = Domain((Integer(name="bin", lower=0, upper=len(counts) - 1),))
    occupied = np.flatnonzero(counts)
    return ContingencyTable(domain, occupied, counts[occupied])


def unbiased_shares(estimates: DebiasedTable, n_records: int) -> Shares:
    """float64[s], as estimated: some may be negative, and the sum need not be 1."""
    counts = np.full(estimates.domain.n_cells, estimates.undrawn_estimate)
    counts[estimates.cells] = estimates.estimates
    return counts / n_records


def projected_shares(estimates: DebiasedTable, n_records: int) -> Shares:
    """float64[s], the nearest that are not negative and add up to 1, or the mechanism's own."""
    if estimates.projected is not None:
        return estimates.projected / n_records
    nearest = project_to_simplex(
        estimates.estimates,
        n_records,
        n_cells=estimates.domain.n_cells,
        absent=estimates.undrawn_estimate,
    )
    counts = np.full(estimates.domain.n_cells, nearest.absent_value)
    counts[estimates.cells] = nearest.values
    return counts / n_records


def smoothed_histogram(
    epsilon: float, records: int, bins: int, *, n_records: int
) -> Callable[[Counts, np.random.Generator], Shares]:
    """Wasserman and Zhou's Theorem 8: draws from the histogram and the uniform, epsilon-DP.

    The share of the uniform is the least that (8) allows, rounded up to 2^-40.
    """
    least = bins / (bins + n_records * math.expm1(epsilon / records))
    uniform, kernel = Fraction(math.ceil(least * 2**40), 2**40), HistogramKernel(np.arange(bins))
    spent = density_epsilon(kernel, uniform, records, n_records=n_records).upper
    if spent > epsilon:
        raise ArithmeticError(f"the smoothed histogram costs {spent}, more than {epsilon}")

    def release(counts: Counts, rng: np.random.Generator) -> Shares:
        return sample_density(counts, kernel, uniform, records, rng) / records

    return release
