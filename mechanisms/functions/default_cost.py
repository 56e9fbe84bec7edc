"""The cost of a classifier whose config leaves it open, from public quantities only.

With a small C the term |w|^2 / 2 wins: the score hardly depends on the variables, and may have one
sign everywhere. What one record can change grows in proportion to C, and the noise with it, while
the score grows ever slower. The best C lies between, and depends on the data, which stay private.

In their place stand two *reference populations*, spread evenly over the cube, that a plane
divides: at x the second class has the probability eta(x) = 1/(1 + exp(-20 sum(x_i - t) / sqrt(d))),
with t = 1/2, and t = 1/5 for classes of unequal size. For each C the minimiser f of a population's
own risk, C E[L] + |w|^2 / 2, goes through the operator of the release; the noise has at x the
deviation s(x) that it will have. Assigning by the sign then is wrong with probability

    E[eta Phi(-f/s) + (1 - eta) Phi(f/s)],

its sampling error apart. C is the power of 2 from 1 on at which this is least, on average over
both. No guarantee depends on it: the noise is calibrated to whatever C is.

Measured over n = 1000 to 100,000, epsilon = .1 to 3 and populations that are not the references
(tests/benchmarks/test_default_cost.py): the share of records assigned wrongly is on average 2 to
6 % above that of the best C in hindsight; at C = 1 it is twice that for linear log odds.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mechanisms.bernstein.lattice_release import BernsteinMechanism
from mechanisms.bernstein.polynomials import iterated_basis, lattice
from mechanisms.errors import ConfigError
from mechanisms.functions.empirical_risk import EmpiricalRisk
from mechanisms.functions.risk_solver import RiskLoss, Rows, minimiser

Floats = NDArray[np.float64]

_EXPONENTS = range(17)
_BOUNDARIES, _STEEPNESS = (0.2, 0.5), 20.0
_SIDE = {1: 31, 2: 9, 3: 5, 4: 4}  # places of the reference along each variable
_TOLERANCE = 1e-6  # of the minimisers, times C
_ERFC = np.vectorize(math.erfc, otypes=[np.float64])  # SciPy's takes longer to import than all


def at_default_cost(at: Callable[[float], BernsteinMechanism]) -> BernsteinMechanism:
    """The release at the cost of the least expected error.

    Every second power of 2 is tried, then those next to the best.

    Args:
        at: The release of a classifier of this cost, calibrated to its budget.

    Raises:
        ConfigError: No cost can be had, for the reason that the least one gives.
        InfeasibleBudgetError: No noise meets the budget.
    """
    tried: dict[int, tuple[float, BernsteinMechanism]] = {}

    def attempt(exponent: int) -> None:
        if exponent not in _EXPONENTS or exponent in tried:
            return
        try:
            found = at(2.0**exponent)
        except ConfigError:
            if exponent == _EXPONENTS[0]:
                raise
            return  # no accuracy can be proven for so large a cost
        tried[exponent] = expected_wrong(found), found

    for exponent in _EXPONENTS[::2]:
        attempt(exponent)
    best = min(tried, key=lambda exponent: tried[exponent][0])
    for exponent in (best - 1, best + 1):
        attempt(exponent)
    return min(tried.values(), key=lambda entry: entry[0])[1]


def expected_wrong(mechanism: BernsteinMechanism) -> float:
    """Expected share of the references that the sign of a released classifier assigns wrongly."""
    learner = mechanism.learner
    assert isinstance(learner, EmpiricalRisk) and learner.loss != "squared"
    d, side = len(learner.axes), _SIDE[len(learner.axes)]
    basis = iterated_basis(mechanism.degree, mechanism.order, _middles(side))
    one = np.sqrt((basis**2).sum(axis=0))
    spread = functools.reduce(np.multiply.outer, [one] * d).ravel()
    laplace = mechanism.noise == "laplace"
    sd = spread * mechanism.noise_scale * (math.sqrt(2) if laplace else 1.0)
    around = _kernel(_grid(lattice(mechanism.degree), d), _grid(_middles(side), d), learner.width)
    wrong = []
    for boundary in _BOUNDARIES:
        values = around @ _minimiser(learner.loss, learner.width, d, learner.cost, boundary)
        values = values.reshape((mechanism.degree + 1,) * d)
        for _ in range(d):  # each product moves the axis it contracts to the end
            values = np.tensordot(values, basis, axes=(0, 0))
        second, eta = _ERFC(-values.ravel() / (sd * math.sqrt(2))) / 2, _second_class(d, boundary)
        wrong.append(float((eta * (1 - second) + (1 - eta) * second).mean()))
    return float(np.mean(wrong))


def _middles(side: int) -> Floats:
    return (np.arange(side) + 0.5) / side


def _grid(points: Floats, d: int) -> Floats:
    """All combinations of the points, float64[m**d, d]."""
    grids = np.meshgrid(*[points] * d, indexing="ij")
    return np.stack([grid.ravel() for grid in grids], axis=1)


def _second_class(d: int, boundary: float) -> Floats:
    """The second class's probability at the places of a reference."""
    along = (_grid(_middles(_SIDE[d]), d) - boundary).sum(axis=1) / math.sqrt(d)
    found: Floats = 1 / (1 + np.exp(-_STEEPNESS * along))
    return found


def _kernel(one: Floats, two: Floats, width: float | None) -> Floats:
    """K between points float64[m, d] and float64[l, d]."""
    if width is None:
        return np.asarray(one @ two.T + 1.0)
    squares = ((one[:, None] - two) ** 2).sum(axis=2)
    return np.asarray(np.exp(-squares / (2 * width**2)))


@functools.lru_cache(maxsize=512)
def _minimiser(loss: RiskLoss, width: float | None, d: int, cost: float, boundary: float) -> Floats:
    """Coefficients of the minimiser of a reference's risk, one for each of its places."""
    places, eta = _grid(_middles(_SIDE[d]), d), _second_class(d, boundary)
    twice = np.concatenate([places, places])
    rows = Rows(
        gram=_kernel(twice, twice, width),
        labels=np.repeat([1.0, -1.0], len(places)),
        weights=np.concatenate([eta, 1 - eta]) * (cost / len(places)),
    )
    found = minimiser(rows, loss, _TOLERANCE * cost)
    return np.asarray(found[: len(places)] + found[len(places) :])
