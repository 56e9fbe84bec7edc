"""Triggers by which the database itself refuses all but the next entry.

They stop accidents, and anyone without the rights of the owner. What someone does who
can alter the database at will, the chain of hashes reveals.
"""

from __future__ import annotations

import re

from sqlalchemy import Connection

# SQLite: INSERT OR REPLACE removes rows without the delete trigger, hence the first one.
_SQLITE = {
    "entries_follow": """CREATE TRIGGER entries_follow BEFORE INSERT ON entries
WHEN NEW.sequence IS NOT (SELECT coalesce(max(sequence), 0) + 1 FROM entries)
OR NEW.previous IS NOT coalesce(
    (SELECT hash FROM entries ORDER BY sequence DESC LIMIT 1), hex(zeroblob(32)))
OR (NEW.dataset IS NULL AND NEW.kind IS NOT 'checkpoint')
OR EXISTS (SELECT 1 FROM entries WHERE hash = NEW.hash)
OR EXISTS (SELECT 1 FROM entries WHERE run_id = NEW.run_id AND kind = NEW.kind)
BEGIN SELECT RAISE(ABORT, 'an entry follows the last one'); END""",
    "entries_no_update": """CREATE TRIGGER entries_no_update BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END""",
    "entries_no_delete": """CREATE TRIGGER entries_no_delete BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'entries are never removed'); END""",
}

_FOLLOW = """
DECLARE head record;
BEGIN
    SELECT sequence, hash INTO head FROM entries ORDER BY sequence DESC LIMIT 1;
    IF NEW.sequence IS DISTINCT FROM coalesce(head.sequence, 0) + 1
    OR NEW.previous IS DISTINCT FROM coalesce(head.hash, repeat('0', 64))
    OR (NEW.dataset IS NULL AND NEW.kind IS DISTINCT FROM 'checkpoint')
    THEN RAISE EXCEPTION 'an entry follows the last one';
    END IF;
    RETURN NEW;
END"""
_REFUSE = """
BEGIN
    RAISE EXCEPTION 'entries are never changed or removed';
END"""
_PATH = '{"search_path=statpress, pg_temp"}'
_FUNCTIONS = {"entries_follow": _FOLLOW, "entries_refuse": _REFUSE}
# When each trigger fires, its function, and its bits in pg_trigger.tgtype.
_POSTGRES = {
    "entries_follow": ("BEFORE INSERT ON entries FOR EACH ROW", "entries_follow", 7),
    "entries_no_change": ("BEFORE UPDATE OR DELETE ON entries FOR EACH ROW", "entries_refuse", 27),
    "entries_no_truncate": (
        "BEFORE TRUNCATE ON entries FOR EACH STATEMENT",
        "entries_refuse",
        34,
    ),
}
_POSTGRES_OBJECTS = """
SELECT c.relname, concat_ws(' ', c.relkind, c.relpersistence) FROM pg_class c
WHERE c.relnamespace = to_regnamespace(current_schema())
AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
UNION ALL
SELECT 'column ' || a.attname, concat_ws(' ', format_type(a.atttypid, a.atttypmod),
    a.attnotnull, a.atthasdef) || a.attidentity::text || a.attgenerated::text
FROM pg_attribute a
WHERE a.attrelid = to_regclass('entries') AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT 'constraint ' || c.conname, pg_get_constraintdef(c.oid) FROM pg_constraint c
WHERE c.conrelid = to_regclass('entries') AND c.contype NOT IN ('n', 't')
UNION ALL
SELECT c.relname, split_part(pg_get_indexdef(i.indexrelid), ' ON ', 2)
    || CASE WHEN i.indisunique THEN ' unique' ELSE '' END
FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid
WHERE i.indrelid = to_regclass('entries') AND i.indisvalid AND i.indisready AND i.indislive
UNION ALL
SELECT t.tgname, concat_ws(' ', t.tgtype, t.tgenabled, t.tgattr, t.tgqual, l.lanname,
    p.prosecdef, p.proconfig, p.prosrc)
FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_language l ON l.oid = p.prolang
WHERE t.tgrelid = to_regclass('entries') AND NOT t.tgisinternal
UNION ALL
SELECT 'rule ' || r.rulename, 'rule' FROM pg_rewrite r WHERE r.ev_class = to_regclass('entries')
UNION ALL
SELECT 'row security', 'on' FROM pg_class c
WHERE c.oid = to_regclass('entries') AND (c.relrowsecurity OR c.relforcerowsecurity)
UNION ALL
SELECT 'policy ' || p.polname, 'policy' FROM pg_policy p
WHERE p.polrelid = to_regclass('entries')
UNION ALL
SELECT 'inheritance ' || h.inhrelid::regclass, 'inheritance' FROM pg_inherits h
WHERE to_regclass('entries') IN (h.inhparent, h.inhrelid)"""
_TABLE, _INDEX = "r p", "statpress.entries USING btree"
_POSTGRES_FORM = {
    "entries": _TABLE,
    "schema_version": _TABLE,
    "column sequence": "integer t f",
    **{f"column {name}": "text t f" for name in ("kind", "body", "previous", "hash")},
    **{f"column {name}": "text f f" for name in ("dataset", "run_id")},
    "constraint entries_pkey": "PRIMARY KEY (sequence)",
    "constraint entries_hash_key": "UNIQUE (hash)",
    "entries_pkey": f"{_INDEX} (sequence) unique",
    "entries_hash_key": f"{_INDEX} (hash) unique",
    "entries_by_dataset": f"{_INDEX} (dataset, kind, sequence)",
    "entries_by_run": f"{_INDEX} (run_id, kind) unique",
}
_SQLITE_FORM = {
    "entries": """CREATE TABLE entries (sequence INTEGER NOT NULL, kind TEXT NOT NULL,
        body TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL, dataset TEXT, run_id TEXT,
        PRIMARY KEY (sequence), UNIQUE (hash))""",
    "schema_version": """CREATE TABLE schema_version (version_num VARCHAR(32) NOT NULL,
        CONSTRAINT schema_version_pkc PRIMARY KEY (version_num))""",
    "entries_by_dataset": "CREATE INDEX entries_by_dataset ON entries (dataset, kind, sequence)",
    "entries_by_run": "CREATE UNIQUE INDEX entries_by_run ON entries (run_id, kind)",
}


