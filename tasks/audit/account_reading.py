"""Odometer readings of an account: the tightest (epsilon, delta) of its whole history."""

from __future__ import annotations

import functools
import json
import math
from decimal import Decimal

from mechanisms.accounting.odometer import Reading, read_odometer
from mechanisms.errors import StatpressError
from mechanisms.planning.charges import described_loss
from tasks.audit.ledger_check import parameters
from tasks.ledger_rules.accounts import Account, Status
from tasks.ledger_rules.amounts import exact

READING_DELTA = Decimal("1e-8")
_DELTAS, _MOST_DELTA = 10, Decimal("0.1")
_ORDERS = tuple(1 + 2.0 ** (k / 4) for k in range(-32, 65))  # 1.004 to 65 537


def read_account(account: Account, delta: Decimal | None = None) -> Reading:
    """The tightest (epsilon, delta) readings of an account's whole history.

    Args:
        account: As the ledger replays it.
        delta: Of the reading; by default the registered limit of ``basic``, else 1e-8 or, where
            that is more, ten times the registered limit of the delta of rho.
    """
    registered, spent = account.registration.body, account.spent
    if registered["policy"] == "basic":
        default, anchor = exact(registered["delta"]) or READING_DELTA, None
    else:
        default = max(READING_DELTA, min(_DELTAS * exact(registered["rho_delta"]), _MOST_DELTA))
        anchor = exact(registered["rho"])
    return read_odometer(
        epsilon=spent["epsilon"],
        epsilon_delta=spent["delta"],
        rho=spent["rho"],
        rho_delta=spent["rho_delta"],
        anchor=anchor,
        delta=delta or default,
        divergences=_divergences(account),
    )


@functools.lru_cache(maxsize=4096)
def _curve(description: str) -> tuple[float, ...] | None:
    """Upper bounds on one mechanism's Rényi divergences; None if it is not known."""
    try:
        loss = described_loss(json.loads(description))
        return tuple(loss.renyi(order).upper for order in _ORDERS)
    except (StatpressError, ArithmeticError, LookupError, TypeError, ValueError):
        return None


def _divergences(account: Account) -> list[tuple[float, float]]:
    """The sums of all mechanisms' Rényi divergences by order; empty if one is not known."""
    curves = []
    for charge in account.charges.values():
        if charge.status is Status.VOID:
            continue
        if not charge.entry.body["mechanisms"]:
            return []
        for described in charge.entry.body["mechanisms"]:
            curve = _curve(parameters(described))
            if curve is None:
                return []
            curves.append(curve)
    sums = [math.fsum(column) for column in zip(*curves, strict=True)]
    return [
        (order, math.nextafter(total, math.inf))
        for order, total in zip(_ORDERS, sums, strict=False)
        if math.isfinite(total)
    ]
