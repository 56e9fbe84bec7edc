"""The plan of a release for the account that will be charged."""

from __future__ import annotations

from decimal import Decimal

from configs.loading import Release
from mechanisms.errors import LedgerError
from mechanisms.planning.plan import Plan
from tasks.execution.home import Home
from tasks.ledger.budgets import account_terms


def plan_for_account(
    home: Home, release: Release, plan: Plan, *, times: Decimal = Decimal(1)
) -> Plan:
    """The same plan, without a delta of rho where the account has none to give.

    An account of rho whose limit of delta is 0 is charged the rho of the whole loss, which is
    larger; a budget of rho then buys parameters for that.

    Args:
        home: Where the ledger lies.
        release: The config.
        plan: Of that, for some multiple of its budget.
        times: The multiple.

    Raises:
        InfeasibleBudgetError: It buys none that fit the config.
    """
    if not plan.amounts["rho_delta"]:
        return plan
    try:
        account = account_terms(home, release.config.dataset)
    except LedgerError:
        return plan  # the check of the budget says what is wrong
    if account is None or account.policy != "zcdp" or account.limit["rho_delta"]:
        return plan
    return release.plan(rho_delta=Decimal(0), times=times)
