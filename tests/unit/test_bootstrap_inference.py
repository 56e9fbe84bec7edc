"""Algorithm 3, the t-interval and the cap, against their formulas and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.estimates.dp_bootstrap import (
    NoisyReplicates,
    check_replicates,
    suggested_replicates,
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
    assert made.mean == 3.0
    assert made.standard_error == pytest.approx(math.sqrt(square))
    assert NoisyReplicates(values, 3.0, 10, 1.0).standard_error == 0.0


def test_t_interval_by_hand() -> None:
    made = replicates(3.0, 150)
    spread = float(np.var(made.values, ddof=1))
    variance = (N**2 * spread - (2 - 2 / math.e) * 150 / 9) / (N - 1)
    degrees = (variance / (N * spread)) ** 2 * 149
    reach = stats.t.ppf(0.95, degrees) * made.standard_error
    found = made.t_interval(0.9)
    assert found.valid
    assert found.upper - found.lower == pytest.approx(2 * reach)


def test_t_interval_knows_when_it_is_not_valid() -> None:
    found = replicates(0.1, 200).t_interval(0.9)
    assert not found.valid
    cap = 1.6448536 * math.sqrt(1 / (4 * N) * (1 + 1 / 200) + replicates(0.1, 200).sigma ** 2 / 200)
    assert found.upper - found.lower == pytest.approx(2 * cap, rel=1e-6)


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
