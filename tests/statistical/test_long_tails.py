"""Records beside an estimate of the mean of one of their columns, which has a long tail."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from coded import in_memory
from scipy import stats

from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.estimates.joint_moments import JointMoments
from statpress.mechanisms.marginals import column_shares
from statpress.mechanisms.marginals.marginals import Marginals, MarginalsKnobs
from statpress.mechanisms.marginals.residuals import NoisySum
from statpress.mechanisms.mechanism import Target
from statpress.tasks.release.entropy import SeededRandomness

N = 5912
ASKED, LEVEL = 0.93, 1e-4


def visits(rng: np.random.Generator) -> tuple[Integer, np.ndarray]:
    """A negative binomial of mean 2.9 in cells of 1."""
    values = np.minimum(rng.negative_binomial(0.6, 0.6 / 3.46, N), 99)
    return Integer(name="x", lower=0, upper=99), values


def costs(rng: np.random.Generator) -> tuple[Integer, np.ndarray]:
    """A lognormal in 200 cells, of which 40 % are 0."""
    values = np.where(rng.random(N) < 0.4, 0, np.exp(rng.normal(4, 1.3, N)))
    return Integer(name="x", lower=0, upper=1999, width=10), np.minimum(values, 1999) // 10


def within(source, epsilon: float, repetitions: int) -> int:
    """How many releases have records with a mean in the estimate's interval at 95 %."""
    rng = np.random.default_rng(3)
    column, codes = source(rng)
    other = (codes > 0) + rng.integers(0, 3, N)
    domain = Domain((column, Integer(name="other", lower=0, upper=3)))
    coded = in_memory(domain, np.stack([codes, other], axis=1).astype(np.uint8))
    target = Target(epsilon=epsilon, delta=1e-6, n_records=N, n_cells=2, domain=domain)
    records = Marginals.calibrate(MarginalsKnobs(), target)
    values = column.decode(np.arange(column.size)).astype(np.float64)
    bounds = float(column.lower), float(column.upper)
    moments = JointMoments.calibrate(
        Fraction(epsilon).limit_denominator(10) / 12, lower=bounds[0], upper=bounds[1]
    )
    counts = np.bincount(codes.astype(int), minlength=column.size)
    weights = (values - bounds[0]) / (bounds[1] - bounds[0])
    draws, hits = SeededRandomness(np.random.PCG64(4)), 0
    for _ in range(repetitions):
        mean = moments.release(values, counts, draws)
        value, sd = mean.noisy_sum
        beside = (NoisySum(0, weights, value, sd**2),)
        release = replace(records.release(coded, draws), beside=beside)
        low, high = mean.interval(0.95)
        hits += low <= values[records.postprocess(release).codes[0]].mean() <= high
    return hits


@pytest.mark.parametrize("source", [visits, pytest.param(costs, marks=pytest.mark.nightly)])
def test_the_mean_of_records_is_within_the_interval_of_the_estimate(
    source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twin: cells projected without regard to means."""
    assert stats.binom.cdf(within(source, 1.0, 30), 30, ASKED) > LEVEL
    monkeypatch.setattr(column_shares, "_within", lambda shares, *_: shares)
    assert stats.binom.cdf(within(source, 1.0, 20), 20, ASKED) < LEVEL


@pytest.mark.nightly
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("source", [visits, costs])
def test_the_mean_is_within_it_in_93_of_100_releases(source, epsilon: float) -> None:
    share = within(source, epsilon, 500) / 500
    print(source.__name__, epsilon, share)
    assert share >= ASKED
