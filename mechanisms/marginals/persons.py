"""Tables of all persons, as sums over the places of a household of its records' tables.

A person is in one place of one household. So the number of persons with some codes of their own
columns and of their household's is the sum over the places of the households that have these codes
there, and what is asked of households only counts once for every person, by their number. Each is
linear in the combined tables of households, so it is unbiased and its noise is known exactly, with
the covariances of places that share a table's residuals (statpress.mechanisms.marginals.residuals).

The tables of every place have noise of their own: that of a count of persons is as large however
few of them live in the last places.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from statpress.mechanisms.domain.columns import Slot
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.marginals.linear_moments import CellFunction
from statpress.mechanisms.marginals.presence import Presence
from statpress.mechanisms.marginals.residuals import Residuals
from statpress.mechanisms.marginals.target_tables import Floats, Group


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
