"""Whole numbers from PostgreSQL in its binary form of COPY: eight bytes each, four around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tasks.engines.postgres_types import identifier

if TYPE_CHECKING:
    import psycopg

_HEADER = 19  # bytes: signature, flags, and the length of no extension
_NULL = -1


def chunks(
    connection: psycopg.Connection[Any], query: str, columns: Sequence[str], size: int
) -> Iterator[NDArray[np.int64]]:
    """The rows of a query, never all at once.

    Args:
        connection: Where it runs.
        query: A statement whose columns are whole numbers of at least 0, or null.
        columns: Their names.
        size: Rows of a chunk, about.

    Yields:
        int64[rows, columns]; -1 stands for null.
    """
    # One length for every row, which a null would not have.
    listed = ", ".join(f"COALESCE(CAST({identifier(name)} AS int8), {_NULL})" for name in columns)
    number = [("bytes", ">i4"), ("value", ">i8")]
    row = np.dtype([("fields", ">i2"), *((f"{i}", number) for i in range(len(columns)))])
    statement = f"COPY (SELECT {listed} FROM ({query}) AS found) TO STDOUT (FORMAT binary)"  # noqa: S608
    pieces: list[bytes] = []
    held, skipped = 0, False
    with connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        for piece in copy:
            data = bytes(piece)
            if not skipped:
                data, skipped = data[_HEADER:], True
            pieces.append(data)
            held += len(data)
            if held >= size * row.itemsize:
                whole, rest = _split(b"".join(pieces), row)
                yield whole
                pieces, held = [rest], len(rest)
    last, _ = _split(b"".join(pieces), row)  # what is over says that it is the end
    if len(last):
        yield last


def _split(data: bytes, row: np.dtype[Any]) -> tuple[NDArray[np.int64], bytes]:
    """The whole rows of some bytes, and what is over."""
    n = len(data) // row.itemsize
    rows = np.frombuffer(data, row, n)
    names = row.names[1:] if row.names else ()
    values = [rows[name]["value"].astype(np.int64) for name in names]
    return np.stack(values, axis=1), data[n * row.itemsize :]
