"""Errors for the steward of the budget."""

from __future__ import annotations

from mechanisms.errors.base import StatpressError


class BudgetError(StatpressError):
    """Base of what the budget forbids."""

    exit_code = 20


class InsufficientBudgetError(BudgetError):
    """The ledger's remaining budget does not cover the charge."""

    exit_code = 21
    next_step = "Lower the release's budget; 'statpress ledger show' prints what remains."

    def __init__(
        self, what: str, *, remaining: object = None, requested: object = None, **k: str
    ) -> None:
        super().__init__(what, **k)
        self.remaining = remaining
        self.requested = requested


class InfeasibleBudgetError(BudgetError):
    """No parameter of the mechanism meets the budget."""

    exit_code = 22
    next_step = "Raise the budget, or let statpress choose pseudocount or records."


class UnregisteredDatasetError(BudgetError):
    """The ledger has no account for the dataset."""

    exit_code = 23
    next_step = (
        "Register it once, with the budget of its whole life: 'statpress plan CONFIG' prints the "
        "command."
    )


class AlreadyRegisteredError(BudgetError):
    """The ledger already has an account of this name."""

    exit_code = 24
    next_step = "Use the account, or choose another name."


class RefusalLimitError(BudgetError):
    """Gates stopped as many runs of the dataset as may be without a look into them."""

    exit_code = 26
    next_step = "Look into the refusals, then reopen the dataset with 'statpress ledger amend'."


class PolicyMismatchError(BudgetError):
    """Unit, adjacency or size differ from what the dataset was registered with."""

    exit_code = 25
    next_step = "Make the config agree with 'statpress ledger show'."
