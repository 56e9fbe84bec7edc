"""Records that get places, by tables of these.

The records have no place, and are as marginals of the whole nation say. They are divided among the
places of the first level, the records of each of these among the places in it, and so on. What a
place is to have follows from the noisy tables of all places (mechanisms.places.estimates), read as
whole numbers (mechanisms.places.reading) that add up to the records of the place above. Where a
level has tables of columns a place gets records that agree with them, and are otherwise like those
of the place above: its pairs are those of the place above raked to its own tables. At a level that
has numbers of records only, places get as many, at random.

**A division** halves the children of a place again and again. The probability of a record for the
left half maximises the entropy given the tables of both halves, and follows by iterative
proportional fitting (Deming and Stephan 1940, doi 10.1214/aoms/1177731829). It is rounded by
systematic sampling, so that the number is exact, and then records of the two halves change sides
in pairs as long as both halves get nearer to their tables. Time is linear in records, times the
logarithm of the number of children, so that there may be any number of places. No other column of a
record is changed: whatever held of the records still does.

Post-processing of what is already public: no private data and no privacy cost. The random bits are
those of a generator that depends on the noisy tables.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.marginals.residuals import GRID, NoisyTable
from statpress.mechanisms.marginals.target_tables import Group, Integers
from statpress.mechanisms.parallel import compiled_kernel
from statpress.mechanisms.places.estimates import PlaceEstimates
from statpress.mechanisms.places.place_tables import NoisyPlaces, sums_up
from statpress.mechanisms.places.readable import Reading, margin_of, of_reading, readings
from statpress.mechanisms.places.reading import read_level
from statpress.mechanisms.places.tree import Places, Tree

_UNIT = 64
"""Differences from a table are multiples of 1/64 of a record."""
_FINE = 2**24
"""Probabilities are multiples of 1/2**24, whatever the last digits of a machine's arithmetic."""
_FITS, _PASSES = 40, 24


def _divide(  # type: ignore[no-untyped-def] # noqa: ANN202
    cells,  # noqa: ANN001  int64[n, r]: of each record its cell of each table
    left,  # noqa: ANN001  float64[cells]: records of the left half
    right,  # noqa: ANN001  float64[cells]: of the other; together those that there are
    number,  # noqa: ANN001  int: of records of the left half, from 1 to n - 1
    start,  # noqa: ANN001  float: of the systematic sample, between 0 and 1
    shifts,  # noqa: ANN001  int64[passes]: how far apart records are that change halves
):
    n, tables = cells.shape
    chance = np.full(n, number / n)
    ones, others = np.empty(left.shape[0]), np.empty(left.shape[0])
    for _ in range(_FITS):
        apart = 0.0
        for t in range(tables):
            ones[:] = 0.0
            others[:] = 0.0
            for i in range(n):
                ones[cells[i, t]] += chance[i]
                others[cells[i, t]] += 1.0 - chance[i]
            for i in range(n):
                c = cells[i, t]
                apart = max(apart, abs(ones[c] - left[c]))
                one = chance[i] * left[c] / ones[c] if ones[c] > 0.0 else 0.0
                other = (1.0 - chance[i]) * right[c] / others[c] if others[c] > 0.0 else 0.0
                chance[i] = one / (one + other) if one + other > 0.0 else number / n
        if apart < 0.1:
            break
    whole = 0.0
    for i in range(n):
        chance[i] = np.rint(chance[i] * _FINE)
        whole += chance[i]
    chosen = np.zeros(n, np.bool_)
    taken, before, total = 0, 0.0, 0.0
    for i in range(n):
        total += chance[i]
        after = np.floor(total * number / whole + start) if whole > 0.0 else 0.0
        if after > before:
            chosen[i] = True
            taken += 1
        before = after
    for i in range(n):  # a probability near 1 may have been passed over
        if taken < number and not chosen[i]:
            chosen[i] = True
            taken += 1
    gaps = np.empty(left.shape[0], np.int64)
    for c in range(left.shape[0]):
        gaps[c] = -np.int64(np.rint(left[c] * _UNIT))
    here, there = np.empty(number, np.int64), np.empty(n - number, np.int64)
    a, b = 0, 0
    for i in range(n):
        if chosen[i]:
            here[a] = i
            a += 1
            for t in range(tables):
                gaps[cells[i, t]] += _UNIT
        else:
            there[b] = i
            b += 1
    for shift in shifts:
        for k in range(max(number, n - number)):
            a, b = k % number, (k + shift) % (n - number)
            i, j = here[a], there[b]
            change = 0
            for t in range(tables):
                if cells[i, t] != cells[j, t]:
                    change += _UNIT - gaps[cells[i, t]] + gaps[cells[j, t]]
            if change < 0:
                here[a], there[b] = j, i
                for t in range(tables):
                    gaps[cells[i, t]] -= _UNIT
                    gaps[cells[j, t]] += _UNIT
        if np.abs(gaps).max() <= _UNIT // 2:
            break
    chosen[:] = False
    chosen[here] = True
    return chosen


