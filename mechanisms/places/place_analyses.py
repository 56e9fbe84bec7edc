"""Figures of any place of a geography, and of places together, from the tables of all of them.

A union of places has residuals of its own, estimated with an exact variance
(mechanisms.places.estimates), so that everything that can be asked of one noisy release
(mechanisms.marginals.analyses) can be asked of it. A condition on a level takes the places of that
level with one of its codes; conditions on several levels take what lies in all.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.errors import QueryError
from statpress.mechanisms.marginals.analyses import Analyses, Kept
from statpress.mechanisms.marginals.linear_moments import Interval
from statpress.mechanisms.marginals.residuals import Residuals
from statpress.mechanisms.places.estimates import PlaceEstimates
from statpress.mechanisms.places.tree import Tree


def leaves_of(tree: Tree, where: Kept) -> NDArray[np.bool_]:
    """bool[places of the last level]: those that lie in a place of every condition on a level."""
    inside = np.ones(1, dtype=bool)
    for level, name in enumerate(tree.levels):
        if level:
            inside = inside[tree.parents[level - 1]]
        if name in where:
            own = np.zeros(tree.sizes[level], dtype=bool)
            own[list(where[name])] = True
            inside = inside & own
    return inside


@dataclass(frozen=True, eq=False, kw_only=True)
class PlaceAnalyses(Analyses):
    """Questions to tables of places; ``residuals`` are those of the root.

    Attributes:
        estimates: All tables combined.
    """

    estimates: PlaceEstimates
    _unions: dict[bytes, Residuals] = field(default_factory=dict, repr=False)

    def at(self, where: Kept) -> tuple[Analyses, Kept]:
        """The tables of the places that meet the conditions on levels, and the other conditions."""
        chosen = leaves_of(self.estimates.tree, where)
        key = np.packbits(chosen).tobytes()
        if key not in self._unions:
            self._unions[key] = self.estimates.union(chosen)
        own = Analyses(domain=self.domain, residuals=self._unions[key], confidence=self.confidence)
        levels = self.estimates.tree.levels
        return own, {name: codes for name, codes in where.items() if name not in levels}

    def mean(self, name: str, where: Kept) -> Interval:
        own, rest = self.at(where)
        return own.mean(self._column(name), rest)

    def total(self, name: str, where: Kept) -> Interval:
        own, rest = self.at(where)
        return own.total(self._column(name), rest)

    def count(self, where: Kept) -> Interval:
        own, rest = self.at(where)
        return own.count(rest)

    def share(self, name: str, codes: Collection[int], where: Kept) -> Interval:
        own, rest = self.at(where)
        return own.share(self._column(name), codes, rest)

    def quantile(self, name: str, share: float, where: Kept) -> Interval:
        own, rest = self.at(where)
        return own.quantile(self._column(name), share, rest)

    def correlation(self, one: str, other: str, where: Kept) -> Interval:
        own, rest = self.at(where)
        return own.correlation(self._column(one), self._column(other), rest)

    def difference(
        self, name: str, one: Kept, other: Kept, codes: Collection[int] | None = None
    ) -> Interval:
        if not np.array_equal(
            leaves_of(self.estimates.tree, one), leaves_of(self.estimates.tree, other)
        ):
            raise QueryError(
                "Differences between places are not answered: their errors are related.",
                next_step="Compare values of another column within places, with --where.",
            )
        (own, first), (_, second) = self.at(one), self.at(other)
        return own.difference(self._column(name), first, second, codes)

    def _column(self, name: str) -> str:
        """A column that a figure can be of.

        Raises:
            QueryError: It is a level of places.
        """
        if name in self.estimates.tree.levels:
            raise QueryError(
                f"'{name}' is a level of places, of which there are only counts.",
                where=name,
                next_step=f"Ask for counts, with --columns {name}.",
            )
        return name
