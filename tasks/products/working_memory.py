"""What products need of memory, from public figures only: bounds that hold, not estimates.

The bytes of a cell and of a record are those that were measured, with room to spare
(tests/system/test_memory_forecasts.py measures them again).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mechanisms.domain.columns import Column

CHUNK_ROWS = 1 << 20
"""Most rows that are written at once (tasks.formats.writing)."""
_WRITERS = 256 * 2**20
"""Of the libraries that write files, their buffers, and those that drew before."""
_VALUE = 28
_CODED = 1 << 10
_SAMPLERS = 96 * 2**20
"""Of the libraries that draw, with their compiled kernels."""


@dataclass(frozen=True, kw_only=True)
class WorkingMemory:
    """Bytes that a product needs at most, besides what the run has in memory anyway.

    Attributes:
        draw: While its mechanism releases.
        derive: While it is post-processed, what was released included.
        write: While its files are written and checked, without ``kept``.
        kept: From post-processing to the end of the run.
        figure: What decides, in words, such as ``1,000,000 cells``.
        next_step: What helps.
    """

    draw: int
    derive: int
    write: int
    kept: int
    figure: str
    next_step: str


def of_cells(cells: int, columns: Sequence[Column], rows: int, next_step: str) -> WorkingMemory:
    """Of a product that works on arrays of cells.

    Args:
        cells: Most of them.
        columns: Of its files.
        rows: Of its longest file.
        next_step: What helps.
    """
    return WorkingMemory(
        draw=_SAMPLERS + 160 * cells,
        derive=_SAMPLERS + 200 * cells,
        write=of_rows(rows, columns) + 100 * cells,
        kept=100 * cells,
        figure=f"{cells:,} cells",
        next_step=next_step,
    )


def of_rows(rows: int, columns: Sequence[Column]) -> int:
    """Bytes to write and check files of so many rows: a chunk of them, and the libraries."""
    values = sum(_VALUE + 2 * _text(column) for column in columns)
    listed = sum(column.size for column in columns if column.size <= CHUNK_ROWS)
    return _WRITERS + min(rows, CHUNK_ROWS) * (values + 4 * _VALUE) + 128 * listed


def _text(column: Column) -> int:
    """Bytes of the longest value of a column of text; few values are written as their codes."""
    listed = getattr(column, "categories", ())
    long = max((len(str(value).encode()) for value in listed), default=16)
    return long if column.size > _CODED else 0
