"""How the least coverage of a mean depends on the form of its variance."""

from __future__ import annotations

from fractions import Fraction

import pytest

from statpress.mechanisms.estimates import joint_moments
from statpress.mechanisms.estimates.joint_moments import JointMoments
from statpress.mechanisms.estimates.moments import inference_words

WEIGHT = 3.33


def shortfall(way: float, noise: float, level: float) -> float:
    """Level less least coverage, where the variance goes this far to that about the noisy mean."""
    return level - joint_moments.worst_of_mean(noise, WEIGHT, level, way)


@pytest.mark.parametrize("level", [0.9, 0.99])
def test_halfway_to_the_variance_about_the_mean_is_enough(level: float) -> None:
    """At mu = 1; Wilson's form by itself falls short, and all of the way gains nothing."""
    wilson, halfway, all_of_it = (shortfall(way, 1.0, level) for way in (0.0, 0.5, 1.0))
    assert halfway < 0.004 < 0.0075 < wilson
    assert 0 <= halfway - all_of_it < 0.0005


def test_up_to_what_budget_a_mean_is_asymptotic() -> None:
    """With the noise of a product at this mu: up to mu = 1.5, at .99 up to .8."""
    for level, mu in ((0.9, Fraction(3, 2)), (0.95, Fraction(3, 2)), (0.99, Fraction(4, 5))):
        made = JointMoments.calibrate(mu, lower=0.0, upper=1.0)
        least = joint_moments.worst_of_mean(made.sigma, made.square_weight, level)
        assert inference_words(least, level) == "asymptotic"
        assert (
            inference_words(
                joint_moments.worst_of_mean(made.sigma / 2, made.square_weight, level), level
            )
            == "approximate"
        )
