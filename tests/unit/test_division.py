"""Integer tables divided among children: sums, and how near they come."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from statpress.mechanisms.places.reading import divide


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
