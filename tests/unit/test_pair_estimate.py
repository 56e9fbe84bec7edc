"""Variance, covariance, correlation, ratio, regression and difference as estimates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from estimating import (
    EPSILON_DELTA,
    RENYI,
    RHO,
    calibrated,
    check_round_trip,
    check_targets,
    check_units,
    coverage,
    draw,
    least,
    released,
    seeded,
    table_of,
    values_of,
)

from statpress.configs.requests import user_defined
from statpress.mechanisms.domain.columns import Categorical, Integer
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError, InfeasibleBudgetError
from statpress.mechanisms.estimates.estimand import Among, Estimand, EstimandKnobs
from statpress.mechanisms.estimates.moment_designs import FIRST_ONE, FIRST_PAIR
from statpress.mechanisms.estimates.pair_moments import PairEstimate
from statpress.mechanisms.mechanism import Target


def line(y: np.ndarray, x: np.ndarray) -> list[float]:
    slope, intercept = np.polyfit(x, y, 1)
    return [intercept, slope]


def by_sex(y: np.ndarray, sex: np.ndarray) -> float:
    return float(y[sex == "m"].mean() - y[sex != "m"].mean())


MEN = Among(column="sex", values=("m",))
CASES: dict[str, tuple[dict[str, Any], list[str], Any]] = {
    "variance": ({}, ["age"], lambda x: x.var(ddof=1)),
    "covariance": ({}, ["age", "pay"], lambda x, y: np.cov(x, y)[0, 1]),
    "correlation": ({}, ["age", "pay"], lambda x, y: np.corrcoef(x, y)[0, 1]),
    "ratio": ({}, ["pay", "debt"], lambda x, y: x.sum() / y.sum()),
    "regression": ({}, ["pay", "age"], line),
    "difference": ({"group": MEN}, ["pay", "sex"], by_sex),
    "mean": ({"where": MEN}, ["age", "sex"], lambda x, s: x[s == "m"].mean()),
    "proportion": (
        {"values": ("north", "south"), "where": MEN},
        ["region", "sex"],
        lambda r, s: np.mean(r[s == "m"] != "east"),
    ),
}


def knobs_of(statistic: str, confidence: float = 0.9) -> EstimandKnobs:
    own = CASES[statistic][0]
    return EstimandKnobs(statistic=statistic, confidence=confidence, **own)  # type: ignore[arg-type]


@pytest.mark.parametrize("statistic", CASES)
def test_at_a_large_budget_it_is_the_statistic_in_its_own_units(statistic: str) -> None:
    _, names, truth = CASES[statistic]
    tolerance = 0.05 if statistic == "difference" else 0.02  # of a figure near 0
    check_units(PairEstimate, knobs_of(statistic), names, truth, tolerance)


def test_a_mean_leaves_out_records_without_a_value() -> None:
    knobs = EstimandKnobs(statistic="mean")
    (found,) = released(PairEstimate, knobs, ["rent"], 3000, 2, epsilon=60.0, delta=1e-3)
    codes = draw(3000, 2)["rent"]
    (values,) = values_of(["rent"], draw(3000, 2))
    assert found.value == pytest.approx(values[codes < 40].mean(), rel=0.01)
    (wide,) = released(PairEstimate, knobs, ["rent"], 60, 2, epsilon=0.01, delta=1e-6)
    assert (wide.lower, wide.upper, wide.shape) == (10, 30, "whole range")


def test_a_mean_of_values_costs_no_memory_by_their_number() -> None:
    """A list of all codes that are values would take 50 gigabytes."""
    domain = Domain((Integer(name="cents", lower=0, upper=10**9, missing=True),))
    wanted = Target(n_records=2, n_cells=domain.n_possible, domain=domain, **EPSILON_DELTA)
    made = PairEstimate.calibrate(EstimandKnobs(statistic="mean"), wanted)
    assert made.estimand is not None
    kept = made.estimand.keeps(domain, np.array([0, 10**9, 10**9 + 1]))
    assert kept.tolist() == [1, 1, 0]


@pytest.mark.parametrize("statistic", ["variance", "regression"])
def test_the_loss_meets_the_target(statistic: str) -> None:
    names = CASES[statistic][1]
    check_targets(PairEstimate, knobs_of(statistic), names, EPSILON_DELTA, RENYI, RHO)


@pytest.mark.parametrize("statistic", CASES)
def test_a_description_is_enough(statistic: str) -> None:
    check_round_trip(PairEstimate, knobs_of(statistic), CASES[statistic][1])


def population(statistic: str) -> Any:
    names, truth = CASES[statistic][1:]
    return np.atleast_1d(truth(*values_of(names, draw(1_000_000, 77))))


@pytest.mark.parametrize("statistic", ["variance", pytest.param("mean", marks=pytest.mark.nightly)])
def test_coverage(statistic: str) -> None:
    names = CASES[statistic][1]
    made = calibrated(PairEstimate, knobs_of(statistic), names, n=1500, **EPSILON_DELTA)
    truth = float(population(statistic)[0])
    share, of_half = coverage(made, names, truth, n=1500, runs=200)
    assert of_half < least(200, 0.88) <= share


def test_the_expected_width_is_that_of_evenly_spread_records() -> None:
    n, rng = 20_000, np.random.default_rng(3)
    for statistic in ("variance", "covariance", "correlation", "regression"):
        names = CASES[statistic][1]
        made = calibrated(PairEstimate, knobs_of(statistic), names, n=n, **EPSILON_DELTA)
        even = {name: rng.integers(0, 100, n) for name in ("age", "pay")}
        found = made.estimates(made.release(table_of(names, even), seeded(3)))
        expected = made.expected_error(n_records=n, n_cells=10_000)
        for one, width in zip(found, expected.width, strict=True):
            assert one.upper - one.lower == pytest.approx(width, rel=0.05)


@pytest.mark.parametrize(
    ("statistic", "names", "what"),
    [
        ("mean", ["age"], "only some records"),
        ("ratio", ["pay", "age"], "below 0"),
        ("median", ["age"], "does not serve the median"),
    ],
)
def test_what_is_refused(statistic: Any, names: list[str], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        calibrated(PairEstimate, EstimandKnobs(statistic=statistic), names, **EPSILON_DELTA)


def test_quantities_are_worded_whatever_the_columns_are_called() -> None:
    n, group = (Categorical(name=name, categories=("f", "m")) for name in ("n", "of"))
    where = Among(column="of", values=("m",))
    knobs = EstimandKnobs(statistic="count", values=("f",), where=where)
    said = Estimand.resolve(knobs, Domain((n, group))).quantity()
    assert said == "count of n f where of m"
    own = EstimandKnobs(function=user_defined("own_statistics:three_means", "statistic"))
    columns = tuple(Integer(name=name, lower=0, upper=9) for name in "abc")
    said = Estimand.resolve(own, Domain(columns)).quantity()
    assert said == "own_statistics:three_means of a and b and c"


def test_a_single_record_is_refused() -> None:
    with pytest.raises(ConfigError, match="two records"):
        calibrated(PairEstimate, knobs_of("variance"), ["age"], n=1, **EPSILON_DELTA)


def test_a_variance_has_less_noise_than_a_covariance() -> None:
    """Of one column alone fewer sums are released, with little more than half of the noise."""
    one, two = (
        calibrated(PairEstimate, knobs_of(name), CASES[name][1], **EPSILON_DELTA).moments
        for name in ("variance", "covariance")
    )
    assert (one.noise.dimension, two.noise.dimension) == (4, 14)
    assert one.noise.sigma < 0.56 * two.noise.sigma


def test_a_description_of_the_first_weights_costs_what_it_did() -> None:
    """As version 0.1.0 described a regression and a variance; both had mu near .19."""
    line = {
        "mechanism": "pair_moments", "scale": "97105454990441/4294967296", "n_columns": 2,
        "statistic": "regression", "origin": "0.0", "confidence": "0.95",
        "quantity_1": "intercept of the regression of pay on age", "shift_1": "0.0",
        "factor_1": "100.0", "quantity_2": "slope of the regression of pay on age",
        "shift_2": "0.0", "factor_2": "1.1235955056179776",
    }  # fmt: skip
    made = PairEstimate.from_description(line)
    assert made.moments.design is FIRST_PAIR
    assert made.describe() == line
    loss = made.loss(n_records=400, n_cells=72)
    assert float(loss.rho.upper) == pytest.approx(0.0178833507157, rel=1e-11)
    one = {k: v for k, v in line.items() if not k.endswith("_2")} | {"n_columns": 1}
    assert (
        PairEstimate.from_description(one | {"statistic": "variance"}).moments.design is FIRST_ONE
    )
    now = PairEstimate.from_description(line | {"design": "pair"})
    assert now.moments.noise.sensitivity < made.moments.noise.sensitivity


def test_a_budget_without_delta_is_refused() -> None:
    with pytest.raises(InfeasibleBudgetError):
        calibrated(PairEstimate, knobs_of("variance"), ["age"], epsilon=1.0, delta=0.0)
