"""Balls around exact numbers: roundings, the error function, sums of integer noise."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from fractions import Fraction as F

import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st

from statpress.mechanisms.accounting import balls
from statpress.mechanisms.accounting.balls import (
    Above,
    Bounds,
    double_above,
    double_below,
    last_true,
    twice_above,
)
from statpress.mechanisms.accounting.composition import compose
from statpress.mechanisms.accounting.draws import DrawsLoss
from statpress.mechanisms.accounting.losses import (
    ConcentratedLoss,
    GaussianLoss,
    PrivacyLoss,
    PureLoss,
)
from statpress.mechanisms.accounting.noise_losses import (
    DiscreteGaussianLoss,
    DiscreteLaplaceLoss,
    SumOfNoise,
    residue_weights,
)

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


# Rounding of exact numbers to the doubles beside them


@given(st.fractions() | st.decimals(allow_nan=False, allow_infinity=False, places=30))
def test_the_doubles_beside_a_number_enclose_it(
    amount: Fraction | Decimal,
) -> None:
    low, high, exact = double_below(amount), double_above(amount), Fraction(amount)
    assert Fraction(low) <= exact <= Fraction(high)
    assert high in (low, math.nextafter(low, math.inf))
    assert (low == high) == (Fraction(float(amount)) == exact)


@pytest.mark.parametrize("text", ["1e-400", "5e-324", "0.1", "1", "1e308", "1e400"])
def test_extreme_decimals(text: str) -> None:
    amount = Decimal(text)
    low, high = double_below(amount), double_above(amount)
    assert Decimal(low) <= amount <= Decimal(high)
    assert low >= 0
    if text == "1e400":
        assert math.isinf(high)
        assert math.isfinite(low)
    if text == "1e-400":
        assert (low, high) == (0.0, 5e-324)


CURVES: dict[str, PrivacyLoss] = {
    "gaussian": GaussianLoss(Fraction(3, 4)),
    "pure": PureLoss(Fraction(2)),
    "many draws": DrawsLoss(up=Fraction(41, 800), down=Fraction(40, 800), draws=400),
    "few draws": DrawsLoss(up=Fraction(3, 10), down=Fraction(2, 10), draws=5),
    "discrete gaussian": DiscreteGaussianLoss(Fraction(9), 1, 2),
    "discrete laplace": DiscreteLaplaceLoss(Fraction(5), 2, 2),
    "bounds far apart": ConcentratedLoss(Fraction(1, 8), GaussianLoss(Fraction(1, 4))),
    "composed": compose([GaussianLoss(Fraction(1, 2)), PureLoss(Fraction(1, 3))]),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.nightly] * (name == "composed")) for name in CURVES],
)
@pytest.mark.parametrize("delta", [0.03, 1e-6, 1e-12])
def test_a_search_ends_where_halving_ends_in_a_fraction_of_the_looks(
    name: str, delta: float
) -> None:
    """Bit for bit, so that no charge moves."""
    loss, looks = CURVES[name], 0

    def curve(epsilon: float) -> Bounds:
        nonlocal looks
        looks += 1
        return loss.delta(epsilon)

    most = loss.pure_epsilon.upper
    plain = [
        last_true(lambda e: curve(e).lower > delta, most)[0],
        last_true(lambda e: curve(e).upper > delta, most)[1],
    ]
    halved, looks = looks, 0
    lower, upper = Above.both(curve, delta)
    assert [last_true(lower, most)[0], last_true(upper, most)[1]] == plain
    assert looks <= max(4, 0.4 * halved)


def test_the_end_of_a_search_was_seen_or_follows_from_what_was() -> None:
    """A bound that falls unevenly: at or below each end some point was seen to be low enough."""
    seen: dict[float, Bounds] = {}

    def uneven(epsilon: float) -> Bounds:
        wave = 1e-9 * math.sin(1e12 * epsilon)
        seen[epsilon] = Bounds(math.exp(-epsilon) * (1 - 2e-9), math.exp(-epsilon) * (1 + wave))
        return seen[epsilon]

    _, high = last_true(Above.both(uneven, 0.01)[1], math.inf)
    assert any(x <= high and bounds.upper <= 0.01 for x, bounds in seen.items())
    assert high == pytest.approx(math.log(100), rel=1e-8)
