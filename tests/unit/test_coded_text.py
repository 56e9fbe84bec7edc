"""Text that is written with a dictionary reads as what was written without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statpress.mechanisms.domain.columns import Categorical, Integer
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import LISTED, Domain
from statpress.tasks.bundle import rows as writing
from statpress.tasks.bundle.file_formats import read_batches, schema_of
from statpress.tasks.bundle.rows import Rows, code_rows, read_records, record_rows, write_rows

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
