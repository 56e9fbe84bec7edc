"""The SQLite file of a ledger: its place, schema, connections and faults.

One table of entries, guarded by triggers: a row follows the last one or is refused,
and is never changed or removed. The triggers stop accidents; against someone who
can write the file, the chain of hashes is what tells.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    QueuePool,
    Table,
    Text,
    create_engine,
    event,
    insert,
    make_url,
    select,
)
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from mechanisms.errors import LedgerError, LedgerIntegrityError, LedgerUnavailableError
from tasks.entries import Entry, canonical_json, parse_entry

BUSY_SECONDS = 30.0
SCHEMA = "1"

_TABLES = MetaData()
_ENTRIES = Table(
    "entries",
    _TABLES,
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("previous", Text, nullable=False),
    Column("hash", Text, nullable=False, unique=True),
)
_META = Table("meta", _TABLES, Column("name", Text, primary_key=True), Column("value", Text))
# INSERT OR REPLACE removes rows without the delete trigger, hence the first one.
_TRIGGERS = {
    "entries_follow": """CREATE TRIGGER entries_follow BEFORE INSERT ON entries
WHEN NEW.sequence IS NOT (SELECT coalesce(max(sequence), 0) + 1 FROM entries)
OR NEW.previous IS NOT coalesce(
    (SELECT hash FROM entries ORDER BY sequence DESC LIMIT 1), hex(zeroblob(32)))
