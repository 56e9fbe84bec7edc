"""The rules of a dataset's account: it is opened once, and its limit or policy may change."""

from __future__ import annotations

from dataclasses import replace

from mechanisms.errors import AlreadyRegisteredError, AmountError, LedgerError
from tasks.ledger_rules.accounts import Account, State
from tasks.ledger_rules.entries import Body, Entry
from tasks.ledger_rules.fields import OF_DATASET
from tasks.ledger_rules.policies import limit_of, measures_of

TERMS = ("adjacency", "unit", "unit_records", "n_records")
"""What a registration states about its dataset, and every charge repeats."""


def registration_fields(body: Body) -> frozenset[str]:
    """The fields of a registration, which depend on its policy and what else it states.

    Raises:
        LedgerError: The policy is not known.
    """
    stated = {"max_refusals"} & body.keys()
    return OF_DATASET | {"policy", *measures_of(body.get("policy")), *TERMS, *stated}


def check_register(state: State, body: Body) -> None:
    """Raise unless the body registers a new dataset with a limit above 0.

    Raises:
        AlreadyRegisteredError: The dataset has an account.
        AmountError: The limit is 0.
    """
    measure = measures_of(body["policy"])[0]
    if limit_of(body)[measure] == 0:
        raise AmountError("The limit must be above 0.", where=measure)
    account = state.accounts.get(body["dataset"])
    if account:
        was = account.registration.body
        terms = ", ".join(f"{name} {was[name]}" for name in TERMS)
        raise AlreadyRegisteredError(
            f"Registered at {was['created']}; now policy {account.policy} with"
            f" {account.limit}, {terms}.",
            where=f"dataset {account.dataset!r}",
        )


def open_account(draft: State, entry: Entry) -> None:
    """The effect of a registration."""
    body = entry.body
    draft.accounts[body["dataset"]] = Account(entry, body["policy"], limit_of(body))


def amendment_fields(body: Body) -> frozenset[str]:
    """The fields of an amendment, which depend on its policy.

    Raises:
        LedgerError: The policy is not known.
    """
    return OF_DATASET | {"policy", "reason", *measures_of(body.get("policy"))}


def check_amend(state: State, body: Body) -> None:
    """Raise unless the body changes policy or limit, with a reason if it allows more.

    Raises:
        UnregisteredDatasetError: There is no account of this dataset.
        LedgerError: It changes nothing, lacks its reason, or is below what is spent.
    """
    account, limit = state.account_of(body["dataset"]), limit_of(body)
    same_policy = body["policy"] == account.policy
    flaw, step = "", ""
    if same_policy and limit == account.limit:
        flaw, step = "This is the policy in force.", "Give another limit."
    elif not limit.covers(account.spent):
        flaw = f"Spent is {account.spent.within(limit.amounts)} already."
        step = "Give a limit of at least what is spent."
    elif body["reason"] is None and not (same_policy and account.limit.covers(limit)):
        flaw = "Raising a limit, or changing the policy, needs a reason."
        step = "Give the reason, which stays in the ledger, with --reason."
    if flaw:
        raise LedgerError(flaw, where=f"dataset {account.dataset!r}", next_step=step)


def amend_account(draft: State, entry: Entry) -> None:
    """The effect of an amendment: another policy or limit is in force."""
    body = entry.body
    account = draft.account_of(body["dataset"])
    draft.accounts[account.dataset] = replace(
        account,
        policy=body["policy"],
        limit=limit_of(body),
        amendments=(*account.amendments, entry),
    )
