"""Joint moments of two columns: sensitivity, estimates and coverage."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from statpress.mechanisms.estimates.fieller import GAP, INTERVAL, WHOLE_LINE, WHOLE_RANGE
from statpress.mechanisms.estimates.moment_designs import (
    CORRELATION,
    COVARIANCE,
    GROUP_DIFFERENCE,
    ONE,
    RATIO,
    SLOPE,
    VARIANCE,
    Derived,
)
from statpress.mechanisms.estimates.pair_moments import NoisyPair, PairMoments
from statpress.mechanisms.estimates.statistics import intercept
from statpress.tasks.release.entropy import SeededRandomness

F = Fraction
INTERCEPT = intercept(0.0)
LEVEL = 1e-6
Draw = Callable[[np.random.Generator, int], np.ndarray]


def seeded(seed: int) -> SeededRandomness:
    return SeededRandomness(np.random.PCG64(seed))


def skewed(rng: np.random.Generator, n: int) -> np.ndarray:
    x = rng.beta(2, 5, n)
    return np.column_stack([x, np.clip(0.3 * x + rng.beta(2, 8, n), 0, 1)])


def groups(rng: np.random.Generator, n: int) -> np.ndarray:
    x = (rng.random(n) < 0.3).astype(float)
    return np.column_stack([x, np.where(x > 0, rng.beta(3, 4, n), rng.beta(2, 5, n))])


DIRECT: dict[str, tuple[Derived, Draw, Callable[[np.ndarray], float]]] = {
    "correlation": (CORRELATION, skewed, lambda d: float(np.corrcoef(d.T)[0, 1])),
    "slope": (SLOPE, skewed, lambda d: float(stats.linregress(*d.T).slope)),
    "intercept": (INTERCEPT, skewed, lambda d: float(stats.linregress(*d.T).intercept)),
    "ratio": (RATIO, skewed, lambda d: float(d[:, 1].sum() / d[:, 0].sum())),
    "covariance": (COVARIANCE, skewed, lambda d: float(np.cov(d.T, ddof=0)[0, 1])),
    "variance": (VARIANCE, skewed, lambda d: float(d[:, 0].var())),
    "difference": (
        GROUP_DIFFERENCE,
        groups,
        lambda d: float(d[d[:, 0] > 0, 1].mean() - d[d[:, 0] == 0, 1].mean()),
    ),
}


def test_one_column_alone_gives_the_same_variance() -> None:
    data = skewed(np.random.default_rng(3), 5000)[:, :1]
    made = PairMoments.calibrate(F(10), n_records=5000, design=ONE)
    found = made.release(np.ones(5000, np.int64), data, seeded(1))
    assert found.known.estimate(VARIANCE) == pytest.approx(float(data.var()), abs=1e-3)
    assert F(99) < made.loss().mu_squared <= F(100)
    assert PairMoments.at(made.noise.scale, ONE) == made


def test_loss_is_mu() -> None:
    square = PairMoments.calibrate(F(1, 3), n_records=5000).loss().mu_squared
    assert F(1, 9) * (1 - F(1, 10**5)) < square <= F(1, 9)


@pytest.mark.parametrize("name", DIRECT)
def test_without_noise_the_estimate_is_the_statistic(name: str) -> None:
    wanted, draw, direct = DIRECT[name]
    data = draw(np.random.default_rng(3), 5000)
    found = PairMoments.calibrate(F(10), n_records=5000).release(
        np.ones(5000, np.int64), data, seeded(1)
    )
    assert found.known.estimate(wanted) == pytest.approx(direct(data), abs=2e-3)
    resampled = np.random.default_rng(4).integers(0, 5000, (800, 5000))
    spread = np.std([direct(data[rows]) for rows in resampled[:250]])
    interval = found.interval(wanted, 0.9)
    assert interval.shape == INTERVAL
    assert (interval.upper - interval.lower) / 2 / 1.645 == pytest.approx(spread, rel=0.2)


@functools.cache
def population(draw: Draw) -> np.ndarray:
    """Records enough to hold the truth."""
    return draw(np.random.default_rng(11), 2_000_000)


def coverage(name: str, mu: Fraction, runs: int, level: float = 0.9) -> float:
    wanted, draw, direct = DIRECT[name]
    truth = direct(population(draw))
    made, rng, data = PairMoments.calibrate(mu, n_records=5000), seeded(5), np.random.default_rng(6)
    found = [made.release(np.ones(2000, np.int64), draw(data, 2000), rng) for _ in range(runs)]
    # All sets at once, and the first by itself too.
    every = NoisyPair(made, 2000, np.stack([each.sums for each in found]))
    sets, alone = every.known.sets(wanted, level), found[0].interval(wanted, level)
    assert (sets.lower[0], sets.upper[0]) == pytest.approx((alone.lower, alone.upper))
    in_gap = (sets.gap_lower < truth) & (truth < sets.gap_upper)
    hits = np.sum((sets.lower <= truth) & (truth <= sets.upper) & ~in_gap)
    return float(hits / runs)


@pytest.mark.parametrize(
    "name",
    [
        name
        if name in ("correlation", "variance")
        else pytest.param(name, marks=pytest.mark.nightly)
        for name in DIRECT
    ],
)
def test_coverage(name: str) -> None:
    runs = 200
    low, high = (
        stats.binom.ppf(p, runs, level) / runs for p, level in ((LEVEL, 0.88), (1 - LEVEL, 0.93))
    )
    assert low <= coverage(name, F(1, 2), runs) <= high
    if name == "variance":  # where the noise on the fourth moment is as large as what it measures
        assert coverage(name, F(1, 5), runs) >= low


def test_an_interval_too_short_is_caught() -> None:
    assert coverage("slope", F(1, 2), 200, 0.67) < stats.binom.ppf(LEVEL, 200, 0.88) / 200


@pytest.mark.parametrize("wanted", [CORRELATION, SLOPE, INTERCEPT])
def test_a_column_without_spread_gives_an_unbounded_set(wanted: Derived) -> None:
    columns = np.array([[0.4, 0.1], [0.4, 0.9]])
    found = PairMoments.calibrate(F(1), n_records=5000).release(
        np.array([500, 500]), columns, seeded(2)
    )
    interval = found.interval(wanted, 0.9)
    assert interval.shape in (WHOLE_LINE, WHOLE_RANGE)
    assert (interval.lower, interval.upper) == wanted.bounds


def test_a_group_that_is_empty_gives_an_unbounded_set() -> None:
    columns = np.array([[0.0, 0.1], [0.0, 0.9]])
    found = PairMoments.calibrate(F(1), n_records=5000).release(
        np.array([500, 500]), columns, seeded(2)
    )
    assert found.interval(GROUP_DIFFERENCE, 0.9).shape in (GAP, WHOLE_RANGE)
    assert math.isinf(found.interval(RATIO, 0.9).upper)
    assert math.isfinite(found.known.estimate(COVARIANCE))
