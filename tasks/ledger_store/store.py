"""What the ledger needs from a database, and which database an address names."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Protocol

from sqlalchemy import Engine, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from mechanisms.errors import LedgerError, LedgerUnavailableError

BUSY_SECONDS = 30.0
"""How long a transaction waits for others before it gives up."""

SCHEMA_DAMAGED = "The tables of the ledger are not as they were made."
"""What it means that a database does not understand a statement, since ours never change."""


class Store(Protocol):
    """A database that may hold a ledger.

    Attributes:
        where: Its place as people may read it, without a password.
        patience: Seconds for which a transaction waits for others.
        reader: Transactions that see one moment and write nothing.
        writer: Transactions that wait for all writers before them.
        maker: Transactions that may change the schema.
    """

    where: str
    patience: float
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
        """The error of the ledger that stands for a failure of the database."""
        ...

    def transient(self, error: SQLAlchemyError) -> bool:
        """Whether the transaction was rolled back because of others and may be run again."""
        ...


def open_store(location: str | Path) -> Store:
    """Return the store that a path or an address names.

    Args:
        location: Path of an SQLite file, ``sqlite:///file`` or ``postgresql://…``.

    Raises:
        LedgerUnavailableError: The address is neither.
        DependencyError: The driver of PostgreSQL is not installed.
    """
    if isinstance(location, Path) or "://" not in location:
        from tasks.ledger_store.sqlite import SQLiteStore

        return SQLiteStore(Path(location).absolute(), BUSY_SECONDS)
    url: URL | None = None
    with contextlib.suppress(ArgumentError, ValueError):
        url = make_url(location)
    if url is not None and url.drivername in {"sqlite", "sqlite+pysqlite"}:
        file = url.database
        if file and file.startswith("/") and not url.query and not url.host:
            from tasks.ledger_store.sqlite import SQLiteStore

            return SQLiteStore(Path(file).absolute(), BUSY_SECONDS)
    elif url is not None and url.drivername in {"postgresql", "postgres", "postgresql+psycopg"}:
        from tasks.ledger_store.postgres import PostgresStore

        return PostgresStore(url.set(drivername="postgresql+psycopg"), BUSY_SECONDS)
    kind = url.get_backend_name() if url else "unreadable"
    raise LedgerUnavailableError(
        f"A ledger is an SQLite file or a PostgreSQL database; this address is neither ({kind}).",
        where="ledger address",
        next_step="Give a path, sqlite:////srv/press/ledger.db or postgresql://host/database.",
    )
