"""Noise from which it is known what was drawn for what."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from statpress.tasks.release.entropy import SeededRandomness


class Numbered(SeededRandomness):
    """Noise that is the number of its draw, from which it is known what was drawn once."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(1))
        self.scales: list[Fraction] = []

    def discrete_gaussian(self, sigma: Fraction, size: int) -> NDArray[np.int64]:
        first = len(self.scales)
        self.scales += [sigma] * size
        return np.arange(first, first + size)


Drawn = dict[int, tuple[int, Fraction]]
"""By number of a draw the exact count that it is added to, and the variance of its noise."""
