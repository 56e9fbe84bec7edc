"""Estimates by the DP bootstrap: units, losses, the paper's noise, and degenerate columns."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
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
    check_units,
    coverage,
    domain_of,
    draw,
    least,
    loss_of,
    seeded,
    table_of,
    target,
    values_of,
)
from own_statistics import imported

from statpress.configs.requests import user_defined
from statpress.mechanisms.domain.domain import Privacy
from statpress.mechanisms.errors import ConfigError, InfeasibleBudgetError
from statpress.mechanisms.estimates.dp_bootstrap import FEWEST, BootstrapEstimate, BootstrapKnobs
from statpress.mechanisms.estimates.estimand import Among
from statpress.mechanisms.estimates.estimate import ESTIMATE, WIDTH, RawEstimates
from statpress.mechanisms.planning.choice import Budget, ProductRequest, choose
from statpress.mechanisms.planning.planner import plan_release

F = Fraction
OWN = "own_statistics:both_means"
MEN = Among(column="sex", values=("m",))


def knobs_of(statistic: str, **said: Any) -> BootstrapKnobs:
    if ":" in statistic:
        return BootstrapKnobs(confidence=0.9, function=user_defined(statistic, "statistic"), **said)
    return BootstrapKnobs(confidence=0.9, statistic=statistic, **said)  # type: ignore[arg-type]


CASES: dict[str, tuple[dict[str, Any], list[str], Any]] = {
    "mean": ({}, ["age"], np.mean),
    "proportion": ({"values": ("north",)}, ["region"], lambda r: np.mean(r == "north")),
    "sum": ({"where": MEN}, ["age", "sex"], lambda x, s: x[s == "m"].sum()),
    "count": ({"values": ("east",)}, ["region"], lambda r: np.sum(r == "east")),
    "variance": ({"inference": "t"}, ["age"], lambda x: x.var(ddof=1)),
    "covariance": ({"inference": "percentile"}, ["age", "pay"], lambda x, y: np.cov(x, y)[0, 1]),
    OWN: ({}, ["debt", "pay"], lambda x, y: [np.mean((x - 0) / 199), np.mean(y / 50)]),
}


@pytest.mark.parametrize("statistic", CASES)
def test_at_a_large_budget_it_is_the_statistic_in_its_own_units(statistic: str) -> None:
    said, names, truth = CASES[statistic]
    knobs = knobs_of(statistic, replicates=400, **said)
    check_units(BootstrapEstimate, knobs, names, truth, 0.03)


@pytest.mark.parametrize("statistic", ["variance", OWN])
def test_a_description_is_enough(statistic: str) -> None:
    said, names, _ = CASES[statistic]
    check_round_trip(BootstrapEstimate, knobs_of(statistic, replicates=40, **said), names)


def test_the_loss_meets_the_target() -> None:
    knobs = knobs_of("mean", replicates=40)
    check_targets(BootstrapEstimate, knobs, ["age"], EPSILON_DELTA, RENYI)
    with pytest.raises(ConfigError, match="No zero-concentrated"):
        calibrated(BootstrapEstimate, knobs, ["age"], **RHO)
    with pytest.raises(InfeasibleBudgetError, match="delta"):
        calibrated(BootstrapEstimate, knobs, ["age"], epsilon=1.0, delta=0.0)


def test_coverage() -> None:
    made = calibrated(BootstrapEstimate, knobs_of("mean"), ["age"], epsilon=4.0, delta=1e-6)
    truth = float(np.mean(values_of(["age"], draw(200_000, 77))[0]))
    share, of_half = coverage(made, ["age"], truth, n=3000, runs=60)
    assert of_half < least(60, 0.88) <= share


def test_the_expected_width_is_that_of_evenly_spread_records() -> None:
    made = calibrated(BootstrapEstimate, knobs_of("mean"), ["age"], **EPSILON_DELTA)
    assert made.resamples.replicates == FEWEST
    rng, found = seeded(3), []
    for _ in range(8):
        table = table_of(["age"], {"age": rng.integers(0, 100, 3000)})
        (estimate,) = made.estimates(made.release(table, rng))
        found.append(estimate.upper - estimate.lower)
    (width,) = made.expected_error(n_records=3000, n_cells=100).width
    assert np.mean(found) == pytest.approx(width, rel=0.15)


def test_calibrated_intervals_are_narrower_and_cover() -> None:
    """Half the noise forgotten is the twin that the same figures catch."""
    percentile = knobs_of("mean", inference="percentile")
    wide = calibrated(BootstrapEstimate, percentile, ["age"], n=500, epsilon=2.0, delta=1e-5)
    made = calibrated(BootstrapEstimate, knobs_of("mean"), ["age"], n=500, epsilon=2.0, delta=1e-5)
    widths = [each.expected_error(n_records=500, n_cells=100).width[0] for each in (made, wide)]
    assert widths[0] < 0.95 * widths[1]
    rng, sigma, count = np.random.default_rng(4), made.resamples.noise.sigma, 50
    known = made.resamples.inference(np.zeros((count, 1))).known
    for variance in known.most * np.array([0.0, 0.01, 0.1, 0.3, 1.0]):
        error = rng.standard_normal(20_000) * np.sqrt(known.variance_of_centre(variance))
        parts = rng.chisquare(count - 1, 20_000) / (count - 1)
        spread = (known.spread_gain * variance + sigma**2) * parts
        held = np.abs(error) <= made.rules[0].half_width(known, spread, 0.9)
        assert held.mean() > least(20_000, 0.894) / 20_000
    half = dataclasses.replace(made.rules[0], addend=made.rules[0].addend - sigma**2)
    error = rng.standard_normal(20_000) * np.sqrt(known.variance_of_centre(known.most / 3))
    spread = (known.spread_gain * known.most / 3 + sigma**2) * parts
    assert np.mean(np.abs(error) <= half.half_width(known, spread, 0.9)) < 0.8


def test_the_paper_s_noise_costs_more_than_it_says() -> None:
    """At the budget of mu the strict noise is larger, and the paper's is refused."""
    wanted = target(["age"], **EPSILON_DELTA)
    few = knobs_of("mean", replicates=40)
    strict = calibrated(BootstrapEstimate, few, ["age"], **EPSILON_DELTA)
    paper = knobs_of("mean", replicates=40, calibration="paper", mu=F(26, 100))
    with pytest.raises(InfeasibleBudgetError, match="paper's noise costs more"):
        BootstrapEstimate.calibrate(paper, wanted)
    more = dataclasses.replace(wanted, epsilon=1.3)
    found = BootstrapEstimate.calibrate(paper, more)
    assert found.resamples.noise.sigma < strict.resamples.noise.sigma
    described = found.describe()
    assert (described["calibration"], described["paper_mu"]) == ("paper", "13/50")
    rebuilt = BootstrapEstimate.from_description(described)
    assert rebuilt.describe() == described
    assert loss_of(rebuilt, more).delta(1.0).lower > wanted.delta  # its true cost is stated


