"""From the ledger's first form to the present one: entries stay, old charges count."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from census_ledger import TERMS

from mechanisms.errors import (
    InsufficientBudgetError,
    LedgerError,
    LedgerIntegrityError,
    LedgerSchemaError,
    LedgerUnavailableError,
)
from tasks.ledger.ledger import Ledger
from tasks.ledger_rules.accounts import Status
from tasks.ledger_rules.entries import ZERO_HASH, canonical_json, entry_hash
from tasks.ledger_store import schema as ledger_schema

NOW = "2026-01-01T00:00:00+00:00"

# As version 0.1.0 made it, word for word.
FIRST_FORM = [
    "CREATE TABLE entries (\n\tsequence INTEGER NOT NULL, \n\tkind TEXT NOT NULL, "
    "\n\tbody TEXT NOT NULL, \n\tprevious TEXT NOT NULL, \n\thash TEXT NOT NULL, "
    "\n\tPRIMARY KEY (sequence), \n\tUNIQUE (hash)\n)",
    "CREATE TABLE meta (\n\tname TEXT NOT NULL, \n\tvalue TEXT, \n\tPRIMARY KEY (name)\n)",
    """CREATE TRIGGER entries_follow BEFORE INSERT ON entries
WHEN NEW.sequence IS NOT (SELECT coalesce(max(sequence), 0) + 1 FROM entries)
OR NEW.previous IS NOT coalesce(
    (SELECT hash FROM entries ORDER BY sequence DESC LIMIT 1), hex(zeroblob(32)))
OR EXISTS (SELECT 1 FROM entries WHERE hash = NEW.hash)
BEGIN SELECT RAISE(ABORT, 'an entry follows the last one'); END""",
    """CREATE TRIGGER entries_no_update BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END""",
    """CREATE TRIGGER entries_no_delete BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'entries are never removed'); END""",
    "INSERT INTO meta VALUES ('schema', '1')",
]


def old_registration(dataset: str, epsilon: str = "1") -> tuple[str, dict[str, Any]]:
    body = {"dataset": dataset, "policy": "basic", "epsilon": epsilon, "delta": "1e-8"}
    return "register", {**body, **TERMS, "created": NOW}


def old_charge(run: str, epsilon: str, delta: str = "0") -> tuple[str, dict[str, Any]]:
    body = {"dataset": "census", "run_id": run, "epsilon": epsilon, "delta": delta}
    body |= {"mechanisms": [{"mechanism": "bootstrap"}], "config_sha256": "a" * 64}
    return "charge", {**body, "insecure_seed": False, "version": "0.1.0", **TERMS, "created": NOW}


def old_publication(run: str) -> tuple[str, dict[str, Any]]:
    body = {"dataset": "census", "run_id": run, "bundle": f"releases/{run}"}
    return "publish", {**body, "manifest_sha256": "b" * 64, "created": NOW}


HISTORY = [
    old_registration("census"),
    old_charge("run-1", "0.3", "1e-9"),
    old_publication("run-1"),
    old_registration("ünïcode", "2"),
    old_charge("run-2", "0.1"),
]
Row = tuple[int, str, str, str, str]


def rows_of(history: list[tuple[str, dict[str, Any]]]) -> list[Row]:
    """Rows whose hashes hold."""
    rows: list[Row] = []
    previous = ZERO_HASH
    for sequence, (kind, body) in enumerate(history, start=1):
        hash_ = entry_hash(sequence, kind, body, previous)
        rows.append((sequence, kind, canonical_json(body), previous, hash_))
        previous = hash_
    return rows


def write_old(path: Path, rows: list[Row]) -> Path:
    """A ledger file of the first form, its journal mode and triggers as they were."""
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("PRAGMA journal_mode=WAL").fetchone()
    raw.execute("BEGIN")
    for statement in FIRST_FORM[:2] + FIRST_FORM[5:]:
        raw.execute(statement)
    raw.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", rows)
    for statement in FIRST_FORM[2:5]:
        raw.execute(statement)
    raw.execute("COMMIT")
    raw.close()
    return path


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A ledger of the first form: two accounts, one run published and one charged."""
    return write_old(tmp_path / "ledger.db", rows_of(HISTORY))


def kept(path: Path) -> list[Row]:
    """The columns that every form has, as raw bytes."""
    raw = sqlite3.connect(path)
    query = "SELECT sequence, kind, body, previous, hash FROM entries ORDER BY sequence"
    found = raw.execute(query).fetchall()
    raw.close()
    return found


def everything(path: Path) -> list[str]:
    """The whole database as statements."""
    raw = sqlite3.connect(path)
    found = list(raw.iterdump())
    raw.close()
    return found


def schema(path: Path) -> tuple[Any, ...]:
    """Columns, indexes, triggers and the name of the form."""
    raw = sqlite3.connect(path)
    objects = "SELECT type, name, sql FROM sqlite_master WHERE type <> 'table' ORDER BY name"
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    found = (
        raw.execute("PRAGMA table_info(entries)").fetchall(),
        raw.execute("PRAGMA index_list(entries)").fetchall(),
        raw.execute(objects).fetchall(),
        raw.execute(tables).fetchall(),
        raw.execute("SELECT * FROM schema_version").fetchall(),
    )
    raw.close()
    return found


