"""Households and persons in two tables of a PostgreSQL database are those of two files."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from coded import codes_of
from households import CONFIG, loaded, made_up, write
from postgres_tables import write_table

from statpress.mechanisms.errors import QualityGateError
from statpress.tasks.source.aggregates import source_of
from statpress.tasks.source.engine import Snapshot
from statpress.tasks.source.scanning import scan_wide

if TYPE_CHECKING:
    from conftest import Agency
    from postgres import Server

pytestmark = pytest.mark.system
VARIABLE = "STATPRESS_TEST_SOURCE"
TABLE = f"{{engine: postgres, table: public.TABLE, credentials: {{env: {VARIABLE}}}}}"
IN_A_DATABASE = CONFIG.replace("{path: households.parquet}", TABLE.replace("TABLE", "households"))
IN_A_DATABASE = IN_A_DATABASE.replace("{path: persons.parquet}", TABLE.replace("TABLE", "persons"))


def store(url: str, folder: Path, households: Any, persons: Any) -> None:
    """The same rows as files and as tables, those of the tables the other way round."""
    write(folder, households, persons)
    for name in ("households", "persons"):
        table = pq.read_table(folder / f"{name}.parquet")
        write_table(url, name, table.take(list(range(len(table)))[::-1]))


@pytest.fixture
def url(postgres_server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    made = postgres_server.database()
    monkeypatch.setenv(VARIABLE, made)
    return made


def records(text: str, folder: Path, n: int) -> Counter[Any]:
    """The codes of all records that a config's sources have."""
    release, scratch = loaded(folder, text), Path(tempfile.mkdtemp(dir=folder))
    snapshot = Snapshot(scratch)
    held = snapshot.of(source_of(release))
    found = scan_wide(held, release.domain, release.domain, n_records=n, folder=scratch)
    snapshot.settle()
    assert found.coded is not None
    return Counter(codes_of(found.coded))


def test_two_tables_of_a_database_make_the_records_of_two_files(url: str, tmp_path: Path) -> None:
    households, persons = made_up(60)
    persons += [{"pid": 90 + i, "hid": 7, "relation": "child", "age": a} for i, a in enumerate(
        (None, 4, 4, 17))]  # fmt: skip
    store(url, tmp_path, households, persons)
    found = records(IN_A_DATABASE, tmp_path, 60)
    assert found == records(CONFIG, tmp_path, 60)
    assert found.total() == 60


def test_a_release_from_a_database_and_keys_that_it_refuses(url: str, agency: Agency) -> None:
    agency.text = IN_A_DATABASE.replace("testdata", "households")
    agency.text = agency.text.replace("directory: releases", "directory: releases, plots: false")
    agency.config.write_text(agency.text, encoding="utf-8")
    agency.dataset = "households"
    agency.register(unit="household", n_records=400, epsilon="100")
    households, persons = made_up(400)
    store(url, agency.config.parent, [*households[:-1], households[0]], persons)
    with pytest.raises(QualityGateError):
        agency.run()
    store(url, agency.config.parent, households, persons)
    bundle = agency.run().bundle
    assert bundle is not None
    table = pq.read_table(bundle / "data" / "survey_households.parquet")
    assert len(table) == 400
    assert [entry.kind for entry in agency.entries()].count("charge") == 1
