"""Whatever the history: no overspending, exact sums, and every tamper is found."""

from __future__ import annotations

from dataclasses import fields, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mechanisms.errors import InsufficientBudgetError, LedgerError, LedgerIntegrityError
from tasks.accounts import State
from tasks.amounts import Loss, canonical, exact
from tasks.entries import Entry
from tasks.journal import apply, next_entry, replay

TERMS = {"adjacency": "replace_one", "unit": "record", "unit_records": 1, "n_records": 1000}
TIMES = {"created": "2026-01-01T00:00:00+00:00"}
LIMITS = {"a": ("1", "1e-8"), "b": ("0.3", "0")}

amounts = st.one_of(
    st.decimals(min_value=0, max_value=2, allow_nan=False, places=3),
    st.floats(min_value=0, max_value=1.5),
    st.sampled_from(["0", "0.1", "1e-300", "1e-8", "0.30000000000000004", "1"]),
)
deltas = st.sampled_from(["0", "1e-9", "5e-9", "1e-8", "1e-300"])
charges = st.tuples(st.sampled_from(["a", "b"]), amounts, deltas)


def registration(dataset: str, epsilon: str, delta: str) -> dict[str, Any]:
    return {
        "dataset": dataset,
        "policy": "basic",
        "epsilon": epsilon,
        "delta": delta,
        **TERMS,
        **TIMES,
    }


def charge(dataset: str, run: str, epsilon: str, delta: str) -> dict[str, Any]:
    body = {"dataset": dataset, "run_id": run, "epsilon": epsilon, "delta": delta}
    described = {"mechanisms": [{"mechanism": "laplace", "scale": "2"}], "config_sha256": "a" * 64}
    return {**body, **described, "insecure_seed": False, "version": "0.1.0", **TERMS, **TIMES}


def publication(dataset: str, run: str) -> dict[str, Any]:
    body = {"dataset": dataset, "run_id": run, "bundle": f"releases/{run}"}
    return {**body, "manifest_sha256": "b" * 64, **TIMES}


def grow(steps: list[tuple[str, object, str]]) -> tuple[list[Entry], State]:
    """Two accounts, then all charges that pass, each published."""
    state, entries = State(), []

    def take(kind: str, body: dict[str, Any]) -> None:
        nonlocal state
        entries.append(next_entry(state, kind, body))
        state = apply(state, entries[-1])

    for dataset, (epsilon, delta) in LIMITS.items():
        take("register", registration(dataset, epsilon, delta))
    for number, (dataset, epsilon, delta) in enumerate(steps):
        run = f"run-{number}"
        try:
            take("charge", charge(dataset, run, canonical(exact(epsilon)), delta))
        except InsufficientBudgetError:
            continue
        take("publish", publication(dataset, run))
    return entries, state


def total(entries: list[Entry], dataset: str, amount: str) -> Fraction:
    """The sum by another arithmetic than the ledger's."""
    bodies = [e.body for e in entries if e.kind == "charge" and e.body["dataset"] == dataset]
    return sum((Fraction(body[amount]) for body in bodies), Fraction(0))


@given(amounts)
def test_the_text_of_an_amount_loses_nothing(amount: object) -> None:
    number = exact(amount)
    text = canonical(number)
    assert exact(text) == number
    assert canonical(exact(text)) == text
    if isinstance(amount, float):
        assert float(text) == amount


@given(st.lists(charges, max_size=12))
def test_no_history_overspends_and_its_sums_are_exact(steps: list[tuple[str, object, str]]) -> None:
    entries, state = grow(steps)
    assert replay(entries) == state
    for dataset, limits in LIMITS.items():
        account = state.accounts[dataset]
        for amount, limit in zip(("epsilon", "delta"), limits, strict=True):
            spent = Fraction(getattr(account.spent, amount))
            assert spent == total(entries, dataset, amount) <= Fraction(limit)
            assert spent + Fraction(getattr(account.remaining, amount)) == Fraction(limit)


@given(st.lists(charges, max_size=8))
def test_a_refused_charge_would_have_overspent(steps: list[tuple[str, object, str]]) -> None:
    entries, state = grow(steps)
    for number, (dataset, epsilon, delta) in enumerate(steps):
        if f"run-{number}" in state.charges:
            continue
        before = [e for e in entries if e.kind != "charge" or int(e.body["run_id"][4:]) < number]
        wanted = {"epsilon": Fraction(exact(epsilon)), "delta": Fraction(delta)}
        assert any(
            total(before, dataset, amount) + wanted[amount] > Fraction(limit)
            for amount, limit in zip(("epsilon", "delta"), LIMITS[dataset], strict=True)
        )


