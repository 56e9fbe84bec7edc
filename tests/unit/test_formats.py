"""Formats: what is written comes back in each, and an unknown suffix is refused."""

from __future__ import annotations

import csv
import datetime
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statpress.configs.formats import FORMATS, STAT, fault_of, stored_name
from statpress.mechanisms.domain.columns import Categorical, Date, Integer
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import LISTED, Domain
from statpress.mechanisms.errors import ConfigError
from statpress.tasks.bundle import rows as writing
from statpress.tasks.bundle.file_formats import FORMATS as REGISTERED
from statpress.tasks.bundle.file_formats import read_batches, schema_of
from statpress.tasks.bundle.rows import (
    Rows,
    cell_rows,
    code_rows,
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


# --- text that is written with a dictionary reads as what was written without one


DOMAIN = Domain(
    (
        Categorical(name="answer", categories=("=1", "'=1", "", "no", 'q"x'), missing=True),
        Categorical(name="place", categories=("a", "b"), other=True),
        Integer(name="age", lower=0, upper=3),
    )
)


def rows(path: Path) -> list[dict[str, Any]]:
    return [row for batch in read_batches(path, schema_of(DOMAIN)) for row in batch.to_pylist()]


def decoded(arrays: list[Any]) -> list[Any]:
    return [a.dictionary_decode() if pa.types.is_dictionary(a.type) else a for a in arrays]


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_the_same_rows_come_back(tmp_path: Path, suffix: str) -> None:
    cells = np.arange(DOMAIN.n_cells)
    table = ContingencyTable(DOMAIN, cells, cells % 3 + 1)
    coded, plain = tmp_path / f"coded.{suffix}", tmp_path / f"plain.{suffix}"
    listed = record_rows(table, 16)  # some batches lack some values
    write_rows(listed, coded)
    write_rows(Rows(listed.schema, lambda: map(decoded, listed.batches())), plain)
    assert rows(coded) == rows(plain) and len(rows(coded)) == table.n_records
    found = read_records(coded, DOMAIN)
    assert found[0].tolist() == cells.tolist() and found[1].tolist() == table.counts.tolist()
    if suffix == "csv":
        assert coded.read_bytes() == plain.read_bytes()
    else:
        schema = pq.read_schema(coded)
        assert schema.remove_metadata() == pq.read_schema(plain).remove_metadata()
        with pq.ParquetFile(coded) as file:
            assert "RLE_DICTIONARY" in file.metadata.row_group(0).column(0).encodings


def test_a_format_that_does_not_ask_for_codes_is_given_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []

    class Form:
        coded_text = labelled = False

        def open_writer(self, sink: Any, schema: Any) -> Any:
            return self

        def write(self, batch: Any) -> None:
            given.append(batch)

        def close(self) -> None:
            pass

    monkeypatch.setattr(writing, "format_of", lambda path: Form())
    codes = [np.arange(3) % column.size for column in DOMAIN.columns]
    write_rows(code_rows(DOMAIN, codes), tmp_path / "any")
    assert given[0].schema == schema_of(DOMAIN)


def test_columns_too_long_for_a_list_are_written_by_what_occurs(tmp_path: Path) -> None:
    number = Integer(name="number", lower=0, upper=LISTED, missing=True)
    domain, path = Domain((DOMAIN.columns[0], number)), tmp_path / "not_listed.csv"
    cells = np.arange(0, domain.n_cells, domain.n_cells // 50)
    write_rows(record_rows(ContingencyTable(domain, cells, np.full(len(cells), 2))), path)
    found = [row for batch in read_batches(path, schema_of(domain)) for row in batch.to_pylist()]
    expected = []
    for cell in cells:
        answer, place = divmod(int(cell), LISTED + 2)
        text = [*domain.columns[0].categories, None][answer]
        expected += [{"answer": text, "number": place if place <= LISTED else None}] * 2
    assert found == expected and {row["answer"] for row in found} >= {"=1", None}


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_file_without_rows_has_its_columns(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"none.{suffix}"
    write_rows(code_rows(DOMAIN, [np.zeros(0, np.uint8)] * 3), path)
    write_rows(Rows(schema_of(DOMAIN), lambda: iter([])), tmp_path / f"nothing.{suffix}")
    assert rows(path) == []
    if suffix == "parquet":
        for each in (path, tmp_path / "nothing.parquet"):
            assert pq.read_schema(each).remove_metadata() == schema_of(DOMAIN)


# --- no text in a CSV file of a bundle is a formula to a spreadsheet, and none is lost


TEXTS = [
    '=HYPERLINK("http://x","y")', "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "=", "'=1", "''=1",
    "'plain", "'", "plain", "a=b", "1 - 2", "", None, "=1\n=2", "é=", " =1",
]  # fmt: skip
NUMBERS = [-1.5 * i for i in range(len(TEXTS))]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("csv") / "cells.csv"
    write_rows(value_rows({"text": TEXTS, "number": NUMBERS}), path)
    return path


def test_text_does_not_begin_as_a_formula(written: Path) -> None:
    with written.open(newline="", encoding="utf-8") as file:
        cells = [row["text"] for row in csv.DictReader(file)]
    assert len(cells) == len(TEXTS)
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert cells[:8] == ["'" + text for text in TEXTS[:8]]  # type: ignore[operator]
    assert cells[9:14] == TEXTS[9:14]


def test_numbers_stay_numbers(written: Path) -> None:
    with written.open(newline="", encoding="utf-8") as file:
        assert [float(row["number"]) for row in csv.DictReader(file)] == NUMBERS


@pytest.mark.parametrize("schema", [None, pa.schema([("text", pa.string())])])
def test_reading_gives_the_text_back(written: Path, schema: pa.Schema | None) -> None:
    read = [value for batch in read_batches(written, schema) for value in batch["text"].to_pylist()]
    assert read == TEXTS


def test_files_from_before_the_rule_are_read_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "old.csv"
    path.write_text('"text"\n"=1"\n"-1 to 0"\n"\'quoted\'"\n')
    (batch,) = read_batches(path, pa.schema([("text", pa.string())]))
    assert batch["text"].to_pylist() == ["=1", "-1 to 0", "'quoted'"]


@pytest.mark.parametrize("name", ["=1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_a_header_that_is_a_formula_is_not_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot be written as csv: .* for a formula"):
        write_rows(value_rows({"text": TEXTS, name: NUMBERS}), tmp_path / "cells.csv")
    write_rows(value_rows({"text": TEXTS, name: NUMBERS}), tmp_path / "cells.parquet")
    write_rows(value_rows({"text": TEXTS, f"'{name}": NUMBERS}), tmp_path / "text.csv")
