"""Tables of all persons, as sums over the places of a household of its records' tables.

A person is in one place of one household. So the number of persons with some codes of their own
columns and of their household's is the sum over the places of the households that have these codes
there, and what is asked of households only counts once for every person, by their number. Each is
linear in the combined tables of households, so it is unbiased and its noise is known exactly, with
the covariances of places that share a table's residuals (statpress.mechanisms.marginals.residuals).

The tables of every place have noise of their own: that of a count of persons is as large however
few of them live in the last places.

**For a population** households are drawn, with all their persons. Sums F_i that are 0 in it have
the covariances E sum over households h of T_hi T_hj, with T_hi the sum of f_i over the persons of
h. That is the sum over pairs of places p, q of f_i(x_p) f_j(x_q): for p = q of a table of persons,
else of the table of both places' columns, if it was measured and is clear of its noise: what that
adds to the sum of f(x_p) f(x_q), of which a cell has the variance v_pq, has a standard deviation
near 2 sqrt(sum over p < q of v_pq) sum over cells of f^2. That has to be small compared with the
sum of f^2 over the persons, if each cell had as many. If not, then since for every combination f of
the f_i

    2 f(x_p) f(x_q) <= f(x_p)^2 + f(x_q)^2,

the pair of places adds at most the products in both, over the households in which both are present.
So the variance of every combination is exact or too large: at most as if all persons of a household
were alike.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from statpress.mechanisms.domain.columns import Slot
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.marginals.linear_moments import CellFunction
from statpress.mechanisms.marginals.presence import Presence
from statpress.mechanisms.marginals.residuals import Residuals, products_over
from statpress.mechanisms.marginals.target_tables import Floats, Group

_CLEAR = 0.05
"""Largest deviation of what two persons add to a variance, by what each adds."""


@dataclass(frozen=True, eq=False)
class PersonResiduals(Residuals):
    """Combined tables whose records are persons.

    ``sizes`` are those of the persons' columns; ``values`` and ``variances`` those of the residuals
    of households, by positions in a household's record, as are the parts of ``weights_by_part``.

    Attributes:
        households: The combined tables of households.
        size: Position of the number of persons in a household's record.
        places: Of each place the positions there of all columns that a person has.
        persons: Positions of the columns of persons themselves; others are of their household.
    """

    households: Residuals
    size: int
    places: tuple[Group, ...]
    persons: frozenset[int]

    @classmethod
    def of(cls, households: Residuals, domain: Domain) -> tuple[Domain, Self]:
        """The columns that a person has, those of the household first, and their tables.

        Args:
            households: The combined tables.
            domain: The columns of a household's record, those of persons among them.
        """
        presence = Presence.of(domain)
        assert presence is not None
        own = [c for c in range(len(domain.columns)) if c not in presence.columns]
        slots = [domain.columns[c] for c in presence.places[0]]
        columns = Domain(
            (
                *(domain.columns[c] for c in own),
                *(slot.of for slot in slots if isinstance(slot, Slot)),
            )
        )
        tables = cls(
            tuple(column.size for column in columns.columns),
            households.values,
            households.variances,
            households,
            presence.size,
            tuple((*own, *place) for place in presence.places),
            frozenset(range(len(own), len(columns.columns))),
        )
        return columns, tables

    def holds(self, group: Group) -> bool:
        """Whether these columns were measured together in every place."""
        return all(self.households.holds(placed) for placed in self._in_places(group))

    def table(self, group: Group) -> Floats:
        """The estimated number of persons in each cell; unbiased, so cells may be negative."""
        if not self._of_persons(group):
            (whole,) = self._in_places(group)
            table = self.households.table(whole) * self._number.along(whole)
            own = [self.places[0][column] for column in group]
            return np.asarray(table.sum(axis=tuple(i for i, c in enumerate(whole) if c not in own)))
        there = tuple(slice(0, self.sizes[column]) for column in group)
        tables = [self.households.table(placed)[there] for placed in self._in_places(group)]
        return np.asarray(np.sum(tables, axis=0))

    def table_variance(self, group: Group) -> float:
        """Variance of one cell of ``table``, in squared persons; the same for all cells."""
        cell = np.zeros([self.sizes[column] for column in group])
        cell[(0,) * cell.ndim] = 1.0
        return self.query_variance(group, cell)

    def weights_by_part(self, group: Group, weights: Floats) -> dict[Group, tuple[Floats, int]]:
        """What a sum over persons takes of every residual of households."""
        if self._of_persons(group):
            absent = [(0, int(column in self.persons)) for column in group]
            weights = np.pad(weights, absent)
        else:
            own = tuple(self.places[0][column] for column in group)
            weights = (CellFunction(own, weights) * self._number).values
        found: dict[Group, Floats] = {}
        for placed in self._in_places(group):
            parts = self.households.weights_by_part(placed, weights)
            for part, (undivided, cells) in parts.items():
                found[part] = found.get(part, 0.0) + undivided / cells
        return {part: (each, 1) for part, each in found.items()}

    @property
    def unit_records(self) -> int:
        return len(self.places)

    @property
    def sampled_by(self) -> str:
        return "households, with persons alike where no table of two is clear of its noise"

    def products(self, group: Group, rows: Floats) -> Floats:
        """Those of households' totals over their persons, or in all combinations more."""
        if not self._of_persons(group):
            (whole,) = self._in_places(group)
            own = tuple(self.places[0][column] for column in group)
            number = (self._number * self._number).along(whole)
            rest = tuple(i for i, column in enumerate(whole) if column not in own)
            return products_over((self.households.table(whole) * number).sum(axis=rest), rows)
        shared = [column for column in group if column not in self.persons]
        shape = [self.sizes[column] for column in group]
        of_shared = math.prod(shape[: len(shared)])
        rows = rows.reshape(len(rows), of_shared, -1)
        alone = self.table(group)
        crossed = np.zeros((len(rows), len(rows)))
        placed = self._in_places(group)
        pairs = {
            (p, q): tuple(sorted({*placed[p], *placed[q]}))
            for p, q in itertools.combinations(range(len(placed)), 2)
        }
        held = {pair: both for pair, both in pairs.items() if self.households.holds(both)}
        noise = 2 * math.sqrt(sum(map(self.households.table_variance, held.values())))
        clear = noise * math.prod(shape) <= _CLEAR * float(self.table(()))
        for (p, q), both in pairs.items():
            if clear and (p, q) in held:
                there = tuple(slice(0, n) for n in (*shape, *shape[len(shared) :]))
                table = self.households.table(both)[there].reshape(of_shared, *[rows.shape[2]] * 2)
                crossed += np.einsum("isa,sab,jsb->ij", rows, table, rows, optimize=True)
            else:
                alone = alone + self._in_place(group, p, beside=q) + self._in_place(group, q)
        return products_over(alone, rows) + crossed + crossed.T

    def _in_place(self, group: Group, place: int, beside: int | None = None) -> Floats:
        """The persons in a place, and perhaps in households with another place or, else, in all."""
        there = tuple(slice(0, self.sizes[column]) for column in group)
        own = tuple(self.places[place][column] for column in group)
        whole = tuple(sorted({*own, self.size}))
        if beside is None or not self.households.holds(whole):
            return self.households.table(own)[there]
        large = (np.arange(self.households.sizes[self.size]) > beside).astype(float)
        table = self.households.table(whole) * CellFunction((self.size,), large).along(whole)
        rest = tuple(i for i, column in enumerate(whole) if column not in own)
        return np.asarray(table.sum(axis=rest)[there])

    def _of_persons(self, group: Group) -> bool:
        return not self.persons.isdisjoint(group)

    @property
    def _number(self) -> CellFunction:
        """How many persons a household counts for."""
        return CellFunction((self.size,), np.arange(self.households.sizes[self.size], dtype=float))

    def _in_places(self, group: Group) -> list[Group]:
        """The columns of households that hold a person's, in every place that it takes."""
        if self._of_persons(group):
            return [tuple(place[column] for column in group) for place in self.places]
        return [tuple(sorted({*(self.places[0][column] for column in group), self.size}))]
