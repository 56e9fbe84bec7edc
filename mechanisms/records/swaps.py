"""Records brought near to all target tables by swaps of values between two records.

A swap of one column's values between two records changes no one-way table. It is made whenever
the weighted squared distance from all targets falls, round by round, until a round gains little.
Where pairs are known exactly, a swap of one of their columns takes place only between records that
agree in the other, and all columns that are tied to each other may move together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.records.impossible import Box
from mechanisms.records.swap_kernel import UNIT, compiled
from mechanisms.records.target_table import Group, Integers, TargetTable

_CHUNK = 1 << 20
LEAST_VISITS, PARTS = 1 << 15, 8
"""In long files a column gives way to the next after a part of the records: its first swaps gain
most, and what the others then move gives it new ones."""


@dataclass(frozen=True, eq=False)
class _Layout:
    """All target tables end to end."""

    targets: Sequence[TargetTable]
    offsets: Integers
    gaps: Integers

    @classmethod
    def of(cls, targets: Sequence[TargetTable], codes: NDArray[Any]) -> _Layout:
        offsets = np.cumsum([0] + [target.table.size for target in targets])
        gaps = np.empty(offsets[-1], dtype=np.int64)
        for target, start in zip(targets, offsets.tolist(), strict=False):
            wanted = np.rint(target.table.ravel() * UNIT).astype(np.int64)
            found = counts_of(codes, target.group, target.table.shape)
            gaps[start : start + target.table.size] = found * UNIT - wanted
        return cls(targets, offsets[:-1].astype(np.int64), gaps)

    def move(self, columns: Group) -> tuple[Any, ...]:
        """The arguments of the kernel for tables that a move of these columns changes."""
        chosen = [
            i
            for i, t in enumerate(self.targets)
            if 0 < len(set(columns) & set(t.group)) < len(t.group)
        ]
        chosen.sort(key=lambda i: len(self.targets[i].group))
        parts, rests = [], []
        for i in chosen:
            target = self.targets[i]
            strides = [math.prod(target.table.shape[p + 1 :]) for p in range(len(target.group))]
            both = list(zip(target.group, strides, strict=True))
            parts.append([pair for pair in both if pair[0] in columns])
            rests.append([pair for pair in both if pair[0] not in columns])
        weights = [round(self.targets[i].weight * 64) for i in chosen]
        return (
            *_padded(parts),
            *_padded(rests),
            sum(len(self.targets[i].group) == 2 for i in chosen),
            self.offsets[chosen],
            np.array(weights, dtype=np.int64),
        )


def _padded(lists: Sequence[Sequence[tuple[int, int]]]) -> tuple[Integers, Integers]:
    """Columns and strides int64[t, longest], padded with stride 0."""
    width = max((len(each) for each in lists), default=1)
    padded = [[*each, *[(0, 0)] * (width - len(each))] for each in lists]
    found = np.array(padded, dtype=np.int64).reshape(len(lists), width, 2)
    return np.ascontiguousarray(found[..., 0]), np.ascontiguousarray(found[..., 1])


def counts_of(codes: NDArray[Any], group: Group, shape: tuple[int, ...]) -> Integers:
    """int64 of the given shape, flat: the records unsigned[n, d] by their codes of a group."""
    size = math.prod(shape)
    found = np.zeros(size, dtype=np.int64)
    for start in range(0, len(codes), _CHUNK):
        part = codes[start : start + _CHUNK]
        cells = np.zeros(len(part), dtype=np.int64)
        for column, length in zip(group, shape, strict=True):
            cells *= length
            cells += part[:, column]
        found += np.bincount(cells, minlength=size)
    return found


def swap_towards(
    codes: NDArray[Any],
    targets: Sequence[TargetTable],
    rng: np.random.Generator,
    *,
    boxes: Sequence[Box] = (),
    tied: Sequence[Group] = (),
    sweeps: int = 15,
    least_gain: float = 0.005,
    floor: float = 0.0,
) -> int:
    """Swap in place; one-way tables and tied pairs stay as they are.

    Args:
        codes: unsigned[n, d], C-contiguous.
        targets: Of two columns or more.
        rng: Public.
        boxes: Impossible records; none is made.
        tied: Pairs whose tables stay as they are.
        sweeps: How often every record is visited at most.
        least_gain: Stop when a sweep, at the pace of the last round, would lower the distance by
            less than this share of it.
        floor: Stop at this weighted squared distance, in squared records.

    Returns:
        The number of rounds that were made: a sweep, or in long files a part of one.
    """
    n = len(codes)
    if n < 2 or not targets:
        return 0
    kernel = compiled(codes.dtype.name)
    layout = _Layout.of(targets, codes)
    moves = moves_of(codes.shape[1], tied)
    arguments = [layout.move(moved) for moved, _ in moves]
    patterns = _patterns(boxes)
    plain = np.arange(n, dtype=np.int32)
    weights = np.repeat(
        np.array([round(t.weight * 64) for t in targets], dtype=np.float64),
        [t.table.size for t in targets],
    )
    visits = min(n, max(LEAST_VISITS, n // PARTS))
    rounds = -(-sweeps * n // visits)
    for made in range(rounds):
        before = float((weights * layout.gaps.astype(np.float64) ** 2).sum())
        if before <= floor * 64 * UNIT**2:
            return made
        gained, first = 0, int(rng.integers(n)) if visits < n else 0
        for (moved, fixed), tables in zip(moves, arguments, strict=True):
            if not len(tables[-1]):
                continue
            order, shift = plain, int(rng.integers(1, n))
            if fixed:
                order, shift = (
                    _by_columns(codes, fixed, rng),
                    int(rng.integers(1, 2 + min(n - 2, 40))),
                )
            gain, _ = kernel(
                codes,
                order,
                first,
                visits,
                shift,
                np.array(moved, dtype=np.int64),
                np.array(fixed, dtype=np.int64),
                *tables,
                layout.gaps,
                *patterns,
                0,
            )
            gained += gain
        if 2 * UNIT * gained <= least_gain * before * (visits / n):
            return made + 1
    return rounds


def moves_of(n_columns: int, tied: Sequence[Group]) -> list[tuple[Group, Group]]:
    """Columns that move together, and those in which the two records must agree."""
    partners: dict[int, set[int]] = {column: set() for column in range(n_columns)}
    for a, b in tied:
        partners[a].add(b)
        partners[b].add(a)
    found: list[tuple[Group, Group]] = [
        ((column,), tuple(sorted(partners[column]))) for column in range(n_columns)
    ]
    seen: set[int] = set()
    for column in range(n_columns):
        if partners[column] and column not in seen:
            together = [column]
            for each in together:
                together += sorted(partners[each] - set(together))
            seen.update(together)
            found.append((tuple(sorted(together)), ()))
    return found


def _by_columns(codes: NDArray[Any], columns: Group, rng: np.random.Generator) -> NDArray[np.int32]:
    """int32[n]: records sorted by some columns, in random order where they agree."""
    order = rng.permutation(len(codes)).astype(np.int32)
    for column in columns:
        order = order[np.argsort(codes[order, column], kind="stable")]
    return order


def _patterns(boxes: Sequence[Box]) -> tuple[Integers, Integers, NDArray[np.bool_]]:
    """The boxes as the kernel takes them."""
    starts = np.cumsum([0] + [len(box.columns) for box in boxes]).astype(np.int64)
    columns = np.array([column for box in boxes for column in box.columns], dtype=np.int64)
    masks = [mask for box in boxes for mask in box.inside]
    inside = np.zeros((len(masks), max((len(mask) for mask in masks), default=1)), dtype=np.bool_)
    for row, mask in zip(inside, masks, strict=True):
        row[: len(mask)] = mask
    return starts, columns, inside
