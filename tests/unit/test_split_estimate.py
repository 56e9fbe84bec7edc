"""Estimates from one release and subsamples, of built-in statistics and user-defined ones."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from estimating import (
    EPSILON_DELTA,
    LEVEL,
    RENYI,
    RHO,
    calibrated,
    check_round_trip,
    check_targets,
    check_units,
    coverage,
    draw,
    least,
    loss_of,
    seeded,
    table_of,
    target,
    values_of,
)
from own_statistics import imported
from scipy import stats

from statpress.configs.requests import user_defined
from statpress.mechanisms.errors import ConfigError, InfeasibleBudgetError
from statpress.mechanisms.estimates.estimate import ESTIMATE, WIDTH
from statpress.mechanisms.estimates.statistics import Mean
from statpress.mechanisms.estimates.subsample_split import (
    Multiplier,
    SplitDesign,
    SplitEstimate,
    SplitKnobs,
    SubsampleSplit,
)
from statpress.mechanisms.planning.choice import choose


def knobs_of(statistic: str, **said: Any) -> SplitKnobs:
    if ":" in statistic:
        return SplitKnobs(confidence=0.9, function=user_defined(statistic, "statistic"), **said)
    return SplitKnobs(confidence=0.9, statistic=statistic, **said)  # type: ignore[arg-type]


OWN = "own_statistics:second_moment"
TWO = "own_statistics:both_means"
CASES: dict[str, tuple[list[str], Any]] = {
    "mean": (["age"], np.mean),
    "variance": (["age"], lambda x: x.var(ddof=1)),
    "covariance": (["age", "pay"], lambda x, y: np.cov(x, y)[0, 1]),
    OWN: (["pay"], lambda x: np.mean((x / 50) ** 2)),
    TWO: (["debt", "pay"], lambda x, y: [np.mean(x / 199), np.mean(y / 50)]),
}


@pytest.mark.parametrize("statistic", CASES)
def test_at_a_large_budget_it_is_the_statistic_in_its_own_units(statistic: str) -> None:
    check_units(SplitEstimate, knobs_of(statistic), *CASES[statistic])


@pytest.mark.parametrize("statistic", ["covariance", TWO])
def test_a_description_is_enough(statistic: str) -> None:
    check_round_trip(SplitEstimate, knobs_of(statistic), CASES[statistic][0])


def test_the_loss_meets_the_target() -> None:
    check_targets(SplitEstimate, knobs_of("variance"), ["age"], EPSILON_DELTA, RENYI)
    with pytest.raises(ConfigError, match="No zero-concentrated"):
        calibrated(SplitEstimate, knobs_of("variance"), ["age"], **RHO)
    with pytest.raises(InfeasibleBudgetError, match="delta"):
        calibrated(SplitEstimate, knobs_of("variance"), ["age"], epsilon=1.0, delta=0.0)


def test_coverage() -> None:
    made = calibrated(SplitEstimate, knobs_of("variance"), ["age"], n=1500, **EPSILON_DELTA)
    truth = float(np.var(values_of(["age"], draw(1_000_000, 77))[0]))
    share, of_half = coverage(made, ["age"], truth, n=1500, runs=100)
    assert of_half < least(100, 0.89) <= share


def test_what_is_left_out_is_chosen_by_the_budget() -> None:
    plain = calibrated(SplitEstimate, knobs_of("mean"), ["age"], **EPSILON_DELTA)
    assert (plain.resamples.size, plain.resamples.subsamples) == (61, 256)
    own = knobs_of("mean", subsample_share=Fraction(1, 10), subsamples=80)
    made = calibrated(SplitEstimate, own, ["age"], **EPSILON_DELTA)
    assert (made.resamples.size, made.resamples.subsamples) == (300, 80)
    assert made.resamples.full == plain.resamples.full
    more = knobs_of("mean", full_share=Fraction(9, 10))
    assert calibrated(SplitEstimate, more, ["age"], **EPSILON_DELTA).resamples.full.sigma < (
        plain.resamples.full.sigma
    )


def test_a_bundle_of_an_earlier_version_keeps_its_intervals() -> None:
    """Its description names no constants of the centre or of the intervals."""
    made = calibrated(SplitEstimate, knobs_of("mean"), ["age"], **EPSILON_DELTA)
    described = made.describe()
    former = {
        key: value
        for key, value in described.items()
        if not key.startswith(("reach_", "part_weight"))
    }
    rebuilt = SplitEstimate.from_description(former)
    assert rebuilt.describe() == former
    raw = made.release(table_of(["age"], draw(3000)), seeded())
    (now,), (then,) = made.estimates(raw), rebuilt.estimates(raw)
    assert then.value == made.terms.scales[0].value(raw.numbers["value"][0]) != now.value
    assert isinstance(rebuilt.rules[0], Multiplier)


def test_the_subsamples_make_an_unbiased_estimate_more_precise() -> None:
    made = calibrated(SplitEstimate, knobs_of("variance"), ["age"], n=500, **EPSILON_DELTA)
    codes, (scale,) = draw(500), made.terms.scales
    values = []
    for seed in range(60):
        (found,) = made.estimates(made.release(table_of(["age"], codes), seeded(seed)))
        values.append(found.value)
    known, full = made.resamples.known, made.resamples.full.sigma
    x = codes["age"] / 99
    of_resampling = np.var((x - x.mean()) ** 2) / 500 * (known.centre_gain - 1)
    wanted = math.sqrt(known.centre_noise + of_resampling)
    spread = 59 * np.var(values, ddof=1) / scale.factor**2 / np.array([wanted, full]) ** 2
    assert min(stats.chi2.sf(spread[0], 59), stats.chi2.cdf(spread[0], 59)) > LEVEL
    assert stats.chi2.cdf(spread[1], 59) < LEVEL  # the noise of the first release, for a twin
    assert made.resamples.centre(0.0, np.ones(256)) == pytest.approx(made.resamples.part_weight)
    plain = dataclasses.replace(made.resamples, part_weight=0.0)
    assert plain.known.centre_noise == plain.full.sigma**2


def test_a_goal_takes_the_place_of_the_curve_of_mu() -> None:
    design = SplitDesign(Fraction(1, 2), Fraction(1, 20), 80)
    plain = SubsampleSplit.calibrate(Mean(), Fraction(1), n_records=3000, design=design)
    loose = SubsampleSplit.calibrate(
        Mean(), Fraction(1), n_records=3000, design=design, goal=((4.0, 1e-3),)
    )
    assert loose.full == plain.full
    assert loose.part.sigma < 0.9 * plain.part.sigma
    assert 0.99e-3 < loose.loss().delta(4.0).upper <= 1e-3


@pytest.mark.parametrize(
    ("said", "names", "what"),
    [
        ({"statistic": "median"}, ["age"], "does not serve the median"),
        ({"function": "own_statistics:falsely_unbiased"}, ["age"], "declares to be unbiased"),
        ({"function": "own_statistics:largest"}, ["age"], "times as far as it declares"),
        ({"function": "own_statistics:slightly_more"}, ["age"], "1 times as far"),
        ({"function": "own_statistics:cells"}, ["age"], "25 times as far"),
        ({"function": "own_statistics:occupied"}, ["age"], "25 times as far"),
        ({"function": "own_statistics:centring"}, ["age"], "ValueError"),
        ({"function": "own_statistics:far"}, ["age"], "too far from 0"),
        ({"function": "own_statistics:flat"}, ["age"], "declared dimension"),
        ({"function": "own_statistics:failing"}, ["age"], "ZeroDivisionError"),
        ({"function": "own_statistics:unbounded"}, ["age"], "finite bounds"),
        ({"function": "own_statistics:floating"}, ["age"], "Fraction"),
        ({"function": "own_statistics:nothing"}, ["age"], "no statistic"),
        ({"function": OWN}, ["age", "pay"], "takes 1 column"),
        ({"statistic": "mean"}, ["rent"], "some do not count"),
        ({"statistic": "mean", "subsample_share": Fraction(1, 1000)}, ["age"], "than 30 records"),
    ],
)
def test_what_is_refused(said: dict[str, Any], names: list[str], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        calibrated(SplitEstimate, SplitKnobs(**imported(said)), names, **EPSILON_DELTA)


def test_a_delta_too_small_for_the_composition_is_refused() -> None:
    with pytest.raises(InfeasibleBudgetError, match="only down to a delta of 1e-10"):
        calibrated(SplitEstimate, knobs_of("mean"), ["age"], epsilon=1.0, delta=1e-12)


def test_what_is_calibrated_at_the_least_delta_is_proven() -> None:
    wanted = target(["age"], epsilon=1.0, delta=1e-10)
    made = SplitEstimate.calibrate(knobs_of("mean"), wanted)
    assert wanted.allows(loss_of(made, wanted))


def test_too_few_records_for_subsamples_are_refused() -> None:
    with pytest.raises(ConfigError, match="60 records"):
        calibrated(SplitEstimate, knobs_of("variance"), ["age"], n=50, **EPSILON_DELTA)


def test_auto_takes_it_for_a_statistic_of_ones_own() -> None:
    choice = choose(ESTIMATE, knobs_of(OWN), target(["pay"], **EPSILON_DELTA))
    assert choice.mechanism == "subsample_split"


def test_auto_takes_the_narrower_for_a_variance() -> None:
    wanted = target(["age"], **EPSILON_DELTA)
    choice = choose(ESTIMATE, knobs_of("variance"), wanted)
    widths = {c.name: c.error(WIDTH) for c in choice.candidates if c.mechanism is not None}
    assert widths["pair_moments"] < widths["subsample_split"]
    assert choice.mechanism == "pair_moments"
