"""The ledger's one table: its schema, the guards on it, the statements that read and extend it.

Triggers by which the database itself refuses all but the next entry stop accidents, and anyone
without the rights of the owner. What someone does who can alter the database at will, the chain of
hashes reveals.

The steps from one form of the schema to the next are Alembic revisions in
``tasks/ledger/migrations``. Nothing is upgraded unasked: ``statpress ledger upgrade`` does it,
after a backup.

``check_database`` is the database's own check of its pages and indexes, which no rule of the ledger
sees.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Integer,
    Row,
    Text,
    bindparam,
    column,
    func,
    insert,
    or_,
    select,
    table,
)

from statpress.mechanisms.errors import LedgerIntegrityError, LedgerSchemaError
from statpress.tasks.ledger.chain import Positions
from statpress.tasks.ledger.entries import Entry, canonical_json, parse_entry
from statpress.tasks.ledger.rules import RULES

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
        expected = {name: _words(text) for name, text in ({**_SQLITE, **SCHEMA.sqlite}).items()}
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


_Columns = tuple[int, str, str, str, str, str | None, str | None]

ENTRIES = table(
    "entries",
    column("sequence", Integer),
    *(column(name, Text) for name in ("kind", "body", "previous", "hash")),
    *(column(name, Text) for name in ("dataset", "run_id")),  # of the body, to search by
)
_E = ENTRIES.c


def _last(*of: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether a row is the last of those that meet the conditions."""
    return _E.sequence == select(func.max(_E.sequence)).where(*of).scalar_subquery()


# `= NULL` matches no row.
_DATASET, _RUN = _E.dataset == bindparam("dataset"), _E.run_id == bindparam("run_id")
_LARGEST = 2**31 - 1  # sequence that the column can hold
_IN_ORDER = select(ENTRIES).order_by(_E.sequence)
_COUNT = select(func.count()).select_from(ENTRIES)
_NO_INDEX = (
    "SET LOCAL enable_indexscan TO off; SET LOCAL enable_indexonlyscan TO off;"
    " SET LOCAL enable_bitmapscan TO off"
)
_INDEX_AGAIN = _NO_INDEX.replace("TO off", "TO on")
_INSERT = insert(ENTRIES).returning(_E.hash)


def stored(connection: Connection) -> Generator[Entry, None, None]:
    """The entries in order, read a thousand at a time."""
    with closing(_rows(connection)) as rows:
        for row in rows:
            yield _entry(row)


def survey(connection: Connection) -> Positions:
    """Where every entry stands."""
    positions = Positions()
    with closing(_rows(connection)) as rows:
        positions.extend(rows)
    return positions


