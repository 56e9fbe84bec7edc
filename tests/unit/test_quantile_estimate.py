"""Medians and quantiles as estimates: cells of every kind, and what is said of them."""

from __future__ import annotations

from fractions import Fraction
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
    coverage,
    draw,
    least,
    released,
    target,
    values_of,
)

from statpress.mechanisms.accounting.losses import BoundedRangeLoss
from statpress.mechanisms.domain.columns import Column, Integer, Numeric, Ordinal
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.estimates.estimand import EstimandKnobs
from statpress.mechanisms.estimates.estimate import ESTIMATE
from statpress.mechanisms.estimates.noisy_quantile import OrderedCells, QuantileOfCells
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.planning.choice import choose
from statpress.tasks.products.estimate_product import trust
from statpress.tasks.release.entropy import SeededRandomness

MEDIAN = EstimandKnobs(statistic="median", confidence=0.9)
TOP = EstimandKnobs(statistic="quantile", q=Fraction(9, 10), confidence=0.9)
PURE = {"epsilon": 1.0, "delta": 0.0}


@pytest.mark.parametrize("knobs", [MEDIAN, TOP], ids=["median", "quantile"])
@pytest.mark.parametrize("name", ["age", "pay", "debt"])
def test_at_a_large_budget_it_is_the_cell_of_the_quantile(name: str, knobs: EstimandKnobs) -> None:
    (found,) = released(QuantileOfCells, knobs, [name], 3000, 2, epsilon=60.0, delta=0.0)
    (values,) = values_of([name], draw(3000, 2))
    share = float(knobs.q or 0.5)
    true = float(np.quantile(values, share, method="inverted_cdf"))
    assert found.value == true
    assert found.lower <= true <= found.upper
    z = 1.96  # a normal interval for the rank, at a level near that of the proven one
    low, high = (
        np.quantile(values, share + sign * z * (share * (1 - share) / 3000) ** 0.5)
        for sign in (-1.3, 1.3)
    )
    assert low - 4 <= found.lower and found.upper <= high + 4


def test_cells_are_bounded_by_values_that_they_hold() -> None:
    whole = OrderedCells.of(Integer(name="x", lower=10, upper=19, width=5))
    assert (list(whole.first), list(whole.last), list(whole.middle)) == (
        [10, 15],
        [14, 19],
        [12, 17],
    )
    bins = OrderedCells.of(Numeric(name="x", edges=(0.0, 1.0, 4.0)))
    assert (list(bins.first), list(bins.last), list(bins.middle)) == ([0, 1], [1, 4], [0.5, 2.5])
    named = OrderedCells.of(Ordinal(name="x", categories=(3, 1, 2)))
    assert list(named.codes) == [1, 2, 0]
    assert list(named.first) == list(named.last) == list(named.middle) == [1, 2, 3]


def test_categories_are_ordered_by_their_numbers() -> None:
    domain = Domain((Ordinal(name="x", categories=(30, 10, 20)),))
    wanted = Target(epsilon=60.0, delta=0.0, n_records=1000, n_cells=3, domain=domain)
    made = QuantileOfCells.calibrate(MEDIAN, wanted)
    table = ContingencyTable(domain, np.arange(3), np.array([100, 200, 700]))
    (found,) = made.estimates(made.release(table, SeededRandomness(np.random.PCG64(1))))
    assert (found.lower, found.value, found.upper) == (20, 20, 20)
    assert found.cells == 1
    assert made.expected_cells == 1
    error = made.expected_error(n_records=1000, n_cells=3)
    assert (
        "the interval is",
        "one cell, if records are spread evenly: then only narrower cells would tell more",
    ) in (ESTIMATE.error_rows(made, error))


@pytest.mark.parametrize("cells", [1, 2, None])
def test_an_interval_of_one_cell_says_so(cells: int | None) -> None:
    said = trust({"valid": True, "inference": "guaranteed", "cells": cells})
    assert ("only narrower cells" in said) == (cells == 1)


