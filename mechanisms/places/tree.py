"""A tree of places, level by level: who lies in whom; and a column of places, all of it public."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.places.outlines import Outlines

Places = NDArray[np.int64]
"""int64[n]: places of a level by position, in the order of the level."""


@dataclass(frozen=True, eq=False)
class Forest:
    """Places of some levels, with the children of a place beside each other.

    Every place but those of the first level lies in one of the level above, and every place but
    those of the last level has a child.

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
        for level, parents in enumerate(self.parents, start=1):
            above = np.arange(len(self.codes[level - 1]))
            if len(parents) != len(self.codes[level]) or not np.array_equal(
                np.unique(parents), above
            ):
                raise ValueError(f"level {level} has places without a parent, or parents without")
            if np.any(np.diff(parents) < 0):
                raise ValueError(f"level {level} has children that are not beside each other")

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

    def sums(self, level: int, values: NDArray[Any]) -> NDArray[Any]:
        """Sums over children: from values of a level's places (first axis) to the level above."""
        return np.add.reduceat(values, self._starts[level - 1][:-1], axis=0)


class Tree(Forest):
    """A forest with one place at the first level, the root.

    A branch that is shorter than others ends in an only child at each further level, which is the
    same place once more.

    >>> tree = Tree.of(("nation", "state"), [["all"], ["b", "a"]], [{"b": "all", "a": "all"}])
    >>> tree.codes[1], tree.parents[0].tolist(), tree.starts(0).tolist()
    (('b', 'a'), [0, 0], [0, 2])
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.codes[0]) != 1:
            raise ValueError("the first level of a tree has one place")

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

    def above(self, depth: int) -> Tree:
        """The first levels, so many."""
        return Tree(self.levels[:depth], self.codes[:depth], self.parents[: depth - 1])


@dataclass(frozen=True, eq=False)
class Blocks:
    """A tree cut at a level, so that what lies below is worked on some of its places at a time.

    Attributes:
        tree: The whole.
        cut: The level; the last one if all is worked on at once.
        ends: int64[blocks + 1]: places of the level from ends[i] to ends[i + 1] are block i.
        largest: Cells of the largest block, or of the levels down to the cut if they have more.
    """

    tree: Tree
    cut: int
    ends: Places
    largest: int

    @classmethod
    def of(cls, tree: Tree, cells: Sequence[int], most: int) -> Self:
        """Cut such that blocks have at most so many cells, and the levels down to the cut too.

        Where no cut does, it is the one for which the larger of both is least: a block is then
        one place of the level of the cut, and what is in it.

        Args:
            tree: The places.
            cells: By level those of a place.
            most: Cells at once.
        """
        last, above = len(tree.levels) - 1, 0
        below: list[Places] = []
        needed: list[int] = []
        for cut in range(last + 1):
            lowest = np.arange(tree.sizes[cut] + 1)
            before = np.zeros(len(lowest), dtype=np.int64)  # cells below the places before each
            for level in range(cut, last):
                lowest = tree.starts(level)[lowest]
                before += lowest * cells[level + 1]
            above += tree.sizes[cut] * cells[cut]
            below.append(before)
            needed.append(max(above, int(np.diff(before).max())))
        cut = last if above <= most else needed.index(min(needed))
        ends, before = [0], below[cut]
        while ends[-1] < tree.sizes[cut]:
            fits = int(np.searchsorted(before, before[ends[-1]] + most, side="right")) - 1
            ends.append(max(fits, ends[-1] + 1))
        largest = max(needed[cut], int(np.diff(before[ends]).max()))
        return cls(tree, cut, np.array(ends), largest)

    def __len__(self) -> int:
        return len(self.ends) - 1

    @property
    def top(self) -> Tree:
        """The levels down to the cut."""
        return self.tree.above(self.cut + 1)

    def rows(self, block: int, level: int) -> slice:
        """The places of a block at the level of the cut or one below."""
        first, last = self.ends[block : block + 2].tolist()
        for above in range(self.cut, level):
            first, last = self.tree.starts(above)[[first, last]].tolist()
        return slice(first, last)

    def forest(self, block: int, depth: int | None = None) -> Forest:
        """The places of a block from the level of the cut down, as positions in the block.

        Args:
            block: Its number.
            depth: Levels of the tree that are taken; by default all.
        """
        levels = range(self.cut, len(self.tree.levels) if depth is None else depth)
        rows = [self.rows(block, level) for level in levels]
        parents = (
            self.tree.parents[level - 1][own] - above.start
            for level, above, own in zip(levels[1:], rows, rows[1:], strict=False)
        )
        return Forest(
            tuple(self.tree.levels[level] for level in levels),
            tuple(self.tree.codes[level][own] for level, own in zip(levels, rows, strict=True)),
            tuple(parents),
        )

    def at(self, level: int, place: int) -> int:
        """The block of a place of a level below the cut."""
        for above in range(level, self.cut, -1):
            place = int(self.tree.parents[above - 1][place])
        return int(np.searchsorted(self.ends, place, side="right")) - 1


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
