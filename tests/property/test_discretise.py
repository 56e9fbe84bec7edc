"""The engine's cell of every record is the cell that the domain defines."""

import collections
import datetime
import math
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from generated_sources import read, tables, text_tables, write_lines
from hypothesis import HealthCheck, assume, given, settings

from statpress.mechanisms.domain.column import Ranges
from statpress.mechanisms.domain.columns import Categorical, Column, Integer, Numeric
from statpress.mechanisms.domain.domain import MAX_CELLS, Domain
from statpress.tasks.source.aggregates import count, profile
from statpress.tasks.source.files import FileSource

CHECK = settings(
    max_examples=settings().max_examples // 4,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def agree(
    domain: Domain,
    records: list[dict[str, object]],
    source: FileSource,
    scratch: Path,
    unreadable: collections.Counter[str],
) -> None:
    assume(domain.n_cells <= MAX_CELLS)
    expected = collections.Counter(domain.cell_of(record) for record in records)
    counted = count(source, domain, scratch=scratch)
    found = dict(zip(counted.cells.tolist(), counted.counts.tolist(), strict=True))
    assert found == dict(sorted(expected.items()))
    profiled = profile(source, domain, scratch=scratch)
    assert profiled.n_records == len(records)
    for column, seen in zip(domain.columns, profiled.columns, strict=True):
        values = [record[column.name] for record in records]
        assert seen.n_unreadable == unreadable[column.name]
        assert seen.n_null == sum(map(is_null, values)) - unreadable[column.name]
        assert seen.n_outside == sum(is_outside(column, v) for v in values if not is_null(v))


def is_null(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def is_outside(column: Column, value: object) -> bool:
    if isinstance(column, Categorical):
        return value not in column.categories
    assert isinstance(column, Ranges)
    if column.code_of(value) in column.special_codes:
        return False
    if isinstance(column, Numeric):
        return not column.edges[0] <= value <= column.edges[-1]
    if isinstance(column, Integer):
        return not column.lower <= value < column.upper + 1
    day = value.date() if isinstance(value, datetime.datetime) else value
    return not column.first <= day <= column.last


@CHECK
@given(tables())
def test_parquet_agrees_with_the_definition(case: tuple[Domain, pa.Table]) -> None:
    domain, table = case
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "records.parquet")
        pq.write_table(table, path, use_dictionary=len(table) % 2 == 0)
        records = [{k: read(v) for k, v in row.items()} for row in table.to_pylist()]
        agree(
            domain,
            records,
            FileSource(str(path), "parquet"),
            Path(directory),
            collections.Counter(),
        )


@CHECK
@given(text_tables())
def test_csv_agrees_with_the_definition(
    case: tuple[Domain, list[dict[str, str]], list[dict[str, object]]],
) -> None:
    domain, lines, values = case
    with tempfile.TemporaryDirectory() as directory:
        path = write_lines(Path(directory), domain, lines)
        unreadable = collections.Counter(
            name
            for line, record in zip(lines, values, strict=True)
            for name in domain.names
            if line[name] and record[name] is None
        )
        agree(domain, values, FileSource(str(path), "csv"), Path(directory), unreadable)