def test_the_loss_meets_the_target() -> None:
    check_targets(QuantileOfCells, MEDIAN, ["age"], PURE, EPSILON_DELTA, RENYI, RHO)
    three = calibrated(QuantileOfCells, MEDIAN, ["age"], **RHO)
    assert three.epsilon > 1.7 * Fraction(target(["age"], **RHO).pure_epsilon())


def test_a_description_is_enough() -> None:
    check_round_trip(QuantileOfCells, TOP, ["debt"])


def test_a_description_of_three_thirds_is_charged_as_such() -> None:
    """As version 0.1 wrote them, without the share of an end."""
    made = calibrated(QuantileOfCells, MEDIAN, ["age"], **PURE)
    now = made.describe()
    assert now["end_share"] == "5/12"
    first = {key: value for key, value in now.items() if key != "end_share"}
    old = QuantileOfCells.from_description(first)
    assert old.describe() == first
    frame = {"n_records": 100, "n_cells": 10}
    thirds = 3 * BoundedRangeLoss(made.epsilon / 3).rho.upper
    assert old.loss(**frame).rho.upper == pytest.approx(thirds)
    assert made.loss(**frame).rho.upper > 1.1 * thirds
    with pytest.raises(ConfigError, match="end_share"):
        QuantileOfCells.from_description(now | {"end_share": "1/2"})


def test_coverage_of_the_proven_interval() -> None:
    (values,) = values_of(["debt"], draw(1_000_000, 77))
    made = calibrated(QuantileOfCells, MEDIAN, ["debt"], n=400, **PURE)
    share, _ = coverage(made, ["debt"], float(np.median(values)), n=400, runs=200)
    assert share >= least(200, 0.9)
    (lacking, _) = coverage(made, ["debt"], float(np.median(values)) + 60, n=400, runs=20)
    assert lacking < least(20, 0.9)  # a figure that is another's


def test_the_expected_width_is_that_of_evenly_spread_records() -> None:
    n, domain = 20_000, Domain((Integer(name="x", lower=0, upper=999),))
    wanted = Target(epsilon=0.5, delta=0.0, n_records=n, n_cells=1000, domain=domain)
    made = QuantileOfCells.calibrate(MEDIAN, wanted)
    table = ContingencyTable(domain, np.arange(1000), np.full(1000, n // 1000))
    (found,) = made.estimates(made.release(table, SeededRandomness(np.random.PCG64(1))))
    (width,) = made.expected_error(n_records=n, n_cells=1000).width
    assert width is not None
    assert found.upper - found.lower == pytest.approx(width, rel=0.1, abs=8)


def test_auto_takes_it_for_medians() -> None:
    domain = Domain((Integer(name="x", lower=0, upper=99),))
    wanted = Target(epsilon=1.0, delta=1e-6, n_records=1000, n_cells=100, domain=domain)
    choice = choose(ESTIMATE, MEDIAN, wanted)
    assert choice.mechanism == "noisy_quantile"
    assert "least expected interval width" in choice.reason()


@pytest.mark.parametrize(
    ("column", "statistic", "what"),
    [
        (Ordinal(name="x", categories=("low", "high")), "median", "no numbers"),
        (Integer(name="x", lower=3, upper=3), "median", "only one value"),
        (Integer(name="x", lower=0, upper=9, width=10), "median", "2 to 4,000,000 cells"),
        (Integer(name="x", lower=0, upper=10**9), "median", "2 to 4,000,000 cells"),
        (Integer(name="x", lower=0, upper=9), "mean", "does not serve"),
    ],
)
def test_what_is_refused(column: Column, statistic: Any, what: str) -> None:
    domain = Domain((column,))
    wanted = Target(epsilon=1.0, delta=0.0, n_records=100, n_cells=column.size, domain=domain)
    with pytest.raises(ConfigError, match=what):
        QuantileOfCells.calibrate(EstimandKnobs(statistic=statistic), wanted)
