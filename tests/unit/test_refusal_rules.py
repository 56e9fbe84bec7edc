"""Refusals by a gate are entries, and too many of them close a dataset until it is reopened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from census_ledger import KEY, TERMS, charge, register
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from statpress.mechanisms.errors import (
    AmountError,
    ApprovalError,
    LedgerError,
    LedgerIntegrityError,
    RefusalLimitError,
    UnregisteredDatasetError,
)
from statpress.tasks.ledger.accounts import DEFAULT_MAX_REFUSALS
from statpress.tasks.ledger.chain import check_run, replay
from statpress.tasks.ledger.entries import Entry, entry_hash, public_text
from statpress.tasks.ledger.ledger import Ledger

CONFIG = "c" * 64
OTHER = Ed25519PrivateKey.from_private_bytes(b"o" * 32)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.db") as opened:
        register(opened, max_refusals=2)
        yield opened


def refuse(ledger: Ledger, run_id: str, dataset: str = "census", config: str = CONFIG) -> Entry:
    return ledger.refuse(run_id=run_id, dataset=dataset, config_sha256=config)


def may_run(ledger: Ledger, run_id: str = "next", dataset: str = "census") -> bool:
    """Whether a run may look at the data."""
    body: dict[str, Any] = {"dataset": dataset, "run_id": run_id, "created": "-", **TERMS}
    body |= {"epsilon": "0.1", "delta": "0", "rho": "0", "rho_delta": "0", "mechanisms": []}
    body |= {"config_sha256": CONFIG, "insecure_seed": False, "version": "1"}
    try:
        check_run(ledger.state(), body)
    except RefusalLimitError:
        return False
    return True


def test_a_refusal_holds_no_figure_and_is_written_once(ledger: Ledger) -> None:
    entry = refuse(ledger, "one")
    assert set(entry.body) == {"dataset", "run_id", "config_sha256", "created"}
    assert refuse(ledger, "one") == entry
    with pytest.raises(LedgerError, match="differs in config_sha256"):
        refuse(ledger, "one", config="d" * 64)
    with pytest.raises(UnregisteredDatasetError):
        refuse(ledger, "two", dataset="nowhere")
    assert ledger.verify().entries == 2


def test_twenty_is_the_limit_of_datasets_registered_without(ledger: Ledger) -> None:
    entry = register(ledger, "before")
    assert "max_refusals" not in entry.body  # as earlier versions wrote it
    assert ledger.account("before").max_refusals == DEFAULT_MAX_REFUSALS == 20
    for number in range(20):
        assert may_run(ledger, dataset="before") and not ledger.account("before").closed
        refuse(ledger, f"old-{number}", dataset="before")
    assert not may_run(ledger, dataset="before")
    for wrong in (0, -1, "3", True):
        with pytest.raises(AmountError):
            register(ledger, "wrong", max_refusals=wrong)


def look(ledger: Ledger, run: str, dataset: str = "census", gates: str = "exact") -> Entry:
    form = {"form": "f" * 16} if gates == "noisy" else {}
    return ledger.look(run=run, dataset=dataset, config_sha256=CONFIG, gates=gates, **form)


def test_every_look_with_exact_gates_counts_whatever_follows(ledger: Ledger) -> None:
    register(ledger, "few", max_looks=3)
    assert look(ledger, "one", "few").body["open_looks"] == 1
    assert look(ledger, "one", "few").body["open_looks"] == 2  # started again, it looks again
    with pytest.raises(LedgerError, match="what was charged is for exact"):
        look(ledger, "noisy", "few", "noisy")
    charge(ledger, "one", dataset="few")
    assert look(ledger, "one", "few").body["open_looks"] == 3
    assert not may_run(ledger, dataset="few") and may_run(ledger)
    with pytest.raises(RefusalLimitError, match="looked at the data 3 times"):
        look(ledger, "two", "few")
    ledger.reopen(dataset="few", reason="three deliveries")
    assert look(ledger, "two", "few").body["open_looks"] == 1
    account = ledger.account("few")
    assert (account.open_looks, account.looks_left, account.closed) == (1, 2, False)
    assert ledger.account_terms("few").open_looks == 1
    ledger.draw(run_id="one", dataset="few")
    with pytest.raises(LedgerError, match="has looked at the data already"):
        look(ledger, "one", "few")
    refuse(ledger, "two", "few")
    with pytest.raises(LedgerError, match="refused this run"):
        look(ledger, "two", "few")
    ledger.verify()


def test_sixty_looks_are_the_limit_of_datasets_registered_without(ledger: Ledger) -> None:
    assert "max_looks" not in register(ledger, "before").body
    for number in range(60):
        assert ledger.account_terms("before").looks_left == 60 - number
        look(ledger, f"old-{number}", "before")
    assert not may_run(ledger, dataset="before")


def test_a_look_that_counts_itself_wrong_breaks_the_chain(ledger: Ledger) -> None:
    first = look(ledger, "one")
    entries = list(ledger.entries())
    for stated in (0, 1, 3):
        body = {**first.body, "run": "two", "open_looks": stated}
        hash_ = entry_hash(first.sequence + 1, "look", body, first.hash)
        with pytest.raises(LedgerIntegrityError, match=f"says {stated} looks where 2 are"):
            replay([*entries, Entry(first.sequence + 1, "look", body, first.hash, hash_)])


def test_an_approver_reopens_without_a_reason(ledger: Ledger) -> None:
    refuse(ledger, "one")
    with pytest.raises(ApprovalError, match="not one of the dataset's approvers"):
        ledger.reopen(dataset="census", key=KEY)
    ledger.set_approvers(dataset="census", approvers=[public_text(KEY)])
    with pytest.raises(ApprovalError):
        ledger.reopen(dataset="census", key=OTHER, reason="no right")
    first = ledger.reopen(dataset="census", key=KEY)
    assert first.body["public_key"] == public_text(KEY)
    refuse(ledger, "two")
    with pytest.raises(ApprovalError, match="not this key's"):  # it holds for one time only
        ledger.append("reopen", {**first.body})
    with pytest.raises(ApprovalError, match="Only an approver in force"):
        ledger.reopen(dataset="census", reason="by a reason all the same")
    ledger.reopen(dataset="census", reason="and with a reason", key=KEY)
    ledger.verify()


def test_approvers_of_an_earlier_version_sign_decisions_alone(ledger: Ledger) -> None:
    """Their entry does not say that they sign the terms, and their ledger verifies."""
    body = {"dataset": "census", "approvers": [public_text(KEY)], "unsigned": False}
    ledger.append("set-approvers", body | {"reason": None})
    refuse(ledger, "one")
    ledger.reopen(dataset="census", reason="as before")
    ledger.amend(dataset="census", epsilon="0.5", reason="as before")
    ledger.set_approvers(dataset="census", approvers=[public_text(KEY)], reason="anew", key=KEY)
    with pytest.raises(ApprovalError, match="Only an approver in force"):
        ledger.amend(dataset="census", epsilon="0.6", reason="more")
    with pytest.raises(LedgerError, match="approvers in force"):
        ledger.set_approvers(dataset="census", approvers=[public_text(KEY)], reason="x", key=KEY)
    ledger.verify()


@pytest.mark.parametrize("kind", ["refuse", "reopen"])
def test_a_replay_holds_the_chain_to_the_same_rules(ledger: Ledger, kind: str) -> None:
    refuse(ledger, "run-1")
    ledger.reopen(dataset="census", reason="seen")
    entries = list(ledger.entries())
    copied = next(entry for entry in entries if entry.kind == kind)
    last = entries[-1]
    hash_ = entry_hash(last.sequence + 1, kind, copied.body, last.hash)
    again = Entry(last.sequence + 1, kind, copied.body, last.hash, hash_)
    with pytest.raises(LedgerIntegrityError, match="breaks a rule") as caught:
        replay([*entries, again])
    assert caught.value.sequence == 4
