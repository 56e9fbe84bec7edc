"""Records from the tables of a model.

Records to start from have exact one-way tables, and pairs along a tree nearly so. The tree is the
one of the largest mutual information among the fitted pairs (Chow and Liu 1968,
doi 10.1109/TIT.1968.1054142). Each column is drawn given its parent by a table of integers that
has the margins of both exactly and is otherwise within about one of the fitted table. Then swaps
bring the records near to all pairs, and to the triples whose pairs are strongest.

**Impossible records** are made possible before the swaps, that never make one. Values are exchanged
with records that can take them, which keeps all one-way tables. Where no record can, a value is
replaced by the most frequent possible one, unless its column is known.

**Copies** start from the records of the single file. Their tables are drawn one by one, so that no
records have all of them, and one sum of squares would break a nearly certain relation to fit the
noise of many weak ones. So each measured table weighs by how clear of its noise it is. When swaps
have brought the records near to these, the tables that the records have by then replace the drawn
ones: as they can be met all at once, the other pairs and triples can come near to what was drawn
for them. For these only their own columns move. In long files the rounds of a copy visit one part
after the other, so that each has records that this copy has not moved yet.

**Households.** Last come the tables of all persons, in a copy and in the single file, and only
persons move.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.domain import Boxes
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.marginals.allocation import MOST_TRIPLES
from statpress.mechanisms.marginals.denoising import Model, strongest_triples
from statpress.mechanisms.marginals.fitting import integer_table
from statpress.mechanisms.marginals.presence import Presence
from statpress.mechanisms.marginals.residuals import KnownTotals
from statpress.mechanisms.marginals.swaps import moves_of, swap_towards
from statpress.mechanisms.marginals.target_tables import (
    Booleans,
    Box,
    Floats,
    Group,
    Integers,
    TargetTable,
    tables_of,
)
from statpress.mechanisms.parallel import compiled_kernel
from statpress.mechanisms.postprocessing.rounding import round_to_total


def tree(
    n_columns: int, pairs: Mapping[Group, Floats], forced: Iterable[Group] = ()
) -> list[tuple[int, int]]:
    """Edges (parent, child) of a tree of largest mutual information, parents first."""
    strength = {pair: _mutual_information(table) for pair, table in pairs.items()}
    ordered = [*forced, *sorted(strength, key=lambda pair: (-strength[pair], pair))]
    component = list(range(n_columns))
    neighbours: list[list[int]] = [[] for _ in range(n_columns)]
    for a, b in ordered:
        if component[a] != component[b]:
            joined, gone = component[a], component[b]
            component = [joined if c == gone else c for c in component]
            neighbours[a].append(b)
            neighbours[b].append(a)
    edges: list[tuple[int, int]] = []
    seen: set[int] = set()
    for root in range(n_columns):
        waiting = [root] if root not in seen else []
        seen.update(waiting)
        for parent in waiting:
            for child in neighbours[parent]:
                if child not in seen:
                    seen.add(child)
                    waiting.append(child)
                    edges.append((parent, child))
    return edges


def _mutual_information(table: Floats) -> float:
    """Mutual information of a non-negative table, in nats times the total."""
    total = table.sum()
    if not total:
        return 0.0
    independent = np.multiply.outer(table.sum(axis=1), table.sum(axis=0)) / total
    positive = table > 0
    information = (table[positive] * np.log(table[positive] / independent[positive])).sum()
    return round(float(information), 6)


def start_records(
    one_way: Sequence[Integers],
    edges: Sequence[tuple[int, int]],
    pairs: Mapping[Group, Floats],
    exact: Mapping[Group, Integers],
    dtype: np.dtype[Any],
    rng: np.random.Generator,
) -> NDArray[Any]:
    """Codes unsigned[m, d] with the given one-way tables exactly."""
    m = int(one_way[0].sum())
    codes = np.empty((m, len(one_way)), dtype=dtype)
    children = {child for _, child in edges}
    for column, counts in enumerate(one_way):
        if column not in children:
            codes[:, column] = rng.permutation(
                np.repeat(np.arange(len(counts), dtype=dtype), counts)
            )
    for parent, child in edges:
        pair = (min(parent, child), max(parent, child))
        if pair in exact:
            table = exact[pair] if parent < child else exact[pair].T
        else:
            wanted = pairs[pair] if parent < child else pairs[pair].T
            table = integer_table(wanted, one_way[parent], one_way[child])
        # The values of each parent code in random order, which its records take in turn.
        values = np.repeat(np.tile(np.arange(table.shape[1], dtype=dtype), len(table)), table.flat)
        places = np.cumsum(table.sum(axis=1)) - table.sum(axis=1)
        for part in np.split(values, places[1:]):
            rng.shuffle(part)
        _compiled(dtype.name)(codes, parent, child, values, places)
    return codes


def _take_children(  # type: ignore[no-untyped-def] # noqa: ANN202
    codes,  # noqa: ANN001  unsigned[m, d]: the column of the child is written
    parent,  # noqa: ANN001  int
    child,  # noqa: ANN001  int
    values,  # noqa: ANN001  unsigned[m]: of the children, by parent code
    places,  # noqa: ANN001  int64[parents]: where those of each parent begin; changed
):
    for i in range(len(codes)):
        row = codes[i, parent]
        codes[i, child] = values[places[row]]
        places[row] += 1


@functools.cache
def _compiled(dtype: str) -> Callable[..., None]:
    """The kernel for records of an unsigned dtype."""
    import numba
    from numba import types as nt

    records = numba.from_dtype(np.dtype(dtype))[:, ::1]
    children = numba.from_dtype(np.dtype(dtype))[::1]
    signature = nt.void(records, nt.int64, nt.int64, children, nt.int64[::1])
    kernel: Callable[..., None] = compiled_kernel(_take_children, signature)
    return kernel


UNMEASURED_WEIGHT, TRIPLE_WEIGHT = 0.296875, 0.5
"""Of pairs that were not measured and of triples, in the single file."""
LEAST_WEIGHT, MOST_WEIGHT = 1 / 32, 64.0
"""Of the clear pairs of a copy; its other pairs and triples have 1."""
PERSONS_WEIGHT = 8.0
"""Of the tables of all persons in a copy, over that of its clear pairs."""
_SWEEPS_OF_OTHERS, _REST_OF_OTHERS = 2, 0.1
NEAR_ENOUGH = 0.01
"""Share of the targets' squared error, weighted as they are: records that are nearer would only fit
their noise."""
_FINE = 2**24


@dataclass(frozen=True, eq=False)
class Beginning:
    """What copies begin with, which is the same for all of them.

    Attributes:
        codes: Records of a model near to theirs, unsigned[n, d].
        clear: The measured pairs that a copy is brought near to first.
        counts: The tables of the records that a copy is brought near to first.
        one_way: Their single columns.
    """

    codes: NDArray[Any]
    clear: Collection[Group]
    counts: Mapping[Group, Integers]
    one_way: Sequence[Integers]

    @classmethod
    def of(
        cls, codes: NDArray[Any], model: Model, known: Mapping[Group, Any], clear: Collection[Group]
    ) -> Beginning:
        """Count what the copies of a model share."""
        tables = {**model.pairs, **model.groups}
        shapes = {g: table.shape for g, table in tables.items() if _is_first(g, clear)}
        shapes = {g: shape for g, shape in shapes.items() if g not in known}
        one_way = [
            np.bincount(column, minlength=len(p))
            for column, p in zip(codes.T, model.one_way, strict=True)
        ]
        return cls(codes, clear, tables_of(codes, shapes), one_way)

    def moved(
        self,
        one_way: Sequence[Integers],
        rng: np.random.Generator,
        presence: Presence | None = None,
    ) -> NDArray[Any]:
        """Records with these one-way tables, as few of whose values as need be are others.

        Args:
            one_way: The tables.
            rng: Public.
            presence: Of records of households, which columns are of persons.
        """
        moved = self.codes.copy()
        order = rng.permutation(len(moved))
        current = list(self.one_way)
        if presence is not None:
            size = presence.size
            _exchange(moved, size, current[size], one_way[size], order, None)
            current[size] = one_way[size]
            presence.move_in(moved, [len(counts) for counts in one_way], rng)
            for column in presence.columns:
                current[column] = np.bincount(moved[:, column], minlength=len(one_way[column]))
        for column, (counts, wanted) in enumerate(zip(current, one_way, strict=True)):
            _exchange(moved, column, counts, wanted, order, rng)
        return moved

    def counts_of(self, codes: NDArray[Any]) -> dict[Group, Integers]:
        """The tables of records of which few are others than these."""
        changed = np.zeros(len(codes), dtype=np.bool_)
        for own, then in zip(self.codes.T, codes.T, strict=True):
            changed |= own != then
        shapes = {group: table.shape for group, table in self.counts.items()}
        left, come = (tables_of(each[changed], shapes) for each in (self.codes, codes))
        return {group: table - left[group] + come[group] for group, table in self.counts.items()}


_FIRST_MOVED = 1 << 12


def _exchange(
    codes: NDArray[Any],
    column: int,
    counts: Integers,
    wanted: Integers,
    order: NDArray[np.int64],
    rng: np.random.Generator | None,
) -> None:
    """Give a column other counts, in place; without a generator each value goes to a near one."""
    surplus, short = np.maximum(counts - wanted, 0), np.maximum(wanted - counts, 0)
    if not surplus.any():
        return
    reached = _FIRST_MOVED
    while True:  # the first records in this order that have what is too frequent
        own = codes[order[:reached], column]
        counts = np.bincount(own, minlength=len(wanted))
        if np.all(counts >= surplus):
            break
        reached *= 2
    by_code, starts = order[np.argsort(own, kind="stable")], np.cumsum(counts) - counts
    giving = [
        by_code[starts[code] : starts[code] + surplus[code]]
        for code in np.flatnonzero(surplus).tolist()
    ]
    taken = np.repeat(np.arange(len(wanted), dtype=codes.dtype), short)
    codes[np.concatenate(giving), column] = taken if rng is None else rng.permutation(taken)


def _is_first(group: Group, clear: Collection[Group]) -> bool:
    """Whether a copy is brought near to a table first: a clear pair, or a measured larger group."""
    return group in clear or len(group) > 2


TargetsOf = Callable[..., tuple[list[TargetTable], list[TargetTable]]]
"""Of a copy what it is to meet first, and what then: ``drawn_targets``."""


def synthesise(
    model: Model,
    n_records: int,
    rng: np.random.Generator,
    *,
    boxes: Sequence[Box] = (),
    known: KnownTotals | None = None,
    presence: Presence | None = None,
    sweeps: int = 15,
    floor: float | None = None,
    copied: Beginning | None = None,
    targets_of: TargetsOf | None = None,
) -> NDArray[Any]:
    """Codes unsigned[n_records, d] near to the model's tables.

    Args:
        model: The tables.
        n_records: Number of records.
        rng: Public.
        boxes: Structural zeros.
        known: Public exact tables.
        presence: Of records of households, which columns are of persons.
        sweeps: How often every record is visited at most.
        floor: Of the weighted squared distance, in squared records; by default from the noise. Of
            copies it is always that.
        copied: For a copy, what it begins with; by default records are drawn along a tree. How
            three columns interact is drawn in a copy.
        targets_of: What a copy is to meet: by default ``drawn_targets``.
    """
    known = known or {}
    m = n_records
    one_way = [one_way_counts(p, m) for p in model.one_way]
    if presence is not None:
        one_way = presence.counts(one_way)
    pairs = {pair: _steady(table * m) for pair, table in model.pairs.items()}
    largest = max(len(p) for p in one_way)
    dtype = np.dtype(np.uint8 if largest <= 2**8 else np.uint16 if largest <= 2**16 else np.uint32)
    exact: dict[Group, Integers] = {pair: table for pair, table in known.items() if len(pair) == 2}
    if copied is not None:
        codes = copied.moved(one_way, rng, presence)
    else:
        persons = frozenset() if presence is None else presence.columns
        own = {pair: table for pair, table in pairs.items() if not persons & {*pair}}
        edges = tree(len(one_way), own, exact)
        codes = start_records(one_way, edges, pairs, exact, dtype, rng)
        if presence is not None:
            presence.fill_places(codes, one_way, pairs, rng)
    error = sum(model.errors.values()) * m**2
    make_possible(codes, boxes, model.one_way, tuple(known), rng)
    swap = functools.partial(
        swap_towards,
        codes,
        rng=rng,
        boxes=boxes,
        tied=tuple(exact),
        together=() if presence is None else presence.places,
    )
    floor = NEAR_ENOUGH * error if floor is None else floor
    if copied is None:
        wanted = targets(model, m, known, boxes)
        swap(wanted, sweeps=sweeps, floor=floor)
        if presence is not None:
            of_persons = targets_of_persons(model, m, presence)
            swap([*wanted, *of_persons], sweeps=sweeps, columns=presence.columns)
        return codes
    drawn = targets_of or drawn_targets
    first, then = drawn(model, m, known, boxes, copied.clear, rng, presence)
    error = sum(each.weight * model.errors.get(each.group, 0.0) for each in first) * m**2
    counts = copied.counts_of(codes)
    swap = functools.partial(swap, counts=counts, in_turn=True)
    swap(first, sweeps=sweeps, floor=NEAR_ENOUGH * error)
    met = [replace(each, table=counts[each.group].astype(np.float64)) for each in first]
    swap(
        [*met, *then],
        sweeps=_SWEEPS_OF_OTHERS,
        rest=_REST_OF_OTHERS,
        columns={column for each in then for column in each.group},
    )
    if presence is not None:
        met = [replace(each, table=counts[each.group].astype(np.float64)) for each in first]
        of_persons = targets_of_persons(model, m, presence, PERSONS_WEIGHT)
        swap([*met, *of_persons], sweeps=sweeps, columns=presence.columns)
    return codes


def _steady(table: Floats) -> Floats:
    """Rounded to 2**-24, so that the last digits of other machines' arithmetic do not matter."""
    return np.asarray(np.rint(table * _FINE) / _FINE)


