"""Product kernels on the unit cube, and the densities, regressions and classifiers made of them.

A kernel with bandwidth b is x -> K(x / b) / b in each variable, a density; its values are
non-negative, which the bounds below use. Adjacency: replace-one.

Product of two or three likelihoods
-----------------------------------
How far one record moves it on a lattice, without data (``largest_moves``). A record with kernel
values u_1, u_2 that enters a class of m - 1 records with likelihoods q_1, q_2 adds to n T, on the
whole lattice,

    G = u_1 u_2 - t (u_1 - q_1)(u_2 - q_2),  t = 1 - 1/m.

(Expand m a_1 a_2 - (m - 1) q_1 q_2 with a_i = t q_i + u_i/m.) G is affine in q_1, in q_2 and in t,
and a norm is convex, so that the norm of G is largest where q_1 and q_2 are each the kernel around
one cell and t is 0 or 1. At t = 0 it is that of one kernel; at t = 1

    G = u_1 q_2 + q_1 u_2 - q_1 q_2.

*L2.* With a_i, b_i, c_i the products <u_i, u_i>, <q_i, q_i>, <u_i, q_i> the square of its norm is

    a_1 b_2 + b_1 a_2 + b_1 b_2 + 2 c_1 c_2 - 2 c_1 b_2 - 2 b_1 c_2.

*L1.* Where x = u_1/q_1 and y = u_2/q_2, |x + y - 1| is at most x + y - 1 + 2 max(1 - x, 0)
max(1 - y, 0). So with U_i, Q_i the sums of u_i and q_i over the lattice and N_i that of max(q_i -
u_i, 0) the norm is at most

    U_1 Q_2 + Q_1 U_2 - Q_1 Q_2 + 2 N_1 N_2,

with equality where kernels do not overlap or are the same. Both are bilinear in what belongs to
either variable, and for a given q_1 and whatever belongs to the other variable they are convex in
the rest: the L2 form is linear in (a_1, c_1) and does not fall with a_1, the L1 form is linear in
(U_1, N_1) and falls with neither. So only cells u_1 at the corners of an upper hull are looked at.

A record that changes sides moves n F by two such amounts, hence twice the largest. One that moves
within its class moves n T by (1 - t)(u_1 u_2 - u_1' u_2') + t (q_2 (u_1 - u_1') + q_1 (u_2 -
u_2')), at most A_2 D_1 + A_1 D_2 in norm, A_i the largest norm of a kernel and D_i that of a
difference of two. A record without a value adds one amount or none.

*Three variables*, in L2. With d_i = u_i - q_i and s = 1/m

    G = m prod (q_i + s d_i) - (m - 1) prod q_i
      = prod q_i + sum d_i q_j q_k + s sum d_i d_j q_k + s^2 d_1 d_2 d_3,

of degree 2 in s. In Bernstein's form on [0, 1] it is a mean of its coefficients, so that its norm
is at most the largest of theirs:

    g_0 = sum u_i q_j q_k - 2 q_1 q_2 q_3,
    g_1 = (sum u_i u_j q_k - q_1 q_2 q_3)/2,  g_2 = u_1 u_2 u_3,

the first of which large classes attain. Each is affine in every q_i and every u_i, so that again
each q_i is the kernel around one cell, and the square of the norm is a form in (a_i, b_i, c_i),
linear in what belongs to each variable, of which for a given q_i only the upper hull is looked at.
A record that moves within its class moves n T by at most the sum of D_i A_j A_k, by exchanging one
factor of the first product after the other.

Kernel density estimate
-----------------------
Source: Aldà and Rubinstein (2017, arXiv 1507.04499), section 6.

    F(y) = (1/n) sum over records of K(y - x)

with a product kernel K and the public number of records n. A record that moves from x to x' changes
F by (K(y - x') - K(y - x)) / n, which does not depend on the other records. So the sensitivity at a
point is at most K_max / n, and that of the vector of F on the lattice is exactly the largest norm
of (K_x' - K_x) / n over pairs of declared cells. A record without a value counts as K_x = 0.

Priestley-Chao kernel regression
--------------------------------
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

Naive Bayes with kernel likelihoods
-----------------------------------
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

*On the lattice.* Expand the first product of G into products of u_i over a set and q_i over the
rest. The coefficients of those with a u_i add up to m (1 - (1 - 1/m)^d) <= d; what is left is -(m -
1) (1 - (1 - 1/m)^(d-1)) >= -(d - 1) times the product of the q_i. A product over the lattice has as
its norm the product of the norms, and a mean of kernels has at most the largest norm A_i of a
kernel. So |G| <= (2 d - 1) prod A_i in L1 and in L2. A record that changes sides moves n F by twice
that at most, one within its class by 2 d prod A_i. Hence 2 (2 d - 1) prod A_i / n, or S(F) at every
point of the lattice if that is less. In two variables the largest norm of G is computed from the
declared cells (above): in L2 at most .58 of this, in L1 much less where few cells lie on lattice
points or kernels are wide. In three it is computed in L2.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Column
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.functions.learner import (
    Axis,
    LatticeSensitivity,
    Shape,
    WeightedPoints,
    bump_error,
    check_axes,
    check_binary,
    check_records,
)
from statpress.mechanisms.functions.polynomials import Floats, lattice

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
        check_axes(self.axes)
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
        norms = [self.largest_norms(degree, index) for index in range(len(self.axes))]
        return math.prod(one for one, _ in norms), math.prod(two for _, two in norms)

    def replacement(self, degree: int, most_pairs: int = _MOST_PAIRS) -> tuple[float, float]:
        """Largest L1 and L2 norm of K_x - K_x' on the lattice, x and x' over the cells.

        All pairs are compared if they are at most ``most_pairs``, times lattice points. Otherwise,
        for kernels are non-negative, |K_x - K_x'|_1 <= |K_x|_1 + |K_x'|_1 and the square of the L2
        norm is at most |K_x|^2 + |K_x'|^2. A record without a value counts as K_x = 0.
        """
        return _replacement(self, degree, most_pairs)

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
def _replacement(kernel: ProductKernel, degree: int, most_pairs: int) -> tuple[float, float]:
    from scipy.spatial.distance import cdist

    one, two = kernel.norms(degree)
    bounds = 2 * one, math.sqrt(2) * two * (1 + _RELATIVE)
    if kernel._pairs(degree) > most_pairs:
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
    """Weighted sum over points of products of factors: float64[(k + 1,) * d].

    Args:
        factors: For each variable float64[n_middles, k + 1], as of ``ProductKernel.factor``.
        codes: int64[K, d], of the middles.
        weights: float64[K].
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


