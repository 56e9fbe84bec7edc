"""Limits for a population: against closed forms, and against enumerated laws of unit totals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from statpress.mechanisms.errors import RecordsError
from statpress.mechanisms.marginals.population import Sample

ONE = np.array([1.0, 0.0])


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("count", [0, 1, 7, 150, 299, 300])
def test_without_noise_limits_are_those_of_clopper_and_pearson(count, confidence) -> None:
    lower, upper = Sample(n_units=300).limits(count, 0.0, ONE, confidence)
    exact = stats.binomtest(count, 300).proportion_ci(confidence, "exact")
    assert 0 <= exact.low * 300 - lower < 0.02 and 0 <= upper - exact.high * 300 < 0.02


@pytest.mark.parametrize("sd", [0.3, 2.0, 40.0])
@pytest.mark.parametrize("share", [0.002, 0.1, 0.5])
def test_with_noise_limits_invert_the_law_of_the_noisy_count(share: float, sd: float) -> None:
    n, value = 2000, 2000 * share
    lower, upper = Sample(n_units=n).limits(value, sd, ONE, 0.95)
    counts = np.arange(n + 1)
    if lower > 0:
        above = stats.binom.pmf(counts, n, lower / n) @ stats.norm.sf((value - counts) / sd)
        assert 0.02 < above <= 0.025
    below = stats.binom.pmf(counts, n, upper / n) @ stats.norm.cdf((value - counts) / sd)
    assert 0.02 < below <= 0.025


def test_for_many_records_limits_are_nearly_normal() -> None:
    lower, upper = Sample(n_units=50_000).limits(20_000, 100.0, ONE, 0.95)
    reach = 1.96 * (50_000 * 0.4 * 0.6 + 100**2) ** 0.5
    assert (20_000 - lower, upper - 20_000) == pytest.approx((reach, reach), rel=0.04)


TOTALS = {
    "alike": [0.9, 0, 0, 0.1],
    "single": [0.6, 0.4, 0, 0],
    "mixed": [0.5, 0.3, 0.15, 0.05],
    "common": [0.01, 0.04, 0.15, 0.8],
}


@pytest.mark.parametrize("law", TOTALS)
@pytest.mark.parametrize("units", [3, 15, pytest.param(40, marks=pytest.mark.nightly)])
def test_units_are_covered_whatever_the_law_of_their_totals(law: str, units: int) -> None:
    """Coverage by enumeration; that of independent records is caught."""
    masses = np.array([1.0])
    for _ in range(units):
        masses = np.convolve(masses, TOTALS[law])
    expected = units * float(np.arange(4) @ TOTALS[law])

    def missed(sample: Sample) -> float:
        limits = np.array([sample.limits(s, 0.0, ONE, 0.9) for s in range(len(masses))])
        return float(masses[(limits[:, 0] > expected) | (limits[:, 1] < expected)].sum())

    assert missed(Sample(n_units=units, unit_records=3, absent=True)) <= 0.1
    if law == "alike" and units > 3:
        assert missed(Sample(n_units=3 * units)) > 0.2


def test_limits_grow_with_the_noisy_sum_and_lie_within_the_possible_sums() -> None:
    sample = Sample(n_units=100, unit_records=4, absent=True)
    limits = np.array([sample.limits(v, 5.0, ONE, 0.95) for v in np.linspace(-50, 450, 41)])
    assert (np.diff(limits, axis=0) >= -0.02).all()
    assert (limits >= 0).all() and (limits <= 400).all()
    assert (limits[:, 1] - limits[:, 0] > 20).all()  # never a point


def test_any_weights_have_limits() -> None:
    sample, weights = Sample(n_units=500), np.array([-1.0, 0.5, 2.0])
    lower, upper = sample.limits(250, 3.0, weights, 0.95)
    assert -500 < lower < 250 < upper < 1000
    mirrored = sample.limits(-250, 3.0, -weights, 0.95)
    assert mirrored == pytest.approx((-upper, -lower), rel=1e-6)


def test_the_public_number_of_records_has_no_error() -> None:
    assert Sample(n_units=500).limits(500, 0.0, np.ones(3), 0.95) == (500, 500)
    lower, upper = Sample(n_units=500, absent=True).limits(400, 0.0, np.ones(3), 0.95)
    assert lower < 400 < upper


@pytest.mark.parametrize("numbers", [{"n_units": 0}, {"n_units": 5, "unit_records": 0}])
def test_a_sample_has_units_with_records(numbers) -> None:
    with pytest.raises(RecordsError):
        Sample(**numbers)
