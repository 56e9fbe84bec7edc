"""Naive Bayes with kernel likelihoods, as a function on the unit cube.

Source: Aldà and Rubinstein (2017, arXiv 1507.04499), section 6 and appendix F. For two classes

    F(y) = T_+ - T_-,  T = (m/n) prod over i of q_i(y_i),  q_i(t) = (1/m) sum of K_i(t - x_i)

over the m records of a class, and T = 0 for an empty one; y is assigned by the sign. n is
public, m is not.

**Sensitivity.** The paper's 2/n + 2 (2^d - 1) / (n b sqrt(2 pi)) takes the likelihoods as at
most 1 and the class size as n, and fails for narrow kernels: let the only record of a class,
at y, change sides, and F(y) moves by 2 K_max / n, K_max the product of the peaks of the K_i.
So it is derived here. Put a record with kernel values u_i into a class of m - 1 records with
likelihoods q_i. Then n T grows by

    G = m prod a_i - (m - 1) prod q_i,  a_i = (1 - 1/m) q_i + u_i / m.

*At a point.* G is linear in each u_i and each q_i, all between 0 and their peaks, so its
extremes are at the vertices. With all q_i at the peak and j of the u_i, G / K_max is
m (1 - 1/m)^(d - j) - (m - 1), which is in [-(d - 1), 1]; with one or more of the q_i at 0 it
is in [0, 1]. A record that changes sides moves n F by the sum of two such amounts, at most
2 max(1, d - 1) K_max; one that moves within its class, by m (prod a_i - prod a'_i), at most
d K_max. Hence S(F) = max(2, d, 2 (d - 1)) K_max / n.

*On the lattice.* Expand the first product of G into products of u_i over a set and q_i over
the rest. The coefficients of those with a u_i add up to m (1 - (1 - 1/m)^d) <= d; what is
left is -(m - 1) (1 - (1 - 1/m)^(d-1)) >= -(d - 1) times the product of the q_i. A product over
the lattice has as its norm the product of the norms, and a mean of kernels has at most the
largest norm A_i of a kernel. So |G| <= (2 d - 1) prod A_i in L1 and in L2. A record that
changes sides moves n F by twice that at most, one within its class by 2 d prod A_i. Hence
2 (2 d - 1) prod A_i / n, or S(F) at every point of the lattice if that is less. In two variables
the largest norm of G is computed from the declared cells (mechanisms.functions.kernel_pairs): in L2
at most .58 of this, in L1 much less where few cells lie on lattice points or kernels are wide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.bernstein.accuracy import bump_error
from mechanisms.bernstein.learner import LatticeSensitivity, check_binary, check_records
from mechanisms.bernstein.polynomials import lattice
from mechanisms.bernstein.unit_cube import Axis, WeightedPoints
from mechanisms.domain.columns import Column
from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.functions.kernel_pairs import largest_moves
from mechanisms.functions.kernels import ProductKernel

Floats = NDArray[np.float64]

_UNIT = 2.0**-52


@dataclass(frozen=True)
class NaiveBayes:
    """The classifier's score with public parameters.

    Attributes:
        kernel: Its factors are the kernels of the likelihoods.
        label: A column with two values; the second is the positive class. Records in its
            ``missing`` or ``other`` cell are left out.
        n_records: n, public.
        spread: As in ``KernelDensity``.

    Raises:
        ConfigError: The label has not two values.
    """

    kernel: ProductKernel
    label: Column
    n_records: int
    spread: float = 0.1

    def __post_init__(self) -> None:
        check_records(self.n_records)
        check_binary(self.label)

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.kernel.axes

    @property
    def magnitude(self) -> float:
        """|F| <= K_max, for the shares of the classes add up to at most 1."""
        return self.kernel.peak

    @property
    def rounding(self) -> float:
        """A bound on what floating point adds to F, as in mechanisms.functions.kernel_density.

        Each of the d likelihoods sums at most a term for each cell of its variable.
        """
        terms = sum(len(axis.middles) + 100 for axis in self.axes)
        return 2 * self.magnitude * terms * _UNIT

    def sensitivity(self, degree: int) -> LatticeSensitivity:
        d = len(self.axes)
        one, two = self.kernel.norms(degree)
        share = 2 * (2 * d - 1) / self.n_records
        point = max(2, d, 2 * (d - 1)) * self.kernel.peak / self.n_records
        found = LatticeSensitivity(point, share * one, share * two)
        moves = largest_moves(self.kernel, degree)
        if moves is None:
            return found
        n = self.n_records / (1 + 1e-9)
        return LatticeSensitivity(point, min(found.l1, moves.l1 / n), min(found.l2, moves.l2 / n))

    def values(self, table: ContingencyTable, degree: int) -> Floats:
        """F on the lattice, float64[(k + 1,) * d]."""
        found = WeightedPoints.of(table, [*(axis.name for axis in self.axes), self.label.name])
        total: Floats = np.zeros((degree + 1,) * len(self.axes))
        for code, sign in ((1, 1.0), (0, -1.0)):
            there = found.codes[:, -1] == code
            counts, codes = found.counts[there], found.codes[there]
            if not len(counts):
                continue
            size = float(counts.sum())
            term: Floats = np.asarray(sign * size / self.n_records)
            for index, axis in enumerate(self.axes):
                weights = np.bincount(codes[:, index], counts, len(axis.middles))
                likelihood = weights @ self.kernel.factor(index, lattice(degree)) / size
                term = np.multiply.outer(term, likelihood)
            total += term
        return total

    def bias(self, degree: int, order: int, *, worst: bool = False) -> float:
        """About the largest error of the operator on one class of the reference's spread.

        ``worst``: F is a mean of products of kernels, so no data has a larger error than a
        single product.
        """
        if worst:
            b = self.kernel.bandwidths
            return bump_error(b, degree, order, self.kernel.shape) * self.magnitude
        widths = tuple(math.hypot(sd, self.spread) for sd in self.kernel.deviations)
        height = math.prod(1 / (math.sqrt(2 * math.pi) * width) for width in widths)
        return bump_error(widths, degree, order) * height / 2
