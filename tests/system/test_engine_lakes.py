"""Objects in a store, Delta and Iceberg tables are counted as the same records in files."""

from __future__ import annotations

import io
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cut_proxy import CutProxy
from generated_sources import tables
from hypothesis import HealthCheck, assume, given, settings
from requirements import needed
from s3_server import KEY, SECRET, s3_server

from statpress.configs.loading import load
from statpress.mechanisms.domain.columns import Categorical, Integer
from statpress.mechanisms.domain.domain import MAX_CELLS, Domain
from statpress.mechanisms.errors import (
    ColumnNotFoundError,
    ConfigError,
    SourceAccessError,
    SourceChangedError,
    SourceError,
    SourceNotFoundError,
    SourceUnavailableError,
    SourceUnreadableError,
)
from statpress.tasks.source import files, lakes
from statpress.tasks.source.aggregates import count, profile
from statpress.tasks.source.arrow import is_there
from statpress.tasks.source.engine import Snapshot
from statpress.tasks.source.lakes import Lake, ObjectStore
from statpress.tasks.source.scanning import scan, scan_wide

pytestmark = pytest.mark.system
AGE = Domain((Integer(name="age", lower=0, upper=9),))
CANARY = "Zyx-canary-7719"


class Bucket:
    """A bucket of a server, through a network that can be cut."""

    def __init__(self, port: int) -> None:
        self.proxy = CutProxy(port)
        self.store = ObjectStore(f"http://127.0.0.1:{self.proxy.port}", "us-east-1")

    def lake(self, key: str) -> Lake:
        return Lake(f"s3://bucket/{key}", "parquet", self.store)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    root = tmp_path_factory.mktemp("s3")
    with s3_server(root) as port:
        made = Bucket(port)
        yield made
        made.proxy.close()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def ages(n: int = 100) -> pa.Table:
    return pa.table({"age": [i % 10 for i in range(n)], "name": [f"{CANARY}{i}" for i in range(n)]})


def put(bucket: Bucket, key: str, table: pa.Table) -> None:
    text = io.BytesIO()
    pq.write_table(table, text)
    put_text(bucket, key, text.getvalue())


def refused(kind: type[SourceError], act: Callable[[], Any]) -> SourceError:
    with pytest.raises(SourceError) as caught:
        act()
    error = caught.value
    assert type(error) is kind, error
    assert error.__context__ is None
    said = "".join(traceback.format_exception(error)) + repr(vars(error)) + repr(error.args)
    assert CANARY not in said and SECRET not in said and KEY not in said
    return error


def all_of(source: Any, domain: Domain, folder: Path) -> tuple[Any, ...]:
    folder.mkdir()
    found = scan(source, domain, [domain], scratch=folder)
    (table,) = found.tables()
    wide = scan_wide(source, domain, domain, n_records=1, folder=folder)
    return found.profile, table.cells.tolist(), table.counts.tolist(), wide.profile


