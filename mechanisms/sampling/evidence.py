"""How much likelier a release is of one table than of another: what audits go by.

A mechanism with a method ``evidence`` can be audited: of two tables, it gives a function of a
release, the log of the ratio of its probabilities. It is exact for independent noise, where only
the numbers that differ between the tables count, and takes nothing of a release but what is
published.

What a mechanism would release without noise is found by releasing with ``NoNoise``, so the same
code that an audit puts to the test says where its noise lies. ``HalvedNoise`` makes the broken twin
of a mechanism that adds noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from statpress.mechanisms.sampling.randomness import Randomness

Evidence = Callable[[Any], float]
"""Of a release: the log of how much likelier it is of one table than of another."""


class NoNoise(Randomness):
    """Noise of zeros: what a mechanism would release of a public table without noise."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        return np.zeros(size, np.int64)

    def discrete_gaussian(self, sigma: Fraction, size: int) -> NDArray[np.int64]:
        return np.zeros(size, np.int64)


class HalvedNoise(Randomness):
    """Half the noise that is asked for, a fault that audits must find."""

    def __init__(self, rng: Randomness) -> None:
        super().__init__(rng.bit_generator)
        self._rng = rng

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        return self._rng.discrete_laplace(scale / 2, size)

    def discrete_gaussian(self, sigma: Fraction, size: int) -> NDArray[np.int64]:
        return self._rng.discrete_gaussian(sigma / 2, size)


def of_noise(
    exact: Iterable[ArrayLike], scale: float, *, laplace: bool = False
) -> Callable[[ArrayLike], float]:
    """The evidence of numbers with independent noise of one scale.

    Args:
        exact: The numbers without noise of the one table and of the other, of one shape.
        scale: Of the discrete Gaussian, or with ``laplace`` of exp(-|z|/scale).
        laplace: Which noise it is.

    Returns:
        A function of the noisy numbers.
    """
    first, second = map(np.ravel, exact)
    places = np.flatnonzero(first != second)
    first, second = first[places], second[places]

    def evidence(noisy: ArrayLike) -> float:
        found = np.ravel(noisy)[places]
        near, far = (np.abs(found - exact).astype(np.float64) for exact in (first, second))
        if laplace:
            return float((far - near).sum()) / scale
        return float(((far - near) * (far + near)).sum()) / (2 * scale**2)

    return evidence
