"""What the pairs of columns say of each other: a mixture of classes fitted to all of them at once.

The fitted pairs are taken for those of a population of classes within which columns are
independent (Lazarsfeld and Henry 1968). Expectation maximisation on all pairs together, as if their
cells were counts, gives the classes; what no class has in common with other pairs is noise, for the
most part. It is run from several starts and averaged.

**Pairs** are drawn towards the classes. With D^2 the squared distance between a pair's denoised
table and that of the classes, and V the squared error that the former is expected to have, the
classes' error is about D^2 - V, so that they would get the weight V / D^2 if both were independent
estimates. They were fitted to the same noise and get half of it, at most a half, which was best or
near it on six public tables.

**Larger groups.** Classes also have tables of three columns and more, of which pairs say nothing by
themselves: the table of maximum entropy given its pairs has no interaction of three columns. On
``adult`` at epsilon 1 and 3 the interactions of the classes, fitted to noisy pairs only, are 0.3 of
the true ones along these, with 0.7 of the squared error that leaving them out has. Few starts
invent interactions, which averages of more do not.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from threadpoolctl import threadpool_limits

from statpress.mechanisms.marginals.target_tables import Floats, Group

MOST_CODES, MOST_CELLS = 128, 1536
"""Codes of a column, and of all columns together, that the classes describe."""
_FEWEST, _MOST, _PER_CELL = 60, 150, 2  # classes
_MOST_STARTS, _FEWEST_STARTS, _CODES_OF_ALL = 8, 2, 4000
_ROUNDS, _LARGE = 100, 400
_LEAST = np.float32(1e-30)  # of a class within a column
_AT_ONCE = 1 << 21  # cells of a table, but for its last column, times classes
_FITTED_AT_ONCE = 1 << 14  # pairs of codes times starts: of small tables, calls take the time
_WEIGHT, _MOST_WEIGHT = 0.5, 0.5


@dataclass(frozen=True, eq=False)
class LatentClasses:
    """Mixtures of classes, one from each start.

    Attributes:
        columns: Positions of the columns that the classes describe.
        fits: For each start the classes' weights float64[V], and for each of the columns the
            shares of its codes within each class, float64[k, V].
    """

    columns: Group
    fits: tuple[tuple[Floats, tuple[Floats, ...]], ...]

    @classmethod
    def of(
        cls, one_way: Sequence[Floats], pairs: Mapping[Group, Floats], rng: np.random.Generator
    ) -> Self:
        """The classes of pairs.

        Args:
            one_way: Shares of every column's cells.
            pairs: Shares of pairs; without any there are no classes. Of pairs that are left out
                only the one-ways are fitted, so that they follow from the others.
            rng: Public.
        """
        columns = _described([len(p) for p in one_way])
        if len(columns) < 3 or not pairs:
            return cls((), ())
        inside: dict[Group, Floats] = {
            (i, j): pairs[columns[i], columns[j]]
            for i, j in itertools.combinations(range(len(columns)), 2)
            if (columns[i], columns[j]) in pairs
        }
        described = [one_way[column] for column in columns]
        starts = _CODES_OF_ALL // sum(map(len, described))
        starts = min(max(starts, _FEWEST_STARTS), _MOST_STARTS)
        with threadpool_limits(1):  # more of them wait for each other: the matrices are small
            _multiply_once()
            fits = tuple(_fitted(described, inside, starts, rng))
        return cls(tuple(columns), fits)

    def describe(self, group: Group) -> bool:
        """Whether all columns of a group are described."""
        return set(group) <= set(self.columns)

    def table(self, group: Group, *, at_once: int = _AT_ONCE) -> Floats:
        """Shares of a described group's cells, on average over the starts."""
        places = [self.columns.index(column) for column in group]
        total: Floats = np.zeros(())
        for weights, given in self.fits:
            *first, last = (given[place] for place in places)
            some = max(1, at_once // math.prod(map(len, first)))
            for block in range(0, len(weights), some):
                inside = slice(block, block + some)
                joint = weights[inside]
                for shares in first:
                    joint = joint[..., None, :] * shares[:, inside]
                total = total + joint @ last[:, inside].T
        return total / len(self.fits)

    def smoothed(
        self, pairs: Mapping[Group, Floats], errors: Mapping[Group, float]
    ) -> dict[Group, Floats]:
        """Pairs drawn towards the classes, as shares; margins are met nearly.

        Args:
            pairs: Shares of all pairs.
            errors: Of measured pairs, the sum of the squared errors of their shares; others stay.
        """
        smoothed = dict(pairs)
        for pair, error in errors.items():
            if self.describe(pair):
                table = self.table(pair)
                distance = float(((table - pairs[pair]) ** 2).sum())
                weight = min(_MOST_WEIGHT, _WEIGHT * error / max(distance, 1e-300))
                smoothed[pair] = (1 - weight) * pairs[pair] + weight * table
        return smoothed


def _described(sizes: Sequence[int]) -> list[int]:
    """The columns that the classes describe: all, or the ones of fewest codes."""
    described, cells = [], 0
    for column in sorted(range(len(sizes)), key=lambda column: (sizes[column], column)):
        cells += sizes[column]
        if sizes[column] <= MOST_CODES and cells <= MOST_CELLS:
            described.append(column)
    return sorted(described)


@functools.cache
def _multiply_once() -> None:
    """Multiply matrices larger than those to come.

    OpenBLAS 0.3 takes a third of the time for products of some hundred rows in single precision
    once it has made a larger one in the process.
    """
    large = np.ones((_LARGE, _LARGE), dtype=np.float32)
    np.matmul(large, large)


def _fitted(
    one_way: Sequence[Floats], pairs: Mapping[Group, Floats], starts: int, rng: np.random.Generator
) -> Iterator[tuple[Floats, tuple[Floats, ...]]]:
    """From each start the weights of classes near to these pairs, and the shares within each.

    In single precision, whose errors are far below the noise that pairs have.
    """
    sizes = [len(p) for p in one_way]
    ends = np.cumsum([0, *sizes])
    column_of = np.repeat(np.arange(len(sizes)), sizes)
    parts = [slice(first, last) for first, last in itertools.pairwise(ends)]
    observed = np.zeros((ends[-1], ends[-1]), dtype=np.float32)
    left_open = np.ones(observed.shape, dtype=np.bool_)
    for part in parts:
        left_open[part, part] = False
    for (a, b), table in pairs.items():
        observed[parts[a], parts[b]] = table
        observed[parts[b], parts[a]] = table.T
        left_open[parts[a], parts[b]] = left_open[parts[b], parts[a]] = False
    given_all = not left_open.any()
    n_classes = min(_MOST, _FEWEST + int(ends[-1]) // _PER_CELL)
    shares = np.concatenate(one_way).astype(np.float32)
    at_once = max(1, _FITTED_AT_ONCE // observed.size)
    for first in range(0, starts, at_once):
        some = min(at_once, starts - first)
        given = shares[:, None] + 1e-9
        given = given * rng.gamma(2.0, 0.5, (some, len(given), n_classes)).astype(np.float32)
        given /= np.add.reduceat(given, ends[:-1], axis=1)[:, column_of]
        weights = np.full((some, 1, n_classes), 1 / n_classes, dtype=np.float32)
        for _ in range(_ROUNDS):
            joint = given * weights
            expected = joint @ given.swapaxes(1, 2)
            expected += 1e-15
            ratios = observed / expected
            if not given_all:
                by_code = shares / (joint.sum(axis=2) + 1e-15)
                ratios = np.where(left_open, by_code[:, :, None] * by_code[:, None], ratios)
            counts = given * (ratios @ joint)
            weights = counts.sum(axis=1, keepdims=True)
            weights /= weights.sum(axis=2, keepdims=True)
            totals = np.maximum(np.add.reduceat(counts, ends[:-1], axis=1), _LEAST)
            given = counts / totals[:, column_of]
        for own, within in zip(
            *(x.astype(np.float64) for x in (weights[:, 0], given)), strict=True
        ):
            yield own, tuple(within[part] for part in parts)
