"""Non-negative tables that agree: the nearest to estimates, in weighted squares.

Post-processing of what is already public, so it costs no privacy.

Minimise the sum of (x_i - y_i)**2 / variance_i over tables x_i >= 0 that agree on every
marginal they share and add up to the total. Without x >= 0 this is
mechanisms.postprocessing.consistency, a map P. With multipliers m_i >= 0 of x_i >= 0, in units of
x, the dual has the gradient x(m) = P(y + m) in the norm of the weights, and since P is a projection
plus a constant, steps of length 1 are safe:

    m <- max(m - x(m), 0),

which is Dykstra's alternating projection (Boyle and Dykstra 1986, doi
10.1007/978-1-4613-9940-7_3). It is accelerated with momentum, given up whenever it points uphill
(Beck and Teboulle 2009, doi 10.1137/080716542; O'Donoghue and Candes 2015, arXiv 1204.3982). There
is always a solution, since uniform tables agree, and it is unique.

It is approached, not reached: what is below 0 after the last step is moved within each table by
the projection onto the simplex, and by as much the tables may disagree. Steps end when one
moves at most 10**-9 of the total in every table (so that no more than that is below 0), which
takes tens to hundreds of them, and after a thousand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mechanisms.postprocessing.consistency import Floats, NoisyTable, make_consistent
from mechanisms.postprocessing.simplex import project_to_simplex

_TOLERANCE = 1e-9
_MOST_STEPS = 1000


def project_consistently(tables: Sequence[NoisyTable], *, total: float) -> list[Floats]:
    """The nearest non-negative tables that agree and add up to the total.

    Source: module text.

    Args:
        tables: In any number and overlap.
        total: At least 0.

    Returns:
        Of each table float64[as its estimates], at least 0, with the sum ``total`` exactly
        (see ``project_to_simplex``); shared marginals agree to about 10**-9 of the total, or to
        what a thousand steps gave: check with ``disagreement`` where it matters.

    Raises:
        ValueError: As ``make_consistent`` and ``project_to_simplex``.
    """
    if total == 0:
        return [np.zeros_like(table.estimates) for table in tables]
    last = multipliers = [np.zeros_like(table.estimates) for table in tables]
    momentum = 1.0
    for _ in range(_MOST_STEPS):
        lifted = [
            NoisyTable(table.domain, table.estimates + m, table.variance)
            for table, m in zip(tables, multipliers, strict=True)
        ]
        found = [table.estimates for table in make_consistent(lifted, total=total)]
        stepped = [np.maximum(m - x, 0) for m, x in zip(multipliers, found, strict=True)]
        moved = [np.abs(new - m).sum() for new, m in zip(stepped, multipliers, strict=True)]
        if max(moved, default=0.0) <= _TOLERANCE * total:
            break
        uphill = math.fsum(
            float(((m - new) * (new - old)).sum()) / table.variance
            for m, new, old, table in zip(multipliers, stepped, last, tables, strict=True)
        )
        momentum = 1.0 if uphill > 0 else momentum
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        part, momentum = (momentum - 1) / following, following
        multipliers = [new + part * (new - old) for new, old in zip(stepped, last, strict=True)]
        last = stepped
    return [project_to_simplex(x.ravel(), total).values.reshape(x.shape) for x in found]
