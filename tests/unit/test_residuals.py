"""All measured tables combined: against generalised least squares by brute force."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statpress.mechanisms.errors import ConfigError, NotMeasuredError
from statpress.mechanisms.marginals.population import Sample
from statpress.mechanisms.marginals.residuals import (
    GRID,
    NoisyTable,
    combine,
    query,
    subgroups,
    table_with_errors,
)

SIZES = (2, 3, 4)
GROUPS = ((0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2))


def measured(seed: int, groups=GROUPS) -> list[NoisyTable]:
    rng = np.random.default_rng(seed)
    found = []
    for group in groups:
        scale = Fraction(int(rng.integers(1, 50)) * GRID)
        values = rng.integers(-900, 9000, [SIZES[c] for c in group]) * GRID
        found.append(NoisyTable(group, scale, values))
    return found


def least_squares(tables, group, weights, n_present) -> tuple[float, float]:
    """Best linear unbiased estimate and variance of a query, from the joint table's cells."""
    cells = list(itertools.product(*(range(k) for k in SIZES)))
    rows, values, errors = [], [], []
    for table in tables:
        for place in np.ndindex(table.values.shape):
            rows.append(
                [all(x[c] == i for c, i in zip(table.group, place, strict=True)) for x in cells]
            )
            values.append(table.counts[place])
            errors.append(table.variance)
    a, y, w = np.array(rows, float), np.array(values), 1 / np.array(errors)
    asked = np.array([weights[tuple(x[c] for c in group)] for x in cells])
    spread = np.linalg.inv(a.T @ (w[:, None] * a))
    found = spread @ (a.T @ (w * y))
    if n_present is not None:  # given that all cells add up to it
        towards = spread.sum(axis=1)
        found = found + towards * (n_present - found.sum()) / towards.sum()
        spread = spread - np.outer(towards, towards) / towards.sum()
    return float(asked @ found), float(asked @ spread @ asked)


@pytest.mark.parametrize("n_present", [None, 5000])
@pytest.mark.parametrize("group", [(0,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_estimates_and_variances_are_those_of_least_squares(group, n_present) -> None:
    tables = measured(3)
    residuals = combine(SIZES, tables, n_present=n_present)
    rng = np.random.default_rng(1)
    shape = [SIZES[c] for c in group]
    one_cell = np.zeros(shape)
    one_cell.flat[1] = 1
    for weights in (rng.normal(size=shape), one_cell):
        answer = query(residuals, group, weights)
        value, variance = least_squares(tables, group, weights, n_present)
        assert answer.value == pytest.approx(value, rel=1e-6, abs=1e-6)
        assert answer.standard_error**2 == pytest.approx(variance, rel=1e-4)
    table, error = table_with_errors(residuals, group)
    assert error == pytest.approx(answer.standard_error)
    assert table.flat[1] == pytest.approx(answer.value)


def test_a_query_is_asked_with_columns_in_any_order() -> None:
    residuals = combine(SIZES, measured(4), n_present=100)
    weights = np.random.default_rng(2).normal(size=(4, 2, 3))
    one = query(residuals, (2, 0, 1), weights)
    two = query(residuals, (0, 1, 2), weights.transpose(1, 2, 0))
    assert (one.value, one.standard_error) == pytest.approx((two.value, two.standard_error))


def test_known_tables_have_no_error_and_the_number_of_records_neither() -> None:
    known = {(0, 1): np.arange(6).reshape(2, 3)}
    residuals = combine(SIZES, measured(5, [(2,), (1, 2)]), n_present=15, known=known)
    for group, weights in (((0, 1), np.ones((2, 3))), ((1,), [0, 1, 1]), ((2,), np.ones(4))):
        assert query(residuals, group, weights).standard_error == pytest.approx(0, abs=1e-9)
    assert query(residuals, (1,), [0, 1, 1]).value == pytest.approx(1 + 4 + 2 + 5)
    assert query(residuals, (2,), [1, 0, 0, 0]).standard_error > 1


def test_sampling_adds_to_the_error() -> None:
    residuals = combine((2,), [NoisyTable((0,), Fraction(GRID), np.array([300, 700]) * GRID)],
                        n_present=1000)  # fmt: skip
    noise, both = (query(residuals, (0,), [1, 0], sample=s) for s in (None, Sample(n_units=1000)))
    assert both.standard_error**2 - noise.standard_error**2 == pytest.approx(1000 * 0.3 * 0.7)


def test_the_error_of_sampling_is_that_of_the_cells_and_not_of_their_noise() -> None:
    rng = np.random.default_rng(3)
    k, n, weights = 100, 1000, np.zeros((100, 100))
    weights[:50] = 1
    found = []
    for _ in range(20):
        noisy = n / k**2 + rng.normal(0, 3, (k, k))
        table = NoisyTable((0, 1), 3 * Fraction(GRID), np.rint(noisy * GRID).astype(np.int64))
        residuals = combine((k, k), [table], n_present=n)
        samples = (None, Sample(n_units=n))
        noise, both = (query(residuals, (0, 1), weights, sample=sample) for sample in samples)
        found.append(both.standard_error**2 - noise.standard_error**2)
    assert np.mean(found) == pytest.approx(n / 4, rel=0.15)  # cut off at 0 it would be nought


def test_a_number_of_records_below_nought_has_an_interval_for_the_population_too() -> None:
    table = NoisyTable((0,), Fraction(9 * GRID), np.array([-3, -2]) * GRID)
    sample = Sample(n_units=50, unit_records=2, absent=True)
    answer = query(combine((2,), [table], n_present=None), (0,), [1, 0], sample=sample)
    assert answer.standard_error > 8
    assert answer.lower == 0 < 10 < answer.upper < 100


def test_what_was_not_measured_or_does_not_exist_is_refused() -> None:
    residuals = combine(SIZES, measured(6, [(0,), (1,), (2,), (0, 1)]), n_present=10)
    with pytest.raises(NotMeasuredError):
        query(residuals, (0, 2), np.ones((2, 4)))
    with pytest.raises(NotMeasuredError):
        residuals.table_variance((0, 1, 2))
    for columns, weights in (((0, 0), np.ones((2, 2))), ((3,), [1]), ((0,), [1, 2, 3])):
        with pytest.raises(ConfigError):
            query(residuals, columns, weights)
    with pytest.raises(ConfigError):
        query(residuals, (0,), [np.nan, 0])
    with pytest.raises(ConfigError):
        query(residuals, (0,), [1, 0], confidence=1.0)


@given(st.integers(0, 2**32), st.sampled_from(GROUPS))
def test_residuals_add_up_to_the_table(seed: int, group) -> None:
    (table,) = measured(seed, [group])
    residuals = combine(SIZES, [table], n_present=None)
    assert set(residuals.values) == set(subgroups(group))
    assert np.allclose(residuals.table(group), table.counts, atol=1e-6)
    assert residuals.table_variance(group) == pytest.approx(table.variance)