def install(connection: Connection) -> None:
    """Put the guards in place, in the form of this version."""
    run = connection.exec_driver_sql
    if connection.dialect.name == "sqlite":
        for name, trigger in _SQLITE.items():
            run(f"DROP TRIGGER IF EXISTS {name}")
            run(trigger)
        return
    for name, body in _FUNCTIONS.items():
        run(
            f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger"
            f" LANGUAGE plpgsql SET search_path FROM CURRENT AS $guard${body}$guard$"
        )
    for name, (moment, function, _) in _POSTGRES.items():
        run(f"DROP TRIGGER IF EXISTS {name} ON entries")
        run(f"CREATE TRIGGER {name} {moment} EXECUTE FUNCTION {function}()")
        run(f"ALTER TABLE entries ENABLE ALWAYS TRIGGER {name}")


def database_objects(connection: Connection) -> dict[str, str]:
    """Everything in the database that an act could meet, by name, with its definition."""
    if connection.dialect.name == "sqlite":
        query = "SELECT name, coalesce(sql, '') FROM sqlite_master WHERE sql IS NOT NULL"
    else:
        query = _POSTGRES_OBJECTS
    return {str(name): str(text) for name, text in connection.exec_driver_sql(query)}


def altered(connection: Connection, objects: dict[str, str]) -> list[str]:
    """Names of what is missing or different, and of what does not belong here."""
    if connection.dialect.name == "sqlite":
        expected = {name: _words(text) for name, text in (_SQLITE | _SQLITE_FORM).items()}
        objects = {name: _words(text) for name, text in objects.items()}
    else:
        expected = _POSTGRES_FORM | {
            name: f"{bits} A  plpgsql f {_PATH} {_FUNCTIONS[function]}"
            for name, (_, function, bits) in _POSTGRES.items()
        }
    missing = [name for name, definition in expected.items() if objects.get(name) != definition]
    return missing + sorted(objects.keys() - expected.keys())


def _words(statement: str) -> str:
    """A statement of SQLite, as written by any version of what writes it, or by a dump."""
    spaced = re.sub(r"([(),])", r" \1 ", statement.replace('"', ""))
    return " ".join(spaced.split())
