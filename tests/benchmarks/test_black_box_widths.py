"""Intervals of statistics of which only the sensitivity is known: two settings of each method."""

from __future__ import annotations

from fractions import Fraction

import pytest
from scipy import stats

from tests.benchmarks.black_box_widths import Setting, figures

FEW = ("mean", "uniform", 500, Fraction(7, 10))
NOISY = ("variance", "uniform", 1000, Fraction(1, 2))


@pytest.mark.parametrize(
    ("method", "setting", "least", "most", "datasets"),
    [
        ("percentile", FEW, 1.6, 1.75, 40),
        ("calibrated", FEW, 1.4, 1.6, 40),
        ("split", FEW, 1.0, 1.12, 40),
        ("split", NOISY, 1.1, 1.3, 120),
    ],
)
def test_coverage_and_width_over_the_oracle(
    method: str, setting: tuple[str, str, int, Fraction], least: float, most: float, datasets: int
) -> None:
    found = figures(Setting(method, *setting), datasets)
    assert least < found.width < most
    assert found.covered * datasets >= stats.binom.ppf(1e-6, datasets, 0.885)
    assert found.valid == 1
