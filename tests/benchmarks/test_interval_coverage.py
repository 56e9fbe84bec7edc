"""Coverage of intervals that are published as valid: quick forms, and all of it in full."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mechanisms.inference.intervals import normal_quantile
from mechanisms.inference.moment_designs import POWERS
from mechanisms.inference.rare_values import (
    inference_words,
    worst_of_mean,
    worst_of_quotient,
    worst_of_share,
)
from tests.benchmarks import interval_coverage as simulated

HARD = [
    ("ratio", "zipf 2.5", 300, 0.1),
    ("ratio", "99% zeros", 300, 0.3),
    ("slope", "nearly constant", 1000, 0.7),
    ("intercept", "0/1", 300, 0.3),
    ("correlation", "99% zeros", 1000, 0.3),
    ("mean where (5%)", "mass at a bound", 300, 0.1),
    ("difference (10%)", "zipf 1.5", 1000, 0.7),
    ("variance", "99% zeros", 5000, 0.7),
]


@pytest.mark.parametrize("each", HARD, ids=lambda each: " ".join(map(str, each)))
def test_sets_cover_where_denominators_are_near_0(each: tuple[str, str, int, float]) -> None:
    found = simulated.pair_figures(*each, 0.95, 1500)
    assert found.inference == "asymptotic"
    assert not simulated.shortfalls([found], 1500)


def test_a_gate_on_the_noisy_denominator_is_caught() -> None:
    """The rule of before: valid where it is above four deviations of its noise."""
    law = simulated.with_response(simulated.populations()["zipf 1.5"])
    (wanted, design, _), rng = simulated.PAIRS["ratio"], np.random.default_rng(1)
    known = simulated.released(law, design, 500, 0.1, 20_000, rng).known
    made = known._quotient(wanted)
    noise = np.linalg.norm(known.noise[POWERS.index((1, 0))])
    passed = made.below > 4 * noise
    ratio = made.top / made.below
    spread = made.top_variance - 2 * ratio * made.covariance + ratio**2 * made.below_variance
    truth = wanted.value(simulated.means_of(law))
    hits = np.abs(ratio - truth) <= normal_quantile(0.95) * np.sqrt(spread) / made.below
    assert passed.sum() > 500 and hits[passed].mean() < 0.3
    assert known.holds(wanted, truth, 0.95).mean() > 0.94


@pytest.mark.parametrize(
    ("statistic", "name", "n", "mu", "level"),
    [
        ("mean", "zipf 2.5", 5000, 0.7, 0.99),
        ("mean", "99% zeros", 300, 0.3, 0.95),
        ("proportion", "99% zeros", 1000, 3.0, 0.9),
    ],
)
def test_means_cover_as_published(
    statistic: str, name: str, n: int, mu: float, level: float
) -> None:
    found = list(simulated.mean_figures(statistic, name, n, mu, level, 5000))
    assert [each.inference for each in found] == ["asymptotic", "guaranteed"]
    assert not simulated.shortfalls(found, 5000)
    assert found[1].width < 2 * found[1].oracle


def test_guaranteed_variances_cover() -> None:
    found = list(simulated.variance_figures("mass at a bound", 300, 0.7, 0.9, 2000))
    assert not simulated.shortfalls(found, 2000)


def test_what_is_called_approximate_follows_from_the_noise_alone() -> None:
    for level in (0.9, 0.95, 0.99):
        for worst in (
            lambda s, level=level: worst_of_mean(s, 3.33, level),
            lambda s, level=level: worst_of_quotient(s, level),
            lambda s, level=level: worst_of_share(s, level),
        ):
            found = [worst(s) for s in (10.0, 1.0, 0.1)]
            assert all(b <= a + 0.002 for a, b in itertools.pairwise(found))
            assert inference_words(found[0], level) == "asymptotic"
            assert inference_words(found[-1], level) == "approximate"


def test_the_worst_coverage_is_met_by_rare_values() -> None:
    """Two values, the rare one five times in 5000 records, with the noise of a mean at mu = 3."""
    n, rare, s, level = 5000, 5, 1 / 3, 0.95
    rng = np.random.default_rng(2)
    count = rng.binomial(n, rare / n, 100_000)
    values, share = np.array([0.5, 1.0]), rare / n
    total = n * values[0] + count * 0.5 + s * rng.normal(size=len(count))
    squares = 0.25 * count + s / 3.33 * rng.normal(size=len(count))
    low, high = simulated.moment_interval(
        total / n, squares / n, n_records=n, sigma=s / n, level=level, square_noise=s / 3.33 / n
    )
    truth = 0.5 + share / 2
    covered = float(np.mean((low <= truth) & (truth <= high)))
    assert worst_of_mean(s, 3.33, level) - 0.004 < covered < level - 0.01


@pytest.mark.benchmark_full
@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_all_of_it(level: float) -> None:
    assert not simulated.shortfalls(simulated.all_figures(level, 5000), 5000)
