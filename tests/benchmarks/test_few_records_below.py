"""Quotients whose denominator is of few records: coverage among releases with an interval.

The number of those records is about Poisson(L). Over all releases the sets cover whatever L is;
over those that have an interval only where noise hides the few, which is what the flag states.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from statpress.mechanisms.estimates.fieller import RARE
from statpress.mechanisms.estimates.pair_moments import HIDING_FEW
from tests.benchmarks.interval_populations import Law
from tests.benchmarks.interval_simulation import PAIRS, released

LEVELS, BY_CHANCE = (0.9, 0.95, 0.99), 1e-4
VALUES = np.array([0.1, 0.5, 0.9])
FEW, SOME = (1, 3, 9), (10, 15, 20, 30, 45, 80, 150)
HIDDEN = 1 / HIDING_FEW  # the largest mu that is called asymptotic
QUOTIENTS = ("ratio", "slope", "intercept", "mean where (5%)", "difference (10%)")


@dataclass(frozen=True)
class Among:
    """Of the releases with an interval their number, and how many hold the truth."""

    level: float
    runs: int
    intervals: int
    hold: int
    all_hold: int

    @property
    def short(self) -> bool:
        """Whether more of the intervals miss than 1.3 times what the level leaves to 1."""
        if self.intervals < RARE * self.runs:
            return False
        missed, allowed = self.intervals - self.hold, 1.3 * (1 - self.level)
        return bool(stats.binom.sf(missed - 1, self.intervals, allowed) < BY_CHANCE)


def few(kind: str, expected: float, n: int) -> Law:
    """One in n/expected records has the first column 1, the others 0; the second is unrelated."""
    share = expected / n
    masses = np.repeat([1 - share, share], len(VALUES)) / len(VALUES)
    x, y = np.repeat([0.0, 1.0], len(VALUES)), np.tile(VALUES, 2)
    return Law(np.column_stack([x, x * y if kind.startswith("mean") else y]), masses)


def among(kind: str, mu: float, expected: float, n: int, runs: int) -> list[Among]:
    wanted, design, _ = PAIRS[kind]
    law, rng = few(kind, expected, n), np.random.default_rng([n, int(expected), int(1000 * mu)])
    known, truth = released(law, design, n, mu, runs, rng).known, wanted.value(law.means)
    found = []
    for level in LEVELS:
        sets = known.sets(wanted, level)
        in_gap = (sets.gap_lower < truth) & (truth < sets.gap_upper)
        holds = (sets.lower <= truth) & (truth <= sets.upper) & ~in_gap
        width, span = sets.upper - sets.lower, wanted.bounds[1] - wanted.bounds[0]
        given = np.isfinite(width) & (width < span) & np.isnan(sets.gap_lower)
        counts = (int(each.sum()) for each in (given, holds & given, holds))
        found.append(Among(level, runs, *counts))
    return found


@pytest.mark.parametrize("kind", ["ratio", "mean where (5%)", "slope"])
def test_the_level_holds_among_intervals_that_are_called_asymptotic(kind: str) -> None:
    for expected in (15, 30, 80):
        assert not [each for each in among(kind, HIDDEN, expected, 1000, 2000) if each.short]


def test_with_less_noise_intervals_by_luck_are_caught() -> None:
    """Over all releases the same sets cover."""
    found = [each for few in FEW for each in among("ratio", 0.3, few, 500, 4000)]
    assert [each for each in found if each.short]
    assert all(each.all_hold >= each.level * each.runs for each in found)


@pytest.mark.study
@pytest.mark.parametrize("kind", QUOTIENTS)
@pytest.mark.parametrize("mu", [HIDDEN / 2, HIDDEN])
def test_all_of_it(kind: str, mu: float) -> None:
    for n in (500, 5000):
        for expected in SOME:
            assert not [each for each in among(kind, mu, expected, n, 10_000) if each.short]
