"""Intervals of tables of places hold the counts of every level as often as they say."""

from __future__ import annotations

import numpy as np
import pytest
from coded import domain_of, in_memory
from geographies import of_tree, tree_of
from scipy import stats

from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.places.place_tables import PlaceTables, PlaceTablesKnobs
from statpress.tasks.release.entropy import SeededRandomness

TREE = tree_of(["nation", "state", "tract"], [0] * 4, [0] * 6 + [1] * 1 + [2] * 3 + [3] * 5)
DOMAIN = domain_of([TREE.sizes[-1], 5, 2])
AT = {
    "nation": [["c1", "c2"]],
    "state": [["c1"], ["c2"]],
    "tract": [["c1"], []],
}
N = 1000
REACH = 1.96
LEVEL = 1e-6


def held(runs: int, factor: float = 1.0) -> dict[int, tuple[int, int]]:
    """By level how many intervals hold the count, over runs of one dataset, and of how many."""
    rng = np.random.default_rng(2)
    codes = np.stack([rng.integers(0, c.size, N) for c in DOMAIN.columns], axis=1)
    coded = in_memory(DOMAIN, codes.astype(np.uint8))
    made = PlaceTables.calibrate(
        PlaceTablesKnobs(at=AT, geography=of_tree("c0", TREE)),
        Target(epsilon=1.0, delta=1e-6, n_records=N, n_cells=150, domain=DOMAIN),
    )
    exact = [
        np.concatenate(
            [own for level, _, own in made.counts(coded, table.group) if level == table.level]
        )
        for table in made.tables
    ]
    random = SeededRandomness(np.random.PCG64(11))
    found: dict[int, tuple[int, int]] = {}
    for _ in range(runs):
        estimates = made.release(coded, random).estimates()
        for table, true in zip(made.tables, exact, strict=True):
            sd = np.sqrt(estimates.variances(table.level, table.group))
            apart = np.abs(estimates.table(table.level, table.group) - true)
            inside = apart <= factor * REACH * sd.reshape(-1, *[1] * (true.ndim - 1))
            hits, of = found.get(table.level, (0, 0))
            found[table.level] = hits + int(inside.sum()), of + inside.size
    return found


@pytest.mark.parametrize("runs", [120, pytest.param(2000, marks=pytest.mark.nightly)])
def test_intervals_hold_the_counts_of_a_level(runs: int) -> None:
    """Cells of a run are correlated, so that in the quick form a run counts as four."""
    for level, (hits, of) in held(runs).items():
        share = hits / of
        if runs < 2000:
            spread = np.sqrt(0.05 * 0.95 / (runs * 4))
            assert abs(share - 0.95) < stats.norm.isf(LEVEL / 2) * spread, level
        else:
            print(f"{TREE.levels[level]}: {share:.4f}")
            assert 0.945 <= share <= 0.955


def test_intervals_that_are_a_fifth_too_short_are_seen() -> None:
    for level, (hits, of) in held(120, 0.8).items():
        assert hits / of < 0.95 - stats.norm.isf(LEVEL / 2) * np.sqrt(0.05 * 0.95 / 480), level
