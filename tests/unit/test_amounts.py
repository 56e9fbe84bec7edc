"""Amounts of privacy loss: one exact text each, sums that keep every digit."""

from __future__ import annotations

from decimal import Decimal, Inexact
from fractions import Fraction

import pytest

from statpress.mechanisms.errors import AmountError, LedgerError
from statpress.tasks.ledger.accounts import limit_of, measures_of
from statpress.tasks.ledger.entries import MEASURES, Loss, canonical, exact


def loss(epsilon: str, delta: str = "0", rho: str = "0", rho_delta: str = "0") -> Loss:
    """A loss in every measure."""
    return Loss.of(dict(zip(MEASURES, (epsilon, delta, rho, rho_delta), strict=True)))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("0.10", "0.1"),
        (0.1, "0.1"),
        (100, "100"),
        ("1E+2", "100"),
        ("1.0e-8", "1e-8"),
        (1e-300, "1e-300"),
        (5e-324, "5e-324"),
        (2.2250738585072014e-308, "2.2250738585072014e-308"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (Decimal("1e300"), "1e+300"),
        ("-0", "0"),
        (-0.0, "0"),
        (Decimal("-0.00"), "0"),
        (".5", "0.5"),
        ("5.", "5"),
        ("+5", "5"),
        ("0e999", "0"),
        ("0." + "1" * 400, "0." + "1" * 400),
        ("9" * 400, "9" * 400),
        ("9" * 400 + "." + "9" * 400, "9" * 400 + "." + "9" * 400),
        ("123456789012345678901", "123456789012345678901"),
    ],
)
def test_an_amount_has_one_exact_text(given: object, text: str) -> None:
    assert canonical(exact(given)) == text
    assert exact(text) == exact(given)
    assert canonical(exact(text)) == text
    if isinstance(given, float):
        assert float(text) == given


@pytest.mark.parametrize(
    "given",
    ["", "nan", "inf", "-1", "1_0", " 1", "1 ", "1\n", "\t1", "１", "٣", "1,5", "0x1", "--1", "."]
    + ["1e400", "1e-401", "1e9999999999999999999", "e5", "1e", "1e1.5", "Infinity", "sNaN"]
    + [True, None, b"1", 1j, (0, (1,), 0), [1], float("nan"), float("inf"), float("-inf"), -0.1]
    + [Decimal("sNaN"), Decimal("-Infinity"), Decimal("1e99999"), Decimal("-1e-9"), -5e-324]
    + ["0." + "1" * 401, "9" * 401, Fraction(1, 2)]
    + [pytest.param(10**5000, id="long int"), pytest.param("1" * 10**6, id="long text")],
)
def test_what_is_no_amount_is_refused_with_its_place(given: object) -> None:
    with pytest.raises(AmountError) as caught:
        exact(given, where="budget.epsilon")
    assert str(caught.value).startswith("budget.epsilon: ")
    assert len(str(caught.value)) < 300
    assert caught.value.exit_code == 33


def test_sums_keep_every_digit() -> None:
    large, small = loss("1e300", rho="1e399"), loss("1e-300", rho="1e-400")
    total = large + small
    assert total - large == small
    assert total.covers(large)
    assert not large.covers(total)
    assert canonical(total["rho"]) == "1" + "0" * 399 + "." + "0" * 399 + "1"


def test_a_tenth_ten_times_is_one() -> None:
    total = Loss.nothing()
    for _ in range(10):
        total += loss(canonical(exact(0.1)), delta=canonical(exact(1e-9)))
    assert total == loss("1", "1e-8")


def test_a_sum_that_would_round_is_an_error() -> None:
    huge, tiny = Loss({"epsilon": Decimal("1e1500")}), Loss({"epsilon": Decimal("1e-1500")})
    with pytest.raises(Inexact):
        huge + tiny
    with pytest.raises(Inexact):
        huge - tiny


def test_a_loss_is_compared_in_the_measures_of_the_first() -> None:
    limit = Loss({"rho": Decimal(1), "rho_delta": Decimal(0)})
    assert limit.covers(loss("99", "0.9", "1", "0"))
    assert not limit.covers(loss("0", "0", "1", "1e-300"))
    assert (limit - loss("99", rho="1.5")).texts() == {"rho": "-0.5", "rho_delta": "0"}
    assert str(limit) == "rho 1 and delta 0"
    assert str(loss("0.1", "1e-9").within(("epsilon", "delta"))) == "epsilon 0.1 and delta 1e-9"
    assert set(Loss.nothing().amounts) == set(MEASURES)


def test_each_policy_limits_its_own_measures() -> None:
    assert measures_of("basic") == ("epsilon", "delta")
    assert measures_of("zcdp") == ("rho", "rho_delta")
    body = {"policy": "zcdp", "rho": "0.5", "rho_delta": "1e-9", "epsilon": "7"}
    assert limit_of(body).texts() == {"rho": "0.5", "rho_delta": "1e-9"}
    for unknown in ("free", "", None, 1, ["basic"]):
        with pytest.raises(LedgerError, match="not known") as caught:
            measures_of(unknown)
        assert caught.value.where == "policy"
