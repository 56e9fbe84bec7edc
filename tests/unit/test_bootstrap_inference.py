"""Algorithms 3 to 5, the t-interval and the cap, against their formulas and simulation."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from mechanisms.errors import ConfigError, RecordsError
from mechanisms.inference.noisy_variance import (
    NoisyMoment,
    clamped_variance,
    covariance_interval,
    mean_margin,
)
from mechanisms.inference.replicate_intervals import (
    T_CONDITION,
    NoisyReplicates,
    check_replicates,
    suggested_replicates,
    t_replicates,
)

N = 3000


def replicates(mu: float, count: int, seed: int = 1) -> NoisyReplicates:
    rng = np.random.default_rng(seed)
    sigma = math.sqrt((2 - 2 / math.e) * count) / (N * mu)
    means = 0.5 + math.sqrt(1 / 12 / N) * rng.standard_normal(count)
    return NoisyReplicates(means + sigma * rng.standard_normal(count), sigma, N, 1 / N)


def test_algorithm_3_by_hand() -> None:
    values = np.array([1.0, 2.0, 4.0, 5.0])
    made = NoisyReplicates(values, 1.2, 10, 1.0)
    square = (10 / 9 + 1 / 4) * (10 / 3) - 10 / 9 * 1.44
    assert made.estimate.value == 3.0
    assert made.estimate.standard_error == pytest.approx(math.sqrt(square))
    assert NoisyReplicates(values, 3.0, 10, 1.0).estimate.standard_error == 0.0


def test_t_interval_by_hand() -> None:
    made = replicates(3.0, 150)
    spread = float(np.var(made.values, ddof=1))
    variance = (N**2 * spread - (2 - 2 / math.e) * 150 / 9) / (N - 1)
    degrees = (variance / (N * spread)) ** 2 * 149
    reach = stats.t.ppf(0.95, degrees) * made.estimate.standard_error
    found = made.t_interval(0.9)
    assert found.valid
    assert found.upper - found.lower == pytest.approx(2 * reach)


def test_t_interval_knows_when_it_is_not_valid() -> None:
    found = replicates(0.1, 200).t_interval(0.9)
    assert not found.valid
    cap = 1.6448536 * math.sqrt(1 / (4 * N) * (1 + 1 / 200) + replicates(0.1, 200).sigma ** 2 / 200)
    assert found.upper - found.lower == pytest.approx(2 * cap, rel=1e-6)


def test_range_of_replicates_for_the_t_interval() -> None:
    assert pytest.approx(91.025, abs=1e-3) == T_CONDITION
    assert t_replicates(1000, 1.0, 0.09) is None
    low, high = t_replicates(N, 1.0, 1 / 12) or (0.0, 0.0)
    for count in (low, high):  # where the condition before equation 14 is an equality
        left = 1 + (2 - 2 / math.e) * count / (N / 12)
        assert left == pytest.approx(math.sqrt(count) / (3 * math.sqrt(2)))


def test_every_interval_is_capped() -> None:
    made = replicates(0.1, 200)
    wide = NoisyReplicates(made.values, made.sigma, N, 1e-6)
    for found in (wide.percentile_interval(0.9), wide.t_interval(0.9)):
        cap = 1.6449 * math.sqrt(N * 1e-12 / 4 * (1 + 1 / 200) + made.sigma**2 / 200)
        assert found.upper - found.lower <= 2 * cap
    free = made.percentile_interval(0.9)
    assert free.upper - free.lower < made.deconvolved().interval(0.9)[1] - 0.4


def test_too_few_replicates_for_the_level() -> None:
    check_replicates(20, 0.9)
    with pytest.raises(ConfigError, match="at least 200"):
        check_replicates(199, 0.99)
    with pytest.raises(ConfigError, match="level"):
        check_replicates(100, 1.0)
    with pytest.raises(ConfigError, match="two replicates"):
        NoisyReplicates(np.array([1.0]), 1.0, N, 1 / N)


def test_rule_of_thumb_for_the_number_of_replicates() -> None:
    common = {"n_records": N, "sensitivity": 1 / N, "variance": 1 / 12 / N}
    found = suggested_replicates(0.9, mu=1.0, **common)
    assert (2 - 2 / math.e) * found / N**2 <= 1 / 12 / N < (2 - 2 / math.e) * (found + 1) / N**2
    assert suggested_replicates(0.99, mu=0.1, **common) == 200


def test_noise_of_several_moments_without_the_misprint() -> None:
    """2/(n mu)^2 each and not 2B/(n mu)^2, and sqrt 2 releases of mu/sqrt 2 are mu."""
    assert NoisyMoment(Fraction(1, 2), 2).sigma(N) == pytest.approx(math.sqrt(2) / (N / 2))
    assert NoisyMoment(Fraction(1, 2), 3).sigma(N) == pytest.approx(math.sqrt(3) / (N / 2))
    assert NoisyMoment(Fraction(1, 2), 3).loss().mu_squared == Fraction(1, 4)
    with pytest.raises(RecordsError):
        NoisyMoment(Fraction(0), 2)


@pytest.mark.parametrize(("mean", "variance"), [(0.5, 1 / 12), (0.1, 0.02), (0.9, 0.3)])
def test_margins_are_those_of_the_simulation(mean: float, variance: float) -> None:
    rng, n, sigma = np.random.default_rng(3), 400, 0.003
    drawn = rng.normal(mean, math.sqrt(variance), (4000, n))
    clamped = np.clip(drawn, 0, 1)
    assert clamped_variance(np.float64(mean), np.float64(variance)) == pytest.approx(
        clamped.var(), rel=0.01
    )
    for clamp, records in ((True, clamped), (False, drawn)):
        simulated = records.mean(axis=1) + sigma * rng.standard_normal(4000)
        low, high = np.quantile(simulated, [0.05, 0.95])
        margin = mean_margin(
            np.float64(mean), np.float64(variance), n_records=n, sigma=sigma, level=0.9, clamp=clamp
        )
        assert float(margin) == pytest.approx((high - low) / 2, rel=0.06)


def test_covariance_margin_is_that_of_the_simulation() -> None:
    rng, n, sigma = np.random.default_rng(3), 400, 0.002
    cov = np.array([[0.05, 0.02], [0.02, 0.03]])
    pairs = rng.multivariate_normal([0, 0], cov, size=(3000, n))
    centred = pairs - pairs.mean(axis=1, keepdims=True)
    found = (centred[..., 0] * centred[..., 1]).sum(axis=1) / (n - 1)
    found = found + sigma * rng.standard_normal(3000)
    low, high = covariance_interval(
        np.float64(0.05), np.float64(0.03), np.float64(0.02), n_records=n, sigma=sigma, level=0.9
    )
    quantiles = np.quantile(found, [0.05, 0.95])
    assert float(high - low) == pytest.approx(quantiles[1] - quantiles[0], rel=0.06)
    low, high = covariance_interval(
        np.float64(0.01), np.float64(-0.1), np.float64(0.5), n_records=n, sigma=sigma, level=0.9
    )
    assert float(low + high) == pytest.approx(0)  # clamped by a noisy variance below 0
