"""Who approves, what waits for it, what was decided: the rules, and what a signature covers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from census_ledger import TERMS, apply
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from statpress.mechanisms.errors import (
    ApprovalError,
    LedgerError,
    LedgerIntegrityError,
    StatpressError,
    UnregisteredDatasetError,
)
from statpress.tasks.ledger import account_rules
from statpress.tasks.ledger.accounts import State, Status
from statpress.tasks.ledger.chain import next_entry, resume
from statpress.tasks.ledger.entries import (
    Entry,
    checkpoint_statement,
    entry_hash,
    public_text,
    sign_statement,
)
from statpress.tasks.ledger.rules import check_decision, decision_statement

NOW = "2026-01-01T00:00:00+00:00"
FIRST, SECOND, THIEF = (Ed25519PrivateKey.from_private_bytes(c * 32) for c in (b"1", b"2", b"3"))
RUN = {"dataset": "census", "run_id": "run-1", "created": NOW}
SEAL = {"bundle": "releases/one", "manifest_sha256": "b" * 64}
REGISTER = {"dataset": "census", "created": NOW, "policy": "basic", "epsilon": "1", "delta": "0"}
CHARGE = {"epsilon": "0.1", "delta": "0", "rho": "0.005", "rho_delta": "0", "mechanisms": []}
CHARGE |= {"config_sha256": "a" * 64, "insecure_seed": False, "version": "1"}


class Journal:
    """Entries in order, each passed by its rule and again by the replay."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.state = State()
        self.add("register", REGISTER | TERMS)

    def add(self, kind: str, body: dict[str, Any]) -> Entry:
        entry = next_entry(self.state, kind, body)
        self.state = apply(self.state, entry)
        self.entries.append(entry)
        return entry

    def refusal(self, kind: str, body: dict[str, Any]) -> StatpressError | None:
        try:
            next_entry(self.state, kind, body)
        except StatpressError as error:
            return error
        return None

    def approvers(
        self, *keys: Any, by: Any = None, unsigned: bool = False, reason: str | None = "agreed"
    ) -> dict[str, Any]:
        """The body that puts these keys in force."""
        names = sorted(public_text(key) for key in keys)
        body = {"dataset": "census", "created": NOW, "approvers": names}
        body |= {"unsigned": unsigned, "reason": reason}
        if by is None:
            return body
        statement = account_rules.approvers_statement(self.state.accounts["census"], body)
        return body | {"public_key": public_text(by), "signature": sign_statement(by, statement)}

    def decision(self, key: Any = FIRST, **changes: Any) -> dict[str, Any]:
        """The body of a decision about the run, signed after the changes."""
        charge = self.state.charges["run-1"].entry.hash
        body = RUN | {"charge": charge, "manifest_sha256": "b" * 64}
        body |= {"decision": "approve", "reason": None} | changes
        if key is None:
            return body
        signature = sign_statement(key, decision_statement(body))
        return body | {"public_key": public_text(key), "signature": signature}

    def act(self, name: str) -> tuple[str, dict[str, Any]]:
        """Kind and body of an act on the run."""
        if name in ("approve", "reject"):
            if "run-1" not in self.state.charges:
                return "decide", RUN
            return "decide", self.decision(decision=name, reason="because")
        bodies = {"charge": RUN | TERMS | CHARGE, "draw": RUN, "void": RUN | {"reason": "late"}}
        return name, bodies.get(name, RUN | SEAL)


@pytest.fixture
def journal() -> Journal:
    """An account with two approvers."""
    made = Journal()
    made.add("set-approvers", made.approvers(FIRST, SECOND, reason=None))
    return made


@pytest.fixture
def prepared(journal: Journal) -> Journal:
    """A run whose bundle waits."""
    for name in ("charge", "draw", "prepare"):
        journal.add(*journal.act(name))
    return journal


