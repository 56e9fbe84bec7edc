"""Whole numbers of tables of places: whatever tables are asked for, they agree exactly."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from geographies import random_tree
from hypothesis import given
from hypothesis import strategies as st

from statpress.mechanisms.places.estimates import LevelTable, PlaceEstimates
from statpress.mechanisms.places.readable import LevelGroup, read_tables, readable, readings

SIZES = (3, 2, 4)
GROUPS = [group for n in (1, 2, 3) for group in itertools.combinations(range(3), n)]


def summed(table: np.ndarray, group: tuple[int, ...], kept: set[int]) -> np.ndarray:
    return np.asarray(table.sum(axis=tuple(1 + i for i, c in enumerate(group) if c not in kept)))


@given(
    st.integers(0, 2**32),
    st.integers(2, 4),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(GROUPS)), min_size=1, max_size=5),
    st.sampled_from(["private", "public", "exact"]),
)
def test_tables_are_whole_not_negative_and_agree(
    seed: int, depth: int, drawn: list[LevelGroup], size: str
) -> None:
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, depth)
    asked = sorted({(min(level, depth - 1), group) for level, group in drawn})
    truth = [rng.poisson(3.0, (tree.sizes[-1], *SIZES)).astype(np.float64)]
    for level in range(depth - 1, 0, -1):
        truth.insert(0, tree.sums(level, truth[0]))
    noisy = []
    for level, group in asked:
        exact = summed(truth[level], (0, 1, 2), set(group))
        counts = exact + 2 * rng.normal(size=exact.shape)
        noisy.append(LevelTable(level, group, np.full(len(counts), 4.0), counts))
    totals = [each.sum(axis=(1, 2, 3)) for each in truth]
    known = {"private": {}, "public": {0: totals[0]}, "exact": dict(enumerate(totals))}[size]
    estimates = PlaceEstimates.of(tree, SIZES, noisy, known)
    whole = [each.astype(np.int64) for each in totals] if size == "exact" else None
    n_records = None if size == "private" else int(totals[0][0])
    found = read_tables(estimates, asked, whole, n_records)
    assert [each is not None for each in found] == readable(asked, totals=size == "exact")
    tables = {key: each for key, each in zip(asked, found, strict=True) if each is not None}
    for (level, group), table in tables.items():
        assert table.dtype == np.int64 and table.min() >= 0
        if n_records is not None:
            assert table.sum() == n_records
        if whole is not None:
            assert np.array_equal(summed(table, group, set()), whole[level])
        for (below, other), lower in tables.items():
            if below >= level:
                both = set(group) & set(other)
                one, two = summed(table, group, both), summed(lower, other, both)
                for step in range(below, level, -1):
                    two = tree.sums(step, two)
                assert np.array_equal(one, two)


@pytest.mark.parametrize(
    ("asked", "held"),
    [
        ([(0, (0, 1)), (1, (0, 1)), (2, (0,))], [True, True, True]),
        ([(0, (0, 1)), (0, (2,)), (2, (0,)), (2, (1,))], [True] * 4),
        ([(1, (0, 1)), (1, (0, 2))], [True, True]),
        ([(1, (0, 1)), (1, (0, 2)), (1, (1, 2))], [True, True, False]),  # a cycle
    ],
)
def test_which_tables_are_read(asked: list[LevelGroup], held: list[bool]) -> None:
    assert readable(asked, totals=False) == held


def test_tables_that_are_nested_are_read_at_once() -> None:
    (found,) = readings([(0, (0, 1)), (1, (1,)), (2, (1,))], totals=False)
    assert found.groups == ((1, 0), (1,), (1,))
    assert found.shared == (None, None, None)
