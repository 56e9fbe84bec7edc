"""What a real release of resampled statistics tells two neighbours apart, at level 1e-6."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from randomgen import AESCounter
from scipy import stats

from statpress.mechanisms.accounting.losses import GaussianLoss
from statpress.mechanisms.accounting.noise_losses import (
    BootstrapLoss,
    ResampledGaussianLoss,
    SubsampleLoss,
)
from statpress.mechanisms.estimates.dp_bootstrap import BootstrapReplicates
from statpress.mechanisms.estimates.statistics import Mean
from statpress.mechanisms.estimates.subsample_split import subset_counts
from statpress.mechanisms.sampling.randomness import StatisticNoise
from statpress.tasks.release.entropy import SeededRandomness

LEVEL = 1e-6
DRAWS = 8_000
MANY = 20_000
"""Where the claim that is caught is near to the right one."""
F = Fraction
Release = Callable[[np.ndarray, float, int, int], np.ndarray]
ONE, OTHER = np.array([1, 1]), np.array([2, 0])  # of values 0 and 1: one record moved


def seeded(key: int) -> SeededRandomness:
    return SeededRandomness(AESCounter(key=key))


def bootstrap(counts: np.ndarray, share: float, draws: int, key: int) -> np.ndarray:
    """Replicates of the mean of two records, with so much of the noise for mu = 1."""
    noise = StatisticNoise.calibrate(F(1) / F(share) ** 2, sensitivity=F(1, 2))
    made = BootstrapReplicates(Mean(), 2, draws, noise)
    return made.release(counts, np.array([[0.0], [1.0]]), seeded(key))[:, 0]


def subsample(counts: np.ndarray, share: float, draws: int, key: int) -> np.ndarray:
    """One of the two records, with so much of the noise for mu = 1."""
    noise = StatisticNoise.calibrate(F(1) / F(share) ** 2, sensitivity=F(1))
    weights = subset_counts(counts, 1, draws, seeded(key))
    return noise.release(weights @ np.array([0.0, 1.0]), seeded(key + 10))


@functools.cache
def drawn(release: Release, share: float, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Outputs of both neighbours, the same for every epsilon."""
    return release(ONE, share, draws, 1), release(OTHER, share, draws, 2)


def largest_gap(release: Release, share: float, epsilon: float, draws: int = DRAWS) -> float:
    """Lower confidence bound, at the level, on the best of a few events' gap."""
    one, other = drawn(release, share, draws)
    worst = -1.0
    cuts = np.quantile(one, np.linspace(0.3, 0.98, 15))
    for cut in cuts:
        hits, misses = int(np.sum(one > cut)), int(np.sum(other > cut))
        low = stats.beta.ppf(LEVEL / 30, hits, draws - hits + 1)
        high = stats.beta.ppf(1 - LEVEL / 30, misses + 1, draws - misses)
        worst = max(worst, float(low - math.exp(epsilon) * high))
    return worst


CASES: list[tuple[object, ResampledGaussianLoss]] = [
    (bootstrap, BootstrapLoss(F(1), 2)),
    (subsample, SubsampleLoss(F(1), F(1, 2))),
]


@pytest.mark.parametrize(("release", "loss"), CASES)
@pytest.mark.parametrize("epsilon", [0.1, 0.6])
def test_no_event_passes_the_claim_and_half_the_noise_is_caught(release, loss, epsilon) -> None:
    claim = loss.delta(epsilon).upper
    assert largest_gap(release, 1.0, epsilon) <= claim
    assert largest_gap(release, 0.5, epsilon) > claim


def test_amplification_taken_twice_is_caught() -> None:
    """A subsample charged as if it were drawn from a quarter of the records."""
    claim = SubsampleLoss(F(1), F(1, 4)).delta(0.1).upper
    assert largest_gap(subsample, 1.0, 0.1) > claim


def test_a_bootstrap_charged_as_its_statistic_is_caught() -> None:
    """The bootstrap is not free: two copies of a record show at larger epsilon."""
    assert BootstrapLoss(F(1), 2).delta(1.5).upper > GaussianLoss(F(1)).delta(1.5).upper
    claim = GaussianLoss(F(1)).delta(1.8).upper
    assert largest_gap(bootstrap, 1.0, 1.8, MANY) > claim