def one_way_counts(p: Floats, m: int) -> Integers:
    """Integers that add up to m and are nearest to a column's parts of it, int64[K].

    The parts are steadied as above, and what that leaves, half of 2**-24 for each cell at most,
    goes to the largest of them, so that they add up to m exactly whatever the number of cells.
    """
    parts = np.rint(p * (m / p.sum()) * _FINE).astype(np.int64)
    largest = np.argsort(-parts, kind="stable")[: np.count_nonzero(parts)]
    share, more = divmod(m * _FINE - int(parts.sum()), len(largest))
    parts[largest] += share
    parts[largest[:more]] += 1
    return round_to_total(parts / _FINE, m)


def targets(
    model: Model, m: int, known: Mapping[Group, Any], boxes: Sequence[Box]
) -> list[TargetTable]:
    """All pairs that are not known, the measured larger groups, and the strongest triples."""
    tables = []
    for pair, table in model.pairs.items():
        if pair not in known:
            measured = pair in model.residuals.values
            tables.append(TargetTable(pair, table * m, 1.0 if measured else UNMEASURED_WEIGHT))
    tables += [TargetTable(g, table * m, 1.0) for g, table in model.groups.items()]
    return tables + _triples(model, m, boxes, TRIPLE_WEIGHT)


def _triples(
    model: Model,
    m: int,
    boxes: Sequence[Box],
    weight: float,
    rng: np.random.Generator | None = None,
) -> list[TargetTable]:
    """The strongest triples that no measured group holds, with a generator drawn ones."""
    return [
        TargetTable(group, model.implied(group, boxes, rng=rng) * m, weight)
        for group in strongest_triples(model)[:MOST_TRIPLES]
        if not any(set(group) <= set(larger) for larger in model.groups)
    ]


