"""The privacy-loss ledger in a database: append-only, hash-chained, one writer at a time.

Serialised transactions on the database of a ledger.
Opening the database of a ledger, which is made or upgraded only when asked for.

The rules are in ``tasks.ledger.entries``; here they meet SQLite or PostgreSQL. Every act is
checked and written in one transaction that waits for all writers before it, so that
simultaneous runs cannot overspend together. It reads the few entries it depends on,
however long the history; ``state`` and ``verify`` read all.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from statpress.mechanisms.errors import LedgerError, LedgerIntegrityError, LedgerUnavailableError
from statpress.tasks.ledger import acts, tables
from statpress.tasks.ledger import acts as review
from statpress.tasks.ledger.accounts import Account, Charge, State
from statpress.tasks.ledger.chain import (
    Positions,
    Recompute,
    Verification,
    inspect,
    next_entry,
    repeated,
    replay,
    resume,
)
from statpress.tasks.ledger.entries import Body, Entry, canonical_json, check_name
from statpress.tasks.ledger.store import SCHEMA_DAMAGED, Store, open_store
from statpress.tasks.ledger.tables import check_database, check_schema, stored

_T = TypeVar("_T")


class Transactions:
    """Runs work in transactions of its own, and puts failures of the database in our words.

    Attributes:
        store: The database.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._process = os.getpid()

    def read(self, work: Callable[[Connection], _T]) -> _T:
        """The result of work that sees one moment and writes nothing."""
        return self._run(self.store.reader, work)

    def write(self, work: Callable[[Connection], _T]) -> _T:
        """The result of work that waits for all writers before it."""
        return self._run(self.store.writer, work)

    def change_schema(self, work: Callable[[Connection], _T]) -> _T:
        """The result of work that may change the schema."""
        return self._run(self.store.maker, work)

    def stream(self, work: Callable[[Connection], Iterator[_T]]) -> Iterator[_T]:
        """What the work yields, read while the caller goes through it.

        Raises:
            LedgerError: The database failed.
        """
        self._check_process()
        failure: LedgerError
        try:
            with self.store.reader.begin() as connection:
                yield from work(connection)
            return
        except SQLAlchemyError as error:
            failure = self.store.fault(error)
        except UnicodeDecodeError:
            failure = self._unreadable()
        raise failure

    def close(self) -> None:
        """Close all connections."""
        for engine in (self.store.reader, self.store.writer, self.store.maker):
            engine.dispose()

    def _run(self, engine: Engine, work: Callable[[Connection], _T]) -> _T:
        """Run the work in a transaction, again if others undid it.

        Raises:
            LedgerError: The work's own, or the database failed; nothing was written.
        """
        self._check_process()
        until = time.monotonic() + self.store.patience
        while True:
            failure: LedgerError
            try:
                with engine.begin() as connection:
                    return work(connection)
            except SQLAlchemyError as error:
                failure = self.store.fault(error)
                again = self.store.transient(error) and time.monotonic() < until
            except UnicodeDecodeError:
                failure, again = self._unreadable(), False
            except LedgerError as error:
                error.where = error.where or self.store.where
                raise
            if not again:
                raise failure  # outside the except block: no internals ride along
            time.sleep(random.uniform(0.001, 0.02))  # noqa: S311 (a pause, not a draw)

    def _unreadable(self) -> LedgerIntegrityError:
        """The error for a message of the database that quotes damaged text of its schema."""
        return LedgerIntegrityError(SCHEMA_DAMAGED, where=self.store.where)

    def _check_process(self) -> None:
        """Raise in a forked child: a connection does not survive a fork."""
        if os.getpid() != self._process:
            raise LedgerUnavailableError(
                "The ledger was opened by another process.",
                where=self.store.where,
                next_step="Open it again in this process.",
            )


def open_transactions(location: str | Path, *, create: bool) -> Transactions:
    """Open the ledger of a path or an address; the arguments and errors of ``Ledger.open``."""
    transactions = Transactions(open_store(location))
    store, ready = transactions.store, False
    try:
        if create:
            store.make()
        elif not store.present():
            raise LedgerUnavailableError(
                "There is no ledger here.",
                where=store.where,
                next_step="Check the place, or name it with --home; a second ledger would be a"
                " second budget. Only for a first dataset: 'statpress ledger register', as"
                " 'statpress plan CONFIG' prints it.",
            )
        if not transactions.read(check_schema):
            if not create:
                raise LedgerUnavailableError("The database is empty.", where=store.where)
            transactions.change_schema(tables.upgrade)
            transactions.read(check_schema)
        ready = True
    finally:
        if not ready:
            transactions.close()
    return transactions


