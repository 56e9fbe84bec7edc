"""How the noise of products of moments is counted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from statpress.mechanisms.estimates.fieller import normal_quantile
from statpress.mechanisms.estimates.moment_designs import (
    CORRELATION,
    POWERS,
    SLOPE,
    Errors,
)
from statpress.mechanisms.estimates.pair_moments import FIRST, MomentSets
from statpress.mechanisms.estimates.statistics import intercept

Doubles = NDArray[np.float64]
ONCE = np.zeros(())


def square_coverage(
    mean: float, noise: float, weight: float, level: float, counted: Callable[[Errors], Doubles]
) -> float:
    """How often w - u^2 + noise^2 holds a variance, from noisy u and w, by an integral."""
    points = np.linspace(-6, 6, 321)
    masses = np.exp(-(points**2) / 2)
    masses /= masses.sum()
    one, two = noise * points[:, None], noise / weight * points
    off = two + noise**2 - 2 * mean * one - one**2
    own = 4 * (mean + one) ** 2 * noise**2 + (noise / weight) ** 2
    variance = counted(Errors(ONCE, ONCE, own, np.full_like(own, 4 * noise**4)))
    return float(masses @ (np.abs(off) <= normal_quantile(level) * np.sqrt(variance)) @ masses)


def least_coverage(level: float, counted: Callable[[Errors], Doubles]) -> float:
    """Of all means and noises; 13/4 and 15/4 are the weights of squares in our designs."""
    noises = np.append(np.geomspace(0.003, 1, 12), [3, 10, 100])
    return min(
        square_coverage(mean, float(noise), weight, level, counted)
        for mean in np.linspace(0, 0.5, 6)
        for noise in noises
        for weight in (3.25, 3.75)
    )


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_a_square_is_covered_whatever_its_mean_and_noise(level: float) -> None:
    assert least_coverage(level, lambda errors: errors.of_noise) >= level
    # The noise of the gradient was taken as none before.
    assert least_coverage(level, lambda errors: errors.own) < level - 0.1


def test_the_form_is_the_variance_at_its_ratio_and_more_elsewhere() -> None:
    own, bend = np.random.default_rng(1).uniform(0, 2, (2, 50))
    errors = Errors(ONCE, ONCE, own, bend)
    np.testing.assert_allclose(errors.noise_form(bend / own), errors.of_noise)
    assert (errors.noise_form(np.full(50, 0.3)) >= errors.of_noise * (1 - 1e-12)).all()
    none = Errors(ONCE, ONCE, own, np.zeros(50))
    np.testing.assert_array_equal(none.noise_form(np.zeros(50)), own)


@pytest.mark.parametrize("wanted", [SLOPE, CORRELATION, intercept(0.3)])
def test_bend_is_twice_the_variance_of_the_second_order_term(wanted: object) -> None:
    """For a quadratic f(m + e) - f(m) - g'e; a cubic has a third-order term, here small."""
    rng, scale = np.random.default_rng(4), 0.02
    among = [POWERS.index(power) for power in FIRST]
    means = np.zeros((len(POWERS), 1))
    means[among, 0] = 0.1, -0.2, 0.12, 0.03, 0.2
    noise = scale * rng.normal(size=(len(POWERS), 6))
    known, moved = MomentSets(means, noise, 1000), np.repeat(means, 200_000, axis=1)
    for function in (wanted.numerator, *wanted.denominators):  # type: ignore[attr-defined]
        slopes = known._slopes(function)
        move = noise[among] @ rng.normal(size=(6, 200_000))
        moved[among] = means[among] + move
        at_moved = MomentSets(moved, noise, 1000)._at
        second = function(at_moved) - function(known._at) - slopes.first[:, 0] @ move
        bend = known._errors(slopes, slopes).bend
        assert 2 * second.var() == pytest.approx(float(bend[0]), rel=0.03)