def drawn_targets(
    model: Model,
    m: int,
    known: Mapping[Group, Any],
    boxes: Sequence[Box],
    clear: Collection[Group],
    rng: np.random.Generator,
    presence: Presence | None = None,
) -> tuple[list[TargetTable], list[TargetTable]]:
    """Of a copy the clear pairs with the measured groups, and the other pairs with triples.

    The former weigh as the root of the mean square of their deviation from independent columns over
    that of their noise, within bounds. Of persons' columns the deviation is among those who are
    there, and the noise that of all places which a pair's relation is learnt from.
    """
    persons: Collection[int] = () if presence is None else presence.columns
    learnt_from = {pair: len(kind.pairs) for kind in model.alike.kinds for pair in kind.pairs}
    first, then = [], []
    for group, table in [*model.pairs.items(), *model.groups.items()]:
        if group in known:
            continue
        if not _is_first(group, clear):
            then.append(TargetTable(group, table * m, 1.0))
            continue
        variance = model.residuals.variances[group] / learnt_from.get(group, 1)
        weight = _clearness(model, group, table, variance, persons)
        first.append(TargetTable(group, table * m, weight))
    return first, then + _triples(model, m, boxes, 1.0, rng)


def _clearness(
    model: Model, group: Group, table: Floats, variance: float, persons: Collection[int]
) -> float:
    """How far a table of shares is from independent columns, over its noise, within bounds."""
    margins = [model.one_way[column] for column in group]
    if any(column in persons for column in group):
        table = table[tuple(slice(-1) if c in persons else slice(None) for c in group)]
        axes = range(table.ndim)
        margins = [table.sum(axis=tuple({*axes} - {axis})) for axis in axes]
        margins[0] = margins[0] / max(float(table.sum()), 1e-300) ** (table.ndim - 1)
    product = functools.reduce(np.multiply.outer, margins)
    deviation = model.n * math.sqrt(float(((table - product) ** 2).mean()))
    noise = math.sqrt(variance)
    weight = MOST_WEIGHT if deviation >= MOST_WEIGHT * noise else deviation / noise
    return round(64 * max(weight, LEAST_WEIGHT)) / 64