OR EXISTS (SELECT 1 FROM entries WHERE hash = NEW.hash)
BEGIN SELECT RAISE(ABORT, 'an entry follows the last one'); END""",
    "entries_no_update": """CREATE TRIGGER entries_no_update BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END""",
    "entries_no_delete": """CREATE TRIGGER entries_no_delete BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'entries are never removed'); END""",
}
_making = threading.Lock()  # closing any handle of a file drops SQLite's locks on it


def place(location: str | Path) -> Path:
    """The absolute path that a path or an ``sqlite:///`` address names.

    Raises:
        LedgerUnavailableError: It is no address of an SQLite file.
    """
    if isinstance(location, Path) or "://" not in location:
        return Path(location).expanduser().absolute()
    try:
        url = make_url(location)
    except (ArgumentError, ValueError):
        url = None
    file = url.database if url and url.drivername in {"sqlite", "sqlite+pysqlite"} else None
    if url is None or not file or file == ":memory:" or url.query or url.host:
        kind = url.get_backend_name() if url else "unreadable"
        raise LedgerUnavailableError(
            f"A ledger is an SQLite file, and this is not the address of one ({kind}).",
            where="ledger address",
            next_step="Give a path, or an address such as sqlite:////srv/press/ledger.db.",
        )
    return Path(file).absolute()


def make_file(path: Path) -> None:
    """Make the file and its folder, for their owner alone, unless they are there."""
    failure = ""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _making:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        failure = "" if path.is_file() else "Something that is no file is in its place"
    except OSError as error:
        failure = error.strerror or type(error).__name__
    if failure:
        raise LedgerUnavailableError(f"The ledger cannot be made: {failure}.", where=str(path))


def connect(path: Path, *, writable: bool) -> Engine:
    """An engine of the file; its transactions take the write lock first if writable.

    SQLite's own transaction control is off (``isolation_level`` None), and the
    engine begins every transaction itself, as SQLAlchemy's SQLite pages describe.
    """
    url = URL.create(
        "sqlite+pysqlite",
        database=f"file:{quote(str(path))}",
        query={"uri": "true", "mode": "rw" if writable else "ro"},
    )
    # One writing connection: the threads of a process queue here, not at the lock.
    size, more = (1, 0) if writable else (1, 10)
    engine = create_engine(
        url,
        connect_args={"timeout": BUSY_SECONDS, "isolation_level": None},
        poolclass=QueuePool,
        pool_size=size,
        max_overflow=more,
        pool_timeout=BUSY_SECONDS,
    )

    @event.listens_for(engine, "connect")
    def prepare(raw: sqlite3.Connection, _record: object) -> None:
        # Bytes that are not UTF-8 become text that no hash agrees with.
        raw.text_factory = lambda data: data.decode("utf-8", "replace")
        if writable:
            _log_ahead(raw)
            raw.execute("PRAGMA synchronous=FULL")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writable else "BEGIN")

    return engine


def _log_ahead(raw: sqlite3.Connection) -> None:
    """Write-ahead logging; the switch fails at once under contention, so try again."""
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            raw.execute("PRAGMA journal_mode=WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
        time.sleep(0.01)


def create_schema(connection: Connection) -> None:
    """Make tables and triggers, unless another process was faster."""
    if check_schema(connection):
        return
    _TABLES.create_all(connection)
    for trigger in _TRIGGERS.values():
        connection.exec_driver_sql(trigger)
    connection.execute(insert(_META), {"name": "schema", "value": SCHEMA})


def check_schema(connection: Connection) -> bool:
    """Whether the file holds a ledger; an empty file does not.

    Raises:
        LedgerUnavailableError: The ledger is of another schema than this one.
        LedgerIntegrityError: The file holds something else, or lacks its triggers.
    """
    rows = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master").all()
    if not rows:
        return False
    found = {row[0]: row[1] for row in rows}
    flaw = ""
    if not {"entries", "meta"} <= found.keys():
        flaw = "The file is a database of something else."
    else:
        schema = connection.scalar(select(_META.c.value).where(_META.c.name == "schema"))
        if schema != SCHEMA:
            raise LedgerUnavailableError(
                f"The ledger has schema {schema!r}; this version knows {SCHEMA!r}.",
                where=str(connection.engine.url.database),
                next_step="Use a version of statpress that knows this schema.",
            )
        altered = [name for name, sql in _TRIGGERS.items() if found.get(name) != sql]
        own = {"entries", "meta", *_TRIGGERS}
        altered += [name for name, sql in found.items() if name not in own and sql is not None]
        if altered:
            flaw = f"The guards of the ledger were altered: {', '.join(altered)}."
    if flaw:
        raise LedgerIntegrityError(flaw, where=str(connection.engine.url.database))
    return True


def stored(connection: Connection, first: int = 0) -> Iterator[Entry]:
    """The entries from a sequence on, read a thousand at a time."""
    query = select(_ENTRIES).where(_ENTRIES.c.sequence >= first).order_by(_ENTRIES.c.sequence)
    for row in connection.execute(query, execution_options={"yield_per": 1000}):
        yield parse_entry(row.sequence, row.kind, row.body, row.previous, row.hash)


def append(connection: Connection, entry: Entry) -> None:
    """Write an entry at the end, and see that it is there."""
    row = {
        "sequence": entry.sequence,
        "kind": entry.kind,
        "body": canonical_json(entry.body),
        "previous": entry.previous,
        "hash": entry.hash,
    }
    connection.execute(insert(_ENTRIES), row)
    written = select(_ENTRIES.c.hash).where(_ENTRIES.c.sequence == entry.sequence)
    if connection.scalar(written) != entry.hash:
        raise LedgerIntegrityError(
            "The database did not keep the entry.",
            sequence=entry.sequence,
            where=str(connection.engine.url.database),
        )


def fault(error: SQLAlchemyError, path: Path) -> LedgerError:
    """What a failure of the database means to the keeper of the ledger."""
    cause = getattr(error, "orig", None)
    code = getattr(cause, "sqlite_errorcode", None)
    code = code & 0xFF if isinstance(code, int) else None
    where = str(path)
    if code in _BROKEN:
        return LedgerIntegrityError(_BROKEN[code], where=where)
    name = getattr(cause, "sqlite_errorname", type(error).__name__)
    what = _UNAVAILABLE.get(code, f"The database failed ({name}).")
    return LedgerUnavailableError(what, where=where)


_BROKEN = {
    sqlite3.SQLITE_NOTADB: "The file is not an SQLite database.",
    sqlite3.SQLITE_CORRUPT: "The file is damaged.",
    sqlite3.SQLITE_CONSTRAINT: "The database refused an entry that does not follow the last one.",
}
_UNAVAILABLE: dict[int | None, str] = {
    sqlite3.SQLITE_BUSY: "Another process has kept the ledger locked.",
    sqlite3.SQLITE_LOCKED: "Another process has kept the ledger locked.",
    sqlite3.SQLITE_READONLY: "The ledger, or the folder it keeps its log in, cannot be written.",
    sqlite3.SQLITE_PERM: "The ledger, or the folder it keeps its log in, cannot be written.",
    sqlite3.SQLITE_CANTOPEN: "The ledger, or a file beside it, cannot be opened.",
    sqlite3.SQLITE_FULL: "There is no space left for the ledger.",
    sqlite3.SQLITE_IOERR: "Reading or writing the ledger failed.",
}
