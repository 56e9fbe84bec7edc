"""A release planned for larger and smaller budgets, to decide with before anything is paid."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from configs.loading import Release
from mechanisms.errors import StatpressError
from mechanisms.planning.plan import Plan
from mechanisms.planning.prices import TIMES, Offer
from tasks.execution.home import Home
from tasks.plans.account_plan import plan_for_account


def offers_of(
    home: Home, release: Release, plan: Plan, announce: Callable[[str], None]
) -> list[Offer]:
    """The plan among those of other budgets, in ascending order.

    Args:
        home: Where the ledger lies.
        release: The config.
        plan: Of that, for the account.
        announce: Told which is planned, since every one takes as long as the first.
    """
    found = []
    for times in TIMES:
        if times == Decimal(1):
            found.append(Offer(times, plan))
            continue
        announce(f"plan for {times} times the budget")
        try:
            planned = release.plan(times=times)
            found.append(Offer(times, plan_for_account(home, release, planned, times=times)))
        except StatpressError as error:
            found.append(Offer(times, None, error.what))
    return found
