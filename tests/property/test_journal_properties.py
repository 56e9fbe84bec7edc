"""Whatever the history: no overspending, exact sums, and every tamper is found."""

from __future__ import annotations

from dataclasses import fields, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from census_ledger import TERMS, apply
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from statpress.mechanisms.errors import InsufficientBudgetError, LedgerError, LedgerIntegrityError
from statpress.tasks.ledger.accounts import State
from statpress.tasks.ledger.chain import next_entry, replay, resume
from statpress.tasks.ledger.entries import MEASURES, Entry, canonical, exact

TIMES = {"created": "2026-01-01T00:00:00+00:00"}
LIMITS = {
    "a": {"policy": "basic", "epsilon": "1", "delta": "1e-8"},
    "b": {"policy": "basic", "epsilon": "0.3", "delta": "0"},
    "c": {"policy": "zcdp", "rho": "0.4", "rho_delta": "2e-9"},
}

amounts = st.one_of(
    st.decimals(min_value=0, max_value=2, allow_nan=False, places=3),
    st.floats(min_value=0, max_value=1.5),
    st.sampled_from(["0", "0.1", "1e-300", "1e-8", "0.30000000000000004", "1"]),
)
deltas = st.sampled_from(["0", "1e-9", "5e-9", "1e-8", "1e-300"])
losses = st.tuples(amounts, deltas, amounts, deltas)
endings = st.sampled_from(["", "draw", "publish", "publish", "void"])
charges = st.tuples(st.sampled_from(["a", "b", "c"]), losses, endings)
Step = tuple[str, tuple[object, ...], str]


def registration(dataset: str, limits: dict[str, str]) -> dict[str, Any]:
    return {"dataset": dataset, **limits, **TERMS, **TIMES}


def charge(dataset: str, run: str, *loss: object) -> dict[str, Any]:
    texts = [canonical(exact(amount)) for amount in loss]
    body = {"dataset": dataset, "run_id": run, **dict(zip(MEASURES, texts, strict=True))}
    described = {"mechanisms": [{"mechanism": "laplace", "scale": "2"}], "config_sha256": "a" * 64}
    return {**body, **described, "insecure_seed": False, "version": "0.1.0", **TERMS, **TIMES}


def act(dataset: str, run: str) -> dict[str, Any]:
    return {"dataset": dataset, "run_id": run, **TIMES}


def publication(dataset: str, run: str) -> dict[str, Any]:
    body = {"dataset": dataset, "run_id": run, "bundle": f"releases/{run}"}
    return {**body, "manifest_sha256": "b" * 64, **TIMES}


def grow(steps: list[Step]) -> tuple[list[Entry], State]:
    """Three accounts, then all charges that pass, each taken as far as the step says."""
    state, entries = State(), []

    def take(kind: str, body: dict[str, Any]) -> None:
        nonlocal state
        entries.append(next_entry(state, kind, body))
        state = apply(state, entries[-1])

    for dataset, limits in LIMITS.items():
        take("register", registration(dataset, limits))
    for number, (dataset, loss, ending) in enumerate(steps):
        run = f"run-{number}"
        try:
            take("charge", charge(dataset, run, *loss))
        except InsufficientBudgetError:
            continue
        if ending == "void":
            take("void", {**act(dataset, run), "reason": "late"})
        elif ending:
            take("draw", act(dataset, run))
        if ending == "publish":
            take("publish", publication(dataset, run))
    return entries, state


def total(entries: list[Entry], dataset: str, measure: str) -> Fraction:
    """The sum by another arithmetic than the ledger's."""
    void = {e.body["run_id"] for e in entries if e.kind == "void"}
    bodies = [e.body for e in entries if e.kind == "charge" and e.body["dataset"] == dataset]
    kept = [body for body in bodies if body["run_id"] not in void]
    return sum((Fraction(body[measure]) for body in kept), Fraction(0))


def limited(dataset: str) -> dict[str, Fraction]:
    """The limits of an account by measure."""
    return {m: Fraction(text) for m, text in LIMITS[dataset].items() if m != "policy"}


