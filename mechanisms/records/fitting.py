"""Tables that meet given margins: iterative proportional fitting.

Source: Deming and Stephan 1940, doi 10.1214/aoms/1177731829; the limit is the table nearest to
the start in Kullback-Leibler divergence (Csiszar 1975, doi 10.1214/aop/1176996454).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mechanisms.records.target_table import Floats

Booleans = NDArray[np.bool_]
_FLOOR = 1e-4  # of the independent table: no possible cell starts below this
_TOLERANCE, _MISSED = 1e-7, 1e-4


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
    found: Floats = np.maximum(table, _FLOOR * np.multiply.outer(rows, columns) / total)
    found *= possible
    for _ in range(rounds):
        found *= _ratio(columns, found.sum(axis=0))
        sums = found.sum(axis=1)
        found *= _ratio(rows, sums)[:, None]
        if np.abs(sums - rows).sum() <= _TOLERANCE * total:
            break
    return found


def fit_margins(
    table: Floats, margins: Mapping[tuple[int, ...], Floats], rounds: int = 30
) -> Floats:
    """The table nearest to a start that has the given margins.

    Args:
        table: float64, at least 0, of any number of axes.
        margins: By axes, ascending; consistent with each other.
        rounds: At most.
    """
    found = table.copy()
    for _ in range(rounds):
        missed = 0.0
        for axes, wanted in margins.items():
            others = tuple(axis for axis in range(found.ndim) if axis not in axes)
            sums = found.sum(axis=others)
            missed += float(np.abs(sums - wanted).sum())
            shape = [found.shape[axis] if axis in axes else 1 for axis in range(found.ndim)]
            found *= _ratio(wanted, sums).reshape(shape)
        if missed <= _MISSED * float(found.sum()):
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
    start = first[:, :, None] * second[:, None, :]
    start *= _ratio(np.ones(len(single)), single)[:, None, None]
    return fit_margins(start, {(1, 2): third, (0, 1): first, (0, 2): second}, rounds)


def _ratio(wanted: Floats, found: Floats) -> Floats:
    """Wanted / found, 0 where nothing is found."""
    return np.divide(wanted, found, out=np.zeros(found.shape), where=found > 0)
