"""The rule for half-widths from an estimated variance: level, constants, and how close to best."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from statpress.mechanisms.estimates.fieller import normal_quantile
from statpress.mechanisms.estimates.resampling_noise import (
    AROUND,
    TOLERANCE,
    CalibratedWidth,
    NoisyVariance,
    coverage,
    mean_width,
    widths_from_description,
)
from statpress.mechanisms.estimates.subsample_split import former_multiplier
from tests.benchmarks.black_box_bound import least_width

LEVEL, RUNS = 1e-6, 40_000
SPLIT = NoisyVariance(49.0, 2.0**-11, 159, 1.0, 2.0**-19, 1 / 12000)
NOISY = NoisyVariance(99.0, 0.008, 63, 1.05, 1.6e-5, 1 / 12000)
FEW = NoisyVariance(0.998, 4.3e-4, 49, 1.02, 8.6e-6, 1 / 2000)
PRESUMED = {SPLIT: 1 / 36000, NOISY: 1 / 540_000, FEW: 1 / 6000}


def simulated(
    rule: CalibratedWidth, known: NoisyVariance, share: float, level: float, forgotten: float = 1.0
) -> int:
    """How many intervals hold, of independent draws and not by quadrature."""
    rng, variance = np.random.default_rng(8), np.array(share * known.most)
    mean = known.spread_gain * variance + known.spread_noise * forgotten
    spread = mean * rng.chisquare(known.freedom, RUNS) / known.freedom
    error = np.sqrt(known.variance_of_centre(variance)) * rng.standard_normal(RUNS)
    return int(np.sum(np.abs(error) <= rule.half_width(known, spread, level)))


@pytest.mark.parametrize("known", PRESUMED)
@pytest.mark.parametrize("level", [0.9, 0.99])
def test_the_level_is_kept_at_every_variance(known: NoisyVariance, level: float) -> None:
    rule = CalibratedWidth.narrowest(known, PRESUMED[known], level)
    allowed = stats.binom.ppf(LEVEL, RUNS, level - 0.06 * (1 - level))
    for share in (0.0, 1e-4, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1.0):
        assert simulated(rule, known, share, level) >= allowed
    twin = simulated(rule, known, 0.3, level, forgotten=0.5)  # half of the noise forgotten
    assert twin < allowed or known is SPLIT
    lower = dataclasses.replace(rule, addend=rule.addend - 0.3 * known.most)
    assert min(simulated(lower, known, share, level) for share in (0.01, 0.1, 0.2, 0.4)) < allowed


@pytest.mark.parametrize("subsamples", [2, 3])
@pytest.mark.parametrize("part", [0.1, 0.02])
def test_the_level_is_kept_with_few_and_noisy_subsamples(subsamples: int, part: float) -> None:
    """Where no addend is enough for a large factor."""
    n, mu = 1000, 0.1
    full = 1 / (n * mu * math.sqrt(1 - part))
    noise = subsamples * (2 / (n * mu)) ** 2 / part
    known = NoisyVariance(1.0, noise, subsamples - 1, 1.0, full**2, 1 / (4 * n))
    rule = CalibratedWidth.narrowest(known, known.most / 3, 0.95)
    variances = known.most * np.array([0.0, 0.01, 0.1, 0.3, 0.7, 1.0])
    assert np.min(coverage(rule, known, variances, 0.95)) >= 0.95 - TOLERANCE * 0.05
    assert min(simulated(rule, known, each, 0.95) for each in (0.1, 0.5, 1.0)) > 0.945 * RUNS


def test_without_an_addend_it_is_the_cap_or_the_noise() -> None:
    z = normal_quantile(0.9)
    spread = np.array([0.0, 1e9])
    low, high = CalibratedWidth(1.0, 0.0).half_width(FEW, spread, 0.9)
    assert low == pytest.approx(z * math.sqrt(FEW.centre_noise))
    assert high == pytest.approx(z * math.sqrt(FEW.centre_gain * FEW.most + FEW.centre_noise))
    middle = FEW.spread_gain * 1e-4 + FEW.spread_noise
    (found,) = CalibratedWidth(2.0, -1e-5).half_width(FEW, np.array([middle]), 0.9)
    assert found == pytest.approx(z * math.sqrt(1.02 * 1.9e-4 + 8.6e-6))


@pytest.mark.parametrize(("known", "most"), [(NOISY, 1.04), (FEW, 1.07)])
def test_no_rule_is_much_narrower(known: NoisyVariance, most: float) -> None:
    """And the rule of before is wider."""
    presumed = PRESUMED[known]
    at = np.minimum(presumed * np.array(AROUND), known.most)
    oracle = 2 * normal_quantile(0.9) * np.sqrt(known.variance_of_centre(at))
    rule = CalibratedWidth.narrowest(known, presumed, 0.9)
    found = float(np.mean(mean_width(rule, known, at, 0.9) / oracle))
    bound = least_width(known, at, oracle, 0.9, bins=100)
    assert bound / 1.005 < found < most * bound
    former = former_multiplier(known, 1 / (1 + known.spread_gain), 0.9)
    if known is NOISY:
        assert found < 0.97 * float(np.mean(mean_width(former, known, at, 0.9) / oracle))
    wrong = dataclasses.replace(rule, addend=rule.addend - 0.2 * known.most)
    narrow = float(np.mean(mean_width(wrong, known, at, 0.9) / oracle))
    kept = float(np.min(coverage(wrong, known, known.most * np.linspace(0, 1, 21), 0.9)))
    assert narrow < bound and kept < 0.89  # what is below the bound does not keep the level


def test_constants_of_earlier_versions_are_those_they_had() -> None:
    """Printed by the version that published them."""
    former = former_multiplier(SPLIT, 60 / 3000, 0.9)
    assert (former.factor, former.addend) == (1.6941992357600157, 4.0690104166666665e-08)
    found = former.half_width(SPLIT, np.array([0.0004, 0.0006, 0.002, 0.01]), 0.9)
    assert found == pytest.approx([0.00236463, 0.00348364, 0.00970281, 0.01518626], rel=2e-6)


def test_constants_are_read_back_as_they_were_written() -> None:
    rules = (CalibratedWidth(1.05, 1 / 3e5), CalibratedWidth(1.2, -1e-7))
    stated = {
        f"reach_{name}_{i}": repr(getattr(rule, name))
        for i, rule in enumerate(rules, 1)
        for name in ("factor", "addend")
    }
    assert widths_from_description({"other": 1, **stated}, 2) == rules
    with pytest.raises(KeyError, match="reach_factor_1"):
        widths_from_description({"other": 1}, 2)
