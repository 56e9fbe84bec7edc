"""A chain made to fit, by an attacker who recomputes hashes, breaks a rule or a signature.

What neither tells is found by who kept the head: the places where that is so are listed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from census_ledger import KEY
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from ledger_attack import (
    KINDS,
    LAST_CHECKPOINT,
    LENGTH,
    THIEF,
    Attack,
    Row,
    changed_rows,
    charge,
    rewritten,
    text_of,
    with_new_chain,
    with_own_hash,
    write_history,
    write_review,
)

from statpress.mechanisms.errors import InsufficientBudgetError, LedgerIntegrityError
from statpress.tasks.ledger import chain as journal
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.ledger.rules import RULES


@pytest.fixture(scope="module")
def attack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attack]:
    made = Attack(tmp_path_factory.mktemp("attack") / "ledger.db")
    yield made
    made.close()


@pytest.fixture(scope="module")
def reviewed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attack]:
    made = Attack(tmp_path_factory.mktemp("reviewed") / "ledger.db", write_review)
    yield made
    made.close()


def test_one_hash_made_to_fit_breaks_the_chain(attack: Attack) -> None:
    tried = 0
    for sequence, place, row in changed_rows(attack):
        rows = attack.with_row(sequence, with_own_hash(row))
        tried += 1
        if sequence < LENGTH:
            assert attack.verdict(rows) in {sequence, sequence + 1}, place
        assert attack.verdict(rows, head=attack.head) in {sequence, sequence + 1}, place
    assert tried > 2000


# Where neither a rule nor a signature tells: only someone who kept the head knows.
ONLY_BY_HEAD = {
    (LAST_CHECKPOINT, "created"),
    (13, "created"),
    (14, "created"),
    (14, "config_sha256"),
    (14, "insecure_seed"),
    (14, "mechanisms"),
    (14, "run_id"),
    (14, "version"),
    (15, "created"),
    (15, "dataset"),
    (15, "reason"),
    (15, "rho"),
    (15, "rho_delta"),
    (16, "bundle"),
    (16, "created"),
    (16, "manifest_sha256"),
}


def test_a_whole_chain_made_to_fit_is_found_by_the_head_at_least(attack: Attack) -> None:
    found: Counter[str] = Counter()
    only_by_head = set()
    for sequence, place, row in changed_rows(attack):
        rows = with_new_chain(attack.with_row(sequence, row))
        named = attack.verdict(rows)
        by_head = attack.verdict(rows, head=attack.head)
        assert by_head is not None, (sequence, place)
        if named is None:
            assert by_head == LENGTH + 1
            only_by_head.add((sequence, place[0]))
        found["head" if named is None else "own" if named == sequence else "later"] += 1
        assert named is None or named >= sequence
    assert only_by_head == ONLY_BY_HEAD
    assert found.total() > 2000
    assert found["own"] > found["head"] > 0
    assert found["later"] > 0


def test_another_kind_in_a_chain_made_to_fit_breaks_a_rule(attack: Attack) -> None:
    for row in attack.rows:
        for kind in {*KINDS, "refund"} - {row[1]}:
            rows = with_new_chain(attack.with_row(row[0], (row[0], kind, *row[2:])))
            assert attack.verdict(rows) == row[0]


def test_a_missing_entry_in_a_chain_made_to_fit_is_found(attack: Attack) -> None:
    for index in range(LENGTH):
        rows = with_new_chain(attack.rows[:index] + attack.rows[index + 1 :])
        assert attack.verdict(rows, head=attack.head) is not None
        if index < LAST_CHECKPOINT - 1:
            assert attack.verdict(rows) is not None


def resigned(rows: list[Row], key: Ed25519PrivateKey) -> list[Row]:
    """The chain made to fit with checkpoints by another key."""
    done: list[Row] = []
    for row in rows:
        if row[1] == "checkpoint":
            previous = with_new_chain([*done, row])[-1][3]
            signed = text_of(["statpress ledger checkpoint", len(done) + 1, previous])
            signature = key.sign(signed.encode()).hex()
            public = key.public_key().public_bytes_raw().hex()
            body = {**json.loads(row[2]), "public_key": public, "signature": signature}
            done = with_new_chain([*done, rewritten(row, body)])
        else:
            done = with_new_chain([*done, row])
    return done


def test_a_chain_signed_by_a_thief_is_found_by_trust_and_by_head(attack: Attack) -> None:
    own = frozenset({json.loads(attack.rows[7][2])["public_key"]})
    assert resigned(attack.rows, KEY) == attack.rows
    body = {**json.loads(attack.rows[0][2]), "epsilon": "100"}
    rows = resigned(attack.with_row(1, rewritten(attack.rows[0], body)), THIEF)
    assert attack.verdict(rows) is None
    assert attack.verdict(rows, trusted=own) == 8
    assert attack.verdict(rows, head=attack.head) == LENGTH + 1


def test_a_charge_made_smaller_with_its_balance_is_found_by_the_head(attack: Attack) -> None:
    body = json.loads(attack.rows[13][2])
    spent = {**body["spent"], "rho": "0.04500001"}
    smaller = {**body, "rho": "1e-8", "spent": spent}
    rows = with_new_chain(attack.with_row(14, rewritten(attack.rows[13], smaller)))
    assert attack.verdict(rows) is None
    assert attack.verdict(rows, head=attack.head) == LENGTH + 1
    early = {**json.loads(attack.rows[2][2]), "epsilon": "0.1"}
    early["spent"] = {**early["spent"], "epsilon": "0.1"}
    rows = with_new_chain(attack.with_row(3, rewritten(attack.rows[2], early)))
    assert attack.verdict(rows) == 6  # the next balance does not follow from it


# --- a review ---------------------------------------------------------------------

# A decision signs its charge, and with it the chain before; a change of approvers signs
# the one before. What else an officer has to know, they find in the seal.
REVIEW_ONLY_BY_HEAD = {(4, "created"), (5, "bundle"), (5, "created"), (7, "bundle"), (7, "created")}
REVIEW_ONLY_BY_HEAD |= {(9, name) for name in ("config_sha256", "created", "run_id")}  # a refusal
REVIEW_ONLY_BY_HEAD |= {(10, "created"), (10, "reason")}  # what answers for it


def test_any_change_of_a_review_is_found_by_its_signatures(reviewed: Attack) -> None:
    only_by_head, tried = set(), 0
    for sequence, place, row in changed_rows(reviewed):
        tried += 1
        assert reviewed.verdict(reviewed.with_row(sequence, row)) == sequence, place
        fitting = reviewed.with_row(sequence, with_own_hash(row))
        assert reviewed.verdict(fitting, head=reviewed.head) in {sequence, sequence + 1}
        rows = with_new_chain(reviewed.with_row(sequence, row))
        assert reviewed.verdict(rows, head=reviewed.head) is not None
        if reviewed.verdict(rows) is None:
            only_by_head.add((sequence, place[0]))
    assert only_by_head == REVIEW_ONLY_BY_HEAD
    assert tried > 400


def test_another_order_of_a_review_is_found(reviewed: Attack) -> None:
    for index in range(len(reviewed.rows)):
        rows = with_new_chain(reviewed.rows[:index] + reviewed.rows[index + 1 :])
        assert reviewed.verdict(rows, head=reviewed.head) is not None
        if index < len(reviewed.rows) - 1:
            # What nothing follows from may go without breaking a rule: a publication, whose
            # bundle then still waits, and the last change of approvers.
            assert reviewed.verdict(rows) is not None or index in (6, 7)
    assert [row[1] for row in reviewed.rows[6:8]] == ["publish", "set-approvers"]


# --- broken twins -----------------------------------------------------------------


def test_a_verify_without_the_hashes_would_miss_changes(
    attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {**json.loads(attack.rows[13][2]), "version": "9.9.9"}
    rows = attack.with_row(14, rewritten(attack.rows[13], body))
    assert attack.verdict(rows, head=attack.head) == 14
    monkeypatch.setattr(journal, "_whole", lambda entry: True)
    assert attack.verdict(rows, head=attack.head) is None
    assert attack.verdict_on_file(rows, head=attack.head) is None


def test_a_verify_without_the_balances_would_miss_an_overspending(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forged balance at the end lets the next charge spend what is not there."""
    body = json.loads(attack.rows[13][2])
    nothing = dict.fromkeys(body["spent"], "0")
    forged = rewritten(attack.rows[13], {**body, "spent": nothing})
    rows = with_new_chain(attack.with_row(14, forged))
    assert attack.verdict(rows) == 14

    def without_balance(state: Any, entry: Any) -> str:
        given = {name: value for name, value in entry.body.items() if name != "spent"}
        RULES[entry.kind].check(state, given)
        return ""

    monkeypatch.setattr(journal, "_broken_rule", without_balance)
    assert attack.verdict(rows) is None
    twin = tmp_path / "twin.db"
    source = [journal.Entry(*row[:2], json.loads(row[2]), *row[3:5]) for row in rows]
    with Ledger.open(twin) as ledger:
        ledger.restore(iter(source))
        charge(ledger, "census", "run-5", "0", "0.46")  # 0.05 of 0.5 is spent
    monkeypatch.undo()
    with Ledger.open(twin) as ledger:
        with pytest.raises(LedgerIntegrityError) as caught:
            ledger.verify()
        assert caught.value.sequence == 14
    with Ledger.open(tmp_path / "true.db") as ledger:
        write_history(ledger)
        with pytest.raises(InsufficientBudgetError):
            charge(ledger, "census", "run-5", "0", "0.46")
