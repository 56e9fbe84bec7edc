"""PostgreSQL counts what DuckDB counts, in the server, by a role that may only read."""

from __future__ import annotations

import decimal
import re
import tempfile
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from coded import codes_of
from generated_sources import tables, totals_of
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from postgres_tables import write_table

from statpress.mechanisms.domain.columns import Categorical, Column, Integer, Numeric
from statpress.mechanisms.domain.domain import MAX_CELLS, Domain, parts_of
from statpress.mechanisms.errors import (
    ColumnNotFoundError,
    ColumnTypeError,
    SourceAccessError,
    SourceError,
    SourceNotFoundError,
    SourceUnavailableError,
    SourceUnreadableError,
    StatpressError,
)
from statpress.tasks.source import files
from statpress.tasks.source.aggregates import Units, count, profile, size_of
from statpress.tasks.source.engine import Credentials, Snapshot, reader_named
from statpress.tasks.source.postgres import PostgresSource
from statpress.tasks.source.scanning import scan, scan_wide, spill

if TYPE_CHECKING:
    from postgres import Server

pytestmark = pytest.mark.system
VARIABLE = "STATPRESS_TEST_SOURCE"
CHECK = settings(
    max_examples=settings().max_examples // 5,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture,
    ],
)  # fmt: skip
UNIT = "whose it is"


def source(name: str = "records", unit: str | None = None) -> PostgresSource:
    return PostgresSource("public", name, Credentials(VARIABLE), unit)


@pytest.fixture(scope="module")
def url(postgres_server: Server) -> str:
    made = postgres_server.database()
    postgres_server.run("DROP ROLE IF EXISTS onlooker", "CREATE ROLE onlooker LOGIN")
    return made


@pytest.fixture(autouse=True)
def credentials(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, url.replace("postgres@", "onlooker@"))


def written(url: str, table: pa.Table, **types: Any) -> None:
    from postgres import run

    write_table(url, "records", table, **types)
    run(url, "GRANT SELECT ON public.records TO onlooker")


def holdable(table: pa.Table) -> bool:
    """Whether PostgreSQL can hold the text at all."""
    texts = [column for column in table.columns if column.type == pa.string()]
    return not any("\0" in value for column in texts for value in column.to_pylist() if value)


@CHECK
@given(tables(), st.data())
def test_all_that_is_counted_is_the_same(
    url: str, case: tuple[Domain, pa.Table], data: st.DataObject
) -> None:
    domain, table = case
    assume(holdable(table))
    written(url, table)
    names = st.lists(st.sampled_from(domain.names), min_size=1, unique=True)
    joint = [domain.project(each) for each in data.draw(st.lists(names, max_size=2))]
    assume(all(each.n_cells <= MAX_CELLS for each in joint))
    wide = domain.project(data.draw(names))
    found = []
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "records.parquet")
        pq.write_table(table, path)
        for each in (files.FileSource(str(path), "parquet"), source()):
            place = Path(directory, each.engine)
            place.mkdir()
            scanned = scan(each, domain, joint, scratch=place)
            coded = scan_wide(each, domain, wide, n_records=1, folder=place)
            assert coded.coded is not None
            if len(table):
                assert size_of(each, domain, scratch=place) == len(table)
            found.append(
                (
                    scanned.profile,
                    profile(each, domain, scratch=place),
                    coded.profile,
                    codes_of(coded.coded),
                    [(t.cells.tolist(), t.counts.tolist()) for t in scanned.tables()],
                    [
                        (t.cells.tolist(), t.counts.tolist())
                        for t in (count(each, d, scratch=place) for d in joint)
                    ],
                )
            )
    assert found[0] == found[1]


