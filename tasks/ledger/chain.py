"""The hash chain of the ledger and its verification, free of storage, clock and randomness.

A ledger is a chain of entries, each with the hash of the one before. ``replay`` is the only way
from one state to the next; which entries it accepts, the table in ``tasks.ledger.rules`` says.

Entries that move an account's balance state the balance after them. So the next charge needs a
handful of entries (``resume``), not the whole history, while ``replay`` recomputes every balance
and trusts none.

A database finds that handful through its indexes. One flipped bit there hides an entry, and an act
would build on an older balance; so what an index finds is compared with the ``Positions`` of the
entries, taken from a reading of all of them in order.

``inspect`` verifies a whole chain, against itself and against what was kept elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from statpress.mechanisms.errors import LedgerError, LedgerIntegrityError, StatpressError
from statpress.tasks.ledger.accounts import Charge, PeriodSums, State
from statpress.tasks.ledger.entries import ZERO_HASH, Body, Entry, Loss, entry_hash, text_hash
from statpress.tasks.ledger.rules import BALANCE_FIELDS, RULES, check_open

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
        body = {**body, **rule.balance(state, body).stated}
    sequence, previous = state.next_sequence, state.head
    return Entry(sequence, kind, body, previous, entry_hash(sequence, kind, body, previous))


def replay(entries: Iterable[Entry], state: State | None = None) -> State:
    """The state after all entries, in time proportional to their number."""
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
    given = {name: value for name, value in body.items() if name not in BALANCE_FIELDS}
    rule.check(state, given)
    balance = rule.balance(state, given).stated
    if body != given | balance:
        return f"The entry states another balance than {', '.join(balance['spent'].values())}."
    return ""


def _whole(entry: Entry) -> bool:
    """Whether the entry agrees with its own hash."""
    return entry.hash == entry_hash(entry.sequence, entry.kind, entry.body, entry.previous)


def _broken(flaw: str, sequence: int) -> LedgerIntegrityError:
    return LedgerIntegrityError(flaw, sequence=sequence, where=f"entry {sequence}")


def resume(
    rows: Iterable[Entry],
    *,
    dataset: str | None,
    run_id: str | None,
    by_period: PeriodSums | None = None,
) -> State:
    """The part of the state that an act on one dataset and run can depend on.

    Args:
        rows: In order: the dataset's lasting entries, of some kinds the last one, all of the
            run, and the last of the ledger.
        dataset: The dataset of the act; None for an act on the whole ledger.
        run_id: The run of the act, if it has one.
        by_period: The dataset's charges by period, as ``Positions`` keeps them.

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
            elif same_run or (rule.lasting and not rule.balance):
                rule.effect(draft, entry)
            if body.get("dataset") == dataset and rule.balance:
                draft.change_account(body["dataset"], spent=Loss.sums(body["spent"]))
        except (StatpressError, ArithmeticError, LookupError, TypeError, ValueError):
            raise _broken("The entry does not fit those before it.", entry.sequence) from None
        draft = replace(draft, head=entry.hash, next_sequence=entry.sequence + 1)
    if by_period is not None and dataset in draft.accounts:
        draft.change_account(dataset, by_period=by_period)
    return draft


def repeated(state: State, kind: str, body: Body) -> Entry | None:
    """The entry of this kind that the run has already, if the body repeats it."""
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
    """Raise unless a run may look at the data, be charged and draw, or go on to draw."""
    if repeated(state, "charge", body) is None:
        RULES["charge"].check(state, body)
    else:
        RULES["draw"].check(state, {name: body[name] for name in ("dataset", "run_id", "created")})
    check_open(state.account_of(body["dataset"]))


