"""Households of a size with as many persons, in the tables of a release and in its records.

The record of a household has columns for a number of places (``mechanisms.domain.columns.Slot``),
and a place has a person exactly if the household is that large. So the table of the sizes and those
of all columns of persons measure the same numbers: of households below each size. They are combined
by inverse variances, and every column of a place has as many persons.

Records begin with the households' own columns, drawn along a tree. Then the places are filled in
turn, for the households that are that large: each column given the one before it, of the household
or of its persons, that it depends on most. So sizes and persons agree before the first swap, and no
swap parts them.

Source: ``kind: linked`` releases a household with all its persons as one record, of which each has
one cell in every table; so a table moves by 2 in squared norm, however many persons there are
(mechanisms/README.md, section 8, with one record a unit).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Slot
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.marginals.fitting import fit_pair, integer_table
from statpress.mechanisms.marginals.target_tables import Floats, Group, Integers
from statpress.mechanisms.postprocessing.consistency import project_to_simplex


@dataclass(frozen=True)
class Presence:
    """Which columns of a domain are of persons.

    Attributes:
        size: Position of the column with the number of persons.
        places: Of every place its columns' positions.
    """

    size: int
    places: tuple[Group, ...]

    @classmethod
    def of(cls, domain: Domain) -> Presence | None:
        """That of a domain with persons and their number, otherwise None."""
        places: dict[int, list[int]] = {}
        size = None
        for position, column in enumerate(domain.columns):
            if isinstance(column, Slot) and column.size_name in domain.names:
                places.setdefault(column.place, []).append(position)
                size = domain.names.index(column.size_name)
        if size is None:
            return None
        most = domain.columns[size].size - 1
        return cls(size, tuple(tuple(places.get(place, ())) for place in range(1, most + 1)))

    @property
    def columns(self) -> frozenset[int]:
        """Positions of all columns of persons."""
        return frozenset(column for place in self.places for column in place)

    def agreeing(
        self, shares: Sequence[Floats], measured: Sequence[Floats], variances: Sequence[float]
    ) -> tuple[Floats, ...]:
        """Shares in which the sizes and all columns of a place have as many persons.

        Args:
            shares: Of every column's cells, float64[k].
            measured: The same before they were made non-negative.
            variances: Of the noise of a cell, in squared shares.
        """
        own = _precision(variances[self.size])
        precisions = own * np.eye(len(measured[self.size]))
        wanted = own * measured[self.size]
        for place, columns in enumerate(self.places, 1):
            for column in columns:
                precision = _precision(variances[column])
                precisions[:place, :place] += precision
                wanted[:place] += precision * measured[column][-1]
        # Sizes that add up to 1, by a multiplier.
        ones = np.ones((len(wanted), 1))
        system = np.block([[precisions / own, ones], [ones.T, np.zeros((1, 1))]])
        solved = np.linalg.solve(system, np.append(wanted / own, 1.0))[:-1]
        sizes = project_to_simplex(solved, 1.0).values
        agreeing = list(shares)
        agreeing[self.size] = sizes
        for place, columns in enumerate(self.places, 1):
            absent = float(sizes[:place].sum())
            for column in columns:
                present = shares[column][:-1]
                total = float(present.sum())
                even = np.full(len(present), 1 / len(present))
                scaled = present / total if total > 0 else even
                agreeing[column] = np.append((1 - absent) * scaled, absent)
        return tuple(agreeing)

    def counts(self, one_way: Sequence[Integers]) -> list[Integers]:
        """Counts of every column in which a place has as many persons as households are large."""
        agreeing = list(one_way)
        sizes = one_way[self.size]
        for place, columns in enumerate(self.places, 1):
            present = int(sizes[place:].sum())
            for column in columns:
                counts = one_way[column][:-1]
                if counts.sum() == 0:
                    counts = np.ones_like(counts)
                parts = counts.astype(np.float64) * (present / int(counts.sum()))
                agreeing[column] = np.append(_rounded(parts, present), sizes[:place].sum())
        return agreeing

    def parents(self, pairs: Mapping[Group, Floats], n_columns: int) -> list[tuple[int, int]]:
        """Of every column of persons, place by place, the earlier column that says most of it."""
        earlier = [column for column in range(n_columns) if column not in self.columns]
        found = []
        for place in self.places:
            for column in place:
                strength = {
                    other: _information(_table(pairs, other, column)[:, :-1]) for other in earlier
                }
                best = max(strength, key=lambda other: (round(strength[other], 6), -other))
                found.append((best, column))
                earlier.append(column)
        return found

    def fill_places(
        self,
        codes: NDArray[Any],
        one_way: Sequence[Integers],
        pairs: Mapping[Group, Floats],
        rng: np.random.Generator,
    ) -> None:
        """Give every household its persons, in place; the columns of households are there.

        Args:
            codes: unsigned[m, d], changed in the columns of persons.
            one_way: Counts of every column, as ``Presence.counts`` makes them agree.
            pairs: Wanted tables of pairs, in records.
            rng: Public.
        """
        sizes = codes[:, self.size].astype(np.int64)
        edges = {child: parent for parent, child in self.parents(pairs, codes.shape[1])}
        for place, columns in enumerate(self.places, 1):
            there = np.flatnonzero(sizes >= place)
            for column in columns:
                counts = one_way[column]
                codes[:, column] = len(counts) - 1
                if not len(there):
                    continue
                parent = edges[column]
                own = codes[there, parent].astype(np.int64)
                rows = np.bincount(own, minlength=len(one_way[parent]))
                wanted = np.maximum(_table(pairs, parent, column)[:, :-1], 0.0)
                every = np.ones(wanted.shape, dtype=np.bool_)
                margins = rows.astype(np.float64), counts[:-1].astype(np.float64)
                table = integer_table(fit_pair(wanted, *margins, every), rows, counts[:-1])
                values = np.repeat(np.tile(np.arange(table.shape[1]), len(table)), table.ravel())
                ends = np.cumsum(table.sum(axis=1))
                for part in np.split(values, ends[:-1]):
                    rng.shuffle(part)
                order = rng.permutation(len(there))
                order = order[np.argsort(own[order], kind="stable")]
                codes[there[order], column] = values

    def move_in(self, codes: NDArray[Any], sizes: Sequence[int], rng: np.random.Generator) -> None:
        """Make persons agree with the new sizes of households, in place.

        The last persons of a household that has become smaller are gone; new ones are as those in
        the same place of some other household.

        Args:
            codes: unsigned[m, d], changed in the columns of persons.
            sizes: Of every column its number of cells, of which the last is that of nobody.
            rng: Public.
        """
        persons = codes[:, self.size].astype(np.int64)
        for place, columns in enumerate(self.places, 1):
            if not columns:
                continue
            there = persons >= place
            had = codes[:, columns[0]] != sizes[columns[0]] - 1
            new, others = np.flatnonzero(there & ~had), np.flatnonzero(there & had)
            like = rng.choice(others, len(new)) if len(others) else None
            for column in columns:
                codes[had & ~there, column] = sizes[column] - 1
                codes[new, column] = 0 if like is None else codes[like, column]


def _precision(variance: float) -> float:
    """One over a variance; of what is known exactly a large number."""
    return 1 / max(variance, 1e-18)


def _rounded(parts: Floats, total: int) -> Integers:
    """Whole numbers of a sum, nearest to parts by their largest remainders."""
    whole = np.floor(parts).astype(np.int64)
    order = np.argsort(-(parts - whole).round(9), kind="stable")
    whole[order[: total - int(whole.sum())]] += 1
    return whole


def _table(pairs: Mapping[Group, Floats], one: int, other: int) -> Floats:
    """The table of two columns, those of the first in rows."""
    return pairs[one, other] if one < other else pairs[other, one].T


def _information(table: Floats) -> float:
    """Mutual information of a non-negative table, in nats times its total."""
    total = float(table.sum())
    if not total:
        return 0.0
    independent = np.multiply.outer(table.sum(axis=1), table.sum(axis=0)) / total
    positive = table > 0
    return math.fsum(table[positive] * np.log(table[positive] / independent[positive]))
