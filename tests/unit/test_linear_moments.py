"""Sums, least squares, quantiles and correlations from tables, against algebra on the records."""

from __future__ import annotations

import itertools
import math
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from coded import dependent_codes

from statpress.mechanisms.errors import ConfigError, NotMeasuredError
from statpress.mechanisms.marginals.linear_moments import (
    ONE,
    CellFunction,
    LeastSquares,
    correlation,
    moments,
    quantile,
)
from statpress.mechanisms.marginals.residuals import GRID, NoisyTable, Residuals, combine, subgroups

SIZES = (2, 3, 4)
GROUPS = ((0,), (1,), (0, 1), (1, 2), (0, 2), (0, 1, 2))
SCALES = (9, 4, 7, 5, 6, 11)
N = 3000
CODES = dependent_codes(N, SIZES, 5)


def tables(groups=GROUPS, scales=SCALES, codes=CODES, rng=None) -> list[NoisyTable]:
    """Tables of records; with normal noise if there is a generator."""
    made = []
    for group, scale in zip(groups, scales, strict=True):
        counts = np.zeros([SIZES[c] for c in group])
        np.add.at(counts, tuple(codes[:, c] for c in group), 1)
        noise = rng.normal(0, scale, counts.shape) if rng else 0
        values = np.rint((counts + noise) * GRID).astype(np.int64)
        made.append(NoisyTable(group, Fraction(scale) * GRID, values))
    return made


def measured(*, exactly: bool = False, n_present: int | None = N) -> Residuals:
    scales = (Fraction(1, GRID),) * len(GROUPS) if exactly else SCALES
    return combine(SIZES, tables(scales=scales), n_present=n_present)


def functions(seed: int = 1) -> list[CellFunction]:
    rng = np.random.default_rng(seed)
    groups = ((), (0,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2))
    return [CellFunction(g, rng.normal(size=[SIZES[c] for c in g])) for g in groups]


def of_records(function: CellFunction, codes: np.ndarray = CODES) -> np.ndarray:
    if not function.group:
        return np.full(len(codes), float(function.values))
    return function.values[tuple(codes[:, c] for c in function.group)]


def covariance_by_enumeration(asked: list[CellFunction], n_present: int | None) -> np.ndarray:
    """Each estimate is linear in the noisy cells: its slope by every cell, one after the other."""
    rows, variances = [], []
    for which, group in enumerate(GROUPS):
        for cell in np.ndindex(*(SIZES[c] for c in group)):
            moved = tables()
            moved[which].values[cell] += GRID
            residuals = combine(SIZES, moved, n_present=n_present)
            rows.append(moments(residuals, asked).values)
            variances.append(moved[which].variance)
    start = moments(combine(SIZES, tables(), n_present=n_present), asked).values
    slopes = np.array(rows) - start
    return slopes.T @ (np.array(variances)[:, None] * slopes)


class WithoutDivisors(Residuals):
    """The twin."""

    def weights_by_part(self, group, weights):
        kept = {}
        for part in subgroups(group):
            others = tuple(i for i, c in enumerate(group) if c not in part)
            rest = weights.sum(axis=others)
            for axis in range(rest.ndim):
                rest = rest - rest.mean(axis=axis, keepdims=True)
            kept[part] = rest, 1
        return kept


@pytest.mark.parametrize("n_present", [N, None])
def test_the_covariance_is_that_of_all_noisy_cells(n_present: int | None) -> None:
    asked = functions()
    expected = covariance_by_enumeration(asked, n_present)
    residuals = measured(n_present=n_present)
    assert np.allclose(moments(residuals, asked).covariance, expected, rtol=1e-6, atol=1e-6)
    parts = {each.name: getattr(residuals, each.name) for each in fields(Residuals)}
    twin = moments(WithoutDivisors(**parts), asked).covariance
    assert not np.allclose(twin, expected, rtol=0.5, atol=1)


def test_sums_are_those_of_the_records() -> None:
    sums = moments(measured(exactly=True), functions()).values
    assert sums == pytest.approx([of_records(f).sum() for f in functions()], abs=1e-2)
    one, other = functions()[3:5]
    assert (one * other).group == (0, 1, 2)
    assert of_records(one * other) == pytest.approx(of_records(one) * of_records(other))


def number(column: int) -> CellFunction:
    return CellFunction((column,), np.arange(SIZES[column], dtype=float))