def test_the_plan_says_what_the_paper_s_noise_would_need() -> None:
    request = ProductRequest(
        name="pay",
        kind=ESTIMATE,
        mechanism="dp_bootstrap",
        knobs=knobs_of("mean", replicates=40, calibration="paper", mu=F(26, 100)),
        columns=("age",),
        share=Decimal(1),
    )
    domain = domain_of(["age"])
    privacy = Privacy(adjacency="replace_one", unit="record", n_records=3000)
    budget = Budget(epsilon=Decimal(1), delta=Decimal("1e-6"))
    with pytest.raises(InfeasibleBudgetError, match=r"smallest epsilon that would do is about 1\."):
        plan_release([request], domain=domain, privacy=privacy, budget=budget)


def test_a_column_without_spread_still_gives_estimates() -> None:
    knobs = knobs_of("variance", replicates=400, inference="percentile")
    made = calibrated(BootstrapEstimate, knobs, ["age"], epsilon=60.0, delta=1e-3)
    codes = {"age": np.full(3000, 30)}
    (found,) = made.estimates(made.release(table_of(["age"], codes), seeded()))
    assert found.lower == 0.0 <= found.upper
    same = RawEstimates({"replicates_1": (0.25,) * made.resamples.replicates}, 3000)
    (found,) = made.estimates(same)
    assert not found.valid
    assert found.lower < found.value < found.upper
    assert found.standard_error is None
    assert made.distributions(same) == ()


def test_a_statistic_that_is_never_finite_gives_its_lower_bound() -> None:
    knobs = knobs_of("own_statistics:never_finite", replicates=400)
    made = calibrated(BootstrapEstimate, knobs, ["age"], epsilon=60.0, delta=1e-3)
    (found,) = made.estimates(made.release(table_of(["age"], draw(3000)), seeded()))
    assert found.lower == 0.0
    assert abs(found.value) < 0.01


@pytest.mark.parametrize(
    ("said", "names", "what"),
    [
        ({"statistic": "median"}, ["age"], "does not serve the median"),
        ({"statistic": "mean", "where": MEN}, ["age", "sex"], "some do not count"),
        ({"function": "own_statistics:largest"}, ["age"], "times as far as it declares"),
        ({"function": "own_statistics:far"}, ["age"], "too far from 0"),
    ],
)
def test_what_is_refused(said: dict[str, Any], names: list[str], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        calibrated(BootstrapEstimate, BootstrapKnobs(**imported(said)), names, **EPSILON_DELTA)


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ({"replicates": 19, "inference": "percentile"}, "19 replicates are too few"),
        ({"replicates": 1, "inference": "t"}, "two replicates"),
        ({"calibration": "paper"}, "needs one"),
        ({"mu": F(1)}, "goes with"),
        ({"calibration": "paper", "mu": F(0)}, "positive"),
    ],
)
def test_knobs_that_do_not_go_together(said: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        knobs_of("mean", **said)


def test_auto_takes_narrower_intervals_than_replicates_of_all_records_can_have() -> None:
    choice = choose(ESTIMATE, knobs_of(OWN), target(["debt", "pay"], **EPSILON_DELTA))
    widths = {c.name: c.error(WIDTH) for c in choice.candidates if c.mechanism is not None}
    assert choice.mechanism == "subsample_split"
    assert widths["subsample_split"] < 0.9 * widths["dp_bootstrap"]


def test_replicates_are_the_paper_s_rule_within_limits() -> None:
    counts = [
        calibrated(
            BootstrapEstimate, knobs_of("mean"), ["age"], epsilon=e, delta=1e-6
        ).resamples.replicates
        for e in (1.0, 4.0, 60.0)
    ]
    assert counts[0] == FEWEST < counts[1] < counts[2] == 500