def targets_of_persons(
    model: Model, m: int, presence: Presence, factor: float = 1.0
) -> list[TargetTable]:
    """Tables of all persons, in which every place counts where they were measured.

    They are of two columns of a person, and of one with one of the household. Over its size the
    noise of a sum over the places is less than that of each place, and records that are brought
    near to the places one by one do not have the sums.

    Args:
        model: The tables.
        m: Number of records.
        presence: Which columns are of persons.
        factor: Of their weights, which are as those of a copy's clear pairs.
    """
    first = presence.places[0]
    own = [c for c in range(len(model.one_way)) if c not in presence.columns]
    within = itertools.combinations(range(len(first)), 2)
    pairs: list[tuple[int | None, int, int]] = [(None, a, b) for a, b in within]
    pairs += [(column, 0, b) for column in own for b in range(len(first))]
    found = []
    for column, a, b in pairs:
        placed = [(place[a] if column is None else column, place[b]) for place in presence.places]
        groups = [group for group in placed if model.residuals.variances.get(_ascending(group))]
        if len(groups) < 2:
            continue
        tables = [
            model.pairs[group] if group[0] < group[1] else model.pairs[_ascending(group)].T
            for group in groups
        ]
        table = functools.reduce(np.add, tables)
        variance = sum(model.residuals.variances[_ascending(group)] for group in groups)
        weight = factor * _clearness(model, groups[0], table, variance, presence.columns)
        found.append(TargetTable(groups[0], table * m, weight, tuple(groups[1:])))
    return found