REGRESSORS = [ONE, number(0), CellFunction((1,), np.array([0.0, 1.0, 0.0]))]


def test_coefficients_and_errors_are_those_of_the_records() -> None:
    made = LeastSquares.of(measured(exactly=True), number(2), REGRESSORS)
    x = np.stack([of_records(f) for f in REGRESSORS], axis=1)
    y = of_records(number(2))
    inverse = np.linalg.inv(x.T @ x)
    expected = inverse @ x.T @ y
    assert made.estimates() == pytest.approx(expected, abs=1e-5)
    assert np.diag(made.errors()) == pytest.approx(0, abs=1e-9)
    residual = y - x @ expected
    sampled = LeastSquares.of(measured(exactly=True), number(2), REGRESSORS, n_sampled=N)
    meat = (x * residual[:, None] ** 2).T @ x  # all columns were measured together
    assert np.allclose(sampled.errors(), inverse @ meat @ inverse, rtol=1e-4)
    pairs = [group for group in GROUPS if len(group) < 3]
    only_pairs = combine(SIZES, tables(pairs, (Fraction(1, GRID),) * len(pairs)), n_present=N)
    sampled = LeastSquares.of(only_pairs, number(2), REGRESSORS, n_sampled=N)
    assert np.allclose(sampled.errors(), inverse * (residual @ residual / (N - 3)), rtol=1e-4)


def test_a_mean_of_some_has_fieller_s_set() -> None:
    some = CellFunction((0,), np.array([0.0, 1.0]))
    made = LeastSquares.of(measured(), number(2) * some, [some])
    (found,) = made.intervals(0.95)
    assert found.by == "Fieller"
    top, below = moments(measured(), [number(2) * some, some]).values
    assert found.value == pytest.approx(top / below)
    assert found.upper - found.lower == pytest.approx(2 * 1.96 * found.standard_error, rel=0.01)


def test_a_weak_matrix_has_the_set_of_anderson_and_rubin() -> None:
    codes, loud = CODES[:60], (60,) * len(GROUPS)
    rng = np.random.default_rng(3)
    made = LeastSquares.of(
        combine(SIZES, tables(scales=loud, codes=codes, rng=rng), n_present=60),
        number(2), REGRESSORS,
    )  # fmt: skip
    assert not made.is_clear()
    found = made.intervals(0.95)
    assert all(each.by == "Anderson-Rubin" for each in found)
    assert any(math.isinf(each.lower) or math.isinf(each.upper) for each in found)


def test_the_ends_of_a_set_are_where_it_holds_no_value_any_more() -> None:
    made = LeastSquares.of(measured(), number(2), REGRESSORS)
    assert made.is_clear()
    for j, wald in enumerate(made.intervals(0.95)):
        lower, upper = made.limits(j, 0.95)
        reach = 1e-3 * (upper - lower)
        assert made.holds(j, lower + reach, 0.95)
        assert made.holds(j, upper - reach, 0.95)
        assert not made.holds(j, lower - reach, 0.95)
        assert not made.holds(j, upper + reach, 0.95)
        assert upper - lower == pytest.approx(wald.upper - wald.lower, rel=0.05)


@pytest.mark.parametrize(("last", "end"), [(1.5, 14.1), (math.pi / 2, math.inf)])
def test_an_end_beyond_the_search_is_infinite(last: float, end: float) -> None:
    """A set may hold all values that are tried, and not the one at infinity."""

    class Given(LeastSquares):
        def _minimum(self, *of: Any, **rest: Any) -> Any:
            return (0.0 if abs(of[1]) < last else 99.0), None

    made = Given.of(measured(), number(2), REGRESSORS)
    lower, upper = made.limits(1, 0.95)
    centre, reach = made.estimates()[1], made.errors()[1, 1] ** 0.5
    assert (upper - centre) / reach == pytest.approx(end, rel=0.01)
    assert (centre - lower) / reach == pytest.approx(end, rel=0.01)


def test_the_slope_of_the_statistic_is_that_of_differences() -> None:
    for n_sampled in (None, N):
        pairs = [group for group in GROUPS if len(group) < 3]
        residuals = combine(SIZES, tables(pairs, SCALES[: len(pairs)]), n_present=N)
        made = LeastSquares.of(residuals, number(2), REGRESSORS, n_sampled=n_sampled)
        at = np.array([1.0, -2.0, 0.5, 0.3])
        values, slopes = made._standardised(at)
        square = values @ values
        g = made.products[1:] @ at
        assert square == pytest.approx(g @ np.linalg.solve(made.variance(at), g))
        step = 1e-6 * np.eye(4)
        ends = [[made._standardised(at + s * each)[0] for s in (1, -1)] for each in step]
        expected = [(upper @ upper - lower @ lower) / 2e-6 for upper, lower in ends]
        assert 2 * values @ slopes == pytest.approx(expected, rel=1e-4)


