"""Quick form of ``earlier_releases``: eight columns, four seeds, epsilon .3."""

from __future__ import annotations

from tests.benchmarks.earlier_releases import measure, ratios


def test_two_earlier_years_help_and_wrong_ones_do_not_hurt() -> None:
    rows = [measure("happiness", 0.3, seed, columns=8, errors_only=True) for seed in range(4)]
    found = ratios(rows)
    assert found["chain"] < 0.95
    for name in ("reversed", "permuted", "fabricated"):
        assert found[name] <= 1.03, name