@functools.cache
def _compiled() -> Callable[..., NDArray[np.bool_]]:
    from numba import types as nt

    one, many = nt.float64[::1], nt.int64[::1]
    signature = nt.boolean[::1](nt.int64[:, ::1], one, one, nt.int64, nt.float64, many)
    kernel: Callable[..., NDArray[np.bool_]] = compiled_kernel(_divide, signature)
    return kernel


@dataclass(frozen=True, eq=False)
class PlacesOfRecords:
    """Noisy tables by which records get places.

    Attributes:
        release: The tables.
    """

    release: NoisyPlaces

    @functools.cached_property
    def estimates(self) -> PlaceEstimates:
        """All tables combined."""
        return self.release.estimates()

    def whole(self, domain: Domain) -> Iterator[NoisyTable]:
        """What the tables of all places together say of single columns of the nation's records.

        Args:
            domain: The columns of the records.
        """
        estimates = self.estimates
        names = self.release.domain.names
        for (column,) in (part for part in estimates.parts if len(part) == 1):
            variance = float(estimates.weights[(column,)].down[0][0])
            if names[column] in domain.names and 0 < variance < math.inf:
                counts = estimates.table(0, (column,))[0]
                noise = Fraction(math.sqrt(variance) * GRID)
                group = (domain.names.index(names[column]),)
                yield NoisyTable(group, noise, np.rint(counts * GRID).astype(np.int64))

    def codes(self, domain: Domain, codes: Sequence[NDArray[Any]]) -> Integers:
        """int64[n]: for each record its place of the last level.

        Args:
            domain: The columns of the records.
            codes: For every column the codes of all records.
        """
        release, names = self.release, self.release.domain.names
        position = {c: domain.names.index(n) for c, n in enumerate(names) if n in domain.names}
        tables = list(
            dict.fromkeys(
                (table.level, tuple(c for c in table.group if c in position))
                for table in release.tables
            )
        )
        geography, estimates = release.geography, self.estimates
        n, whole = len(codes[0]), float(estimates.table(0, ()).sum())
        totals = None
        if geography.exact and geography.sizes is not None and n == release.n_records:
            totals = sums_up(geography.tree, geography.sizes.astype(np.int64))
        digest = int(release.digest(), 16)
        return placed(
            {column: np.asarray(codes[at], np.int64) for column, at in position.items()},
            n,
            estimates,
            tables,
            n / max(whole, 1.0),
            totals,
            np.random.Generator(np.random.PCG64(digest)),
        )


def placed(
    codes: dict[int, Integers],
    n: int,
    estimates: PlaceEstimates,
    tables: Sequence[tuple[int, Group]],
    scale: float,
    totals: Sequence[Integers] | None,
    rng: np.random.Generator,
) -> Integers:
    """int64[n]: for each record its place of the last level.

    Args:
        codes: By column of the tables int64[n], those of the records.
        n: Number of records.
        estimates: All tables combined; they reach the last level.
        tables: The level and the ascending columns of each.
        scale: Of numbers of records in the estimates to those of the records.
        totals: By level exact numbers of records of places int64[places]; None if none are known.
        rng: Public.
    """
    tree = estimates.tree
    together = readings(tables, totals=totals is not None)
    place = np.zeros(n, np.int64)
    for level in range(1, len(tree.levels)):
        cells, wanted, numbers = [], [], None if totals is None else totals[level]
        known: list[tuple[Group, Integers]] = [] if numbers is None else [((), numbers)]
        for reading in together:
            own, table = _level(codes, place, estimates, reading, level, scale, known, tree)
            known.append((reading.groups[level], table))
            if numbers is None:
                numbers = table.reshape(len(table), -1).sum(axis=1)
            if own is not None:
                cells.append(own)
                wanted.append(table.reshape(len(table), -1))
        assert numbers is not None
        place = _among_children(tree, level, place, cells, wanted, numbers, rng)
    return place


