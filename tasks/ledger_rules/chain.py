"""The chain of the privacy-loss ledger, free of storage, clock and randomness.

A ledger is a chain of entries, each with the hash of the one before. ``apply`` is
the only step from one state to the next; which entries it accepts, the table in
``tasks.ledger_rules.rules`` says.

Entries that move an account's balance state the balance after them. So the next
charge needs a handful of entries (``resume``), not the whole history, while
``replay`` recomputes every balance and trusts none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from mechanisms.errors import LedgerIntegrityError, StatpressError
from tasks.ledger_rules.accounts import Charge, State
from tasks.ledger_rules.amounts import Loss
from tasks.ledger_rules.entries import Body, Entry, entry_hash
from tasks.ledger_rules.refusal_rules import check_open
from tasks.ledger_rules.rules import RULES

Recompute = Callable[[Body], Loss]


def next_entry(state: State, kind: str, body: Body) -> Entry:
    """The entry that would follow, once its rule has let it pass.

    Args:
        state: As ``replay`` or ``resume`` give it.
        kind: One of ``RULES``.
        body: All fields but the balance, which is computed here.

    Raises:
        BudgetError: The budget forbids it.
        LedgerError: The body is not one of this kind.
    """
    rule = RULES[kind]
    rule.check(state, body)
    if rule.balance:
        body = {**body, "spent": rule.balance(state, body).texts()}
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
    charges, refused = dict(start.charges), dict(start.refused)
    draft = replace(start, accounts=accounts, charges=charges, refused=refused)
    for entry in entries:
        flaw = _flaw(draft, entry)
        if flaw:
            raise _broken(flaw, draft.next_sequence)
        RULES[entry.kind].record(draft, entry)
        draft = replace(draft, head=entry.hash, next_sequence=entry.sequence + 1)
    return draft


def _flaw(state: State, entry: Entry) -> str:
    """What is wrong with an entry, or nothing."""
    sequence = state.next_sequence
    if type(entry.sequence) is not int or entry.sequence != sequence:
        return f"An entry numbered {entry.sequence!r} stands where {sequence} belongs."
    if entry.previous != state.head:
        return "The entry does not continue the hash of the one before."
    if entry.kind not in RULES:
        return f"The entry is of the unknown kind {entry.kind!r}."
    try:
        if not _whole(entry):
            return "The entry does not agree with its own hash."
        return _broken_rule(state, entry)
    except StatpressError as error:
        return f"The entry breaks a rule of the ledger: {error.where} {error.what}"


def _broken_rule(state: State, entry: Entry) -> str:
    """What is wrong with the balance it states, or nothing; raises what its rule raises."""
    rule, body = RULES[entry.kind], entry.body
    if not rule.balance:
        rule.check(state, body)
        return ""
    given = {name: value for name, value in body.items() if name != "spent"}
    rule.check(state, given)
    balance = rule.balance(state, given).texts()
    if body.get("spent") != balance:
        return f"The entry states another balance than {', '.join(balance.values())}."
    return ""


def _whole(entry: Entry) -> bool:
    """Whether the entry agrees with its own hash."""
    return entry.hash == entry_hash(entry.sequence, entry.kind, entry.body, entry.previous)


def _broken(flaw: str, sequence: int) -> LedgerIntegrityError:
    return LedgerIntegrityError(flaw, sequence=sequence, where=f"entry {sequence}")


def resume(rows: Iterable[Entry], *, dataset: str | None, run_id: str | None) -> State:
    """The part of the state that an act on one dataset and run can depend on.

    Args:
        rows: In order: the dataset's lasting entries, its last entry that states a
            balance, all of the run, and the last of the ledger.
        dataset: The dataset of the act; None for an act on the whole ledger.
        run_id: The run of the act, if it has one.

    Raises:
        LedgerIntegrityError: A row does not agree with its own hash, or does not fit.
    """
    draft = State()
    for entry in rows:
        if not _whole(entry) or entry.kind not in RULES:
            raise _broken("The entry does not agree with its own hash.", entry.sequence)
        rule, body = RULES[entry.kind], entry.body
        same_run = run_id is not None and body.get("run_id") == run_id
        try:
            if body.get("dataset") != dataset:
                if same_run and entry.kind == "charge":
                    draft.charges[body["run_id"]] = Charge(entry)
                if same_run and entry.kind == "refuse":
                    draft.refused[body["run_id"]] = entry
            elif same_run or rule.lasting:
                rule.effect(draft, entry)
            if body.get("dataset") == dataset and rule.balance:
                account, spent = draft.accounts[body["dataset"]], Loss.sums(body["spent"])
                draft.accounts[account.dataset] = replace(account, spent=spent)
        except (StatpressError, ArithmeticError, LookupError, TypeError, ValueError):
            raise _broken("The entry does not fit those before it.", entry.sequence) from None
        draft = replace(draft, head=entry.hash, next_sequence=entry.sequence + 1)
    return draft


def repeated(state: State, kind: str, body: Body) -> Entry | None:
    """The entry of this kind that the run has already, if the body repeats it.

    Raises:
        ApprovalError: It is a decision, by someone who may not decide.
        LedgerError: The body contradicts that entry.
    """
    rule, run_id = RULES[kind], str(body.get("run_id", ""))
    if rule.repeats is None:
        return None
    charge, known = state.charges.get(run_id), None
    if kind == "refuse":
        known = state.refused.get(run_id)
    elif charge is not None:
        known = charge.entry if kind == "charge" else charge.later.get(kind)
    return known if known is not None and rule.repeats(state, known, body) else None


def check_run(state: State, body: Body) -> None:
    """Raise unless a run may look at the data, be charged and draw, or go on to draw.

    Args:
        state: As ``replay`` gives it.
        body: Of its charge.

    Raises:
        BudgetError: The budget forbids the charge.
        LedgerError: The run was charged otherwise, is void, was refused, or may have drawn.
    """
    if repeated(state, "charge", body) is None:
        RULES["charge"].check(state, body)
    else:
        RULES["draw"].check(state, {name: body[name] for name in ("dataset", "run_id", "created")})
    check_open(state.account_of(body["dataset"]))


def check_recomputed(entry: Entry, recompute: Recompute) -> None:
    """Raise unless the mechanisms a charge describes spend no more than it states.

    Args:
        entry: A charge.
        recompute: The least that the mechanisms of a body provably spend.

    Raises:
        LedgerIntegrityError: They spend more, or their loss cannot be computed.
    """
    charged, flaw = Loss.of(entry.body), ""
    try:
        spent = recompute(entry.body)
        if not charged.covers(spent):
            flaw = f"The mechanisms spend {spent}; charged was {charged}."
    except (StatpressError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        flaw = f"The loss cannot be recomputed ({type(error).__name__}): {error}"
    if flaw:
        raise _broken(flaw, entry.sequence)
