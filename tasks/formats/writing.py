"""Writing drawn records and tables in any format, in bounded memory.

Records are exchangeable: they are written cell by cell, so the order of the rows
carries no information. At most a chunk of rows is expanded at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.columns import Codes, Column
from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.domain.domain import Domain
from tasks.formats.arrow_types import arrow_type, schema_of, spread_type
from tasks.formats.registry import format_of

if TYPE_CHECKING:
    import pyarrow as pa

Progress = Callable[[int], None]
_CHUNK = 1 << 20


def write_records(release: ContingencyTable, path: Path, progress: Progress | None = None) -> None:
    """Expand counts to records and write them; the suffix gives the format."""
    with _writer(path, schema_of(release.domain)) as write:
        ends = np.cumsum(release.counts)
        total = int(ends[-1]) if len(ends) else 0
        for start in range(0, total, _CHUNK):
            stop = min(start + _CHUNK, total)
            first = int(np.searchsorted(ends, start, side="right"))
            last = int(np.searchsorted(ends, stop, side="left")) + 1
            bounds = np.clip(ends[first:last], start, stop)
            times = np.diff(bounds, prepend=start)
            write(_record_arrays(release.domain, release.cells[first:last], times))
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
    with _writer(path, schema) as write:
        for start in range(0, len(cells), _CHUNK):
            part = slice(start, start + _CHUNK)
            arrays = _record_arrays(domain, cells[part], None)
            write([*arrays, *(pa.array(values[part]) for values in figures.values())])


def write_columns(columns: Mapping[str, list[Any]], path: Path) -> None:
    """Write a small table whose types are those of its values; the suffix gives the format.

    A column without any value is one of numbers.
    """
    import pyarrow as pa

    arrays = [pa.array(values) for values in columns.values()]
    arrays = [a.cast(pa.float64()) if pa.types.is_null(a.type) else a for a in arrays]
    schema = pa.schema([(name, a.type) for name, a in zip(columns, arrays, strict=True)])
    with _writer(path, schema) as write:
        write(arrays)


def write_codes(
    domain: Domain,
    codes: Sequence[NDArray[Any]],
    path: Path,
    progress: Progress | None = None,
    spread: np.random.Generator | None = None,
) -> None:
    """Write a record per place of the columns' codes; the suffix gives the format.

    Args:
        domain: The columns; they may have too many combinations to be named by a cell.
        codes: Per column integers[records].
        path: Of the new file.
        progress: Called with the number of records of each chunk.
        spread: Draws where in its cell each value lies; by default it is the middle.
    """
    columns = domain.columns
    listed = [None if spread and column.ends else _values(column) for column in columns]
    with _writer(path, schema_of(domain, spread=spread is not None)) as write:
        for start in range(0, len(codes[0]), _CHUNK):
            part = [each[start : start + _CHUNK] for each in codes]
            write(
                [
                    _spread(column, own, spread) if values is None else values.take(_places(own))
                    for column, values, own in zip(columns, listed, part, strict=True)
                ]
            )
            if progress is not None:
                progress(len(part[0]))


def write_batches(schema: pa.Schema, batches: Iterable[list[Any]], path: Path) -> None:
    """Write rows given as Arrow arrays of the columns; the suffix gives the format."""
    with _writer(path, schema) as write:
        for arrays in batches:
            write(arrays)


def _values(column: Column) -> Any:
    """The public values of a column by code, as an Arrow array."""
    import pyarrow as pa

    codes = np.arange(column.size)
    return pa.array(column.decode(codes), arrow_type(column), mask=column.is_missing(codes))


def _spread(column: Column, codes: NDArray[Any], rng: np.random.Generator | None) -> Any:
    """Values drawn within a column's cells, as an Arrow array."""
    import pyarrow as pa

    assert rng is not None
    values = column.spread(codes.astype(np.int64), rng.random(len(codes)))
    return pa.array(values, spread_type(column), mask=column.is_missing(codes))


def _places(codes: NDArray[Any]) -> Any:
    import pyarrow as pa

    return pa.array(codes.astype(np.int32))


@contextmanager
def _writer(path: Path, schema: pa.Schema) -> Iterator[Callable[[list[Any]], None]]:
    """Writes rows, given as Arrow arrays of the columns, to a new file."""
    import pyarrow as pa

    form = format_of(path)
    with path.open("xb") as sink:  # never over another product's file
        file = form.open_writer(sink, schema)
        try:
            yield lambda arrays: file.write(pa.record_batch(arrays, schema=schema))
        finally:
            file.close()


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
