"""Kernel density estimate of weighted cells, as a function on the unit cube.

Source: Aldà and Rubinstein (2017, arXiv 1507.04499), section 6.

    F(y) = (1/n) sum over records of K(y - x)

with a product kernel K and the public number of records n. Adjacency: replace-one. A record
that moves from x to x' changes F by (K(y - x') - K(y - x)) / n, which does not depend on the
other records. So the sensitivity at a point is at most K_max / n, and that of the vector of
F on the lattice is exactly the largest norm of (K_x' - K_x) / n over pairs of declared
cells. A record without a value counts as K_x = 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.bernstein.accuracy import bump_error
from mechanisms.bernstein.learner import LatticeSensitivity, check_records
from mechanisms.bernstein.polynomials import lattice
from mechanisms.bernstein.unit_cube import Axis, WeightedPoints
from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.functions.kernels import ProductKernel, lattice_sum

Floats = NDArray[np.float64]

_UNIT = 2.0**-52


@dataclass(frozen=True)
class KernelDensity:
    """The estimate with public parameters.

    Attributes:
        kernel: With its variables and bandwidths.
        n_records: n, public.
        spread: Standard deviation of the bell that stands for the data where k and h are
            chosen, as a share of the range; no guarantee depends on it.
    """

    kernel: ProductKernel
    n_records: int
    spread: float = 0.1

    def __post_init__(self) -> None:
        check_records(self.n_records)

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.kernel.axes

    @property
    def magnitude(self) -> float:
        """0 <= F <= K_max."""
        return self.kernel.peak

    @property
    def rounding(self) -> float:
        """A bound on what floating point adds to F.

        A factor is in error by at most 16 units of its peak (8 of them the exponential's, of
        an argument whose own error t e^-t keeps below 2), d factors by 16 d; a sum of K
        non-negative terms in any order by K units of the sum, and the sum is at most
        K_max. A unit is 2^-53 and K at most the number of records and of cells.
        """
        cells = math.prod(len(axis.middles) for axis in self.axes)
        return self.kernel.peak * (min(self.n_records, cells) + 100 * len(self.axes)) * _UNIT

    @property
    def shift(self) -> float:
        """How far F moves at an end of the range with every record moved there from the other.

        Such moves add up, as ``bernstein_accuracy.least_error`` asks.
        """
        far = [np.ptp(axis.middles) for axis in self.axes]
        ends = [Axis("", 0.0, 1.0, (0.0, float(gap)), True) for gap in far]
        kernel = ProductKernel(self.kernel.shape, tuple(ends), self.kernel.bandwidths)
        factors = [kernel.factor(index, np.zeros(1))[:, 0] for index in range(len(ends))]
        near, distant = (math.prod(float(f[i]) for f in factors) for i in (0, 1))
        return (near - distant) / self.n_records

    def sensitivity(self, degree: int) -> LatticeSensitivity:
        one, two = self.kernel.replacement(degree)
        return LatticeSensitivity(
            point=self.kernel.peak / self.n_records,
            l1=one / self.n_records,
            l2=two / self.n_records,
        )

    def values(self, table: ContingencyTable, degree: int) -> Floats:
        """F on the lattice, float64[(k + 1,) * d]."""
        found = WeightedPoints.of(table, [axis.name for axis in self.axes])
        factors = [self.kernel.factor(i, lattice(degree)) for i in range(len(self.axes))]
        weights = found.counts.astype(np.float64)
        return lattice_sum(factors, found.codes, weights) / self.n_records

    def bias(self, degree: int, order: int, *, worst: bool = False) -> float:
        """About the largest error of the operator on a bell of the reference's spread.

        ``worst`` is the error on K_x only. F is a mean of such functions, so that no data
        has a larger one, but for the fineness of the grid it is looked for on.
        """
        if worst:
            b = self.kernel.bandwidths
            return bump_error(b, degree, order, self.kernel.shape) * self.kernel.peak
        widths = tuple(math.hypot(sd, self.spread) for sd in self.kernel.deviations)
        height = math.prod(1 / (math.sqrt(2 * math.pi) * width) for width in widths)
        return bump_error(widths, degree, order) * height
