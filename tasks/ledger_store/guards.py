"""Triggers by which the database itself refuses all but the next entry.

They stop accidents, and anyone without the rights of the owner. What someone does who
can alter the database at will, the chain of hashes reveals.
"""

from __future__ import annotations

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
SELECT c.relname, 'table' FROM pg_class c
WHERE c.relnamespace = to_regnamespace(current_schema())
AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
UNION ALL
SELECT c.relname, pg_get_indexdef(i.indexrelid)
FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid
WHERE i.indrelid = to_regclass('entries') AND i.indisvalid
AND c.relname IN ('entries_by_dataset', 'entries_by_run')
UNION ALL
SELECT t.tgname,
    concat_ws(' ', t.tgtype, t.tgenabled, t.tgattr, t.tgqual, p.proconfig, p.prosrc)
FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
WHERE t.tgrelid = to_regclass('entries') AND NOT t.tgisinternal
UNION ALL
SELECT r.rulename, 'rule' FROM pg_rewrite r WHERE r.ev_class = to_regclass('entries')"""


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
    """Tables and indexes of the database, and the definitions of triggers, by name."""
    if connection.dialect.name == "sqlite":
        query = """SELECT name, coalesce(CASE WHEN type = 'trigger' THEN sql ELSE type END, '')
            FROM sqlite_master WHERE sql IS NOT NULL"""
    else:
        query = _POSTGRES_OBJECTS
    return {name: str(definition) for name, definition in connection.exec_driver_sql(query)}


def altered(connection: Connection, objects: dict[str, str], own: set[str]) -> list[str]:
    """Guards that are missing or different, and objects that do not belong here."""
    expected = (
        _SQLITE
        if connection.dialect.name == "sqlite"
        else {
            name: f"{bits} A  {_PATH} {_FUNCTIONS[function]}"
            for name, (_, function, bits) in _POSTGRES.items()
        }
    )
    missing = [name for name, definition in expected.items() if objects.get(name) != definition]
    missing += sorted(own - objects.keys())
    return missing + sorted(objects.keys() - own - expected.keys())
