"""Large arrays of integers in files of a run's private folder, of which some rows are in memory."""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.contingency_table import Numbers, in_memory
from statpress.tasks.source.guarding import new_file, write_all

IN_MEMORY = 2**20
"""Numbers up to which an array is held in memory."""


def bytes_on_disk(numbers: int, most: int | None = None) -> int:
    """Size of the file of an array; 0 for one that is held in memory."""
    return 8 * numbers if numbers > (most or IN_MEMORY) else 0


@dataclass(frozen=True)
class FileRoom:
    """Makes arrays of zeros, large ones as files.

    Args:
        folder: Of mode 0700.
        most: Numbers up to which an array is held in memory, by default ``IN_MEMORY``.
    """

    folder: Path
    most: int | None = None

    def __call__(self, shape: tuple[int, ...]) -> Numbers:
        """Zeros int64 of a shape.

        Raises:
            OSError: The disk is full, or fails.
        """
        if not bytes_on_disk(math.prod(shape), self.most):
            return in_memory(shape)
        path = self.folder / f"{uuid.uuid4().hex}.numbers"
        step = self.most or IN_MEMORY
        zeros = np.zeros(step, np.int64)
        with new_file(path) as file:  # whole, so that no later write finds the disk full
            for first in range(0, math.prod(shape), step):
                write_all(file, zeros[: math.prod(shape) - first].data.cast("B"))
        return FileNumbers(path, shape)


@dataclass(frozen=True)
class FileNumbers:
    """An array int64 in a file; slices of its first axis are read and written, in memory.

    Args:
        path: Of the file, of its owner only.
        shape: Of the array.
    """

    path: Path
    shape: tuple[int, ...]

    def __getitem__(self, rows: slice) -> NDArray[np.int64]:
        first, n, width = self._place(rows)
        found = np.fromfile(self.path, np.int64, n * width, offset=8 * first * width)
        return found.reshape(n, *self.shape[1:])

    def __setitem__(self, rows: slice, values: NDArray[Any]) -> None:
        first, n, width = self._place(rows)
        whole = np.ascontiguousarray(np.broadcast_to(values, (n, *self.shape[1:])), np.int64)
        with self.path.open("r+b", buffering=0) as file:
            file.seek(8 * first * width)
            write_all(file, whole.data.cast("B"))

    def _place(self, rows: slice) -> tuple[int, int, int]:
        first, last, step = rows.indices(self.shape[0])
        if step != 1:
            raise ValueError("rows are read and written one after the other")
        return first, max(last - first, 0), math.prod(self.shape[1:])
