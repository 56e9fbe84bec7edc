"""A server of Spark Connect and a cluster count as DuckDB does; one that is not there is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.parquet as pq
import pytest
from bad_input import CANARY, RARE
from households import CONFIG, made_up, write
from leaks import Search
from prefect_server import closed_port
from spark_servers import JAVA_OPTIONS, SparkServers
from spark_sources import AGE, JOINT, OF_RECORDS, RECORDS, ages, faults_of_files, refused

from statpress.mechanisms.errors import (
    QualityGateError,
    SourceAccessError,
    SourceChangedError,
    SourceNotFoundError,
    SourceUnavailableError,
    SourceUnreadableError,
)
from statpress.tasks.source import files
from statpress.tasks.source import spark as spark_session
from statpress.tasks.source.aggregates import Units, count
from statpress.tasks.source.engine import Snapshot
from statpress.tasks.source.scanning import scan, scan_wide
from statpress.tasks.source.spark import SparkSource

if TYPE_CHECKING:
    from conftest import Agency

pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore:The 'warn' method is deprecated"),  # of pyspark's logger
]


TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
"""The variable of what a server asks for and the library sends."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkServers]:
    """Processes of Spark Connect that ask for a token."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TOKEN, CANARY)
        with SparkServers(tmp_path_factory.mktemp("server")) as started:
            yield started


@pytest.fixture
def remote(servers: SparkServers) -> str:
    """The address of a server of Spark Connect, whatever the test before did to it."""
    return servers.connect()


@pytest.fixture
def private(tmp_path: Path) -> Path:
    folder = tmp_path / "private"
    folder.mkdir(mode=0o700)
    return folder


def tables(source: Any, folder: Path) -> list[Any]:
    """The profile, and tables of one reading."""
    domains = [OF_RECORDS.project(names) for names in JOINT]
    scanned = scan(source, OF_RECORDS, domains, scratch=folder)
    found = [(t.cells.tolist(), t.counts.tolist()) for t in scanned.tables()]
    return [scanned.profile, found]


def records(source: Any, folder: Path) -> list[Any]:
    """Codes of all records, and counts of at most ten records a unit."""
    wide = scan_wide(source, OF_RECORDS, OF_RECORDS, n_records=1, folder=folder)
    assert wide.coded is not None
    every = range(len(OF_RECORDS.columns))
    codes = [[chunk[c].tolist() for c in every] for chunk in wide.coded._chunks(every)]
    units, padded = Units("state", 10), replace(OF_RECORDS.project(("pay", "name")), absent=True)
    of_units = count(replace(source, unit="state"), padded, scratch=folder, units=units, key="7")
    return [
        wide.profile, sorted(record for chunk in codes for record in zip(*chunk, strict=True)),
        of_units.cells.tolist(), of_units.counts.tolist(),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> files.FileSource:
    """Records in a file, as DuckDB counts them."""
    path = tmp_path_factory.mktemp("here") / "a.parquet"
    duckdb.sql(f"COPY ({RECORDS.format(n=5000)}) TO '{path}' (FORMAT parquet)")
    return files.FileSource(str(path), "parquet")


@pytest.mark.nightly
def test_a_server_counts_the_same(
    here: files.FileSource, remote: str, private: Path, tmp_path: Path
) -> None:
    snapshot = Snapshot(private)
    source = snapshot.of(SparkSource(here.pattern, remote=remote))
    for counted in (tables, records):
        folders = [tmp_path / f"{counted.__name__}{i}" for i in range(2)]
        for each in folders:
            each.mkdir()
        assert counted(source, folders[0]) == counted(here, folders[1])
    snapshot.settle()


@pytest.mark.nightly
def test_a_cluster_counts_the_same(
    here: files.FileSource, private: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("JDK_JAVA_OPTIONS", JAVA_OPTIONS)
    folder = tmp_path / "cluster"
    folder.mkdir()
    with SparkServers(folder) as servers:
        address = servers.cluster()
        snapshot = Snapshot(private)
        source = snapshot.of(SparkSource(here.pattern, master=address))
        assert source.session is not None
        assert source.session.sparkContext.master == address
        assert tables(source, private) == tables(here, tmp_path)
        snapshot.settle()


@pytest.mark.nightly
def test_faults_of_files(remote: str, private: Path, tmp_path: Path) -> None:
    snapshot = Snapshot(private)
    path = ages(tmp_path / "first.parquet")
    faults_of_files(snapshot.of(SparkSource(str(path), remote=remote)), tmp_path)
    ages(path, 50)
    refused(SourceChangedError, snapshot.settle)


@pytest.fixture
def other(remote: str) -> Iterator[Any]:
    """A session beside that of the source."""
    with spark_session._connected(remote) as session:
        yield session


@pytest.mark.nightly
def test_a_session_that_has_ended_leaves_others_alone(other: Any, remote: str) -> None:
    """The library closes it again when it is collected, and with it threads that all share."""
    from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator

    with spark_session._connected(remote) as ended:
        pass
    assert ended.is_stopped
    assert other.range(3).count() == 3
    shared = ExecutePlanResponseReattachableIterator._release_thread_pool_instance
    assert shared is not None
    ended.__del__()
    assert ExecutePlanResponseReattachableIterator._release_thread_pool_instance is shared


@pytest.mark.nightly
def test_tables_and_orc(other: Any, remote: str, private: Path, tmp_path: Path) -> None:
    """A table stays for a run what it was; one whose files are not known is refused."""
    frame = other.read.parquet(str(ages(tmp_path / "a.parquet")))
    frame.write.orc(str(tmp_path / "orc"))
    frame.write.saveAsTable("ages")
    other.sql("CREATE VIEW seen AS SELECT * FROM ages")
    orc = SparkSource(str(tmp_path / "orc"), format="orc", remote=remote)
    for source in (orc, SparkSource(None, "default.ages", remote=remote)):
        snapshot = Snapshot(private)
        held = snapshot.of(source)
        assert count(held, AGE, scratch=private).counts.tolist() == [10] * 10
        other.sql("INSERT INTO ages VALUES (3, 'x')")
        assert count(held, AGE, scratch=private).n_records == 100
        snapshot.settle()
        other.sql("INSERT OVERWRITE ages SELECT id % 10, '' FROM range(100)")
    snapshot = Snapshot(private)
    held = snapshot.of(source)
    other.sql("INSERT OVERWRITE ages VALUES (3, 'x')")
    refused(SourceChangedError, lambda: count(held, AGE, scratch=private))
    refused(SourceChangedError, snapshot.settle)
    for name, kind in (("seen", SourceUnreadableError), ("nothing", SourceNotFoundError)):
        place = SparkSource(None, name, remote=remote)
        refused(kind, lambda place=place: Snapshot(private).of(place))


@pytest.mark.parametrize("kind", ["remote", pytest.param("master", marks=pytest.mark.nightly)])
def test_a_server_that_is_not_there(kind: str, private: Path, tmp_path: Path) -> None:
    """Of a cluster one with an address of nobody, since Spark waits a minute for a master."""
    with closed_port() as port:
        place = f"sc://127.0.0.1:{port}" if kind == "remote" else "nobody://here"
        source = SparkSource(str(ages(tmp_path / "a.parquet")), retries=1, **{kind: place})
        refused(SourceUnavailableError, lambda: Snapshot(private).of(source))


@pytest.mark.nightly
def test_households_and_persons_from_a_server(remote: str, agency: Agency) -> None:
    """Published from both files in one session; a key that is there twice is refused first."""
    agency.text = CONFIG.replace("testdata", "households")
    for each in ("households", "persons"):
        declared = f"{{engine: spark, path: {each}.parquet, remote: '{remote}'}}"
        agency.text = agency.text.replace(f"{{path: {each}.parquet}}", declared)
    agency.config.write_text(agency.text, encoding="utf-8")
    agency.dataset = "households"
    agency.register(unit="household", n_records=400, epsilon="100")
    households, persons = made_up(400)
    write(agency.config.parent, [*households[:-1], households[0]], persons)
    with pytest.raises(QualityGateError):
        agency.run()
    write(agency.config.parent, households, persons)
    bundle = agency.run().bundle
    assert bundle is not None
    assert len(pq.read_table(bundle / "data" / "survey_households.parquet")) == 400
    assert [entry.kind for entry in agency.entries()].count("charge") == 1


@pytest.mark.nightly
def test_a_release_from_a_server(remote: str, agency: Agency) -> None:
    """It is published, and no record is anywhere but in the source."""
    declared = f"{{engine: spark, path: data/source.parquet, remote: '{remote}'}}"
    agency.replace("{path: data/source.parquet}", declared)
    assert agency.run().bundle is not None
    search = Search((CANARY,), (RARE,))
    assert search.in_files(agency.folder, but=(agency.source,)) == []


@pytest.mark.nightly
def test_a_server_that_asks_for_a_token_and_goes(
    servers: SparkServers,
    remote: str,
    private: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = SparkSource(str(ages(tmp_path / "a.parquet")), remote=remote, retries=1)
    snapshot = Snapshot(private)
    source = snapshot.of(given)
    assert count(source, AGE, scratch=private).n_records == 100
    for token in ("wrong", None):
        monkeypatch.setenv(TOKEN, token) if token else monkeypatch.delenv(TOKEN)
        refused(SourceAccessError, lambda: Snapshot(private).of(given))
    servers.kill()
    refused(SourceUnavailableError, lambda: count(source, AGE, scratch=private))
