"""Quick form of ``earlier_releases``: epsilon .3, six columns and a seed, or eight and four."""

from __future__ import annotations

import pytest

from tests.benchmarks.earlier_releases import measure, ratios


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("columns", "seeds"), [(6, 1), pytest.param(8, 4, marks=pytest.mark.study)]
)
def test_two_earlier_years_help_and_wrong_ones_do_not_hurt(columns: int, seeds: int) -> None:
    rows = [
        measure("happiness", 0.3, seed, columns=columns, errors_only=True) for seed in range(seeds)
    ]
    found = ratios(rows)
    assert found["chain"] < 0.95
    for name in ("reversed", "permuted", "fabricated"):
        assert found[name] <= 1.03, name
