"""Records brought near to all target tables by compiled swaps of values between two records.

**A sweep** visits records once. A move exchanges the values of some columns between two records. Of
a table on other columns as well, a record's cell is the sum of a part from the columns that move
and a part from those that stay, so a move changes at most four cells of each table, and the change
of the weighted squared distance from the targets is known from them. All arithmetic is on 64-bit
integers: the result is the same on every machine. Compilation takes about a second, once
(mechanisms.parallel).

Where any two records may swap the values of one column, partners are found and not drawn. For the
record at hand the change of the measured tables is known for every code that it might take. It
swaps with the record that waits for the other side of the best such exchange, if all tables
together then get nearer; else it waits itself, for every code, where it wishes so more than the one
that waited. A visit costs as many steps as the column has codes for each table, and some hundred
times as many swaps are found as between records that meet by chance once few are left: census
income, 41 columns, is nearer after 4 such sweeps than after 60 of the others. Columns of more codes
than ``MOST_MATCHED`` and columns of tied pairs meet by chance.

**Rounds.** A swap of one column's values between two records changes no one-way table. It is made
whenever the weighted squared distance from all targets falls, round by round, until a round gains
little. Where pairs are known exactly, a swap of one of their columns takes place only between
records that agree in the other, and all columns that are tied to each other may move together.

Long files are swapped in blocks, each in a thread of its own if there are several. A block sees its
share of every difference, G / B of G, and swaps only among its records, so that no block waits for
another. Since |sum g|^2 <= B sum |g|^2 (Cauchy and Schwarz), what lowers each block's distance
lowers that of the whole. There are as many blocks however many threads there are. The last rounds,
where differences are of a few records, see the whole.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.marginals.target_tables import (
    Box,
    Floats,
    Group,
    Integers,
    TargetTable,
    tables_of,
)
from statpress.mechanisms.parallel import compiled_kernel, in_threads

UNIT = 64
"""Differences from a target are multiples of 1/64 of a record."""


def _sweep(  # type: ignore[no-untyped-def] # noqa: ANN202
    codes,  # noqa: ANN001  unsigned[n, d]: the records, changed in place
    order,  # noqa: ANN001  int32[n]: the order in which records meet
    first,  # noqa: ANN001  int: the place in that order to begin at
    visits,  # noqa: ANN001  int: how many places to visit from there, at most n
    shift,  # noqa: ANN001  int: how far apart in that order the records of a pair are
    moved,  # noqa: ANN001  int64[m]: columns whose values are exchanged
    fixed,  # noqa: ANN001  int64[f]: columns that must be equal in both records
    part_columns,  # noqa: ANN001  int64[t, p]: of each table, the columns that move
    part_strides,  # noqa: ANN001  int64[t, p]: their strides, 0 for padding
    rest_columns,  # noqa: ANN001  int64[t, r]: of each table, the columns that stay
    rest_strides,  # noqa: ANN001  int64[t, r]
    n_pairs,  # noqa: ANN001  int: tables of one column that moves and one that stays come first
    offsets,  # noqa: ANN001  int64[t]: where each table begins
    weights,  # noqa: ANN001  int64[t]
    gaps,  # noqa: ANN001  int64[cells]: current count less target, in units of 1/64; changed
    pattern_starts,  # noqa: ANN001  int64[z + 1]: of each impossible box, its columns
    pattern_columns,  # noqa: ANN001  int64[s]
    inside,  # noqa: ANN001  bool[s, most codes]: whether a code lies in the box
    tolerance,  # noqa: ANN001  int: most increase of the distance that is accepted
):
    n = order.shape[0]
    n_tables = offsets.shape[0]
    ones = np.empty(n_tables, np.int64)
    others = np.empty(n_tables, np.int64)
    one_parts = np.empty(n_tables, np.int64)
    other_parts = np.empty(n_tables, np.int64)
    gain = np.int64(0)
    accepted = np.int64(0)
    for step in range(visits):
        place = first + step
        if place >= n:
            place -= n
        second = place + shift
        if second >= n:
            second -= n
        i = order[place]
        j = order[second]
        same = True
        for m in moved:
            if codes[i, m] != codes[j, m]:
                same = False
        if same:
            continue
        for f in fixed:
            if codes[i, f] != codes[j, f]:
                same = True
        if same:
            continue
        change = np.int64(0)
        u, v = np.uintp(i), np.uintp(j)  # unsigned: no index is tried for being negative
        for t in range(n_pairs):
            c = np.uintp(rest_columns[t, 0])
            a = np.int64(codes[u, c])
            b = np.int64(codes[v, c])
            one = offsets[t] + a * rest_strides[t, 0]
            other = offsets[t] + b * rest_strides[t, 0]
            m = np.uintp(part_columns[t, 0])
            p = np.int64(codes[u, m]) * part_strides[t, 0]
            q = np.int64(codes[v, m]) * part_strides[t, 0]
            ones[t] = one
            others[t] = other
            one_parts[t] = p
            other_parts[t] = q
            slope = (
                gaps[np.uintp(one + q)]
                - gaps[np.uintp(one + p)]
                + gaps[np.uintp(other + p)]
                - gaps[np.uintp(other + q)]
            )
            change += weights[t] * (slope + 2 * UNIT) * (a != b and p != q)
        for t in range(n_pairs, n_tables):
            one = offsets[t]
            other = one
            for r in range(rest_columns.shape[1]):
                c = np.uintp(rest_columns[t, r])
                one += codes[u, c] * rest_strides[t, r]
                other += codes[v, c] * rest_strides[t, r]
            p = np.int64(0)
            q = np.int64(0)
            for r in range(part_columns.shape[1]):
                c = np.uintp(part_columns[t, r])
                p += codes[u, c] * part_strides[t, r]
                q += codes[v, c] * part_strides[t, r]
            ones[t] = one
            others[t] = other
            one_parts[t] = p
            other_parts[t] = q
            slope = (
                gaps[np.uintp(one + q)]
                - gaps[np.uintp(one + p)]
                + gaps[np.uintp(other + p)]
                - gaps[np.uintp(other + q)]
            )
            change += weights[t] * (slope + 2 * UNIT) * (one != other and p != q)
        if change >= tolerance:
            continue
        if pattern_columns.shape[0] > 0:
            for m in moved:
                kept = codes[i, m]
                codes[i, m] = codes[j, m]
                codes[j, m] = kept
            impossible = False
            for z in range(pattern_starts.shape[0] - 1):
                i_inside = True
                j_inside = True
                for s in range(pattern_starts[z], pattern_starts[z + 1]):
                    c = pattern_columns[s]
                    i_inside = i_inside and inside[s, codes[i, c]]
                    j_inside = j_inside and inside[s, codes[j, c]]
                if i_inside or j_inside:
                    impossible = True
            if impossible:
                for m in moved:
                    kept = codes[i, m]
                    codes[i, m] = codes[j, m]
                    codes[j, m] = kept
                continue
        else:
            for m in moved:
                kept = codes[i, m]
                codes[i, m] = codes[j, m]
                codes[j, m] = kept
        gain -= change
        accepted += 1
        for t in range(n_tables):
            a = ones[t]
            b = others[t]
            p = one_parts[t]
            q = other_parts[t]
            if a != b and p != q:
                gaps[a + p] -= UNIT
                gaps[a + q] += UNIT
                gaps[b + q] -= UNIT
                gaps[b + p] += UNIT
    return gain, accepted


@functools.cache
def compiled(dtype: str) -> Callable[..., tuple[int, int]]:
    """The sweep for records of an unsigned dtype."""
    import numba
    from numba import types as nt

    vector, matrix = nt.int64[::1], nt.int64[:, ::1]
    signature = nt.UniTuple(nt.int64, 2)(  # type: ignore[no-untyped-call]
        numba.from_dtype(np.dtype(dtype))[:, ::1],
        nt.int32[::1],
        *(nt.int64, nt.int64, nt.int64),
        *(vector, vector, matrix, matrix, matrix, matrix, nt.int64, vector, vector, vector),
        *(vector, vector, nt.boolean[:, ::1]),
        nt.int64,
    )
    sweep: Callable[..., tuple[int, int]] = compiled_kernel(_sweep, signature)
    return sweep


def _sweep_column(  # type: ignore[no-untyped-def] # noqa: ANN202
    codes,  # noqa: ANN001  unsigned[n, d]: the records, changed in place
    first,  # noqa: ANN001  int: the record to begin at
    visits,  # noqa: ANN001  int: how many records to visit from there, at most n
    column,  # noqa: ANN001  int: whose values are exchanged
    size,  # noqa: ANN001  int: how many codes the column has
    part_strides,  # noqa: ANN001  uint64[t]: of each table, the column's stride
    rest_columns,  # noqa: ANN001  uint64[t, r]: of each table, its other columns
    rest_strides,  # noqa: ANN001  uint64[t, r]: their strides without it, 0 for padding
    n_rests,  # noqa: ANN001  uint64[t]: cells of each table without it
    n_pairs,  # noqa: ANN001  int: tables of one other column come first,
    n_judged,  # noqa: ANN001  int: all by which partners are found next
    offsets,  # noqa: ANN001  uint64[t]: where each table begins
    weights,  # noqa: ANN001  int64[t]
    gaps,  # noqa: ANN001  int64[cells]: current count less target, in units of 1/64; changed
    pattern_starts,  # noqa: ANN001  int64[z + 1]: of each impossible box, its columns
    pattern_columns,  # noqa: ANN001  int64[s]
    inside,  # noqa: ANN001  bool[s, most codes]: whether a code lies in the box
):
    # Indices are unsigned: none is tried for being negative.
    n = codes.shape[0]
    n_tables = offsets.shape[0]
    moved = np.uintp(column)
    width = np.uintp((size + 3) // 4 * 4)
    # The tables one after the other, weighted, with the codes of the column next to each other: a
    # visit adds up a row of each, four codes at a time.
    starts = np.zeros(n_tables + 1, np.uintp)
    for t in range(n_tables):
        starts[t + 1] = starts[t] + n_rests[t] * width
    rows = np.zeros(starts[n_tables], np.int64)
    firsts = rest_columns[:, 0].copy()
    first_steps = rest_strides[:, 0] * width
    seconds = rest_columns[:, -1].copy()  # of triples; of larger ones the last
    second_steps = rest_strides[:, -1] * width
    judged = np.int64(0)
    for t in range(n_tables):
        if t < n_judged:
            judged += weights[t]
        stride = part_strides[t]
        for row in range(n_rests[t]):
            cell = offsets[t] + row // stride * stride * np.uintp(size) + row % stride
            for y in range(size):
                own = starts[t] + row * width + np.uintp(y)
                rows[own] = weights[t] * gaps[cell + np.uintp(y) * stride]
    waiting = np.full((size, size), -1, np.int64)  # by its code and the wanted one: a record,
    wishes = np.zeros((size, size), np.int64)  # and by how much its own move would change
    change_to = np.empty(width, np.int64)
    one_row = np.empty(codes.shape[1], np.uintp)
    other_row = np.empty(codes.shape[1], np.uintp)
    ones = np.empty(n_tables, np.uintp)
    others = np.empty(n_tables, np.uintp)
    gain = np.int64(0)
    accepted = np.int64(0)
    for step in range(visits):
        place = first + step
        if place >= n:
            place -= n
        i = np.uintp(place)
        for c in range(codes.shape[1]):
            one_row[c] = codes[i, c]
        x = one_row[moved]
        for t in range(n_pairs):
            ones[t] = starts[t] + one_row[firsts[t]] * first_steps[t]
        for t in range(n_pairs, n_judged):
            one = starts[t] + one_row[firsts[t]] * first_steps[t]
            ones[t] = one + one_row[seconds[t]] * second_steps[t]
        if rest_columns.shape[1] > 2:
            for t in range(n_pairs, n_judged):
                for r in range(1, rest_columns.shape[1] - 1):
                    ones[t] += one_row[rest_columns[t, r]] * rest_strides[t, r] * width
        for four in range(np.uintp(0), width, np.uintp(4)):
            sum_0 = np.int64(0)
            sum_1 = np.int64(0)
            sum_2 = np.int64(0)
            sum_3 = np.int64(0)
            for t in range(n_judged):
                one = ones[t] + four
                sum_0 += rows[one]
                sum_1 += rows[one + np.uintp(1)]
                sum_2 += rows[one + np.uintp(2)]
                sum_3 += rows[one + np.uintp(3)]
            change_to[four] = sum_0
            change_to[four + np.uintp(1)] = sum_1
            change_to[four + np.uintp(2)] = sum_2
            change_to[four + np.uintp(3)] = sum_3
        left = change_to[x] - judged * UNIT
        for y in range(size):
            change_to[y] -= left
        best = np.int64(0)
        wanted = -1
        for y in range(size):
            if waiting[y, x] >= 0 and change_to[y] + wishes[y, x] < best:
                best = change_to[y] + wishes[y, x]
                wanted = y
        swapped = False
        if wanted >= 0:
            j = np.uintp(waiting[wanted, x])
            waiting[wanted, x] = -1
            if j != i and codes[j, moved] == wanted:
                taken = np.uintp(wanted)
                for c in range(codes.shape[1]):
                    other_row[c] = codes[j, c]
                change = np.int64(0)
                for t in range(n_tables):
                    rest = other_row[rest_columns[t, 0]] * rest_strides[t, 0]
                    if t >= n_pairs:
                        for r in range(1, rest_columns.shape[1]):
                            rest += other_row[rest_columns[t, r]] * rest_strides[t, r]
                    other = starts[t] + rest * width
                    if t >= n_judged:
                        rest = np.uintp(0)
                        for r in range(rest_columns.shape[1]):
                            rest += one_row[rest_columns[t, r]] * rest_strides[t, r]
                        ones[t] = starts[t] + rest * width
                    one = ones[t]
                    others[t] = other
                    slope = (
                        rows[one + taken] - rows[one + x] + rows[other + x] - rows[other + taken]
                    )
                    change += (slope + 2 * UNIT * weights[t]) * (one != other)
                swapped = bool(change < 0)
                if swapped and pattern_columns.shape[0] > 0:
                    one_row[moved] = taken
                    other_row[moved] = x
                    for z in range(pattern_starts.shape[0] - 1):
                        one_inside = True
                        other_inside = True
                        for s in range(pattern_starts[z], pattern_starts[z + 1]):
                            one_inside = one_inside and inside[s, one_row[pattern_columns[s]]]
                            other_inside = other_inside and inside[s, other_row[pattern_columns[s]]]
                        if one_inside or other_inside:
                            swapped = False
                if swapped:
                    codes[i, moved] = wanted
                    codes[j, moved] = x
                    gain -= change
                    accepted += 1
                    for t in range(n_tables):
                        one = ones[t]
                        other = others[t]
                        unit = UNIT * weights[t]
                        if one != other:
                            rows[one + x] -= unit
                            rows[one + taken] += unit
                            rows[other + taken] -= unit
                            rows[other + x] += unit
        if not swapped:
            for y in range(size):
                if y != x and (waiting[x, y] < 0 or change_to[y] < wishes[x, y]):
                    waiting[x, y] = place
                    wishes[x, y] = change_to[y]
    for t in range(n_tables):
        stride = part_strides[t]
        for row in range(n_rests[t]):
            cell = offsets[t] + row // stride * stride * np.uintp(size) + row % stride
            for y in range(size):
                own = starts[t] + row * width + np.uintp(y)
                if rows[own] != weights[t] * gaps[cell + np.uintp(y) * stride]:
                    gaps[cell + np.uintp(y) * stride] = rows[own] // weights[t]
    return gain, accepted


@functools.cache
def compiled_column(dtype: str) -> Callable[..., tuple[int, int]]:
    """The sweep of one column for records of an unsigned dtype."""
    import numba
    from numba import types as nt

    vector, matrix = nt.uint64[::1], nt.uint64[:, ::1]
    signature = nt.UniTuple(nt.int64, 2)(  # type: ignore[no-untyped-call]
        numba.from_dtype(np.dtype(dtype))[:, ::1],
        *(nt.int64, nt.int64, nt.int64, nt.int64),
        *(vector, matrix, matrix, vector, nt.int64, nt.int64),
        *(vector, nt.int64[::1], nt.int64[::1]),
        *(nt.int64[::1], nt.int64[::1], nt.boolean[:, ::1]),
    )
    sweep: Callable[..., tuple[int, int]] = compiled_kernel(_sweep_column, signature)
    return sweep


MOST_MATCHED = 256
"""Codes of a column whose records wait for a partner by their code and the one they want."""


LEAST_VISITS, PARTS, PARTS_IN_TURN = 1 << 15, 8, 32
"""In long files a column gives way to the next after a part of the records: its first swaps gain
most, and what the others then move gives it new ones."""
BLOCKS, LEAST_BLOCK, MOST_BLOCK_CELLS = 4, 1 << 17, 1 << 22
"""Records and cells of a file that is swapped in blocks: each holds a copy of all differences."""
COARSE = 4 * BLOCKS
"""Differences, in records, below which a share of them is too coarse a view."""


@dataclass(frozen=True, eq=False)
class _Layout:
    """All target tables end to end."""

    targets: Sequence[TargetTable]
    offsets: Integers
    gaps: Integers

    @classmethod
    def of(
        cls,
        targets: Sequence[TargetTable],
        codes: NDArray[Any],
        counts: Mapping[Group, Integers] | None = None,
    ) -> _Layout:
        """Of records whose tables are counted, but for those that are known."""
        known = counts or {}
        offsets = np.cumsum([0] + [target.table.size for target in targets])
        gaps = np.empty(offsets[-1], dtype=np.int64)
        counted = dict(known)
        counted |= tables_of(
            codes,
            {g: t.table.shape for t in targets for g in t.groups if g not in known},
        )
        for target, start in zip(targets, offsets.tolist(), strict=False):
            count = functools.reduce(np.add, [counted[group] for group in target.groups])
            gap = count * UNIT - _in_units(target.table)
            gaps[start : start + target.table.size] = gap.ravel()
        return cls(targets, offsets[:-1].astype(np.int64), gaps)

    def counts(self) -> dict[Group, Integers]:
        """The tables that the records have by now."""
        parts = np.split(self.gaps, self.offsets[1:])
        return {
            target.group: (part.reshape(target.table.shape) + _in_units(target.table)) // UNIT
            for target, part in zip(self.targets, parts, strict=True)
            if not target.also
        }

    def move(self, columns: Group) -> tuple[Any, ...]:
        """The arguments of the kernel for tables that a move of these columns changes."""
        changed = [
            (i, group)
            for i, t in enumerate(self.targets)
            for group in t.groups
            if 0 < len(set(columns) & set(group)) < len(group)
        ]
        changed.sort(key=lambda each: (not _is_judged(self.targets[each[0]]), len(each[1])))
        chosen = [i for i, _ in changed]
        parts, rests = [], []
        for i, group in changed:
            target = self.targets[i]
            strides = [math.prod(target.table.shape[p + 1 :]) for p in range(len(group))]
            both = list(zip(group, strides, strict=True))
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
        """The arguments of the kernel for single columns."""
        having = [(t, group) for t in self.targets for group in t.groups if column[0] in group]
        size = having[0][0].table.shape[having[0][1].index(column[0])] if having else 0
        _, strides, columns, rests, n_pairs, offsets, weights = self.move(column)
        n_judged = sum(_is_judged(target) for target, _ in having)
        rests = np.where(rests > strides[:, :1], rests // max(size, 1), rests)
        ends = np.append(self.offsets[1:], len(self.gaps))
        n_rests = (ends[np.searchsorted(self.offsets, offsets)] - offsets) // max(size, 1)
        unsigned = (strides[:, 0], columns, rests, n_rests)
        arrays = (np.ascontiguousarray(values, dtype=np.uint64) for values in unsigned)
        return size, *arrays, n_pairs, n_judged, offsets.astype(np.uint64), weights


def _in_units(table: Floats) -> Integers:
    return np.rint(table * UNIT).astype(np.int64)


def _is_judged(target: TargetTable) -> bool:
    """Whether partners are found by this table: a pair, or a larger one that was measured.

    Others only follow from the pairs; they see that no swap is made that they speak against.
    """
    return len(target.group) == 2 or target.weight >= 1


def _padded(lists: Sequence[Sequence[tuple[int, int]]]) -> tuple[Integers, Integers]:
    """Columns and strides int64[t, longest], padded with stride 0."""
    width = max((len(pairs) for pairs in lists), default=1)
    padded = [[*pairs, *[(0, 0)] * (width - len(pairs))] for pairs in lists]
    both = np.array(padded, dtype=np.int64).reshape(len(lists), width, 2)
    return np.ascontiguousarray(both[..., 0]), np.ascontiguousarray(both[..., 1])


def swap_towards(
    codes: NDArray[Any],
    targets: Sequence[TargetTable],
    rng: np.random.Generator,
    *,
    boxes: Sequence[Box] = (),
    tied: Sequence[Group] = (),
    together: Sequence[Group] = (),
    sweeps: int = 15,
    least_gain: float = 0.05,
    floor: float = 0.0,
    rest: float = 0.0,
    counts: dict[Group, Integers] | None = None,
    columns: Collection[int] | None = None,
    in_turn: bool = False,
    least_visits: int = LEAST_VISITS,
    least_block: int = LEAST_BLOCK,
) -> int:
    """Swap in place; one-way tables and tied pairs stay as they are.

    Args:
        codes: unsigned[n, d], C-contiguous.
        targets: Of two columns or more. Tables of several places hold where no more than one of
            their groups has columns that move at once.
        rng: Public.
        boxes: Impossible records; none is made.
        tied: Pairs whose tables stay as they are.
        together: Columns that also move as one, such as those of a person.
        sweeps: How often every record is visited at most.
        least_gain: Stop when a sweep, at the pace of the last round, would lower the distance by
            less than this share of it.
        floor: Stop at this weighted squared distance, in squared records.
        rest: Stop also at this share of what it was.
        counts: Tables of the records as far as they are known; afterwards those of all targets.
        columns: What moves, with the columns that are tied to it; by default all.
        in_turn: Whether a round goes on where the one before ended; else it begins anywhere.
        least_visits: Records that a round visits at least, of as many as there are.
        least_block: Records of a block, at least: files of fewer are swapped as a whole.

    Returns:
        The number of rounds that were made: a sweep, or in long files a part of one.
    """
    n = len(codes)
    if n < 2 or not targets:
        return 0
    layout = _Layout.of(targets, codes, counts)
    moves = [*moves_of(codes.shape[1], tied), *((group, ()) for group in together)]
    if columns is not None:
        moves = [(moved, fixed) for moved, fixed in moves if set(moved) & set(columns)]
    sweep = _Sweep.of(layout, moves, boxes)
    weights = np.repeat(
        np.array([round(t.weight * 64) for t in targets], dtype=np.float64),
        [t.table.size for t in targets],
    )
    visits = min(n, max(least_visits, n // (PARTS_IN_TURN if in_turn else PARTS)))
    # Records that agree in a tied column may be too rare in a block.
    divided = n >= BLOCKS * least_block and len(weights) <= MOST_BLOCK_CELLS and not tied
    coarse = (COARSE * UNIT) ** 2 * weights.sum()
    rounds = -(-sweeps * n // visits)
    before = _distance(weights, layout.gaps)
    floor = max(floor * 64 * UNIT**2, rest * before)
    first = int(rng.integers(n)) if in_turn and visits < n else None
    made, little = 0, False
    while made < rounds and before > floor and not little:
        in_blocks = divided and before > coarse
        if in_blocks:
            _swap_blocks(sweep, codes, layout.gaps, first, visits, rng)
        else:
            sweep(codes, layout.gaps, first, visits, rng)
        made, first = made + 1, None if first is None else (first + visits) % n
        after = _distance(weights, layout.gaps)
        little, before = before - after <= least_gain * before * (visits / n), after
        divided = divided and not little  # what no block sees is left to the whole
        little = little and not in_blocks
    if counts is not None:
        counts.clear()
        counts.update(layout.counts())
    return made


@dataclass(frozen=True, eq=False)
class _Sweep:
    """The part of a round that visits some of the records once for each move."""

    moves: Sequence[tuple[Group, Group, tuple[Any, ...], tuple[Any, ...], bool]]

    @classmethod
    def of(
        cls,
        layout: _Layout,
        moves: Sequence[tuple[Group, Group]],
        boxes: Sequence[Box] = (),
        *,
        most_matched: int = MOST_MATCHED,
    ) -> _Sweep:
        moved_tables = []
        for moved, fixed in moves:
            matched = len(moved) == 1 and not fixed
            tables = layout.move_of_column(moved) if matched else ()
            if not matched or tables[0] > most_matched:
                matched, tables = False, layout.move(moved)
            if len(tables[-1]):
                broken = [box for box in boxes if {*moved} & {*box.columns} and not box.implied]
                moved_tables.append((moved, fixed, tables, _patterns(broken), matched))
        return cls(moved_tables)

    def __call__(
        self,
        codes: NDArray[Any],
        gaps: Integers,
        first: int | None,
        visits: int,
        rng: np.random.Generator,
    ) -> None:
        """Swap from a record on, or from any; codes and gaps are changed in place."""
        n, dtype = len(codes), codes.dtype.name
        if first is None:
            first = int(rng.integers(n)) if visits < n else 0
        for moved, fixed, tables, patterns, matched in self.moves:
            if matched:
                compiled_column(dtype)(codes, first, visits, *moved, *tables, gaps, *patterns)
                continue
            shift = int(rng.integers(1, n))
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
                *patterns,
                0,
            )


def _swap_blocks(
    sweep: _Sweep,
    codes: NDArray[Any],
    gaps: Integers,
    first: int | None,
    visits: int,
    rng: np.random.Generator,
) -> None:
    """A round in blocks of records, each with its share of all differences."""
    seeds = rng.integers(2**63, size=(BLOCKS, 2))
    ends = np.linspace(0, len(codes), BLOCKS + 1).astype(int).tolist()
    share = gaps // BLOCKS

    def swapped(block: int) -> Integers:
        own = share.copy()
        part = codes[ends[block] : ends[block + 1]]
        begun = None if first is None else first // BLOCKS % len(part)
        sweep(part, own, begun, visits // BLOCKS, np.random.default_rng(seeds[block]))
        own -= share
        return own

    for moved in in_threads(swapped, range(BLOCKS)):
        gaps += moved


def _distance(weights: Floats, gaps: Integers) -> float:
    """The weighted squared distance, 64 * UNIT**2 times over."""
    squares = gaps.astype(np.float64)
    squares *= squares
    squares *= weights
    return float(squares.sum())


def moves_of(n_columns: int, tied: Sequence[Group]) -> list[tuple[Group, Group]]:
    """Columns that move together, and those in which the two records must agree."""
    partners: dict[int, set[int]] = {column: set() for column in range(n_columns)}
    for a, b in tied:
        partners[a].add(b)
        partners[b].add(a)
    moves: list[tuple[Group, Group]] = [
        ((column,), tuple(sorted(partners[column]))) for column in range(n_columns)
    ]
    seen: set[int] = set()
    for column in range(n_columns):
        if partners[column] and column not in seen:
            together = [column]
            for member in together:
                together += sorted(partners[member] - set(together))
            seen.update(together)
            moves.append((tuple(sorted(together)), ()))
    return moves


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
