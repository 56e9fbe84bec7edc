"""A column of places with who lies in whom, all of it public."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.places.outlines import Outlines
from statpress.mechanisms.places.tree import Places, Tree


@dataclass(frozen=True, eq=False)
class Geography:
    """A column of a domain whose categories are the places of a tree without places in them.

    Attributes:
        column: Name of the column.
        tree: The places; the last level also has those that end further up, once more.
        leaves: int64[codes]: by code of the column its place of the last level.
        names: By level the names of its places, for people.
        sizes: Public sizes float64[n] of the places of the last level; None if none are known.
        exact: Whether the sizes are the numbers of records, and not only about in proportion.
        outlines: For a map; None without one.
    """

    column: str
    tree: Tree
    leaves: Places
    names: tuple[tuple[str, ...], ...]
    sizes: NDArray[np.float64] | None = None
    exact: bool = False
    outlines: Outlines | None = None

    def __str__(self) -> str:
        return self.column
