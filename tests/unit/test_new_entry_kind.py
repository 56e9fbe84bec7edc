"""A new kind of ledger entry is one row of the table and the functions the row names.

The kinds here come from outside: they are in the table only while a test runs, and no
other module knows them.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statpress.mechanisms.errors import InsufficientBudgetError, LedgerError, LedgerIntegrityError
from statpress.tasks.ledger.account_rules import OF_DATASET
from statpress.tasks.ledger.accounts import State, Status, refusal
from statpress.tasks.ledger.entries import (
    MEASURES,
    Body,
    Entry,
    Loss,
    canonical_json,
    entry_hash,
)
from statpress.tasks.ledger.export import restore, write_export
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.ledger.rules import (
    OF_RUN,
    RULES,
    Balance,
    Rule,
    keep_with_charge,
    no_effect,
    same_body,
)

TERMS: dict[str, Any] = {
    "adjacency": "replace_one",
    "unit": "record",
    "unit_records": 1,
    "n_records": 1000,
}
RECALL = {"run_id": "run-1", "dataset": "census", "reason": "a wrong title"}
FEE = {"dataset": "census", "epsilon": "0.25", "delta": "0", "rho": "0.125", "rho_delta": "0"}
CLOSING = {"dataset": "census", "reason": "the survey has ended"}


def check_recall(state: State, body: Body) -> None:
    """A published bundle may be recalled."""
    if state.charge_of(body).status is not Status.PUBLISHED:
        raise refusal(body, "Only what was published is recalled.", "Publish it first.")


def check_fee(state: State, body: Body) -> None:
    """What is spent without a run must remain."""
    account = state.account_of(body["dataset"])
    if not account.remaining.covers(Loss.of(body).within(account.limit.amounts)):
        raise LedgerError("Too little remains.", where="fee")


def balance_of_fee(state: State, body: Body) -> Balance:
    return Balance(state.account_of(body["dataset"]), Loss.of(body))


def check_closing(state: State, body: Body) -> None:
    """Nothing is checked but the dataset."""
    state.account_of(body["dataset"])


def spend_all(draft: State, entry: Entry) -> None:
    """Leave nothing to charge."""
    account = draft.account_of(entry.body["dataset"])
    nothing = Loss.nothing().within(account.limit.amounts)
    draft.accounts[account.dataset] = replace(account, limit=nothing)


@pytest.fixture(autouse=True)
def _kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row each: an entry about a run, one that moves the balance, one that lasts."""
    rows = {
        "recall": Rule(OF_RUN | {"reason"}, check_recall, keep_with_charge, repeats=same_body),
        "fee": Rule(OF_DATASET | {*MEASURES}, check_fee, no_effect, balance=balance_of_fee),
        "close": Rule(OF_DATASET | {"reason"}, check_closing, spend_all, lasting=True),
    }
    for kind, rule in rows.items():
        monkeypatch.setitem(RULES, kind, rule)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with an account, and one run that drew."""
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        ledger.register(dataset="census", epsilon=1, delta="1e-8", **TERMS)
        charge(ledger, "run-1")
        ledger.draw(run_id="run-1", dataset="census")
    return path


def charge(ledger: Ledger, run: str, epsilon: str = "0.5") -> Entry:
    fields = {"dataset": "census", "run_id": run, "epsilon": epsilon, "delta": 0, **TERMS}
    fields |= {"rho": "0.01", "rho_delta": 0, "mechanisms": [], "config_sha256": "a" * 64}
    return ledger.charge(**fields, insecure_seed=False, version="0.2.0")


def publish(ledger: Ledger) -> Entry:
    fields = {"run_id": "run-1", "dataset": "census", "bundle": "releases/one"}
    return ledger.publish(**fields, manifest_sha256="b" * 64)


def whole(ledger: Ledger) -> list[Entry]:
    """A ledger with an entry of each new kind."""
    publish(ledger)
    ledger.append("recall", RECALL)
    ledger.append("fee", FEE)
    ledger.append("close", CLOSING)
    return list(ledger.entries())


def test_an_entry_of_a_new_kind_is_appended_checked_and_repeated(path: Path) -> None:
    with Ledger.open(path) as ledger:
        with pytest.raises(LedgerError, match="Only what was published"):
            ledger.append("recall", RECALL)
        with pytest.raises(LedgerError, match="reason"):
            ledger.append("recall", {"run_id": "run-1", "dataset": "census"})
        publish(ledger)
        entry = ledger.append("recall", RECALL)
        assert (entry.sequence, entry.kind, entry.body["reason"]) == (5, "recall", "a wrong title")
        assert ledger.append("recall", RECALL) == entry
        with pytest.raises(LedgerError, match="a recall of this run that differs in reason"):
            ledger.append("recall", RECALL | {"reason": "another"})
        assert ledger.verify().entries == 5


def test_the_next_act_depends_on_new_kinds_like_a_replay_does(path: Path) -> None:
    with Ledger.open(path) as ledger:
        assert ledger.append("fee", FEE).body["spent"]["epsilon"] == "0.75"
        assert charge(ledger, "run-2", "0.125").body["spent"]["epsilon"] == "0.875"
        with pytest.raises(LedgerError, match="Too little"):
            ledger.append("fee", FEE)
        ledger.append("close", CLOSING)
        with pytest.raises(InsufficientBudgetError, match=r"what remains is epsilon -0\.875"):
            charge(ledger, "run-3", "0.1")
    with Ledger.open(path) as fresh:
        assert fresh.account("census").spent["epsilon"] * 8 == 7
        assert fresh.verify().entries == 6


def test_entries_of_new_kinds_are_replayed_exported_and_verified(
    path: Path, tmp_path: Path
) -> None:
    with Ledger.open(path) as ledger:
        entries = whole(ledger)
        head = ledger.verify().head
        write_export(ledger, tmp_path / "export.jsonl")
        state = ledger.state()
    assert state.charges["run-1"].later["recall"].sequence == 5
    lines = (tmp_path / "export.jsonl").read_text().splitlines()
    kinds = [json.loads(line).get("kind") for line in lines]
    assert kinds == ["register", "charge", "draw", "publish", "recall", "fee", "close", None]
    with Ledger.open(tmp_path / "other.db") as other:
        assert restore(other, tmp_path / "export.jsonl")[1] == state
        assert list(other.entries()) == entries
        assert other.verify(head=head).entries == 7


@pytest.mark.parametrize(
    ("sequence", "changes", "flaw"),
    [
        (5, {"run_id": "run-9"}, "no charge of this run"),
        (6, {"epsilon": "0.1"}, "another balance"),
        (6, {"epsilon": "0.6"}, "Too little remains"),
        (7, {"reason": 7}, "not usable"),
    ],
)
def test_a_forged_entry_of_a_new_kind_is_found(
    path: Path, tmp_path: Path, sequence: int, changes: dict[str, Any], flaw: str
) -> None:
    with Ledger.open(path) as ledger:
        entries = whole(ledger)
    forged: list[Entry] = []
    for entry in entries:
        body = entry.body | (changes if entry.sequence == sequence else {})
        previous = forged[-1].hash if forged else entry.previous
        hash_ = entry_hash(entry.sequence, entry.kind, body, previous)
        forged.append(Entry(entry.sequence, entry.kind, body, previous, hash_))
    with Ledger.open(tmp_path / "forged.db") as other:
        with pytest.raises(LedgerIntegrityError, match=flaw) as caught:
            other.restore(iter(forged))
        assert caught.value.sequence == sequence
        other.restore(iter(entries))
    raw = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError):
        raw.execute("UPDATE entries SET body = ?", (canonical_json({}),))
    raw.close()


def test_without_its_row_the_kind_is_unknown(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger.open(path) as ledger:
        whole(ledger)
        monkeypatch.delitem(RULES, "recall")
        with pytest.raises(LedgerIntegrityError, match="unknown kind 'recall'") as caught:
            ledger.verify()
        assert caught.value.sequence == 5
