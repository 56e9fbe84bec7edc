"""Coverage of `query --population`: rare and common cells, and units with records that are alike.

The ends of an interval grow with the noisy count, so that how many of many runs are covered follows
from the intervals of a few of them, found by bisection among the sorted counts.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from statistics import NormalDist

import numpy as np
import pytest
from coded import domain_of

from statpress.mechanisms.domain.domain import Adjacency
from statpress.mechanisms.marginals.marginals import Marginals, MarginalsKnobs
from statpress.mechanisms.marginals.measurement import table_sensitivity_squared
from statpress.mechanisms.marginals.population import Sample
from statpress.mechanisms.marginals.residuals import (
    GRID,
    NoisyTable,
    Residuals,
    combine,
    query,
    scale_of,
)
from statpress.mechanisms.mechanism import Target

EXPECTED, UNIT_RECORDS = (0.5, 1, 2, 4, 10, 100), (1, 5, 10)
RECORDS, EPSILONS = (300, 2000, 50_000), (0.3, 1.0, 3.0, 10.0)
LEVELS, KNOWN = (0.9, 0.95, 0.99), math.inf  # totals that are known: a budget without end
ONE = np.array([1.0, 0.0])


def required(level: float, *, runs: int | None = None) -> float:
    """Least coverage: 1.5 points less than the level, and at most 1.3 times its miss rate.

    With ``runs`` three standard deviations of chance less.
    """
    least = level - min(0.015, 0.3 * (1 - level))
    return least - (3 * math.sqrt(least * (1 - least) / runs) if runs else 0.0)


Interval = Callable[[Residuals, Sample, float], tuple[float, float]]


def by_query(residuals: Residuals, sample: Sample, level: float) -> tuple[float, float]:
    answer = query(residuals, (0,), ONE, confidence=level, sample=sample)
    return answer.lower, answer.upper


def by_wald(residuals: Residuals, sample: Sample, level: float) -> tuple[float, float]:
    """The twin: a normal interval with the variance of independent records."""
    value, n = float(residuals.table((0,))[0]), max(float(residuals.values[()]), 1.0)
    variance = residuals.query_variance((0,), ONE) + n * max(value / n * (1 - value / n), 0.0)
    reach = NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(variance)
    return value - reach, value + reach


def covered(
    expected: float, n: int, c: int, epsilon: float, *, runs: int, interval: Interval = by_query
) -> dict[float, float]:
    """The share of runs covered, by level; all c records of a unit are alike."""
    units = n // c
    sample = Sample(n_units=units, unit_records=c, absent=c > 1)
    rng = np.random.default_rng([round(10 * expected), n, c, round(10 * min(epsilon, 1e3))])
    counts = c * rng.binomial(units, expected / (c * units), runs)
    if epsilon == KNOWN:
        order = np.sort(counts)
    else:
        target = Target(
            epsilon=epsilon, delta=1e-6, n_records=c * units, unit_records=c, n_cells=2,
            domain=domain_of((2,), absent=c > 1),
        )  # fmt: skip
        mu = Marginals.calibrate(MarginalsKnobs(), target).mu
        scale = scale_of(table_sensitivity_squared(c, Adjacency.REPLACE_ONE), mu**2)
        # Of one cell in all: half the difference of two noisy cells where n is known.
        noise = rng.normal(0, float(scale), (2, runs)).round().astype(np.int64)
        tables = np.stack([counts, c * units - counts]) * GRID + noise
        order = tables[:, np.argsort(tables[0] - (c == 1) * tables[1])].T

    def ends(row: np.ndarray, level: float) -> tuple[float, float]:
        n_present = c * units if c == 1 else None
        if epsilon == KNOWN:
            known = {(0,): np.array([row, c * units - row])}
            residuals = combine((2,), [], n_present=n_present, known=known)
        else:
            residuals = combine((2,), [NoisyTable((0,), scale, row)], n_present=n_present)
        return interval(residuals, sample, level)

    shares = {}
    for level in LEVELS:
        first = bisect_left(order, True, key=lambda row: ends(row, level)[1] >= expected)
        last = bisect_left(order, True, key=lambda row: ends(row, level)[0] > expected)
        shares[level] = (last - first) / runs
    return shares


def short(grid: Iterable[tuple[float, int, int, float]], runs: int, interval: Interval) -> list:
    """The settings whose intervals cover less than they state, with the shares covered."""
    found = []
    for setting in grid:
        shares = covered(*setting, runs=runs, interval=interval)
        found += [
            (setting, each) for each in shares.items() if each[1] < required(each[0], runs=runs)
        ]
    return found


COARSE = list(itertools.product((0.5, 4, 100), (2000,), (1, 10), (0.3, KNOWN)))


def test_intervals_for_a_population_cover() -> None:
    assert not short(COARSE, 2000, by_query)
    assert len(short(COARSE, 2000, by_wald)) >= 10  # the twin


@pytest.mark.parametrize("c", UNIT_RECORDS)
def test_the_interval_of_before_is_caught(c: int) -> None:
    """Width 0 where nobody is in the cell, and clusters that count as independent records."""
    assert covered(0.5, 2000, 1, KNOWN, runs=2000, interval=by_wald)[0.95] < 0.5
    alike = covered(100, 50_000, c, KNOWN, runs=2000, interval=by_wald)[0.95]
    assert (alike < 0.7) == (c > 1)


@pytest.mark.nightly
@pytest.mark.parametrize("c", UNIT_RECORDS)
def test_coverage_in_five_thousand_runs(c: int) -> None:
    settings = itertools.product(EXPECTED, RECORDS, (c,), (*EPSILONS, KNOWN))
    shares = {each: covered(*each, runs=5000) for each in settings}
    for level in LEVELS:
        least = min(shares, key=lambda each, level=level: shares[each][level])
        mean = np.mean([each[level] for each in shares.values()])
        print(f"c = {c}, {level}: least {shares[least][level]:.4f} at {least}, mean {mean:.4f}")
        assert shares[least][level] >= required(level)