def new_charge(ledger: Ledger, run: str, **changes: Any) -> Any:
    fields = {"dataset": "census", "run_id": run, "epsilon": "0.2", "delta": 0, **TERMS}
    fields |= {"rho": "0.01", "rho_delta": 0, "mechanisms": [], "config_sha256": "a" * 64}
    return ledger.charge(**{**fields, "insecure_seed": False, "version": "0.2.0", **changes})


def test_an_older_ledger_is_not_opened_and_not_changed(old: Path) -> None:
    before = old.read_bytes()
    for create in (True, False):
        with pytest.raises(LedgerSchemaError, match="older form 'first'") as caught:
            Ledger.open(old, create=create)
        assert "ledger upgrade" in caught.value.next_step
        assert caught.value.where == str(old)
    assert old.read_bytes() == before


def test_an_upgrade_keeps_every_byte_of_the_entries(old: Path) -> None:
    before = kept(old)
    assert Ledger.upgrade(old) == "first"
    assert kept(old) == before == rows_of(HISTORY)
    with Ledger.open(old, create=False) as ledger:
        assert ledger.verify(head=before[-1][4]).entries == 5
    raw = sqlite3.connect(old)
    named = raw.execute("SELECT dataset, run_id FROM entries ORDER BY sequence").fetchall()
    raw.close()
    runs = [None, "run-1", "run-1", None, "run-2"]
    assert named == [(body["dataset"], run) for (_, body), run in zip(HISTORY, runs, strict=True)]


def test_an_upgraded_ledger_is_like_a_new_one(old: Path, tmp_path: Path) -> None:
    Ledger.upgrade(old)
    Ledger.open(tmp_path / "new.db").close()
    assert schema(old) == schema(tmp_path / "new.db")
    assert schema(old)[-1] == [(ledger_schema.FORMS[-1],)]
    raw = sqlite3.connect(old)
    for statement in ("DELETE FROM entries", "UPDATE entries SET kind = 'x'"):
        with pytest.raises(sqlite3.IntegrityError):
            raw.execute(statement)
    raw.close()


def test_old_charges_count_and_new_ones_follow(old: Path) -> None:
    Ledger.upgrade(old)
    with Ledger.open(old) as ledger:
        account = ledger.account("census")
        spent = {"epsilon": "0.4", "delta": "1e-9", "rho": "0.05", "rho_delta": "1e-9"}
        assert account.spent.texts() == spent
        assert account.charges["run-1"].loss["rho"] * 1000 == 45
        with pytest.raises(InsufficientBudgetError):
            new_charge(ledger, "run-3", epsilon="0.6000001")
        entry = new_charge(ledger, "run-3", epsilon="0.5")
        assert entry.body["spent"] == {**spent, "epsilon": "0.9", "rho": "0.06"}
        again = new_charge(ledger, "run-4", epsilon="0.1", delta="9e-9")
        assert again.body["spent"]["epsilon"] == "1"
        with pytest.raises(InsufficientBudgetError):
            new_charge(ledger, "run-5", epsilon="1e-300")
        assert ledger.verify().entries == 7
        new_charge(ledger, "other", dataset="ünïcode")


def test_old_runs_may_have_drawn(old: Path) -> None:
    Ledger.upgrade(old)
    with Ledger.open(old) as ledger:
        charges = ledger.account("census").charges
        assert charges["run-1"].status is Status.PUBLISHED
        assert charges["run-2"].status is Status.DRAWN
        assert not any(ledger.account("census").reserved.amounts.values())
        for run, said in (("run-1", "may have drawn"), ("run-2", "may have drawn")):
            with pytest.raises(LedgerError, match=said):
                ledger.draw(run_id=run, dataset="census")
            with pytest.raises(LedgerError, match="stays spent"):
                ledger.void(run_id=run, dataset="census", reason="late")
            with pytest.raises(LedgerError, match="differs in"):
                new_charge(ledger, run)
        fields = {"run_id": "run-2", "dataset": "census", "bundle": "releases/run-2"}
        published = ledger.publish(**fields, manifest_sha256="b" * 64)
        assert ledger.publish(**fields, manifest_sha256="b" * 64) == published
        assert ledger.account("census").charges["run-2"].status is Status.PUBLISHED
        fields |= {"run_id": "run-1", "bundle": "releases/run-1"}
        assert ledger.publish(**fields, manifest_sha256="b" * 64).sequence == 3
        assert ledger.verify().entries == 6


def test_an_upgraded_account_moves_to_zcdp(old: Path) -> None:
    Ledger.upgrade(old)
    with Ledger.open(old) as ledger:
        limits = {"dataset": "census", "policy": "zcdp", "rho_delta": "1e-9", "reason": "zcdp"}
        with pytest.raises(LedgerError, match=r"rho 0\.05 and delta 1e-9 already"):
            ledger.amend(**limits, rho="0.0499")
        ledger.amend(**limits, rho="0.05")
        with pytest.raises(InsufficientBudgetError):
            new_charge(ledger, "run-3", rho="1e-300")
        assert ledger.verify().entries == 6


