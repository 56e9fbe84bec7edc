"""What mechanisms cost, from their descriptions only: for the ledger, without a plan."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Any

from statpress.mechanisms.accounting.balls import double_below
from statpress.mechanisms.accounting.composition import compose, compose_quickly
from statpress.mechanisms.accounting.losses import PrivacyLoss, PureLoss
from statpress.mechanisms.accounting.truncated_draws import MOVED_DRAWS, RULES
from statpress.mechanisms.errors import AmountError
from statpress.mechanisms.registry import mechanism_named

EXACT = Context(prec=1000)
_CHARGED = Context(prec=12, rounding=ROUND_CEILING)


def charged(amount: float) -> Decimal:
    """Twelve significant digits of an upper bound, rounded up."""
    return _CHARGED.create_decimal(Decimal(amount))


def exact_sum(amounts: Iterable[Decimal]) -> Decimal:
    """The sum, with nothing rounded off."""
    return functools.reduce(EXACT.add, amounts, Decimal(0))


def described_loss(description: Mapping[str, Any]) -> PrivacyLoss:
    """The privacy loss of a mechanism as a charge describes it.

    Raises:
        AmountError: It has more cells than a joint table can have, or cannot count by unit.
    """
    mechanism = mechanism_named(description["mechanism"])
    if mechanism.needs == "joint" and int(description["n_cells"]) > 2**63:
        raise AmountError("A mechanism's description has more cells than any joint table.")
    if description.get("per") == "unit":
        if not hasattr(mechanism.knobs, "per"):
            raise AmountError("A mechanism that counts records is described as counting units.")
        units = int(description["n_records"]) // int(description["unit_records"])
        description = {**description, "n_records": units, "unit_records": 1}
    return mechanism.from_description(description).loss(
        n_records=int(description["n_records"]),
        n_cells=int(description["n_cells"]),
        unit_records=int(description["unit_records"]),
    )


def recompute_charge(
    mechanisms: Sequence[Mapping[str, Any]], *, epsilon: Decimal, delta: Decimal
) -> dict[str, Decimal]:
    """What a charge's mechanisms cost at least, from scratch, by measure.

    Epsilon is the charge's own if delta is proven to suffice there. Where it is not, it
    is the proven epsilon of a single mechanism, and the lower bound of several composed:
    another version's tighter or looser bound is not tampering.

    Rho is recomputed by the rule that it was charged by: a description with a ``rho_delta`` of a
    mechanism that has a rho was charged the least that is proven but for that delta, by its
    ``rho_rule`` if it draws; one without it the rho of the whole loss. Before there were several
    rules it was that of the moved draws.

    Args:
        mechanisms: As given by ``Plan.describe``.
        epsilon: As charged.
        delta: As charged.

    Raises:
        AmountError: A description states less than its mechanism costs by itself, or a rule that
            is not known.
    """
    losses, rho, rho_delta = [], Decimal(0), Decimal(0)
    for description in mechanisms:
        loss = described_loss(description)
        _check_stated(loss, Decimal(description["epsilon"]), Decimal(description["delta"]))
        losses.append(loss)
        stated = Decimal(description.get("rho_delta", 0))
        if not 0 <= stated < 1:
            raise AmountError("A mechanism's description states no valid delta of its rho.")
        rule = description.get("rho_rule", MOVED_DRAWS)
        if rule not in RULES:
            raise AmountError("A mechanism's description states an unknown rule of its rho.")
        found = loss.approximate_rho(double_below(stated), rule)
        # The lower end, for the same reason.
        if math.isfinite(found.rho.upper):
            rho = EXACT.add(rho, Decimal(found.rho.lower))
            rho_delta = EXACT.add(rho_delta, stated)
        else:
            least = loss.epsilon(double_below(Decimal(description["delta"]))).lower
            rho = EXACT.add(rho, Decimal(PureLoss(Fraction(least)).rho.lower))
            rho_delta = EXACT.add(rho_delta, Decimal(description["delta"]))
    return {
        "epsilon": _least(losses, epsilon, delta) if losses else Decimal(0),
        "delta": delta,
        "rho": rho,
        "rho_delta": rho_delta,
    }


def _check_stated(loss: PrivacyLoss, epsilon: Decimal, delta: Decimal) -> None:
    """Raise unless a mechanism by itself costs no more than it states."""
    if not (epsilon >= 0 and 0 <= delta < 1):
        raise AmountError("A mechanism's description states no valid amount.")
    if loss.delta(double_below(epsilon)).upper > double_below(delta):
        least = Decimal(loss.epsilon(double_below(delta)).lower)
        if epsilon < least:
            raise AmountError(
                f"A mechanism's description states an epsilon of {epsilon}, below the "
                f"{charged(float(least))} that it costs."
            )


def _least(losses: Sequence[PrivacyLoss], epsilon: Decimal, delta: Decimal) -> Decimal:
    if compose_quickly(losses).delta(double_below(epsilon)).upper <= double_below(delta):
        return epsilon
    bounds = compose(losses).epsilon(double_below(delta))
    return Decimal(bounds.upper if len(losses) == 1 else bounds.lower)
