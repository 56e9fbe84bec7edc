"""A ledger made of another one's entries, and how little of a long one an act reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from census_ledger import KEY, TERMS, assert_plain, charge, draw, publish, register, void
from sqlalchemy import event

from statpress.mechanisms.errors import LedgerError, LedgerIntegrityError
from statpress.tasks.ledger.chain import Verification
from statpress.tasks.ledger.entries import ZERO_HASH, Entry, entry_hash
from statpress.tasks.ledger.ledger import Ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "private" / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    """A ledger with census registered."""
    with Ledger.open(path) as opened:
        register(opened)
        yield opened


# --- restoring ------------------------------------------------------------------


def full_history(ledger: Ledger) -> list[Entry]:
    """Entries of every kind."""
    charge(ledger)
    draw(ledger)
    publish(ledger)
    charge(ledger, "run-2")
    void(ledger, "run-2")
    ledger.amend(dataset="census", policy="zcdp", rho="0.5", rho_delta=0, reason="zcdp")
    ledger.checkpoint(KEY)
    return list(ledger.entries())


def test_an_export_restored_is_the_same_ledger(ledger: Ledger, tmp_path: Path) -> None:
    entries = full_history(ledger)
    with Ledger.open(tmp_path / "copy.db") as copy:
        state = copy.restore(iter(entries))
        assert state == copy.state() == ledger.state()
        assert copy.verify(head=entries[-1].hash) == ledger.verify()
        charge(copy, "run-3")
        assert copy.verify().entries == 9
    with Ledger.open(tmp_path / "copy.db", create=False) as again:
        assert list(again.entries())[:8] == entries


def test_nothing_is_restored_over_entries(ledger: Ledger, tmp_path: Path) -> None:
    entries = full_history(ledger)
    with Ledger.open(tmp_path / "copy.db") as copy:
        register(copy, "mine")
        before = list(copy.entries())
        for batch in (entries, before, []):
            with pytest.raises(LedgerError, match="holds entries already") as caught:
                copy.restore(iter(batch))
            assert_plain(caught.value)
        assert list(copy.entries()) == before
        charge(copy, dataset="mine")


def test_a_broken_export_restores_nothing(ledger: Ledger, tmp_path: Path) -> None:
    entries = full_history(ledger)
    for index, entry in enumerate(entries):
        body = {**entry.body, "created": "2099-01-01T00:00:00+00:00"}
        changed = [*entries[:index], replace(entry, body=body), *entries[index + 1 :]]
        missing = entries[:index] + entries[index + 1 :]
        for batch in [changed, missing] if entry is not entries[-1] else [changed]:
            with Ledger.open(tmp_path / "copy.db") as copy:
                with pytest.raises(LedgerIntegrityError) as caught:
                    copy.restore(iter(batch))
                assert caught.value.sequence == index + 1
                assert copy.verify() == Verification(0, ZERO_HASH)


# --- how much is read -----------------------------------------------------------


def long_history(runs: int) -> list[Entry]:
    """A registration, then charges that are drawn at once, written without the ledger."""
    limit = {"epsilon": str(runs), "delta": "0", "policy": "basic", "dataset": "census"}
    rows: list[tuple[str, dict[str, Any]]] = [("register", {**limit, **TERMS})]
    for number in range(1, runs + 1):
        run = {"dataset": "census", "run_id": f"old-{number}"}
        loss = {"epsilon": "0.5", "delta": "0", "rho": "0.125", "rho_delta": "0"}
        spent = {"epsilon": f"{number / 2:g}", "delta": "0", "rho": f"{number / 8:.15g}"}
        body = {**run, **loss, **TERMS, "spent": {**spent, "rho_delta": "0"}, "mechanisms": []}
        body |= {"config_sha256": "a" * 64, "insecure_seed": False, "version": "0.1.0"}
        rows += [("charge", body), ("draw", run)]
    entries, previous = [], ZERO_HASH
    for sequence, (kind, body) in enumerate(rows, start=1):
        body = {**body, "created": "2026-01-01T00:00:00+00:00"}
        hash_ = entry_hash(sequence, kind, body, previous)
        entries.append(Entry(sequence, kind, body, previous, hash_))
        previous = hash_
    return entries


def work_of_acts(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[int]]:
    """Entries read, and thousands of steps of SQLite's machine, by each of six acts."""
    reads: list[int] = []
    steps: list[int] = []

    def parse(*parts: Any) -> Entry:
        reads[-1] += 1
        return real(*parts)

    def count() -> int:
        steps[-1] += 1
        return 0

    from statpress.tasks.ledger import tables as ledger_tables

    real = ledger_tables.parse_entry
    with Ledger.open(path) as ledger, monkeypatch.context() as patch:
        patch.setattr(ledger_tables, "parse_entry", parse)
        writer = ledger.store.writer
        event.listen(writer, "connect", lambda raw, _: raw.set_progress_handler(count, 100))
        reads.append(0)
        steps.append(0)
        ledger.checkpoint(KEY)  # the first act also connects
        for act in (
            lambda: charge(ledger, "new-1", epsilon="0.1"),
            lambda: charge(ledger, "new-1", epsilon="0.1"),
            lambda: void(ledger, "new-1"),
            lambda: publish(ledger, "old-1"),
            lambda: register(ledger, "other"),
            lambda: ledger.checkpoint(KEY),
        ):
            reads.append(0)
            steps.append(0)
            act()
    return reads[1:], steps[1:]


def test_ten_thousand_entries_are_charged_like_ten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = []
    for runs in (5, 5000):
        with Ledger.open(tmp_path / f"{runs}.db") as ledger:
            ledger.restore(iter(long_history(runs)))
        works.append(work_of_acts(tmp_path / f"{runs}.db", monkeypatch))
    (few_reads, few_steps), (many_reads, many_steps) = works
    assert few_reads == many_reads
    assert max(many_reads) <= 7
    assert max(many_steps) <= 20  # two thousand steps; a scan of 10 000 rows takes far more
    assert all(abs(many - few) <= 2 for few, many in zip(few_steps, many_steps, strict=True))
    with Ledger.open(tmp_path / "5000.db", create=False) as ledger:
        assert ledger.verify().entries == 10_007
        assert ledger.account("census").spent["epsilon"] == 2500
