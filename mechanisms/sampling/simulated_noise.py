"""Noise of a known seed, for planning: what a mechanism would do to a public table."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mechanisms.sampling.randomness import Randomness

_SEED = 20_100_301


class SimulatedRandomness(Randomness):
    """The same noise every time, rounded where the exact noise is discrete.

    It hides nothing, and so must never meet private counts.
    """

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(_SEED))

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """The difference of two geometric numbers."""
        stop = -np.expm1(-1 / float(scale))
        return np.subtract(self.geometric(stop, size), self.geometric(stop, size))

    def discrete_gaussian(self, sigma: Fraction, size: int) -> NDArray[np.int64]:
        """A normal number, rounded."""
        return np.rint(self.normal(0.0, float(sigma), size)).astype(np.int64)
