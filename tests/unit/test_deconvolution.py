"""Deconvolution against an independent optimiser of the model as defined."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, interpolate, optimize, stats

from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.estimates.dp_bootstrap import (
    Deconvolved,
    deconvolve,
    objective,
    spline_basis,
)

NORMAL = 0.5 + 0.01 * stats.norm.ppf((np.arange(200) + 0.5) / 200)
SKEWED = 3 + stats.gamma.ppf((np.arange(150) + 0.5) / 150, 2.5)
GOLDEN = {
    "normal": (NORMAL, 0.006, 0.9),
    "normal, loud": (NORMAL, 0.0099, 0.9),
    "skewed": (SKEWED, 0.7, 0.8),
}


def by_definition(noisy: np.ndarray, sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """Grid and masses by a quasi-Newton search that knows values alone."""
    q1, q3 = np.quantile(noisy, [0.25, 0.75])
    x = np.linspace(q1 - 3 * (q3 - q1), q3 + 3 * (q3 - q1), 1000)
    edges = np.linspace(noisy.min(), noisy.max(), 41)
    counts, _ = np.histogram(noisy, edges)
    edges[0], edges[-1] = -np.inf, np.inf
    kernel = np.array([np.diff(stats.norm.cdf(edges, at, sigma)) for at in x]).T
    basis = spline_basis()

    def cost(a: np.ndarray) -> float:
        g = np.exp(basis @ a - (basis @ a).max())
        return float(-counts @ np.log(kernel @ (g / g.sum())) + 0.1 * math.sqrt(a @ a))

    best = np.ones(5)
    for method in ("BFGS", "Nelder-Mead", "BFGS"):
        options = {"maxiter": 20_000, "maxfev": 20_000} if method == "Nelder-Mead" else {}
        best = optimize.minimize(cost, best, method=method, options=options).x
    g = np.exp(basis @ best - (basis @ best).max())
    return x, g / g.sum()


@pytest.mark.parametrize("name", GOLDEN)
def test_the_minimum_is_that_of_an_independent_optimiser(name: str) -> None:
    noisy, sigma, level = GOLDEN[name]
    found = deconvolve(noisy, sigma)
    x, g = by_definition(noisy, sigma)
    assert np.allclose(found.points, x)
    assert np.max(np.abs(np.cumsum(found.masses) - np.cumsum(g))) < 2e-4
    low, high = found.interval(level)
    assert low == pytest.approx(np.interp((1 - level) / 2, np.cumsum(g), x), rel=1e-4)
    assert high == pytest.approx(np.interp((1 + level) / 2, np.cumsum(g), x), rel=1e-4)
    assert found.steps < 20


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("normal", 0.4870429, 0.5133721),
        ("normal, loud", 0.4907611, 0.5095063),
        ("skewed", 3.961917, 7.345335),
    ],
)
def test_stored_reference_values(name: str, low: float, high: float) -> None:
    """Computed once by the optimiser of the test above."""
    noisy, sigma, level = GOLDEN[name]
    assert deconvolve(noisy, sigma).interval(level) == pytest.approx((low, high), rel=1e-5)


def test_derivatives_are_those_of_the_value() -> None:
    rng, basis = np.random.default_rng(2), spline_basis()
    kernel = stats.norm.pdf(rng.normal(size=(12, 1)), np.linspace(-3, 3, 1000), 0.8)
    counts = rng.integers(1, 9, 12).astype(float)

    def at(a: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        return objective(a, kernel, counts, 0.1, basis)

    a = rng.normal(size=5)
    _, gradient, hessian = at(a)
    for i, unit in enumerate(np.eye(5) * 1e-5):
        up, down = at(a + unit), at(a - unit)
        assert (up[0] - down[0]) / 2e-5 == pytest.approx(gradient[i], rel=1e-5, abs=1e-7)
        assert (up[1] - down[1]) / 2e-5 == pytest.approx(hessian[i], rel=1e-4, abs=1e-6)


def test_basis_spans_the_natural_cubic_splines() -> None:
    basis, x = spline_basis(), np.linspace(0, 1, 1000)
    assert np.allclose(basis.mean(axis=0), 0) and np.allclose(np.linalg.norm(basis, axis=0), 1)
    knots = np.linspace(0, 1, 6)
    natural = interpolate.CubicSpline(knots, [0, 1, -1, 2, 0, 3], bc_type="natural")(x)
    design = np.column_stack([np.ones(1000), basis])
    assert np.linalg.norm(design @ np.linalg.lstsq(design, natural)[0] - natural) < 1e-9
    bent = interpolate.CubicSpline(knots, [0, 1, -1, 2, 0, 3], bc_type="clamped")(x)
    assert np.linalg.norm(design @ np.linalg.lstsq(design, bent)[0] - bent) > 0.1


def test_noise_is_taken_away() -> None:
    rng = np.random.default_rng(4)
    signal = rng.normal(2.0, 1.0, 4000)
    noisy = signal + rng.normal(0, 1.0, 4000)
    low, high = deconvolve(noisy, 1.0).interval(0.9)
    assert high - low == pytest.approx(2 * 1.645, rel=0.12)
    low, high = deconvolve(noisy, 0.01).interval(0.9)  # the noise forgotten
    assert high - low > 1.3 * 2 * 1.645


def test_quantiles_invert_the_distribution() -> None:
    found = deconvolve(NORMAL, 0.006)
    assert isinstance(found, Deconvolved)
    middle = integrate.trapezoid(found.points * found.masses) / integrate.trapezoid(found.masses)
    assert found.quantile(0.5) == pytest.approx(0.5, abs=2e-4)
    assert middle == pytest.approx(0.5, abs=2e-4)
    assert found.quantile(0.01) < found.quantile(0.3) < found.quantile(0.99)


@pytest.mark.parametrize(
    ("noisy", "sigma"),
    [([], 1.0), ([1.0], 1.0), ([1.0, 1.0, 1.0], 1.0), ([1.0, 2.0], 0.0), ([1.0, 2.0], math.nan)],
)
def test_what_cannot_be_deconvolved(noisy: list[float], sigma: float) -> None:
    with pytest.raises(ConfigError, match="deconvolution"):
        deconvolve(np.array(noisy), sigma)
