"""Coverage where noise decides: of all releases, and of those whose set is an interval.

Sampling is as in test_interval_coverage; here the laws are of two columns that are correlated by
0 to .95, spread widely or hardly at all, and the budgets are those of small releases. The broken
twin is the formula of before: gradients as if the noisy means in them were known, and every
interval published that Fieller's set is.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import stats

from statpress.mechanisms.estimates import moment_designs
from statpress.mechanisms.estimates.fieller import RARE, Quotient, Sets, normal_quantile
from statpress.mechanisms.estimates.moment_designs import (
    CORRELATION,
    COVARIANCE,
    RATIO,
    SLOPE,
    VARIANCE,
    Derived,
    Errors,
    MomentDesign,
    Slopes,
)
from statpress.mechanisms.estimates.pair_moments import MomentSets
from statpress.mechanisms.estimates.statistics import intercept
from statpress.mechanisms.mechanism import Target
from tests.benchmarks.interval_populations import Law, by_group, in_group
from tests.benchmarks.interval_simulation import PAIRS, released

LEVEL, REQUIRED, RUNS = 0.95, 0.945, 2000
STATISTICS: dict[str, tuple[Derived, MomentDesign, Callable[[Law], Law]]] = {
    "slope": (SLOPE, moment_designs.PAIR, lambda law: law),
    "intercept": (intercept(0.0), moment_designs.PAIR, lambda law: law),
    "correlation": (CORRELATION, moment_designs.PAIR, lambda law: law),
    "covariance": (COVARIANCE, moment_designs.PAIR, lambda law: law),
    "variance": (VARIANCE, moment_designs.ONE, lambda law: Law(law.records[:, :1], law.masses)),
    "ratio": (RATIO, moment_designs.RATIO_DESIGN, lambda law: law),
    "mean where (5%)": PAIRS["mean where (5%)"][:2] + (lambda law: in_group(law, 0.05),),
    "difference (10%)": PAIRS["difference (10%)"][:2] + (lambda law: by_group(law, 0.1),),
}
SPREADS = {  # middle and deviation of both columns
    "wide": (0.5, 0.2, 0.5, 0.2),
    "narrow": (0.5, 0.05, 0.5, 0.2),
    "at an edge": (0.2, 0.08, 0.3, 0.12),
    "nearly constant": (0.5, 0.01, 0.5, 0.2),
    "both nearly constant": (0.1, 0.02, 0.1, 0.02),
}
SIZES, EPSILONS, CORRELATIONS = (
    (200, 1000, 5000, 20_000),
    (0.01, 0.1, 0.3, 1.0, 3.0),
    (0.0, 0.5, 0.95),
)


@functools.cache
def correlated(correlation: float, spread: str) -> Law:
    """Two columns, normal on a grid of 24 values each, within 2.4 deviations."""
    at = np.linspace(-2.4, 2.4, 24)
    a, b = (each.ravel() for each in np.meshgrid(at, at))
    form = a**2 - 2 * correlation * a * b + b**2
    masses = np.exp(-form / (2 * (1 - correlation**2)))
    x, dx, y, dy = SPREADS[spread]
    kept = masses > 1e-9 * masses.max()
    records = np.column_stack([x + dx * a, y + dy * b])[kept]
    return Law(records, masses[kept] / masses[kept].sum())


@dataclass(frozen=True)
class Design:
    """What is simulated."""

    statistic: str
    n: int
    epsilon: float
    correlation: float
    spread: str

    @property
    def law(self) -> Law:
        """Of the statistic's columns."""
        return STATISTICS[self.statistic][2](correlated(self.correlation, self.spread))

    @property
    def mu(self) -> float:
        """That the budget buys."""
        target = Target(epsilon=self.epsilon, delta=1e-6, n_records=self.n, n_cells=576)
        return float(target.largest_mu())

    @property
    def share_of_noise(self) -> float:
        """Of the variance of the estimate."""
        wanted, design, _ = STATISTICS[self.statistic]
        known = released(self.law, design, self.n, self.mu, 1, None).known
        noise, both = (known.error(wanted, sampling=on, cautious=False) for on in (False, True))
        return (noise / both) ** 2


@dataclass(frozen=True)
class Seen:
    """Of many releases how many hold the truth, how many are intervals and both, and the width."""

    runs: int
    covered: int
    intervals: int
    covered_intervals: int
    width: float

    @property
    def all_hold(self) -> bool:
        """Whether all releases have the coverage that is required, as far as chance can tell."""
        return self.covered >= stats.binom.ppf(1e-6, self.runs, REQUIRED)

    @property
    def intervals_hold(self) -> bool:
        """Whether those with an interval have it."""
        rare = self.intervals < RARE * self.runs
        return rare or bool(
            self.covered_intervals >= stats.binom.ppf(1e-6, self.intervals, REQUIRED)
        )


