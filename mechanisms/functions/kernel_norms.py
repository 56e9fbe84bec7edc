"""Norms of a Gaussian kernel on the grid, and what the operator leaves of it."""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from mechanisms.bernstein.polynomials import iterated_basis, lattice

Floats = NDArray[np.float64]
_PLACES = {1: 401, 2: 65, 3: 25, 4: 13}


def bumps(one: Floats, two: Floats, width: float) -> Floats:
    """Values of the kernel around some points at others: float64[m, k]."""
    t = (one[:, None] - two) / width
    return np.asarray(np.exp(-t * t / 2))


@functools.lru_cache(maxsize=1024)
def line_norms(width: float, degree: int) -> tuple[float, float]:
    """Sum of one variable's kernel between lattice points, and the largest eigenvalue."""
    gram = bumps(lattice(degree), lattice(degree), width)
    return float(gram.sum()), float(np.linalg.eigvalsh(gram)[-1])


def _power(factor: Floats, times: int) -> Floats:
    """A product of one factor for each variable: float64[m] to float64[(m,) * times]."""
    found = factor
    for _ in range(times - 1):
        found = np.multiply.outer(found, factor)
    return found


@functools.lru_cache(maxsize=4096)
def operator_error(width: float, d: int, degree: int, order: int, worst: bool) -> float:
    """The ``bias`` of a Gaussian kernel for R = 1."""
    points, places = lattice(degree), np.linspace(0, 1, _PLACES[d])
    basis, around = iterated_basis(degree, order, places), bumps(points, places, width)
    if worst:
        crosses = _power((basis * around).sum(axis=0), d)
        squares = _power((basis * (bumps(points, points, width) @ basis)).sum(axis=0), d)
        return math.sqrt(max(float((1 - 2 * crosses + squares).max()), 0.0))
    error = np.zeros((len(places),) * d)
    for sign, centre in ((1, np.array([0.25])), (-1, np.array([0.75]))):
        error += sign * _power(bumps(centre, places, width)[0], d)
        error -= sign * _power(bumps(centre, points, width)[0] @ basis, d)
    return float(np.abs(error).max()) / 2