@pytest.mark.parametrize(
    ("limit", "part", "times"), [("1", "0.1", 10), ("1e-299", "1e-300", 10), ("0.3", "0.1", 3)]
)
def test_the_budget_divides_without_remainder(limit: str, part: str, times: int) -> None:
    state = State()
    state = apply(state, next_entry(state, "register", registration("a", limit, "0")))
    for number in range(times):
        body = charge("a", f"run-{number}", part, "0")
        state = apply(state, next_entry(state, "charge", body))
    assert state.accounts["a"].remaining == Loss(Decimal(0), Decimal(0))
    with pytest.raises(InsufficientBudgetError):
        next_entry(state, "charge", charge("a", "last", "1e-399", "0"))


def other_text(text: str) -> st.SearchStrategy[str]:
    """A text that differs in one place."""
    return st.tuples(st.integers(0, len(text)), st.sampled_from("09af")).map(
        lambda edit: text[: edit[0]] + edit[1] + text[edit[0] + 1 :]
    )


def other(value: Any) -> st.SearchStrategy[Any]:
    """A value near the given one."""
    if isinstance(value, bool):
        return st.just(not value)
    if isinstance(value, int):
        return st.integers(-2, 5).map(lambda step: value + step)
    if isinstance(value, str):
        return other_text(value)
    if isinstance(value, list):
        return st.sampled_from([[], [*value, {}], [{**value[0], "scale": "3"}]])
    raise TypeError(type(value))


@settings(max_examples=400)
@given(st.lists(charges, min_size=1, max_size=6), st.data())
def test_any_tamper_of_one_field_is_found_where_it_is(
    steps: list[tuple[str, object, str]], data: st.DataObject
) -> None:
    entries, _ = grow(steps)
    index = data.draw(st.integers(0, len(entries) - 1), label="entry")
    entry = entries[index]
    name = data.draw(st.sampled_from([f.name for f in fields(Entry)]), label="field")
    if name == "body":
        key = data.draw(st.sampled_from([*sorted(entry.body), "surplus"]), label="key")
        body = {k: v for k, v in entry.body.items() if k != key}
        if not data.draw(st.booleans(), label="drop"):
            body[key] = data.draw(other(entry.body.get(key, "")), label="value")
        tampered = replace(entry, body=body)
    else:
        tampered = replace(entry, **{name: data.draw(other(getattr(entry, name)), label="value")})
    assume(tampered != entry)
    with pytest.raises(LedgerIntegrityError) as caught:
        replay([*entries[:index], tampered, *entries[index + 1 :]])
    assert caught.value.sequence == index + 1


@given(st.lists(charges, min_size=1, max_size=6), st.data())
def test_dropped_and_swapped_entries_are_found(
    steps: list[tuple[str, object, str]], data: st.DataObject
) -> None:
    entries, _ = grow(steps)
    index = data.draw(st.integers(0, len(entries) - 2))
    swapped = [*entries[:index], entries[index + 1], entries[index], *entries[index + 2 :]]
    for broken in (entries[:index] + entries[index + 1 :], swapped):
        with pytest.raises(LedgerIntegrityError) as caught:
            replay(broken)
        assert caught.value.sequence == index + 1


@given(st.lists(charges, min_size=1, max_size=6), st.data())
def test_a_rewritten_entry_breaks_the_chain_at_the_next(
    steps: list[tuple[str, object, str]], data: st.DataObject
) -> None:
    entries, _ = grow(steps)
    index = data.draw(st.integers(0, len(entries) - 2))
    before = replay(entries[:index])
    body = {**entries[index].body, "created": "2026-01-02T00:00:00+00:00"}
    rewritten = next_entry(before, entries[index].kind, body)
    with pytest.raises(LedgerIntegrityError) as caught:
        replay([*entries[:index], rewritten, *entries[index + 1 :]])
    assert caught.value.sequence == index + 2


@given(st.text(max_size=12))
def test_any_text_is_an_amount_or_a_ledger_error(text: str) -> None:
    try:
        number = exact(text)
    except LedgerError:
        return
    assert number == Decimal(text)