@pytest.mark.nightly
@settings(CHECK, max_examples=settings().max_examples // 8)
@given(
    case=tables(), c=st.integers(1, 4), key=st.text("0123456789abcdef", max_size=5), data=st.data()
)
def test_units_keep_the_same_records(
    url: str, case: tuple[Domain, pa.Table], c: int, key: str, data: st.DataObject
) -> None:
    """Same key, same choice: the hash is of the same text, byte for byte."""
    domain, table = case
    assume(domain.n_cells < MAX_CELLS and holdable(table))
    names = st.sampled_from(["a", "A", "ä|0", "007", "7", "|", "'", "", " a", "b\\", None])
    owners = st.lists(names | st.uuids().map(str), min_size=len(table), max_size=len(table))
    padded = replace(domain, absent=True)
    owned = table.append_column(UNIT, [pa.array(data.draw(owners), pa.string())])
    written(url, owned)
    units, totals = Units(UNIT, c), totals_of(domain)
    found = []
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "records.parquet")
        pq.write_table(owned, path)
        for each in (files.FileSource(str(path), "parquet", unit=UNIT), source(unit=UNIT)):
            place = Path(directory, each.engine)
            place.mkdir()
            joint = [
                count(each, one, scratch=place, units=units, key=key)
                for one in (padded, domain, replace(domain, parts=parts_of(c)), *totals)
            ]
            coded = spill(each, padded, n_records=1, folder=place, units=units, key=key)
            named = profile(each, padded, scratch=place, units=units).n_units
            if named:
                assert size_of(each, domain, scratch=place, units=units) == named
            found.append(
                (
                    [(t.cells.tolist(), t.counts.tolist()) for t in joint],
                    codes_of(coded), coded.n_absent,
                    profile(each, padded, scratch=place, units=units),
                )
            )  # fmt: skip
    assert found[0] == found[1]


EDGES = Numeric(name="x", edges=(-1.5, 0.0, 0.1, 0.3, 1e10))
WHOLE = Integer(name="x", lower=-3, upper=8, width=4, missing=True)


@pytest.mark.parametrize("column", [EDGES, WHOLE], ids=["numeric", "integer"])
def test_numbers_of_any_scale_as_decimals_of_one(url: str, tmp_path: Path, column: Column) -> None:
    """``numeric`` without a scale is compared as it is written; NaN counts as null."""
    texts = ["-1.5", "-1.50001", "0.1", "0.099999999", "0.3", "0", "8.999", "9", "-3", "-3.01",
             "10000000000", "10000000000.0001", None]  # fmt: skip
    values = [None if each is None else decimal.Decimal(each) for each in texts]
    table = pa.table({"x": pa.array(values, pa.decimal128(25, 9))})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path)
    domain = Domain((column,))
    one = count(files.FileSource(str(path), "parquet"), domain, scratch=tmp_path)
    written(url, table, types={"x": "numeric"})
    two = count(source(), domain, scratch=tmp_path)
    assert (one.cells.tolist(), one.counts.tolist()) == (two.cells.tolist(), two.counts.tolist())
    from postgres import run

    run(
        url,
        "INSERT INTO records VALUES ('NaN'), ('Infinity'), ('-Infinity'), ('1e-400'), ('1e400')",
    )
    found = profile(source(), domain, scratch=tmp_path).columns[0]
    before = profile(files.FileSource(str(path), "parquet"), domain, scratch=tmp_path).columns[0]
    assert (found.n_null, found.n_outside) == (before.n_null + 1, before.n_outside + 3)


def test_domains_enums_views_and_blank_padded_text(url: str, tmp_path: Path) -> None:
    from postgres import run

    run(
        url,
        "DROP VIEW IF EXISTS shown; DROP TABLE IF EXISTS records; DROP DOMAIN IF EXISTS older;"
        "DROP DOMAIN IF EXISTS age; DROP TYPE IF EXISTS mood",
        "CREATE TYPE mood AS ENUM ('glad', 'sad')",
        "CREATE DOMAIN age AS int CHECK (VALUE >= 0)",
        "CREATE DOMAIN older AS age",
        'CREATE TABLE records (m mood, a older, c char(5), t text COLLATE "pg_c_utf8")',
        "INSERT INTO records VALUES ('glad', 3, 'x', 'A'), ('sad', 9, 'y', 'a')",
        "INSERT INTO records VALUES (NULL, 0, '', 'á')",
        "CREATE VIEW shown AS SELECT * FROM records",
        "GRANT SELECT ON shown TO onlooker",
    )
    domain = Domain(
        (
            Categorical(name="m", categories=("glad", "sad"), missing=True),
            Integer(name="a", lower=0, upper=9),
            Categorical(name="c", categories=("x", ""), other=True),
            Categorical(name="t", categories=("A", "a"), other=True),
        )
    )
    records = [("glad", 3, "x", "A"), ("sad", 9, "y", "a"), (None, 0, "", "á")]
    cells = [domain.cell_of(dict(zip(domain.names, each, strict=True))) for each in records]
    assert count(source("shown"), domain, scratch=tmp_path).cells.tolist() == sorted(cells)


# --- in the server, by a role that only reads ------------------------------------------------

AGE = Domain((Integer(name="age", lower=0, upper=9),))