_MOST_CELLS = 400  # of an axis, of which all pairs are compared
_MOST_TRIPLES = 300_000_000  # of pairs on the hulls of three variables


class Moves(NamedTuple):
    """Largest L1 and L2 norm on the lattice of what one record moves n F by; upper bounds."""

    l1: float
    l2: float


@functools.lru_cache(maxsize=256)
def largest_moves(kernel: ProductKernel, degree: int) -> Moves | None:
    """Over all tables, n and classes; None for too many cells, or not two or three variables."""
    d = len(kernel.axes)
    if d not in (2, 3) or max(len(axis.middles) for axis in kernel.axes) > _MOST_CELLS:
        return None
    values = [kernel.factor(index, lattice(degree)) for index in range(d)]
    if d == 3:
        return _moves_of_three(kernel, values)
    around = [largest_norms(v) for v in values]
    one = np.array([[0, 1, 0], [1, -1, 0], [0, 0, 2]])  # of U, Q, N
    two = np.array([[0, 1, 0], [1, 1, -2], [0, -2, 2]])  # of a, b, c
    l1 = _largest([_of_sums(v) for v in values], one)
    l2 = np.sqrt(max(_largest([_of_products(v) for v in values], two), 0.0))
    (size, shift), (other_size, other_shift) = around
    same_class = other_size * shift + size * other_shift  # elementwise: L1, then L2
    single = size * other_size
    slack = _ABSOLUTE * values[0].shape[1] * values[1].shape[1] * kernel.peak
    both = np.maximum(2 * np.maximum((l1, l2), single), same_class) * (1 + _RELATIVE) + slack
    return Moves(float(both[0]), float(both[1]))


def _moves_of_three(kernel: ProductKernel, values: list[Floats]) -> Moves | None:
    """``largest_moves`` in three variables, in L2 only."""
    sides = [_of_products(v) for v in values]
    if math.prod(map(len, sides)) > _MOST_TRIPLES:
        return None
    sizes, shifts = np.array([[norms[1] for norms in largest_norms(v)] for v in values]).T
    single = float(sizes.prod())
    square = max(
        _largest_of_three(sides, _square_of(g)) for g in ((-2, 1, 0, 0), (-0.5, 0, 0.5, 0))
    )
    enters = max(math.sqrt(max(square, 0.0)), single)
    same_class = single * float((shifts / sizes).sum()) if single else 0.0
    slack = _ABSOLUTE * math.prod(v.shape[1] for v in values) * kernel.peak
    return Moves(math.inf, max(2 * enters, same_class) * (1 + _RELATIVE) + slack)


def _square_of(weights: tuple[float, ...]) -> Floats:
    """The form of a, b, c in three variables of a sum of products with j factors u, by j."""
    form = np.zeros((3, 3, 3))
    products = list(itertools.product((0, 1), repeat=3))
    for one, other in itertools.product(products, repeat=2):
        place = tuple(2 if x != y else 1 - x for x, y in zip(one, other, strict=True))
        form[place] += weights[sum(one)] * weights[sum(other)]
    return form


def _largest_of_three(sides: list[Floats], form: Floats) -> float:
    """Largest value of the form over what belongs to each of three variables."""
    first, second, third = sides
    return max(
        float((second @ matrix @ third.T).max()) for matrix in np.tensordot(first, form, (1, 0))
    )