def _rows(connection: Connection) -> Generator[Row[_Columns], None, None]:
    """The rows in order, without an index."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(_NO_INDEX)
    number = 0
    with connection.execute(_IN_ORDER, execution_options={"yield_per": 1000}) as rows:
        for row in rows:
            yield row
            number += 1
    if connection.scalar(_COUNT) != number:  # SQLite counts the smallest index
        raise _not_agreeing(number + 1)
    if connection.dialect.name == "postgresql":
        # A trigger of this transaction would keep its plan for as long as the connection lasts.
        connection.exec_driver_sql(_INDEX_AGAIN)


def relevant(
    connection: Connection, positions: Positions, *, dataset: str | None, run_id: str | None
) -> list[Entry]:
    """The entries that ``chain.resume`` needs, in order.

    What was written since the positions were taken is read in order, and counted as read. Of
    what is older the indexes must find what is known to be there, no more and no less.
    """
    every = tuple(kind for kind, rule in RULES.items() if rule.lasting == "every")
    last = tuple(kind for kind, rule in RULES.items() if rule.lasting == "last")
    anchor, head = positions.length, positions.head
    of = {"dataset": dataset, "run_id": run_id, "anchor": anchor}
    by_sequence = {row.sequence: row for row in connection.execute(_relevant(every, last), of)}
    rows = [by_sequence[sequence] for sequence in sorted(by_sequence)]
    if anchor and not any(row.sequence == anchor and row.hash == head for row in rows):
        raise LedgerIntegrityError(
            "The entry is no longer the one that was here before.",
            sequence=anchor,
            where=f"entry {anchor}",
        )
    positions.extend(row for row in rows if row.sequence > anchor)
    wanted = positions.relevant(dataset, run_id)
    odd = {row.sequence for row in rows if row.sequence < anchor}
    odd ^= {sequence for sequence in wanted if sequence < anchor}
    if odd:
        raise _not_agreeing(min(odd))
    return [_entry(row) for row in rows if row.sequence in wanted]


def _not_agreeing(sequence: int) -> LedgerIntegrityError:
    return LedgerIntegrityError(
        "An index of the database does not agree with the entries.",
        sequence=sequence,
        where=f"entry {sequence}",
    )


@cache
def _relevant(every: tuple[str, ...], last: tuple[str, ...]) -> CompoundSelect[_Columns]:
    """The statement of ``relevant``, built once: it is sent while all other writers wait."""
    of_the_act = or_(
        *(_last(_DATASET, _E.kind == kind) for kind in last),
        _DATASET & _E.kind.in_(every),
        _RUN,
    )
    # With an upper end too, PostgreSQL expects few rows before it has statistics, and no scan.
    since = select(ENTRIES).where(_E.sequence.between(bindparam("anchor"), _LARGEST))
    return since.union_all(select(ENTRIES).where(of_the_act))  # planned apart: no scan for an OR


def hash_at(connection: Connection, sequence: int) -> str | None:
    """The hash of an entry as it is stored, or None if there is none."""
    hash_: str | None = connection.scalar(select(_E.hash).where(_E.sequence == sequence))
    return hash_


def append(connection: Connection, entry: Entry) -> None:
    """Write an entry at the end, and check that it is there."""
    if connection.scalar(_INSERT, _row(entry)) != entry.hash:
        raise LedgerIntegrityError(
            "The database did not keep the entry.",
            sequence=entry.sequence,
            where=f"entry {entry.sequence}",
        )


def append_all(connection: Connection, entries: list[Entry]) -> None:
    """Write entries at the end, in order."""
    if entries:
        connection.execute(insert(ENTRIES), [_row(entry) for entry in entries])


def _row(entry: Entry) -> dict[str, object]:
    """The row that holds an entry."""
    return {
        "sequence": entry.sequence,
        "kind": entry.kind,
        "body": canonical_json(entry.body),
        "previous": entry.previous,
        "hash": entry.hash,
        "dataset": entry.body.get("dataset"),
        "run_id": entry.body.get("run_id"),
    }


def _entry(row: Row[_Columns]) -> Entry:
    """The entry of a row, whose two search columns must agree with its body."""
    entry = parse_entry(row.sequence, row.kind, row.body, row.previous, row.hash)
    for name, value in (("dataset", row.dataset), ("run_id", row.run_id)):
        if entry.body.get(name) != value:
            raise LedgerIntegrityError(
                f"The column {name} does not agree with the entry.",
                sequence=entry.sequence,
                where=f"entry {entry.sequence}",
            )
    return entry


VERSION_TABLE = "schema_version"


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The forms that the table had, and how one follows the other.

    Attributes:
        forms: Names of the Alembic revisions, oldest first; the last is the present form.
        migrations: Where the revisions are.
        sqlite: Statements of the present form, by name of what they make.
    """

    forms: tuple[str, ...] = ("second",)
    migrations: str = "statpress.tasks.ledger:migrations"
    sqlite: Mapping[str, str] = field(default_factory=lambda: _SQLITE_FORM)


SCHEMA = Schema()


def check_schema(connection: Connection) -> bool:
    """Whether the database holds a ledger of the present form; False if it is empty."""
    objects = database_objects(connection)
    form = _form(connection, objects)
    if form is None:
        return False
    if form != SCHEMA.forms[-1]:
        raise LedgerSchemaError(
            f"The ledger is of the older form {form!r}; this version writes {SCHEMA.forms[-1]!r}.",
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
    if form != SCHEMA.forms[-1]:
        config = Config()
        config.set_main_option("script_location", SCHEMA.migrations)
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    return form or ""


def _form(connection: Connection, objects: dict[str, str]) -> str | None:
    """The name of the schema's form, one of ``SCHEMA.forms``; None for an empty database."""
    if not objects:
        return None
    if not {"entries", VERSION_TABLE} <= objects.keys():
        raise LedgerIntegrityError("The file is a database of something else.")
    query = f"SELECT version_num FROM {VERSION_TABLE}"  # noqa: S608 (our own name)
    form = ",".join(str(row[0]) for row in connection.exec_driver_sql(query))
    if form not in SCHEMA.forms:
        raise LedgerSchemaError(
            f"The ledger is of the form {form[:60]!r}, which this version does not know.",
            next_step="Use the version of statpress that made or upgraded this ledger.",
        )
    return form


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
    """Let the database check itself; False if this one cannot, or does not let this role."""
    run = connection.exec_driver_sql
    if connection.dialect.name == "sqlite":
        report = [str(row[0]) for row in run("PRAGMA integrity_check(5)")]
        damage = [] if report == ["ok"] else report
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
