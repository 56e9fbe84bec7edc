"""Where mechanisms take their random bits from: always an argument, never a global."""

from __future__ import annotations

import abc
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Progress = Callable[[int], None]
"""Called with the number of units of work done since the last call."""


class Randomness(np.random.Generator, abc.ABC):
    """A generator of random bits that also draws exact discrete noise.

    ``tasks.release.entropy`` builds the production form, whose bits are cryptographic.
    """

    @abc.abstractmethod
    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """Integers z with probability proportional to exp(-|z| / scale), int64[size]."""

    @abc.abstractmethod
    def discrete_gaussian(self, sigma: Fraction, size: int) -> NDArray[np.int64]:
        """Integers z with probability proportional to exp(-z**2 / (2 sigma**2)), int64[size]."""
