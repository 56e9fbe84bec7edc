"""Which tables of places are read together, so that all of them agree.

A reading (mechanisms.places.reading) goes from the root down, with a table of some columns in every
place, of which lower levels may drop some. A table of a level that no reading before holds begins
another one: its columns from the root down to its level, and below the largest group of these that
a level has or sums up to. It takes over, as margins, the integers of the columns that it shares
with what was read before, at least the number of records.

Not every set of tables can be read so. A table that shares columns with two that were read before,
and not within one of both, closes a cycle: whether integers with given margins exist is then
intractable (Irving and Jerrum 1994, doi 10.1137/S0097539790191010). It is left with its estimates.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from statpress.mechanisms.domain.contingency_table import Numbers, Room, in_memory
from statpress.mechanisms.marginals.target_tables import Floats, Group, Integers
from statpress.mechanisms.places.estimates import PlaceEstimates
from statpress.mechanisms.places.reading import read, read_below

LevelGroup = tuple[int, Group]
"""A level, and the columns of a table of it."""

_LEAST_VARIANCE = 1e-9  # of what is public, which margins give exactly


@dataclass(frozen=True)
class Reading:
    """Tables that are read together.

    Attributes:
        groups: By level the columns, in the order of the table's axes.
        shared: By level how many of the first axes are those of tables that were read before; None
            if nothing was.
    """

    groups: tuple[Group, ...]
    shared: tuple[int | None, ...]


def readings(tables: Sequence[LevelGroup], *, totals: bool) -> list[Reading]:
    """The readings of tables, by the public design only.

    Args:
        tables: The level and the ascending columns of each.
        totals: Whether the numbers of records of places are public.
    """
    depth = 1 + max(level for level, _ in tables)
    before: list[list[Group]] = [[()] if totals else [] for _ in range(depth)]
    found = []
    for level, group in sorted(tables, key=lambda each: (each[0], -len(each[1]))):
        if any(set(group) <= set(each) for each in before[level]):
            continue
        groups = [group] * (level + 1)
        for below in range(level + 1, depth):
            groups.append(_largest(tables, below, groups[-1]))
        shared = [_shared(own, known) for own, known in zip(groups, before, strict=True)]
        if any(own is False for own in shared):
            continue
        order = _order(group, [*groups, *(own for own in shared if isinstance(own, tuple))])
        if order is None:
            continue
        ordered = tuple(tuple(c for c in order if c in own) for own in groups)
        counts = tuple(len(own) if isinstance(own, tuple) else None for own in shared)
        found.append(Reading(ordered, counts))
        for known, own in zip(before, ordered, strict=True):
            known.append(own)
    return found


def _largest(tables: Sequence[LevelGroup], level: int, within: Group) -> Group:
    """The largest group of some columns that a level has a table of, or sums up to."""
    able = [g for at, g in tables if at >= level and set(g) <= set(within)]
    return max(able, key=len, default=())


def _shared(group: Group, before: Sequence[Group]) -> tuple[int, ...] | bool | None:
    """The columns that a table shares with those read before; False if they close a cycle."""
    parts = [tuple(c for c in group if c in each) for each in before]
    if not parts:
        return None
    most = max(parts, key=len)
    return most if all(set(part) <= set(most) for part in parts) else False


def _order(columns: Group, parts: Sequence[tuple[int, ...]]) -> Group | None:
    """An order of columns in which every part comes first; None if there is none."""
    for order in itertools.permutations(columns):
        if all(set(order[: len(part)]) == set(part) for part in parts):
            return order
    return None


def readable(tables: Sequence[LevelGroup], *, totals: bool) -> list[bool]:
    """Whether each table is in a reading."""
    found = readings(tables, totals=totals)
    return [any(set(g) <= set(each.groups[at]) for each in found) for at, g in tables]


def read_tables(
    estimates: PlaceEstimates,
    tables: Sequence[LevelGroup],
    totals: Sequence[Integers] | None,
    n_records: int | None,
    room: Room = in_memory,
) -> list[Numbers | None]:
    """Whole numbers of every table, at least 0, that add up over places and over columns.

    Args:
        estimates: All tables combined.
        tables: The level and the ascending columns of each.
        totals: By level public numbers of records int64[n].
        n_records: Their sum where it is public.
        room: Where large tables go.

    Returns:
        For each table int64[n, *cells]; None for one that cannot be read with the others.
    """
    tree, blocks = estimates.tree, estimates.blocks
    found = [
        room((tree.sizes[level], *(estimates.sizes[c] for c in group))) if read else None
        for (level, group), read in zip(
            tables, readable(tables, totals=totals is not None), strict=True
        )
    ]
    planned = readings(tables, totals=totals is not None)
    depth = 1 + max(level for level, _ in tables)
    last = min(depth, blocks.cut + 1)
    rows = {level: slice(0, tree.sizes[level]) for level in range(last)}
    top = _known(totals, rows)
    for reading in planned:
        own = [of_reading(estimates, reading, level) for level in rows]
        margins = [_shared_sums(top, reading, level) for level in rows]
        whole = read(
            tree.above(last),
            [table for table, _ in own],
            [variances for _, variances in own],
            total=n_records if margins[0] is None else None,
            margins=margins,
        )
        for level, table in enumerate(whole):
            top[level].append((reading.groups[level], table))
    _write(found, tables, rows, top)
    for block in range(len(blocks)) if depth > last else ():
        forest = blocks.forest(block, depth)
        rows = {level: blocks.rows(block, level) for level in range(last, depth)}
        known, roots = _known(totals, rows), blocks.rows(block, blocks.cut)
        before = len(top[blocks.cut]) - len(planned)
        for reading, (_, upper) in zip(planned, top[blocks.cut][before:], strict=True):
            below = (
                (
                    *of_reading(estimates, reading, level, block),
                    _shared_sums(known, reading, level),
                )
                for level in rows
            )
            for level, table in zip(rows, read_below(forest, upper[roots], below), strict=True):
                known[level].append((reading.groups[level], table))
        _write(found, tables, rows, known)
    return found


Known = dict[int, list[tuple[Group, Integers]]]
"""By level the tables of some places that were read, or are public, and their columns."""


def _known(totals: Sequence[Integers] | None, rows: Mapping[int, slice]) -> Known:
    """What is public of some places of each level."""
    return {
        level: [] if totals is None else [((), totals[level][own])] for level, own in rows.items()
    }


def _write(
    found: Sequence[Numbers | None],
    tables: Sequence[LevelGroup],
    rows: Mapping[int, slice],
    known: Known,
) -> None:
    """Write the tables of some places of each level."""
    for whole, (level, group) in zip(found, tables, strict=True):
        if whole is not None and level in rows:
            whole[rows[level]] = margin_of(known[level], group)


def of_reading(
    estimates: PlaceEstimates, reading: Reading, level: int, block: int | None = None
) -> tuple[Floats, Floats]:
    """Estimates and variances of a reading, of a level or its part of a block, in axes' order."""
    group = reading.groups[level]
    ascending = tuple(sorted(group))
    if block is None:
        table, variances = estimates.table(level, ascending), estimates.variances(level, ascending)
    else:
        table, variances = estimates.in_block(block, level, ascending)
    axes = [1 + ascending.index(column) for column in group]
    return (
        np.ascontiguousarray(table.transpose(0, *axes)),
        np.maximum(variances, _LEAST_VARIANCE),
    )


def _shared_sums(known: Known, reading: Reading, level: int) -> Integers | None:
    """The integers of the columns that a reading shares with what was read before."""
    shared = reading.shared[level]
    return None if shared is None else margin_of(known[level], reading.groups[level][:shared])


def margin_of(known: Sequence[tuple[Group, Integers]], group: Group) -> Integers:
    """Sums of a table that was read before, with axes in the order of the group."""
    holding, table = next(each for each in known if set(group) <= set(each[0]))
    others = tuple(1 + i for i, column in enumerate(holding) if column not in group)
    left = [column for column in holding if column in group]
    summed = table.sum(axis=others)
    return np.ascontiguousarray(summed.transpose(0, *(1 + left.index(c) for c in group)))
