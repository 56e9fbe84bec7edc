"""The privacy-loss ledger on disk: append-only, hash-chained, one writer at a time.

The rules are in ``tasks.journal``; here they meet SQLite. A charge is checked and
written in one transaction that takes the write lock first (``BEGIN IMMEDIATE``),
so that runs at the same moment cannot overspend together. Write-ahead logging with
``synchronous=FULL`` keeps every acknowledged charge through a crash.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from mechanisms.errors import (
    LedgerError,
    LedgerIntegrityError,
    LedgerUnavailableError,
    UnregisteredDatasetError,
)
from tasks.accounts import Account, State
from tasks.amounts import canonical, exact
from tasks.entries import Entry, canonical_json
from tasks.journal import Recompute, check_recomputed, next_entry, repeated, replay
from tasks.ledger_file import (
    append,
    check_schema,
    connect,
    create_schema,
    fault,
    make_file,
    place,
    stored,
)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Verification:
    """What a verified ledger holds: the number of entries and the last hash."""

    entries: int
    head: str


class Ledger:
    """A ledger opened with ``Ledger.open``; each process opens its own."""

    def __init__(self, path: Path, reader: Engine, writer: Engine) -> None:
        self.path = path
        self._reader = reader
        self._writer = writer
        self._process = os.getpid()
        self._replayed = State()

    @classmethod
    def open(cls, location: str | Path, *, create: bool = True) -> Self:
        """Open the ledger of a path or of an ``sqlite:///`` address.

        Args:
            location: Path of the file, or a database address.
            create: Make the file, for its owner alone, when there is none.

        Raises:
            LedgerUnavailableError: There is no ledger, or it cannot be opened.
            LedgerIntegrityError: The file is no ledger, or no longer a whole one.
        """
        path = place(location)
        if create:
            make_file(path)
        elif not path.is_file():
            raise LedgerUnavailableError(
                "There is no ledger here.",
                where=str(path),
                next_step="Check the path, or make one with 'statpress ledger register'.",
            )
        ledger = cls(path, connect(path, writable=False), connect(path, writable=True))
        ready = False
        try:
            if not ledger._within(ledger._reader, check_schema):
                if not create:
                    raise LedgerUnavailableError("The file is empty.", where=str(path))
                ledger._within(ledger._writer, create_schema)
            ready = True
        finally:
            if not ready:
                ledger.close()
        return ledger

    def close(self) -> None:
        """Let go of the file."""
        self._reader.dispose()
        self._writer.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def register(
        self,
        *,
        dataset: str,
        epsilon: object,
        delta: object,
        adjacency: str,
        unit: str,
        unit_records: int,
        n_records: int,
        policy: str = "basic",
    ) -> Entry:
        """Open an account with limits that no sum of charges may pass.

        Raises:
            AlreadyRegisteredError: The dataset has an account.
            LedgerError: A value is not usable, or the ledger is not.
        """
        return self._append(
            "register",
            dataset=dataset,
            policy=policy,
            epsilon=canonical(exact(epsilon, where="epsilon")),
            delta=canonical(exact(delta, where="delta")),
            adjacency=adjacency,
            unit=unit,
            unit_records=unit_records,
            n_records=n_records,
        )

    def charge(
        self,
        *,
        dataset: str,
        run_id: str,
        epsilon: object,
        delta: object,
        mechanisms: list[dict[str, Any]],
        config_sha256: str,
        adjacency: str,
        unit: str,
        unit_records: int,
        n_records: int,
        insecure_seed: bool,
        version: str,
        once: bool = False,
    ) -> Entry:
        """Spend budget for a run; once this returns, the charge is on disk for good.

        The same call again returns the entry that is there, so that a caller who
        does not know whether the first attempt came through may repeat it. A caller
        who is going to draw gives ``once``: then a run that was charged before is
        refused, since it may have drawn before.

        Raises:
            BudgetError: The budget forbids it; nothing was written.
            LedgerError: The run was charged otherwise before, a value is not usable,
                or the ledger is not.
        """
        return self._append(
            "charge",
            once=once,
            dataset=dataset,
            run_id=run_id,
            epsilon=canonical(exact(epsilon, where="epsilon")),
            delta=canonical(exact(delta, where="delta")),
            mechanisms=mechanisms,
            config_sha256=config_sha256,
            adjacency=adjacency,
            unit=unit,
            unit_records=unit_records,
            n_records=n_records,
            insecure_seed=insecure_seed,
            version=version,
        )

    def publish(self, *, run_id: str, dataset: str, bundle: str, manifest_sha256: str) -> Entry:
        """Record that the bundle of a charged run was published; may be repeated.

        Raises:
            LedgerError: The run was not charged, or was published otherwise.
        """
        return self._append(
            "publish",
            run_id=run_id,
            dataset=dataset,
            bundle=bundle,
            manifest_sha256=manifest_sha256,
        )

    def entries(self) -> Iterator[Entry]:
        """All entries in order, as stored; ``verify`` is what checks them."""
        self._same_process()
        try:
            with self._reader.begin() as connection:
                yield from stored(connection)
            return
        except SQLAlchemyError as error:
            failure = fault(error, self.path)
        raise failure

    def state(self) -> State:
        """All accounts, charges and the head, from a replay of every entry."""
        return self._within(self._reader, lambda connection: replay(stored(connection)))

    def accounts(self) -> dict[str, Account]:
        """The accounts by dataset, in the order they were registered."""
        return self.state().accounts

    def account(self, dataset: str) -> Account:
        """Limit, spent, remaining and charges of one dataset.

        Raises:
            UnregisteredDatasetError: The ledger has no account of this name.
        """
        account = self.accounts().get(dataset)
        if account is None:
            raise UnregisteredDatasetError(
                "The ledger has no account of this name.", where=f"dataset {dataset!r}"
            )
        return account

    def verify(self, recompute: Recompute | None = None) -> Verification:
        """Recompute the chain and every sum from the entries alone.

        Args:
            recompute: Gives the (epsilon, delta) that a charge's body describes;
                neither may be above what was charged.

        Raises:
            LedgerIntegrityError: The first broken entry, with its sequence.
        """

        def inspected(connection: Connection) -> Iterator[Entry]:
            for entry in stored(connection):
                yield entry  # the replay has passed it when the loop goes on
                if recompute and entry.kind == "charge":
                    check_recomputed(entry, recompute)

        state = self._within(self._reader, lambda connection: replay(inspected(connection)))
        return Verification(state.next_sequence - 1, state.head)

    def _append(self, kind: str, *, once: bool = False, **fields: object) -> Entry:
        """Check and write one entry in one serialised transaction."""
        created = datetime.now(UTC).isoformat(timespec="seconds")
        body = json.loads(canonical_json({**fields, "created": created}))

        def work(connection: Connection) -> Entry:
            state = self._current(connection)
            entry = None if kind == "register" else repeated(state, kind, body)
            if entry is not None and once:
                raise LedgerError(
                    "This run was charged before and may have drawn.",
                    where=f"entry {entry.sequence}",
                    next_step="Start a new run.",
                )
            if entry is None:
                entry = next_entry(state, kind, body)
                append(connection, entry)
            return entry

        return self._within(self._writer, work)

    def _current(self, connection: Connection) -> State:
        """The state at the head, from what this object replayed before and what is new."""
        known = self._replayed
        anchor = known.next_sequence - 1
        rows = stored(connection, first=anchor)
        last = next(rows, None) if anchor else None
        if anchor and (last is None or last.hash != known.head):
            raise LedgerIntegrityError(
                "The entry is no longer the one that was here before.",
                sequence=anchor,
                where=f"entry {anchor}",
            )
        self._replayed = replay(rows, known)
        return self._replayed

    def _within(self, engine: Engine, work: Callable[[Connection], _T]) -> _T:
        """The result of the work, in a transaction of its own."""
        self._same_process()
        try:
            with engine.begin() as connection:
                return work(connection)
        except SQLAlchemyError as error:
            failure = fault(error, self.path)
        raise failure  # outside the except block: no internals ride along as its context

    def _same_process(self) -> None:
        """Raise in a forked child: SQLite's locks do not survive a fork."""
        if os.getpid() != self._process:
            raise LedgerUnavailableError(
                "The ledger was opened by another process.",
                where=str(self.path),
                next_step="Open it again in this process.",
            )
