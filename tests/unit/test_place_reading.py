"""Places as they are read: the law of a cell, and integer tables divided among children."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import gammaln

from statpress.mechanisms.places.reading import (
    LEVELS,
    SPREADS,
    GammaPosterior,
    Prior,
    divide,
    likely_spreads,
    log_evidence,
    quantiles,
)


def wanted_table(seed: int, children: int, cells: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    true = rng.poisson(rng.gamma(0.5, 40, size=(children, cells)))
    return true, true + 3 * rng.normal(size=true.shape)


def test_each_family_adds_up_to_its_own_parent_and_totals_are_kept():
    true, wanted = wanted_table(1, 9, 5)
    starts = np.array([0, 1, 4, 9])
    above = np.add.reduceat(true, starts[:-1])
    totals = true.sum(axis=1)
    divided = divide(above, wanted, np.ones(wanted.shape), starts, totals)
    np.testing.assert_array_equal(np.add.reduceat(divided, starts[:-1]), above)
    np.testing.assert_array_equal(divided.sum(axis=1), totals)
    np.testing.assert_array_equal(divided[0], above[0])  # an only child


def test_without_totals_and_bounds_it_is_least_squares_by_variance():
    wanted = np.array([[300.0], [500.0], [900.0], [100.0]])
    variances = np.array([[1.0], [4.0], [9.0], [2.0]])
    divided = divide(np.array([[1960]]), wanted, variances, np.array([0, 4]))
    np.testing.assert_allclose(divided, wanted + 160 * variances / 16, atol=1)


def test_it_comes_about_as_near_as_the_best_non_negative_tables():
    """Over sequential least squares on all children at once, within what rounding costs."""
    true, wanted = wanted_table(2, 6, 5)
    above, totals = true.sum(axis=0), true.sum(axis=1)
    sums = [
        {"type": "eq", "fun": lambda x: x.reshape(6, 5).sum(axis=0) - above},
        {"type": "eq", "fun": lambda x: x.reshape(6, 5).sum(axis=1)[:-1] - totals[:-1]},
    ]
    best = minimize(
        lambda x: np.sum((x - wanted.ravel()) ** 2),
        np.outer(totals, above).ravel() / totals.sum(),
        jac=lambda x: 2 * (x - wanted.ravel()),
        bounds=[(0, None)] * 30,
        constraints=sums,
        method="SLSQP",
        options={"maxiter": 1000},
    )
    assert best.success
    divided = divide(above[None], wanted, np.ones(wanted.shape), np.array([0, 6]), totals)
    assert np.sum((divided - wanted) ** 2) <= 1.1 * best.fun + 30 / 6
    assert np.abs(divided - best.x.reshape(6, 5)).mean() < 1


def test_whatever_is_wanted_a_total_is_reached_and_cells_stay_within_bounds():
    rng = np.random.default_rng(5)
    above = np.array([[0, 3, 10**12, 1]])
    for scale in (1e-9, 1.0, 1e9):
        wanted = scale * rng.normal(size=(7, 4))
        variances = np.exp(10 * rng.normal(size=(7, 4)))
        totals = np.array([0, 0, 4, 10**11, 0, 1, 0])
        totals[-1] = above.sum() - totals.sum()
        divided = divide(above, wanted, variances, np.array([0, 7]), totals)
        assert divided.min() >= 0
        np.testing.assert_array_equal(divided.sum(axis=0), above[0])
        np.testing.assert_array_equal(divided.sum(axis=1), totals)


def test_largest_remainders_go_up_and_a_twin_that_sends_the_first_up_is_caught():
    wanted = np.array([[2.1, 3.9, 4.0], [2.9, 1.1, 1.0]])
    above, totals, starts = np.array([[5, 5, 5]]), np.array([10, 5]), np.array([0, 2])
    expected = [[2, 4, 4], [3, 1, 1]]
    assert divide(above, wanted, np.ones((2, 3)), starts, totals).tolist() == expected
    floors = np.floor(wanted)
    twin = floors + (np.arange(3) < (totals - floors.sum(axis=1))[:, None])
    assert twin.tolist() != expected


def test_a_value_that_is_not_a_number_is_refused():
    wanted = np.array([[np.nan, 1.0], [1.0, 1.0]])
    with pytest.raises(ArithmeticError, match="no shift reaches the totals"):
        divide(np.array([[3, 3]]), wanted, np.ones((2, 2)), np.array([0, 2]), np.array([3, 3]))


# The law of a cell given its noisy count, against integration; and what evidence chooses


def integrated(mean: float, shape: float, z: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Points, law and log evidence of Gamma given z = x + N(0, 1), on a fine logarithmic grid."""
    scale = mean / shape
    logs = np.linspace(np.log(1e-9), np.log(2000), 400_001)
    log_density = shape * logs - np.exp(logs) / scale - gammaln(shape) - shape * np.log(scale)
    pieces = np.exp(log_density - (z - np.exp(logs)) ** 2 / 2) * (logs[1] - logs[0])
    below = np.exp(shape * (logs[0] - np.log(scale)) - gammaln(shape + 1) - z**2 / 2)
    sums = np.concatenate([[below], below + np.cumsum(pieces)])
    return np.concatenate([[0.0], np.exp(logs)]), sums / sums[-1], float(np.log(sums[-1]))


