"""The noisy tables behind microdata by marginals, written and read back.

The noisy tables of a release as rows of one file, and read back from there.

A row is a cell of a table; tables follow each other in the order of the privacy statement, the
cells of each with the code of its last column running fastest.

The noisy tables of a published release, read back with neither data nor ledger at hand.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statpress.configs import formats
from statpress.mechanisms.domain.columns import labels
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.marginals.residuals import (
    GRID,
    NoisyMarginals,
    NoisyTable,
    Residuals,
    table_with_errors,
)
from statpress.tasks.bundle.formats import read_batches, written_file
from statpress.tasks.bundle.rows import Rows
from statpress.tasks.products.publication import Field, described
from statpress.tasks.products.published_counts import column_from, understood, zero_from

Floats = NDArray[np.float64]


_ROWS = 1 << 16
_FIGURES = {
    "raw": (
        "integer",
        f"Noisy count as it was drawn, in steps of 1/{GRID} of a record; may be negative.",
    ),
    "noisy_count": ("number", "The same in records."),
    "estimate": (
        "number",
        "Unbiased estimate of the count from all tables together; may be negative.",
    ),
    "standard_error": ("number", "Of the estimate: the noise, without the sampling of records."),
}


def fields(width: int) -> list[Field]:
    """Columns of the file where the largest table is of so many columns."""
    of_cell = [
        {"name": name, "type": "string", "description": words}
        for place in range(1, width + 1)
        for name, words in (
            (f"column_{place}", f"Name of column {place} of the table; null if it has fewer."),
            (f"value_{place}", f"The cell's value of column_{place}; null stands for missing."),
        )
    ]
    return of_cell + described(_FIGURES)


def drawn_tables(release: NoisyMarginals) -> tuple[NoisyTable, ...]:
    """All tables that noise was drawn for, in the order in which they are written."""
    return (*release.one_way, *release.tables)


def table_rows(release: NoisyMarginals, residuals: Residuals, most: int) -> Rows:
    """All cells of all tables of at most so many columns."""
    import pyarrow as pa

    text = [
        pa.field(f"{part}_{place}", pa.string())
        for place in range(1, most + 1)
        for part in ("column", "value")
    ]
    numbers = [
        pa.field(name, pa.int64() if kind == "integer" else pa.float64(), nullable=False)
        for name, (kind, _) in _FIGURES.items()
    ]
    return Rows(pa.schema([*text, *numbers]), lambda: _batches(release, residuals, most))


def read_tables(
    path: Path, groups: Sequence[tuple[int, ...]], sizes: Sequence[int]
) -> list[NDArray[np.int64]]:
    """The noisy counts of tables in grid steps, each of the shape of its columns.

    Raises:
        ValueError: The file does not hold them.
    """
    import pyarrow as pa

    parts = [np.zeros(0, np.int64)]
    for batch in read_batches(path, None):
        if "raw" not in batch.schema.names or batch.column("raw").type != pa.int64():
            raise ValueError("the column 'raw' is missing or of another type")
        if batch.column("raw").null_count:
            raise ValueError("the column 'raw' has nulls")
        parts.append(batch.column("raw").to_numpy(zero_copy_only=False))
    raw = np.concatenate(parts)
    shapes = [tuple(sizes[column] for column in group) for group in groups]
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    if len(raw) != (ends[-1] if len(ends) else 0):
        raise ValueError("the tables do not have as many cells as their columns say")
    # The part after the last end is empty; without any table it is the only one.
    return [
        part.reshape(shape) for part, shape in zip(np.split(raw, ends)[:-1], shapes, strict=True)
    ]


def raw_digest(release: NoisyMarginals) -> str:
    """SHA-256 of all that was drawn: tables, then scores, as little-endian int64."""
    digest = hashlib.sha256()
    for table in drawn_tables(release):
        digest.update(table.values.astype("<i8").tobytes())
    if release.scores is not None:
        digest.update(release.scores.values.astype("<i8").tobytes())
    return digest.hexdigest()


def _batches(release: NoisyMarginals, residuals: Residuals, most: int) -> Iterator[list[Any]]:
    """Arrow arrays of the rows of several tables, of some tens of thousands of rows each."""
    import pyarrow as pa

    gathered: list[list[Any]] = []
    for table in drawn_tables(release):
        gathered.append(_rows(release.domain, table, residuals, most))
        if sum(len(arrays[0]) for arrays in gathered) >= _ROWS:
            yield [pa.concat_arrays(parts) for parts in zip(*gathered, strict=True)]
            gathered = []
    if gathered:
        yield [pa.concat_arrays(parts) for parts in zip(*gathered, strict=True)]


def _rows(domain: Domain, table: NoisyTable, residuals: Residuals, most: int) -> list[Any]:
    """Arrow arrays of one table's rows."""
    import pyarrow as pa

    estimates, error = table_with_errors(residuals, table.group)
    n = table.values.size
    arrays: list[Any] = []
    for place in range(most):
        if place >= len(table.group):
            arrays += [pa.nulls(n, pa.string())] * 2
            continue
        column = domain.columns[table.group[place]]
        shape = [1] * len(table.group)
        shape[place] = column.size
        codes = np.broadcast_to(np.arange(column.size).reshape(shape), table.values.shape)
        arrays.append(pa.repeat(pa.scalar(column.name), n))
        arrays.append(_labels(domain, table.group[place]).take(pa.array(codes.ravel())))
    arrays += [
        pa.array(table.values.ravel()),
        pa.array(table.counts.ravel()),
        pa.array(estimates.ravel()),
        pa.repeat(pa.scalar(error), n),
    ]
    return arrays


