"""Formats: what is written comes back in each, and an unknown suffix is refused."""

from __future__ import annotations

import datetime
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from statpress.configs.formats import FORMATS, STAT, fault_of, stored_name
from statpress.mechanisms.domain.columns import Categorical, Date, Integer
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.tasks.bundle.file_formats import FORMATS as REGISTERED
from statpress.tasks.bundle.file_formats import read_batches
from statpress.tasks.bundle.rows import (
    cell_rows,
    read_counts,
    read_records,
    record_rows,
    value_rows,
    write_rows,
)
from statpress.tasks.products.publication import profile_file

TEXTS = ["a, b", 'say "no"', "two\nlines", "two\r\nlines", "", None, "null", "NA", "é 😀 \u2028",
         " padded\t", "'", "\\n", "0"]  # fmt: skip
FLOATS = [0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.1, None, 1e22]
INTEGERS = [2**63 - 1, -(2**63), 0, None]
DATES = [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None]

EACH = pytest.mark.parametrize(  # files of Stata and SPSS need an extra
    "name", [pytest.param(n, marks=pytest.mark.system) if n in STAT else n for n in FORMATS]
)


def known_to(name: str, values: list[Any]) -> list[Any]:
    """The values that a format can hold: what it cannot is refused in a config."""
    if name not in STAT:
        return values
    kept = [v for v in values if fault_of(v, name) is None or type(v) is int]
    return [0.0 if v == 0 and type(v) is float else v for v in kept]  # SPSS has no sign of zero


def same(found: list[Any], expected: list[Any]) -> bool:
    """Whether two lists are the same, the signs of zeros included."""
    return repr(found) == repr(expected)


def test_every_listed_format_is_registered() -> None:
    assert tuple(REGISTERED) == FORMATS


@EACH
def test_awkward_values_come_back(tmp_path: Path, name: str) -> None:
    rows = 2 * max(map(len, (TEXTS, FLOATS, INTEGERS, DATES)))
    columns = {
        label: [known_to(name, values)[i % len(known_to(name, values))] for i in range(rows)]
        for label, values in {
            "text, all": TEXTS, 'a "number"': FLOATS, "integer": INTEGERS, "däte": DATES,
            "yes": [True, False, None],
        }.items()
    }  # fmt: skip
    path = tmp_path / f"table.{name}"
    write_rows(value_rows(columns | {"nothing": [None] * rows}), path)
    kinds = {"text, all": pa.string(), 'a "number"': pa.float64(), "integer": pa.int64(),
             "däte": pa.date32(), "yes": pa.bool_(), "nothing": pa.float64()}  # fmt: skip
    found = pa.Table.from_batches(read_batches(path, pa.schema(list(kinds.items()))))
    assert {field.name: field.type for field in found.schema} == kinds
    for label, values in columns.items():
        assert same(found[label].to_pylist(), values)
    assert found["nothing"].null_count == rows


@EACH
def test_records_and_cells_of_awkward_categories_come_back(tmp_path: Path, name: str) -> None:
    texts = tuple(text for text in known_to(name, TEXTS) if text is not None)
    domain = Domain(
        (
            Categorical(name="te,xt", categories=texts, other=True, missing=True),
            Integer(name="n", lower=-(2**35), upper=2**35, width=1, missing=True),
            Date(name="day", first=DATES[0], last=DATES[1], by="year", missing=True),
        )
    )
    rng = np.random.default_rng(5)
    codes = {
        "te,xt": np.arange(200) % domain["te,xt"].size,
        "n": rng.integers(0, domain["n"].size, 200),
        "day": rng.integers(0, domain["day"].size, 200),
    }
    cells = np.unique(domain.encode(codes))
    counts = rng.integers(1, 4, len(cells))
    path = tmp_path / f"records.{name}"
    write_rows(record_rows(ContingencyTable(domain, cells, counts)), path)
    assert [x.tolist() for x in read_records(path, domain)] == [cells.tolist(), counts.tolist()]
    clean = dict.fromkeys(("schema", *(f"outside {each}" for each in domain.names)), 0)
    assert profile_file(path, domain) == {"rows": counts.sum(), **clean}
    table = tmp_path / f"table.{name}"
    estimates = np.where(counts > 2, -0.0, counts / 3)
    write_rows(cell_rows(domain, cells, {"raw": -counts, "estimate": estimates}), table)
    assert [x.tolist() for x in read_counts(table, domain, "raw")] == [
        cells.tolist(),
        (-counts).tolist(),
    ]
    assert profile_file(table, domain, ("raw", "estimate")) == {"rows": len(cells), **clean}
    assert profile_file(table, domain, ("raw",))["schema"] == 1
    narrower = Domain((Categorical(name="te,xt", categories=texts[1:]), *domain.columns[1:]))
    outside = profile_file(path, narrower)["outside te,xt"]
    lost = {texts[0], "other", None}
    stored = stored_name("te,xt", name) if name in STAT else "te,xt"
    written = [row[stored] for batch in read_batches(path, None) for row in batch.to_pylist()]
    assert outside == sum(value in lost for value in written) > 0


