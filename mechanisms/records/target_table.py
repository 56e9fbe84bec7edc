"""A table of a group of columns that records should have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Group = tuple[int, ...]
"""Positions of columns, ascending."""
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TargetTable:
    """A table that the records should have.

    Attributes:
        group: Positions of its columns.
        table: float64 of their shape, in published records.
        weight: Of its squared distance, a multiple of 1/64.
    """

    group: Group
    table: Floats
    weight: float
