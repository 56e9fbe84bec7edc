"""Product kernels on the unit cube, and what one record can add to them on a lattice.

A kernel with bandwidth b is x -> K(x / b) / b in each variable, a density; its values are
non-negative, which the bounds below use.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from mechanisms.bernstein.accuracy import Shape
from mechanisms.bernstein.polynomials import MOST_DIMENSIONS, lattice
from mechanisms.bernstein.unit_cube import Axis
from mechanisms.errors import ConfigError

Floats = NDArray[np.float64]

_MOST_PAIRS = 50_000_000  # of cells, times lattice points, that are compared one by one
_CHUNK_VALUES = 1 << 20
_RELATIVE, _ABSOLUTE = 1e-9, 1e-12  # far above what rounding can lose in the sums here


@dataclass(frozen=True)
class ProductKernel:
    """A kernel with a bandwidth for each variable.

    Attributes:
        shape: Of each variable's factor.
        axes: The variables.
        bandwidths: As shares of the declared ranges, one for each variable.

    Raises:
        ConfigError: Not one to four variables, or a bandwidth that is not above 0.
    """

    shape: Shape
    axes: tuple[Axis, ...]
    bandwidths: tuple[float, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.axes) <= MOST_DIMENSIONS:
            raise ConfigError(f"A function has from 1 to {MOST_DIMENSIONS} variables.")
        if self.shape not in get_args(Shape):
            raise ConfigError(f"The kernel must be one of {', '.join(get_args(Shape))}.")
        if len(self.bandwidths) != len(self.axes):
            raise ConfigError("Give one bandwidth for each variable.", where="bandwidth")
        if not all(0 < bandwidth < math.inf for bandwidth in self.bandwidths):
            raise ConfigError("A bandwidth must be above 0.", where="bandwidth")

    @property
    def peaks(self) -> tuple[float, ...]:
        """Largest value of each factor, rounded up."""
        height = 0.75 if self.shape == "epanechnikov" else 1 / math.sqrt(2 * math.pi)
        return tuple(height / b * (1 + _RELATIVE) for b in self.bandwidths)

    @property
    def peak(self) -> float:
        """Largest value K_max, rounded up."""
        return math.prod(self.peaks)

    @property
    def deviations(self) -> tuple[float, ...]:
        """Standard deviation of each factor."""
        share = 1 / math.sqrt(5) if self.shape == "epanechnikov" else 1.0
        return tuple(share * b for b in self.bandwidths)

    def factor(self, index: int, points: Floats) -> Floats:
        """One factor around every middle: float64[n_middles, m] at points float64[m]."""
        b = self.bandwidths[index]
        t = (points - np.asarray(self.axes[index].middles)[:, None]) / b
        if self.shape == "epanechnikov":
            return np.asarray(0.75 / b * np.maximum(1 - t * t, 0.0))
        return np.asarray(np.exp(-t * t / 2) / (b * math.sqrt(2 * math.pi)))

    def largest_norms(self, degree: int, index: int) -> tuple[float, float]:
        """Largest L1 and L2 norm of one factor on {0, 1/k, .., 1} over the middles."""
        values = self.factor(index, lattice(degree))
        one, two = values.sum(axis=1).max(), math.sqrt((values**2).sum(axis=1).max())
        slack = _ABSOLUTE * (degree + 1) * self.peaks[index]
        return float(one) * (1 + _RELATIVE) + slack, two * (1 + _RELATIVE) + slack

    def norms(self, degree: int) -> tuple[float, float]:
        """Largest L1 and L2 norm of the kernel around a cell on the whole lattice."""
        found = [self.largest_norms(degree, index) for index in range(len(self.axes))]
        return math.prod(one for one, _ in found), math.prod(two for _, two in found)

    def replacement(self, degree: int) -> tuple[float, float]:
        """Largest L1 and L2 norm of K_x - K_x' on the lattice, x and x' over the cells.

        All pairs are compared where that is feasible. Otherwise, for kernels are
        non-negative, |K_x - K_x'|_1 <= |K_x|_1 + |K_x'|_1 and the square of the L2 norm is
        at most |K_x|^2 + |K_x'|^2. A record without a value counts as K_x = 0.
        """
        return _replacement(self, degree)

    def _around_cells(self, degree: int) -> Floats:
        """K_x on the lattice, one row for each cell."""
        points = lattice(degree)
        values: Floats = np.ones((1, 1))
        for index in range(len(self.axes)):
            values = np.asarray(np.kron(values, self.factor(index, points)), np.float64)
        return values

    def _pairs(self, degree: int) -> int:
        cells = math.prod(len(axis.middles) for axis in self.axes) + 1
        return int(cells**2 * (degree + 1) ** len(self.axes))


@functools.lru_cache(maxsize=1024)
def _replacement(kernel: ProductKernel, degree: int) -> tuple[float, float]:
    from scipy.spatial.distance import cdist

    one, two = kernel.norms(degree)
    bounds = 2 * one, math.sqrt(2) * two * (1 + _RELATIVE)
    if kernel._pairs(degree) > _MOST_PAIRS:
        return bounds
    rows = kernel._around_cells(degree)
    if not all(axis.complete for axis in kernel.axes):
        rows = np.vstack([rows, np.zeros(rows.shape[1])])
    largest = [0.0, 0.0]
    for block in _blocks(rows):
        largest[0] = max(largest[0], float(cdist(block, rows, "cityblock").max()))
        largest[1] = max(largest[1], float(cdist(block, rows).max()))
    slack = _ABSOLUTE * rows.shape[1] * kernel.peak
    return (
        min(largest[0] * (1 + _RELATIVE) + slack, bounds[0]),
        min(largest[1] * (1 + _RELATIVE) + slack, bounds[1]),
    )


def lattice_sum(factors: list[Floats], codes: NDArray[np.int64], weights: Floats) -> Floats:
    """Weighted sum over points of products of factors.

    Args:
        factors: For each variable float64[n_middles, k + 1], as of ``ProductKernel.factor``.
        codes: int64[K, d], of the middles.
        weights: float64[K].

    Returns:
        float64[(k + 1,) * d].
    """
    side, dimensions = factors[0].shape[1], len(factors)
    half = (dimensions + 1) // 2
    total = np.zeros((side**half, side ** (dimensions - half)))
    chunk = max(1, _CHUNK_VALUES // len(total))
    for start in range(0, len(weights), chunk):
        part = codes[start : start + chunk]
        left = _together(weights[start : start + chunk, None], factors[:half], part[:, :half])
        right = _together(np.ones((len(part), 1)), factors[half:], part[:, half:])
        total += left.T @ right
    return total.reshape((side,) * dimensions)


def _together(first: Floats, factors: list[Floats], codes: NDArray[np.int64]) -> Floats:
    """Row by row Kronecker product of factors at codes: float64[m, prod of the sizes]."""
    for index, factor in enumerate(factors):
        part = factor[codes[:, index]]
        first = (first[:, :, None] * part[:, None, :]).reshape(len(first), -1)
    return first


def _blocks(rows: Floats, size: int = 512) -> Iterator[Floats]:
    for start in itertools.count(0, size):
        if start >= len(rows):
            return
        yield rows[start : start + size]