def _ascending(pair: tuple[int, int]) -> tuple[int, int]:
    return min(pair), max(pair)


_ROUNDS, _TRIES = 30, 1 << 16


def make_possible(
    codes: NDArray[Any],
    boxes: Sequence[Box],
    one_way: Sequence[Floats],
    known: Sequence[Group],
    rng: np.random.Generator,
) -> None:
    """Change records in place until none lies in a box."""
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
            _exchange_where_possible(
                codes, bad, rng.integers(len(codes), size=len(bad)), moved, fixed, boxes
            )
            bad = bad[impossible_records(codes[bad], boxes)]
    fixed_columns = {column for group in known for column in group}
    for record in np.flatnonzero(impossible_records(codes, boxes)).tolist():
        if not _exchanged_with_any(codes, record, moves, boxes, rng):
            _replace_values(codes, record, boxes, one_way, fixed_columns)


def _exchange_where_possible(
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
    allowed &= _try_exchange(one, other, moved, fixed, boxes)
    codes[bad[allowed]], codes[partners[allowed]] = one[allowed], other[allowed]


def _try_exchange(
    one: NDArray[Any], other: NDArray[Any], moved: Group, fixed: Group, boxes: Sequence[Box]
) -> NDArray[np.bool_]:
    """Exchange values between pairs of copied records; bool[n], where both are possible then."""
    allowed = np.ones(len(one), dtype=np.bool_)
    for column in fixed:
        allowed &= one[:, column] == other[:, column]
    columns = list(moved)
    one[:, columns], other[:, columns] = other[:, columns].copy(), one[:, columns].copy()
    return allowed & ~impossible_records(one, boxes) & ~impossible_records(other, boxes)


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
            allowed &= _try_exchange(ones, others, moved, fixed, boxes)
            if allowed.any():
                place = int(np.argmax(allowed))
                codes[record], codes[partners[place]] = ones[place], others[place]
                return True
    return False


def _replace_values(
    codes: NDArray[Any],
    record: int,
    boxes: Sequence[Box],
    one_way: Sequence[Floats],
    fixed_columns: set[int],
) -> None:
    """Give one record values that leave its boxes, the most frequent such, column by column.

    Where no single column helps, it becomes as a possible record that is near to it.
    """
    given = codes[record].copy()
    free = sorted({column for box in boxes for column in box.columns} - fixed_columns)
    for column in [*free, *free]:
        tried = np.repeat(codes[record : record + 1], len(one_way[column]), axis=0)
        tried[:, column] = np.arange(len(tried))
        held = _number_of_boxes(tried, boxes)
        shares = np.where(held == np.min(held), one_way[column], -1.0)
        codes[record] = tried[int(np.argmax(shares))]
        if np.min(held) == 0:
            return
    fixed = sorted(fixed_columns)
    for start in range(0, len(codes), _TRIES):
        others = codes[start : start + _TRIES]
        others = others[(others[:, fixed] == given[fixed]).all(axis=1)]
        others = others[~impossible_records(others, boxes)]
        if len(others):
            codes[record] = others[np.argmin((others != given).sum(axis=1))]
            return
    raise ConfigError(
        "The known totals and the structural zeros leave no possible records.",
        next_step="Leave out some of the known totals or of the zeros.",
    )


@functools.lru_cache(maxsize=8)
def _packed(boxes: tuple[Box, ...], *, implied: bool) -> Boxes[int]:
    """The boxes, with those that others imply or without them."""
    kept = [box for box in boxes if implied or not box.implied]
    return Boxes([dict(zip(box.columns, box.inside, strict=True)) for box in kept])


def impossible_records(codes: NDArray[Any], boxes: Sequence[Box]) -> Booleans:
    """bool[n]: which records unsigned[n, d] lie in a box."""
    impossible = np.zeros(len(codes), dtype=np.bool_)
    for some, within in _packed(tuple(boxes), implied=False).around(
        dict(enumerate(codes.T)), len(codes)
    ):
        impossible[some] = within.any(axis=1)
    return impossible


def _number_of_boxes(codes: NDArray[Any], boxes: Sequence[Box]) -> NDArray[np.int64]:
    """int64[n]: in how many boxes each of the records unsigned[n, d] lies."""
    number = np.zeros(len(codes), dtype=np.int64)
    for some, within in _packed(tuple(boxes), implied=True).around(
        dict(enumerate(codes.T)), len(codes)
    ):
        number[some] = np.bitwise_count(within).sum(axis=1)
    return number