@settings(
    max_examples=settings().max_examples // 10,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(case=tables())
def test_objects_are_counted_as_files(bucket: Bucket, case: tuple[Domain, pa.Table]) -> None:
    domain, table = case
    assume(domain.n_cells <= MAX_CELLS)
    assume(len({name.lower() for name in domain.names}) == len(domain.names))  # else both refuse
    put(bucket, "same/a.parquet", table)
    put(bucket, "same/b.parquet", table.slice(0, 1))
    with tempfile.TemporaryDirectory() as directory:
        pq.write_table(table, Path(directory, "a.parquet"))
        pq.write_table(table.slice(0, 1), Path(directory, "b.parquet"))
        path = str(Path(directory, "*.parquet"))
        one = all_of(files.FileSource(path, "parquet"), domain, Path(directory, "files"))
        two = all_of(bucket.lake("same/*.parquet"), domain, Path(directory, "objects"))
    assert one == two


@pytest.mark.nightly
def test_patterns_of_objects(bucket: Bucket, tmp_path: Path) -> None:
    for key in ("p/a.parquet", "p/ab.parquet", "p/d/e/a.parquet", "p/no.txt"):
        put(bucket, key, ages(10))
    for pattern, n in (("p/*.parquet", 2), ("p/a?.parquet", 1), ("p/**/*.parquet", 3),
                       ("p/a.parquet", 1), ("p/**", 4)):  # fmt: skip
        assert count(bucket.lake(pattern), AGE, scratch=tmp_path).n_records == 10 * n
        assert is_there(bucket.lake(pattern))
    assert not is_there(bucket.lake("p/z*")) and not is_there(bucket.lake("p/z.parquet"))
    refused(SourceNotFoundError, lambda: count(bucket.lake("p/z*"), AGE, scratch=tmp_path))
    put_text(bucket, "p/a.csv", f"age\n{CANARY}\n".encode())
    refused(SourceUnreadableError, lambda: count(bucket.lake("p/a.csv"), AGE, scratch=tmp_path))
    other = Domain((Integer(name="AGE", lower=0, upper=9),))
    refused(ColumnNotFoundError, lambda: count(bucket.lake("p/a.parquet"), other, scratch=tmp_path))


def put_text(bucket: Bucket, key: str, text: bytes) -> None:
    """By the server, which does not look at once for what others put into its folder."""
    for left in reversed(range(5)):
        try:
            with bucket.store.system().open_output_stream(f"bucket/{key}") as file:
                file.write(text)
        except OSError:  # the server closed a connection that it thought idle
            if not left:
                raise
        else:
            return


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_a_scan_shares_nothing_with_another(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Any
) -> None:
    """Else one that was given up could clear what the next one sets, and end the process."""
    if form == "delta":
        needed("deltalake")
        import deltalake

        deltalake.write_deltalake(str(tmp_path / "t"), ages(10))
        for path in filter(Path.is_file, (tmp_path / "t").rglob("*")):
            put_text(bucket, f"apart/t/{path.relative_to(tmp_path / 't')}", path.read_bytes())
    put(bucket, "apart/a.parquet", ages(10))
    place = {"parquet": "s3://bucket/apart/a.parquet", "delta": "s3://bucket/apart/t"}[form]
    monkeypatch.setattr(lakes, "_scanned", lambda rows, names: next(rows.get_fragments()))
    with lakes.held(Lake(place, form, bucket.store)) as held:
        _, read = lakes.opened(held)
        one, other = read(["age"]), read(["age"])
        one.ensure_complete_metadata()
        bucket.proxy.arm()
        one.ensure_complete_metadata()
        assert bucket.proxy.seen == 0  # it knows
        other.ensure_complete_metadata()
        assert bucket.proxy.seen > 0  # it has to ask


def test_objects_that_change(bucket: Bucket, tmp_path: Path) -> None:
    put(bucket, "c/a.parquet", ages())
    snapshot = Snapshot(tmp_path)
    held = snapshot.of(bucket.lake("c/*.parquet"))
    assert profile(held, AGE, scratch=tmp_path).n_records == 100
    put(bucket, "c/b.parquet", ages())  # comes later
    assert count(held, AGE, scratch=tmp_path).n_records == 100
    put(bucket, "c/a.parquet", ages(50))
    refused(SourceChangedError, snapshot.settle)
    snapshot.close()


def test_a_store_that_refuses_and_one_that_is_gone(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(bucket, "f/a.parquet", ages())
    lake = bucket.lake("f/a.parquet")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    refused(SourceAccessError, lambda: count(lake, AGE, scratch=tmp_path))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    assert count(lake, AGE, scratch=tmp_path).n_records == 100
    requests = bucket.proxy.seen
    assert requests
    bucket.proxy.arm()
    count(lake, AGE, scratch=tmp_path)
    needed_requests = bucket.proxy.seen
    for cut in {1, needed_requests // 2}:
        bucket.proxy.arm(cut)
        refused(SourceUnavailableError, lambda: count(lake, AGE, scratch=tmp_path))
    bucket.proxy.arm(needed_requests)
    try:
        whole = count(lake, AGE, scratch=tmp_path).n_records
    except SourceUnavailableError:
        assert bucket.proxy.seen >= needed_requests
    else:  # one count may need a request less than another
        assert whole == 100 and bucket.proxy.seen < needed_requests
    bucket.proxy.arm()


def mixed(n: int = 40) -> tuple[Domain, pa.Table]:
    table = pa.table(
        {
            "a": [i % 7 for i in range(n)],
            "A": [("x", "y", "ä", None)[i % 4] for i in range(n)],
        }
    )
    names = Categorical(name="A", categories=("x", "ä"), other=True, missing=True)
    return Domain((Integer(name="a", lower=0, upper=9), names)), table


def test_delta_tables(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed("deltalake")
    import deltalake

    domain, table = mixed()
    path = tmp_path / "a.parquet"
    pq.write_table(table, path)
    expected = all_of(files.FileSource(str(path), "parquet"), domain, tmp_path / "files")
    place = tmp_path / "delta"
    deltalake.write_deltalake(str(place), table.rename_columns(["a", "B"]), partition_by=["B"])
    lake = Lake(str(place), "delta")
    renamed = Domain((domain["a"], replace(domain["A"], name="B")))
    found = all_of(lake, renamed, tmp_path / "one")
    assert found[1:3] == expected[1:3]  # the partition's column too
    snapshot = Snapshot(tmp_path)
    held = snapshot.of(lake)
    assert profile(held, renamed, scratch=tmp_path).n_records == 40
    deltalake.write_deltalake(str(place), table.rename_columns(["a", "B"]), mode="overwrite")
    deltalake.write_deltalake(str(place), table.rename_columns(["a", "B"]), mode="append")
    assert count(held, renamed, scratch=tmp_path).n_records == 40
    snapshot.settle()
    assert count(lake, renamed, scratch=tmp_path).n_records == 80
    assert count(replace(lake, version=0), renamed, scratch=tmp_path).n_records == 40
    gone = Lake(str(tmp_path / "no"), "delta")
    refused(SourceNotFoundError, lambda: count(gone, renamed, scratch=tmp_path))
    assert is_there(lake) and not is_there(gone)
    deltalake.write_deltalake(str(tmp_path / "plain"), table.rename_columns(["a", "B"]))
    for path in filter(Path.is_file, (tmp_path / "plain").rglob("*")):
        put_text(bucket, f"delta/{path.relative_to(tmp_path / 'plain')}", path.read_bytes())
    remote = Lake("s3://bucket/delta", "delta", bucket.store)
    assert count(remote, renamed, scratch=tmp_path).n_records == 40
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    refused(SourceAccessError, lambda: count(remote, renamed, scratch=tmp_path))


def test_iceberg_tables(tmp_path: Path) -> None:
    needed("pyiceberg")
    from pyiceberg.catalog.sql import SqlCatalog

    domain, table = mixed()
    path = tmp_path / "a.parquet"
    pq.write_table(table, path)
    expected = all_of(files.FileSource(str(path), "parquet"), domain, tmp_path / "files")
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("n")
    made = catalog.create_table("n.t", schema=table.schema)
    made.append(table)
    lake = Lake(made.metadata_location.removeprefix("file://"), "iceberg")
    assert all_of(lake, domain, tmp_path / "one") == expected
    made.append(table)
    made.delete("a = 0")  # rewrites, or marks, what older versions keep
    assert all_of(lake, domain, tmp_path / "two") == expected
    newer = Lake(made.metadata_location.removeprefix("file://"), "iceberg")
    assert count(newer, domain, scratch=tmp_path).n_records == 80 - 12
    old = made.snapshots()[0].snapshot_id
    assert count(replace(newer, version=old), domain, scratch=tmp_path).n_records == 40
    gone = Lake(str(tmp_path / "no.metadata.json"), "iceberg")
    refused(SourceNotFoundError, lambda: count(gone, domain, scratch=tmp_path))
    assert is_there(newer) and not is_there(gone)


def test_what_a_config_may_say(tmp_path: Path) -> None:
    good = Path("configs/happiness.yaml").read_text()
    line = next(each for each in good.splitlines() if each.startswith("source:"))
    config = tmp_path / "a.yaml"
    for said, fault in (
        ("{path: s3://bucket/a/*.parquet, endpoint: http://127.0.0.1:9000}", None),
        ("{path: tables/people, format: delta, version: 3}", None),
        ("{path: s3://bucket/t/m.json, format: iceberg, region: eu-1}", None),
        ("{path: s3://bucket/a.csv}", "must be of Parquet"),
        ("{path: a.parquet, version: 3}", "'version' is for"),
        ("{path: a.parquet, region: x}", "'region' is for"),
        (f"{{path: 's3://{SECRET}@bucket/a.parquet'}}", "without user"),
    ):
        config.write_text(good.replace(line, f"source: {said}"))
        if fault is None:
            assert load(config).config.source.reader == "arrow"
            continue
        with pytest.raises(ConfigError, match=fault) as caught:
            load(config)
        assert SECRET not in str(caught.value)