@EACH
def test_the_same_rows_give_the_same_bytes(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever they are written: in the second zone it is another day."""
    for zone in ("UTC-14", "UTC+12"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        write_rows(value_rows({"text": known_to(name, TEXTS)}), tmp_path / f"{zone}.{name}")
    monkeypatch.undo()
    time.tzset()
    assert (tmp_path / f"UTC-14.{name}").read_bytes() == (tmp_path / f"UTC+12.{name}").read_bytes()


@pytest.mark.parametrize("name", ["t", "t.parquets", "t.csv.gz", "t.CSV", "t.registry", "t."])
def test_an_unknown_suffix_is_refused_and_nothing_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="no format is called"):
        write_rows(value_rows({"a": [1]}), tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / name).write_text("a\n1\n")
    with pytest.raises(ValueError, match="no format is called"):
        read_batches(tmp_path / name, None)


@EACH
def test_no_file_is_overwritten(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"t.{name}"
    path.write_bytes(b"theirs")
    with pytest.raises(FileExistsError):
        write_rows(value_rows({"a": [1]}), path)
    assert path.read_bytes() == b"theirs"


@pytest.mark.system
@pytest.mark.parametrize("name", STAT)
def test_labelled_columns_of_long_names_can_be_written(tmp_path: Path, name: str) -> None:
    """Value labels have the name of their column, for which Stata leaves less room."""
    long = "how_often_in_the_last_twelve_months" * 2
    domain = Domain((Categorical(name=long, categories=("never", "often")),))
    facts = {"name": long, "declared": {"kind": "categorical"},
             "constraints": {"enum": ["never", "often"]}}  # fmt: skip
    path = tmp_path / f"long.{name}"
    write_rows(
        record_rows(ContingencyTable(domain, np.arange(2), np.array([1, 2]))), path, fields=[facts]
    )
    assert [x.tolist() for x in read_records(path, domain)] == [[0, 1], [1, 2]]


def test_types_of_long_csv_are_those_of_all_rows(tmp_path: Path) -> None:
    """As of noisy tables: the first megabytes are of one column and two, the last of three."""
    n = 200_000
    columns = {
        "a": ["of a table of noisy counts"] * n,
        "third": [None] * (n - 1) + ["last"],
        "count": [1.0] * (n - 1) + [2.5],
    }
    path = tmp_path / "tables.csv"
    write_rows(value_rows(columns), path)
    assert path.stat().st_size > 2**21
    found = pa.Table.from_batches(list(read_batches(path, None)))
    assert found.to_pydict() == columns
    known = pa.schema([("third", pa.string())])
    assert pa.Table.from_batches(list(read_batches(path, known))).equals(found)


def test_a_long_parquet_file_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """Row groups that were read are not kept."""
    path, rng = tmp_path / "long.parquet", np.random.default_rng(1)
    schema = pa.schema([("value", pa.float64())])
    with path.open("wb") as sink:
        writer = REGISTERED["parquet"].open_writer(sink, schema)
        for _ in range(48):
            writer.write(pa.record_batch([pa.array(rng.random(2**17))], schema=schema))
        writer.close()
    before, most, rows = pa.total_allocated_bytes(), 0, 0
    for batch in read_batches(path, None):
        rows += batch.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    assert rows == 48 * 2**17 and path.stat().st_size > 32 * 2**20
    assert most < path.stat().st_size / 2
