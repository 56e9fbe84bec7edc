"""Places of records, which another product of the release tells.

Records of a nation are fitted to its tables, without their places: a column of thousands of places
would have pairs that are all noise. What gives a record its place is in ``mechanisms.places``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Column
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.marginals.residuals import NoisyTable
from statpress.mechanisms.marginals.target_tables import Integers


@dataclass(frozen=True)
class PlacedBy:
    """Where the places of a product's records come from.

    Attributes:
        product: Name of the product whose tables of places tell them.
        column: The column of places, which is published as the last of the records' columns.
    """

    product: str
    column: Column

    def added_to(self, domain: Domain) -> Domain:
        """The columns of the records with that of their places behind."""
        return replace(domain, columns=(*domain.columns, self.column))


class Placing(Protocol):
    """What gives places to records, by public tables."""

    def whole(self, domain: Domain) -> Iterator[NoisyTable]:
        """Tables of single columns of a domain, to fit the records to before they have places."""

    def codes(self, domain: Domain, codes: Sequence[NDArray[Any]]) -> Integers:
        """int64[n]: the code of each record's place, given its codes in the columns of a domain."""