@functools.lru_cache(maxsize=256)
def _labels(domain: Domain, position: int) -> Any:
    """The public values of a column as Arrow strings, null where one is missing."""
    import pyarrow as pa

    return pa.array(labels(domain.columns[position]), pa.string())


def published_marginals(
    folder: Path, name: str, stated: Mapping[str, Any], resources: Mapping[str, Any]
) -> NoisyMarginals:
    """All noisy tables of a product, without the scores of pairs.

    Raises:
        BundleVerificationError: The files are not what the bundle says of them.
    """
    with understood(folder):
        if stated["grid"] != GRID:
            raise ValueError(f"the tables of the product '{name}' are on another grid")
        described = next(
            r for s in formats.FORMATS if (r := resources.get(f"data/{name}.{s}")) is not None
        )
        columns = tuple(column_from(field["declared"]) for field in described["schema"]["fields"])
        zeros = tuple(zero_from(sets) for sets in stated["structural_zeros"])
        domain = Domain(columns, zeros, stated["absent_records"])
        if list(domain.names) != stated["columns"]:
            raise ValueError(f"the columns of the product '{name}' are described in two ways")
        sizes = [column.size for column in columns]

        def group_of(names: Sequence[str]) -> tuple[int, ...]:
            return tuple(domain.names.index(each) for each in names)

        groups = [group_of(each["columns"]) for each in stated["tables"]]
        path = written_file(folder, f"{name}_tables")
        if path is None:
            raise ValueError(f"there is no file data/{name}_tables")
        values = read_tables(path, groups, sizes)
        tables = [
            NoisyTable(group, Fraction(each["scale"]), noisy)
            for group, each, noisy in zip(groups, stated["tables"], values, strict=True)
        ]
        known = {}
        for each in stated["known"]:
            group = group_of(each["columns"])
            counts = np.array(each["counts"], dtype=np.int64)
            known[group] = counts.reshape([sizes[column] for column in group])
        return NoisyMarginals(
            domain,
            stated["n_records"],
            tuple(table for table in tables if len(table.group) == 1),
            None,
            tuple(table for table in tables if len(table.group) > 1),
            known,
        )
