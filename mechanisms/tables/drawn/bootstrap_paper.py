"""The bootstrapping paper's own calibration (Theorem 2, Corollary 3), for comparison.

Theorem 2 asks, for some gamma in (0, 1), that L <= m <= U with

    L = 2/gamma^2 log(2/delta),  U = epsilon / ((1/N + 2 gamma) log((k + 1)/k)).

It is a sufficient condition only: the true cost of its parameters, by the exact
accountant, is far lower, and that is what is charged.
"""

from __future__ import annotations

import math
from fractions import Fraction

from mechanisms.errors import InfeasibleBudgetError

_GAMMAS = tuple(10.0**-i for i in range(1, 13))


def corollary_3(
    gamma: float, epsilon: float, delta: float, *, n_records: int, n_cells: int
) -> tuple[int, int]:
    """Pseudocount and records of the recipe below Corollary 3 at a given gamma.

    The pseudocount is the positive root k0 of the corollary's quadratic, rounded
    up (at least 2, as the theorem asks), and the records are floor(U).
    """
    least = 2 / gamma**2 * (math.log(2) - math.log(delta))
    a2 = epsilon * n_cells
    a1 = epsilon * n_records - 2 * n_cells * gamma * least
    a0 = -(2 * n_records * gamma + 1) * least
    root = math.sqrt(a1 * a1 - 4 * a2 * a0)
    k0 = (root - a1) / (2 * a2) if a1 <= 0 else 2 * -a0 / (root + a1)
    k = max(2, math.ceil(k0))
    return k, _most(k, gamma, epsilon, n_records=n_records, n_cells=n_cells)


def theorem_2_records(
    pseudocount: float, epsilon: float, delta: float, *, n_records: int, n_cells: int
) -> int:
    """Most records that Theorem 2 allows at a given pseudocount >= 2; 0 if none.

    U falls in gamma, so the best gamma is the least at which L <= U, the positive
    root of epsilon gamma^2 - 2 a gamma - a/N with a = 2 log(2/delta) log((k+1)/k).
    """
    if pseudocount < 2:
        return 0
    total = n_records + pseudocount * n_cells
    a = 2 * (math.log(2) - math.log(delta)) * math.log1p(1 / pseudocount)
    gamma = (a + math.sqrt(a * a + epsilon * a / total)) / epsilon
    if gamma >= 1:
        return 0
    return _most(pseudocount, gamma, epsilon, n_records=n_records, n_cells=n_cells)


def paper_parameters(
    epsilon: float,
    delta: float,
    pseudocount: Fraction | None = None,
    *,
    n_records: int,
    n_cells: int,
    unit_records: int = 1,
) -> tuple[Fraction, int]:
    """Pseudocount and records by the paper.

    Without a pseudocount, Corollary 3 at the largest power of ten for gamma whose
    sampling variance (N/n)^2/m is within 1 % of its limit. (The variance falls as
    gamma falls and has no minimum: it tends to a limit while k and m grow.)

    Raises:
        InfeasibleBudgetError: The theorem does not apply or allows no record.
    """
    if unit_records != 1:
        raise InfeasibleBudgetError("The paper's calibration covers one record per unit.")
    if delta <= 0:
        raise InfeasibleBudgetError("The paper's calibration needs delta > 0.")
    if pseudocount is not None:
        m = theorem_2_records(
            float(pseudocount), epsilon, delta, n_records=n_records, n_cells=n_cells
        )
        if m < 1:
            raise InfeasibleBudgetError(
                "Theorem 2 of the paper allows no record at this pseudocount.",
                next_step="Raise the pseudocount or use 'calibration: exact'.",
            )
        return pseudocount, m
    found = [
        corollary_3(gamma, epsilon, delta, n_records=n_records, n_cells=n_cells)
        for gamma in _GAMMAS
    ]
    variances = [(1 + k * n_cells / n_records) ** 2 / max(m, 1) for k, m in found]
    k, m = next(
        pair
        for pair, variance in zip(found, variances, strict=True)
        if variance <= 1.01 * variances[-1]
    )
    return Fraction(k), m


def _most(k: float, gamma: float, epsilon: float, *, n_records: int, n_cells: int) -> int:
    """floor(U) of Theorem 2."""
    share = 1 / (n_records + k * n_cells) + 2 * gamma
    return math.floor(epsilon / (share * math.log1p(1 / k)))
