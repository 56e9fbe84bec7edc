"""Estimates and readings of places take time in proportion to their number."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest
from geographies import tree_of

from statpress.mechanisms.places.estimates import LevelTable, PlaceEstimates
from statpress.mechanisms.places.reading import read_level
from statpress.mechanisms.places.tree import Tree

SIZES = (5, 2)
LINEAR = 1.6
"""How much longer ten times as many places may take than ten times as long."""


def tree_with(leaves: int) -> Tree:
    """Four levels, of which each place has up to some hundred places."""
    middle = max(leaves // 60, 1)
    states = max(middle // 40, 1)
    return tree_of(
        ["nation", "state", "county", "tract"],
        [0] * states,
        np.sort(np.arange(middle) % states).tolist(),
        np.sort(np.arange(leaves) % middle).tolist(),
    )


def seconds(leaves: int) -> float:
    """Processor time of all estimates and variances, of the best of three times."""
    tree, rng = tree_with(leaves), np.random.default_rng(1)
    tables = [
        LevelTable(level, (0, 1), np.full(n, 2.0), rng.normal(size=(n, *SIZES)))
        for level, n in enumerate(tree.sizes)
    ]
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        found = PlaceEstimates.of(tree, SIZES, tables, {0: np.array([float(leaves)])})
        assert np.isfinite(found.table(3, (0, 1))).all()
        assert found.variances(3, (0, 1)).max() < 2.0
        best = min(best, time.process_time() - start)
    return best


def test_time_is_linear_in_places() -> None:
    ratio = float("inf")
    for _ in range(3):  # a busy machine is given another chance
        small, large = seconds(10_000), seconds(100_000)
        ratio = min(ratio, large / small)
        print(f"10,000 places: {small:.3f} s; 100,000 places: {large:.3f} s")
        if ratio <= 10 * LINEAR:
            break
    assert ratio <= 10 * LINEAR


@pytest.mark.parametrize("leaves", [100_000])
def test_a_union_of_many_places_takes_one_pass(leaves: int) -> None:
    """Less time than the estimates themselves."""
    tree, rng = tree_with(leaves), np.random.default_rng(1)
    tables = [
        LevelTable(level, (0,), np.full(n, 2.0), rng.normal(size=(n, 5)))
        for level, n in enumerate(tree.sizes)
    ]
    start = time.process_time()
    found = PlaceEstimates.of(tree, (5,), tables, {})
    whole = time.process_time() - start
    start = time.process_time()
    union = found.union(rng.random(leaves) < 0.3)
    assert union.variances[()] > 0
    assert time.process_time() - start < 2 * whole


def reading(leaves: int) -> tuple[float, int]:
    """Processor time to read the last level's tables, and the most memory besides estimates."""
    tree, rng = tree_with(leaves), np.random.default_rng(2)
    true = rng.poisson(rng.gamma(0.5, 10, size=(leaves, 20)))
    noisy, above = true + 5 * rng.normal(size=true.shape), tree.sums(3, true)
    next(read_level(tree, 3, above, noisy, 25.0))  # what is tabulated once
    tracemalloc.start()
    start = time.process_time()
    records = sum(int(block.sum()) for _, block in read_level(tree, 3, above, noisy, 25.0))
    spent = time.process_time() - start
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert records == above.sum()
    return spent, most


def test_reading_is_linear_in_places_and_needs_no_more_memory_for_more() -> None:
    ratio = float("inf")
    for _ in range(3):  # a busy machine is given another chance
        (small, least), (large, most) = reading(3_000), reading(30_000)
        ratio = min(ratio, large / small)
        print(f"3,000 places: {small:.3f} s, {least} bytes; 30,000: {large:.3f} s, {most} bytes")
        if ratio <= 10 * LINEAR:
            break
    assert ratio <= 10 * LINEAR
    assert most < 2 * least
    assert most < 30_000 * 20 * 8 * 4
