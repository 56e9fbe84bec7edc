"""Tables that meet given margins: iterative proportional fitting.

Source: Deming and Stephan 1940, doi 10.1214/aoms/1177731829; the limit is the table nearest to
the start in Kullback-Leibler divergence (Csiszar 1975, doi 10.1214/aop/1176996454).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mechanisms.marginals.measurement import Floats

Booleans = NDArray[np.bool_]
_FLOOR = 1e-4  # of the independent table: no possible cell starts below this
_TOLERANCE = 1e-7


def fit_pair(
    table: Floats, rows: Floats, columns: Floats, possible: Booleans, rounds: int = 200
) -> Floats:
    """The two-way table nearest to a start that has these margins.

    Args:
        table: float64[a, b]; what is negative counts as next to nothing.
        rows: float64[a], at least 0.
        columns: float64[b], of the same sum.
        possible: bool[a, b]: other cells are 0.
        rounds: At most.
    """
    total = rows.sum()
    if not total:
        return np.zeros_like(table)
    found = np.maximum(table, _FLOOR * np.multiply.outer(rows, columns) / total) * possible
    for _ in range(rounds):
        found *= _ratio(columns, found.sum(axis=0))
        sums = found.sum(axis=1)
        found *= _ratio(rows, sums)[:, None]
        if np.abs(sums - rows).sum() <= _TOLERANCE * total:
            break
    return found


def fit_triple(pairs: Sequence[Floats], rounds: int = 30) -> Floats:
    """The three-way table of maximum entropy with three given two-way margins.

    Args:
        pairs: Of axes (0, 1), (0, 2) and (1, 2), with common one-way margins.
        rounds: At most.
    """
    first, second, third = pairs
    single = first.sum(axis=1)
    start = _ratio(np.ones(1), single)
    found = first[:, :, None] * second[:, None, :] * start[:, None, None]
    for _ in range(rounds):
        sums = found.sum(axis=0)
        missed = np.abs(sums - third).sum()
        found *= _ratio(third, sums)[None]
        found *= _ratio(first, found.sum(axis=2))[:, :, None]
        found *= _ratio(second, found.sum(axis=1))[:, None, :]
        if missed <= 1e-4 * third.sum():
            break
    return found


def _ratio(wanted: Floats, found: Floats) -> Floats:
    """wanted / found, 0 where nothing is found."""
    return np.divide(wanted, found, out=np.zeros(found.shape), where=found > 0)
