"""Aggregates of a written file, for the release gate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mechanisms.domain.columns import Column
from mechanisms.domain.domain import Domain
from tasks.formats.arrow_types import LISTED, arrow_type, schema_of
from tasks.formats.registry import read_batches


def profile_file(
    path: Path, domain: Domain, extra: tuple[str, ...] = (), *, spread: bool = False
) -> dict[str, int]:
    """Count the rows of a file and what does not fit the domain; reads it in batches.

    Args:
        path: The file.
        domain: Its first columns.
        extra: Names of those that follow.
        spread: Whether values lie anywhere within their cells.

    Returns:
        ``rows``; ``schema``, 1 if names or types differ from the declared ones;
        and per column the number of values outside the domain.
    """
    import pyarrow.compute as pc

    schema = schema_of(domain, spread=spread)
    figures = {"rows": 0, "schema": 0} | {f"outside {c.name}": 0 for c in domain.columns}
    allowed = {
        c.name: _between(c, c.ends) if spread and c.ends else _allowed(c) for c in domain.columns
    }
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


def _allowed(column: Column) -> Callable[[Any], Any]:
    """A function of an Arrow array: which of its values the domain declares."""
    import pyarrow as pa
    import pyarrow.compute as pc

    n_declared = column.size - column.missing
    if n_declared <= LISTED:
        listed = pa.array(column.decode(np.arange(n_declared)), arrow_type(column))

        def inside(values: Any) -> Any:
            found = pc.is_in(values, value_set=listed)
            return pc.or_(found, pc.is_null(values)) if column.missing else found

        return inside
    return _between(column, column.decode(np.array([0, n_declared - 1])).tolist())


def _between(column: Column, ends: Sequence[Any]) -> Callable[[Any], Any]:
    """A function of an Arrow array: which of its values lie between two, or may be missing."""
    import pyarrow.compute as pc

    def between(values: Any) -> Any:
        found = pc.and_(pc.greater_equal(values, ends[0]), pc.less_equal(values, ends[1]))
        return pc.fill_null(found, column.missing)

    return between
