"""What a history of charges amounts to, read as one (epsilon, delta).

A filter holds a budget; an odometer reads what was spent. The sums of a history are
themselves random when each charge may depend on earlier outputs, so a reading that
is to hold at every moment of such a history needs more than a conversion:

* *basic*: the sums of epsilon and delta are a reading at every moment (Rogers, Roth, Ullman and
  Vadhan 2016, arXiv 1605.08294, section 3);
* *zcdp*: fix a grid of levels of rho beforehand and a delta for each, so that the deltas add up to
  nine tenths of the one asked for; the last tenth is for the deltas charged with rho. At each
  level a filter holds (Whitehouse, Ramdas, Rogers and Wu 2023, arXiv 2203.05481, Theorem 1), so
  with the union over all levels the smallest level that covers the history is a reading, whenever
  one looks (the doubling of Lecuyer 2021, arXiv 2103.01379, "Practical privacy filters and
  odometers", on a finer grid). Per level the tail of the privacy loss is bounded (Bun and Steinke
  2016, arXiv 1605.02065).

Which of the two is read is fixed before the first charge, by the policy a dataset is
registered with. The smaller of both would not do: an analyst who picks each charge by
the outputs before could spend the whole delta on either, and so twice.

If no charge depended on an earlier output, the direct conversions hold, which are
tighter, and the smallest of them does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from mechanisms.accounting.conversions import epsilon_at, epsilon_of_rho, tail_of_rho
from mechanisms.accounting.numerics.enclosures import double_above, double_below

_STEP = Decimal("0.9")  # from level to level
_CHARGED = Decimal("0.1")  # of delta, kept for the deltas charged with rho
_UP = Context(prec=60, rounding=ROUND_CEILING)
_DOWN = Context(prec=60, rounding=ROUND_FLOOR)


@dataclass(frozen=True, slots=True)
class Reading:
    """The smallest proven epsilons at one delta.

    Attributes:
        delta: The delta of the reading.
        adaptive: Holds whatever each charge depended on.
        fixed: Holds if no charge depended on the output of an earlier one.
    """

    delta: Decimal
    adaptive: float
    fixed: float


def read_odometer(
    *,
    epsilon: Decimal,
    epsilon_delta: Decimal,
    rho: Decimal,
    rho_delta: Decimal,
    anchor: Decimal | None,
    delta: Decimal,
    divergences: Sequence[tuple[float, float]] = (),
) -> Reading:
    """The tightest (epsilon, delta) readings of a history.

    Args:
        epsilon: Sum of the charged epsilons.
        epsilon_delta: Sum of the deltas charged with them.
        rho: Sum of the charged rhos.
        rho_delta: Sum of the deltas charged with them.
        anchor: The registered limit of rho, where the policy *zcdp* was registered;
            None for *basic*. Either way fixed before the first charge.
        delta: Of the reading, in (0, 1).
        divergences: Pairs (order, sum of upper bounds on the Rényi divergences of
            that order), if every mechanism of the history is known; of whole losses, so that the
            delta charged with rho has no part in them.

    Returns:
        Epsilons rounded up; infinite if nothing holds at this delta.
    """
    if not 0 < delta < 1:
        raise ValueError("delta must be in (0, 1)")
    basic = double_above(epsilon) if epsilon_delta <= delta else math.inf
    adaptive = basic
    if anchor is not None:
        charged = _DOWN.multiply(delta, _CHARGED)
        levels = _DOWN.subtract(delta, charged)
        adaptive = _levelled(rho, anchor, levels) if rho_delta <= charged else math.inf
    fixed = min(basic, adaptive)
    left = double_below(_DOWN.subtract(delta, rho_delta))
    if left > 0:
        fixed = min(fixed, epsilon_of_rho(rho, left))
    if divergences:
        fixed = min(fixed, epsilon_at(divergences, double_below(delta)))
    return Reading(delta, adaptive, fixed)


def _levelled(rho: Decimal, anchor: Decimal, delta: Decimal) -> float:
    """The tail at the smallest level anchor * 0.9**j, j of either sign, that covers rho.

    Level j has the delta 1/(3 (1 + |j|)**2) of the whole; over all j they add up to
    (pi**2/3 - 1)/3 < 0.77.
    """
    if rho == 0:
        return 0.0
    j = math.floor(float((rho / anchor).ln() / _STEP.ln()))
    while _level(anchor, j) < rho:  # the logarithms are only near
        j -= 1
    while _level(anchor, j + 1) >= rho:
        j += 1
    part = _DOWN.divide(delta, Decimal(3 * (1 + abs(j)) ** 2))
    return tail_of_rho(_level(anchor, j), part)


def _level(anchor: Decimal, j: int) -> Decimal:
    """The j-th level, rounded up; the same for every history."""
    return _UP.multiply(anchor, _UP.power(_STEP, j))
