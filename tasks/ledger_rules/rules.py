"""What each kind of entry may say after the ones before it, and what it changes.

One row of ``RULES`` per kind. The same rule that refuses a new entry to its author
finds a broken one when the chain is verified, so that the two can never disagree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from mechanisms.errors import (
    AlreadyRegisteredError,
    AmountError,
    InsufficientBudgetError,
    LedgerError,
    PolicyMismatchError,
)
from tasks.ledger_rules.account_lookup import account_of, charge_of, keep, refusal
from tasks.ledger_rules.accounts import Account, Charge, State, Status
from tasks.ledger_rules.amounts import Loss
from tasks.ledger_rules.entries import Body, Entry, check_fields
from tasks.ledger_rules.policies import limit_of, loss_of, measures_of
from tasks.ledger_rules.review_rules import (
    check_approved,
    check_decide,
    check_prepare,
    check_set_approvers,
    record_decide,
    record_prepare,
    record_set_approvers,
)
from tasks.ledger_rules.signing import signed

_TERMS = ("adjacency", "unit", "unit_records", "n_records")  # a charge repeats them
_COMMON = frozenset({"dataset", "created"})
_RUN = _COMMON | {"run_id"}
_FIRST_FORM = _RUN | {"mechanisms", "config_sha256", "insecure_seed", "version", *_TERMS}
_FIRST_FORM |= {"epsilon", "delta"}  # charges before schema 'second'
_CHARGE = _FIRST_FORM | {"rho", "rho_delta"}


class Rule(NamedTuple):
    """What one kind of entry holds, when it may follow, and what it changes.

    Attributes:
        check: Raises unless the given part of the body may follow.
        record: Writes the entry into a draft of the state.
        balance: For kinds that move the account's balance, the balance after it;
            the entry's field ``spent`` states it.
    """

    check: Callable[[State, Body], None]
    record: Callable[[State, Entry], None]
    balance: Callable[[State, Body], Loss] | None = None


def check_register(state: State, body: Body) -> None:
    """Raise unless the body registers a new dataset with usable limits.

    Raises:
        AlreadyRegisteredError: The dataset has an account.
        AmountError: A limit or a number of records is not usable.
        LedgerError: Another field is not usable.
    """
    measures = measures_of(body.get("policy"))
    check_fields(body, _COMMON | {"policy", *measures, *_TERMS})
    if limit_of(body)[measures[0]] == 0:
        raise AmountError("The limit must be above 0.", where=measures[0])
    account = state.accounts.get(body["dataset"])
    if account:
        was = account.registration.body
        terms = ", ".join(f"{name} {was[name]}" for name in _TERMS)
        raise AlreadyRegisteredError(
            f"Registered at {was['created']}; now policy {account.policy} with"
            f" {account.limit}, {terms}.",
            where=f"dataset {account.dataset!r}",
        )


def check_amend(state: State, body: Body) -> None:
    """Raise unless the body changes policy or limit, with a reason if it allows more.

    Raises:
        UnregisteredDatasetError: There is no account of this dataset.
        AmountError: A limit is not usable.
        LedgerError: It changes nothing, lacks its reason, or is below what is spent.
    """
    check_fields(body, _COMMON | {"policy", "reason", *measures_of(body.get("policy"))})
    account, limit = account_of(state, body), limit_of(body)
    same_policy = body["policy"] == account.policy
    flaw, mend = "", ""
    if same_policy and limit == account.limit:
        flaw, mend = "This is the policy in force.", "Give another limit."
    elif not limit.covers(account.spent):
        flaw = f"Spent is {account.spent.within(limit.amounts)} already."
        mend = "Give a limit of at least what is spent."
    elif body["reason"] is None and not (same_policy and account.limit.covers(limit)):
        flaw = "Raising a limit, or changing the policy, needs a reason."
        mend = "Give the reason, which stays in the ledger, with --reason."
    if flaw:
        raise LedgerError(flaw, where=f"dataset {account.dataset!r}", next_step=mend)


def check_charge(state: State, body: Body) -> None:
    """Raise unless the account covers the charge, exactly to the last digit.

    Raises:
        UnregisteredDatasetError: There is no account of this dataset.
        PolicyMismatchError: Adjacency, unit or size differ from the registration.
        InsufficientBudgetError: Too little remains of a measure that the policy limits.
        AmountError: An amount or a number of records is not usable.
        LedgerError: Another field is not usable, or the run was charged already.
    """
    check_fields(body, _CHARGE if "rho" in body else _FIRST_FORM)
    account = account_of(state, body)
    if body["run_id"] in state.charges:
        raise refusal(body, "This run was charged already.", "Start a new run.")
    was = account.registration.body
    other = [
        f"{name} {body[name]} is not {was[name]}" for name in _TERMS if body[name] != was[name]
    ]
    place = f"dataset {account.dataset!r}"
    if other:
        raise PolicyMismatchError(
            f"The charge differs from the registration: {', '.join(other)}.",
            where=place,
            next_step="Make the config agree with 'statpress ledger show'; a registration never "
            "changes, so where that is wrong register the dataset under another name.",
        )
    remaining = account.remaining
    requested = loss_of(body).within(account.limit.amounts)
    if not remaining.covers(requested):
        raise InsufficientBudgetError(
            f"The charge asks for {requested}; what remains is {remaining}.",
            remaining=remaining,
            requested=requested,
            where=place,
        )


def check_draw(state: State, body: Body) -> None:
    """Raise unless the run is charged and never began to draw.

    Raises:
        LedgerError: The run is unknown, void, of another dataset, or began before.
    """
    check_fields(body, _RUN)
    status = charge_of(state, body).status
    if status is Status.VOID:
        raise refusal(body, "The charge of this run is void.", "Start a new run.")
    if status is not Status.RESERVED:
        flaw = "This run was charged before and may have drawn."
        raise refusal(body, flaw, "Start a new run.")


def check_void(state: State, body: Body) -> None:
    """Raise unless the charge is there and provably nothing was drawn.

    Raises:
        LedgerError: The run is unknown, void, of another dataset, or may have drawn.
    """
    check_fields(body, _RUN | {"reason"})
    if body["reason"] is None:
        raise refusal(body, "A charge is not given back without a reason.", "Give --reason.")
    status = charge_of(state, body).status
    if status is Status.VOID:
        raise refusal(body, "The charge of this run is void.", "There is nothing left to do.")
    if status is not Status.RESERVED:
        raise refusal(
            body, "Drawing may have begun; what was charged stays spent.", "Start a new run."
        )


def check_publish(state: State, body: Body) -> None:
    """Raise unless the body publishes a drawn run of the same dataset, once.

    Raises:
        ApprovalError: The run is under review, and is not approved with this seal.
        LedgerError: The run is unknown, not drawn, of another dataset, or published.
    """
    check_fields(body, _RUN | {"bundle", "manifest_sha256"})
    check_approved(state, body)
    status = charge_of(state, body).status
    if status in {Status.DRAWN, Status.APPROVED}:
        return
    flaw = {
        Status.PUBLISHED: "This run was published already.",
        Status.VOID: "The charge of this run is void.",
    }.get(status, "This run never began to draw.")
    raise refusal(body, flaw, "Publish what 'statpress ledger charge-history' lists as drawn.")


def check_checkpoint(state: State, body: Body) -> None:
    """Raise unless the signature is the key's, over the head at this place.

    Raises:
        LedgerError: It is not.
    """
    check_fields(body, frozenset({"created", "public_key", "signature"}))
    if not signed(body["public_key"], body["signature"], state.next_sequence, state.head):
        raise LedgerError(
            "The signature is not this key's over the head of the ledger.", where="checkpoint"
        )


def _balance_charge(state: State, body: Body) -> Loss:
    """The account's balance with the charge."""
    return account_of(state, body).spent + loss_of(body)


