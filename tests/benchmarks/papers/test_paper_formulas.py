"""Errors and margins of the papers against closed forms, quadrature, a grid and simulation."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import beta

from statpress.mechanisms.errors import RecordsError
from tests.benchmarks.papers.beta_distribution import (
    SQUARED_DENSITY,
    bin_counts,
    cosine_coefficients,
    density,
    kolmogorov_smirnov,
    sample,
    series_error,
)
from tests.benchmarks.papers.bin_shares import Shares
from tests.benchmarks.papers.noisy_variance import (
    NoisyMoment,
    clamped_variance,
    covariance_interval,
    mean_margin,
)

TRUE = beta(10, 10)
RNG = np.random.default_rng(3)


@pytest.mark.parametrize(
    "shares",
    [
        np.array([1.0]),
        np.diff(TRUE.cdf(np.arange(11) / 10)),
        bin_counts(sample(1000, RNG), 25) / 1000,
        RNG.normal(size=10) / 10,
    ],
    ids=["one bin", "true shares", "sampled", "negative"],
)
def test_kolmogorov_smirnov_is_the_supremum(shares: Shares) -> None:
    s = len(shares)
    x = np.linspace(0, 1, 100 * s * 100 + 1)  # its points hold all edges
    cumulative = np.interp(x, np.arange(s + 1) / s, np.concatenate([[0], np.cumsum(shares)]))
    on_grid = np.abs(TRUE.cdf(x) - cumulative).max()
    found = kolmogorov_smirnov(shares)
    # |F''| < 24: between grid points the difference passes its ends by less than 3 step^2.
    assert on_grid - 1e-12 <= found <= on_grid + 3 * x[1] ** 2


def test_density_and_its_square() -> None:
    x = np.linspace(0, 1, 101)
    assert density(x) == pytest.approx(TRUE.pdf(x), abs=1e-12)
    assert pytest.approx(quad(lambda t: TRUE.pdf(t) ** 2, 0, 1)[0], rel=1e-9) == SQUARED_DENSITY


def test_cosine_coefficients() -> None:
    expected = [
        quad(lambda x, j=j: np.sqrt(2) * np.cos(np.pi * j * x) * TRUE.pdf(x), 0, 1)[0]
        for j in range(1, 9)
    ]
    assert cosine_coefficients(8) == pytest.approx(expected, abs=1e-9)


def test_series_error_is_the_integral() -> None:
    coefficients = np.array([0.1, -1.0, 0.2])

    def squared_gap(x: float) -> float:
        terms = np.sqrt(2) * np.cos(np.pi * np.arange(1, 4) * x)
        return float((1 + coefficients @ terms - TRUE.pdf(x)) ** 2)

    assert series_error(coefficients) == pytest.approx(quad(squared_gap, 0, 1)[0], rel=1e-9)
    assert series_error(cosine_coefficients(20)) == pytest.approx(0, abs=1e-12)


N = 3000


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