def largest_norms(values: Floats) -> tuple[Floats, Floats]:
    """Largest L1 and L2 norms of rows, and of differences of two rows: float64[2] each."""
    sizes = np.array([np.abs(values).sum(axis=1).max(), np.sqrt((values**2).sum(axis=1).max())])
    apart = np.zeros(2)
    for row in values:
        moved = values - row
        norms = np.abs(moved).sum(axis=1).max(), np.sqrt((moved**2).sum(axis=1).max())
        apart = np.maximum(apart, norms)
    return sizes, apart


def _of_sums(values: Floats) -> Floats:
    """(U, Q, N) float64[k, 3] for the q of every row and the u on its hull."""
    sums, triples = values.sum(axis=1), []
    for row, q in zip(values, sums.tolist(), strict=True):
        missed = np.maximum(row - values, 0.0).sum(axis=1)
        triples += [(sums[u], q, missed[u]) for u in _hull(missed, sums)]
    return np.array(triples)


def _of_products(values: Floats) -> Floats:
    """(a, b, c) float64[k, 3] for the q of every row and the u on its hull."""
    gram = values @ values.T
    squares, triples = np.diag(gram), []
    for row, b in zip(gram, squares.tolist(), strict=True):
        triples += [(squares[u], b, row[u]) for u in _hull(row, squares)]
    return np.array(triples)


def _hull(x: Floats, height: Floats) -> list[int]:
    """Places on the upper hull of the points (x, height), by Andrew's chain; ends included."""
    chain: list[int] = []
    for place in np.lexsort((height, x)).tolist():
        while len(chain) > 1:
            before, last = chain[-2:]
            turn = (x[last] - x[before]) * (height[place] - height[before])
            if turn < (height[last] - height[before]) * (x[place] - x[before]):
                break
            chain.pop()
        chain.append(place)
    return chain


def _largest(sides: list[Floats], form: Floats) -> float:
    """Largest value of the bilinear form over both sides."""
    left, right = sides
    most = -np.inf
    for start in range(0, len(left), 1024):
        most = max(most, float((left[start : start + 1024] @ form @ right.T).max()))
    return most


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

        Such moves add up, as ``least_error`` asks.
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
        points = WeightedPoints.of(table, [axis.name for axis in self.axes])
        factors = [self.kernel.factor(i, lattice(degree)) for i in range(len(self.axes))]
        weights = points.counts.astype(np.float64)
        return lattice_sum(factors, points.codes, weights) / self.n_records

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


_UNIT_STEP, _UP = 2.0**-52, 1 + 1e-9


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
        """A bound on what floating point adds to F, by the units of ``KernelDensity.rounding``.

        A mean label sums at most one term for each of the label's cells, F one for each cell of the
        variable.
        """
        terms = len(self.axes[0].middles) + len(self.label.middles) + 100
        return self.magnitude * terms * _UNIT_STEP

    def sensitivity(self, degree: int) -> LatticeSensitivity:
        one, two = self.kernel.norms(degree)
        g = self.widest_gap
        share = 2 * self.largest_label * (g + max(0.0, g - self.least_distance)) * _UP
        return LatticeSensitivity(share * self.kernel.peak, share * one, share * two)

    def values(self, table: ContingencyTable, degree: int) -> Floats:
        """F on the lattice, float64[k + 1]."""
        points = WeightedPoints.of(table, [self.axes[0].name, self.label.name])
        middles = np.asarray(self.label.middles)
        labels = self.label.lower + self.label.width * middles[points.codes[:, 1]]
        size = len(self.axes[0].middles)
        weights = np.bincount(points.codes[:, 0], points.counts, size)
        sums = np.bincount(points.codes[:, 0], points.counts * labels, size)
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
        """A bound on what floating point adds to F, by the units of ``KernelDensity.rounding``.

        Each of the d likelihoods sums at most a term for each cell of its variable.
        """
        terms = sum(len(axis.middles) + 100 for axis in self.axes)
        return 2 * self.magnitude * terms * _UNIT

    def sensitivity(self, degree: int) -> LatticeSensitivity:
        d = len(self.axes)
        one, two = self.kernel.norms(degree)
        share = 2 * (2 * d - 1) / self.n_records
        point = max(2, d, 2 * (d - 1)) * self.kernel.peak / self.n_records
        bound = LatticeSensitivity(point, share * one, share * two)
        moves = largest_moves(self.kernel, degree)
        if moves is None:
            return bound
        n = self.n_records / (1 + 1e-9)
        return LatticeSensitivity(point, min(bound.l1, moves.l1 / n), min(bound.l2, moves.l2 / n))

    def values(self, table: ContingencyTable, degree: int) -> Floats:
        """F on the lattice, float64[(k + 1,) * d]."""
        points = WeightedPoints.of(table, [*(axis.name for axis in self.axes), self.label.name])
        total: Floats = np.zeros((degree + 1,) * len(self.axes))
        for code, sign in ((1, 1.0), (0, -1.0)):
            there = points.codes[:, -1] == code
            counts, codes = points.counts[there], points.codes[there]
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
