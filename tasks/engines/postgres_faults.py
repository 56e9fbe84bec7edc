"""What PostgreSQL's failures are in public words, and which address it is reached by."""

from __future__ import annotations

from typing import Any

from mechanisms.errors import (
    DependencyError,
    SourceAccessError,
    SourceError,
    SourceNotFoundError,
    SourceUnavailableError,
    SourceUnreadableError,
)
from tasks.engines.credentials import Credentials

PATIENCE: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 6,
    "client_encoding": "utf8",
    "application_name": "statpress",
    "prepare_threshold": None,  # poolers between us and the server drop prepared ones
}
"""How a connection is made: one that was cut is noticed in a minute and a half."""
_OPTIONS = frozenset(
    {"host", "hostaddr", "port", "user", "password", "dbname", "passfile", "service", "sslmode",
     "sslcert", "sslkey", "sslrootcert", "sslcrl", "gssencmode", "krbsrvname", "channel_binding",
     "target_session_attrs"}
)  # fmt: skip
_UNREACHED = "The server cannot be reached, does not accept this user or database, or takes no more"
_LOST = "The connection to the server broke, or the server ended what it was asked for."
_RIGHTS = "The role may not read the table, all of its wanted columns, or all of its rows."
_FAULTS: dict[str, tuple[type[SourceError], str]] = {
    "42P01": (SourceNotFoundError, "The database has no such table."),
    "3F": (SourceNotFoundError, "The database has no such table."),
    "3D": (SourceNotFoundError, "The server has no such database."),
    "42501": (SourceAccessError, _RIGHTS),
    "28": (SourceAccessError, "The server does not accept this user or password."),
    "0A": (SourceUnreadableError, "The server cannot count this table."),
    "08": (SourceUnavailableError, _LOST),
    "57": (SourceUnavailableError, _LOST),
    "40": (SourceUnavailableError, "The server undid the reading."),
    "53": (SourceUnavailableError, "The server is out of memory, disk space or connections."),
    "55": (SourceUnavailableError, "The table is locked."),
    "58": (SourceUnavailableError, "The server failed to read or write its files."),
    "72": (SourceUnavailableError, "The server no longer keeps the state that was read."),
}
"""By SQLSTATE, or its class."""
_TABLE = "Check source.table, which is schema.table letter for letter, and the database's URL."
_ROLE = "GRANT the role USAGE on the schema and SELECT on the table, or show it a view."


def address(url: str, credentials: Credentials) -> dict[str, Any]:
    """The parts of a database's URL.

    Raises:
        DependencyError: The driver is not installed.
        SourceAccessError: It is not a URL of PostgreSQL; nothing of it is repeated.
    """
    try:
        from psycopg import Error
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        installed = False
    else:
        installed = True
    if not installed:
        raise DependencyError(
            "The driver of PostgreSQL is not installed.",
            where=str(credentials.env or credentials.file),
            next_step="Install it with: pip install 'statpress[postgres]'",
        )
    found: dict[str, Any] = {}
    try:
        if url.startswith(("postgresql://", "postgres://")):
            found = {k: v for k, v in conninfo_to_dict(url).items() if v is not None}
    except Error:
        found = {}
    unknown = found.keys() - _OPTIONS
    if not found or unknown:
        raise SourceAccessError(
            "What is found there is not the URL of a PostgreSQL database, or has an option that is "
            "not known here.",
            where=str(credentials.env or credentials.file),
            next_step="It begins with postgresql://; write '@', '/' and ':' of a password as %40, "
            f"%2F and %3A; options may be {', '.join(sorted(_OPTIONS))}.",
        )
    return found


def not_connected(error: Exception, where: str) -> SourceError | None:
    """The error that stands for a failure to connect."""
    import psycopg

    if not isinstance(error, psycopg.OperationalError) or error.sqlstate:
        return failure_of(error, where)
    asked = error.pgconn is not None and (error.pgconn.used_password or error.pgconn.needs_password)
    if asked:
        kind, what = _FAULTS["28"]
        return kind(what, where=where)
    return SourceUnavailableError(f"{_UNREACHED} connections.", where=where)


def failure_of(error: Exception, where: str) -> SourceError | None:
    """The error that stands for one of the driver; None for one of something else."""
    import psycopg

    if not isinstance(error, psycopg.Error):
        return None
    state = error.sqlstate or ""
    if not state and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return SourceUnavailableError(_LOST, where=where)
    kind, what = _FAULTS.get(state) or _FAULTS.get(state[:2]) or (
        SourceUnreadableError, "The server cannot count what the table holds."
    )  # fmt: skip
    steps = {SourceNotFoundError: _TABLE, SourceUnreadableError: "The curator log has the detail."}
    return kind(what, where=where, next_step=_ROLE if state == "42501" else steps.get(kind, ""))
