"""Shares that are found against fixed ones, by what happens."""

from __future__ import annotations

import pytest

from tests.benchmarks import fixed_shares


@pytest.mark.nightly
def test_the_shares_that_are_found_are_near_the_best_of_a_few() -> None:
    """In one form and the other; twin: that all goes to single columns is far above them."""
    found = fixed_shares.compare("happiness:4000:6", 1.0, 2, ((0.1, 0.02), (0.6, 0.02)))
    assert found.above < 0.1
    listed = fixed_shares.compare("happiness:4000:6", 1.0, 1, fixed_shares.FINE, best=1)
    assert listed.best in fixed_shares.FINE and listed.above < 0.15
    lost = fixed_shares.compare("happiness:4000:6", 1.0, 2, ((0.97, 0.01),))
    assert lost.least > 1.1 * found.error
    assert fixed_shares.line(found).count("|") == fixed_shares.HEADER.split("\n")[0].count("|")


@pytest.mark.study
@pytest.mark.parametrize("epsilon", fixed_shares.EPSILONS)
@pytest.mark.parametrize(
    ("table", "best", "seeds"),
    [("kdd:1600:32", 0, 5), *((table, 10, 3) for table in ("census2000", "cps91", "happiness"))],
)
def test_all_tables(table: str, best: int, seeds: int, epsilon: float) -> None:
    splits = fixed_shares.FINE if best else fixed_shares.COARSE
    found = fixed_shares.compare(table, epsilon, seeds, splits, best)
    print(fixed_shares.line(found))
    assert found.above <= 0.08
