"""Serialised transactions on the database of a ledger."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from mechanisms.errors import LedgerError, LedgerIntegrityError, LedgerUnavailableError
from tasks.ledger_store.store import SCHEMA_DAMAGED, Store

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
