"""Reading written records and tables back to cells: the inverse of tasks.formats.writing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.columns import Codes, Column, Integer
from mechanisms.domain.contingency_table import sum_by_cell
from mechanisms.domain.domain import Domain
from tasks.formats.arrow_types import arrow_type, schema_of
from tasks.formats.registry import read_batches

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
    coders = [_coder(column) for column in domain.columns]
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
    coders = [_coder(column) for column in domain.columns]
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
    coders = [_coder(column) for column in domain.columns]
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


def _coder(column: Column) -> Coder:
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
        codes = (np.floor(numbers).astype(np.int64) - column.lower) // column.width
        codes = np.clip(codes, 0, column.n_values - 1)
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
