"""Rows of tables written in any format, in bounded memory, and read back to cells.

A table's rows are a value, ``Rows``, which gives them as often as they are asked for, a chunk at a
time. Records are exchangeable: they are written cell by cell, so the order of the rows carries no
information. Text with few values is handed to formats that take it so as codes with a dictionary:
neither gathering it nor finding its values again takes time for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.column import leant
from statpress.mechanisms.domain.columns import Codes, Column, Integer
from statpress.mechanisms.domain.contingency_table import ContingencyTable, sum_by_cell
from statpress.mechanisms.domain.domain import Domain
from statpress.tasks.bundle.file_formats import (
    LISTED,
    arrow_type,
    format_of,
    read_batches,
    schema_of,
    spread_type,
)
from statpress.tasks.bundle.stat_tables import labelled

if TYPE_CHECKING:
    import pyarrow as pa


Coder = Callable[[Any], Codes]


def read_records(path: Path, domain: Domain) -> tuple[Codes, Codes]:
    """Count the records of a file.

    Returns:
        Cells int64[K], ascending, and their counts int64[K].

    Raises:
        ValueError: The file does not hold records of this domain.
    """
    schema = schema_of(domain)
    coders = [coder_of(column) for column in domain.columns]
    cells, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for batch in read_batches(path, schema):
        # Records are written cell by cell, so that this holds some K cells in all.
        found, times = np.unique(_cells(batch, schema, domain, coders), return_counts=True)
        cells.append(found)
        counts.append(times.astype(np.int64))
    return sum_by_cell(np.concatenate(cells), np.concatenate(counts))


def read_counts(path: Path, domain: Domain, name: str) -> tuple[Codes, Codes]:
    """The cells of a table and one of its columns of integers.

    Returns:
        Cells int64[K], ascending, and the integers int64[K].

    Raises:
        ValueError: The file does not hold such a table of this domain.
    """
    import pyarrow as pa

    schema = schema_of(domain).append(pa.field(name, pa.int64(), nullable=False))
    coders = [coder_of(column) for column in domain.columns]
    cells, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for batch in read_batches(path, schema):
        cells.append(_cells(batch, schema, domain, coders))
        if batch.column(name).null_count:
            raise ValueError(f"the column '{name}' has nulls")
        counts.append(batch.column(name).to_numpy(zero_copy_only=False))
    listed = np.concatenate(cells)
    if np.any(listed[1:] <= listed[:-1]):
        raise ValueError("its cells are not in ascending order, each once")
    return listed, np.concatenate(counts)


def read_figures(
    path: Path, domain: Domain, names: Sequence[str]
) -> tuple[Codes, list[NDArray[np.float64]]]:
    """The cells of a table and some of its columns of numbers.

    Returns:
        Cells int64[K], in the order of the file, and float64[K] for each name.

    Raises:
        ValueError: The file does not hold such a table of this domain.
    """
    import pyarrow as pa

    schema = schema_of(domain)
    whole = pa.schema([*schema, *(pa.field(name, pa.float64()) for name in names)])
    coders = [coder_of(column) for column in domain.columns]
    cells, figures = [np.zeros(0, np.int64)], [np.zeros((len(names), 0))]
    for batch in read_batches(path, whole):
        cells.append(_cells(batch, schema, domain, coders))
        figures.append(np.array([batch.column(name).to_numpy(False) for name in names], float))
    return np.concatenate(cells), list(np.concatenate(figures, axis=1))


def _cells(batch: Any, schema: pa.Schema, domain: Domain, coders: list[Coder]) -> Codes:
    """Cell codes of a batch of rows: int64[rows]."""
    wrong = [f.name for f in schema if f.name not in batch.schema.names]
    wrong = wrong or [f.name for f in schema if batch.schema.field(f.name).type != f.type]
    if wrong:
        raise ValueError(f"the column '{wrong[0]}' is missing or of another type")
    codes = {
        column.name: coder(batch.column(column.name))
        for column, coder in zip(domain.columns, coders, strict=True)
    }
    return domain.encode(codes)


def coder_of(column: Column) -> Coder:
    """A function from a column's public values, an Arrow array, to its codes int64[rows]."""
    of_values = _ruled(column) if isinstance(column, Integer) else _listed(column)

    def coded(values: Any) -> Codes:
        codes = np.full(len(values), column.size - 1, dtype=np.int64)
        there = ~values.is_null().to_numpy(zero_copy_only=False)
        if column.missing_code is None and not there.all():
            raise ValueError(f"the column '{column.name}' has nulls")
        codes[there] = of_values(values.drop_null())
        return np.asarray(codes, dtype=np.int64)

    return coded


