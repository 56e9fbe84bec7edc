"""Opening a ledger and reading it: what every act on it stands on."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from mechanisms.errors import LedgerError, LedgerUnavailableError, UnregisteredDatasetError
from tasks.ledger_rules.accounts import Account, State
from tasks.ledger_rules.chain import Recompute, replay
from tasks.ledger_rules.entries import Entry
from tasks.ledger_rules.verification import Verification, inspect
from tasks.ledger_store import store as ledger_store
from tasks.ledger_store.schema import check_schema, upgrade
from tasks.ledger_store.store import Store, open_store
from tasks.ledger_store.tables import stored

_T = TypeVar("_T")


class LedgerAccess:
    """A ledger opened with ``open``; each process opens its own."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._process = os.getpid()

    @classmethod
    def open(cls, location: str | Path, *, create: bool = True) -> Self:
        """Open the ledger of a path, an ``sqlite:///`` or a ``postgresql://`` address.

        Args:
            location: Path of a file, or a database address.
            create: Make the ledger, for its owner alone, when there is none.

        Raises:
            LedgerUnavailableError: There is no ledger, or it cannot be opened.
            LedgerSchemaError: It is of an older or newer form than this version's.
            LedgerIntegrityError: The database is no ledger, or no longer a whole one.
        """
        ledger = cls(open_store(location))
        ready = False
        try:
            if create:
                ledger.store.make()
            elif not ledger.store.present():
                raise LedgerUnavailableError(
                    "There is no ledger here.",
                    where=ledger.where,
                    next_step="Check the place, or make one with 'statpress ledger register'.",
                )
            if not ledger._within(ledger.store.reader, check_schema):
                if not create:
                    raise LedgerUnavailableError("The database is empty.", where=ledger.where)
                ledger._within(ledger.store.maker, upgrade)
                ledger._within(ledger.store.reader, check_schema)
            ready = True
        finally:
            if not ready:
                ledger.close()
        return ledger

    @classmethod
    def exists(cls, location: str | Path) -> bool:
        """Whether there is a ledger to open, or something in its place.

        Raises:
            LedgerUnavailableError: The address is none, or the server cannot be asked.
        """
        ledger = cls(open_store(location))
        try:
            return ledger.store.present()
        finally:
            ledger.close()

    @classmethod
    def upgrade(cls, location: str | Path) -> str:
        """Bring the ledger of an older version to the present form; entries stay as they are.

        Returns:
            The form it had.

        Raises:
            LedgerUnavailableError: There is no ledger, or it cannot be written.
            LedgerIntegrityError: Its entries do not hold; then nothing was changed.
        """
        ledger = cls(open_store(location))
        try:
            if not ledger.store.present():
                raise LedgerUnavailableError("There is no ledger here.", where=ledger.where)

            def work(connection: Connection) -> str:
                form = upgrade(connection)
                if not form:
                    raise LedgerUnavailableError("The database is empty.", where=ledger.where)
                replayed(connection)
                return form

            return ledger._within(ledger.store.maker, work)
        finally:
            ledger.close()

    @property
    def where(self) -> str:
        """The place of the ledger, without any password."""
        return self.store.where

    def close(self) -> None:
        """Let go of the database."""
        for engine in (self.store.reader, self.store.writer, self.store.maker):
            engine.dispose()

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
        self._same_process()
        try:
            with self.store.reader.begin() as connection:
                yield from stored(connection)
            return
        except SQLAlchemyError as error:
            failure = self.store.fault(error)
        raise failure

    def state(self) -> State:
        """All accounts, charges and the head, from a replay of every entry."""
        return self._within(self.store.reader, replayed)

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

    def verify(
        self,
        recompute: Recompute | None = None,
        *,
        head: str | None = None,
        trusted: Collection[str] = (),
    ) -> Verification:
        """Recompute the chain and every sum from the entries alone.

        Args:
            recompute: Gives the least that a charge's mechanisms spend; it must not
                be above what was charged.
            head: A hash kept elsewhere that the chain must hold.
            trusted: Public keys; with any, every checkpoint must be by one of them.

        Raises:
            LedgerIntegrityError: The first broken entry, with its sequence.
        """

        def work(connection: Connection) -> Verification:
            with closing(stored(connection)) as entries:
                return inspect(entries, recompute, head=head, trusted=frozenset(trusted))

        return self._within(self.store.reader, work)

    def _within(self, engine: Engine, work: Callable[[Connection], _T]) -> _T:
        """The result of the work, in a transaction of its own."""
        self._same_process()
        until = time.monotonic() + ledger_store.BUSY_SECONDS
        while True:
            failure: LedgerError
            try:
                with engine.begin() as connection:
                    return work(connection)
            except SQLAlchemyError as error:
                failure = self.store.fault(error)
                again = self.store.transient(error) and time.monotonic() < until
            except LedgerError as error:
                error.where = error.where or self.where
                raise
            if not again:
                raise failure  # outside the except block: no internals ride along
            time.sleep(random.uniform(0.001, 0.02))  # noqa: S311 (a pause, not a draw)

    def _same_process(self) -> None:
        """Raise in a forked child: a connection does not survive a fork."""
        if os.getpid() != self._process:
            raise LedgerUnavailableError(
                "The ledger was opened by another process.",
                where=self.where,
                next_step="Open it again in this process.",
            )


def replayed(connection: Connection) -> State:
    """The state after all stored entries.

    The reading is closed even if it fails: an error that someone keeps would else keep
    the database at the moment of that reading.
    """
    with closing(stored(connection)) as entries:
        return replay(entries)