class Before(MomentSets):
    """The twin: noise as if gradients were known, and every interval published that a set is."""

    def _errors(self, one_of: Slopes, two_of: Slopes) -> Errors:
        found = super()._errors(one_of, two_of)
        return found._replace(bend=np.zeros_like(found.bend))

    def _cautious(self, quotient: Quotient, level: float, bounds: Any, by_noise: Any) -> Sets:
        return quotient.sets(normal_quantile(level), bounds)


def seen(design: Design, runs: int = RUNS, by: type[MomentSets] = MomentSets) -> Seen:
    """As published, or by the twin; the releases are the same."""
    wanted, sums, _ = STATISTICS[design.statistic]
    law, rng = design.law, np.random.default_rng(0)
    known = released(law, sums, design.n, design.mu, runs, rng).known
    known = by(known.means, known.noise, known.n_records)
    sets, truth = known.sets(wanted, LEVEL), wanted.value(law.means)
    in_gap = (sets.gap_lower < truth) & (truth < sets.gap_upper)
    holds = (sets.lower <= truth) & (truth <= sets.upper) & ~in_gap
    width, span = sets.upper - sets.lower, wanted.bounds[1] - wanted.bounds[0]
    intervals = np.isfinite(width) & (width < span) & np.isnan(sets.gap_lower)
    intervals |= not wanted.denominators  # of which every set is one
    return Seen(
        runs, int(holds.sum()), int(intervals.sum()), int((holds & intervals).sum()),
        float(np.median(width)),
    )  # fmt: skip


PRODUCTS = [
    Design("slope", 200, 0.01, 0.95, "at an edge"),
    Design("variance", 200, 0.1, 0.5, "both nearly constant"),
    Design("variance", 200, 0.01, 0.5, "wide"),
]
LUCK = [
    Design("slope", 200, 0.1, 0.95, "at an edge"),
    Design("slope", 5000, 0.1, 0.95, "nearly constant"),
    Design("intercept", 5000, 0.1, 0.95, "nearly constant"),
    Design("correlation", 20_000, 0.3, 0.95, "nearly constant"),
    Design("ratio", 200, 0.1, 0.0, "both nearly constant"),
    Design("mean where (5%)", 200, 0.01, 0.0, "wide"),
]
PLAIN = [
    Design("slope", 1000, 1.0, 0.5, "narrow"),
    Design("slope", 5000, 0.1, 0.0, "at an edge"),
    Design("intercept", 20_000, 1.0, 0.95, "nearly constant"),
    Design("correlation", 5000, 0.3, 0.5, "narrow"),
    Design("covariance", 1000, 0.1, 0.0, "both nearly constant"),
    Design("ratio", 200, 0.3, 0.95, "at an edge"),
    Design("difference (10%)", 200, 0.3, 0.0, "wide"),
]


@pytest.mark.parametrize("design", PRODUCTS + LUCK + PLAIN, ids=str)
def test_intervals_cover_where_they_are_given(design: Design) -> None:
    found = seen(design)
    assert found.covered >= REQUIRED * RUNS
    assert found.intervals_hold


@pytest.mark.parametrize("design", PRODUCTS, ids=str)
def test_gradients_that_are_taken_as_known_are_caught(design: Design) -> None:
    assert not seen(design, by=Before).all_hold


@pytest.mark.parametrize("design", LUCK, ids=str)
def test_intervals_by_luck_are_caught(design: Design) -> None:
    """Of all releases they cover; of those with an interval not."""
    found = seen(design, by=Before)
    assert found.all_hold and not found.intervals_hold


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize(
    ("n", "epsilon"), [(5000, 3.0), pytest.param(20_000, 1.0, marks=pytest.mark.nightly)]
)
def test_where_sampling_decides_nothing_is_wider(statistic: str, n: int, epsilon: float) -> None:
    design = Design(statistic, n, epsilon, 0.5, "wide")
    assert design.share_of_noise < 0.5
    assert 1 <= seen(design, 400).width / seen(design, 400, Before).width <= 1.05


@pytest.mark.study
@pytest.mark.parametrize("statistic", STATISTICS)
def test_all_of_it(statistic: str) -> None:
    designs = [
        Design(statistic, *each)
        for each in itertools.product(SIZES, EPSILONS, CORRELATIONS, SPREADS)
    ]
    found = {each: seen(each) for each in designs}
    assert not [each for each, of in found.items() if not (of.all_hold and of.intervals_hold)]
    decided = [each for each in designs if each.share_of_noise < 0.5]
    wider = [found[each].width / seen(each, by=Before).width for each in decided]
    assert decided and max(wider) <= 1.05
    assert math.isfinite(max(wider))
