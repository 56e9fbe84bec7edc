"""Records from the tables of a model."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.marginals.model import Model
from mechanisms.marginals.released import KnownTotals
from mechanisms.postprocessing.rounding import round_to_total
from mechanisms.records.fitting import fit_triple
from mechanisms.records.impossible import Box, possible_cells
from mechanisms.records.repair import make_possible
from mechanisms.records.start_records import start_records, tree
from mechanisms.records.swaps import Enough, swap_towards
from mechanisms.records.target_table import Floats, Group, Integers, TargetTable

UNMEASURED_WEIGHT, TRIPLE_WEIGHT = 0.296875, 0.5
NEAR_ENOUGH = 0.01
"""Of the squared error of the targets: records that are nearer would only fit their noise."""
MANY, GAIN_OF_MANY, NEAR_OF_MANY = 2**19, 0.1, 0.05
"""So many records are near enough at this part of the squared error of the targets, once a sweep
lowers the distance by less than that gain.

One million records published of ten million, 15 columns: measured pairs are then at 2% of the
squared error of their targets, after 5 sweeps; 10 more would leave 1.4%.
"""
_FINE = 2**24
MOST_TRIPLES, MOST_TRIPLE_CELLS = 200, 20_000


def synthesise(
    model: Model,
    n_records: int,
    rng: np.random.Generator,
    *,
    boxes: Sequence[Box] = (),
    known: KnownTotals | None = None,
    sweeps: int = 15,
    floor: float | None = None,
) -> NDArray[Any]:
    """Codes unsigned[n_records, d] near to the model's tables.

    Args:
        model: The tables.
        n_records: How many to make.
        rng: Public.
        boxes: Structural zeros.
        known: Tables that are met exactly.
        sweeps: At most.
        floor: Squared distance at which to stop; by default what the targets' errors leave.
    """
    known = known or {}
    m = n_records
    one_way = [one_way_counts(p, m) for p in model.one_way]
    pairs = {pair: _steady(table * m) for pair, table in model.pairs.items()}
    largest = max(len(p) for p in one_way)
    dtype = np.dtype(np.uint8 if largest <= 2**8 else np.uint16 if largest <= 2**16 else np.uint32)
    exact: dict[Group, Integers] = {pair: table for pair, table in known.items() if len(pair) == 2}
    edges = tree(len(one_way), pairs, exact)
    codes = start_records(one_way, edges, pairs, exact, dtype, rng)
    error = sum(model.errors.values()) * m**2
    make_possible(codes, boxes, model.one_way, tuple(known), rng)
    swap_towards(
        codes,
        targets(model, m, known, boxes),
        rng,
        boxes=boxes,
        tied=tuple(exact),
        sweeps=sweeps,
        floor=NEAR_ENOUGH * error if floor is None else floor,
        enough=Enough(GAIN_OF_MANY, NEAR_OF_MANY * error) if m >= MANY else None,
    )
    return codes


def _steady(table: Floats) -> Floats:
    """Rounded to 2**-24, so that the last digits of other machines' arithmetic do not matter."""
    return np.asarray(np.rint(table * _FINE) / _FINE)


def one_way_counts(p: Floats, m: int) -> Integers:
    """Integers that add up to m and are nearest to a column's parts of it, int64[K].

    The parts are steadied as above, and what that leaves, half of 2**-24 for each cell at most,
    goes to the largest of them, so that they add up to m exactly whatever the number of cells.

    Args:
        p: Of each cell, float64[K], at least 0 and not all 0; with any sum.
        m: How many records.
    """
    parts = np.rint(p * (m / p.sum()) * _FINE).astype(np.int64)
    largest = np.argsort(-parts, kind="stable")[: np.count_nonzero(parts)]
    each, more = divmod(m * _FINE - int(parts.sum()), len(largest))
    parts[largest] += each
    parts[largest[:more]] += 1
    return round_to_total(parts / _FINE, m)


def targets(
    model: Model, m: int, known: Mapping[Group, Any], boxes: Sequence[Box]
) -> list[TargetTable]:
    """All pairs that are not known, and the strongest triples."""
    found = []
    for pair, table in model.pairs.items():
        if pair not in known:
            measured = pair in model.residuals.values
            found.append(TargetTable(pair, table * m, 1.0 if measured else UNMEASURED_WEIGHT))
    found += [TargetTable(g, table * m, 1.0) for g, table in model.groups.items()]
    for group, table in triples(model).items():
        possible = possible_cells(group, model.residuals.sizes, boxes)
        found.append(TargetTable(group, table * possible * m, TRIPLE_WEIGHT))
    return found


def triples(model: Model) -> dict[Group, Floats]:
    """Maximum-entropy tables of the triples whose pairs are strongest."""
    strength = {}
    for (a, b), table in model.pairs.items():
        independent = np.multiply.outer(model.one_way[a], model.one_way[b])
        strength[a, b] = float(np.abs(table - independent).sum())
    columns = range(len(model.one_way))
    sizes = [len(p) for p in model.one_way]
    ranked = []
    for a, b, c in itertools.combinations(columns, 3):
        if any({a, b, c} <= set(group) for group in model.groups):
            continue
        if sizes[a] * sizes[b] * sizes[c] <= MOST_TRIPLE_CELLS:
            three = sorted((strength[a, b], strength[a, c], strength[b, c]))
            ranked.append((-round(three[1] * three[2], 12), (a, b, c)))
    ranked.sort()
    return {
        (a, b, c): fit_triple([model.pairs[a, b], model.pairs[a, c], model.pairs[b, c]])
        for _, (a, b, c) in ranked[:MOST_TRIPLES]
    }
