"""What a ledger entry stands on: the account and the charge that its body names."""

from __future__ import annotations

from mechanisms.errors import LedgerError, UnregisteredDatasetError
from tasks.ledger_rules.accounts import Account, Charge, State
from tasks.ledger_rules.entries import Body


def account_of(state: State, body: Body) -> Account:
    """The account that a body names.

    Raises:
        UnregisteredDatasetError: There is none.
    """
    account = state.accounts.get(body["dataset"])
    if account is None:
        raise UnregisteredDatasetError(
            "The ledger has no account of this name.", where=f"dataset {body['dataset']!r}"
        )
    return account


def charge_of(state: State, body: Body) -> Charge:
    """The charge of the run that a body names.

    Raises:
        LedgerError: There is none, or it is another dataset's.
    """
    charge = state.charges.get(body["run_id"])
    if charge is None:
        raise refusal(body, "The ledger has no charge of this run.", "Charge it first.")
    if charge.entry.body["dataset"] != body["dataset"]:
        raise refusal(body, "This run was charged to another dataset.", "Name that dataset.")
    return charge


def refusal(body: Body, flaw: str, mend: str) -> LedgerError:
    """Why an entry about a run may not follow."""
    return LedgerError(flaw, where=f"run {body['run_id']!r}", next_step=mend)


def keep(state: State, charge: Charge) -> None:
    """File a charge by run, in a draft of the state and in its account."""
    body = charge.entry.body
    state.charges[body["run_id"]] = charge
    state.accounts[body["dataset"]].charges[body["run_id"]] = charge
