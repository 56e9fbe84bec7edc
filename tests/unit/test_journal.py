"""The chain of the ledger: the form of entries, replay, resumption, repetition."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from census_ledger import TERMS, apply

from statpress.mechanisms.errors import (
    AmountError,
    InsufficientBudgetError,
    LedgerError,
    LedgerIntegrityError,
    StatpressError,
)
from statpress.tasks.ledger.accounts import State
from statpress.tasks.ledger.chain import (
    check_recomputed,
    check_run,
    next_entry,
    repeated,
    replay,
    resume,
)
from statpress.tasks.ledger.entries import (
    MEASURES,
    ZERO_HASH,
    Entry,
    Loss,
    canonical_json,
    entry_hash,
    parse_entry,
)

NOW = "2026-01-01T00:00:00+00:00"
LIMITS = {
    "basic": {"epsilon": "1", "delta": "1e-8"},
    "zcdp": {"rho": "0.5", "rho_delta": "1e-8"},
}


def registration(**changes: Any) -> dict[str, Any]:
    """The body of a registration of census with epsilon 1 and delta 1e-8."""
    body = {"dataset": "census", "policy": "basic", **LIMITS["basic"]}
    return {**body, **TERMS, "created": NOW, **changes}


def charge(**changes: Any) -> dict[str, Any]:
    """The body of a charge of epsilon 0.4 and rho 0.08."""
    body = {"dataset": "census", "run_id": "run-1", "epsilon": "0.4", "delta": "0"}
    body |= {"rho": "0.08", "rho_delta": "0", "mechanisms": [{"mechanism": "laplace"}]}
    body |= {"config_sha256": "a" * 64, "insecure_seed": False, "version": "0.1.0"}
    return {**body, "created": NOW, **TERMS, **changes}


def act(**changes: Any) -> dict[str, Any]:
    """The body of a draw of run-1, and with more fields of a void or a publication."""
    return {"dataset": "census", "run_id": "run-1", "created": NOW, **changes}


def publication(**changes: Any) -> dict[str, Any]:
    """The body of a publication of run-1."""
    return act(bundle="releases/one", manifest_sha256="b" * 64, **changes)


def history(*steps: tuple[str, dict[str, Any]]) -> list[Entry]:
    """Entries of these kinds and bodies, each passed by its rule."""
    state, entries = State(), []
    for kind, body in steps:
        entries.append(next_entry(state, kind, body))
        state = apply(state, entries[-1])
    return entries


def unchecked(state: State, kind: str, body: dict[str, Any]) -> Entry:
    """An entry whose hashes hold, whatever it says."""
    hash_ = entry_hash(state.next_sequence, kind, body, state.head)
    return Entry(state.next_sequence, kind, body, state.head, hash_)


@pytest.fixture
def registered() -> State:
    """Census, registered."""
    return replay(history(("register", registration())))


# --- the form of entries ----------------------------------------------------------


def test_the_hash_is_that_of_the_canonical_json_of_all_four_fields() -> None:
    text = '[1,"k",{"a":[1,true,null],"b":"\\u00e9"},"' + ZERO_HASH + '"]'
    body = {"b": "é", "a": (1, True, None)}
    assert entry_hash(1, "k", body, ZERO_HASH) == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("value", "kind", "place"),
    [
        ({"a": [{"b": 0.5}]}, AmountError, "body.a[0].b"),
        ({"a": Decimal(1)}, LedgerError, "body.a"),
        ({"a": {1: "x"}}, LedgerError, "body.a"),
        ({"a": 2**63}, LedgerError, "body.a"),
    ],
)
def test_what_json_would_change_is_refused(
    value: object, kind: type[StatpressError], place: str
) -> None:
    with pytest.raises(kind) as caught:
        canonical_json(value)
    assert caught.value.where == place


@pytest.mark.parametrize(
    "text",
    ['{"a": 1}', '{"b":1,"a":1}', '{"a":1,"a":1}', '{"a":1.0}', '{"a":"é"}', "[]", "{", None]
    + ['{"a":NaN}', '{"a":1e999}', '{"a":9223372036854775808}', '{"a":01}', b'{"a":1}']
    + [pytest.param("[" * 99_999, id="deep"), pytest.param("9" * 9999, id="long int")],
)
def test_a_stored_body_has_one_form(text: Any) -> None:
    with pytest.raises(LedgerIntegrityError) as caught:
        parse_entry(7, "charge", text, ZERO_HASH, ZERO_HASH)
    assert caught.value.sequence == 7
    assert parse_entry(7, "charge", '{"a":1}', ZERO_HASH, ZERO_HASH).body == {"a": 1}
    with pytest.raises(LedgerIntegrityError):
        parse_entry(7, "charge", '{"a":1}', None, ZERO_HASH)


# --- replay -----------------------------------------------------------------------


def test_apply_leaves_the_state_it_was_given_as_it_was(registered: State) -> None:
    before = registered.accounts["census"].spent
    after = apply(registered, next_entry(registered, "charge", charge()))
    assert registered.accounts["census"].spent == before
    assert registered.accounts["census"].charges == registered.charges == {}
    assert after.accounts["census"].spent["epsilon"] == Decimal("0.4")


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("register", registration(), "Registered at"),
        ("amend-policy", {**act(), "policy": "free"}, "not known"),
        ("charge", charge(run_id="run-2", epsilon="0.7"), "remains"),
        ("charge", charge(dataset="other", run_id="run-2"), "no account"),
        ("charge", charge(), "charged already"),
        ("charge", charge(run_id="run-2", unit_records=2), "differs from the registration"),
        ("charge", charge(run_id="run-2"), "another balance than 0.8, 0, 0.16, 0"),
        ("charge", charge(run_id="run-2", spent={}), "another balance"),
        ("charge", charge(run_id="run-2", spent="0.8"), "another balance"),
        ("charge", {k: v for k, v in charge(run_id="run-2").items() if k != "delta"}, "delta"),
        ("charge", {k: v for k, v in charge(run_id="run-2").items() if k != "rho"}, "known: rho"),
        ("draw", act(run_id="run-2"), "no charge of this run"),
        ("draw", act(spent={}), "not known: spent"),
        ("void", act(reason="late"), "another balance than 0, 0, 0, 0"),
        ("publish", publication(), "never began to draw"),
        ("publish", publication(run_id="run-2"), "no charge of this run"),
        ("publish", {}, "Fields missing"),
        ("checkpoint", {"created": NOW}, "public_key, signature"),
        ("refund", charge(run_id="run-2"), "unknown kind 'refund'"),
    ],
)
def test_an_entry_with_good_hashes_still_has_to_keep_the_rules(
    kind: str, body: dict[str, Any], said: str
) -> None:
    state = replay(history(("register", registration()), ("charge", charge())))
    with pytest.raises(LedgerIntegrityError, match=said) as caught:
        apply(state, unchecked(state, kind, body))
    assert caught.value.sequence == 3
    assert caught.value.__context__ is None


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("stated", ["0", "0.80", "0.8000000001", "1e-300", 0, None])
def test_a_charge_with_good_hashes_states_the_true_balance(measure: str, stated: Any) -> None:
    state = replay(history(("register", registration()), ("charge", charge(delta="1e-9"))))
    entry = next_entry(state, "charge", charge(run_id="run-2", delta="1e-9", rho_delta="1e-9"))
    assert apply(state, entry).accounts["census"].spent.texts() == entry.body["spent"]
    body = {**entry.body, "spent": {**entry.body["spent"], measure: stated}}
    with pytest.raises(LedgerIntegrityError, match="another balance"):
        apply(state, unchecked(state, "charge", body))


def test_the_first_entry_continues_the_zero_hash() -> None:
    (entry,) = history(("register", registration()))
    assert (entry.sequence, entry.previous) == (1, ZERO_HASH)
    hash_ = entry_hash(1, "register", entry.body, "f" * 64)
    with pytest.raises(LedgerIntegrityError, match="hash of the one before"):
        apply(State(), replace(entry, previous="f" * 64, hash=hash_))


# --- resumption -------------------------------------------------------------------


def rows_for(entries: list[Entry], dataset: str | None, run: str | None, anchor: int) -> Any:
    """What the storage gives to ``resume``, written down anew."""
    moving = [e for e in entries if e.kind in {"charge", "void"} and e.body["dataset"] == dataset]
    terms = [e for e in entries if e.kind in {"register", "amend-policy"}]
    wanted = [e for e in terms if e.body["dataset"] == dataset] + moving[-1:] + entries[-1:]
    wanted += [e for e in entries if run is not None and e.body.get("run_id") == run]
    wanted += [e for e in entries if e.sequence == anchor]
    return sorted({e.sequence: e for e in wanted}.values(), key=lambda e: e.sequence)


def without_its_balance(rows: list[Entry]) -> list[Entry]:
    """The rows, the last one with another body whose hash holds."""
    body = {name: value for name, value in rows[-1].body.items() if name != "spent"}
    hash_ = entry_hash(rows[-1].sequence, rows[-1].kind, body, rows[-1].previous)
    return [*rows[:-1], replace(rows[-1], body=body, hash=hash_)]


def resumed(entries: list[Entry], body: dict[str, Any], anchor: int = 0) -> State:
    dataset, run = body.get("dataset"), body.get("run_id")
    rows = rows_for(entries, dataset, run, anchor)
    return resume(rows, dataset=dataset, run_id=run)


def test_resumption_knows_the_balance_without_the_charges_before() -> None:
    steps = [("charge", charge(run_id=f"run-{n}", epsilon="0.1", rho="0.01")) for n in range(9)]
    entries = history(("register", registration()), *steps, ("draw", act(run_id="run-2")))
    partial = resumed(entries, charge(run_id="run-9"))
    assert partial.accounts["census"].spent == replay(entries).accounts["census"].spent
    assert partial.charges == {}
    assert len(rows_for(entries, "census", "run-9", 0)) == 3


@pytest.mark.parametrize(
    "break_it",
    [
        lambda rows: [replace(rows[0], hash="f" * 64), *rows[1:]],
        lambda rows: [*rows[:-1], replace(rows[-1], body={**rows[-1].body, "epsilon": "0.3"})],
        lambda rows: [*rows[:-1], replace(rows[-1], kind="refund")],
        lambda rows: rows[1:],
        without_its_balance,
    ],
)
def test_resumption_refuses_rows_that_do_not_hold(break_it: Callable[[Any], Any]) -> None:
    entries = history(("register", registration()), ("charge", charge()))
    with pytest.raises(LedgerIntegrityError) as caught:
        resume(break_it(entries), dataset="census", run_id="run-2")
    assert caught.value.sequence in {1, 2}


@pytest.mark.parametrize(
    ("policy", "losses"),
    [
        # The sum has 401 digits before the point; the policy does not limit it.
        ("zcdp", {"epsilon": "9" * 400, "rho": "0.1"}),
        ("basic", {"epsilon": "0.1", "rho": "9" * 400}),
        ("basic", {"epsilon": "0.1", "rho": "9e-400"}),
    ],
)
def test_a_balance_of_any_length_can_be_resumed_from(policy: str, losses: dict[str, str]) -> None:
    body = {k: v for k, v in registration().items() if k not in LIMITS["basic"]}
    runs = [("charge", charge(run_id=f"run-{n}", **losses)) for n in range(2)]
    entries = history(("register", {**body, "policy": policy, **LIMITS[policy]}), *runs)
    partial = resumed(entries, charge(run_id="run-9"))
    assert partial.accounts["census"].spent == replay(entries).accounts["census"].spent


# --- repetition -------------------------------------------------------------------


def test_a_repetition_is_known_by_all_but_its_time(registered: State) -> None:
    assert repeated(registered, "charge", charge()) is None
    entry = next_entry(registered, "charge", charge())
    state = apply(registered, entry)
    assert repeated(state, "charge", charge(created="later")) == entry
    with pytest.raises(LedgerError, match="differs in epsilon, rho, version"):
        repeated(state, "charge", charge(epsilon="0.3", rho="0.1", version="0.2.0"))
    with pytest.raises(LedgerError, match="differs in mechanisms"):
        repeated(state, "charge", charge(mechanisms=[{"mechanism": True}]))
    with pytest.raises(LedgerError, match="differs in dataset"):
        repeated(state, "charge", charge(dataset="other"))
    assert repeated(state, "draw", act()) is None
    state = apply(state, next_entry(state, "draw", act()))
    assert repeated(state, "draw", act()) is None  # a draw is never repeated
    assert repeated(state, "publish", publication()) is None
    published = next_entry(state, "publish", publication())
    state = apply(state, published)
    assert repeated(state, "publish", {**publication(), "created": "later"}) == published
    assert repeated(state, "charge", charge()) == entry


def test_a_void_may_be_repeated_and_ends_the_repetition_of_its_charge(registered: State) -> None:
    state = apply(registered, next_entry(registered, "charge", charge()))
    void = next_entry(state, "void", act(reason="late"))
    state = apply(state, void)
    assert repeated(state, "void", act(reason="late", created="later")) == void
    with pytest.raises(LedgerError, match="differs in reason"):
        repeated(state, "void", act(reason="another"))
    with pytest.raises(LedgerError, match="is void"):
        repeated(state, "charge", charge())


def test_one_and_true_are_not_the_same_description(registered: State) -> None:
    state = apply(registered, next_entry(registered, "charge", charge(mechanisms=[{"a": 1}])))
    with pytest.raises(LedgerError, match="differs in mechanisms"):
        repeated(state, "charge", charge(mechanisms=[{"a": True}]))


def test_a_run_may_go_on_until_it_may_have_drawn(registered: State) -> None:
    check_run(registered, charge())
    with pytest.raises(InsufficientBudgetError):
        check_run(registered, charge(epsilon="1.1"))
    charged = apply(registered, next_entry(registered, "charge", charge()))
    check_run(charged, charge(created="later"))
    with pytest.raises(LedgerError, match="differs in epsilon"):
        check_run(charged, charge(epsilon="0.3"))
    drawn = apply(charged, next_entry(charged, "draw", act()))
    void = apply(charged, next_entry(charged, "void", act(reason="late")))
    for state, said in ((drawn, "may have drawn"), (void, "is void")):
        with pytest.raises(LedgerError, match=said):
            check_run(state, charge())


# --- recomputation ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("losses", "passes"),
    [
        (("0.4", "0", "0.08", "0"), True),
        ((0.3999999, 0.0, 0.05, 0), True),
        (("0.40000000000000000000001", "0", "0", "0"), False),
        (("0.1", "1e-300", "0", "0"), False),
        (("0.1", "0", "0.08000000000000000000001", "0"), False),
        (("0.1", "0", "0", "1e-300"), False),
        ((float("inf"), 0, 0, 0), False),
        (("0.1", "0", "0"), False),
        (None, False),
    ],
)
def test_a_charge_covers_what_its_mechanisms_spend(losses: Any, passes: bool) -> None:
    entry = history(("register", registration()), ("charge", charge()))[1]

    def recompute(body: dict[str, Any]) -> Loss:
        assert body == entry.body
        return Loss.of(dict(zip(MEASURES, losses, strict=True)))

    if passes:
        check_recomputed(entry, recompute)
        return
    with pytest.raises(LedgerIntegrityError) as caught:
        check_recomputed(entry, recompute)
    assert caught.value.sequence == 2
