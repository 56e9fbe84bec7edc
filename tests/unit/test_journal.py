"""The pure rules of the ledger: amounts, the form of entries, what may follow what."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from decimal import Decimal, Inexact
from typing import Any

import pytest

from mechanisms.errors import (
    AlreadyRegisteredError,
    AmountError,
    InsufficientBudgetError,
    LedgerError,
    LedgerIntegrityError,
    PolicyMismatchError,
    StatpressError,
    UnregisteredDatasetError,
)
from tasks.accounts import State
from tasks.amounts import Loss, canonical, exact
from tasks.entries import ZERO_HASH, Entry, canonical_json, entry_hash, parse_entry
from tasks.journal import (
    apply,
    check_charge,
    check_publish,
    check_recomputed,
    check_register,
    next_entry,
    repeated,
    replay,
)

TERMS = {"adjacency": "replace_one", "unit": "record", "unit_records": 1, "n_records": 1000}
NOW = "2026-01-01T00:00:00+00:00"


def registration(**changes: Any) -> dict[str, Any]:
    """The body of a registration of census with epsilon 1 and delta 1e-8."""
    body = {"dataset": "census", "policy": "basic", "epsilon": "1", "delta": "1e-8"}
    return {**body, **TERMS, "created": NOW, **changes}


def charge(**changes: Any) -> dict[str, Any]:
    """The body of a charge of epsilon 0.4 and delta 0."""
    body = {"dataset": "census", "run_id": "run-1", "epsilon": "0.4", "delta": "0"}
    body |= {"mechanisms": [{"mechanism": "laplace"}], "config_sha256": "a" * 64}
    body |= {"insecure_seed": False, "version": "0.1.0", "created": NOW}
    return {**body, **TERMS, **changes}


def publication(**changes: Any) -> dict[str, Any]:
    """The body of a publication of run-1."""
    body = {"dataset": "census", "run_id": "run-1", "bundle": "releases/one"}
    return {**body, "manifest_sha256": "b" * 64, "created": NOW, **changes}


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
        (Decimal("1e300"), "1e+300"),
        ("-0", "0"),
        (".5", "0.5"),
        ("0e999", "0"),
        ("0." + "1" * 400, "0." + "1" * 400),
        ("123456789012345678901", "123456789012345678901"),
    ],
)
def test_an_amount_has_one_exact_text(given: object, text: str) -> None:
    assert canonical(exact(given)) == text
    assert exact(text) == exact(given)


@pytest.mark.parametrize(
    "given",
    ["", "nan", "inf", "-1", "1_0", " 1", "１", "1e400", "1e-401", "1e9999999999999999999"]
    + [True, None, b"1", 1j, float("nan"), float("inf"), -0.1]
    + [Decimal("sNaN"), Decimal("-Infinity"), Decimal("1e99999"), "0." + "1" * 401, "9" * 401]
    + [pytest.param(10**5000, id="long int"), pytest.param("1" * 10**6, id="long text")],
)
def test_what_is_no_amount_is_refused_with_its_place(given: object) -> None:
    with pytest.raises(AmountError) as caught:
        exact(given, where="budget.epsilon")
    assert str(caught.value).startswith("budget.epsilon: ")
    assert len(str(caught.value)) < 300


def test_sums_keep_every_digit() -> None:
    large, small = Loss(exact("1e300"), exact("0")), Loss(exact("1e-300"), exact("0"))
    total = large + small
    assert total - large == small
    assert total.covers(large)
    assert not large.covers(total)


def test_a_sum_that_would_round_is_an_error() -> None:
    huge, tiny = Loss(Decimal("1e1500"), Decimal(0)), Loss(Decimal("1e-1500"), Decimal(0))
    with pytest.raises(Inexact):
        huge + tiny
    with pytest.raises(Inexact):
        huge - tiny


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
    ['{"a": 1}', '{"b":1,"a":1}', '{"a":1,"a":1}', '{"a":1.0}', "[]", "{", None]
    + [pytest.param("[" * 99_999, id="deep")],
)
def test_a_stored_body_has_one_form(text: str | None) -> None:
    with pytest.raises(LedgerIntegrityError) as caught:
        parse_entry(7, "charge", text, ZERO_HASH, ZERO_HASH)
    assert caught.value.sequence == 7
    assert parse_entry(7, "charge", '{"a":1}', ZERO_HASH, ZERO_HASH).body == {"a": 1}
    with pytest.raises(LedgerIntegrityError):
        parse_entry(7, "charge", '{"a":1}', None, ZERO_HASH)


def test_a_history_adds_up_in_epsilon_and_delta() -> None:
    state = replay(
        history(
            ("register", registration()),
            ("charge", charge(delta="3e-9")),
            ("charge", charge(run_id="run-2", epsilon="0.6", delta="7e-9")),
            ("publish", publication()),
        )
    )
    account = state.accounts["census"]
    assert account.limit == Loss(Decimal(1), Decimal("1e-8"))
    assert account.spent == account.limit
    assert account.remaining == Loss(Decimal(0), Decimal(0))
    assert [(run, c.published) for run, c in account.charges.items()] == [
        ("run-1", True),
        ("run-2", False),
    ]
    assert account.charges == state.charges
    assert state.next_sequence == 5


def test_apply_leaves_the_state_it_was_given_as_it_was(registered: State) -> None:
    before = registered.accounts["census"].spent
    after = apply(registered, next_entry(registered, "charge", charge()))
    assert registered.accounts["census"].spent == before
    assert registered.accounts["census"].charges == registered.charges == {}
    assert after.accounts["census"].spent == Loss(Decimal("0.4"), Decimal(0))


@pytest.mark.parametrize("amount", ["epsilon", "delta"])
def test_the_filter_refuses_the_last_digit_too_much_of_either(amount: str) -> None:
    limits, fits, above = {
        "epsilon": ("1", "1", "1." + "0" * 300 + "1"),
        "delta": ("1e-8", "1e-8", "1.00000001e-8"),
    }[amount]
    state = replay(history(("register", registration(**{amount: limits}))))
    check_charge(state, charge(**{amount: fits}))
    with pytest.raises(InsufficientBudgetError) as caught:
        check_charge(state, charge(**{amount: above}))
    assert caught.value.remaining == state.accounts["census"].remaining
    assert caught.value.requested == Loss.of(charge(**{amount: above}))
    assert above in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"dataset": "other"}, UnregisteredDatasetError),
        ({"adjacency": "add_remove"}, PolicyMismatchError),
        ({"unit": "person_id"}, PolicyMismatchError),
        ({"unit_records": 2}, PolicyMismatchError),
        ({"n_records": 999}, PolicyMismatchError),
        ({"unit_records": True}, AmountError),
        ({"delta": "1"}, AmountError),
        ({"epsilon": "0.40"}, AmountError),
        ({"epsilon": "-0.1"}, AmountError),
        ({"epsilon": 1}, AmountError),
        ({"insecure_seed": 0}, LedgerError),
        ({"config_sha256": "A" * 64}, LedgerError),
        ({"mechanisms": {}}, LedgerError),
        ({"run_id": ["run-1"]}, LedgerError),
        ({"surplus": "x"}, LedgerError),
    ],
)
def test_a_charge_is_refused(
    registered: State, changes: dict[str, Any], kind: type[StatpressError]
) -> None:
    check_charge(registered, charge())
    with pytest.raises(kind) as caught:
        check_charge(registered, charge(**changes))
    assert type(caught.value) is kind
    assert caught.value.where


def test_a_mismatch_says_what_differs(registered: State) -> None:
    with pytest.raises(PolicyMismatchError, match="unit_records 3 is not 1, n_records 9 is not"):
        check_charge(registered, charge(unit_records=3, n_records=9))


def test_a_second_registration_says_what_the_first_was(registered: State) -> None:
    with pytest.raises(AlreadyRegisteredError) as caught:
        check_register(registered, registration(epsilon="5"))
    for part in (NOW, "epsilon 1 ", "1e-8", "basic", "replace_one", "record", "1000"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"epsilon": "0"}, AmountError),
        ({"delta": "1"}, AmountError),
        ({"unit_records": 0}, AmountError),
        ({"n_records": -1}, AmountError),
        ({"n_records": 1.0}, AmountError),
        ({"policy": "free"}, LedgerError),
        ({"dataset": ""}, LedgerError),
        ({"dataset": "x" * 201}, LedgerError),
        ({"dataset": "a\nb"}, LedgerError),
    ],
)
def test_a_registration_is_refused(changes: dict[str, Any], kind: type[StatpressError]) -> None:
    check_register(State(), registration())
    check_register(State(), registration(dataset="x" * 200, delta="0"))
    with pytest.raises(kind) as caught:
        check_register(State(), registration(**changes))
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    "changes", [{"run_id": "run-9"}, {"dataset": "other"}, {"manifest_sha256": ""}, {"bundle": ""}]
)
def test_a_publication_needs_its_charge(registered: State, changes: dict[str, Any]) -> None:
    state = apply(registered, next_entry(registered, "charge", charge()))
    check_publish(state, publication())
    with pytest.raises(LedgerError):
        check_publish(state, publication(**changes))
    published = apply(state, next_entry(state, "publish", publication()))
    with pytest.raises(LedgerError, match="published already"):
        check_publish(published, publication())


def test_a_repetition_is_known_by_all_but_its_time(registered: State) -> None:
    assert repeated(registered, "charge", charge()) is None
    entry = next_entry(registered, "charge", charge())
    state = apply(registered, entry)
    assert repeated(state, "charge", charge(created="later")) == entry
    with pytest.raises(LedgerError, match="differs in epsilon, version"):
        repeated(state, "charge", charge(epsilon="0.3", version="0.2.0"))
    with pytest.raises(LedgerError, match="differs in mechanisms"):
        repeated(state, "charge", charge(mechanisms=[{"mechanism": True}]))
    assert repeated(state, "publish", publication()) is None
    published = next_entry(state, "publish", publication())
    state = apply(state, published)
    assert repeated(state, "publish", publication(created="later")) == published


def test_one_and_true_are_not_the_same_description(registered: State) -> None:
    state = apply(registered, next_entry(registered, "charge", charge(mechanisms=[{"a": 1}])))
    with pytest.raises(LedgerError, match="differs in mechanisms"):
        repeated(state, "charge", charge(mechanisms=[{"a": True}]))


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("register", registration(), "Registered at"),
        ("charge", charge(run_id="run-2", epsilon="0.7"), "remains"),
        ("charge", charge(dataset="other", run_id="run-2"), "no account"),
        ("charge", charge(), "charged already"),
        ("charge", charge(run_id="run-2", unit_records=2), "differs from the registration"),
        ("charge", {k: v for k, v in charge(run_id="run-2").items() if k != "delta"}, "delta"),
        ("publish", publication(run_id="run-2"), "no charge of this run"),
        ("publish", {}, "Fields missing"),
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


def test_the_first_entry_continues_the_zero_hash() -> None:
    (entry,) = history(("register", registration()))
    assert (entry.sequence, entry.previous) == (1, ZERO_HASH)
    hash_ = entry_hash(1, "register", entry.body, "f" * 64)
    with pytest.raises(LedgerIntegrityError, match="hash of the one before"):
        apply(State(), replace(entry, previous="f" * 64, hash=hash_))


@pytest.mark.parametrize(
    ("loss", "passes"),
    [
        (("0.4", "0"), True),
        ((0.3999999, 0.0), True),
        (("0.40000000000000000000001", "0"), False),
        (("0.1", "1e-300"), False),
        ((float("inf"), 0), False),
        (None, False),
    ],
)
def test_a_charge_covers_what_its_mechanisms_spend(loss: Any, passes: bool) -> None:
    entry = history(("register", registration()), ("charge", charge()))[1]
    if passes:
        check_recomputed(entry, lambda body: loss)
        return
    with pytest.raises(LedgerIntegrityError) as caught:
        check_recomputed(entry, lambda body: loss)
    assert caught.value.sequence == 2
