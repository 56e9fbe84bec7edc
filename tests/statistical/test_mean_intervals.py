"""Intervals for means on the real noise and in many replicates."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from statpress.mechanisms.estimates.joint_moments import JointMoments, moment_interval
from statpress.tasks.release.entropy import SeededRandomness, SystemRandomness

LEVEL = 1e-6
LEVELS = (0.9, 0.95, 0.99)
MUS = (0.1, 0.3, 0.5, 1.0)
Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]

POPULATIONS: dict[str, tuple[Draw, float, float]] = {
    "uniform": (lambda rng, size: rng.random(size), 1 / 2, 1 / 12),
    "beta": (lambda rng, size: rng.beta(2, 5, size), 2 / 7, 10 / 392),
    "exponential": (
        lambda rng, size: -np.log1p(rng.random(size) * math.expm1(-5)) / 5,
        0.2 - 1 / math.expm1(5),
        0.04 - math.exp(5) / math.expm1(5) ** 2,
    ),
    "lognormal": (
        lambda rng, size: np.minimum(rng.lognormal(-2, 0.8, size), 1.0),
        *(
            lambda one, two: (one, two - one**2)
        )(*(
            math.exp(-2 * k + (0.8 * k) ** 2 / 2) * stats.norm.cdf(2.5 - 0.8 * k)
            + stats.norm.sf(2.5)
            for k in (1, 2)
        )),
    ),
    "bernoulli": (lambda rng, size: (rng.random(size) < 0.05).astype(float), 0.05, 0.0475),
}  # fmt: skip


def moments(draw: Draw, n: int, replicates: int) -> tuple[np.ndarray, np.ndarray]:
    """Means of x and of (x - 1/2)^2 in many samples of size n."""
    rng, block = np.random.default_rng(20261121), max(1, 1_000_000 // n)
    one, two = np.empty(replicates), np.empty(replicates)
    for start in range(0, replicates, block):
        x = draw(rng, (min(block, replicates - start), n))
        one[start : start + block], two[start : start + block] = x.mean(1), ((x - 0.5) ** 2).mean(1)
    return one, two


def worst_coverage_and_width(
    name: str, n: int, replicates: int, broken: float = 1.0
) -> tuple[float, float]:
    """Largest level - coverage, and width over the oracle's, over all mu and levels."""
    draw, mean, variance = POPULATIONS[name]
    one, two = moments(draw, n, replicates)
    rng = np.random.default_rng(7)
    gap = wide = 0.0
    for mu in MUS:
        s = 1 / (n * mu)
        noisy = one + s * rng.standard_normal(replicates)
        second = two + s / 3.33 * rng.standard_normal(replicates)
        for level in LEVELS:
            low, high = moment_interval(
                noisy, second, n_records=n, sigma=s * broken, level=level, square_noise=s / 3.33
            )
            oracle = 2 * NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(variance / n + s**2)
            gap = max(gap, level - float(np.mean((low <= mean) & (mean <= high))))
            wide = max(wide, float(np.mean(high - low)) / oracle)
    return gap, wide


WIDTHS = {
    "uniform": (1.008, 1.005, 1.003),
    "beta": (1.037, 1.022, 1.013),
    "exponential": (1.044, 1.026, 1.015),
    "lognormal": (1.051, 1.030, 1.017),
    "bernoulli": (1.051, 1.030, 1.017),
}
"""The largest width over the oracle's, at n = 1000, 3000 and 10 000, some .002 above what it is.

Above 1 is the price of covering rare values too (tests/unit/test_joint_moments.py), which shrinks
as 1/sqrt n: Wilson's form with nothing added is below 1.01 everywhere, and with rare values
its coverage is up to 1.7 points short at mu = .7, and 3 points at mu = 1.
"""


@pytest.mark.parametrize("name", POPULATIONS)
def test_coverage_and_width(name: str) -> None:
    gap, wide = worst_coverage_and_width(name, 1000, 4000)
    assert gap < 0.02  # four standard deviations at 4000 replicates
    assert wide < WIDTHS[name][0]


def test_an_interval_that_forgets_half_the_noise_is_caught() -> None:
    assert worst_coverage_and_width("bernoulli", 1000, 4000, broken=0.5)[0] > 0.1


@pytest.mark.nightly
@pytest.mark.parametrize("n", [1000, 3000, 10_000])
@pytest.mark.parametrize("name", POPULATIONS)
def test_coverage_and_width_in_full(name: str, n: int) -> None:
    gap, wide = worst_coverage_and_width(name, n, 10_000)
    assert gap < 0.015
    assert wide < WIDTHS[name][(1000, 3000, 10_000).index(n)]


def test_paper_table_2_widths() -> None:
    """n = 3000, U(0, 1), 90 %: .017, .023, .034, .097 in the paper."""
    one, two = moments(POPULATIONS["uniform"][0], 3000, 1000)
    rng = np.random.default_rng(3)
    for mu, most in ((1.0, 0.0175), (0.5, 0.0177), (0.3, 0.0180), (0.1, 0.0208)):
        s = 1 / (3000 * mu)
        noise = rng.standard_normal((2, 1000))
        low, high = moment_interval(
            one + s * noise[0],
            two + s / 3.33 * noise[1],
            n_records=3000,
            sigma=s,
            level=0.9,
            square_noise=s / 3.33,
        )
        assert float(np.mean(high - low)) < most


@pytest.mark.parametrize("kind", ["seeded", "system"])
def test_released_noise_has_the_charged_scale(kind: str) -> None:
    made = JointMoments.calibrate(Fraction(1, 2), lower=0, upper=1)
    seeded = kind == "seeded"
    rng = SeededRandomness(np.random.PCG64(5)) if seeded else SystemRandomness(np.random.PCG64(5))
    values, counts = np.array([0.25, 0.75]), np.array([40, 60])
    draws = [made.release(values, counts, rng) for _ in range(1500 if seeded else 300)]
    totals = np.array([d.total - (-40 + 60) * 2**19 for d in draws]) / float(made.scale)
    squares = np.array([d.squares - 100 * 2**38 for d in draws]) / float(made.square_scale)
    for noise in (totals, squares):
        assert stats.kstest(noise, "norm").pvalue > LEVEL
        if seeded:
            assert stats.kstest(noise * 1.3, "norm").pvalue < LEVEL
    assert abs(stats.pearsonr(totals, squares).statistic) < 5 / math.sqrt(len(draws))
