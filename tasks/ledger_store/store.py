"""What the ledger asks of a database, whichever it is."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Protocol

from sqlalchemy import Engine, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from mechanisms.errors import LedgerError, LedgerUnavailableError

BUSY_SECONDS = 30.0


class Store(Protocol):
    """A database that may hold a ledger.

    Attributes:
        where: Its place as people may read it, without a password.
        reader: Transactions that see one moment and write nothing.
        writer: Transactions that wait for all writers before them.
        maker: Transactions that may change the schema.
    """

    where: str
    reader: Engine
    writer: Engine
    maker: Engine

    def present(self) -> bool:
        """Whether there is something to open."""
        ...

    def make(self) -> None:
        """Make an empty place for the ledger unless there is one."""
        ...

    def fault(self, error: SQLAlchemyError) -> LedgerError:
        """What a failure of the database means to the keeper of the ledger."""
        ...

    def transient(self, error: SQLAlchemyError) -> bool:
        """Whether the transaction was undone by others, and may simply be run again."""
        ...


def open_store(location: str | Path) -> Store:
    """The store that a path or an address names.

    Args:
        location: Path of an SQLite file, ``sqlite:///file`` or ``postgresql://…``.

    Raises:
        LedgerUnavailableError: It is no such address.
        DependencyError: The driver of PostgreSQL is not installed.
    """
    if isinstance(location, Path) or "://" not in location:
        from tasks.ledger_store.sqlite import SQLiteStore

        return SQLiteStore(Path(location).absolute())
    url: URL | None = None
    with contextlib.suppress(ArgumentError, ValueError):
        url = make_url(location)
    if url is not None and url.drivername in {"sqlite", "sqlite+pysqlite"}:
        file = url.database
        if file and file.startswith("/") and not url.query and not url.host:
            from tasks.ledger_store.sqlite import SQLiteStore

            return SQLiteStore(Path(file).absolute())
    elif url is not None and url.drivername in {"postgresql", "postgres", "postgresql+psycopg"}:
        from tasks.ledger_store.postgres import PostgresStore

        return PostgresStore(url.set(drivername="postgresql+psycopg"))
    kind = url.get_backend_name() if url else "unreadable"
    raise LedgerUnavailableError(
        f"A ledger is an SQLite file or a PostgreSQL database; this address is neither ({kind}).",
        where="ledger address",
        next_step="Give a path, sqlite:////srv/press/ledger.db or postgresql://host/database.",
    )
