"""Writing drawn records and tables as Parquet or CSV, in bounded memory.

Records are exchangeable: they are written cell by cell, so the order of the rows
carries no information. At most a chunk of rows is expanded at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.columns import Codes, Column
from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.domain.domain import Domain

if TYPE_CHECKING:
    import pyarrow as pa

Progress = Callable[[int], None]
_CHUNK = 1 << 20
_LISTED = 1 << 17


def write_records(release: ContingencyTable, path: Path, progress: Progress | None = None) -> None:
    """Expand counts to records and write them; the suffix gives the format."""
    with _Writer(path, schema_of(release.domain)) as writer:
        ends = np.cumsum(release.counts)
        total = int(ends[-1]) if len(ends) else 0
        for start in range(0, total, _CHUNK):
            stop = min(start + _CHUNK, total)
            first = int(np.searchsorted(ends, start, side="right"))
            last = int(np.searchsorted(ends, stop, side="left")) + 1
            bounds = np.clip(ends[first:last], start, stop)
            times = np.diff(bounds, prepend=start)
            writer.write(_record_arrays(release.domain, release.cells[first:last], times))
            if progress is not None:
                progress(stop - start)


def write_cells(
    domain: Domain, cells: Codes, figures: Mapping[str, NDArray[Any]], path: Path
) -> None:
    """Write a row per listed cell: its columns, then the figures.

    Args:
        domain: The columns.
        cells: int64[K].
        figures: Per name of a further column its values, int64[K] or float64[K].
        path: The suffix gives the format.
    """
    import pyarrow as pa

    schema = schema_of(domain)
    for name, values in figures.items():
        schema = schema.append(pa.field(name, pa.from_numpy_dtype(values.dtype), nullable=False))
    with _Writer(path, schema) as writer:
        for start in range(0, len(cells), _CHUNK):
            part = slice(start, start + _CHUNK)
            arrays = _record_arrays(domain, cells[part], None)
            writer.write([*arrays, *(pa.array(values[part]) for values in figures.values())])


def write_columns(columns: Mapping[str, list[Any]], path: Path) -> None:
    """Write a small table whose types are those of its values; the suffix gives the format.

    A column without any value is one of numbers.
    """
    import pyarrow as pa

    arrays = [pa.array(values) for values in columns.values()]
    arrays = [a.cast(pa.float64()) if pa.types.is_null(a.type) else a for a in arrays]
    schema = pa.schema([(name, a.type) for name, a in zip(columns, arrays, strict=True)])
    with _Writer(path, schema) as writer:
        writer.write(arrays)


def profile_file(path: Path, domain: Domain, extra: tuple[str, ...] = ()) -> dict[str, int]:
    """Aggregates of a written file, for the release gate; reads it in batches.

    Returns:
        ``rows``; ``schema``, 1 if names or types differ from the declared ones;
        and per column the number of values outside the domain.
    """
    import pyarrow.compute as pc

    schema = schema_of(domain)
    figures = {"rows": 0, "schema": 0} | {f"outside {c.name}": 0 for c in domain.columns}
    allowed = {column.name: _allowed(column) for column in domain.columns}
    for batch in read_batches(path, schema):
        figures["rows"] += batch.num_rows
        names = [*schema.names, *extra]
        if batch.schema.names != names or any(
            not batch.schema.field(f.name).type.equals(f.type) for f in schema
        ):
            figures["schema"] = 1
            continue
        for column in domain.columns:
            inside = allowed[column.name](batch.column(column.name))
            figures[f"outside {column.name}"] += batch.num_rows - (pc.sum(inside).as_py() or 0)
    return figures


class _Writer:
    """A Parquet or CSV file being written in chunks of rows."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        import pyarrow.csv
        import pyarrow.parquet

        self._schema = schema
        self._sink = path.open("xb")  # never over another product's file
        if path.suffix == ".csv":
            self._file: Any = pyarrow.csv.CSVWriter(self._sink, schema)
        else:
            self._file = pyarrow.parquet.ParquetWriter(self._sink, schema, compression="zstd")

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._sink.close()

    def write(self, arrays: list[Any]) -> None:
        import pyarrow as pa

        self._file.write(pa.record_batch(arrays, schema=self._schema))


def _record_arrays(domain: Domain, cells: Codes, times: Codes | None) -> list[Any]:
    """Arrow arrays of the columns, each cell repeated ``times`` times."""
    import pyarrow as pa

    arrays = []
    for column in domain.columns:
        codes, positions = np.unique(domain.codes(cells, column.name), return_inverse=True)
        values = pa.array(column.decode(codes), arrow_type(column), mask=column.is_missing(codes))
        if times is not None:
            positions = np.repeat(positions.astype(np.int32), times)
        arrays.append(values.take(pa.array(positions.astype(np.int32))))
    return arrays


def schema_of(domain: Domain) -> pa.Schema:
    """Names and types of the columns, as written."""
    import pyarrow as pa

    return pa.schema([pa.field(c.name, arrow_type(c), nullable=c.missing) for c in domain.columns])


def arrow_type(column: Column) -> pa.DataType:
    """The type of a column's public values; the same for every release of it."""
    import pyarrow as pa

    sample = column.decode(np.zeros(1, dtype=np.int64))
    if sample.dtype.kind in "if":
        return pa.int64() if sample.dtype.kind == "i" else pa.float64()
    kinds = {type(value) for value in column.decode(np.arange(min(column.size, _LISTED)))}
    named = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
    if kinds == {int, float}:
        return pa.float64()
    return named.get(kinds.pop(), pa.string()) if len(kinds) == 1 else pa.string()


def _allowed(column: Column) -> Callable[[Any], Any]:
    """A function of an Arrow array: which of its values the domain declares."""
    import pyarrow as pa
    import pyarrow.compute as pc

    n_declared = column.size - column.missing
    if n_declared <= _LISTED:
        listed = pa.array(column.decode(np.arange(n_declared)), arrow_type(column))

        def inside(values: Any) -> Any:
            found = pc.is_in(values, value_set=listed)
            return pc.or_(found, pc.is_null(values)) if column.missing else found

        return inside
    ends = column.decode(np.array([0, n_declared - 1])).tolist()

    def between(values: Any) -> Any:
        found = pc.and_(pc.greater_equal(values, ends[0]), pc.less_equal(values, ends[1]))
        return pc.fill_null(found, column.missing)

    return between


def read_batches(path: Path, schema: pa.Schema | None) -> Iterator[Any]:
    """Record batches of a written file, of which CSV files need the schema, if it is known."""
    if path.suffix == ".csv":
        import pyarrow.csv

        types = {field.name: field.type for field in schema or ()}
        convert = pyarrow.csv.ConvertOptions(
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        lines = pyarrow.csv.ParseOptions(ignore_empty_lines=False, newlines_in_values=True)
        with pyarrow.csv.open_csv(path, convert_options=convert, parse_options=lines) as reader:
            yield from reader
    else:
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(path) as file:
            yield from file.iter_batches()
