"""What is written comes back: every kind of column, records and tables, both formats."""

from __future__ import annotations

import datetime
import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from statpress.mechanisms.domain.columns import Categorical, Column, Date, Integer, Numeric, Ordinal
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.tasks.bundle.rows import (
    cell_rows,
    read_counts,
    read_records,
    record_rows,
    write_rows,
)
from statpress.tasks.products.publication import column_from, describe_column

DAYS = st.dates(datetime.date(1, 1, 1), datetime.date(9999, 12, 31))
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=8)


@st.composite
def columns(draw: st.DrawFn, name: str = "a") -> Column:
    """Any declaration, not too large to list."""
    missing = draw(st.booleans())
    kind = draw(st.sampled_from([Categorical, Ordinal, Integer, Numeric, Date]))
    if kind in (Categorical, Ordinal):
        values: st.SearchStrategy[list[str] | list[float] | list[bool]] = st.one_of(
            st.lists(TEXTS.filter(lambda t: t != "other"), min_size=1, max_size=6, unique=True),
            st.lists(st.integers(-(2**53), 2**53), min_size=1, max_size=6, unique=True),
            st.lists(
                st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0),
                min_size=1, max_size=6, unique=True,
            ),
            st.lists(st.booleans(), min_size=1, max_size=2, unique=True),
        )  # fmt: skip
        categories = tuple(draw(values))
        return kind(name=name, categories=categories, other=draw(st.booleans()), missing=missing)
    if kind is Integer:
        lower, width = draw(st.integers(-(2**53), 2**52)), draw(st.integers(1, 10**6))
        cells = draw(st.integers(1, (2**53 - lower + 1) // width))
        return Integer(
            name=name, lower=lower, upper=lower + cells * width - 1, width=width, missing=missing
        )
    if kind is Numeric:
        edges = draw(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=9, unique=True))
        return Numeric(name=name, edges=tuple(sorted(x + 0.0 for x in edges)), missing=missing)
    first, last = sorted(draw(st.tuples(DAYS, DAYS)))
    by = draw(st.sampled_from(["year", "month"]))
    return Date(name=name, first=first, last=last, by=by, missing=missing)


@given(columns())
def test_columns_come_back_from_their_description(column: Column) -> None:
    assert column_from(json.loads(json.dumps(describe_column(column)))) == column


@settings(max_examples=settings().max_examples // 2, deadline=None)
@given(columns(), columns("b"), st.sampled_from(["parquet", "csv"]), st.data())
def test_records_and_tables_come_back(
    first: Column, second: Column, suffix: str, data: st.DataObject
) -> None:
    assume(first.size * second.size < 2**63)
    codes = [
        data.draw(st.lists(st.integers(0, column.size - 1), min_size=1, max_size=5))
        for column in (first, second)
    ]
    domain = Domain((first, second))
    rows = min(map(len, codes))
    cells = np.unique(
        domain.encode({"a": np.array(codes[0][:rows]), "b": np.array(codes[1][:rows])})
    )
    counts = data.draw(
        st.lists(st.integers(1, 3), min_size=len(cells), max_size=len(cells)).map(np.array)
    )
    table = ContingencyTable(domain, cells, counts)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file.{suffix}"
        write_rows(record_rows(table), path)
        found = read_records(path, domain)
        assert [x.tolist() for x in found] == [cells.tolist(), counts.tolist()]
        path.unlink()
        write_rows(cell_rows(domain, cells, {"raw": -counts, "estimate": counts / 3}), path)
        found = read_counts(path, domain, "raw")
        assert [x.tolist() for x in found] == [cells.tolist(), (-counts).tolist()]


AGE = Integer(name="a", lower=0, upper=9, width=2)
PAY = Numeric(name="b", edges=(0.0, 1.0, 3.0))
ROWS = {"a": [0.5, 8.5], "b": [0.5, 2.0], "raw": [1, -2]}
WRONG = {
    "not declared": ({"a": [0.5, 9.5]}, "a value that is not declared"),
    "between cells": ({"a": [0.5, 1.0]}, "a value that is not declared"),
    "no bin": ({"b": [0.5, 2.5]}, "a value that is not declared"),
    "null": ({"a": [None, 8.5]}, "'a' has nulls"),
    "null count": ({"raw": [None, 1]}, "'raw' has nulls"),
    "type": ({"b": ["x", "y"]}, "'b' is missing or of another type"),
    "twice": ({"a": [0.5, 0.5], "b": [2.0, 2.0]}, "each once"),
    "order": ({"a": [8.5, 0.5]}, "each once"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_table_of_the_domain_is_refused(tmp_path: Path, case: str) -> None:
    changed, message = WRONG[case]
    path, domain = tmp_path / "t.parquet", Domain((AGE, PAY))
    pq.write_table(pa.table(ROWS), path)
    assert [x.tolist() for x in read_counts(path, domain, "raw")] == [[0, 9], [1, -2]]
    pq.write_table(pa.table(ROWS | changed), path)
    with pytest.raises(ValueError, match=message):
        read_counts(path, domain, "raw")


def test_codes_that_are_written_alike_cannot_be_read(tmp_path: Path) -> None:
    edges = [1 + i * 2.0**-52 for i in (1, 2, 3)]  # both middles round to the second
    column = Numeric(name="a", edges=tuple(edges))
    table = ContingencyTable(Domain((column,)), np.array([1]), np.array([1]))
    write_rows(record_rows(table), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="written alike"):
        read_records(tmp_path / "t.parquet", table.domain)
