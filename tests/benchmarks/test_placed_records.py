"""Quick form of ``placed_records``, by night: one seed, epsilon 1, 12 states."""

from __future__ import annotations

import pytest

from tests.benchmarks.placed_records import alone, census2000, errors, marginals, placed


@pytest.mark.nightly
@pytest.mark.parametrize("states", [12, pytest.param(None, marks=pytest.mark.study)])
def test_places_by_their_tables_beat_a_flat_column_of_places(states: int | None) -> None:
    tree, domain, codes = census2000(states)
    sizes = tuple(column.size for column in domain.columns)
    ours = errors(tree, sizes, codes, placed(tree, domain, codes, 1.0, 0.7, 0))
    flat = errors(tree, sizes, codes, marginals(domain, codes, 1.0, 0))
    assert ours["state x column"] <= 0.6 * flat["state x column"]
    assert ours["within"] < 0.9 * flat["within"]
    assert ours["nation"] < 0.9 * flat["nation"]
    assert ours["within"] < alone(tree, domain, codes, 1.0, 0)
