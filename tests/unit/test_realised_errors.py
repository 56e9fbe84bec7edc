"""Total variation and coverage of a release, beside their definitions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from statpress.mechanisms.estimates.exact_values import Coverage, coverage, total_variation
from statpress.tasks.products.estimate_product import noise_of_one
from statpress.tasks.products.true_errors import compared, covered


def test_total_variation_is_of_shares() -> None:
    assert total_variation([1, 1, 2], [1, 1, 2]) == 0
    assert total_variation([10, 0], [0, 3]) == 1
    assert total_variation([[2, 1], [1, 0]], [[1, 1], [1, 1]]) == pytest.approx(0.25)
    assert total_variation([0, 0], [1, 0]) == 1
    assert total_variation([0, 0], [0, 0]) == 0


def test_coverage_counts_intervals_at_95_percent() -> None:
    """What is known exactly has no interval; the ends are 1.96 standard errors away."""
    found = coverage([0, 0, 0, 5], [1.95, 1.97, -1.95, 5], [1, 1, 1, 0])
    assert (found.inside, found.of) == (2, 3)
    assert coverage([0.0, 0.0], [1.0, 3.0], 1.0).share == 0.5
    assert (found + found).of == 6


def noise(shared: int, releases: int) -> np.ndarray:
    """Normal noise of 60 cells, of which groups of some have the same: float64[releases, 60]."""
    rng = np.random.default_rng(shared)
    return np.repeat(rng.normal(0, 3, (releases, 60 // shared)), shared, axis=1)


@pytest.mark.parametrize("shared", [1, 2, 10, 30, 60])
def test_so_many_miss_no_more_often_than_is_said(shared: int) -> None:
    """For all that is said at once, whatever the intervals share; test level 1e-6."""
    releases = 4000
    bounds = [coverage(np.zeros(60), each, 3.0).at_most for each in noise(shared, releases)]
    for bound in set(bounds) - {1}:
        times = sum(each <= bound for each in bounds)
        assert binom.sf(times - 1, releases, float(bound)) > 1e-6, (bound, times)


def test_broken_twins() -> None:
    """Too small an error goes beyond the bound; intervals counted as independent go beyond theirs.

    The intervals that share all their noise attain the bound.
    """
    releases = 4000
    short = [coverage(np.zeros(60), each, 0.7 * 3).at_most for each in noise(60, releases)]
    assert binom.sf(sum(each <= 0.05 for each in short) - 1, releases, 0.05) < 1e-6
    missed = [coverage(np.zeros(60), each, 3.0).missed for each in noise(60, releases)]
    most = binom.ppf(0.995, 60, 0.05)
    assert binom.sf(sum(each > most for each in missed) - 1, releases, 0.01) < 1e-6
    assert Coverage(0, 60).at_most == Fraction(1, 20)


def test_what_is_said_of_coverage() -> None:
    assert covered("x", Coverage(95, 100)).verdict == "kept"
    assert covered("x", Coverage(2000, 2000)).verdict == "kept"
    assert covered("x", Coverage(94, 100)).verdict == (
        "more miss than promised; honest intervals do so in at most 84 of 100 releases"
    )
    assert covered("x", Coverage(50, 100)).verdict.startswith("far more miss than promised")
    assert covered("x", Coverage(0, 1)).verdict.endswith("in at most 5 of 100 releases")
    assert covered("x", Coverage(0, 0)).verdict == "kept"
    assert "1900" not in repr(Coverage(1900, 2000))


@pytest.mark.parametrize(
    ("promised", "true", "verdict"),
    [
        (0.1, 0.05, "kept"),
        (0.1, 0.14, "nearly kept"),
        (0.1, 0.3, "3 times the promise"),
        (None, 0.3, "nothing was promised"),
        (0.0, 0.0, "as promised"),
        (0.0, 0.1, "not kept"),
    ],
)
def test_verdicts(promised: float | None, true: float, verdict: str) -> None:
    assert compared("error", promised, true).verdict == verdict


def test_one_error_of_an_honest_estimate_breaks_no_promise() -> None:
    """Its mean is passed by half by every fourth; far too much noise is seen all the same."""
    sd, errors = 2.0, np.abs(np.random.default_rng(4).normal(0, 2, 2000))
    wrong = sum("more than" in noise_of_one("mean", sd, error).verdict for error in errors)
    assert wrong <= 40
    promised = sd * np.sqrt(2 / np.pi)
    assert sum("times" in compared("mean", promised, error).verdict for error in errors) > 400
    assert noise_of_one("mean", sd, 6.0).verdict == "more than chance allows, up to 5.15"
    assert noise_of_one("mean", None, 6.0).verdict == "nothing was promised"
