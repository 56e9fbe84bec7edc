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
    kinds = {type(value) for value in column.decode(np.arange(min(column.size, LISTED)))}
    named = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
    if kinds == {int, float}:
        return pa.float64()
    return named.get(kinds.pop(), pa.string()) if len(kinds) == 1 else pa.string()
