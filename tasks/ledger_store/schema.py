"""Which form of the schema a database has, and the way to the present one.

The steps from form to form are Alembic revisions under ``tasks/ledger_store/migrations``. Nothing
is upgraded unasked: ``statpress ledger upgrade`` does it, after a backup.
"""

from __future__ import annotations

from sqlalchemy import Connection

from mechanisms.errors import LedgerIntegrityError, LedgerSchemaError
from tasks.ledger_store.guards import altered, found

VERSION_TABLE = "schema_version"
FORMS = ("first", "second")
"""Names of the Alembic revisions, oldest first; the last is the present form."""

_OWN = {"entries", VERSION_TABLE, "entries_by_dataset", "entries_by_run"}


def form_of(connection: Connection, objects: dict[str, str]) -> str | None:
    """The name of the schema's form; None for an empty database.

    Raises:
        LedgerIntegrityError: The database holds something else.
    """
    if not objects:
        return None
    if {"entries", VERSION_TABLE} <= objects.keys():
        query = f"SELECT version_num FROM {VERSION_TABLE}"  # noqa: S608 (our own name)
        return ",".join(str(row[0]) for row in connection.exec_driver_sql(query))
    if {"entries", "meta"} <= objects.keys():  # as made before the revisions were counted
        schema = connection.exec_driver_sql("SELECT value FROM meta WHERE name = 'schema'")
        return "first" if schema.scalar() == "1" else "unknown"
    raise LedgerIntegrityError("The file is a database of something else.")


def check_schema(connection: Connection) -> bool:
    """Whether the database holds a ledger; an empty one does not.

    Raises:
        LedgerSchemaError: The ledger is of an older or a newer form.
        LedgerIntegrityError: It holds something else, or its guards were altered.
    """
    objects = found(connection)
    form = form_of(connection, objects)
    if form is None:
        return False
    if form in FORMS[:-1]:
        raise LedgerSchemaError(
            f"The ledger is of the older form {form!r}; this version writes {FORMS[-1]!r}.",
            next_step="Make a backup, then run 'statpress ledger upgrade'.",
        )
    if form != FORMS[-1]:
        raise LedgerSchemaError(
            f"The ledger is of the form {form[:60]!r}, which this version does not know.",
            next_step="Use the version of statpress that made or upgraded this ledger.",
        )
    strange = altered(connection, objects, _OWN)
    if strange:
        raise LedgerIntegrityError(f"The guards of the ledger were altered: {', '.join(strange)}.")
    return True


def upgrade(connection: Connection) -> str:
    """Bring an empty database or an older ledger to the present form, in one transaction.

    Returns:
        The form it had; empty if there was nothing.

    Raises:
        LedgerSchemaError: The ledger is of a form that this version does not know.
    """
    from alembic import command
    from alembic.config import Config

    form = form_of(connection, found(connection))
    if form is not None and form not in FORMS:
        check_schema(connection)
    config = Config()
    config.set_main_option("script_location", "tasks.ledger_store:migrations")
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    if form == "first" and VERSION_TABLE not in found(connection):
        command.stamp(config, "first")
    if form != FORMS[-1]:
        command.upgrade(config, "head")
    return form or ""
