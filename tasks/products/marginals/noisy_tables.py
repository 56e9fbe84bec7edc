"""The estimated tables of a bundle's microdata by marginals, read from its file of tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.formats.registry import read_batches

Floats = NDArray[np.float64]


def estimated_tables(
    path: Path, groups: Sequence[Sequence[str]], sizes: Mapping[str, int]
) -> Iterator[tuple[tuple[str, ...], Floats, float]]:
    """Of each table its columns, the estimates in their shape, and the error of one.

    Args:
        path: The file, a table's rows together.
        groups: The columns of each table, in the order of the file.
        sizes: Cells of each column.

    Raises:
        ValueError: The file has fewer rows than the tables have cells.
    """
    rows = _rows(path)
    held: list[Any] = [np.zeros((0, 2))]
    for group in groups:
        shape = tuple(sizes[name] for name in group)
        wanted = int(np.prod(shape))
        while sum(map(len, held)) < wanted:
            batch = next(rows, None)
            if batch is None:
                raise ValueError("the file of tables has fewer rows than its tables have cells")
            held.append(batch)
        joined = np.concatenate(held)
        table, held = joined[:wanted], [joined[wanted:]]
        yield tuple(group), table[:, 0].reshape(shape), float(table[0, 1])


def of_pairs(group: tuple[str, ...], table: Floats) -> Iterator[tuple[tuple[str, str], Floats]]:
    """The sums of a table over all but two of its columns, for each two."""
    for first, second in itertools.combinations(range(len(group)), 2):
        others = tuple(axis for axis in range(len(group)) if axis not in (first, second))
        yield (group[first], group[second]), table.sum(axis=others)


def _rows(path: Path) -> Iterator[Floats]:
    """Estimates and standard errors of the file, float64[rows, 2] a batch."""
    for batch in read_batches(path, None):
        columns = [batch.column(name) for name in ("estimate", "standard_error")]
        yield np.stack([np.asarray(each, dtype=np.float64) for each in columns], axis=1)
