"""A ledger in a PostgreSQL database, for workers on several machines.

It lives in a schema of its own, ``statpress``. A writing transaction is
``SERIALIZABLE`` and begins by locking the table, before it takes its snapshot, so
that writers queue instead of failing; what is undone all the same is run again.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, NullPool, create_engine, event, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from mechanisms.errors import (
    DependencyError,
    LedgerError,
    LedgerFullError,
    LedgerIntegrityError,
    LedgerLockedError,
    LedgerReadOnlyError,
    LedgerUnavailableError,
)
from tasks.ledger_store.store import SCHEMA_DAMAGED

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


class PostgresStore:
    """A database that may hold a ledger.

    Attributes:
        where: Its address without user and password.
        patience: Seconds for which a transaction waits for others.
        reader: Transactions that see one moment and write nothing.
        writer: Transactions that wait for all writers before them.
        maker: Transactions that may change the schema.

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
        self.where = f"postgresql://{host}{port}/{url.database or ''}"
        self.patience, wait = patience, int(patience * 1000)
        self.reader = _engine(url, patience, "REPEATABLE READ", _HERE, more=10)
        self.writer = _engine(url, patience, "SERIALIZABLE", _WRITE % (wait, 2 * wait))
        self.maker = _engine(url, patience, "READ COMMITTED", _MAKE % wait, kept=False)

    def present(self) -> bool:
        """Whether the database has our schema.

        Raises:
            LedgerError: The database cannot be asked.
        """
        query = text("SELECT to_regnamespace(:schema) IS NOT NULL")
        try:
            with self.reader.begin() as connection:
                return bool(connection.scalar(query, {"schema": _SCHEMA}))
        except SQLAlchemyError as error:
            failure = self.fault(error)
        raise failure

    def make(self) -> None:
        """Make our schema unless it is there; the database itself must exist.

        Raises:
            LedgerError: It cannot be made.
        """
        if self.present():
            return
        failure = None
        try:
            with self.maker.begin() as connection:
                connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {_SCHEMA}")
        except SQLAlchemyError as error:
            failure = self.fault(error)
        if failure:
            raise failure

    def fault(self, error: SQLAlchemyError) -> LedgerError:
        """The error of the ledger that stands for a failure of the database."""
        state = _state(error)
        if state in _FAULTS:
            kind, what = _FAULTS[state]
        elif state[:2] in _FAULTS:
            kind, what = _FAULTS[state[:2]]
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


def _engine(
    url: URL,
    patience: float,
    isolation: str,
    begin_with: str,
    *,
    more: int = 0,
    kept: bool = True,
) -> Engine:
    """An engine whose transactions begin with these statements, in one round trip."""
    pool: dict[str, Any] = {"poolclass": NullPool}
    if kept:
        pool = {
            "pool_size": 1,
            "max_overflow": more,
            "pool_timeout": patience,
            "pool_pre_ping": True,  # after a restart of the server the next act just works
            "pool_recycle": 3600,
        }
    engine = create_engine(
        url,
        isolation_level=isolation,
        **pool,
        connect_args={
            "connect_timeout": 10,
            "client_encoding": "utf8",
            "keepalives_idle": 30,
            "tcp_user_timeout": int(patience * 1000),
            "application_name": "statpress ledger",
            "prepare_threshold": None,  # poolers between us and the server drop prepared ones
        },
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin_with)

    return engine


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
_ADDRESS = "Check the server, and the address in STATPRESS_LEDGER, then try again."
_REFUSED = "The database refused an entry that does not follow the last one."
_FAULTS: dict[str, tuple[type[LedgerError], str]] = {
    "P0001": (LedgerIntegrityError, _REFUSED),
    "23": (LedgerIntegrityError, _REFUSED),
    "0A000": (LedgerIntegrityError, "The table of entries does not take entries any more."),
    "42P01": (LedgerIntegrityError, "The table of entries is missing."),
    "42": (LedgerIntegrityError, SCHEMA_DAMAGED),
    "XX": (LedgerIntegrityError, "The database is damaged."),
    "25006": (LedgerReadOnlyError, "The database is read-only."),
    "42501": (LedgerReadOnlyError, "This role may not do that in the ledger's schema."),
    "53100": (LedgerFullError, "The server has no space left for the ledger."),
    "53": (LedgerUnavailableError, "The server is out of memory or connections."),
    "58": (LedgerUnavailableError, "The server failed to read or write its files."),
    "55P03": (LedgerLockedError, "Another process has kept the ledger locked."),
    "57014": (LedgerLockedError, "The server cancelled the act after it had waited too long."),
    "40": (LedgerLockedError, "Other writers undid the act again and again."),
    "57": (LedgerUnavailableError, _LOST),
    "08": (LedgerUnavailableError, _LOST),
    "28": (LedgerUnavailableError, "The server does not accept this user or password."),
    "3D": (LedgerUnavailableError, "The server has no such database."),
}
