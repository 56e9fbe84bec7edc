"""Least squares from noisy moments: Wald intervals, Anderson-Rubin sets, and their coverage."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from statpress.mechanisms.estimates.linear_regression import Coefficient, RegressionMoments

N, LEVEL = 5000, 0.95
TRUE = np.array([0.03, 0.4, -0.2])  # a constant and two predictors
STEEP = 5 * TRUE
SPREAD = np.array([[0.02, 0.008], [0.008, 0.03]])


def noise_of(sigma: float) -> np.ndarray:
    """Independent noise of one scale on all means but that of the constant."""
    noise = np.zeros((4,) * 4)
    for i in range(4):
        for k in range(i, 4):
            for one in {(i, k), (k, i)}:
                for two in {(i, k), (k, i)}:
                    noise[one + two] = sigma**2 if (i, k) != (0, 0) else 0.0
    return noise


def drawn(rng: np.random.Generator, sigma: float, true: np.ndarray = TRUE) -> np.ndarray:
    """Noisy means of products of a sample of N records."""
    x = rng.multivariate_normal(np.zeros(2), SPREAD, N)
    x = np.column_stack([np.ones(N), x])
    z = np.column_stack([x, x @ true + rng.normal(0, 0.15, N)])
    upper = np.triu(rng.normal(0, sigma, (4, 4)))
    upper[0, 0] = 0
    return np.asarray(z.T @ z / N + upper + np.triu(upper, 1).T)


def found(sigma: float, rng: np.random.Generator, stated: float | None = None) -> list[Coefficient]:
    noise = noise_of(sigma if stated is None else stated)
    return list(RegressionMoments(drawn(rng, sigma), noise, N).coefficients(LEVEL))


def covered(known: Sequence[Coefficient], true: np.ndarray = TRUE) -> list[bool]:
    ends = [(each.set.lower, each.set.upper) for each in known]
    return [low <= value <= high for (low, high), value in zip(ends, true, strict=True)]


@pytest.mark.parametrize(
    "sigma", [*(pytest.param(s, marks=pytest.mark.nightly) for s in (0.0, 0.0005)), 0.002]
)
def test_wald_intervals_cover_as_often_as_they_say(sigma: float) -> None:
    rng, runs = np.random.default_rng(5), 400
    known = [found(sigma, rng) for _ in range(runs)]
    assert all(each.standard_error is not None for one in known for each in one)
    share = np.mean([covered(one) for one in known], axis=0)
    assert np.all(share > 0.92) and np.all(share < 0.98)


def test_forgetting_the_noise_of_the_moments_is_caught_by_their_coverage() -> None:
    rng, runs = np.random.default_rng(6), 250
    share = np.mean([covered(found(0.002, rng, stated=0.0)) for _ in range(runs)], axis=0)
    assert share[1:].max() < 0.9


def test_forgetting_the_noise_of_the_predictors_moments_is_caught() -> None:
    """The twin takes the noise of those of the response only."""
    rng, runs, every = np.random.default_rng(6), 250, noise_of(0.001)
    forgotten = every.copy()
    forgotten[:3, :3] = forgotten[:, :, :3, :3] = 0
    hits = np.zeros((2, 3))
    for _ in range(runs):
        means = drawn(rng, 0.001, STEEP)
        for hit, noise in zip(hits, (every, forgotten), strict=True):
            hit += covered(RegressionMoments(means, noise, N).coefficients(LEVEL), STEEP)
    assert np.all(hits[0] > 0.92 * runs) and np.all(hits[1][1:] < 0.85 * runs)


@pytest.mark.parametrize(
    ("sigma", "runs"),
    [(0.006, 20), (0.05, 20)]
    + [pytest.param(sigma, 60, marks=pytest.mark.nightly) for sigma in (0.006, 0.012, 0.05)],
)
def test_sets_cover_where_noise_hides_the_predictors(sigma: float, runs: int) -> None:
    rng = np.random.default_rng(7)
    known = [found(sigma, rng) for _ in range(runs)]
    assert any(each.standard_error is None for one in known for each in one)
    assert np.mean([covered(one) for one in known]) > 0.93
    if sigma == 0.05:
        assert all(math.isinf(one[1].set.upper) for one in known)


def test_sets_are_close_to_intervals_where_noise_is_small() -> None:
    rng = np.random.default_rng(8)
    moments = RegressionMoments(drawn(rng, 0.0005), noise_of(0.0005), N)
    for j, wald in enumerate(moments.coefficients(LEVEL)):
        other = moments._anderson_rubin(j, LEVEL).set
        assert wald.set.lower == pytest.approx(other.lower, abs=0.1 * (wald.standard_error or 0))
        assert wald.set.upper == pytest.approx(other.upper, abs=0.1 * (wald.standard_error or 0))


def test_the_ends_of_a_set_are_where_the_least_distance_is_the_quantile() -> None:
    """With one predictor and no constant the set is a quadratic inequality, solved by hand."""
    sxx, sxy, syy, v = 0.02, 0.01, 0.03, 0.005**2
    noise = np.zeros((2,) * 4)
    noise[0, 0, 0, 0] = v
    for one in ((0, 1), (1, 0)):
        for two in ((0, 1), (1, 0)):
            noise[one + two] = v
    moments = RegressionMoments(np.array([[sxx, sxy], [sxy, syy]]), noise, None)
    q = 1.959963984540054**2
    ends = np.sort(np.roots([sxx**2 - q * v, -2 * sxx * sxy, sxy**2 - q * v]).real)
    only = moments._anderson_rubin(0, LEVEL).set
    assert (only.lower, only.upper) == pytest.approx(tuple(ends), abs=0.005 * ends[1])


@pytest.mark.parametrize("sigma", [0.002, 0.008])
def test_other_units_and_another_origin_change_nothing_else(sigma: float) -> None:
    rng = np.random.default_rng(9)
    moments = RegressionMoments(drawn(rng, sigma), noise_of(sigma), N)
    matrix = np.array([[1, 0, 0, 0], [2, 10, 0, 0], [-1, 0, 0.01, 0], [5, 0, 0, 3]], float)
    known, moved = moments.coefficients(LEVEL), moments.transformed(matrix).coefficients(LEVEL)
    for j, factor in ((1, 3 / 10), (2, 3 / 0.01)):
        assert moved[j].value == pytest.approx(factor * known[j].value)
        assert moved[j].set.lower == pytest.approx(factor * known[j].set.lower, rel=0.02)
        assert moved[j].set.upper == pytest.approx(factor * known[j].set.upper, rel=0.02)


def test_of_the_records_themselves_there_is_noise_only() -> None:
    rng = np.random.default_rng(10)
    means = drawn(rng, 0.0)
    b = np.linalg.solve(means[:3, :3], means[:3, 3])
    for each, value in zip(
        RegressionMoments(means, noise_of(0.0), None).coefficients(LEVEL), b, strict=True
    ):
        assert each.value == pytest.approx(value) and each.standard_error == 0
    sampled = RegressionMoments(means, noise_of(0.0), N).coefficients(LEVEL)
    residual = means[3, 3] - means[3, :3] @ b
    errors = np.sqrt(residual * np.diag(np.linalg.inv(means[:3, :3])) / (N - 3))
    assert [each.standard_error for each in sampled] == pytest.approx(errors.tolist())


def test_collinear_predictors_have_no_estimate_and_no_bounds() -> None:
    means = np.array([[1, 1, 0.5], [1, 1, 0.5], [0.5, 0.5, 1.0]])
    for each in RegressionMoments(means, np.zeros((3,) * 4), N).coefficients(LEVEL):
        assert math.isinf(each.set.upper) and math.isinf(each.set.lower)
