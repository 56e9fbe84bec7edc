"""What each kind of entry may say after the ones before it, and what it changes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from census_ledger import TERMS, apply

from statpress.mechanisms.errors import (
    AlreadyRegisteredError,
    AmountError,
    InsufficientBudgetError,
    LedgerError,
    PolicyMismatchError,
    StatpressError,
    UnregisteredDatasetError,
)
from statpress.tasks.ledger.accounts import State, Status
from statpress.tasks.ledger.chain import next_entry
from statpress.tasks.ledger.entries import Loss
from statpress.tasks.ledger.rules import RULES

NOW = "2026-01-01T00:00:00+00:00"
BASIC = {"policy": "basic", "epsilon": "1", "delta": "1e-8"}
ZCDP = {"policy": "zcdp", "rho": "1", "rho_delta": "1e-8"}
RUN = {"dataset": "census", "run_id": "run-1", "created": NOW}
LOSS = {"epsilon": "0.4", "delta": "0", "rho": "0.08", "rho_delta": "0"}
DESCRIBED = {
    "mechanisms": [{"mechanism": "laplace"}],
    "config_sha256": "a" * 64,
    "insecure_seed": False,
    "version": "0.1.0",
}
BODIES: dict[str, dict[str, Any]] = {
    "register": {"dataset": "census", "created": NOW, **BASIC, **TERMS},
    "amend-policy": {"dataset": "census", "created": NOW, "reason": None, **BASIC},
    "charge": RUN | TERMS | LOSS | DESCRIBED,
    "draw": RUN,
    "void": {**RUN, "reason": "the source was late"},
    "publish": {**RUN, "bundle": "releases/one", "manifest_sha256": "b" * 64},
}
REVIEW = {"set-approvers", "prepare", "decide"}  # tested in test_review_rules.py


def step(state: State, kind: str, **changes: Any) -> State:
    """The state after one more entry, passed by its rule and again by the replay."""
    return apply(state, next_entry(state, kind, {**BODIES[kind], **changes}))


def steps(*kinds: str) -> State:
    """The state after entries of these kinds."""
    state = State()
    for kind in kinds:
        state = step(state, kind)
    return state


def refusal(state: State, kind: str, **changes: Any) -> StatpressError | None:
    """Why an entry may not follow, or None."""
    try:
        next_entry(state, kind, {**BODIES[kind], **changes})
    except StatpressError as error:
        return error
    return None


def with_spent(limits: dict[str, str], **losses: str) -> State:
    """Census under these limits, with one charge of these losses."""
    body = {k: v for k, v in BODIES["register"].items() if k not in BASIC} | limits
    state = apply(State(), next_entry(State(), "register", body))
    nothing = {"epsilon": "0", "delta": "0", "rho": "0", "rho_delta": "0"}
    return step(state, "charge", **{**nothing, **losses}) if losses else state


def amendment(state: State, limits: dict[str, str], reason: str | None) -> StatpressError | None:
    """Why an amendment to these limits may not follow, or None."""
    body = {"dataset": "census", "created": NOW, "reason": reason, **limits}
    try:
        next_entry(state, "amend-policy", body)
    except StatpressError as error:
        return error
    return None


# --- registration ---------------------------------------------------------------


def test_a_second_registration_says_what_is_in_force() -> None:
    state = step(steps("register"), "amend-policy", epsilon="0.7")
    error = refusal(state, "register", epsilon="5")
    assert type(error) is AlreadyRegisteredError
    for part in (NOW, "epsilon 0.7 ", "1e-8", "basic", "replace_one", "record", "1000"):
        assert part in str(error)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"epsilon": "0"}, AmountError),
        ({"delta": "1"}, AmountError),
        ({"unit_records": 0}, AmountError),
        ({"n_records": -1}, AmountError),
        ({"n_records": 1.0}, AmountError),
        ({"n_records": 2**63}, AmountError),
        ({"policy": "free"}, LedgerError),
        ({"policy": None}, LedgerError),
        ({"policy": "zcdp"}, LedgerError),
        ({"rho": "1", "rho_delta": "0"}, LedgerError),
        ({"dataset": ""}, LedgerError),
        ({"dataset": "x" * 201}, LedgerError),
        ({"dataset": "a\nb"}, LedgerError),
        ({"spent": {}}, LedgerError),
    ],
)
def test_a_registration_is_refused(changes: dict[str, Any], kind: type[StatpressError]) -> None:
    RULES["register"].check(State(), BODIES["register"])
    RULES["register"].check(State(), {**BODIES["register"], "dataset": "x" * 200, "delta": "0"})
    error = refusal(State(), "register", **changes)
    assert type(error) is kind
    assert error.where


def test_a_rho_of_nothing_is_no_limit() -> None:
    body = {k: v for k, v in BODIES["register"].items() if k not in BASIC}
    RULES["register"].check(State(), {**body, **ZCDP, "rho_delta": "0"})
    for changes in ({"rho": "0"}, {"rho_delta": "1"}, {"rho": "01"}):
        with pytest.raises(AmountError):
            RULES["register"].check(State(), {**body, **ZCDP, **changes})


# --- amendments -----------------------------------------------------------------


@pytest.mark.parametrize("policy", [BASIC, ZCDP])
@pytest.mark.parametrize("part", [0, 1])
def test_raising_a_limit_needs_a_reason_and_lowering_it_does_not(
    policy: dict[str, str], part: int
) -> None:
    state = with_spent(policy)
    name = list(policy)[1 + part]
    other = list(policy)[2 - part]
    more, less = {**policy, name: "0.99"}, {**policy, name: "1e-300"}
    if part == 0:
        more[name] = "1." + "0" * 300 + "1"
    error = amendment(state, more, None)
    assert "needs a reason" in str(error)
    assert amendment(state, more, "agreed on 3 May") is None
    assert amendment(state, less, None) is None
    # More of one and less of the other is more.
    assert "needs a reason" in str(amendment(state, {**more, other: "1e-300"}, None))


def test_an_amendment_has_to_change_something() -> None:
    assert "in force" in str(amendment(with_spent(BASIC), BASIC, "why not"))
    lowered = step(with_spent(BASIC), "amend-policy", epsilon="0.5")
    assert amendment(lowered, BASIC, "back again") is None
    assert "needs a reason" in str(amendment(lowered, BASIC, None))


@pytest.mark.parametrize("reason", ["given", None])
def test_no_limit_goes_below_what_is_spent(reason: str | None) -> None:
    state = with_spent(BASIC, epsilon="0.4", delta="5e-9", rho="0.08")
    assert amendment(state, {**BASIC, "epsilon": "0.4", "delta": "5e-9"}, reason) is None
    for low in ({"epsilon": "0.3" + "9" * 300}, {"delta": "4.9999999e-9"}, {"epsilon": "0"}):
        error = amendment(state, {**BASIC, **low}, reason)
        assert "epsilon 0.4 and delta 5e-9 already" in str(error)
    assert amendment(with_spent(BASIC), {**BASIC, "epsilon": "0"}, None) is None


@pytest.mark.parametrize("reason", ["", "x" * 1001, "two\nlines", 1, True])
def test_a_reason_is_one_line_of_text(reason: Any) -> None:
    error = amendment(with_spent(BASIC), {**BASIC, "epsilon": "2"}, reason)
    assert error is not None
    assert error.where == "reason"


def test_another_policy_needs_a_reason_and_counts_all_that_was_spent() -> None:
    spent = {"epsilon": "0.4", "delta": "5e-9", "rho": "0.05", "rho_delta": "2e-9"}
    state = with_spent(BASIC, **spent)
    assert "needs a reason" in str(amendment(state, {**ZCDP, "rho": "0.05"}, None))
    assert amendment(state, {**ZCDP, "rho": "0.05", "rho_delta": "2e-9"}, "zcdp") is None
    for low in ({"rho": "0.0499"}, {"rho_delta": "1.9e-9"}):
        error = amendment(state, {**ZCDP, **low}, "zcdp")
        assert "rho 0.05 and delta 2e-9 already" in str(error)
    moved = step_to(state, {**ZCDP, "rho": "0.06", "rho_delta": "2e-9"})
    account = moved.accounts["census"]
    assert (account.policy, account.remaining.texts()) == (
        "zcdp",
        {"rho": "0.01", "rho_delta": "0"},
    )
    # Now epsilon is free, but still counted for the way back.
    after = step(moved, "charge", run_id="run-2", epsilon="50", delta="0.5", rho="0.01")
    assert "epsilon 50.4 and delta 0.500000005" in str(amendment(after, BASIC, "back"))
    back = step_to(after, {**BASIC, "epsilon": "50.4", "delta": "0.500000005"})
    assert back.accounts["census"].remaining.texts() == {"epsilon": "0", "delta": "0"}
    assert [e.body["policy"] for e in back.accounts["census"].amendments] == ["zcdp", "basic"]


def step_to(state: State, limits: dict[str, str]) -> State:
    """The state with these limits in force, for a reason."""
    body = {"dataset": "census", "created": NOW, "reason": "agreed", **limits}
    return apply(state, next_entry(state, "amend-policy", body))


def test_only_an_account_is_amended() -> None:
    assert type(amendment(State(), BASIC, "new")) is UnregisteredDatasetError
    for changes in ({"policy": "free"}, {"rho": "1"}, {"delta": "1"}, {"epsilon": "1.0"}):
        assert amendment(with_spent(BASIC), {**BASIC, "epsilon": "2", **changes}, "x") is not None


# --- charges --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "measure", "fits", "above"),
    [
        (BASIC, "epsilon", "1", "1." + "0" * 300 + "1"),
        (BASIC, "delta", "1e-8", "1.00000001e-8"),
        (ZCDP, "rho", "1", "1." + "0" * 300 + "1"),
        (ZCDP, "rho_delta", "1e-8", "1." + "0" * 300 + "1e-8"),
    ],
)
def test_the_filter_refuses_the_last_digit_too_much(
    limits: dict[str, str], measure: str, fits: str, above: str
) -> None:
    state = with_spent(limits)
    RULES["charge"].check(state, {**BODIES["charge"], measure: fits})
    with pytest.raises(InsufficientBudgetError) as caught:
        RULES["charge"].check(state, {**BODIES["charge"], measure: above})
    error = caught.value
    assert error.remaining == state.accounts["census"].remaining
    assert isinstance(error.requested, Loss)
    assert error.requested.texts()[measure] == above
    assert above in str(error)
    full = step(state, "charge", **{measure: fits})
    assert type(refusal(full, "charge", run_id="r", **{measure: "1e-400"})) is (
        InsufficientBudgetError
    )
    assert refusal(full, "charge", run_id="r", epsilon="0", rho="0") is None


def test_a_policy_lets_what_it_does_not_limit_pass() -> None:
    assert refusal(with_spent(BASIC), "charge", rho="1e+300", rho_delta="0.9") is None
    assert refusal(with_spent(ZCDP), "charge", epsilon="1e+300", delta="0.9") is None


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
        ({"rho_delta": "1"}, AmountError),
        ({"epsilon": "0.40"}, AmountError),
        ({"rho": "0.080"}, AmountError),
        ({"rho": "-0.1"}, AmountError),
        ({"rho": None}, AmountError),
        ({"epsilon": "-0.1"}, AmountError),
        ({"epsilon": 1}, AmountError),
        ({"insecure_seed": 0}, LedgerError),
        ({"config_sha256": "A" * 64}, LedgerError),
        ({"mechanisms": {}}, LedgerError),
        ({"run_id": ["run-1"]}, LedgerError),
        ({"surplus": "x"}, LedgerError),
    ],
)
def test_a_charge_is_refused(changes: dict[str, Any], kind: type[StatpressError]) -> None:
    state = steps("register")
    assert refusal(state, "charge") is None
    error = refusal(state, "charge", **changes)
    assert type(error) is kind
    assert error.where
    assert error.next_step


def test_a_charge_states_every_measure() -> None:
    for name in ("rho", "rho_delta", "epsilon", "delta"):
        body = {k: v for k, v in BODIES["charge"].items() if k != name}
        with pytest.raises(LedgerError, match=name):
            next_entry(steps("register"), "charge", body)


def test_a_mismatch_says_what_differs() -> None:
    error = refusal(steps("register"), "charge", unit_records=3, n_records=9)
    assert "unit_records 3 is not 1, n_records 9 is not" in str(error)


# --- draw, void and publish -----------------------------------------------------

FOLLOWS = {
    Status.RESERVED: {"draw", "void"},
    Status.DRAWN: {"publish"},
    Status.PUBLISHED: set(),
    Status.VOID: set(),
}
WAYS = {  # without a review
    Status.RESERVED: ("register", "charge"),
    Status.DRAWN: ("register", "charge", "draw"),
    Status.PUBLISHED: ("register", "charge", "draw", "publish"),
    Status.VOID: ("register", "charge", "void"),
}


@pytest.mark.parametrize("status", list(WAYS))
@pytest.mark.parametrize("kind", ["charge", "draw", "void", "publish"])
def test_what_may_follow_for_a_run(status: Status, kind: str) -> None:
    state = steps(*WAYS[status])
    assert state.charges["run-1"].status is status
    error = refusal(state, kind)
    assert error is None or error.next_step
    assert (error is None) == (kind in FOLLOWS[status])
    if error:
        assert type(error) is LedgerError
        assert error.where == "run 'run-1'"


def test_every_order_of_acts_ends_where_the_table_says() -> None:
    """All sequences of four acts on one run, by a table of one line per state."""
    table = {
        ("none", "charge"): "reserved",
        ("reserved", "draw"): "drawn",
        ("reserved", "void"): "void",
        ("drawn", "publish"): "published",
    }
    for acts in itertools.product(["charge", "draw", "void", "publish"], repeat=4):
        state, expected = steps("register"), "none"
        for act in acts:
            allowed = (expected, act) in table
            assert (refusal(state, act) is None) == allowed, acts
            if allowed:
                state, expected = step(state, act), table[expected, act]
        charge = state.charges.get("run-1")
        assert (charge.status.value if charge else "none") == expected


@pytest.mark.parametrize("kind", ["draw", "void", "publish"])
def test_an_act_names_its_run_and_dataset(kind: str) -> None:
    state = steps(*WAYS[Status.DRAWN if kind == "publish" else Status.RESERVED])
    state = step(state, "register", dataset="other")
    assert refusal(state, kind) is None
    assert "no charge of this run" in str(refusal(state, kind, run_id="run-9"))
    for dataset in ("other", "nowhere"):
        assert "another dataset" in str(refusal(state, kind, dataset=dataset))
    assert refusal(state, kind, surplus="x") is not None


def test_a_void_needs_its_reason() -> None:
    state = steps("register", "charge")
    assert "--reason" in str(refusal(state, "void", reason=None))
    assert refusal(state, "void", reason="") is not None


@pytest.mark.parametrize("changes", [{"manifest_sha256": ""}, {"bundle": ""}, {"bundle": None}])
def test_a_publication_says_what_and_where(changes: dict[str, Any]) -> None:
    assert refusal(steps("register", "charge", "draw"), "publish", **changes) is not None


def test_every_kind_has_its_rule() -> None:
    assert set(RULES) == {
        *BODIES,
        *REVIEW,
        "refuse",
        "reopen",
        "bind",
        "look",
        "settle",
        "checkpoint",
    }
    moving = {kind for kind, rule in RULES.items() if rule.balance}
    assert moving == {"charge", "void"}