def test_every_order_of_acts_under_review_ends_where_the_table_says() -> None:
    """All sequences of five acts on one run, by a table of one line per state."""
    table = {
        ("none", "charge"): "reserved",
        ("reserved", "draw"): "drawn",
        ("reserved", "void"): "void",
        ("drawn", "prepare"): "prepared",
        ("prepared", "approve"): "approved",
        ("prepared", "reject"): "rejected",
        ("approved", "publish"): "published",
    }
    acts = ("charge", "draw", "void", "prepare", "approve", "reject", "publish")
    start = Journal()
    start.add("set-approvers", start.approvers(FIRST))
    seen: dict[tuple[str, ...], tuple[State, str]] = {(): (start.state, "none")}
    for length in range(1, 6):
        for way in itertools.product(acts, repeat=length):
            if way[:-1] not in seen:
                continue  # it was refused before
            journal, (state, status) = Journal(), seen[way[:-1]]
            journal.state = state
            kind, body = journal.act(way[-1])
            error = journal.refusal(kind, body)
            assert (error is None) == ((status, way[-1]) in table), way
            if error is None:
                journal.add(kind, body)
                after = table[status, way[-1]]
                assert journal.state.charges["run-1"].status == after
                seen[way] = journal.state, after
            else:
                assert error.next_step
    assert {status for _, status in seen.values()} == {"none", *table.values()}


def test_what_is_published_is_what_was_approved(prepared: Journal) -> None:
    prepared.add(*prepared.act("approve"))
    changed = RUN | SEAL | {"manifest_sha256": "c" * 64}
    assert "another seal" in str(prepared.refusal("publish", changed))
    prepared.add("publish", RUN | SEAL | {"bundle": "releases/one-run-1"})
    assert prepared.state.charges["run-1"].status is Status.PUBLISHED


# --- decisions --------------------------------------------------------------------

FIELDS = ("dataset", "run_id", "charge", "manifest_sha256", "decision", "reason", "created")


@pytest.mark.parametrize("field", FIELDS)
def test_a_signature_covers_every_word_of_a_decision(prepared: Journal, field: str) -> None:
    body = prepared.decision(reason="sound")
    check_decision(body)
    other = {"decision": "reject", "charge": "d" * 64, "manifest_sha256": "d" * 64}
    with pytest.raises(ApprovalError, match="signature"):
        check_decision(body | {field: other.get(field, "another")})


@pytest.mark.parametrize(
    "changes",
    [
        {"manifest_sha256": "c" * 64},
        {"charge": "c" * 64},
    ],
)
def test_a_decision_is_about_this_bundle(prepared: Journal, changes: dict[str, Any]) -> None:
    error = prepared.refusal("decide", prepared.decision(**changes))
    assert type(error) is ApprovalError and "another charge or seal" in str(error)


def test_a_decision_is_by_an_approver_in_force(prepared: Journal) -> None:
    assert type(prepared.refusal("decide", prepared.decision(THIEF))) is ApprovalError
    stolen = prepared.decision(THIEF) | {"public_key": public_text(FIRST)}
    assert "signature" in str(prepared.refusal("decide", stolen))
    # A checkpoint's signature, or one over a change of approvers, is none over a decision.
    account = prepared.state.accounts["census"]
    for other in (
        sign_statement(FIRST, checkpoint_statement(1, "b" * 64)),
        sign_statement(
            FIRST, account_rules.approvers_statement(account, prepared.approvers(FIRST))
        ),
    ):
        body = prepared.decision() | {"signature": other}
        assert "signature" in str(prepared.refusal("decide", body))
    prepared.add("set-approvers", prepared.approvers(SECOND, by=FIRST))
    assert type(prepared.refusal("decide", prepared.decision(FIRST))) is ApprovalError
    prepared.add("decide", prepared.decision(SECOND))


@pytest.mark.parametrize(
    "changes",
    [
        {"decision": "maybe"},
        {"decision": True},
        {"decision": ["approve"]},
        {"reason": ""},
        {"reason": "two\nlines"},
        {"charge": None},
        {"surplus": "x"},
        {"by": "me"},
        {"signature": "0" * 127},
        {"public_key": None},
    ],
)
def test_a_decision_is_whole(prepared: Journal, changes: dict[str, Any]) -> None:
    error = prepared.refusal("decide", prepared.decision() | changes)
    assert isinstance(error, StatpressError) and error.next_step


def test_a_rejection_has_a_reason(prepared: Journal) -> None:
    error = prepared.refusal("decide", prepared.decision(decision="reject"))
    assert "needs its reason" in str(error)
    prepared.add("decide", prepared.decision(decision="reject", reason="too fine"))


def test_unsigned_decisions_count_where_the_account_says_so(prepared: Journal) -> None:
    body = prepared.decision(None, by="A. Officer")
    assert "signature only" in str(prepared.refusal("decide", body))
    prepared.add("set-approvers", prepared.approvers(FIRST, by=FIRST, unsigned=True))
    prepared.add("decide", body)
    assert "by" in prepared.entries[-1].body


