"""A ledger in an SQLite file: its place, connections and faults.

Write-ahead logging with ``synchronous=FULL`` keeps every acknowledged entry through
a crash of the machine; ``BEGIN IMMEDIATE`` puts writers in a line.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, Engine, QueuePool, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from mechanisms.errors import (
    LedgerError,
    LedgerFullError,
    LedgerIntegrityError,
    LedgerLockedError,
    LedgerReadOnlyError,
    LedgerUnavailableError,
)
from tasks.execution.home import make_private
from tasks.ledger_store.store import SCHEMA_DAMAGED

_making = threading.Lock()  # closing any handle of a file drops SQLite's locks on it


class SQLiteStore:
    """A file that may hold a ledger.

    Attributes:
        path: The file.
        where: The same as text.
        patience: Seconds for which a transaction waits for others.
        reader: Transactions that see one moment and write nothing.
        writer: Transactions that wait for all writers before them.
        maker: The same engine as ``writer``.
    """

    def __init__(self, path: Path, patience: float) -> None:
        path = self.path = Path("/" + str(path).lstrip("/"))  # two slashes begin a host name
        self.where = str(path)
        self.patience = patience
        self.reader = _engine(path, patience, writable=False)
        self.writer = self.maker = _engine(path, patience, writable=True)

    def present(self) -> bool:
        """Whether there is a file.

        Raises:
            LedgerUnavailableError: Its folder cannot be entered.
        """
        failure = ""
        try:
            return self.path.is_file()
        except OSError as error:
            failure = error.strerror or type(error).__name__
        raise LedgerUnavailableError(f"The ledger cannot be reached: {failure}.", where=self.where)

    def make(self) -> None:
        """Make the file and its folder, for their owner only, unless they exist.

        Raises:
            LedgerUnavailableError: They cannot be made.
        """
        failure = ""
        try:
            make_private(self.path.parent)
            with _making:
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            failure = "" if self.path.is_file() else "Something that is not a file is in its place"
        except OSError as error:
            failure = error.strerror or type(error).__name__
        if failure:
            raise LedgerUnavailableError(f"The ledger cannot be made: {failure}.", where=self.where)

    def fault(self, error: SQLAlchemyError) -> LedgerError:
        """The error of the ledger that stands for a failure of the database."""
        cause = getattr(error, "orig", None)
        code = getattr(cause, "sqlite_errorcode", None)
        code = code & 0xFF if isinstance(code, int) else None
        name = getattr(cause, "sqlite_errorname", type(error).__name__)
        kind, what = _FAULTS.get(
            code, (LedgerUnavailableError, f"Reading or writing the ledger failed ({name}).")
        )
        return kind(what, where=self.where)

    def transient(self, error: SQLAlchemyError) -> bool:
        """Never: writers wait for each other before they begin."""
        return False


def _engine(path: Path, patience: float, *, writable: bool) -> Engine:
    """An engine of the file; its transactions take the write lock first if writable.

    SQLite's own transaction control is off (``isolation_level`` None), and the
    engine begins every transaction itself, as SQLAlchemy's SQLite pages describe.
    """
    url = URL.create(
        "sqlite+pysqlite",
        database=f"file:{quote(os.fsencode(path))}",
        query={"uri": "true", "mode": "rw" if writable else "ro"},
    )
    # One writing connection: the threads of a process queue here, not at the lock.
    size, more = (1, 0) if writable else (1, 10)
    engine = create_engine(
        url,
        connect_args={"timeout": patience, "isolation_level": None},
        poolclass=QueuePool,
        pool_size=size,
        max_overflow=more,
        pool_timeout=patience,
    )

    @event.listens_for(engine, "connect")
    def prepare(raw: sqlite3.Connection, _record: object) -> None:
        # Bytes that are not UTF-8 become text that no hash agrees with.
        raw.text_factory = lambda data: data.decode("utf-8", "replace")
        if writable:
            _log_ahead(raw, patience)
            raw.execute("PRAGMA synchronous=FULL")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writable else "BEGIN")

    return engine


def _log_ahead(raw: sqlite3.Connection, patience: float) -> None:
    """Write-ahead logging; the switch fails at once under contention, so try again."""
    until = time.monotonic() + patience
    while True:
        try:
            raw.execute("PRAGMA journal_mode=WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
        time.sleep(0.01)


_LOCKED = LedgerLockedError, "Another process has kept the ledger locked."
_READ_ONLY = (
    LedgerReadOnlyError,
    "The ledger, or the folder it keeps its log in, cannot be written.",
)
_FAULTS: dict[int | None, tuple[type[LedgerError], str]] = {
    sqlite3.SQLITE_NOTADB: (LedgerIntegrityError, "The file is not an SQLite database."),
    sqlite3.SQLITE_ERROR: (LedgerIntegrityError, SCHEMA_DAMAGED),  # ours is always the same SQL
    sqlite3.SQLITE_CORRUPT: (LedgerIntegrityError, "The file is damaged."),
    sqlite3.SQLITE_CONSTRAINT: (
        LedgerIntegrityError,
        "The database refused an entry that does not follow the last one.",
    ),
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_FULL: (LedgerFullError, "There is no space left for the ledger."),
    sqlite3.SQLITE_CANTOPEN: (
        LedgerUnavailableError,
        "The ledger, or a file next to it, cannot be opened.",
    ),
}