def _ruled(column: Integer) -> Coder:
    """By arithmetic, since there may be 2**54 values."""

    def coded(values: Any) -> Codes:
        numbers = values.to_numpy(zero_copy_only=False)
        bins = (np.floor(numbers).astype(np.int64) - column.lower) // column.width
        codes = column.codes_of_bins(np.clip(bins, 0, column.n_bins - 1))
        for value, code in zip(column.special, column.special_codes, strict=True):
            codes[numbers == value] = code
        if np.any(column.decode(codes) != numbers):
            raise ValueError(f"the column '{column.name}' has a value that is not declared")
        return np.asarray(codes, dtype=np.int64)

    return coded


def _listed(column: Column) -> Coder:
    """By a table of all declared values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    declared = np.arange(column.size - column.missing)
    listed = pa.array(column.decode(declared), arrow_type(column))
    if len(pc.unique(listed)) < len(listed):
        raise ValueError(f"two codes of the column '{column.name}' are written alike")

    def coded(values: Any) -> Codes:
        found = pc.index_in(values, value_set=listed)
        if found.null_count:
            raise ValueError(f"the column '{column.name}' has a value that is not declared")
        return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.int64)

    return coded


Progress = Callable[[int], None]
Fields = Sequence[Mapping[str, Any]]
_CHUNK = 1 << 20
_CODED = 1 << 10
"""Values of a column of text up to which it is written with a dictionary of all of them."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a table.

    Attributes:
        schema: Names and types of the columns, ``pyarrow.Schema``.
        batches: Gives the rows as lists of Arrow arrays of the columns, a chunk at a time.
    """

    schema: pa.Schema
    batches: Callable[[], Iterator[list[Any]]]


def write_rows(
    rows: Rows, path: Path, fields: Fields = (), progress: Progress | None = None
) -> None:
    """Write rows to a new file, whose suffix gives the format.

    Args:
        rows: Of the table.
        path: Of the new file.
        fields: Its columns as a data package describes them, for formats that hold labels.
        progress: Called with the number of rows of each chunk.
    """
    import pyarrow as pa

    form = format_of(path)
    schema = labelled(rows.schema, fields) if form.labelled else rows.schema
    with path.open("xb") as sink:  # never over another product's file
        file = form.open_writer(sink, schema)
        try:
            for arrays in rows.batches():
                if not form.coded_text:
                    arrays = [
                        a.dictionary_decode() if pa.types.is_dictionary(a.type) else a
                        for a in arrays
                    ]
                given = [field.with_type(a.type) for field, a in zip(schema, arrays, strict=True)]
                file.write(pa.record_batch(arrays, schema=pa.schema(given)))
                if progress is not None:
                    progress(len(arrays[0]))
        finally:
            file.close()


def record_rows(release: ContingencyTable, at_once: int = _CHUNK) -> Rows:
    """Expand counts to records, so many in a batch."""

    def batches() -> Iterator[list[Any]]:
        expand = _expander(release.domain)
        ends = np.cumsum(release.counts)
        total = int(ends[-1]) if len(ends) else 0
        for start in range(0, total, at_once):
            stop = min(start + at_once, total)
            first = int(np.searchsorted(ends, start, side="right"))
            last = int(np.searchsorted(ends, stop, side="left")) + 1
            bounds = np.clip(ends[first:last], start, stop)
            times = np.diff(bounds, prepend=start)
            yield expand(release.cells[first:last], times)

    return Rows(schema_of(release.domain), batches)


def cell_rows(domain: Domain, cells: Codes, figures: Mapping[str, NDArray[Any]]) -> Rows:
    """A row per listed cell: its columns, then the figures.

    Args:
        domain: The columns.
        cells: int64[K].
        figures: Per name of a further column its values, int64[K] or float64[K].
    """
    types = {name: values.dtype for name, values in figures.items()}
    return part_rows(domain, types, lambda: iter([(cells, figures)]))


def part_rows(
    domain: Domain,
    types: Mapping[str, Any],
    parts: Callable[[], Iterator[tuple[Codes, Mapping[str, NDArray[Any]]]]],
) -> Rows:
    """``cell_rows`` of a table that is made part by part.

    Args:
        domain: The columns.
        types: Per name of a further column the NumPy type of its values.
        parts: Gives cells and figures of each part, in order.
    """
    import pyarrow as pa

    schema = schema_of(domain)
    for name, kind in types.items():
        schema = schema.append(pa.field(name, pa.from_numpy_dtype(kind), nullable=False))

    def batches() -> Iterator[list[Any]]:
        expand = _expander(domain)
        for cells, figures in parts():
            for start in range(0, len(cells), _CHUNK):
                part = slice(start, start + _CHUNK)
                yield [
                    *expand(cells[part], None),
                    *(pa.array(figures[name][part]) for name in types),
                ]

    return Rows(schema, batches)


def value_rows(columns: Mapping[str, Sequence[Any]]) -> Rows:
    """A small table whose types are those of its values; numbers where a column has none."""
    import pyarrow as pa

    arrays = [pa.array(values) for values in columns.values()]
    arrays = [a.cast(pa.float64()) if pa.types.is_null(a.type) else a for a in arrays]
    schema = pa.schema([(name, a.type) for name, a in zip(columns, arrays, strict=True)])
    return Rows(schema, lambda: iter([arrays]))


def code_rows(
    domain: Domain,
    codes: Sequence[NDArray[Any]],
    within: Callable[[], np.random.Generator] | None = None,
    tilts: Sequence[NDArray[np.float64]] | None = None,
) -> Rows:
    """A record per place of the columns' codes.

    Args:
        domain: The columns; they may have too many combinations to be named by a cell.
        codes: Per column integers[records].
        within: Makes the generator that draws where in its cell each value lies, the same for
            every file; by default it is the middle.
        tilts: Per column and code how values lean in the cell
            (``mechanisms.domain.column``); by default they lie evenly.
    """
    columns = domain.columns
    leaning: Sequence[NDArray[np.float64] | None] = tilts or [None] * len(columns)

    def batches() -> Iterator[list[Any]]:
        rng = within() if within else None
        gathers = [None if rng and column.ends else _gather(column) for column in columns]
        for start in range(0, len(codes[0]), _CHUNK):
            part = [own[start : start + _CHUNK] for own in codes]
            yield [
                _spread(column, own, rng, tilt) if gather is None else gather(own)
                for column, gather, own, tilt in zip(columns, gathers, part, leaning, strict=True)
            ]

    return Rows(schema_of(domain, spread=within is not None), batches)


def _values(column: Column, codes: Codes) -> Any:
    """The public values of codes of a column, as an Arrow array."""
    import pyarrow as pa

    mask = column.is_missing(codes) if column.missing else None
    return pa.array(column.decode(codes), arrow_type(column), mask=mask)


def _gather(column: Column) -> Callable[[NDArray[Any]], Any]:
    """A function from codes to public values, all of which are listed first if they are few."""
    import pyarrow as pa

    if column.size > LISTED:
        return lambda codes: _values(column, codes.astype(np.int64, copy=False))
    values = _values(column, np.arange(column.size))

    def taken(codes: NDArray[Any]) -> Any:
        return values.take(pa.array(codes.astype(np.int32, copy=False)))

    def coded(codes: NDArray[Any]) -> Any:
        mask = codes == column.missing_code if column.missing else None
        places = pa.array(codes.astype(np.int32, copy=False), mask=mask)
        return pa.DictionaryArray.from_arrays(places, known)

    if not pa.types.is_string(values.type) or len(values) > _CODED:
        return taken
    known = values.slice(0, column.size - column.missing)
    return coded


def _expander(domain: Domain) -> Callable[[Codes, Codes | None], list[Any]]:
    """A function from cells to Arrow arrays of the columns, each cell repeated so many times."""
    import pyarrow as pa

    gathers = [_gather(column) if column.size <= LISTED else None for column in domain.columns]

    def expand(cells: Codes, times: Codes | None) -> list[Any]:
        places = np.arange(len(cells), dtype=np.int32)
        rows = places if times is None else np.repeat(places, times)
        arrays = []
        for column, gather in zip(domain.columns, gathers, strict=True):
            codes = domain.codes(cells, column.name)
            if gather is not None:
                arrays.append(gather(codes.astype(np.int32)[rows]))
            else:
                arrays.append(_values(column, codes).take(pa.array(rows)))
        return arrays

    return expand


def _spread(
    column: Column,
    codes: NDArray[Any],
    rng: np.random.Generator | None,
    tilt: NDArray[np.float64] | None,
) -> Any:
    """Values drawn within a column's cells, as an Arrow array."""
    import pyarrow as pa

    assert rng is not None
    places = rng.random(len(codes))
    if tilt is not None:
        places = leant(places, tilt[codes])
    values = column.spread(codes.astype(np.int64), places)
    mask = column.is_missing(codes) if column.missing else None
    return pa.array(values, spread_type(column), mask=mask)
