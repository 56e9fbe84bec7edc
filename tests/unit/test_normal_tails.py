"""The error function by series, and the sums of integer noise, against what is plainly summed."""

from __future__ import annotations

from fractions import Fraction as F

import pytest
from flint import arb, ctx

from statpress.mechanisms.accounting import balls
from statpress.mechanisms.accounting.balls import twice_above
from statpress.mechanisms.accounting.noise_losses import SumOfNoise, residue_weights

BETWEEN = F(489, 128)
"""In the middle between two points about which the function is expanded."""
POINTS = [F(0), F(1, 128), F(1, 3), F(127, 128), F(2), BETWEEN, F(22, 7), F(9), F(1535, 128)]
POINTS += [F(1201, 100), F(40)]
POINTS += [-x for x in POINTS[1:]]


def exact(x: F) -> arb:
    with ctx.workprec(600):
        return (arb(x.numerator) / x.denominator / arb(2).sqrt()).erfc()


def enclosed(x: F) -> arb:
    with ctx.workprec(128):
        return twice_above(arb(x.numerator) / x.denominator)


def shortly(x: F) -> tuple[arb, arb]:
    """A series of nine terms, and what it leaves out."""
    centre, series, left_out = balls._expanded(round(balls._PER_UNIT * float(x)), 9)
    with ctx.workprec(128):
        return series(arb(x.numerator) / x.denominator - centre), left_out


@pytest.mark.parametrize("x", POINTS)
def test_the_series_encloses_the_error_function(x: F) -> None:
    assert enclosed(x).contains(exact(x))
    assert enclosed(x).rel_accuracy_bits() > 90


@pytest.mark.parametrize("x", [x for x in POINTS if abs(x) < 12.5])
def test_what_a_short_series_leaves_out_is_bounded(x: F) -> None:
    """What it leaves out is far above all rounding."""
    found, left_out = shortly(abs(x))
    assert (found + left_out).contains(exact(abs(x)))


def test_a_series_without_that_bound_is_caught() -> None:
    found, _ = shortly(BETWEEN)
    assert not found.contains(exact(BETWEEN))


@pytest.mark.parametrize("cells", [1, 2, 5])
@pytest.mark.parametrize("square", [F(1, 3), F(20), F(129), F(3000)])
def test_the_tail_of_noise_is_its_masses_added_up(square: F, cells: int) -> None:
    with ctx.workprec(128):
        noise = SumOfNoise(square, cells)
    with ctx.workprec(600):
        weights, variance = residue_weights(square, cells), cells * square
        width = 30 * (int(variance**0.5) + 1)

        def mass(w: int) -> arb:
            return weights[w % len(weights)] * (-(arb(w) ** 2) * variance.denominator
                                         / (2 * variance.numerator)).exp()  # fmt: skip

        total, plain = arb(0), {}
        for w in range(width, -width, -1):
            total += mass(w)
            plain[w] = total
    sd = float(variance) ** 0.5
    for first in {round(sd * z) + j for z in (-3, 0, 0.3, 2, 8) for j in range(-1, 2)}:
        with ctx.workprec(128):
            found = noise.above(first)
        assert found.overlaps(plain[first])
        assert found.rel_accuracy_bits() > 85


def test_weights_that_differ_are_not_taken_for_one() -> None:
    with ctx.workprec(128):
        assert SumOfNoise(F(40), 2).alike
        assert not SumOfNoise(F(2), 2).alike
        assert not SumOfNoise(F(1, 2), 12).alike
