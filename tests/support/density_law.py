"""The exact law of one draw of a density sampler, for tests."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.tables.density import HistogramKernel, Kernel


def value_of(kernel: Kernel, origin: int, cell: int) -> Fraction:
    """K_origin(cell)."""
    if not isinstance(kernel, HistogramKernel):
        return Fraction(int(kernel.table[origin, cell]), 1 << kernel.bits)
    same = kernel.bins == kernel.bins[cell]
    return Fraction(1, int(same.sum())) if same[origin] else Fraction(0)


def cell_probabilities(counts: Codes, kernel: Kernel, uniform: Fraction) -> list[Fraction]:
    """The probability of each cell in one draw: a mixture of the kernel and the uniform law."""
    n, s = int(counts.sum()), kernel.n_cells
    occupied = [(int(x), int(counts[x])) for x in np.flatnonzero(counts)]
    return [
        (1 - uniform) * sum((h * value_of(kernel, x, y) for x, h in occupied), Fraction(0)) / n
        + uniform / s
        for y in range(s)
    ]
