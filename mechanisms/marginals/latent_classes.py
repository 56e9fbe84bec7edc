"""What the pairs of columns say of each other: a mixture of classes fitted to all of them at once.

The fitted pairs are taken for those of a population of classes within which columns are
independent (Lazarsfeld and Henry 1968). Expectation maximisation on all pairs together, as if their
cells were counts, gives the classes; what no class has in common with other pairs is noise, for the
most part. It is run from several starts and averaged.

No table is replaced by it. With D^2 the squared distance between a pair's denoised table and that
of the classes, and V the squared error that the former is expected to have, the classes' error is
about D^2 - V, so that they would get the weight V / D^2 if both were independent estimates. They
were fitted to the same noise and get half of it, at most a half, which was best or near it on six
public tables.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from statpress.mechanisms.marginals.target_tables import Floats, Group

MOST_CODES, MOST_CELLS = 128, 1536
"""Codes of a column, and of all columns together, that the classes describe."""
_FEWEST, _MOST, _PER_CELL = 40, 120, 7  # classes
_STARTS, _ROUNDS = 3, 100
_WEIGHT, _MOST_WEIGHT = 0.5, 0.5


def smoothed_by_classes(
    one_way: Sequence[Floats],
    pairs: Mapping[Group, Floats],
    errors: Mapping[Group, float],
    rng: np.random.Generator,
) -> dict[Group, Floats]:
    """Pairs drawn towards the classes, as shares; margins are met nearly.

    Args:
        one_way: Shares of every column's cells.
        pairs: Shares of all pairs.
        errors: Of measured pairs, the sum of the squared errors of their shares; others stay.
        rng: Public.
    """
    described = _described([len(p) for p in one_way])
    inside = {pair: table for pair, table in pairs.items() if set(pair) <= set(described)}
    if len(described) < 3 or not set(inside) & set(errors):
        return dict(pairs)
    places = {column: place for place, column in enumerate(described)}
    by_place: dict[Group, Floats] = {
        (places[a], places[b]): table for (a, b), table in inside.items()
    }
    fitted = [
        _of_classes([one_way[column] for column in described], by_place, rng)
        for _ in range(_STARTS)
    ]
    smoothed = dict(pairs)
    for pair in inside:
        if pair in errors:
            place = places[pair[0]], places[pair[1]]
            classes = sum(each[place] for each in fitted) / _STARTS
            distance = float(((classes - pairs[pair]) ** 2).sum())
            weight = min(_MOST_WEIGHT, _WEIGHT * errors[pair] / max(distance, 1e-300))
            smoothed[pair] = (1 - weight) * pairs[pair] + weight * classes
    return smoothed


def _described(sizes: Sequence[int]) -> list[int]:
    """The columns that the classes describe: all, or the ones of fewest codes."""
    described, cells = [], 0
    for column in sorted(range(len(sizes)), key=lambda column: (sizes[column], column)):
        cells += sizes[column]
        if sizes[column] <= MOST_CODES and cells <= MOST_CELLS:
            described.append(column)
    return sorted(described)


def _of_classes(
    one_way: Sequence[Floats], pairs: Mapping[Group, Floats], rng: np.random.Generator
) -> dict[Group, Floats]:
    """The pairs of a mixture of classes near to these."""
    ends = np.cumsum([0] + [len(p) for p in one_way])
    parts = [slice(first, last) for first, last in itertools.pairwise(ends)]
    observed = np.zeros((ends[-1], ends[-1]))
    for (a, b), table in pairs.items():
        observed[parts[a], parts[b]] = table
        observed[parts[b], parts[a]] = table.T
    n_classes = min(_MOST, _FEWEST + int(ends[-1]) // _PER_CELL)
    given = np.concatenate(one_way)[:, None] + 1e-9
    given = given * rng.gamma(2.0, 0.5, (len(given), n_classes))
    given /= np.repeat(np.add.reduceat(given, ends[:-1]), np.diff(ends), axis=0)
    weights = np.full(n_classes, 1 / n_classes)
    for _ in range(_ROUNDS):
        joint = given * weights
        counts = given * ((observed / (joint @ given.T + 1e-15)) @ joint)
        weights = counts.sum(axis=0)
        weights /= weights.sum()
        totals = np.add.reduceat(counts, ends[:-1])
        given = counts / np.repeat(np.maximum(totals, 1e-300), np.diff(ends), axis=0)
    fitted = (given * weights) @ given.T
    return {(a, b): fitted[parts[a], parts[b]] for a, b in pairs}
