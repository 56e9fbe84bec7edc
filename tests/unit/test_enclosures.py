"""Rounding of exact numbers to the doubles beside them."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.accounting.enclosures import double_above, double_below


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