def _balance_void(state: State, body: Body) -> Loss:
    """The account's balance without the charge."""
    return account_of(state, body).spent - charge_of(state, body).loss


def _record_register(state: State, entry: Entry) -> None:
    """Open the account."""
    body = entry.body
    state.accounts[body["dataset"]] = Account(entry, body["policy"], limit_of(body))


def _record_amend(state: State, entry: Entry) -> None:
    """Put another limit in force."""
    account, body = account_of(state, entry.body), entry.body
    state.accounts[account.dataset] = replace(
        account,
        policy=body["policy"],
        limit=limit_of(body),
        amendments=(*account.amendments, entry),
    )


def _record_charge(state: State, entry: Entry) -> None:
    """Spend from the account."""
    reviewed = account_of(state, entry.body).reviewed
    _move(state, Charge(entry, reviewed), _balance_charge(state, entry.body))


def _record_draw(state: State, entry: Entry) -> None:
    """Mark the charge as spent for good."""
    keep(state, replace(state.charges[entry.body["run_id"]], draw=entry))


def _record_void(state: State, entry: Entry) -> None:
    """Give the charge back."""
    balance = _balance_void(state, entry.body)
    _move(state, replace(state.charges[entry.body["run_id"]], void=entry), balance)


def _record_publish(state: State, entry: Entry) -> None:
    """Mark the charge as published."""
    keep(state, replace(state.charges[entry.body["run_id"]], publication=entry))


def _record_checkpoint(state: State, entry: Entry) -> None:
    """Nothing to change: the entry is its own effect."""


def _move(state: State, charge: Charge, balance: Loss) -> None:
    """File a charge, and the balance after it."""
    keep(state, charge)
    account = account_of(state, charge.entry.body)
    state.accounts[account.dataset] = replace(account, spent=balance)


RULES = {
    "register": Rule(check_register, _record_register),
    "amend-policy": Rule(check_amend, _record_amend),
    "set-approvers": Rule(check_set_approvers, record_set_approvers),
    "charge": Rule(check_charge, _record_charge, _balance_charge),
    "draw": Rule(check_draw, _record_draw),
    "void": Rule(check_void, _record_void, _balance_void),
    "prepare": Rule(check_prepare, record_prepare),
    "decide": Rule(check_decide, record_decide),
    "publish": Rule(check_publish, _record_publish),
    "checkpoint": Rule(check_checkpoint, _record_checkpoint),
}
