"""Edits of a ledger in PostgreSQL by its superuser: found or harmless, no charge past the limit.

Each edit is made in a fresh copy of one ledger with nothing left, in a home that has seen its
head. Edits of the schema are all there are below; those of rows are drawn.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from ledger_attack import hash_of
from ledger_damage import failure, overspends, spent_ledger, verdict
from postgres import Server, run
from sqlalchemy import make_url

from statpress.tasks.ledger.entries import Entry, canonical_json
from statpress.tasks.ledger.home_ledger import open_ledger, remember
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.folders import Home

pytestmark = pytest.mark.system

TABLE = "statpress.entries"
ENTRIES = spent_ledger(21)
OFF = f"ALTER TABLE {TABLE} DISABLE TRIGGER ALL"
ON = tuple(
    f"ALTER TABLE {TABLE} ENABLE ALWAYS TRIGGER {name}"
    for name in ("entries_follow", "entries_no_change", "entries_no_truncate")
)
OF_THE_SCHEMA: dict[str, tuple[str, ...]] = {
    "row security": (f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY",),
    "row security, forced": (f"ALTER TABLE {TABLE} FORCE ROW LEVEL SECURITY",),
    "a policy": (f"CREATE POLICY few ON {TABLE} USING (sequence < 9)",),
    "a default": (f"ALTER TABLE {TABLE} ALTER COLUMN dataset SET DEFAULT 'gamma'",),
    "a child": (f"CREATE TABLE public.child () INHERITS ({TABLE})",),
    "a child with entries": (
        f"CREATE TABLE public.child () INHERITS ({TABLE})",
        f"INSERT INTO public.child SELECT * FROM ONLY {TABLE} WHERE sequence = 9",
    ),
    "a rule": (f"CREATE RULE deaf AS ON INSERT TO {TABLE} DO INSTEAD NOTHING",),
    "a trigger": (
        f"CREATE TRIGGER more AFTER INSERT ON {TABLE} FOR EACH ROW"
        " EXECUTE FUNCTION statpress.entries_refuse()",
    ),
    "no trigger": (f"DROP TRIGGER entries_no_change ON {TABLE}",),
    "a trigger disabled": (f"ALTER TABLE {TABLE} DISABLE TRIGGER entries_follow",),
    "a function of the superuser": ("ALTER FUNCTION statpress.entries_follow() SECURITY DEFINER",),
    "no unique hashes": (f"ALTER TABLE {TABLE} DROP CONSTRAINT entries_hash_key",),
    "no primary key": (f"ALTER TABLE {TABLE} DROP CONSTRAINT entries_pkey",),
    "a check": (f"ALTER TABLE {TABLE} ADD CHECK (sequence < 9000)",),
    "no index": ("DROP INDEX statpress.entries_by_dataset",),
    "an index of some entries": (
        "DROP INDEX statpress.entries_by_dataset",
        f"CREATE INDEX entries_by_dataset ON {TABLE} (dataset, kind, sequence) WHERE sequence < 9",
    ),
    "an index more": (f"CREATE INDEX more ON {TABLE} (kind)",),
    "a column more": (f"ALTER TABLE {TABLE} ADD COLUMN note text",),
    "a column generated": (
        f"ALTER TABLE {TABLE} ADD COLUMN note text GENERATED ALWAYS AS (kind) STORED",
    ),
    "nulls": (f"ALTER TABLE {TABLE} ALTER COLUMN kind DROP NOT NULL",),
    "another type": (f"ALTER TABLE {TABLE} ALTER COLUMN run_id TYPE varchar(40)",),
    "another name of a column": (f"ALTER TABLE {TABLE} RENAME COLUMN run_id TO run",),
    "another name of the table": (f"ALTER TABLE {TABLE} RENAME TO other",),
    "a view in its place": (
        f"ALTER TABLE {TABLE} RENAME TO other",
        f"CREATE VIEW {TABLE} AS SELECT * FROM statpress.other WHERE sequence < 60",
    ),
    "a table lost by a crash": (f"ALTER TABLE {TABLE} SET UNLOGGED",),
    "another form": ("UPDATE statpress.schema_version SET version_num = 'third'",),
    "no form": ("DELETE FROM statpress.schema_version",),
}
Edit = tuple[str, ...]


@pytest.fixture(scope="module")
def copy(
    postgres_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], tuple[Home, str]]:
    """Gives a home and its ledger's address, each time a copy of the same."""
    original = postgres_server.database()
    run(original, "CREATE EXTENSION amcheck")
    with Ledger.open(original) as ledger:
        ledger.restore(iter(ENTRIES))
    name = make_url(original).database
    numbers = itertools.count()

    def fresh() -> tuple[Home, str]:
        edited = f"edited_{next(numbers)}"
        postgres_server.run(f"CREATE DATABASE {edited} TEMPLATE {name}")
        address = postgres_server.url(edited)
        place = Home(Path(tmp_path_factory.mktemp("edited")), address)
        with open_ledger(place) as ledger:
            remember(ledger, ledger.state())
        return place, address

    return fresh


