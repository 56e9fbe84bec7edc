"""Neighbouring cells of an ordered column are alike: a prior for shares and for deviations.

The cells of an ordered column (a number, a date or declared ordered categories) have correlation
exp(-(i - j)^2 / (2 l^2)) in part; ``other`` and ``missing`` cells and those of other columns have
none. How much the shares of a column follow this is integrated over a grid by the evidence of the
noisy shares themselves (empirical Bayes), so a column with spikes is left as it was measured.
"""

from __future__ import annotations

import math

import numpy as np

from mechanisms.domain.columns import Categorical, Column, Ordinal
from mechanisms.records.target_table import Floats

_FEWEST, _MOST = 4, 64
_PART, _LENGTH = 0.5, 1.5  # of the prior of deviations
_ROUGH = (0.003, 0.01, 0.02, 0.04, 0.08, 0.16)
_SMOOTH = (0.01, 0.03, 0.06, 0.12)
_LENGTHS = (1.0, 2.0, 4.0)


def is_smoothed(column: Column) -> bool:
    """Whether a column has an order, and few enough cells to go by it."""
    ordered = not isinstance(column, Categorical) or isinstance(column, Ordinal)
    return ordered and column.n_values >= _FEWEST and column.size <= _MOST


def similarity(column: Column) -> Floats:
    """Prior correlations float64[k, k] of the deviations of a column's cells."""
    if not is_smoothed(column):
        return np.eye(column.size)
    return (1 - _PART) * np.eye(column.size) + _PART * _kernel(column, _LENGTH)


def smoothed_shares(column: Column, shares: Floats, variance: float) -> Floats:
    """Posterior mean float64[k] of an ordered column's shares; of sum 1, cells may be negative.

    Args:
        column: One that ``is_smoothed``.
        shares: float64[k], unbiased noisy shares of sum 1.
        variance: Of their noise, before centring.
    """
    k = column.size
    centre = np.eye(k) - 1 / k
    deviations = centre @ shares
    kernels = [(0.0, centre)]
    kernels += [(b, centre @ _kernel(column, ell) @ centre) for b in _SMOOTH for ell in _LENGTHS]
    logs, means = [], []
    for rough in _ROUGH:
        for smooth, kernel in kernels:
            prior = rough**2 * centre + smooth**2 * kernel
            values, vectors = np.linalg.eigh(prior + variance * centre)
            values, vectors = values[1:], vectors[:, 1:]  # without the constant
            z = vectors.T @ deviations
            logs.append(-0.5 * float((np.log(values) + z**2 / values).sum()))
            means.append(prior @ (vectors @ (z / values)))
    weights = np.exp(np.array(logs) - max(logs))
    weights /= math.fsum(weights)
    found: Floats = 1 / k + (weights[:, None] * np.array(means)).sum(axis=0)
    return found


def _kernel(column: Column, length: float) -> Floats:
    found = np.eye(column.size)
    place = np.arange(column.n_values)
    near = np.exp(-((place[:, None] - place) ** 2) / (2 * length**2))
    found[: column.n_values, : column.n_values] = near
    return found