def ages(url: str, n: int = 100, role: str = "onlooker") -> None:
    from postgres import run

    run(
        url,
        "DROP TABLE IF EXISTS records CASCADE",
        f"CREATE TABLE records AS SELECT i % 10 AS age, '{CANARY}' || i AS name "
        f"FROM generate_series(0, {n - 1}) i",
        f"GRANT SELECT ON records TO {role}",
    )


def test_the_server_aggregates(url: str, tmp_path: Path) -> None:
    """What comes over the wire is as long for a hundred records as for a hundred thousand."""
    found = []
    for n in (100, 100_000):
        ages(url, n)
        snapshot = Snapshot(tmp_path)
        held = snapshot.of(source())
        with (tmp_path / "messages.txt").open("w") as messages:
            held.connection.pgconn.trace(messages.fileno())
            assert scan(held, AGE, [AGE], scratch=tmp_path).profile.n_records == n
            held.connection.pgconn.untrace()
        snapshot.settle()
        told = re.findall(r"\tB\t(\d+)\tCopyData", Path(messages.name).read_text())
        found.append([int(length) for length in told])  # from the backend
    assert len(found[0]) == len(found[1]) > 0 and sum(found[0]) == sum(found[1]) < 1000


def test_nothing_is_written_and_one_moment_is_read(url: str, tmp_path: Path) -> None:
    from postgres import run

    ages(url)
    snapshot = Snapshot(tmp_path)
    held = snapshot.of(source())
    before = profile(held, AGE, scratch=tmp_path)
    run(url, "INSERT INTO records SELECT 0, 'x' FROM generate_series(1, 50)")
    assert profile(held, AGE, scratch=tmp_path) == before
    assert count(held, AGE, scratch=tmp_path).n_records == 100
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        held.connection.execute("CREATE TEMP TABLE a (b int)")
    snapshot.settle()
    assert count(source(), AGE, scratch=tmp_path).n_records == 150


# --- faults ----------------------------------------------------------------------------------


def refused(kind: type[StatpressError], act: Callable[[], Any]) -> StatpressError:
    """The error, checked to say nothing that is private."""
    with pytest.raises(kind) as caught:
        act()
    error = caught.value
    assert error.__context__ is None and error.__cause__ is None
    said = "".join(traceback.format_exception(error)) + repr(vars(error)) + repr(error.args)
    for secret in (CANARY, SECRET, "onlooker", "statpress-pg-"):
        assert secret not in said
    return error


CANARY, SECRET = "Zyx-canary-7719", "pässwort:/@77"


def test_a_missing_table_schema_and_column(url: str, tmp_path: Path) -> None:
    ages(url)
    for each in (source("recordz"), replace(source(), schema="nowhere")):
        refused(SourceNotFoundError, lambda s=each: count(s, AGE, scratch=tmp_path))
    other = Domain((Integer(name="Age", lower=0, upper=9),))
    refused(ColumnNotFoundError, lambda: count(source(), other, scratch=tmp_path))
    name = Domain((Integer(name="name", lower=0, upper=9),))
    refused(ColumnTypeError, lambda: count(source(), name, scratch=tmp_path))


def test_a_role_without_rights(url: str, tmp_path: Path) -> None:
    from postgres import run

    ages(url)
    run(url, "REVOKE SELECT ON records FROM onlooker")
    refused(SourceAccessError, lambda: count(source(), AGE, scratch=tmp_path))
    run(url, "GRANT SELECT (age) ON records TO onlooker")  # the wanted column is enough
    assert count(source(), AGE, scratch=tmp_path).n_records == 100


def test_a_role_that_sees_only_some_rows_is_refused(url: str, tmp_path: Path) -> None:
    from postgres import run

    ages(url)
    run(
        url,
        "ALTER TABLE records ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY half ON records USING (age < 5)",
    )
    refused(SourceAccessError, lambda: count(source(), AGE, scratch=tmp_path))


