"""Widths of quantiles beside the best possible and what they were: a few rows of the table."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import pytest

from tests.benchmarks import quantile_widths as simulated

HALF, TOP = Fraction(1, 2), Fraction(9, 10)
ROWS = [  # the largest ratio to the best possible width
    ("uniform", 300, 200, 0.7, HALF, 0.9, 1.6),
    ("uniform", 1000, 200, 3.0, HALF, 0.95, 1.1),
    ("uniform", 5000, 200, 0.7, TOP, 0.9, 1.25),
    ("beta(.5,.5)", 50_000, 200, 0.3, HALF, 0.9, 1.15),
    ("bimodal", 5000, 200, 0.7, TOP, 0.99, 1.25),
    ("zipf 1.5", 5000, 200, 0.3, TOP, 0.9, 1.5),
    ("nearly constant", 1000, 20, 0.3, HALF, 0.95, 1.05),
    ("step at .5", 300, 20, 0.3, HALF, 0.9, 1.5),
]


@pytest.mark.parametrize("each", ROWS, ids=lambda each: " ".join(map(str, each[:5])))
def test_intervals_cover_and_are_near_the_best_possible(
    each: tuple[str, int, int, float, Fraction, float, float],
) -> None:
    found = simulated.row(*each[:-1], replicates=600)
    assert not found.is_short
    assert found.width <= found.before + 1e-6
    assert found.width <= each[-1] * found.best, found.width / found.best
    assert found.covered <= found.covered_before + 1e-9


def test_an_end_that_aims_further_in_is_caught() -> None:
    """By what makes the odds of choosing a cell beyond the quantile six times as large."""
    setting = ("step at .5", 300, 20, 0.3, HALF, 0.9)
    rule = simulated.rule_now(*setting[1:])
    bold = dataclasses.replace(rule, lower=rule.lower + math.ceil(math.log(6) / rule.steep))
    sample = simulated._sample("step at .5", 300, 20, HALF, 600)
    covered = 1 - sum(sample.misses(bold))
    honest = simulated.row(*setting, replicates=600)
    assert not honest.is_short
    assert dataclasses.replace(honest, covered=covered).is_short