# --- who approves -----------------------------------------------------------------


def test_only_an_approver_changes_who_approves(journal: Journal) -> None:
    for body in (
        journal.approvers(THIEF),
        journal.approvers(THIEF, by=THIEF),
        journal.approvers(unsigned=True),
        journal.approvers(),
        journal.approvers(THIEF, by=FIRST) | {"unsigned": True},
        journal.approvers(FIRST, by=FIRST) | {"approvers": [public_text(THIEF)]},
        journal.approvers(FIRST, by=FIRST) | {"reason": "another"},
    ):
        assert type(journal.refusal("set-approvers", body)) is ApprovalError
    journal.add("set-approvers", journal.approvers(THIEF, by=SECOND))
    assert journal.state.accounts["census"].approvers == (public_text(THIEF),)


def test_a_signed_change_holds_once(journal: Journal) -> None:
    """What put a set in force cannot put it back after it was changed."""
    old = journal.approvers(FIRST, by=FIRST)
    journal.add("set-approvers", old)
    journal.add("set-approvers", journal.approvers(FIRST, SECOND, by=FIRST))
    assert "signature" in str(journal.refusal("set-approvers", old))


def test_a_statement_without_the_entry_before_could_be_used_again(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken twin of the test above."""
    honest = account_rules.approvers_statement
    monkeypatch.setattr(
        account_rules, "approvers_statement", lambda account, body: honest(account, body)[:-1]
    )
    old = journal.approvers(FIRST, by=FIRST)
    journal.add("set-approvers", old)
    journal.add("set-approvers", journal.approvers(FIRST, SECOND, by=FIRST))
    assert journal.refusal("set-approvers", old) is None


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"dataset": "nowhere"}, UnregisteredDatasetError),
        ({"approvers": "x"}, LedgerError),
        ({"approvers": ["x"]}, LedgerError),
        ({"approvers": ["b" * 64, "a" * 64]}, LedgerError),
        ({"approvers": ["a" * 64] * 2}, LedgerError),
        ({"approvers": [f"{n:064x}" for n in range(101)]}, LedgerError),
        ({"approvers": []}, LedgerError),
        ({"unsigned": 1}, LedgerError),
        ({"reason": ""}, LedgerError),
        ({"surplus": 1}, LedgerError),
        ({"public_key": "a" * 64}, LedgerError),
        ({"public_key": "a" * 64, "signature": "b" * 128}, LedgerError),
    ],
)
def test_the_first_approvers_are_refused(
    changes: dict[str, Any], kind: type[StatpressError]
) -> None:
    journal = Journal()
    body = journal.approvers(FIRST)
    assert journal.refusal("set-approvers", body) is None
    assert type(journal.refusal("set-approvers", body | changes)) is kind


def test_a_change_has_to_change_something_for_a_reason(journal: Journal) -> None:
    again = journal.approvers(SECOND, FIRST, by=FIRST)
    assert "in force" in str(journal.refusal("set-approvers", again))
    silent = journal.approvers(FIRST, by=FIRST, reason=None)
    assert "reason" in str(journal.refusal("set-approvers", silent))
    only = Journal()
    only.add("set-approvers", only.approvers(unsigned=True))
    assert only.state.accounts["census"].reviewed
    assert "reason" in str(only.refusal("set-approvers", only.approvers(FIRST, reason=None)))
    only.add("set-approvers", only.approvers(FIRST))  # nobody could sign


# --- the chain --------------------------------------------------------------------


def test_a_partial_state_knows_the_review(prepared: Journal) -> None:
    prepared.add(*prepared.act("approve"))
    prepared.add("register", REGISTER | TERMS | {"dataset": "other"})
    found = resume(prepared.entries, dataset="census", run_id="run-1")
    assert found is not None
    assert found.accounts["census"].review == prepared.entries[1]
    assert found.charges["run-1"] == prepared.state.charges["run-1"]
    assert found.charges["run-1"].reviewed


def test_a_forged_decision_in_a_chain_made_to_fit_breaks_it(prepared: Journal) -> None:
    forged = prepared.decision(THIEF) | {"public_key": public_text(FIRST)}
    state = prepared.state
    hash_ = entry_hash(state.next_sequence, "decide", forged, state.head)
    entry = Entry(state.next_sequence, "decide", forged, state.head, hash_)
    with pytest.raises(LedgerIntegrityError, match="signature") as caught:
        apply(state, entry)
    assert caught.value.sequence == 6
