"""The Arrow types of a domain's columns, the same in every format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mechanisms.domain.columns import Column
from mechanisms.domain.domain import Domain

if TYPE_CHECKING:
    import pyarrow as pa

LISTED = 1 << 17
"""Values of a column up to which they are listed rather than compared with its ends."""


def schema_of(domain: Domain, *, spread: bool = False) -> pa.Schema:
    """Names and types of the columns, as written.

    Args:
        domain: The columns.
        spread: Whether values lie anywhere within their cells.
    """
    import pyarrow as pa

    types = {c.name: spread_type(c) if spread else arrow_type(c) for c in domain.columns}
    return pa.schema([pa.field(c.name, types[c.name], nullable=c.missing) for c in domain.columns])


def spread_type(column: Column) -> pa.DataType:
    """The type of values within a column's cells."""
    import pyarrow as pa

    if column.ends is None:
        return arrow_type(column)
    kinds = {int: pa.int64(), float: pa.float64()}
    return kinds.get(type(column.ends[0]), pa.string())


def arrow_type(column: Column) -> pa.DataType:
    """The type of a column's public values; the same for every release of it."""
    import pyarrow as pa

    sample = column.decode(np.zeros(1, dtype=np.int64))
    if sample.dtype.kind in "if":
        return pa.int64() if sample.dtype.kind == "i" else pa.float64()
    kinds = {type(value) for value in column.decode(np.arange(min(column.size, LISTED)))}
    named = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
    if kinds == {int, float}:
        return pa.float64()
    return named.get(kinds.pop(), pa.string()) if len(kinds) == 1 else pa.string()
