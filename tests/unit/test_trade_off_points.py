"""What any attack misses at least, by a few points of a privacy curve."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from statpress.mechanisms.accounting.trade_off import missed_by_points
from statpress.tasks.pages.numbers import at_most, per_hundred

ALPHAS = tuple(Fraction(each, 20) for each in range(21))
ODDS = Fraction(9, 4)
"""e^epsilon of randomised response, whose outputs have chances of 9/13 and 4/13."""


def exact(alpha: Fraction) -> Fraction:
    """The trade-off function of randomised response, by its two outputs."""
    keep = ODDS / (1 + ODDS)
    if alpha <= 1 - keep:
        return 1 - ODDS * alpha
    return (1 - alpha) / ODDS


def curve(odds: Fraction) -> Fraction:
    """Its delta at an epsilon of log odds."""
    keep = ODDS / (1 + ODDS)
    return max(Fraction(0), keep - odds * (1 - keep))


def above(odds: Fraction) -> tuple[float, float]:
    """A point that is proven to lie on the curve or above it, as doubles."""
    return math.nextafter(math.log(odds), math.inf), math.nextafter(float(curve(odds)), 1)


def test_points_of_randomised_response_give_its_trade_off_and_never_more() -> None:
    found = missed_by_points((above(ODDS),), ALPHAS)
    for alpha, bound in zip(ALPHAS, found, strict=True):
        assert Fraction(bound) <= exact(alpha)
        assert bound == pytest.approx(float(exact(alpha)), abs=1e-12)


def test_more_points_only_tighten_and_stay_below_the_truth() -> None:
    few = (above(Fraction(1)),)
    more = (*few, above(Fraction(3, 2)), above(Fraction(2)))
    loose, tight = missed_by_points(few, ALPHAS), missed_by_points(more, ALPHAS)
    assert all(a <= b for a, b in zip(loose, tight, strict=True))
    assert any(a < b for a, b in zip(loose, tight, strict=True))
    assert all(Fraction(b) <= exact(alpha) for b, alpha in zip(tight, ALPHAS, strict=True))


def test_a_curve_that_is_too_low_is_caught() -> None:
    low = ((math.log(ODDS) - 1e-3, float(curve(ODDS))),)
    found = missed_by_points(low, ALPHAS)
    assert any(Fraction(b) > exact(alpha) for b, alpha in zip(found, ALPHAS, strict=True))


def test_figures_that_bound_are_rounded_against_the_release() -> None:
    from decimal import ROUND_FLOOR

    assert per_hundred(0.93899, ROUND_FLOOR) == "93.8"
    assert at_most(0.0942001) == "9.43 %"
    assert at_most(0.0942) == "9.42 %"
    assert at_most(1e-9) == "0.01 %"
    assert at_most(1.0000001) == "100 %"
