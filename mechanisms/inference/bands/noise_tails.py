"""Tails of the discrete noise on one cell, as computed as they are drawn.

The noise is symmetric with one peak: exp(-|z|/scale) or exp(-z^2/(2 scale^2)) over the integers.
Every figure is P(Z >= k) or more. That of Laplace noise is in closed form. Of the Gaussian it is
summed over the integers up to a scale of 2^12; above, with G standard normal,

    P(Z >= k) = sum over j >= k of exp(-j^2/2s^2)/(normalising sum) <= P(s G >= k - 1)  for k >= 1,

as the terms decrease and the normalising sum is at least s sqrt(2 pi) (Poisson summation), and at
least P(s G >= k), but for a factor within 10^-2000 of 1, from which P(Z >= k) follows for k <= 0.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_SUMMED = 2.0**12
_REACH = 37.0  # deviations beyond which the terms are not doubles


@dataclass(frozen=True)
class DiscreteNoise:
    """Noise on one cell.

    Attributes:
        scale: In records.
        laplace: Whether it is Laplace; else Gaussian.
    """

    scale: float
    laplace: bool = False

    @property
    def sd(self) -> float:
        """Its standard deviation, at most, in records."""
        if not self.laplace:
            return self.scale
        return math.sqrt(2) * math.exp(-0.5 / self.scale) / -math.expm1(-1 / self.scale)

    def at_least(self, k: NDArray[np.int64]) -> Floats:
        """P(Z >= k), or a little more, float64 of the shape of k."""
        k = np.asarray(k, np.int64)
        above = self._at_least(np.maximum(k, 1), 1)
        return np.where(k > 0, above, 1 - self._at_least(np.maximum(1 - k, 1), 0))

    def _at_least(self, k: NDArray[np.int64], more: int) -> Floats:
        """P(Z >= k) for k >= 1; of a large scale a little more if ``more`` is 1, less if 0."""
        if self.laplace:
            ratio = math.exp(-1 / self.scale)
            return np.asarray(np.exp(-k / self.scale) / (1 + ratio))
        if self.scale > _SUMMED:
            from scipy.special import ndtr

            return np.asarray(ndtr(-(k - more) / self.scale))
        tails = _gaussian_tails(self.scale)
        return np.asarray(np.where(k < len(tails), tails[np.minimum(k, len(tails) - 1)], 0.0))

    def masses(self, reach: int) -> Floats:
        """P(Z = k) for k from -reach to reach, float64[2 reach + 1]."""
        k = np.abs(np.arange(-reach, reach + 1, dtype=np.float64))
        terms = np.exp(-k / self.scale) if self.laplace else np.exp(-((k / self.scale) ** 2) / 2)
        return np.asarray(terms / self._normalising())

    def _normalising(self) -> float:
        if self.laplace:
            return (1 + math.exp(-1 / self.scale)) / -math.expm1(-1 / self.scale)
        k = np.arange(1, math.ceil(_REACH * self.scale) + 2, dtype=np.float64)
        return 1 + 2 * float(np.sum(np.exp(-((k / self.scale) ** 2) / 2)))

    def quantile(self, tail: float) -> int:
        """The least k >= 1 with P(Z >= k) at most ``tail``."""
        low, high = 0, 1
        while float(self.at_least(np.array([high]))[0]) > tail:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            fits = float(self.at_least(np.array([middle]))[0]) <= tail
            low, high = (low, middle) if fits else (middle, high)
        return high


@functools.lru_cache(maxsize=8)
def _gaussian_tails(scale: float) -> Floats:
    """P(Z >= k) by k, summed from the far end."""
    k = np.arange(math.ceil(_REACH * scale) + 2, dtype=np.float64)
    terms = np.exp(-((k / scale) ** 2) / 2)
    sums = np.cumsum(terms[::-1])[::-1]
    found: Floats = sums / (2 * sums[0] - 1)
    return found
