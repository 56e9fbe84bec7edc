"""Structural zeros as boxes of codes by column position, for tables and for records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.domain import Domain
from mechanisms.records.target_table import Group

Booleans = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Box:
    """Impossible records: those whose codes lie in all of the given sets at once.

    Attributes:
        columns: Positions, ascending.
        inside: For each column bool[k], its codes in the box.
    """

    columns: Group
    inside: tuple[Booleans, ...]

    def contains(self, codes: NDArray[Any]) -> Booleans:
        """bool[n]: which records unsigned[n, d] lie in the box."""
        found = np.ones(len(codes), dtype=np.bool_)
        for column, inside in zip(self.columns, self.inside, strict=True):
            found &= inside[codes[:, column]]
        return found


def boxes_of(domain: Domain) -> tuple[Box, ...]:
    """The declared structural zeros."""
    names = [column.name for column in domain.columns]
    found = []
    for zero in domain.zeros:
        sets = sorted((names.index(name), runs) for name, runs in zero.sets)
        masks = []
        for column, runs in sets:
            inside = np.zeros(domain.columns[column].size, dtype=np.bool_)
            for first, last in runs:
                inside[first : last + 1] = True
            masks.append(inside)
        found.append(Box(tuple(column for column, _ in sets), tuple(masks)))
    return tuple(found)


def possible_cells(group: Group, sizes: Sequence[int], boxes: Sequence[Box]) -> Booleans:
    """Bool of the group's shape: the cells that no box of its columns excludes."""
    found = np.ones([sizes[column] for column in group], dtype=np.bool_)
    for box in boxes:
        if set(box.columns) <= set(group):
            inside = np.ones(found.shape, dtype=np.bool_)
            for column, mask in zip(box.columns, box.inside, strict=True):
                shape = [1] * len(group)
                shape[group.index(column)] = -1
                inside &= mask.reshape(shape)
            found &= ~inside
    return found


def impossible_records(codes: NDArray[Any], boxes: Sequence[Box]) -> Booleans:
    """bool[n]: which records unsigned[n, d] lie in a box."""
    found = np.zeros(len(codes), dtype=np.bool_)
    for box in boxes:
        found |= box.contains(codes)
    return found