def _level(
    codes: dict[int, Integers],
    place: Integers,
    estimates: PlaceEstimates,
    reading: Reading,
    level: int,
    scale: float,
    known: Sequence[tuple[Group, Integers]],
    tree: Tree,
) -> tuple[Integers | None, Integers]:
    """The records' cells of a table, None if it has only one, and what places are to have."""
    group, shared = reading.groups[level], reading.shared[level]
    shape = tuple(estimates.sizes[column] for column in group)
    own = np.zeros(len(place), np.int64)
    for column in group:
        own = own * estimates.sizes[column] + codes[column]
    size = math.prod(shape)
    above = np.bincount(place * size + own, minlength=tree.sizes[level - 1] * size)
    values, variances = of_reading(estimates, reading, level)
    table = np.empty((tree.sizes[level], *shape), np.int64)
    read = read_level(
        tree, level, above.reshape(-1, *shape), values * scale, variances * scale**2,
        None if shared is None else margin_of(known, group[:shared]),
    )  # fmt: skip
    for rows, block in read:
        table[rows] = block
    return own if size > 1 else None, table


def _among_children(
    tree: Tree,
    level: int,
    place: Integers,
    cells: Sequence[Integers],
    wanted: Sequence[Integers],
    numbers: Places,
    rng: np.random.Generator,
) -> Integers:
    """int64[n]: the place of every record at a level, by those of the level above.

    Args:
        tree: Who lies in whom.
        level: From 1.
        place: int64[n]: of the level above.
        cells: By table int64[n], the records' cells.
        wanted: By table int64[places, cells], what places are to have.
        numbers: int64[places]: how many records they get; they add up to those of the level above.
        rng: Public.
    """
    order = rng.permutation(len(place))
    order = order[np.lexsort([*(own[order] for own in cells[::-1]), place[order]])]
    found = np.empty(len(place), np.int64)
    if not cells:
        found[order] = np.repeat(np.arange(len(numbers)), numbers)
        return found
    offsets = np.cumsum([0, *(table.shape[1] for table in wanted)])
    own = np.stack([own + start for own, start in zip(cells, offsets, strict=False)], axis=1)
    together = np.concatenate(wanted, axis=1)
    starts, kernel = tree.starts(level - 1), _compiled()
    ends = np.searchsorted(place[order], np.arange(tree.sizes[level - 1] + 1))
    for above in np.flatnonzero(np.diff(ends)).tolist():
        rows = order[ends[above] : ends[above + 1]]
        waiting = [(rows, int(starts[above]), int(starts[above + 1]))]
        while waiting:
            rows, first, last = waiting.pop()
            if last - first == 1 or not len(rows):
                found[rows] = first
                continue
            middle = (first + last) // 2
            number = int(numbers[first:middle].sum())
            chosen = np.full(len(rows), number > 0)
            if 0 < number < len(rows):
                inside = np.ascontiguousarray(own[rows])
                counts = np.bincount(inside.ravel(), minlength=offsets[-1])
                left = together[first:middle].sum(axis=0).astype(np.float64)
                both = left + together[middle:last].sum(axis=0)
                left = counts * np.where(both > 0, left / np.maximum(both, 1), number / len(rows))
                shifts = rng.integers(0, len(rows), _PASSES)
                start = float(rng.integers(1, 1024)) / 1024
                chosen = kernel(inside, left, counts - left, number, start, shifts)
            waiting += [(rows[chosen], first, middle), (rows[~chosen], middle, last)]
    return found