CASES = [
    (mean, shape, z)
    for mean in (0.5, 3.0, 30.0, 200.0)
    for shape in (0.01, 0.3, 2.0, 20.0, 59.0)
    for z in (-3.0, 0.0, 2.0, 8.0, 40.0, 300.0)
    if abs(z - mean) < 8 * (1 + mean / np.sqrt(shape))
]


@pytest.mark.parametrize(
    ("mean", "shape", "z"),
    [
        pytest.param(*case, marks=[pytest.mark.nightly] if number % 4 else [])
        for number, case in enumerate(CASES)
    ],
)
def test_the_posterior_of_a_gamma_prior_is_as_integrated(mean, shape, z):
    points, law, evidence = integrated(mean, shape, z)
    posterior = GammaPosterior(
        np.array([10 * mean]), np.array([shape]), np.array([10 * z]), np.array([10.0])
    )
    expected = float(np.sum(np.diff(law) * (points[1:] + points[:-1]) / 2))
    variance = float(np.sum(np.diff(law) * ((points[1:] + points[:-1]) / 2 - expected) ** 2))
    got, spread = posterior.moments()
    assert got[0] / 10 == pytest.approx(expected, rel=0.01, abs=0.01)
    assert spread[0] / 100 == pytest.approx(variance, rel=0.1, abs=0.005)
    assert posterior.log_evidence()[0] == pytest.approx(evidence, abs=0.3, rel=0.01)
    for level in (0.1, 0.5, 0.9):
        quantile = np.interp(level, law, points)
        found = posterior.quantile(np.array([level]))[0] / 10
        assert found == pytest.approx(quantile, abs=0.06, rel=0.03)  # in deviations of the noise


def test_a_sample_of_lumps_has_the_moments_and_zeros_of_its_prior():
    rng = np.random.default_rng(3)
    size, share, spread, lump = 600.0, 0.05, 0.1, 20.0
    rate = rng.gamma(share / spread, spread, size=400_000)
    records = lump * rng.poisson(size * rate / lump)
    one = np.ones((1, 1))
    prior = Prior.of(size * one, 1e9 * one, share * one, spread, lump)
    zero = np.exp(prior.log_zero[0, 0])
    some = records[records > 0]
    assert zero == pytest.approx(np.mean(records == 0), abs=0.003)
    assert prior.mean[0, 0] == pytest.approx(some.mean(), rel=0.01)
    assert prior.mean[0, 0] ** 2 / prior.shape[0, 0] == pytest.approx(some.var(), rel=0.02)


def test_quantiles_without_noise_are_the_count_and_with_only_noise_the_prior():
    size, whole = np.full((1, 1), 1000.0), np.full((1, 1), 1e6)
    prior = Prior.of(size, whole, np.array([[0.5, 0.3, 0.2]]), 0.1, 1.0)
    z = np.array([[900.0, 90.0, 10.0]])
    sharp = quantiles(prior, z, np.full((1, 1), 0.1))
    np.testing.assert_allclose(sharp, np.broadcast_to(z, sharp.shape), atol=0.5)
    blurred = quantiles(prior, z, np.full((1, 1), 1e6))[LEVELS.index(0.5)]
    np.testing.assert_allclose(blurred, [[500, 300, 200]], rtol=0.15)


@pytest.mark.parametrize(("spread", "lump"), [(0.0, 1), (0.1, 1), (0.0, 40)])
def test_evidence_finds_how_unlike_children_are(spread, lump):
    rng = np.random.default_rng(11)
    shares, size, sd = rng.dirichlet(np.ones(40)), 800.0, 5.0
    rate = rng.gamma(shares / spread, spread, size=(60, 40)) if spread else shares
    records = lump * rng.poisson(size * np.broadcast_to(rate, (60, 40)) / lump)
    noisy = records + sd * rng.normal(size=records.shape)
    one = np.ones((60, 1))
    evidence = np.stack(
        [
            log_evidence(Prior.of(size * one, 1e6 * one, shares, *pair), noisy, sd * one).sum(
                axis=1
            )
            for pair in SPREADS
        ]
    )
    found = likely_spreads(evidence, np.array([0, 60]), SPREADS)
    variance = spread + lump / size
    np.testing.assert_allclose(np.mean(found[:, 0] + found[:, 1] / size), variance, rtol=0.3)
    if lump > 1:
        assert np.median(found[:, 1]) == pytest.approx(lump, rel=0.3)


def test_one_unlike_sibling_is_not_made_like_the_others():
    rng = np.random.default_rng(12)
    shares, size, sd = rng.dirichlet(np.ones(40)), 2000.0, 5.0
    own = np.vstack([np.tile(shares, (30, 1)), rng.permutation(shares)[None]])
    noisy = rng.poisson(size * own) + sd * rng.normal(size=own.shape)
    one = np.ones((31, 1))
    evidence = np.stack(
        [
            log_evidence(Prior.of(size * one, 1e6 * one, shares, *pair), noisy, sd * one).sum(
                axis=1
            )
            for pair in SPREADS
        ]
    )
    found = likely_spreads(evidence, np.array([0, 31]), SPREADS)
    assert found[:30, 0].max() < 0.003
    assert found[30, 0] > 0.01
