"""Small geographies for tests of tables of places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from statpress.mechanisms.places.tree import Geography, Tree


def tree_of(levels: Sequence[str], *parents: Sequence[int]) -> Tree:
    """A tree by the parents of each level but the first; places are named by their level."""
    counts = [1, *map(len, parents)]
    codes = [
        tuple(f"{level}{i}" for i in range(n)) for level, n in zip(levels, counts, strict=True)
    ]
    return Tree(tuple(levels), tuple(codes), tuple(np.array(each) for each in parents))


def random_tree(rng: np.random.Generator, depth: int, most: int = 3) -> Tree:
    """A tree whose places have up to so many others in them."""
    parents: list[list[int]] = []
    n = 1
    for _ in range(depth - 1):
        children = rng.integers(1, most + 1, n)
        parents.append(np.repeat(np.arange(n), children).tolist())
        n = int(children.sum())
    return tree_of([f"level{i}" for i in range(depth)], *parents)


def of_tree(
    column: str, tree: Tree, sizes: Sequence[float] | None = None, *, exact: bool = False
) -> Geography:
    """A geography whose column has the places of the last level as its codes."""
    return Geography(
        column=column,
        tree=tree,
        leaves=np.arange(tree.sizes[-1]),
        names=tree.codes,
        sizes=None if sizes is None else np.asarray(sizes, dtype=np.float64),
        exact=exact,
    )


def geography_of(column: str, levels: Sequence[str], *parents: Sequence[int]) -> Geography:
    """A geography by the parents of its lower levels; the first one has all others in the root."""
    middle = [0] * (max(parents[0]) + 1)
    return of_tree(column, tree_of(levels, middle, *parents))
