"""A tree of places, level by level: who lies in whom; and a column of places, all of it public."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.places.outlines import Outlines

Places = NDArray[np.int64]
"""int64[n]: places of a level by position, in the order of the level."""


@dataclass(frozen=True, eq=False)
class Tree:
    """Places of every level, with the children of a place beside each other.

    The first level has one place, the root, and every other place lies in one of the level above.
    Every place but those of the last level has a child: a branch that is shorter than others ends
    in an only child at each further level, which is the same place once more.

    >>> tree = Tree.of(("nation", "state"), [["all"], ["b", "a"]], [{"b": "all", "a": "all"}])
    >>> tree.codes[1], tree.parents[0].tolist(), tree.starts(0).tolist()
    (('b', 'a'), [0, 0], [0, 2])

    Attributes:
        levels: Names of the levels, from the root down.
        codes: For each level the codes of its places.
        parents: For each level but the first, int64 of its length, ascending: the position of
            the place of the level above in which a place lies.
    """

    levels: tuple[str, ...]
    codes: tuple[tuple[str, ...], ...]
    parents: tuple[Places, ...]

    def __post_init__(self) -> None:
        if not len(self.levels) == len(self.codes) == len(self.parents) + 1:
            raise ValueError("a tree has codes for every level, and parents for all but the first")
        if len(self.codes[0]) != 1:
            raise ValueError("the first level of a tree has one place")
        for level, parents in enumerate(self.parents, start=1):
            above = np.arange(len(self.codes[level - 1]))
            if len(parents) != len(self.codes[level]) or not np.array_equal(
                np.unique(parents), above
            ):
                raise ValueError(f"level {level} has places without a parent, or parents without")
            if np.any(np.diff(parents) < 0):
                raise ValueError(f"level {level} has children that are not beside each other")

    @classmethod
    def of(
        cls, levels: Sequence[str], codes: Sequence[Sequence[str]], within: Sequence[dict[str, str]]
    ) -> Self:
        """A tree from codes and, for each level but the first, the code above by code.

        Places of a level are ordered by their parents, then as given.

        Raises:
            ConfigError: A code is twice in a level, or lies in no place of the level above.
        """
        ordered, parents = [tuple(codes[0])], []
        for level, (own, above) in enumerate(zip(codes[1:], within, strict=True), start=1):
            position = {code: at for at, code in enumerate(ordered[-1])}
            if len(set(own)) != len(own):
                raise ConfigError(f"The level '{levels[level]}' has a code twice.")
            try:
                lies_in = np.array([position[above[code]] for code in own], dtype=np.int64)
            except KeyError as missing:
                raise ConfigError(
                    f"The level '{levels[level]}' has a place in {missing}, which is no code of "
                    f"the level '{levels[level - 1]}'."
                ) from None
            order = np.argsort(lies_in, kind="stable")
            ordered.append(tuple(own[at] for at in order))
            parents.append(lies_in[order])
        return cls(tuple(levels), tuple(ordered), tuple(parents))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of places of each level."""
        return tuple(len(codes) for codes in self.codes)

    def starts(self, level: int) -> Places:
        """int64[n + 1]: the children of place i of a level are starts[i] to starts[i + 1]."""
        return self._starts[level]

    @cached_property
    def _starts(self) -> tuple[Places, ...]:
        return tuple(
            np.searchsorted(parents, np.arange(len(above) + 1))
            for parents, above in zip(self.parents, self.codes, strict=False)
        )

    def sums(self, level: int, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums over children: from values of a level's places (first axis) to the level above."""
        return np.add.reduceat(values, self._starts[level - 1][:-1], axis=0)


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