def of_rows(rng: random.Random) -> Iterator[Edit]:
    """Edits of rows without end, by one who switches the triggers off and on again."""
    while True:
        entry = rng.choice(ENTRIES)
        text = canonical_json(entry.body)
        place = rng.randrange(len(text))
        other = text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1 :]
        cheaper = canonical_json(entry.body | {"epsilon": "0.001"})
        of = f"WHERE sequence = {entry.sequence}"
        statement = rng.choice(
            (
                f"UPDATE {TABLE} SET body = {quoted(other)} {of}",
                f"UPDATE {TABLE} SET body = {quoted(cheaper)} {of}",
                f"UPDATE {TABLE} SET body = {quoted(cheaper)}, hash = '{rehashed(entry)}' {of}",
                f"UPDATE {TABLE} SET dataset = 'gamma' {of}",
                f"UPDATE {TABLE} SET run_id = run_id || 'x' {of}",
                f"UPDATE {TABLE} SET dataset = NULL, run_id = NULL {of}",
                f"UPDATE {TABLE} SET kind = 'draw' {of}",
                f"UPDATE {TABLE} SET hash = previous || 'x' {of}",
                f"UPDATE {TABLE} SET previous = hash {of}",
                f"UPDATE {TABLE} SET sequence = sequence + 1000 {of}",
                f"DELETE FROM {TABLE} {of}",
                f"DELETE FROM {TABLE} WHERE sequence >= {entry.sequence}",
                f"DELETE FROM {TABLE} WHERE dataset = 'alpha' AND kind = 'charge'",
                f"TRUNCATE {TABLE}",
                f"UPDATE {TABLE} SET body = body {of}",  # says the same
            )
        )
        yield (OFF, statement, *ON)


def rehashed(entry: Entry) -> str:
    """The hash of the entry with a small epsilon."""
    body = canonical_json(entry.body | {"epsilon": "0.001"})
    return hash_of(entry.sequence, entry.kind, body, entry.previous)


def quoted(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


@pytest.mark.parametrize("edits", [15, pytest.param(100, marks=pytest.mark.nightly)])
def test_edits_are_found_or_harmless(copy: Callable[[], tuple[Home, str]], edits: int) -> None:
    rng, found = random.Random(14), Counter[str]()
    home, _ = copy()
    true = (len(ENTRIES), ENTRIES[-1].hash)
    assert verdict(home) == true and overspends(home) == []
    names = list(OF_THE_SCHEMA)
    schemas = names if edits > 2 * len(names) else rng.sample(names, edits // 2)
    rows = of_rows(rng)
    drawn: list[Edit] = [OF_THE_SCHEMA[name] for name in schemas]
    while len(drawn) < edits:
        drawn.append(next(rows))
    for edit in drawn:
        home, address = copy()
        try:
            run(address, *edit)
        except psycopg.errors.IntegrityError:  # the database did not let the superuser
            found["refused"] += 1
            continue
        said = verdict(home)
        assert isinstance(said, str) or said == true, edit
        found[said if isinstance(said, str) else "harmless"] += 1
        assert overspends(home) == [], edit
    print(dict(found))
    assert found["LedgerIntegrity"] > 0.7 * edits, found
    assert set(found) <= {"LedgerIntegrity", "LedgerSchema", "harmless", "refused"}


def test_an_index_that_misses_an_entry_is_found(copy: Callable[[], tuple[Home, str]]) -> None:
    """By amcheck where it is installed; by a charge in any case."""
    home, address = copy()
    charges = [e for e in ENTRIES if (e.kind, e.body["dataset"]) == ("charge", "alpha")]
    last = charges[-1].sequence
    ready = "UPDATE pg_index SET (indisready, indisvalid) = ({0}, {0})"
    ready += " WHERE indexrelid = 'statpress.entries_by_dataset'::regclass"
    run(
        address,
        OFF,
        f"CREATE TABLE public.kept AS SELECT * FROM {TABLE} WHERE sequence = {last}",
        f"DELETE FROM {TABLE} WHERE sequence = {last}",
        ready.format("false"),
        f"INSERT INTO {TABLE} SELECT * FROM public.kept",
        ready.format("true"),
        *ON,
    )
    assert "database is damaged" in failure(home, Ledger.verify)
    assert overspends(home) == []
    run(address, "DROP EXTENSION amcheck")
    # With statistics, which the server may have gathered of the original by now, it reads a table
    # as small as this as a whole; a large one it reads by the index.
    run(
        address,
        f"DELETE FROM pg_statistic WHERE starelid = '{TABLE}'::regclass",
        f"UPDATE pg_class SET (relpages, reltuples) = (0, -1) WHERE oid = '{TABLE}'::regclass",
    )
    with Ledger.open(address, create=False) as ledger:
        assert not ledger.verify().database_checked  # and says so
    said = failure(home, lambda ledger: ledger.charged(run_id="run-0", dataset="alpha"))
    assert "index of the database does not agree" in said
    assert overspends(home) == []
