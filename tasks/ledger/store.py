"""The databases that may hold a ledger: an SQLite file, or PostgreSQL for several machines.

Every act runs in one transaction, which waits for all writers before it; what a database fails with
becomes an error of the ledger.

In SQLite, write-ahead logging with ``synchronous=FULL`` keeps every acknowledged entry through a
crash of the machine, and ``BEGIN IMMEDIATE`` lets one writer in. Those who wait for it look again
after ever longer pauses, and never see it free while another process writes again and again; so
writers first queue outside the database (``_in_turn``). In PostgreSQL the ledger lives in a schema
of its own, ``statpress``. A writing transaction is ``SERIALIZABLE`` and begins by locking the
table, before it takes its snapshot, so that writers queue instead of failing; one that is undone
all the same is run again.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import random
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import Connection, Engine, NullPool, QueuePool, create_engine, event, make_url, text
from sqlalchemy.engine import URL, Dialect
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from statpress.mechanisms.errors import (
    DependencyError,
    LedgerError,
    LedgerFullError,
    LedgerIntegrityError,
    LedgerLockedError,
    LedgerReadOnlyError,
    LedgerUnavailableError,
)
from statpress.tasks.private_zone.folders import check_not_exposed, make_private

BUSY_SECONDS = 30.0
"""How long a transaction waits for others before it gives up."""

_T = TypeVar("_T")
_Fault = tuple[type[LedgerError], str]

# Our statements never change, so one that a database does not understand means this.
_SCHEMA_DAMAGED = "The tables of the ledger are not as they were made."
_REFUSED = "The database refused an entry that does not follow the last one."
_LOCKED: _Fault = LedgerLockedError, "Another process has kept the ledger locked."


class Store(ABC):
    """A database that may hold a ledger; each process opens its own.

    Attributes:
        where: Its place as people may read it, without a password.
        patience: Seconds for which a transaction waits for others.
        reader: Transactions that see one moment and write nothing.
        writer: Transactions that wait for all writers before them.
        maker: Transactions that may change the schema.
    """

    def __init__(
        self, where: str, patience: float, *, reader: Engine, writer: Engine, maker: Engine
    ) -> None:
        self.where, self.patience = where, patience
        self.reader, self.writer, self.maker = reader, writer, maker
        self._process = os.getpid()

    @abstractmethod
    def present(self) -> bool:
        """Whether there is something to open."""

    @abstractmethod
    def make(self) -> None:
        """Make an empty place for the ledger unless there is one."""

    @abstractmethod
    def fault(self, error: SQLAlchemyError) -> LedgerError:
        """The error of the ledger that stands for a failure of the database."""

    @abstractmethod
    def transient(self, error: SQLAlchemyError) -> bool:
        """Whether the transaction was rolled back because of others and may be run again."""

    def read(self, work: Callable[[Connection], _T]) -> _T:
        """The result of work that sees one moment and writes nothing."""
        return self._run(self.reader, work)

    def write(self, work: Callable[[Connection], _T]) -> _T:
        """The result of work that waits for all writers before it."""
        return self._run(self.writer, work)

    def change_schema(self, work: Callable[[Connection], _T]) -> _T:
        """The result of work that may change the schema."""
        return self._run(self.maker, work)

    def stream(self, work: Callable[[Connection], Iterator[_T]]) -> Iterator[_T]:
        """What the work yields, read while the caller goes through it."""
        self._check_process()
        failure: LedgerError
        try:
            with self.reader.begin() as connection:
                yield from work(connection)
            return
        except SQLAlchemyError as error:
            failure = self.fault(error)
        except UnicodeDecodeError:
            failure = self._unreadable()
        raise failure

    def close(self) -> None:
        """Close all connections."""
        for engine in (self.reader, self.writer, self.maker):
            engine.dispose()

    def _run(self, engine: Engine, work: Callable[[Connection], _T]) -> _T:
        """Run the work in a transaction, again if others undid it."""
        self._check_process()
        until = time.monotonic() + self.patience
        while True:
            failure: LedgerError
            try:
                with engine.begin() as connection:
                    return work(connection)
            except SQLAlchemyError as error:
                failure = self.fault(error)
                again = self.transient(error) and time.monotonic() < until
            except UnicodeDecodeError:
                failure, again = self._unreadable(), False
            except LedgerError as error:
                error.where = error.where or self.where
                raise
            if not again:
                raise failure  # outside the except block: no internals ride along
            time.sleep(random.uniform(0.001, 0.02))  # noqa: S311 (a pause, not a draw)

    def _unreadable(self) -> LedgerIntegrityError:
        """The error for a message of the database that quotes damaged text of its schema."""
        return LedgerIntegrityError(_SCHEMA_DAMAGED, where=self.where)

    def _check_process(self) -> None:
        """Raise in a forked child: a connection does not survive a fork."""
        if os.getpid() != self._process:
            raise LedgerUnavailableError(
                "The ledger was opened by another process.",
                where=self.where,
                next_step="Open it again in this process.",
            )


def _beginning(engine: Engine, begin_with: str) -> Engine:
    """The engine, whose transactions begin with these statements, in one round trip."""

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin_with)

    return engine


def open_store(location: str | Path, patience: float = BUSY_SECONDS) -> Store:
    """The store that a path, a ``sqlite:///`` or a ``postgresql://`` address names.

    Its transactions wait for others for ``patience`` seconds.
    """
    if isinstance(location, Path) or "://" not in location:
        return SQLiteStore(Path(location).absolute(), patience)
    url: URL | None = None
    with contextlib.suppress(ArgumentError, ValueError):
        url = make_url(location)
    if url is not None and url.drivername in {"sqlite", "sqlite+pysqlite"}:
        file = url.database
        if file and file.startswith("/") and not url.query and not url.host:
            return SQLiteStore(Path(file).absolute(), patience)
    elif url is not None and url.drivername in {"postgresql", "postgres", "postgresql+psycopg"}:
        return PostgresStore(url.set(drivername="postgresql+psycopg"), patience)
    kind = url.get_backend_name() if url else "unreadable"
    raise LedgerUnavailableError(
        f"A ledger is an SQLite file or a PostgreSQL database; this address is neither ({kind}).",
        where="ledger address",
        next_step="Give a path, sqlite:////srv/press/ledger.db or postgresql://host/database.",
    )


_making = threading.Lock()  # closing any handle of a file drops SQLite's locks on it


class SQLiteStore(Store):
    """A file that may hold a ledger."""

    def __init__(self, path: Path, patience: float) -> None:
        self.path = Path("/" + str(path).lstrip("/"))  # two slashes begin a host name
        writer = _sqlite_engine(self.path, patience, writable=True)
        super().__init__(
            str(self.path),
            patience,
            reader=_sqlite_engine(self.path, patience, writable=False),
            writer=writer,
            maker=writer,
        )

    def present(self) -> bool:
        """Whether there is a file, which not every user may write to."""
        self._check_not_exposed()
        failure = ""
        try:
            return self.path.is_file()
        except OSError as error:
            failure = error.strerror or type(error).__name__
        raise LedgerUnavailableError(f"The ledger cannot be reached: {failure}.", where=self.where)

    def make(self) -> None:
        """Make the file and its folder, for their owner only, unless they exist."""
        self._check_not_exposed()
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

    def _check_not_exposed(self) -> None:
        """The folder too, since SQLite goes by any journal that lies beside the file."""
        check_not_exposed(self.path.parent)
        check_not_exposed(self.path)

    def write(self, work: Callable[[Connection], _T]) -> _T:
        """The result of work that waits for all writers before it."""
        self._check_process()
        with _in_turn(self.path, self.patience):
            return super().write(work)

    def fault(self, error: SQLAlchemyError) -> LedgerError:
        cause = getattr(error, "orig", None)
        code = getattr(cause, "sqlite_errorcode", None)
        code = code & 0xFF if isinstance(code, int) else None
        name = getattr(cause, "sqlite_errorname", type(error).__name__)
        kind, what = _SQLITE_FAULTS.get(
            code, (LedgerUnavailableError, f"Reading or writing the ledger failed ({name}).")
        )
        return kind(what, where=self.where)

    def transient(self, error: SQLAlchemyError) -> bool:
        """Never: writers wait for each other before they begin."""
        return False


@contextlib.contextmanager
def _in_turn(ledger: Path, patience: float) -> Iterator[None]:
    """Queue with the other writers of a ledger: nobody writes twice while somebody waits.

    There are two locks, of a file beside the ledger and of the folder. Who has the first is next,
    and keeps it until the second is free, which is the turn; so a writer that comes again at once
    finds the first taken. The kernel wakes whoever waits for a lock, but does not hand it over.

    It only orders the writers; SQLite's own lock keeps them apart. So whoever has waited too
    long for a turn, or cannot lock, goes on without.
    """
    with contextlib.ExitStack() as opened:
        try:
            place = f"{ledger}-queue"
            queue = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode=0o600)
            opened.callback(os.close, queue)
            turn = os.open(ledger.parent, os.O_RDONLY | os.O_DIRECTORY)
            opened.callback(os.close, turn)
        except OSError:
            yield
            return
        closing = opened.pop_all()
    came: Future[None] = Future()

    def take(how: int) -> None:
        fcntl.flock(queue, fcntl.LOCK_EX | how)
        fcntl.flock(turn, fcntl.LOCK_EX | how)
        fcntl.flock(queue, fcntl.LOCK_UN)
        came.set_result(None)

    def wait() -> None:
        try:
            take(0)
        except OSError:
            came.set_result(None)

    def leave(_: object) -> None:
        for lock in (turn, queue):
            with contextlib.suppress(OSError):  # a forked child may have the descriptor too
                fcntl.flock(lock, fcntl.LOCK_UN)
        closing.close()

    try:
        try:
            take(fcntl.LOCK_NB)
        except OSError:  # taken, mostly; the call that waits has no time limit
            threading.Thread(target=wait, daemon=True).start()
        with contextlib.suppress(TimeoutError):
            came.result(patience)
        yield
    finally:
        came.add_done_callback(leave)  # at once, or when a turn comes that nobody waits for


def _sqlite_engine(path: Path, patience: float, *, writable: bool) -> Engine:
    """An engine of the file; its transactions take the write lock first if writable.

    SQLite's own transaction control is off (``isolation_level`` None), and the
    engine begins every transaction itself, as SQLAlchemy's SQLite pages describe.
    """
    place = f"file:{quote(os.fsencode(path))}?mode={'rw' if writable else 'ro'}"

    def connect() -> Any:
        raw = sqlite3.connect(
            place, patience, isolation_level=None, check_same_thread=False, uri=True
        )
        # Bytes that are not UTF-8 become text that no hash agrees with.
        raw.text_factory = lambda data: data.decode("utf-8", "replace")
        if writable:
            try:
                _log_ahead(raw, patience)
                raw.execute("PRAGMA synchronous=FULL")
            except BaseException:
                raw.close()
                raise
        return raw

    # One writing connection: the threads of a process queue here, not at the lock.
    size, more = (1, 0) if writable else (1, 10)
    dialect, compiled = _sqlite_dialect()
    pool = QueuePool(connect, size, more, patience, dialect=dialect)
    engine = Engine(pool, dialect, URL.create("sqlite+pysqlite", database=str(path)))
    engine.update_execution_options(compiled_cache=compiled)
    return _beginning(engine, "BEGIN IMMEDIATE" if writable else "BEGIN")


@functools.cache
def _sqlite_dialect() -> tuple[Dialect, dict[Any, Any]]:
    """What all files share: the dialect, which tried a connection, and its compiled statements.

    A run opens its ledger again and again, and to compile its statements takes longer than to
    run them. They are always the same few, so the cache does not grow.
    """
    engine = create_engine("sqlite+pysqlite://", poolclass=NullPool)
    with engine.connect():
        return engine.dialect, {}


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


_READ_ONLY: _Fault = (
    LedgerReadOnlyError,
    "The ledger, or the folder it keeps its log in, cannot be written.",
)
_SQLITE_FAULTS: dict[int | None, _Fault] = {
    sqlite3.SQLITE_NOTADB: (LedgerIntegrityError, "The file is not an SQLite database."),
    sqlite3.SQLITE_ERROR: (LedgerIntegrityError, _SCHEMA_DAMAGED),
    sqlite3.SQLITE_CORRUPT: (LedgerIntegrityError, "The file is damaged."),
    sqlite3.SQLITE_CONSTRAINT: (LedgerIntegrityError, _REFUSED),
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


_SCHEMA = "statpress"
_OPTIONS = {
    "host", "port", "passfile", "service", "sslmode", "sslcert", "sslkey", "sslrootcert",
    "sslcrl", "gssencmode", "channel_binding", "target_session_attrs",
}  # fmt: skip
_MAKING = 0x73746174  # the advisory lock of those who change the schema
_HERE = f"SET LOCAL search_path TO {_SCHEMA}, pg_temp"
# A server or role may be set to acknowledge before the disk has it: not for us.
_WRITE = f"""{_HERE}; SET LOCAL synchronous_commit TO on; SET LOCAL lock_timeout TO %d;
SET LOCAL statement_timeout TO %d; LOCK TABLE entries IN SHARE ROW EXCLUSIVE MODE"""
_MAKE = f"""{_HERE}; SET LOCAL synchronous_commit TO on; SET LOCAL lock_timeout TO %d;
SELECT pg_advisory_xact_lock({_MAKING})"""


class PostgresStore(Store):
    """A PostgreSQL database that may hold a ledger.

    Raises:
        DependencyError: The driver is not installed.
        LedgerUnavailableError: The address has an unknown option.
    """

    def __init__(self, url: URL, patience: float) -> None:
        try:
            import psycopg  # noqa: F401
        except ImportError:
            missing = True
        else:
            missing = False
        if missing:
            raise DependencyError(
                "The driver of PostgreSQL is not installed.",
                where="ledger address",
                next_step="Install it with: pip install 'statpress[postgres]'",
            )
        host, unclear = url.host or url.query.get("host", ""), url.query.keys() - _OPTIONS
        if not isinstance(host, str) or "@" in f"{host}{url.database}" or unclear:
            raise LedgerUnavailableError(
                "The address has an option that is not known here, or is not well-formed.",
                where="ledger address",
                next_step="Write '@', '/' and ':' of a password as %40, %2F and %3A; options"
                f" may be {', '.join(sorted(_OPTIONS))}.",
            )
        port = f":{url.port}" if url.port else ""
        wait = int(patience * 1000)
        super().__init__(
            f"postgresql://{host}{port}/{url.database or ''}",
            patience,
            reader=_postgres_engine(url, patience, "REPEATABLE READ", _HERE, more=10),
            writer=_postgres_engine(url, patience, "SERIALIZABLE", _WRITE % (wait, 2 * wait)),
            maker=_postgres_engine(url, patience, "READ COMMITTED", _MAKE % wait, kept=False),
        )

    def present(self) -> bool:
        """Whether the database has our schema."""
        query = text("SELECT to_regnamespace(:schema) IS NOT NULL")
        return self.read(lambda connection: bool(connection.scalar(query, {"schema": _SCHEMA})))

    def make(self) -> None:
        """Make our schema unless it is there; the database itself must exist."""
        statement = f"CREATE SCHEMA IF NOT EXISTS {_SCHEMA}"
        if not self.present():
            self.change_schema(lambda connection: connection.exec_driver_sql(statement))

    def fault(self, error: SQLAlchemyError) -> LedgerError:
        state = _state(error)
        if state in _POSTGRES_FAULTS:
            kind, what = _POSTGRES_FAULTS[state]
        elif state[:2] in _POSTGRES_FAULTS:
            kind, what = _POSTGRES_FAULTS[state[:2]]
        elif isinstance(error, DBAPIError) and not state:
            # A failing COMMIT has no statement either, but breaks a connection there was.
            broken = error.connection_invalidated or error.statement is not None
            kind, what = LedgerUnavailableError, _LOST if broken else _UNREACHED
        else:
            name = state or type(error).__name__
            kind, what = LedgerUnavailableError, f"The database failed ({name})."
        step = _ADDRESS if what in (_UNREACHED, _LOST) else ""
        return kind(what, where=self.where, next_step=step)

    def transient(self, error: SQLAlchemyError) -> bool:
        """A serialisation failure or a deadlock: the transaction left nothing."""
        return _state(error) in {"40001", "40P01"}


def _postgres_engine(
    url: URL,
    patience: float,
    isolation: str,
    begin_with: str,
    *,
    more: int = 0,
    kept: bool = True,
) -> Engine:
    pool: dict[str, Any] = {"poolclass": NullPool}
    if kept:
        pool = {
            "pool_size": 1,
            "max_overflow": more,
            "pool_timeout": patience,
            "pool_pre_ping": True,  # after a restart of the server the next act just works
            "pool_recycle": 3600,
        }
    arguments = {
        "connect_timeout": 10,
        "client_encoding": "utf8",
        "keepalives_idle": 30,
        "tcp_user_timeout": int(patience * 1000),
        "application_name": "statpress ledger",
        "prepare_threshold": None,  # poolers between us and the server drop prepared ones
    }
    engine = create_engine(url, isolation_level=isolation, connect_args=arguments, **pool)
    return _beginning(engine, begin_with)


def _state(error: SQLAlchemyError) -> str:
    """The SQLSTATE of a failure, or nothing."""
    return str(getattr(getattr(error, "orig", None), "sqlstate", None) or "")


_UNREACHED = (
    "The server cannot be reached, does not accept this user, password or database,"
    " or takes no more connections."
)
_LOST = (
    "The connection to the server broke; whether the entry was written is not known,"
    " and nothing was drawn. The same act may be repeated."
)
_ADDRESS = (
    "Check the server, its password file (PGPASSFILE), and the address in STATPRESS_LEDGER or the"
    " home's file ledger-address, then try again."
)
_POSTGRES_FAULTS: dict[str, _Fault] = {
    "P0001": (LedgerIntegrityError, _REFUSED),
    "23": (LedgerIntegrityError, _REFUSED),
    "0A000": (LedgerIntegrityError, "The table of entries does not take entries any more."),
    "42P01": (LedgerIntegrityError, "The table of entries is missing."),
    "42": (LedgerIntegrityError, _SCHEMA_DAMAGED),
    "XX": (LedgerIntegrityError, "The database is damaged."),
    "25006": (LedgerReadOnlyError, "The database is read-only."),
    "42501": (LedgerReadOnlyError, "This role may not do that in the ledger's schema."),
    "53100": (LedgerFullError, "The server has no space left for the ledger."),
    "53": (LedgerUnavailableError, "The server is out of memory or connections."),
    "58": (LedgerUnavailableError, "The server failed to read or write its files."),
    "55P03": _LOCKED,
    "57014": (LedgerLockedError, "The server cancelled the act after it had waited too long."),
    "40": (LedgerLockedError, "Other writers undid the act again and again."),
    "57": (LedgerUnavailableError, _LOST),
    "08": (LedgerUnavailableError, _LOST),
    "28": (LedgerUnavailableError, "The server does not accept this user or password."),
    "3D": (LedgerUnavailableError, "The server has no such database."),
}
