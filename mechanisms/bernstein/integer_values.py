"""Values on a lattice as integers, and how far one record can move all of them together.

Part of the Bernstein mechanism (mechanisms.bernstein.lattice_release). A value is computed in
floating point, in error by at most e for all data, and rounded to the nearest multiple of a grid
step g, a power of 2, by which the division is exact. So it is off by at most e + g/2, and with m
lattice points a replaced record moves the vector of integers by

    |change|_1 <= (l1 + m (g + 2 e)) / g,   |change|_2 <= (l2 + sqrt(m) (g + 2 e)) / g,

l1 and l2 the norms of the change of F (``Learner.sensitivity``). The left sides are an integer
and the root of an integer, so the right sides are rounded down to such. g is so small that
this adds some 2^-12.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mechanisms.bernstein.accuracy import Noise
from mechanisms.bernstein.learner import Learner
from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.errors import RecordsError

_FINE_BITS = 12  # the rounding adds about 2^-12 to the sensitivity
_MOST_BITS = 60  # of the largest value in grid steps


def step_bits(learner: Learner, degree: int) -> int:
    """The power of 2 of the grid: fine against the sensitivity, and 64 bits hold all values."""
    points = (degree + 1) ** len(learner.axes)
    found = learner.sensitivity(degree)
    share = min(found.l1 / points, found.l2 / math.sqrt(points))
    most = _MOST_BITS - math.frexp(learner.magnitude)[1]
    return min(_FINE_BITS - math.frexp(share)[1] + 1, most) if share > 0 else most


def integer_sensitivity(
    learner: Learner, degree: int, noise: Noise, unit_records: int = 1
) -> Fraction:
    """L1 norm, or the square of the L2 norm, of the change of the integers; an integer."""
    if unit_records < 1:
        raise RecordsError("unit_records must be positive.")
    points = (degree + 1) ** len(learner.axes)
    found, bits = learner.sensitivity(degree), step_bits(learner, degree)
    step = Fraction(2) ** -bits
    slack = step + 2 * Fraction(learner.rounding)
    point = unit_records * Fraction(found.point)
    if noise == "laplace":
        l1 = min(unit_records * Fraction(found.l1), points * point)
        return Fraction(math.floor((l1 + points * slack) / step))
    root = Fraction(math.isqrt(points << 64) + 1, 1 << 32)
    l2 = min(unit_records * Fraction(found.l2), root * point)
    return Fraction(math.floor(((l2 + root * slack) / step) ** 2))


def integer_values(learner: Learner, table: ContingencyTable, degree: int) -> NDArray[np.int64]:
    """F on the lattice in steps of the grid, rounded: int64[(k + 1,) * d]; private."""
    values = np.nan_to_num(learner.values(table, degree), nan=0.0)
    bounded = np.clip(values, -learner.magnitude, learner.magnitude)
    return np.rint(np.ldexp(bounded, step_bits(learner, degree))).astype(np.int64)