def test_credentials(
    url: str, postgres_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ages(url, role="PUBLIC")
    database = url.split("/")[3].split("?")[0]
    good = postgres_server.url(database, user=postgres_server.keeper(SECRET), password=SECRET)

    def act(each: PostgresSource) -> Callable[[], Any]:
        return lambda: count(each, AGE, scratch=tmp_path)

    monkeypatch.setenv(VARIABLE, good)
    assert act(source())().n_records == 100
    is_there = reader_named("postgres").is_there
    assert is_there(source())
    assert not is_there(replace(source(), name="nosuch"))
    assert not is_there(replace(source(), schema="nosuch"))
    monkeypatch.setenv(VARIABLE, good.replace(database, "nosuch"))
    refused(SourceError, lambda: is_there(source()))
    refused(SourceError, act(source()))
    monkeypatch.setenv(VARIABLE, good.replace(quote(SECRET, safe=""), "wrong"))
    refused(SourceAccessError, act(source()))
    for text in (SECRET, f"mysql://{SECRET}", f"postgresql://x:{SECRET}@h/d?options=-c%20a=b", ""):
        monkeypatch.setenv(VARIABLE, text)
        refused(SourceAccessError, act(source()))
        refused(SourceAccessError, lambda: reader_named("postgres").check_place(source()))
    monkeypatch.delenv(VARIABLE)
    refused(SourceAccessError, act(source()))
    file = tmp_path / "url"
    kept = replace(source(), credentials=Credentials(file=file))
    refused(SourceAccessError, act(kept))
    file.write_text(good + "\n")
    file.chmod(0o640)
    refused(SourceAccessError, act(kept))
    file.chmod(0o600)
    assert act(kept)().n_records == 100


@pytest.mark.parametrize(
    "fault",
    [
        "terminated",
        *(pytest.param(each, marks=pytest.mark.nightly) for each in ("killed", "stopped")),
    ],
)
def test_a_connection_that_is_cut_between_two_readings(
    postgres_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    from postgres import Server

    own = fault != "terminated"  # others go on with the one of the session
    with Server() if own else nullcontext(postgres_server) as server:
        url = server.database()
        if own:
            server.run("CREATE ROLE onlooker LOGIN")
        ages(url)
        monkeypatch.setenv(VARIABLE, url.replace("postgres@", "onlooker@"))
        snapshot = Snapshot(tmp_path)
        held = snapshot.of(source())
        assert profile(held, AGE, scratch=tmp_path).n_records == 100
        if fault == "terminated":
            server.run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'onlooker'"
            )
        elif fault == "killed":
            server.kill()
        else:
            server.stop(immediate=True)
        refused(SourceUnavailableError, lambda: count(held, AGE, scratch=tmp_path))
        snapshot.close()
        if own:
            refused(SourceUnavailableError, lambda: count(source(), AGE, scratch=tmp_path))
            server.start()
        assert count(source(), AGE, scratch=tmp_path).n_records == 100


def test_a_statement_that_is_cancelled(url: str, tmp_path: Path) -> None:
    from postgres import run

    ages(url)
    run(url, "ALTER ROLE onlooker SET statement_timeout TO 1")
    try:
        run(url, "INSERT INTO records SELECT i % 10, 'x' FROM generate_series(1, 300000) i")
        refused(SourceUnavailableError, lambda: count(source(), AGE, scratch=tmp_path))
    finally:
        run(url, "ALTER ROLE onlooker RESET statement_timeout")


def test_values_that_stop_the_server_are_not_quoted(url: str, tmp_path: Path) -> None:
    """A view that fails on a value, which the server's message quotes."""
    from postgres import run

    ages(url)
    run(
        url,
        "CREATE VIEW broken AS SELECT CAST(name AS integer) AS age FROM records",
        "GRANT SELECT ON broken TO onlooker",
    )
    refused(SourceUnreadableError, lambda: count(source("broken"), AGE, scratch=tmp_path))


# --- whole runs --------------------------------------------------------------------------------


def test_a_run_from_the_database_gives_the_same_release_as_one_from_the_file(
    agency: Any, url: str, tmp_path: Path
) -> None:
    from postgres import run

    write_table(url, "people", pq.read_table(agency.source))
    run(url, "GRANT SELECT ON people TO onlooker")
    first = agency.run(insecure_seed=5)
    agency.replace(
        "source: {path: data/source.parquet}",
        f"source: {{engine: postgres, table: public.people, credentials: {{env: {VARIABLE}}}}}",
    )
    agency.replace("name: first", "name: second")
    agency.source.unlink()
    second = agency.run(insecure_seed=5)
    for name in ("people.csv", "births.csv"):
        one, two = (next(each.bundle.rglob(name)).read_bytes() for each in (first, second))
        assert one == two
    address = url.split("@")[1]
    for path in (*second.bundle.rglob("*"), *agency.home.folder("").rglob("*")):
        if path.is_file():
            assert address.encode() not in path.read_bytes(), path
    run(url, "DROP TABLE people")
    before = agency.entries()
    agency.replace("name: second", "name: third")
    with pytest.raises(SourceNotFoundError):
        agency.run(insecure_seed=5)
    *same, look = agency.entries()
    assert same == before and look.kind == "look"
