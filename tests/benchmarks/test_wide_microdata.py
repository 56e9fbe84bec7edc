"""What synthetic microdata of several columns must show."""

from __future__ import annotations

import pytest

from tests.benchmarks import wide_microdata

# Mean total variation of pairs and of triples that may not be passed.
MOST = {
    ("census2000", 0.3): (0.059, 0.146),
    ("census2000", 1.0): (0.033, 0.118),
    ("census2000", 3.0): (0.018, 0.105),
    ("happiness", 0.3): (0.045, 0.090),
    ("happiness", 1.0): (0.026, 0.061),
    ("happiness", 3.0): (0.0138, 0.0435),
    ("cps91", 0.3): (0.076, 1.0),
    ("cps91", 1.0): (0.047, 1.0),
    ("cps91", 3.0): (0.0245, 1.0),
    ("adult", 1.0): (0.0175, 1.0),
    ("adult", 3.0): (0.0093, 1.0),
    ("kdd", 1.0): (0.0105, 1.0),
    ("kdd", 3.0): (0.0058, 1.0),
}
WORST = {("adult", 3.0): 0.03, ("kdd", 1.0): 0.108, ("kdd", 3.0): 0.067}
"""What the worst pair may not pass."""


@pytest.mark.parametrize("table", ["census2000", "happiness:5"])
def test_one_release_is_better_than_independent_columns(table: str) -> None:
    """With the true one-way shares, which no release has."""
    found = wide_microdata.measure(table, 1.0, 1)
    assert found.pairs < 0.75 * found.independent_pairs
    assert found.triples < 0.75 * found.independent_triples
    assert found.expected_pairs / 2 < found.pairs < 2 * found.expected_pairs
    assert found.expected_one_way / 2 < found.one_way < 2 * found.expected_one_way
    assert wide_microdata.line(found).count("|") == wide_microdata.HEADER.split("\n")[0].count("|")


@pytest.mark.study
@pytest.mark.parametrize("epsilon", wide_microdata.EPSILONS)
@pytest.mark.parametrize("table", [*wide_microdata.TABLES, *wide_microdata.STRONG])
def test_the_full_tables(table: str, epsilon: float) -> None:
    found = wide_microdata.in_its_own_process(table, epsilon, wide_microdata.SEEDS)
    print(wide_microdata.line(found))
    assert found.pairs < found.independent_pairs
    assert found.triples < found.independent_triples
    pairs, triples = MOST.get((table, epsilon), (1.0, 1.0))
    assert found.pairs <= pairs and found.triples <= triples
    assert found.worst_pair <= WORST.get((table, epsilon), 1.0)
    assert found.megabytes <= 500
    assert found.expected_pairs / 2 < found.pairs < 2 * found.expected_pairs


@pytest.mark.study
def test_a_thousand_codes_are_nearer_than_independent_records() -> None:
    """With the true one-way shares, for every pair of columns."""
    found = wide_microdata.in_its_own_process("codes:50000", 3.0, 1)
    print(wide_microdata.line(found))
    assert found.worse_than_independent_records == 0
    assert found.megabytes <= found.planned_megabytes


@pytest.mark.study
def test_forty_columns_and_a_million_records() -> None:
    found = wide_microdata.in_its_own_process("latent:1000000", 1.0, 1)
    print(wide_microdata.line(found))
    assert found.pairs < found.independent_pairs / 4
    assert found.megabytes <= found.planned_megabytes
    assert found.noise_seconds + found.seconds <= 60
