"""Amounts, whatever they are: exact texts, and budgets that divide without remainder."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from census_ledger import TERMS, apply
from hypothesis import given
from hypothesis import strategies as st

from statpress.mechanisms.errors import InsufficientBudgetError, LedgerError
from statpress.tasks.ledger.accounts import State
from statpress.tasks.ledger.chain import next_entry
from statpress.tasks.ledger.entries import MEASURES, canonical, exact

TIMES = {"created": "2026-01-01T00:00:00+00:00"}
amounts = st.one_of(
    st.decimals(min_value=0, max_value=2, allow_nan=False, places=3),
    st.floats(min_value=0, max_value=1.5),
    st.sampled_from(["0", "0.1", "1e-300", "1e-8", "0.30000000000000004", "1"]),
)


def registration(dataset: str, limits: dict[str, str]) -> dict[str, Any]:
    return {"dataset": dataset, **limits, **TERMS, **TIMES}


def charge(dataset: str, run: str, *loss: object) -> dict[str, Any]:
    texts = [canonical(exact(amount)) for amount in loss]
    body = {"dataset": dataset, "run_id": run, **dict(zip(MEASURES, texts, strict=True))}
    described = {"mechanisms": [{"mechanism": "laplace", "scale": "2"}], "config_sha256": "a" * 64}
    return {**body, **described, "insecure_seed": False, "version": "0.1.0", **TERMS, **TIMES}


@given(amounts)
def test_the_text_of_an_amount_loses_nothing(amount: object) -> None:
    number = exact(amount)
    text = canonical(number)
    assert exact(text) == number
    assert canonical(exact(text)) == text
    if isinstance(amount, float):
        assert float(text) == amount


@pytest.mark.parametrize(
    ("limit", "part", "times"), [("1", "0.1", 10), ("1e-299", "1e-300", 10), ("0.3", "0.1", 3)]
)
@pytest.mark.parametrize("policy", ["basic", "zcdp"])
def test_the_budget_divides_without_remainder(
    policy: str, limit: str, part: str, times: int
) -> None:
    names = ("epsilon", "delta") if policy == "basic" else ("rho", "rho_delta")
    limits = {"policy": policy, **dict(zip(names, (limit, "0"), strict=True))}
    loss = [part if measure == names[0] else "0" for measure in MEASURES]
    state = apply(State(), next_entry(State(), "register", registration("a", limits)))
    for number in range(times):
        state = apply(state, next_entry(state, "charge", charge("a", f"run-{number}", *loss)))
    assert not any(state.accounts["a"].remaining.amounts.values())
    for measure in names:
        least = ["1e-399" if m == measure else "0" for m in MEASURES]
        with pytest.raises(InsufficientBudgetError):
            next_entry(state, "charge", charge("a", "last", *least))


@given(st.text(max_size=12))
def test_any_text_is_an_amount_or_a_ledger_error(text: str) -> None:
    try:
        number = exact(text)
    except LedgerError:
        return
    assert number == Decimal(text)


def test_large_amounts_have_one_text() -> None:
    assert canonical(exact("1e15")) == "1" + "0" * 15
    assert canonical(exact("1e16")) == "1e+16"
