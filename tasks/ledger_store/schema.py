"""The form of the database's schema: which one it has, and how it gets the present one.

The steps from form to form are Alembic revisions in ``tasks/ledger_store/migrations``.
Nothing is upgraded unasked: ``statpress ledger upgrade`` does it, after a backup.
"""

from __future__ import annotations

from sqlalchemy import Connection

from mechanisms.errors import LedgerIntegrityError, LedgerSchemaError
from tasks.ledger_store.guards import altered, database_objects

VERSION_TABLE = "schema_version"
FORMS = ("second",)
"""Names of the Alembic revisions, oldest first; the last is the present form."""

_MIGRATIONS = "tasks.ledger_store:migrations"


def check_schema(connection: Connection) -> bool:
    """Whether the database holds a ledger of the present form; False if it is empty.

    Raises:
        LedgerSchemaError: The ledger is of an older or a newer form.
        LedgerIntegrityError: It holds something else, or its guards were altered.
    """
    objects = database_objects(connection)
    form = _form(connection, objects)
    if form is None:
        return False
    if form != FORMS[-1]:
        raise LedgerSchemaError(
            f"The ledger is of the older form {form!r}; this version writes {FORMS[-1]!r}.",
            next_step="Make a backup, then run 'statpress ledger upgrade'.",
        )
    strange = altered(connection, objects)
    if strange:
        raise LedgerIntegrityError(f"The guards of the ledger were altered: {', '.join(strange)}.")
    return True


def upgrade(connection: Connection) -> str:
    """Bring an empty database or an older ledger to the present form, in one transaction.

    Returns:
        The form it had; empty text if the database was empty.

    Raises:
        LedgerSchemaError: The ledger is of a form that this version does not know.
        LedgerIntegrityError: The database holds something else.
    """
    from alembic import command
    from alembic.config import Config

    form = _form(connection, database_objects(connection))
    if form != FORMS[-1]:
        config = Config()
        config.set_main_option("script_location", _MIGRATIONS)
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    return form or ""


def _form(connection: Connection, objects: dict[str, str]) -> str | None:
    """The name of the schema's form, one of ``FORMS``; None for an empty database.

    Raises:
        LedgerSchemaError: This version does not know the form.
        LedgerIntegrityError: The database holds something else.
    """
    if not objects:
        return None
    if not {"entries", VERSION_TABLE} <= objects.keys():
        raise LedgerIntegrityError("The file is a database of something else.")
    query = f"SELECT version_num FROM {VERSION_TABLE}"  # noqa: S608 (our own name)
    form = ",".join(str(row[0]) for row in connection.exec_driver_sql(query))
    if form not in FORMS:
        raise LedgerSchemaError(
            f"The ledger is of the form {form[:60]!r}, which this version does not know.",
            next_step="Use the version of statpress that made or upgraded this ledger.",
        )
    return form
