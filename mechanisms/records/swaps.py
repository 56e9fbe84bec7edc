"""Records brought near to all target tables by swaps of values between two records.

A swap of one column's values between two records changes no one-way table. It is made whenever
the weighted squared distance from all targets falls, round by round, until a round gains little.
Where pairs are known exactly, a swap of one of their columns takes place only between records that
agree in the other, and all columns that are tied to each other may move together.

Long files are swapped in blocks, each in a thread of its own if there are several. A block sees its
share of every difference, G / B of G, and swaps only among its records, so that no block waits for
another. Since |sum g|^2 <= B sum |g|^2 (Cauchy and Schwarz), what lowers each block's distance
lowers that of the whole. There are as many blocks however many threads there are. The last rounds,
where differences are of a few records, see the whole.

Long files are screened (``column_kernel``) until a round gains little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.parallel.threads import in_threads
from mechanisms.records.column_kernel import compiled_column
from mechanisms.records.impossible import Box
from mechanisms.records.record_counts import tables_of
from mechanisms.records.swap_kernel import UNIT, compiled
from mechanisms.records.target_table import Floats, Group, Integers, TargetTable

LEAST_VISITS, PARTS = 1 << 15, 8
"""In long files a column gives way to the next after a part of the records: its first swaps gain
most, and what the others then move gives it new ones."""
BLOCKS, LEAST_BLOCK, MOST_BLOCK_CELLS = 4, 1 << 17, 1 << 22
"""Records and cells of a file that is swapped in blocks: each holds a copy of all differences."""
COARSE = 4 * BLOCKS
"""Differences, in records, below which a share of them is too coarse a view."""


@dataclass(frozen=True)
class Enough:
    """When to stop although a sweep still gains something.

    Attributes:
        gain: A sweep lowers the distance by less than this share of it.
        distance: The tables of weight 1 are within this squared distance, in squared records.
    """

    gain: float
    distance: float


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
        counted = tables_of(codes, {target.group: target.table.shape for target in targets})
        for target, start in zip(targets, offsets.tolist(), strict=False):
            wanted = np.rint(target.table * UNIT).astype(np.int64)
            gap = counted[target.group] * UNIT - wanted
            gaps[start : start + target.table.size] = gap.ravel()
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

    def move_of_column(self, column: Group) -> tuple[Any, ...]:
        """The same for the kernel of single columns."""
        _, strides, columns, rests, n_pairs, offsets, weights = self.move(column)
        short = max(0, 2 - columns.shape[1])
        columns, rests = (np.pad(each, ((0, 0), (0, short))) for each in (columns, rests))
        n_small = int(np.count_nonzero((rests[:, 2:] == 0).all(axis=1)))
        unsigned = (strides[:, 0], columns, rests)
        made = (np.ascontiguousarray(each, dtype=np.uint64) for each in unsigned)
        return *made, n_pairs, n_small, offsets.astype(np.uint64), weights


def _padded(lists: Sequence[Sequence[tuple[int, int]]]) -> tuple[Integers, Integers]:
    """Columns and strides int64[t, longest], padded with stride 0."""
    width = max((len(each) for each in lists), default=1)
    padded = [[*each, *[(0, 0)] * (width - len(each))] for each in lists]
    found = np.array(padded, dtype=np.int64).reshape(len(lists), width, 2)
    return np.ascontiguousarray(found[..., 0]), np.ascontiguousarray(found[..., 1])


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
    enough: Enough | None = None,
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
        enough: Stop sooner; for many records, whose sweeps take long.

    Returns:
        The number of rounds that were made: a sweep, or in long files a part of one.
    """
    n = len(codes)
    if n < 2 or not targets:
        return 0
    layout = _Layout.of(targets, codes)
    sweep = _Sweep.of(layout, moves_of(codes.shape[1], tied), boxes)
    weights = np.repeat(
        np.array([round(t.weight * 64) for t in targets], dtype=np.float64),
        [t.table.size for t in targets],
    )
    visits = min(n, max(LEAST_VISITS, n // PARTS))
    # Records that agree in a tied column may be too rare in a block.
    screened = n >= BLOCKS * LEAST_BLOCK
    divided = screened and len(weights) <= MOST_BLOCK_CELLS and not tied
    coarse = (COARSE * UNIT) ** 2 * weights.sum()
    rounds = -(-sweeps * n // visits)
    before = _distance(weights, layout.gaps)
    for made in range(rounds):
        if before <= floor * 64 * UNIT**2:
            return made
        in_blocks = divided and before > coarse
        if in_blocks:
            _swap_blocks(sweep, codes, layout.gaps, visits, rng)
        else:
            sweep(codes, layout.gaps, visits, rng, screened=screened)
        after = _distance(weights, layout.gaps)
        gain = least_gain
        if enough and _distance(weights * (weights == 64), layout.gaps) <= (
            enough.distance * 64 * UNIT**2
        ):
            gain = max(gain, enough.gain)
        little, before = before - after <= gain * before * (visits / n), after
        if little and not in_blocks and not screened:
            return made + 1
        screened = screened and (in_blocks or not little)
        divided = divided and not little  # what no block sees is left to the whole
    return rounds


@dataclass(frozen=True, eq=False)
class _Sweep:
    """The part of a round that visits some of the records once for each move."""

    moves: Sequence[tuple[Group, Group, tuple[Any, ...]]]
    boxes: Sequence[Box] = ()

    @classmethod
    def of(
        cls, layout: _Layout, moves: Sequence[tuple[Group, Group]], boxes: Sequence[Box] = ()
    ) -> _Sweep:
        empty = cls((), boxes)
        made = []
        for moved, fixed in moves:
            of_column = empty.is_of_column(moved, fixed)
            tables = layout.move_of_column(moved) if of_column else layout.move(moved)
            made.append((moved, fixed, tables))
        return cls(made, boxes)

    def is_of_column(self, moved: Group, fixed: Group) -> bool:
        """Whether any two records may swap, so that the quicker kernel serves."""
        return len(moved) == 1 and not fixed and not self.boxes

    def __call__(
        self,
        codes: NDArray[Any],
        gaps: Integers,
        visits: int,
        rng: np.random.Generator,
        *,
        screened: bool = False,
    ) -> None:
        """Swap; codes and gaps are changed in place. Only moves of single columns are screened."""
        n, dtype = len(codes), codes.dtype.name
        first = int(rng.integers(n)) if visits < n else 0
        for moved, fixed, tables in self.moves:
            if not len(tables[-1]):
                continue
            shift = int(rng.integers(1, n))
            if self.is_of_column(moved, fixed):
                compiled_column(dtype)(codes, first, visits, shift, *moved, *tables, gaps, screened)
                continue
            order = np.arange(n, dtype=np.int32)
            if fixed:
                order = _by_columns(codes, fixed, rng)
                shift = int(rng.integers(1, 2 + min(n - 2, 40)))
            compiled(dtype)(
                codes,
                order,
                first,
                visits,
                shift,
                np.array(moved, dtype=np.int64),
                np.array(fixed, dtype=np.int64),
                *tables,
                gaps,
                *_patterns(self.boxes),
                0,
            )


def _swap_blocks(
    sweep: _Sweep, codes: NDArray[Any], gaps: Integers, visits: int, rng: np.random.Generator
) -> None:
    """A round in blocks of records, each with its share of all differences."""
    seeds = rng.integers(2**63, size=(BLOCKS, 2))
    ends = np.linspace(0, len(codes), BLOCKS + 1).astype(int).tolist()
    share = gaps // BLOCKS

    def swapped(block: int) -> Integers:
        own = share.copy()
        part = codes[ends[block] : ends[block + 1]]
        sweep(part, own, visits // BLOCKS, np.random.default_rng(seeds[block]), screened=True)
        own -= share
        return own

    for moved in in_threads(swapped, range(BLOCKS)):
        gaps += moved


def _distance(weights: Floats, gaps: Integers) -> float:
    """The weighted squared distance, 64 * UNIT**2 times over."""
    found = gaps.astype(np.float64)
    found *= found
    found *= weights
    return float(found.sum())


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
    order = np.arange(len(codes), dtype=np.int32)
    rng.shuffle(order)
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
