"""Least squares on several predictors: sensitivity of the sums, units, coverage, refusals."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from estimating import (
    COLUMNS,
    EPSILON_DELTA,
    RENYI,
    RHO,
    calibrated,
    check_round_trip,
    check_targets,
    check_units,
    domain_of,
    draw,
    released,
    seeded,
    table_of,
    target,
    values_of,
)

from statpress.mechanisms.domain.columns import Categorical, Integer
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError, RecordsError
from statpress.mechanisms.estimates import regression_moments
from statpress.mechanisms.estimates.estimand import Estimand, EstimandKnobs
from statpress.mechanisms.estimates.estimate import ESTIMATE
from statpress.mechanisms.estimates.exact_values import exact_values
from statpress.mechanisms.estimates.regression_moments import (
    CORNER,
    Layout,
    RegressionEstimate,
    exact_sums,
    squared_sensitivity,
)
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.planning.choice import choose

KNOBS = EstimandKnobs(statistic="regression")
NAMES = ["pay", "age", "sex", "region", "debt"]
SMALL = [(1, 1), (1, 1, 1), (1,) * 4, (1,) * 5, (1, 2), (1, 3), (1, 2, 3), (1, 1, 1, 4), (1, 3, 3)]
LARGE = [(1,) * 8, (1,) * 12, (1, 1, 1, 1, 1, 7), (1, 2, 2, 2, 5, 1), (1, 1, 3, 3, 3, 3)]


# Sensitivity


def functions(layout: Layout, record: list[Any]) -> np.ndarray:
    """What one record adds to the release: numbers in [-1/2, 1/2], categories by their codes."""
    z = [1.0]
    for size, value in zip(layout.sizes, record, strict=True):
        z += [value] if size == 1 else np.eye(size)[value].tolist()
    return layout.released(np.outer(z, z))


def corners(layout: Layout) -> np.ndarray:
    values = [(-0.5, 0.5) if size == 1 else range(size) for size in layout.sizes]
    return np.array([functions(layout, list(each)) for each in itertools.product(*values)])


def farthest(points: np.ndarray) -> float:
    squares = np.sum(points**2, axis=1)
    return float(np.max(squares[:, None] + squares - 2 * points @ points.T))


@pytest.mark.parametrize("sizes", SMALL)
def test_the_sensitivity_is_attained_between_corners(sizes: tuple[int, ...]) -> None:
    distance = farthest(corners(Layout(sizes)))
    assert distance == pytest.approx(float(squared_sensitivity(sizes)), rel=1e-9)
    assert distance > float(squared_sensitivity(sizes)) - 1e-3  # a smaller claim is refused


@pytest.mark.parametrize("k", range(2, 16))
def test_of_numbers_it_is_the_formula(k: int) -> None:
    largest = max(b + Fraction(9, 16) * b * (k - b) for b in range(k + 1))
    assert squared_sensitivity((1,) * k) == largest


def climbed(layout: Layout, rng: np.random.Generator, starts: int) -> float:
    """The largest squared distance found from random records, inside and at corners."""
    best = 0.0
    for _ in range(starts):
        numbers = [j for j, size in enumerate(layout.sizes) if size == 1]
        pair = [
            [rng.uniform(-0.5, 0.5) if size == 1 else int(rng.integers(size))
             for size in layout.sizes]
            for _ in range(2)
        ]  # fmt: skip
        found = [functions(layout, record) for record in pair]
        value = float(np.sum((found[0] - found[1]) ** 2))
        for _ in range(60):
            side, j = int(rng.integers(2)), int(rng.choice(len(layout.sizes)))
            moved = list(pair[side])
            if j in numbers:
                moved[j] = float(np.clip(moved[j] + rng.normal(0, 0.3), -0.5, 0.5))
            else:
                moved[j] = int(rng.integers(layout.sizes[j]))
            other = functions(layout, moved)
            further = float(np.sum((other - found[1 - side]) ** 2))
            if further > value:
                pair[side], found[side], value = moved, other, further
        best = max(best, value)
    return best


@pytest.mark.parametrize("starts", [8, pytest.param(40, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("sizes", [*SMALL, *LARGE])
def test_no_record_inside_is_farther(sizes: tuple[int, ...], starts: int) -> None:
    most = float(squared_sensitivity(sizes))
    found = climbed(Layout(sizes), np.random.default_rng(len(sizes)), starts)
    assert 0.6 * most < found <= most * (1 + 1e-9)


class HeavySquares(Layout):
    """Twin: squares by 4 in place of 2."""

    @property
    def _weights(self) -> np.ndarray:
        whole = super()._weights
        return np.where([a == b > 0 for a, b in self.entries], 2 * whole, whole)


class HeavyIndicators(Layout):
    """Twin: indicators by 1 in place of 70/99."""

    @property
    def _centred(self) -> np.ndarray:
        whole = super()._centred.copy()
        indicators = [place for places in self.places if len(places) > 1 for place in places]
        whole[indicators] /= float(CORNER)
        return whole


def test_heavier_squares_and_indicators_are_caught() -> None:
    """The twins: squares by 4 in place of 2, and indicators by 1 in place of 70/99."""
    rng, sizes = np.random.default_rng(3), (1, 1)
    assert climbed(HeavySquares(sizes), rng, 60) > 1.1 * float(squared_sensitivity(sizes))
    claimed = float(squared_sensitivity((1, 3)))
    assert farthest(corners(HeavyIndicators((1, 3)))) > 1.1 * claimed


@pytest.mark.parametrize("sizes", [*SMALL, *LARGE])
def test_a_record_that_does_not_count_is_no_farther(sizes: tuple[int, ...]) -> None:
    layout, rng = Layout(sizes, of_some=True), np.random.default_rng(1)
    least = [0.5 if size == 1 else 0 for size in sizes]
    lengths = [np.sum(functions(layout, least) ** 2)]
    for _ in range(200):
        record = [rng.uniform(-0.5, 0.5) if m == 1 else int(rng.integers(m)) for m in sizes]
        lengths.append(np.sum(functions(layout, record) ** 2))
    assert max(lengths) == lengths[0] == pytest.approx(float(squared_sensitivity(sizes)), rel=1e-9)
    numbers = [functions(Layout(sizes), [0.5 if m == 1 else 0 for m in sizes])]
    assert np.array_equal(functions(layout, least)[1:], numbers[0])


def test_indicators_stay_below_the_distance_of_numbers() -> None:
    assert 0.9998 < 2 * CORNER**2 < 1


# Sums


def test_sums_follow_from_what_is_released() -> None:
    estimand = Estimand.resolve(KNOBS, domain_of(NAMES))
    table = table_of(NAMES, draw(500))
    sums, layout = exact_sums(estimand, table), regression_moments.layout_of(estimand)
    assert layout == Layout((1, 1, 2, 3, 1))
    assert layout.sums(layout.released(sums), 500) == pytest.approx(sums, abs=1e-9)
    assert np.array_equal(exact_sums(estimand, table, at_a_time=7), sums)
    pay, age, sex, region, debt = values_of(NAMES, draw(500))
    z = np.column_stack(
        [np.ones(500), pay / 50 - 0.5, (age + 20) / 99 - 0.5, sex == "f", sex == "m",
         region == "north", region == "east", region == "south",
         debt / 199 - 0.5]
    ).astype(float)  # fmt: skip
    assert sums == pytest.approx(z.T @ z, abs=1e-3)


def test_sums_of_parts_of_records_are_means_within_units() -> None:
    columns = (Integer(name="y", lower=0, upper=9), Integer(name="x", lower=0, upper=4))
    whole, shared = Domain(columns), Domain(columns, parts=6)
    estimand = Estimand.resolve(KNOBS, whole)
    one, two = {"y": [1, 7, 7], "x": [2, 0, 0]}, {"y": [1, 7], "x": [2, 0]}
    records = [np.array(list(each.values())) for each in (one, two)]
    alike = ContingencyTable.from_cells(
        whole, whole.encode(dict(zip("yx", records[0], strict=True))), np.ones(3, np.int64)
    )
    parts = ContingencyTable.from_cells(
        shared, shared.encode(dict(zip("yx", records[1], strict=True))), np.array([6, 12])
    )
    assert np.array_equal(exact_sums(estimand, alike), exact_sums(estimand, parts))


# Estimates


def coefficients(y: Any, *x: Any) -> np.ndarray:
    matrix = np.column_stack([np.ones(len(y)), *x]).astype(float)
    return np.asarray(np.linalg.lstsq(matrix, np.asarray(y, float), rcond=None)[0])


def of_all(pay: Any, age: Any, sex: Any, region: Any, debt: Any) -> np.ndarray:
    return coefficients(pay, age, sex == "m", region == "east", region == "south", debt)


def test_at_a_large_budget_it_is_the_statistic_in_its_own_units() -> None:
    found = released(RegressionEstimate, KNOBS, NAMES, 3000, 2, epsilon=60.0, delta=1e-3)
    direct = of_all(*values_of(NAMES, draw(3000, 2)))
    for each, value in zip(found, direct, strict=True):
        assert each.standard_error is not None
        assert abs(each.value - value) < each.standard_error
    check_units(RegressionEstimate, KNOBS, ["pay", "age", "sex"],
                lambda p, a, s: coefficients(p, a, s == "m"), 0.02)  # fmt: skip


def test_coefficients_are_named_by_their_columns_and_categories() -> None:
    quantities = calibrated(RegressionEstimate, KNOBS, NAMES, **EPSILON_DELTA).terms.quantities
    assert quantities[0] == "intercept of the regression of pay on age, sex, region and debt"
    assert [each.split(" in the ")[0] for each in quantities[1:]] == [
        "coefficient of age",
        "coefficient of sex m against f",
        "coefficient of region east against north",
        "coefficient of region south against north",
        "coefficient of debt",
    ]


def test_numbers_count_by_categories_where_the_config_says_so() -> None:
    knobs = EstimandKnobs(statistic="regression", categories=("grade",))
    grade = Categorical(name="grade", categories=(1, 5, 7))
    domain = Domain((COLUMNS["age"], grade))
    rng = np.random.default_rng(4)
    codes = {"age": rng.integers(0, 100, 2000), "grade": rng.integers(0, 3, 2000)}
    cells = domain.encode(codes)
    table = ContingencyTable.from_cells(domain, cells, np.ones(2000, np.int64))
    wanted = Target(n_records=2000, n_cells=300, domain=domain, epsilon=60.0, delta=1e-3)
    made = RegressionEstimate.calibrate(knobs, wanted)
    found = made.estimates(made.release(table, seeded()))
    means = [np.mean(codes["age"][codes["grade"] == k]) - 20 for k in range(3)]
    true = [means[0], means[1] - means[0], means[2] - means[0]]
    assert [each.value for each in found] == pytest.approx(true, abs=0.5)
    assert "grade 5 against 1" in found[1].quantity
    assert exact_values(knobs, table, made.terms.scales) == pytest.approx(true, rel=1e-5)


def test_records_that_lack_a_value_are_left_out() -> None:
    names = ["pay", "rent", "age"]
    found = released(RegressionEstimate, KNOBS, names, 3000, 2, epsilon=60.0, delta=1e-3)
    codes = draw(3000, 2)
    pay, rent, age = (each[codes["rent"] < 40] for each in values_of(names, codes))
    direct = coefficients(pay, rent.astype(float), age)
    for each, value in zip(found, direct, strict=True):
        assert each.lower < value < each.upper and each.standard_error is not None
        assert abs(each.value - value) < each.standard_error
    made = calibrated(RegressionEstimate, KNOBS, names, **EPSILON_DELTA)
    exact = exact_values(KNOBS, table_of(names, codes), made.terms.scales)
    assert exact == pytest.approx(direct.tolist(), abs=1e-4)


def test_the_loss_meets_the_target() -> None:
    check_targets(RegressionEstimate, KNOBS, NAMES, EPSILON_DELTA, RENYI, RHO)


@pytest.mark.parametrize("names", [NAMES, ["pay", "rent", "age"], ["pay", "age"]])
def test_a_description_is_enough(names: list[str]) -> None:
    check_round_trip(RegressionEstimate, KNOBS, names)


def test_the_expected_width_is_that_of_evenly_spread_records() -> None:
    n, rng, names = 20_000, np.random.default_rng(3), ["pay", "age", "region", "rent"]
    made = calibrated(RegressionEstimate, KNOBS, names, n=n, **EPSILON_DELTA)
    even = {name: rng.integers(0, size, n)
            for name, size in zip(names, (100, 100, 3, 40), strict=True)}  # fmt: skip
    found = made.estimates(made.release(table_of(names, even), seeded(3)))
    expected = made.expected_error(n_records=n, n_cells=10_000)
    for one, width in zip(found, expected.width, strict=True):
        assert one.upper - one.lower == pytest.approx(width, rel=0.15)


@pytest.mark.parametrize(
    "names", [pytest.param(NAMES, marks=pytest.mark.nightly), ["pay", "rent", "age"]]
)
def test_coverage(names: list[str]) -> None:
    every = draw(400_000, 77)
    values = values_of(names, every)
    if names == NAMES:
        true = of_all(*values)
    else:
        there = every["rent"] < 40
        true = coefficients(*(each[there].astype(float) for each in values))
    made = calibrated(RegressionEstimate, KNOBS, names, n=6000, **EPSILON_DELTA)
    hits, halved, rng, runs = np.zeros(len(true)), np.zeros(len(true)), seeded(7), 100
    for run in range(runs):
        table = table_of(names, draw(6000, 1000 + run))
        for j, each in enumerate(made.estimates(made.release(table, rng))):
            middle, reach = (each.lower + each.upper) / 2, (each.upper - each.lower) / 2
            hits[j] += abs(true[j] - middle) <= reach
            halved[j] += abs(true[j] - middle) <= reach / 2
    assert np.all(hits / runs > 0.89) and 0.93 < hits.mean() / runs < 0.985
    assert halved.mean() / runs < 0.8


def test_little_budget_leaves_the_whole_line() -> None:
    found = released(RegressionEstimate, KNOBS, NAMES, 200, 2, epsilon=0.1, delta=1e-6)
    assert {each.shape for each in found} == {"whole line"}
    assert all(each.standard_error is None for each in found)
    made = calibrated(RegressionEstimate, KNOBS, NAMES, n=200, epsilon=0.1, delta=1e-6)
    assert made.expected_error(n_records=200, n_cells=10).width[-1] is None


# Choosing


def test_auto_takes_it_where_no_other_serves() -> None:
    for names in (NAMES, ["pay", "sex"], ["pay", "rent"]):
        wanted = target(names, **EPSILON_DELTA)
        assert choose(ESTIMATE, KNOBS, wanted).mechanism == "regression_moments"
    one = choose(ESTIMATE, KNOBS, target(["pay", "age"], **EPSILON_DELTA))
    assert one.mechanism == "pair_moments"
    reasons = {each.name: each.reason for each in one.candidates}
    assert "one variance" in str(reasons["regression_moments"])


def test_it_says_what_it_takes_of_the_residuals() -> None:
    made = calibrated(RegressionEstimate, KNOBS, NAMES, **EPSILON_DELTA)
    assert "one variance" in dict(made.remarks())["the intervals take"]
    assert made.inference == "one variance"


@pytest.mark.parametrize(
    ("names", "knobs", "what"),
    [
        (["sex", "age"], {}, "'sex' has no numbers"),
        (["pay", "age"], {"categories": ("debt",)}, "not a predictor"),
        (["pay", "age"], {"categories": ("age",)}, "100 categories"),
        (["pay"], {}, "takes 2 or more columns"),
    ],
)
def test_what_is_refused(names: list[str], knobs: Any, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        calibrated(RegressionEstimate, EstimandKnobs(statistic="regression", **knobs), names,
                   **EPSILON_DELTA)  # fmt: skip


def test_too_many_columns_or_records_are_refused() -> None:
    many = Domain(tuple(Integer(name=f"x{i}", lower=0, upper=1) for i in range(41)))
    with pytest.raises(ConfigError, match="at most 39"):
        RegressionEstimate.calibrate(
            KNOBS, Target(n_records=9, n_cells=2**41, domain=many, **EPSILON_DELTA)
        )
    with pytest.raises(RecordsError, match="2\\^28 records"):
        RegressionEstimate.calibrate(KNOBS, target(NAMES, 2**33, **EPSILON_DELTA))
