"""The rules of the privacy-loss ledger, free of storage, clock and randomness.

A ledger is a chain of entries, each with the hash of the one before. ``apply``
is the only step from one state to the next. The same rule that refuses a new
entry to its author finds a broken one when the chain is verified, so that the
two can never disagree.

The filter is basic composition: charges chosen adaptively, one after the other,
stay within (epsilon, delta) while the sums of their epsilons and of their deltas
do (Rogers, Roth, Ullman and Vadhan 2016, "Privacy odometers and filters").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from mechanisms.errors import (
    AlreadyRegisteredError,
    AmountError,
    InsufficientBudgetError,
    LedgerError,
    LedgerIntegrityError,
    PolicyMismatchError,
    StatpressError,
    UnregisteredDatasetError,
)
from tasks.accounts import Account, Charge, State
from tasks.amounts import Loss, canonical, exact
from tasks.entries import Body, Entry, canonical_json, check_fields, entry_hash

__all__ = [
    "Account",
    "Body",
    "Charge",
    "Entry",
    "Loss",
    "Recompute",
    "State",
    "apply",
    "canonical",
    "check_charge",
    "check_publish",
    "check_recomputed",
    "check_register",
    "entry_hash",
    "exact",
    "next_entry",
    "repeated",
    "replay",
]

Recompute = Callable[[Body], tuple[object, object]]
_TERMS = ("adjacency", "unit", "unit_records", "n_records")  # a charge repeats them


def next_entry(state: State, kind: str, body: Body) -> Entry:
    """The entry that would follow, once its rule has let it pass.

    Raises:
        BudgetError: The budget forbids it.
        LedgerError: The body is not one of this kind.
    """
    _RULES[kind].check(state, body)
    sequence, previous = state.next_sequence, state.head
    return Entry(sequence, kind, body, previous, entry_hash(sequence, kind, body, previous))


def apply(state: State, entry: Entry) -> State:
    """The state after one more entry; the given state is left as it was.

    Raises:
        LedgerIntegrityError: The entry breaks a rule; it carries the sequence.
    """
    return replay((entry,), state)


def replay(entries: Iterable[Entry], state: State | None = None) -> State:
    """The state after all entries, in time proportional to their number.

    Raises:
        LedgerIntegrityError: The first entry that breaks a rule.
    """
    start = state or State()
    accounts = {
        name: replace(account, charges=dict(account.charges))
        for name, account in start.accounts.items()
    }
    draft = replace(start, accounts=accounts, charges=dict(start.charges))
    head, sequence = start.head, start.next_sequence
    for entry in entries:
        flaw = _flaw(draft, entry, head, sequence)
        if flaw:
            raise LedgerIntegrityError(flaw, sequence=sequence, where=f"entry {sequence}")
        _RULES[entry.kind].record(draft, entry)
        head, sequence = entry.hash, sequence + 1
    return replace(draft, head=head, next_sequence=sequence)


def _flaw(state: State, entry: Entry, head: str, sequence: int) -> str:
    """What is wrong with an entry, or nothing."""
    if type(entry.sequence) is not int or entry.sequence != sequence:
        return f"An entry numbered {entry.sequence!r} stands where {sequence} belongs."
    if entry.previous != head:
        return "The entry does not continue the hash of the one before."
    if entry.kind not in _RULES:
        return f"The entry is of the unknown kind {entry.kind!r}."
    try:
        if entry_hash(sequence, entry.kind, entry.body, head) != entry.hash:
            return "The entry does not agree with its own hash."
        _RULES[entry.kind].check(state, entry.body)
    except StatpressError as error:
        return f"The entry breaks a rule of the ledger: {error.where} {error.what}"
    return ""


def repeated(state: State, kind: str, body: Body) -> Entry | None:
    """The entry this run already has of this kind, if it says the same.

    The time of writing does not count as a difference.

    Raises:
        AmountError: An amount or a number of records is not usable.
        LedgerError: It says something else, or a field is not usable.
    """
    check_fields(body, _RULES[kind].fields)
    charge = state.charges.get(body["run_id"])
    entry = charge and (charge.entry if kind == "charge" else charge.publication)
    if not entry:
        return None
    names = body.keys() - {"created"}
    other = [n for n in names if canonical_json(body[n]) != canonical_json(entry.body.get(n))]
    if other:
        raise LedgerError(
            f"The ledger has a {kind} of this run that differs in {', '.join(sorted(other))}.",
            where=f"run {body['run_id']!r}",
            next_step="Repeat the run with what it was charged for, or start a new run.",
        )
    return entry


def check_register(state: State, body: Body) -> None:
    """Raise unless the body registers a new dataset with usable limits.

    Raises:
        AlreadyRegisteredError: The dataset has an account.
        AmountError: A limit or a number of records is not usable.
        LedgerError: Another field is not usable.
    """
    check_fields(body, _RULES["register"].fields)
    if body["policy"] != "basic":
        raise LedgerError(
            f"The policy {body['policy']!r} is not known.",
            where="policy",
            next_step="Give 'basic': epsilons and deltas add up.",
        )
    if exact(body["epsilon"]) == 0:
        raise AmountError("The limit must be above 0.", where="epsilon")
    account = state.accounts.get(body["dataset"])
    if account:
        was = account.registration.body
        terms = ", ".join(f"{name} {was[name]}" for name in ("policy", *_TERMS))
        raise AlreadyRegisteredError(
            f"Registered at {was['created']} with {account.limit}, {terms}.",
            where=f"dataset {account.dataset!r}",
        )


def check_charge(state: State, body: Body) -> None:
    """Raise unless the account covers the charge, exactly to the last digit.

    Raises:
        UnregisteredDatasetError: There is no account of this dataset.
        PolicyMismatchError: Adjacency, unit or size differ from the registration.
        InsufficientBudgetError: Too little epsilon or too little delta remains.
        AmountError: An amount or a number of records is not usable.
        LedgerError: Another field is not usable, or the run was charged already.
    """
    check_fields(body, _RULES["charge"].fields)
    account, place = state.accounts.get(body["dataset"]), f"dataset {body['dataset']!r}"
    if account is None:
        raise UnregisteredDatasetError("The ledger has no account of this name.", where=place)
    if body["run_id"] in state.charges:
        raise LedgerError(
            "This run was charged already.",
            where=f"run {body['run_id']!r}",
            next_step="Start a new run.",
        )
    was = account.registration.body
    other = [
        f"{name} {body[name]} is not {was[name]}" for name in _TERMS if body[name] != was[name]
    ]
    if other:
        raise PolicyMismatchError(
            f"The charge differs from the registration: {', '.join(other)}.", where=place
        )
    requested, remaining = Loss.of(body), account.remaining
    if not remaining.covers(requested):
        raise InsufficientBudgetError(
            f"The charge asks for {requested}; what remains is {remaining}.",
            remaining=remaining,
            requested=requested,
            where=place,
        )


def check_publish(state: State, body: Body) -> None:
    """Raise unless the body publishes a charged run of the same dataset, once.

    Raises:
        LedgerError: The run is unknown, of another dataset, or published already.
    """
    check_fields(body, _RULES["publish"].fields)
    charge = state.charges.get(body["run_id"])
    if charge is None:
        flaw = "The ledger has no charge of this run."
    elif charge.entry.body["dataset"] != body["dataset"]:
        flaw = "This run was charged to another dataset."
    elif charge.published:
        flaw = "This run was published already."
    else:
        return
    raise LedgerError(
        flaw,
        where=f"run {body['run_id']!r}",
        next_step="Publish what 'statpress ledger show' lists as charged.",
    )


def check_recomputed(entry: Entry, recompute: Recompute) -> None:
    """Raise unless the mechanisms a charge describes spend no more than it states.

    Raises:
        LedgerIntegrityError: They spend more, or their loss cannot be computed.
    """
    charged, flaw = Loss.of(entry.body), ""
    try:
        epsilon, delta = recompute(entry.body)
        spent = Loss(exact(epsilon), exact(delta))
        if not charged.covers(spent):
            flaw = f"The mechanisms spend {spent}; charged was {charged}."
    except (StatpressError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        flaw = f"The loss cannot be recomputed ({type(error).__name__}): {error}"
    if flaw:
        raise LedgerIntegrityError(flaw, sequence=entry.sequence, where=f"entry {entry.sequence}")


def _record_register(state: State, entry: Entry) -> None:
    """Open the account."""
    state.accounts[entry.body["dataset"]] = Account(entry, Loss.of(entry.body))


def _record_charge(state: State, entry: Entry) -> None:
    """Spend from the account."""
    _keep(state, Charge(entry))
    account = state.accounts[entry.body["dataset"]]
    spent = account.spent + Loss.of(entry.body)
    state.accounts[account.dataset] = replace(account, spent=spent)


def _record_publish(state: State, entry: Entry) -> None:
    """Mark the charge as published."""
    _keep(state, replace(state.charges[entry.body["run_id"]], publication=entry))


def _keep(state: State, charge: Charge) -> None:
    """File a charge by run, in the state and in its account."""
    body = charge.entry.body
    state.charges[body["run_id"]] = charge
    state.accounts[body["dataset"]].charges[body["run_id"]] = charge


class _Rule(NamedTuple):
    """What one kind of entry holds, when it may follow, and what it changes."""

    fields: frozenset[str]
    check: Callable[[State, Body], None]
    record: Callable[[State, Entry], None]


_COMMON = frozenset({"dataset", "created"})
_BUDGETED = _COMMON | {"epsilon", "delta", *_TERMS}
_RUN = {"run_id", "mechanisms", "config_sha256", "insecure_seed", "version"}
_RULES = {
    "register": _Rule(_BUDGETED | {"policy"}, check_register, _record_register),
    "charge": _Rule(_BUDGETED | _RUN, check_charge, _record_charge),
    "publish": _Rule(
        _COMMON | {"run_id", "bundle", "manifest_sha256"}, check_publish, _record_publish
    ),
}
