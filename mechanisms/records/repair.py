"""Impossible records made possible, before the swaps that never make one.

Values are exchanged with records that can take them, which keeps all one-way tables. Where no
record can, a value is replaced by the most frequent possible one, unless its column is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.errors import ConfigError
from mechanisms.records.impossible import Box, impossible_records
from mechanisms.records.swaps import moves_of
from mechanisms.records.target_table import Floats, Group

_ROUNDS, _TRIES = 30, 1 << 16


def make_possible(
    codes: NDArray[Any],
    boxes: Sequence[Box],
    one_way: Sequence[Floats],
    known: Sequence[Group],
    rng: np.random.Generator,
) -> None:
    """Change records in place until none lies in a box.

    Args:
        codes: unsigned[n, d].
        boxes: Structural zeros.
        one_way: Shares of every column's cells, 0 where a code is impossible by itself.
        known: Groups whose tables stay as they are.
        rng: Public.

    Raises:
        ConfigError: The known totals leave no possible records.
    """
    if not boxes:
        return
    tied = [group for group in known if len(group) == 2]
    touched = {column for box in boxes for column in box.columns}
    moves = [move for move in moves_of(codes.shape[1], tied) if touched & set(move[0])]
    for _ in range(_ROUNDS):
        bad = np.flatnonzero(impossible_records(codes, boxes))
        if not len(bad):
            return
        for moved, fixed in moves:
            _exchange(codes, bad, rng.integers(len(codes), size=len(bad)), moved, fixed, boxes)
            bad = bad[impossible_records(codes[bad], boxes)]
    fixed_columns = {column for group in known for column in group}
    for record in np.flatnonzero(impossible_records(codes, boxes)).tolist():
        if not _exchanged_with_any(codes, record, moves, boxes, rng):
            _replace(codes, record, boxes, one_way, fixed_columns)


def _exchange(
    codes: NDArray[Any],
    bad: NDArray[np.int64],
    partners: NDArray[np.int64],
    moved: Group,
    fixed: Group,
    boxes: Sequence[Box],
) -> None:
    """Exchange between pairs of records where both are possible afterwards."""
    both = np.stack([bad, partners])
    _, first = np.unique(both.T.ravel(), return_index=True)
    alone = np.zeros(both.size, dtype=np.bool_)
    alone[first] = True
    allowed = alone.reshape(-1, 2).all(axis=1) & (bad != partners)
    one, other = codes[bad].copy(), codes[partners].copy()
    for column in fixed:
        allowed &= one[:, column] == other[:, column]
    columns = list(moved)
    one[:, columns], other[:, columns] = other[:, columns].copy(), one[:, columns].copy()
    allowed &= ~impossible_records(one, boxes) & ~impossible_records(other, boxes)
    codes[bad[allowed]], codes[partners[allowed]] = one[allowed], other[allowed]


def _exchanged_with_any(
    codes: NDArray[Any],
    record: int,
    moves: Sequence[tuple[Group, Group]],
    boxes: Sequence[Box],
    rng: np.random.Generator,
) -> bool:
    n = len(codes)
    for moved, fixed in moves:
        start = int(rng.integers(n))
        for chunk in range(0, n, _TRIES):
            partners = (start + np.arange(chunk, min(chunk + _TRIES, n))) % n
            others = codes[partners].copy()
            ones = np.repeat(codes[record : record + 1], len(partners), axis=0)
            allowed = partners != record
            for column in fixed:
                allowed &= ones[:, column] == others[:, column]
            columns = list(moved)
            ones[:, columns], others[:, columns] = (
                others[:, columns].copy(),
                ones[:, columns].copy(),
            )
            allowed &= ~impossible_records(ones, boxes) & ~impossible_records(others, boxes)
            if allowed.any():
                place = int(np.argmax(allowed))
                codes[record], codes[partners[place]] = ones[place], others[place]
                return True
    return False


def _replace(
    codes: NDArray[Any],
    record: int,
    boxes: Sequence[Box],
    one_way: Sequence[Floats],
    fixed_columns: set[int],
) -> None:
    """Give one record values that leave its boxes, the most frequent such, column by column."""
    free = sorted({column for box in boxes for column in box.columns} - fixed_columns)
    for column in [*free, *free]:
        tried = np.repeat(codes[record : record + 1], len(one_way[column]), axis=0)
        tried[:, column] = np.arange(len(tried))
        held = sum(box.contains(tried).astype(np.int64) for box in boxes)
        shares = np.where(held == np.min(held), one_way[column], -1.0)
        codes[record] = tried[int(np.argmax(shares))]
        if np.min(held) == 0:
            return
    raise ConfigError(
        "The known totals and the structural zeros leave no possible records.",
        next_step="Leave out some of the known totals or of the zeros.",
    )
