"""Rounding of exact numbers to the doubles beside them."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statpress.mechanisms.accounting.balls import (
    Above,
    Bounds,
    double_above,
    double_below,
    last_true,
)
from statpress.mechanisms.accounting.composition import compose
from statpress.mechanisms.accounting.draws import DrawsLoss
from statpress.mechanisms.accounting.losses import (
    ConcentratedLoss,
    GaussianLoss,
    PrivacyLoss,
    PureLoss,
)
from statpress.mechanisms.accounting.noise_losses import DiscreteGaussianLoss, DiscreteLaplaceLoss


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