def test_upgrading_twice_is_harmless(old: Path) -> None:
    assert Ledger.upgrade(old) == "first"
    with Ledger.open(old) as ledger:
        new_charge(ledger, "run-3")
    before = everything(old)
    assert Ledger.upgrade(old) == "second"
    assert everything(old) == before
    with Ledger.open(old) as ledger:
        assert ledger.verify().entries == 6


def test_an_empty_old_ledger_is_upgraded(tmp_path: Path) -> None:
    path = write_old(tmp_path / "ledger.db", [])
    assert Ledger.upgrade(path) == "first"
    with Ledger.open(path) as ledger:
        assert ledger.verify().entries == 0
        ledger.register(dataset="census", epsilon=1, delta=0, **TERMS)


def test_many_entries_are_upgraded(tmp_path: Path) -> None:
    charges = [old_charge(f"run-{number}", "0.0001") for number in range(2500)]
    rows = rows_of([old_registration("census"), *charges])
    path = write_old(tmp_path / "ledger.db", rows)
    assert Ledger.upgrade(path) == "first"
    assert kept(path) == rows
    with Ledger.open(path) as ledger:
        new_charge(ledger, "new", epsilon="0.75")
        assert ledger.account("census").remaining["epsilon"] == 0


def with_text(sequence: int, text: str) -> list[Row]:
    """The true rows, one with another text for its body."""
    rows = rows_of(HISTORY)
    place = sequence - 1
    return [*rows[:place], (*rows[place][:2], text, *rows[place][3:]), *rows[sequence:]]


def with_more(*steps: tuple[str, dict[str, Any]]) -> list[Row]:
    """The true rows and forged ones, whose hashes hold."""
    return rows_of([*HISTORY, *steps])


SMALLER = canonical_json({**HISTORY[1][1], "epsilon": "0.03"})
SECOND_FORM = "charge", {**old_charge("run-3", "0.1")[1], "rho": "0.1", "rho_delta": "0"}
TAMPERED: dict[str, tuple[int, list[Row]]] = {
    "another amount": (2, with_text(2, SMALLER)),
    "another hash": (5, [*rows_of(HISTORY)[:-1], (*rows_of(HISTORY)[-1][:4], "f" * 64)]),
    "a missing entry": (3, [row for row in rows_of(HISTORY) if row[0] != 3]),
    "a forged overspending": (6, with_more(old_charge("run-3", "0.7"))),
    "a publication of nothing": (6, with_more(old_publication("run-9"))),
    "a new charge without a balance": (6, with_more(SECOND_FORM)),
    "a run charged twice": (6, with_more(old_charge("run-1", "0.1"))),
    "no JSON": (2, with_text(2, "no json")),
    "no object": (2, with_text(2, "[]")),
    "a dataset that is a list": (2, with_text(2, '{"dataset":[1]}')),
    "a dataset that is a number": (2, with_text(2, '{"dataset":1}')),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_an_upgrade_of_a_tampered_ledger_changes_nothing(tmp_path: Path, name: str) -> None:
    sequence, rows = TAMPERED[name]
    path = write_old(tmp_path / "ledger.db", rows)
    before, dump = path.read_bytes(), everything(path)
    with pytest.raises(LedgerIntegrityError) as caught:
        Ledger.upgrade(path)
    assert everything(path) == dump
    assert path.read_bytes() == before
    assert caught.value.sequence == sequence
    with pytest.raises(LedgerSchemaError):
        Ledger.open(path)


@pytest.mark.parametrize("name", ["third", "first,second", "0002", ""])
def test_a_newer_ledger_is_not_upgraded(old: Path, name: str) -> None:
    Ledger.upgrade(old)
    raw = sqlite3.connect(old)
    raw.execute("UPDATE schema_version SET version_num = ?", (name,))
    raw.commit()
    raw.close()
    before = everything(old)
    for attempt in (Ledger.upgrade, Ledger.open):
        with pytest.raises(LedgerSchemaError, match="does not know"):
            attempt(old)
    assert everything(old) == before


def test_an_unknown_schema_of_the_first_kind_is_not_upgraded(old: Path) -> None:
    raw = sqlite3.connect(old)
    raw.execute("UPDATE meta SET value = '7'")
    raw.commit()
    raw.close()
    before = everything(old)
    for attempt in (Ledger.upgrade, Ledger.open):
        with pytest.raises(LedgerSchemaError, match="'unknown'"):
            attempt(old)
    assert everything(old) == before


def test_where_there_is_no_ledger_none_is_made_by_an_upgrade(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailableError, match="no ledger here"):
        Ledger.upgrade(tmp_path / "ledger.db")
    assert list(tmp_path.iterdir()) == []


def test_an_upgrade_waits_for_no_reader_and_leaves_nothing_beside(old: Path) -> None:
    Ledger.upgrade(old)
    assert [file.name for file in old.parent.iterdir()] == ["ledger.db"]
