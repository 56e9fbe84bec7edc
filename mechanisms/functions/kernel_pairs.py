"""How far one record moves a product of two likelihoods on a lattice: a certificate without data.

Part of mechanisms.functions.naive_bayes, in two variables. A record with kernel values u_1, u_2
that enters a class of m - 1 records with likelihoods q_1, q_2 adds to n T, on the whole lattice,

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
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mechanisms.bernstein.polynomials import lattice
from mechanisms.functions.kernels import ProductKernel

Floats = NDArray[np.float64]

_MOST_CELLS = 400  # of an axis, of which all pairs are compared
_RELATIVE, _ABSOLUTE = 1e-9, 1e-12  # far above what rounding can lose in the sums here


class Moves(NamedTuple):
    """Largest L1 and L2 norm on the lattice of what one record moves n F by; upper bounds."""

    l1: float
    l2: float


@functools.lru_cache(maxsize=256)
def largest_moves(kernel: ProductKernel, degree: int) -> Moves | None:
    """Over all tables, n and classes; None where there are too many cells, or not two variables."""
    if len(kernel.axes) != 2 or max(len(axis.middles) for axis in kernel.axes) > _MOST_CELLS:
        return None
    values = [kernel.factor(index, lattice(degree)) for index in (0, 1)]
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


def largest_norms(values: Floats) -> tuple[Floats, Floats]:
    """Largest L1 and L2 norms of rows, and of differences of two rows: float64[2] each."""
    sizes = np.array([np.abs(values).sum(axis=1).max(), np.sqrt((values**2).sum(axis=1).max())])
    apart = np.zeros(2)
    for row in values:
        moved = values - row
        found = np.abs(moved).sum(axis=1).max(), np.sqrt((moved**2).sum(axis=1).max())
        apart = np.maximum(apart, found)
    return sizes, apart


def _of_sums(values: Floats) -> Floats:
    """(U, Q, N) float64[k, 3] for the q of every row and the u on its hull."""
    sums, found = values.sum(axis=1), []
    for row, q in zip(values, sums.tolist(), strict=True):
        missed = np.maximum(row - values, 0.0).sum(axis=1)
        found += [(sums[u], q, missed[u]) for u in _hull(missed, sums)]
    return np.array(found)


def _of_products(values: Floats) -> Floats:
    """(a, b, c) float64[k, 3], likewise."""
    gram = values @ values.T
    squares, found = np.diag(gram), []
    for row, b in zip(gram, squares.tolist(), strict=True):
        found += [(squares[u], b, row[u]) for u in _hull(row, squares)]
    return np.array(found)


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
