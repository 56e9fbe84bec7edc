"""The database's own check of its pages and indexes, which no rule of the ledger sees."""

from __future__ import annotations

from sqlalchemy import Connection

from mechanisms.errors import LedgerIntegrityError

# PostgreSQL has its check in an extension, whose functions not every role may call.
_AMCHECK = """
SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
WHERE e.extname = 'amcheck' AND has_schema_privilege(n.oid, 'USAGE') AND (
    SELECT bool_and(has_function_privilege(p.oid, 'EXECUTE')) FROM pg_proc p
    WHERE p.pronamespace = n.oid AND p.proname IN ('bt_index_check', 'verify_heapam'))"""
_OF_INDEXES = """
SELECT {0}.bt_index_check(i.indexrelid::regclass, true) FROM pg_index i
WHERE i.indrelid = to_regclass('entries')"""
_OF_THE_TABLE = """
SELECT blkno, msg FROM {0}.verify_heapam('entries') LIMIT 5"""


def check_database(connection: Connection) -> bool:
    """Let the database check itself; False if this one cannot, or does not let this role.

    Raises:
        LedgerIntegrityError: It found damage.
    """
    run = connection.exec_driver_sql
    if connection.dialect.name == "sqlite":
        found = [str(row[0]) for row in run("PRAGMA integrity_check(5)")]
        damage = [] if found == ["ok"] else found
    else:
        schema = run(_AMCHECK).scalar()
        if schema is None:
            return False
        run(_OF_INDEXES.format(schema)).all()  # it fails if one is damaged
        damage = [f"block {block}: {what}" for block, what in run(_OF_THE_TABLE.format(schema))]
    if damage:
        lines = " ".join("; ".join(damage).split())
        raise LedgerIntegrityError(f"The database's own check found damage: {lines}.")
    return True
