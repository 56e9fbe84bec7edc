"""The exact law of one draw of a density sampler, for tests."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.tables.density import Kernel


def cell_probabilities(counts: Codes, kernel: Kernel, uniform: Fraction) -> list[Fraction]:
    """The probability of each cell in one draw: a mixture of the kernel and the uniform law."""
    n, s = int(counts.sum()), kernel.n_cells
    occupied = [(int(x), int(counts[x])) for x in np.flatnonzero(counts)]
    return [
        (1 - uniform) * sum((h * kernel.value(x, y) for x, h in occupied), Fraction(0)) / n
        + uniform / s
        for y in range(s)
    ]
