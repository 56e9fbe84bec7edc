"""Tables to read add up exactly on every tree, whatever the noise."""

from __future__ import annotations

import numpy as np
import pytest
from geographies import random_tree
from hypothesis import given
from hypothesis import strategies as st

from statpress.mechanisms.places import reading
from statpress.mechanisms.places.reading import divide
from statpress.mechanisms.places.tree import Tree


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
    tree = random_tree(rng, depth + 1, 6)
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
    tree = random_tree(rng, depth + 1, 6)
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
    tree = random_tree(rng, 3, 6)
    noisy = [level + rng.normal(size=level.shape) for level in counts(tree, rng, (4,))]
    assert_additive(tree, reading.read(tree, noisy, [1.0] * 3))
    monkeypatch.setattr(reading, "divide", careless)
    with pytest.raises(AssertionError):
        assert_additive(tree, reading.read(tree, noisy, [1.0] * 3))


def test_a_rounding_that_forgets_the_totals_is_caught(monkeypatch):
    def forgetful(above, wanted, variances, starts, totals=None):
        return divide(above, wanted, variances, starts)

    rng = np.random.default_rng(2)
    tree = random_tree(rng, 3, 6)
    true = counts(tree, rng, (4,))
    noisy = [level + 5 * rng.normal(size=level.shape) for level in true]
    totals = [level.sum(axis=1) for level in true]
    read = reading.read(tree, noisy, [25.0] * 3, margins=totals)
    assert all(np.array_equal(a.sum(axis=1), b) for a, b in zip(read, totals, strict=True))
    monkeypatch.setattr(reading, "divide", forgetful)
    read = reading.read(tree, noisy, [25.0] * 3, margins=totals)
    assert_additive(tree, read)
    assert not all(np.array_equal(a.sum(axis=1), b) for a, b in zip(read, totals, strict=True))


def test_a_place_without_an_estimate_is_read_from_its_parent():
    tree = Tree(
        ("nation", "state"),
        (("n",), ("a", "b", "c")),
        (np.zeros(3, dtype=np.int64),),
    )
    shares, size = np.array([0.6, 0.3, 0.1]), np.array([4000, 3000, 3000])
    state = size[:, None] * shares
    noisy = [state.sum(axis=0)[None], state.copy()]
    noisy[1][2] = np.nan
    tables = reading.read(tree, noisy, [1.0, np.array([1.0, 1.0, np.inf])])
    assert_additive(tree, tables)
    np.testing.assert_allclose(tables[1], state, rtol=0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"variances": [1.0, -1.0]}, "variance of at least 0 for level 'state'"),
        ({"variances": [1.0, np.ones(3)]}, "or one for each place"),
        ({"variances": [1.0]}, "for each level"),
        ({"estimates": [np.ones((1, 2)), np.ones((3, 2))]}, "'state' has 2 places"),
        ({"estimates": [np.ones((1, 2)), np.ones((2, 3))]}, "first axes of the table"),
        ({"estimates": [np.ones((1, 2)), np.full((2, 2), np.nan)]}, "'state' has an estimate with"),
        ({"estimates": [np.full((1, 2), np.inf), np.ones((2, 2))]}, "'nation' has an estimate wit"),
        ({"margins": [np.array([5]), np.array([2, 2])]}, "'state' do not add up to those above"),
        ({"margins": [None, np.array([2, 2])]}, "the level above has none"),
        ({"margins": [np.array([5]), np.array([6, -1])]}, "sums of its tables, at least 0"),
        ({"margins": [np.array([[2, 2, 1]]), None]}, "first axes"),
        ({"margins": [np.array([5]), None], "total": 4}, "do not add up to the total 4"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_level(change, message):
    tree = Tree(("nation", "state"), (("n",), ("a", "b")), (np.zeros(2, dtype=np.int64),))
    given = {"estimates": [np.ones((1, 2)), np.ones((2, 2))], "variances": [1.0, 1.0]}
    with pytest.raises(ValueError, match=message):
        reading.read(tree, **(given | change))


def test_cells_say_more_of_the_totals_of_like_places_than_their_sums_do():
    rng = np.random.default_rng(4)
    tree = Tree(
        ("nation", "state"),
        (("n",), tuple(map(str, range(60)))),
        (np.zeros(60, dtype=np.int64),),
    )
    shares = rng.dirichlet(np.full(50, 0.3))
    sizes = rng.integers(50, 1500, size=60)
    state = np.stack([rng.multinomial(size, shares) for size in sizes])
    noisy = [state.sum(axis=0)[None].astype(float), state + 30 * rng.normal(size=state.shape)]
    tables = reading.read(tree, noisy, [1e-6, 900.0])
    sums = np.maximum(noisy[1].sum(axis=1), 0)
    away = [np.abs(own - sizes).mean() for own in (tables[1].sum(axis=1), sums)]
    assert away[0] < 0.75 * away[1]
