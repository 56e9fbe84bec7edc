"""The errors against closed forms, quadrature and a fine grid."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import beta

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
