"""How strongly two columns are related, by the noisy table of both."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_LEAST_EXPECTED = 1.0
_TOLD = 3.0
"""Standard deviations by which the squares have to pass those of noise alone to be told from it."""


def strength(counts: Floats, variance: Floats | float) -> float:
    """Cramér's V of a noisy table of two columns, less what its noise adds.

    With E the counts that independence gives for the sums of rows and columns,

        V^2 = max(0, sum of ((counts - E)^2 - variance) / E') / (n (min(a, b) - 1)),

    E' being E where that is above the standard error of the cell, below which noise decides. The
    variance of counts - E is at most that of the counts, as it is what is left of them by a
    projection; so no more relation is claimed than there is, on average. Of pairs that have
    nothing to do with each other the sum is above 0 by chance as often as not, and its root looks
    like a relation: it counts as one only beyond ``_TOLD`` of its standard deviations, which under
    normal noise are at most sqrt(2 sum of (variance/E')^2).

    Source: H. Cramér, Mathematical Methods of Statistics (1946), section 21.9.

    Args:
        counts: float64[a, b], estimated; may be negative.
        variance: Of each count, known from what is public.

    Returns:
        In [0, 1]; 0 for a column of one cell, and where noise alone might have shown as much.
    """
    rows, columns = counts.sum(axis=1), counts.sum(axis=0)
    n = float(counts.sum())
    degrees = min(counts.shape) - 1
    if n <= 0 or degrees < 1:
        return 0.0
    expected = np.outer(np.maximum(rows, 0), np.maximum(columns, 0)) / n
    weight = np.maximum(np.maximum(expected, np.sqrt(variance)), _LEAST_EXPECTED)
    excess = (((counts - expected) ** 2 - variance) / weight).sum()
    if excess <= _TOLD * np.sqrt(2 * ((np.zeros_like(weight) + variance) ** 2 / weight**2).sum()):
        return 0.0
    return float(min(1.0, np.sqrt(max(0.0, excess) / (n * degrees))))