def test_a_statistic_of_equal_regressors_is_that_of_one() -> None:
    """The matrix of variances is singular then."""
    residuals = measured()
    one = LeastSquares.of(residuals, number(2), REGRESSORS)
    two = LeastSquares.of(residuals, number(2), [*REGRESSORS, REGRESSORS[-1]])
    for j, value in ((0, 1.5), (1, -0.5)):
        assert two.statistic(j, value) == pytest.approx(one.statistic(j, value), rel=1e-4)


ENDS = (np.array([0.0, 1.0, 2.0, np.nan]), np.array([1.0, 2.0, 5.0, np.nan]))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_a_quantile_is_that_of_records_spread_over_their_codes(share: float) -> None:
    some = CellFunction((0,), np.array([0.0, 1.0]))
    counts = np.bincount(CODES[CODES[:, 0] == 1, 2], minlength=4)[:3]
    below = np.append(0, counts.cumsum()) / counts.sum()
    expected = np.interp(share, below, [0, 1, 2, 5])
    exact = quantile(measured(exactly=True), 2, ENDS, share, among=some)
    assert exact.value == pytest.approx(expected, abs=1e-4)
    assert exact.lower == pytest.approx(expected, abs=1e-4)
    assert exact.upper == pytest.approx(expected, abs=1e-4)
    noisy = quantile(measured(), 2, ENDS, share, among=some)
    both = quantile(measured(), 2, ENDS, share, among=some, sampled=True)
    assert both.lower < noisy.lower < expected < noisy.upper < both.upper
    with pytest.raises(ConfigError):
        quantile(measured(), 2, ENDS, 1.0)


def test_a_quantile_of_single_values_is_one_of_them() -> None:
    ends = np.arange(4.0)
    expected = np.sort(CODES[:, 2])[N // 2 - 1]
    made = quantile(measured(exactly=True), 2, (ends, ends), 0.5)
    assert (made.value, made.lower, made.upper) == (expected, expected, expected)


def test_a_correlation_is_that_of_the_records() -> None:
    r = np.corrcoef(CODES[:, 1], CODES[:, 2])[0, 1]
    made = correlation(measured(exactly=True), number(1), number(2))
    assert made.value == pytest.approx(r, abs=1e-6)
    assert made.standard_error == pytest.approx(0, abs=1e-6)
    sampled = correlation(measured(exactly=True), number(1), number(2), sampled=True)
    assert sampled.standard_error == pytest.approx((1 - r * r) / math.sqrt(N), rel=0.2)
    nothing = CellFunction((1,), np.zeros(3))
    assert correlation(measured(), nothing, number(2))[2:4] == (-1.0, 1.0)


def test_what_was_not_measured_together_is_refused() -> None:
    residuals = combine(SIZES, tables([(0,), (1, 2)], (5, 5)), n_present=N)
    with pytest.raises(NotMeasuredError):
        LeastSquares.of(residuals, number(2), [ONE, number(0)])
    LeastSquares.of(residuals, number(2), [ONE, number(1)])


def test_units_of_the_regressors_do_not_matter() -> None:
    made = LeastSquares.of(measured(), number(2), REGRESSORS, n_sampled=N)
    by = [1.0, 1e-4, 1e3]
    scaled = [replace(f, values=f.values * s) for f, s in zip(REGRESSORS, by, strict=True)]
    other = LeastSquares.of(measured(), number(2), scaled, n_sampled=N)
    assert other.is_clear() == made.is_clear()
    for one, two, s in zip(made.intervals(0.95), other.intervals(0.95), by, strict=True):
        assert one.standard_error == pytest.approx(two.standard_error * s)
    assert other.statistic(1, 0.0) == pytest.approx(made.statistic(1, 0.0), rel=1e-4)


def test_products_keep_every_axis() -> None:
    for one, other in itertools.combinations(functions(), 2):
        product = one * other
        assert product.values.shape == tuple(SIZES[c] for c in product.group)
