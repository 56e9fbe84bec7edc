"""Tables to read add up exactly on every tree, whatever the noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statpress.mechanisms.places import division, reading
from statpress.mechanisms.places.tree import Tree


def random_tree(rng: np.random.Generator, depth: int) -> Tree:
    """A tree with one to six children a place."""
    parents = []
    places = 1
    for _ in range(depth):
        parents.append(np.repeat(np.arange(places), rng.integers(1, 7, size=places)))
        places = len(parents[-1])
    sizes = [1, *(len(level) for level in parents)]
    codes = tuple(tuple(map(str, range(size))) for size in sizes)
    return Tree(tuple(f"level {i}" for i in range(depth + 1)), codes, tuple(parents))


def counts(tree: Tree, rng: np.random.Generator, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Counts of all levels, many of them 0."""
    rate = rng.gamma(0.3, rng.choice([1, 30, 1000]), size=(tree.sizes[-1], *shape))
    levels = [rng.poisson(rate)]
    for level in range(len(tree.sizes) - 1, 0, -1):
        levels.insert(0, tree.sums(level, levels[0]))
    return levels


def assert_additive(tree: Tree, tables: list[np.ndarray]) -> None:
    for level, table in enumerate(tables):
        assert table.dtype == np.int64
        assert table.min() >= 0
        if level:
            dropped = tuple(range(table.ndim, tables[level - 1].ndim))
            above = tables[level - 1].sum(axis=dropped)
            np.testing.assert_array_equal(tree.sums(level, table), above)


SEEDS = st.integers(0, 2**32 - 1)
SCALES = st.sampled_from([0.01, 1.0, 30.0, 3000.0])


@given(SEEDS, SCALES, st.integers(1, 3), st.booleans())
def test_tables_add_up_over_places_and_to_a_public_total(seed, scale, depth, public):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, depth)
    true = counts(tree, rng, tuple(rng.integers(1, 6, size=rng.integers(0, 3))))
    noisy = [level + scale * rng.normal(size=level.shape) for level in true]
    variances = [scale**2 * rng.uniform(0.2, 2, size=size) for size in tree.sizes]
    total = int(true[0].sum()) if public else None
    tables = reading.read(tree, noisy, variances, total=total)
    assert_additive(tree, tables)
    if public:
        assert tables[0].sum() == total


@given(SEEDS, SCALES, st.integers(1, 3))
def test_margins_that_are_read_before_are_kept_and_columns_may_be_dropped_below(seed, scale, depth):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, depth)
    true = counts(tree, rng, (3, 2, 2))
    noisy = [level + scale * rng.normal(size=level.shape) for level in true]
    noisy[-1] = noisy[-1].sum(axis=3)
    margins = [level.sum(axis=(2, 3)) for level in true]
    tables = reading.read(tree, noisy, [scale**2] * (depth + 1), margins=margins)
    assert_additive(tree, tables)
    for table, margin in zip(tables, margins, strict=True):
        np.testing.assert_array_equal(table.sum(axis=tuple(range(2, table.ndim))), margin)


def test_a_rounding_by_each_cell_for_itself_is_caught(monkeypatch):
    def careless(above, wanted, variances, starts, totals=None):
        return np.rint(np.maximum(wanted, 0)).astype(np.int64)

    rng = np.random.default_rng(1)
    tree = random_tree(rng, 2)
    noisy = [level + rng.normal(size=level.shape) for level in counts(tree, rng, (4,))]
    assert_additive(tree, reading.read(tree, noisy, [1.0] * 3))
    monkeypatch.setattr(reading, "divide", careless)
    with pytest.raises(AssertionError):
        assert_additive(tree, reading.read(tree, noisy, [1.0] * 3))


def test_a_rounding_that_forgets_the_totals_is_caught(monkeypatch):
    def forgetful(above, wanted, variances, starts, totals=None):
        return division.divide(above, wanted, variances, starts)

    rng = np.random.default_rng(2)
    tree = random_tree(rng, 2)
    true = counts(tree, rng, (4,))
    noisy = [level + 5 * rng.normal(size=level.shape) for level in true]
    totals = [level.sum(axis=1) for level in true]
    read = reading.read(tree, noisy, [25.0] * 3, margins=totals)
    assert all(np.array_equal(a.sum(axis=1), b) for a, b in zip(read, totals, strict=True))
    monkeypatch.setattr(reading, "divide", forgetful)
    read = reading.read(tree, noisy, [25.0] * 3, margins=totals)
    assert_additive(tree, read)
    assert not all(np.array_equal(a.sum(axis=1), b) for a, b in zip(read, totals, strict=True))