def check_recomputed(entry: Entry, recompute: Recompute) -> None:
    """Raise unless the mechanisms a charge describes spend no more than it states."""
    charged, flaw = Loss.of(entry.body), ""
    try:
        spent = recompute(entry.body)
        if not charged.covers(spent):
            flaw = f"The mechanisms spend {spent}; charged was {charged}."
    except (StatpressError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        flaw = f"The loss cannot be recomputed ({type(error).__name__}): {error}"
    if flaw:
        raise _broken(flaw, entry.sequence)


class StoredRow(Protocol):
    """A row of the table of entries, as a database gives it; ``body`` is the text."""

    sequence: Any
    kind: Any
    body: Any
    previous: Any
    hash: Any
    dataset: Any
    run_id: Any


@dataclass
class Positions:
    """The sequences of entries by what they are needed for, as far as entries were read.

    Attributes:
        length: Number of entries that were read.
        head: Hash of the last of them.
    """

    length: int = 0
    head: str = ZERO_HASH
    _every: dict[str, list[int]] = field(default_factory=dict)
    _last: dict[str, dict[str, int]] = field(default_factory=dict)
    _runs: dict[str, list[int]] = field(default_factory=dict)
    _sums: dict[str, PeriodSums] = field(default_factory=dict)
    _charged: dict[str, tuple[str, Loss]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def extend(self, rows: Iterable[StoredRow]) -> None:
        """Read on; rows that were read before, perhaps by another thread, are passed over."""
        for row in rows:
            with self._lock:
                if type(row.sequence) is int and row.sequence <= self.length:
                    continue
                flaw, body = self._read(row)
                with contextlib.suppress(StatpressError, LookupError, TypeError):
                    if not flaw:
                        self._keep(row.sequence, row.kind, row.hash, body)
                        continue
                raise _broken(flaw or "The entry is not in the form of its kind.", self.length + 1)

    def watch(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Pass entries on to whoever checks them; those that were passed count as read."""
        for entry in entries:
            yield entry
            self.note(entry)

    def note(self, entry: Entry) -> None:
        """Count an entry as read that was checked, if it is the next one."""
        with self._lock:
            if entry.sequence == self.length + 1:
                self._keep(entry.sequence, entry.kind, entry.hash, entry.body)

    def relevant(self, dataset: str | None, run_id: str | None) -> set[int]:
        """The sequences of the entries that ``chain.resume`` needs for an act."""
        sequences = {self.length} if self.length else set()
        if dataset is not None:
            sequences.update(self._every.get(dataset, ()))
            sequences.update(self._last.get(dataset, {}).values())
        if run_id is not None:
            sequences.update(self._runs.get(run_id, ()))
        return sequences

    def by_period(self, dataset: str | None) -> PeriodSums:
        """A dataset's charges by period, as far as entries were read."""
        return self._sums.get(dataset or "", PeriodSums())

    def _read(self, row: StoredRow) -> tuple[str, Body]:
        """What is wrong with the row as the next one, or nothing; and its body."""
        if type(row.sequence) is not int or row.sequence != self.length + 1:
            return f"An entry numbered {row.sequence!r} stands where {self.length + 1} belongs.", {}
        if not all(isinstance(text, str) for text in (row.kind, row.body, row.previous, row.hash)):
            return "The entry is not in the form it was written in.", {}
        if row.previous != self.head:
            return "The entry does not continue the hash of the one before.", {}
        if row.hash != text_hash(row.sequence, row.kind, row.body, row.previous):
            return "The entry does not agree with its own hash.", {}
        if row.kind not in RULES:
            return f"The entry is of the unknown kind {row.kind!r}.", {}
        body = json.loads(row.body)
        for name, value in (("dataset", row.dataset), ("run_id", row.run_id)):
            if body.get(name) != value:
                return f"The column {name} does not agree with the entry.", {}
        return "", body

    def _keep(self, sequence: int, kind: str, hash_: str, body: Body) -> None:
        rule, dataset, run_id = RULES[kind], body.get("dataset"), body.get("run_id")
        if kind == "charge" and "period" in body:
            period, loss = self._charged[body["run_id"]] = body["period"], Loss.of(body)
            self._sums[body["dataset"]] = self.by_period(dataset).plus(period, loss)
        elif kind == "void" and run_id in self._charged:
            period, loss = self._charged[body["run_id"]]
            given_back = Loss.nothing() - loss
            self._sums[body["dataset"]] = self.by_period(dataset).plus(period, given_back)
        if dataset is not None and rule.lasting == "every":
            self._every.setdefault(dataset, []).append(sequence)
        if dataset is not None and rule.lasting == "last":
            self._last.setdefault(dataset, {})[kind] = sequence
        if run_id is not None:
            self._runs.setdefault(run_id, []).append(sequence)
        self.length, self.head = sequence, hash_


@dataclass(frozen=True, slots=True)
class Verification:
    """What a verified ledger holds.

    Attributes:
        entries: Number of entries.
        head: Hash of the last one.
        checkpoints: Sequences of the entries that sign the chain before them.
        signers: Public keys of the checkpoints, in hexadecimal.
        database_checked: Whether the database checked itself as well.
        state: After its last entry.
    """

    entries: int
    head: str
    checkpoints: tuple[int, ...] = ()
    signers: frozenset[str] = frozenset()
    database_checked: bool = field(default=False, compare=False)
    state: State = field(default_factory=State, compare=False, repr=False)


def inspect(
    entries: Iterable[Entry],
    recompute: Recompute | None = None,
    *,
    head: str | None = None,
    trusted: frozenset[str] = frozenset(),
) -> Verification:
    """Replay all entries and check each against the rules and what else is known."""
    if head is not None and not re.fullmatch("[0-9a-f]{64}", head):
        raise LedgerError(
            "This head is not a hash.",
            where="head",
            next_step="Give 64 lower-case hexadecimal digits, as 'ledger verify' prints them.",
        )
    checkpoints: list[int] = []
    signers: set[str] = set()
    met = head in (None, ZERO_HASH)

    def inspected() -> Iterator[Entry]:
        nonlocal met
        for entry in entries:
            yield entry  # the replay has passed it when the loop goes on
            met = met or entry.hash == head
            if recompute and entry.kind == "charge":
                check_recomputed(entry, recompute)
            if entry.kind == "checkpoint":
                key = entry.body["public_key"]
                if trusted and key not in trusted:
                    raise LedgerIntegrityError(
                        f"The checkpoint is by the key {key}, which is not trusted.",
                        sequence=entry.sequence,
                        where=f"entry {entry.sequence}",
                    )
                checkpoints.append(entry.sequence)
                signers.add(key)

    state = replay(inspected())
    missing = "" if met else f"the head {head}"
    if trusted and not checkpoints:
        missing = "any checkpoint by a trusted key"
    if missing:
        raise LedgerIntegrityError(
            f"The chain ends without {missing}: it was truncated, rolled back or rewritten.",
            sequence=state.next_sequence,
            where=f"entry {state.next_sequence}",
        )
    return Verification(
        state.next_sequence - 1,
        state.head,
        tuple(checkpoints),
        frozenset(signers),
        state=state,
    )