def exists(location: str | Path) -> bool:
    """Whether there is a ledger to open, or something in its place.

    Raises:
        LedgerUnavailableError: The address is not one of a ledger, or the server
            cannot be asked.
    """
    with closing(Transactions(open_store(location))) as transactions:
        return transactions.store.present()


def upgrade(location: str | Path) -> str:
    """Bring the ledger of an older version to the present form; entries stay as they are.

    Returns:
        The form it had, which may be the present one.

    Raises:
        LedgerUnavailableError: There is no ledger, or it cannot be written.
        LedgerSchemaError: It is of a newer form than this version's.
        LedgerIntegrityError: Its entries do not hold; then nothing was changed.
    """

    def work(connection: Connection) -> str:
        form = tables.upgrade(connection)
        if not form:
            raise LedgerUnavailableError("The database is empty.", where=where)
        with closing(stored(connection)) as entries:
            replay(entries)
        return form

    with closing(Transactions(open_store(location))) as transactions:
        where = transactions.store.where
        if not transactions.store.present():
            raise LedgerUnavailableError("There is no ledger here.", where=where)
        return transactions.change_schema(work)


class Ledger:
    """A ledger opened with ``Ledger.open``; each process opens its own.

    Attributes:
        transactions: On its database.
    """

    def __init__(self, transactions: Transactions, known: Positions | None = None) -> None:
        self.transactions = transactions
        self._known = known  # None until the entries were read

    @classmethod
    def open(
        cls, location: str | Path, *, create: bool = True, known: Positions | None = None
    ) -> Self:
        """Open the ledger of a path, an ``sqlite:///`` or a ``postgresql://`` address.

        Args:
            location: Path of a file, or a database address.
            create: Make the ledger, for its owner only, when there is none.
            known: ``positions`` of the same ledger opened before, which spares reading it
                all again.

        Raises:
            LedgerUnavailableError: There is no ledger, or it cannot be opened.
            LedgerSchemaError: It is of an older or newer form than this version's.
            LedgerIntegrityError: The database holds something else, or its guards
                were altered.
        """
        return cls(open_transactions(location, create=create), known)

    exists = staticmethod(exists)
    upgrade = staticmethod(upgrade)

    register = acts.register
    amend = acts.amend
    charge = acts.charge
    draw = acts.draw
    void = acts.void
    publish = acts.publish
    refuse = acts.refuse
    reopen = acts.reopen
    checkpoint = acts.checkpoint

    set_approvers = review.set_approvers
    prepare = review.prepare
    decide = review.decide

    @property
    def where(self) -> str:
        """The place of the ledger, without any password."""
        return self.transactions.store.where

    def close(self) -> None:
        """Close the database."""
        self.transactions.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def entries(self) -> Iterator[Entry]:
        """All entries in order, as stored; ``verify`` is what checks them."""
        return self.transactions.stream(tables.stored)

    @property
    def positions(self) -> Positions:
        """Where every entry stands; the first act reads all entries for it, later acts read on."""
        if self._known is None:
            self._known = self.transactions.read(tables.survey)
        return self._known

    def hash_at(self, sequence: int) -> str | None:
        """The hash of an entry as it is stored; None if there is none."""
        return self.transactions.read(lambda connection: tables.hash_at(connection, sequence))

    def state(self) -> State:
        """All accounts, charges and the head, from a replay of every entry."""

        def work(connection: Connection) -> tuple[State, Positions]:
            positions = Positions()
            # An error that someone keeps would otherwise keep the reading open, and
            # with it the database at its moment.
            with closing(tables.stored(connection)) as entries:
                return replay(positions.watch(entries)), positions

        state, positions = self.transactions.read(work)
        self._known = self._known or positions
        return state

    def accounts(self) -> dict[str, Account]:
        """The accounts by dataset, in the order they were registered."""
        return self.state().accounts

    def account(self, dataset: str) -> Account:
        """Limit, spent, remaining and charges of one dataset.

        Raises:
            UnregisteredDatasetError: The ledger has no account of this name.
        """
        return self.state().account_of(dataset)

    def account_terms(self, dataset: str) -> Account:
        """One account without its charges, from the few entries that make it.

        Raises:
            UnregisteredDatasetError: The ledger has no account of this name.
        """

        def work(connection: Connection) -> Account:
            return self.state_for(connection, dataset, None).account_of(dataset)

        return self.transactions.read(work)

    def charged(self, *, run_id: str, dataset: str) -> Charge:
        """The charge of a run, and what followed it.

        Raises:
            LedgerError: The ledger has none.
        """

        def work(connection: Connection) -> Charge:
            charge = self.state_for(connection, dataset, run_id).charges.get(run_id)
            if charge is None:
                raise LedgerError(
                    "The ledger has no charge of this run.",
                    where=f"run {run_id!r}",
                    next_step="'statpress ledger charge-history' lists the runs.",
                )
            return charge

        return self.transactions.read(work)

    def verify(
        self,
        recompute: Recompute | None = None,
        *,
        head: str | None = None,
        trusted: Collection[str] = (),
    ) -> Verification:
        """Recompute the chain and every sum from the entries only; let the database check itself.

        Args:
            recompute: Gives the least that a charge's mechanisms spend; it must not
                be above what was charged.
            head: A hash kept elsewhere that the chain must hold.
            trusted: Public keys; with any, every checkpoint must be by one of them.

        Raises:
            LedgerIntegrityError: The first broken entry, with its sequence; or the database
                found damage.
        """

        def work(connection: Connection) -> tuple[Verification, Positions]:
            positions = Positions()
            with closing(tables.stored(connection)) as entries:
                read = positions.watch(entries)
                found = inspect(read, recompute, head=head, trusted=frozenset(trusted))
            checked = check_database(connection)
            return replace(found, database_checked=checked), positions

        verified, positions = self.transactions.read(work)
        self._known = self._known or positions
        return verified

    def append(self, kind: str, body: Body, compose: acts.Compose | None = None) -> Entry:
        """Check and write one entry in one serialised transaction.

        Args:
            kind: One of ``tasks.ledger.rules.RULES``.
            body: Its fields; the time of writing and the balance are added.
            compose: Gives further fields, which depend on the state it follows.

        Returns:
            The entry; or the one that is there, if the kind may be repeated and this is
            a repetition.

        Raises:
            BudgetError: The budget forbids it; nothing was written.
            LedgerError: The entry may not follow, or the ledger is not usable.
        """
        given = json.loads(canonical_json({"created": acts.now(), **body}))
        names = {name: given.get(name) for name in ("dataset", "run_id")}
        for name, value in names.items():
            if name in given:
                check_name(name, value)

        def work(connection: Connection) -> Entry:
            state = self.state_for(connection, names["dataset"], names["run_id"])
            entry = repeated(state, kind, given)
            if entry is None:
                entry = next_entry(state, kind, given | (compose(state) if compose else {}))
                tables.append(connection, entry)
            return entry

        positions = self.positions  # before the other writers have to wait for it
        entry = self.transactions.write(work)
        positions.note(entry)
        return entry

    def restore(self, entries: Iterator[Entry]) -> State:
        """Write the entries of an export into this ledger, which must be empty.

        Raises:
            LedgerIntegrityError: The first entry that does not hold; nothing was written.
            LedgerError: The ledger holds entries already.
        """

        def work(connection: Connection) -> State:
            if next(tables.stored(connection), None) is not None:
                raise LedgerError(
                    "The ledger holds entries already.",
                    where=self.where,
                    next_step="Import into an empty ledger.",
                )
            batch = list(entries)
            state = replay(batch)
            tables.append_all(connection, batch)
            return state

        return self.transactions.write(work)

    def state_for(self, connection: Connection, dataset: str | None, run_id: str | None) -> State:
        """The part of the state that an act on this dataset and run can depend on.

        Raises:
            LedgerIntegrityError: The last entry that this object knows of is not there
                any more, an entry does not hold, or an index hides one.
        """
        rows = tables.relevant(connection, self.positions, dataset=dataset, run_id=run_id)
        return resume(rows, dataset=dataset, run_id=run_id)
