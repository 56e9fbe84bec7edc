"""Priestley-Chao kernel regression of weighted cells, as a function on [0, 1].

Source: Priestley and Chao (1972); Aldà and Rubinstein (2017, arXiv 1507.04499), section 6. With
the occupied cells x_1 < .. < x_K and l_i the mean label of the records at x_i,

    F(y) = sum over i >= 2 of min(x_i - x_(i-1), g) K(y - x_i) l_i,  K(t) = k(t / b) / b.

The paper asks that every gap be at most c/n, or nearly so: a condition on private data that
nobody can check, and "a neighbour within c/n for every record", as it is written there, leaves
gaps as wide as the range between pairs of records. Here a gap counts as g = c/n at most, so
that F is defined, and its sensitivity proven, for all data; where no gap is wider it is the
same function.

**Sensitivity.** Labels are in [-B, B]; let w be the least distance between two middles. Take one
record out of cell i. If others remain there the mean label moves by at most B, and F by at
most g B K_i. If not, the term g_i K_i l_i goes, g_i <= g, and the gap of the next cell grows to
at most g from at least min(g, w), so F moves by at most B (g K_i + (g - w)+ K_(i+1)), at every
point at once. Putting a record in is the reverse, and a replaced record does both: S(F) <= s
K_max with s = 2 B (g + (g - w)+), and on the lattice the L1 and L2 norms are at most s times
the largest norm of a K_i. A record without a value is in neither table. (s <= 4 B g, the paper's
figure, and s = 2 B w where g = w.)

With cells of width w no gap is below w, so g >= w is needed, and the sensitivity falls with the
width of the cells and not with the number of records: choose narrow cells and g = w.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.bernstein.accuracy import bump_error
from mechanisms.bernstein.learner import LatticeSensitivity
from mechanisms.bernstein.polynomials import lattice
from mechanisms.bernstein.unit_cube import Axis, WeightedPoints
from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.errors import ConfigError
from mechanisms.functions.kernels import ProductKernel

Floats = NDArray[np.float64]

_UNIT, _UP = 2.0**-52, 1 + 1e-9


@dataclass(frozen=True)
class PriestleyChao:
    """The estimate with public parameters.

    Attributes:
        kernel: Of one variable.
        label: The column of the labels; its middles count in the column's own units.
        widest_gap: g, as a share of the variable's range.
        spread: The curve is taken to have features of this width where k and h are chosen,
            as a share of the range; no guarantee depends on it.

    Raises:
        ConfigError: More than one variable, or a gap that is not above 0.
    """

    kernel: ProductKernel
    label: Axis
    widest_gap: float
    spread: float = 0.1

    def __post_init__(self) -> None:
        if len(self.kernel.axes) != 1:
            raise ConfigError("Priestley-Chao regression has one variable.")
        if not 0 < self.widest_gap <= 1:
            raise ConfigError("The widest gap must be above 0 and at most 1.", where="widest_gap")

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.kernel.axes

    @property
    def largest_label(self) -> float:
        """B."""
        return max(abs(self.label.lower), abs(self.label.upper))

    @property
    def least_distance(self) -> float:
        """Between two middles, rounded down: w."""
        gaps = np.diff(np.unique(self.axes[0].middles))
        return float(gaps.min()) / _UP if len(gaps) else 0.0

    @property
    def magnitude(self) -> float:
        """|F| <= B K_max, for the gaps add up to at most 1."""
        return self.largest_label * self.kernel.peak

    @property
    def rounding(self) -> float:
        """A bound on what floating point adds to F, as in mechanisms.functions.kernel_density.

        A mean label sums at most one term for each of the label's cells, F one for each cell
        of the variable.
        """
        terms = len(self.axes[0].middles) + len(self.label.middles) + 100
        return self.magnitude * terms * _UNIT

    def sensitivity(self, degree: int) -> LatticeSensitivity:
        one, two = self.kernel.norms(degree)
        g = self.widest_gap
        share = 2 * self.largest_label * (g + max(0.0, g - self.least_distance)) * _UP
        return LatticeSensitivity(share * self.kernel.peak, share * one, share * two)

    def values(self, table: ContingencyTable, degree: int) -> Floats:
        """F on the lattice, float64[k + 1]."""
        found = WeightedPoints.of(table, [self.axes[0].name, self.label.name])
        middles = np.asarray(self.label.middles)
        labels = self.label.lower + self.label.width * middles[found.codes[:, 1]]
        size = len(self.axes[0].middles)
        weights = np.bincount(found.codes[:, 0], found.counts, size)
        sums = np.bincount(found.codes[:, 0], found.counts * labels, size)
        places = np.asarray(self.axes[0].middles)
        occupied = np.flatnonzero(weights)
        occupied = occupied[np.argsort(places[occupied], kind="stable")]
        gaps = np.minimum(np.diff(places[occupied]), self.widest_gap)
        means = sums[occupied[1:]] / weights[occupied[1:]]
        return (gaps * means) @ self.kernel.factor(0, lattice(degree))[occupied[1:]]

    def bias(self, degree: int, order: int, *, worst: bool = False) -> float:
        """About the largest error of the operator on a feature of the reference's width.

        ``worst`` is the error on K_x, times B: F is a sum of such functions whose
        weights add up to at most B.
        """
        if worst:
            b, shape = self.kernel.bandwidths, self.kernel.shape
            return bump_error(b, degree, order, shape) * self.magnitude
        width = (self.kernel.deviations[0] ** 2 + self.spread**2) ** 0.5
        return bump_error((width,), degree, order) * self.largest_label