@given(amounts)
def test_the_text_of_an_amount_loses_nothing(amount: object) -> None:
    number = exact(amount)
    text = canonical(number)
    assert exact(text) == number
    assert canonical(exact(text)) == text
    if isinstance(amount, float):
        assert float(text) == amount


@given(st.lists(charges, max_size=12))
def test_no_history_overspends_and_its_sums_are_exact(steps: list[Step]) -> None:
    entries, state = grow(steps)
    assert replay(entries) == state
    for dataset in LIMITS:
        account = state.accounts[dataset]
        for measure in MEASURES:
            assert Fraction(account.spent[measure]) == total(entries, dataset, measure)
        for measure, limit in limited(dataset).items():
            spent = Fraction(account.spent[measure])
            assert spent <= limit
            assert spent + Fraction(account.remaining[measure]) == limit
        for entry in entries:
            if "spent" in entry.body and entry.body["dataset"] == dataset:
                so_far = entries[: entry.sequence]
                assert {m: Fraction(text) for m, text in entry.body["spent"].items()} == {
                    m: total(so_far, dataset, m) for m in MEASURES
                }


@given(st.lists(charges, max_size=8))
def test_a_refused_charge_would_have_overspent(steps: list[Step]) -> None:
    entries, state = grow(steps)
    for number, (dataset, loss, _) in enumerate(steps):
        if f"run-{number}" in state.charges:
            continue
        before = [e for e in entries if int(e.body.get("run_id", "run-0")[4:]) < number]
        wanted = dict(zip(MEASURES, (Fraction(exact(amount)) for amount in loss), strict=True))
        assert any(
            total(before, dataset, measure) + wanted[measure] > limit
            for measure, limit in limited(dataset).items()
        )


@given(st.lists(charges, min_size=1, max_size=8), charges)
def test_resumption_gives_the_next_entry_of_a_replay(steps: list[Step], last: Step) -> None:
    """Whatever came before, the few rows that are read lead to the same answer."""
    entries, state = grow(steps)
    dataset, loss, _ = last
    body = charge(dataset, "run-new", *loss)
    own = [e for e in entries if e.body.get("dataset") == dataset]
    moved = [e for kind in ("charge", "void") for e in [e for e in own if e.kind == kind][-1:]]
    wanted = {e.sequence: e for e in [own[0], *moved, entries[-1]]}
    rows = [wanted[sequence] for sequence in sorted(wanted)]
    partial = resume(rows, dataset=dataset, run_id="run-new")
    answers = []
    for known in (partial, state):
        try:
            answers.append(next_entry(known, "charge", body))
        except InsufficientBudgetError as error:
            answers.append((error.remaining, error.requested))
    assert answers[0] == answers[1]


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
    if isinstance(value, dict):
        return st.sampled_from(
            [{}, *({k: v for k, v in value.items() if k != key} for key in value)]
        ) | st.sampled_from([{**value, key: text} for key in value for text in ("0", "0.7", None)])
    if isinstance(value, list):
        return st.sampled_from([[], [*value, {}], [{**value[0], "scale": "3"}]])
    raise TypeError(type(value))


@settings(max_examples=4 * settings().max_examples)
@given(st.lists(charges, min_size=1, max_size=6), st.data())
def test_any_tamper_of_one_field_is_found_where_it_is(
    steps: list[Step], data: st.DataObject
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
def test_dropped_and_swapped_entries_are_found(steps: list[Step], data: st.DataObject) -> None:
    entries, _ = grow(steps)
    index = data.draw(st.integers(0, len(entries) - 2))
    swapped = [*entries[:index], entries[index + 1], entries[index], *entries[index + 2 :]]
    for broken in (entries[:index] + entries[index + 1 :], swapped):
        with pytest.raises(LedgerIntegrityError) as caught:
            replay(broken)
        assert caught.value.sequence == index + 1


@given(st.lists(charges, min_size=1, max_size=6), st.data())
def test_a_rewritten_entry_breaks_the_chain_at_the_next(
    steps: list[Step], data: st.DataObject
) -> None:
    entries, _ = grow(steps)
    index = data.draw(st.integers(0, len(entries) - 2))
    before = replay(entries[:index])
    body = {k: v for k, v in entries[index].body.items() if k != "spent"}
    body |= {"created": "2026-01-02T00:00:00+00:00"}
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
