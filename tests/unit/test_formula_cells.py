"""No text in a CSV file of a bundle is a formula to a spreadsheet, and none is lost."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pytest

from statpress.mechanisms.errors import ConfigError
from statpress.tasks.bundle.file_formats import read_batches
from statpress.tasks.bundle.rows import value_rows, write_rows

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
