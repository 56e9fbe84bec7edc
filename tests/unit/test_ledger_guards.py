"""What guards a ledger against changes: triggers, the anchor, the chain, recomputation."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from census_ledger import (
    KEY,
    assert_plain,
    charge,
    draw,
    long_history,
    new_ledger,
    publish,
    register,
)

from statpress.mechanisms.errors import LedgerError, LedgerIntegrityError, UnregisteredDatasetError
from statpress.tasks.ledger import ledger_table as ledger_guards
from statpress.tasks.ledger.entries import Loss
from statpress.tasks.ledger.ledger import Ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "private" / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    """A ledger with census registered."""
    with new_ledger(path) as opened:
        register(opened)
        yield opened


def tamper(path: Path, *statements: str) -> None:
    """Do to the file what the triggers would refuse, and put the triggers back."""
    raw = sqlite3.connect(path, isolation_level=None)
    for name in ledger_guards._SQLITE:
        raw.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        assert raw.execute(statement).rowcount > 0
    for trigger in ledger_guards._SQLITE.values():
        raw.execute(trigger)
    raw.close()


COPIED = "kind, body, hash, 'y', dataset, run_id"
LAST = "FROM entries WHERE sequence = 4"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET kind = 'refund'",
        "UPDATE entries SET body = '{}' WHERE sequence = 2",
        "DELETE FROM entries WHERE sequence = 3",
        "INSERT INTO entries VALUES (9, 'charge', '{}', 'x', 'y', 'census', 'run-9')",
        "INSERT INTO entries VALUES (4, 'charge', '{}', 'x', 'y', 'census', 'run-9')",
        f"INSERT INTO entries SELECT 9, {COPIED} FROM entries WHERE sequence = 3",
        f"REPLACE INTO entries SELECT 3, {COPIED} FROM entries WHERE sequence = 3",
        # It follows the last one, but is of no dataset, of a run that is charged, or a copy.
        f"INSERT INTO entries SELECT 5, {COPIED.replace('dataset', 'NULL')} {LAST}",
        f"INSERT INTO entries SELECT 5, {COPIED.replace('run_id', repr('run-1'))} {LAST}",
        f"REPLACE INTO entries SELECT 5, {COPIED.replace('run_id', repr('run-1'))} {LAST}",
        f"REPLACE INTO entries SELECT 5, {COPIED.replace(repr('y'), 'previous')} {LAST}",
        f"INSERT INTO entries SELECT 5, {COPIED.replace('hash', 'previous')} {LAST}",
    ],
)
def test_the_database_refuses_all_but_the_next_entry(
    ledger: Ledger, path: Path, statement: str
) -> None:
    charge(ledger)
    draw(ledger)
    publish(ledger)
    raw = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError):
        raw.execute(statement)
    raw.close()
    assert ledger.verify().entries == 4


def test_the_same_row_is_taken_when_it_follows(ledger: Ledger, path: Path) -> None:
    """So the refusals above are for the one flaw that each row has."""
    charge(ledger)
    draw(ledger)
    publish(ledger)
    raw = sqlite3.connect(path)
    fresh = COPIED.replace("kind", "'other'")
    assert raw.execute(f"INSERT INTO entries SELECT 5, {fresh} {LAST}").rowcount == 1
    raw.close()


@pytest.mark.parametrize(
    "assignment",
    [
        "body = replace(body, '0.1', '0.01')",
        "body = replace(body, ',', ', ')",
        "body = 'no json'",
        "body = CAST(x'ff' AS TEXT)",
        "body = CAST(body AS BLOB)",
        "kind = 'publish'",
        "previous = hash",
        "hash = previous || 'x'",
        "hash = upper(hash)",
        "sequence = 40",
        "dataset = 'other'",
        "run_id = NULL",
        "run_id = 'other'",
    ],
)
@pytest.mark.parametrize("sequence", [2, 3])
def test_verify_names_the_entry_that_was_changed(
    ledger: Ledger, path: Path, assignment: str, sequence: int
) -> None:
    for number in range(1, 4):
        charge(ledger, f"run-{number}")
    assert ledger.verify().entries == 4
    tamper(path, f"UPDATE entries SET {assignment} WHERE sequence = {sequence}")
    for attempt in (ledger.verify, ledger.state, lambda: ledger.account("census")):
        with pytest.raises(LedgerIntegrityError) as caught:
            attempt()
        assert caught.value.sequence == sequence
        assert_plain(caught.value)


@pytest.mark.parametrize(
    "assignment",
    ["body = replace(body, '0.1', '0.01')", "body = 'no json'", "kind = 'refund'", "hash = 'x'"]
    + ["dataset = 'other'", "run_id = 'other'", "body = CAST(x'ff' AS TEXT)", "previous = 'x'"],
)
@pytest.mark.parametrize("sequence", [1, 4])
def test_a_charge_notices_what_was_done_to_the_entries_it_reads(
    ledger: Ledger, path: Path, assignment: str, sequence: int
) -> None:
    """The registration, and the last charge, whose balance the next one continues."""
    for number in range(1, 4):
        charge(ledger, f"run-{number}")
    ledger.close()
    tamper(path, f"UPDATE entries SET {assignment} WHERE sequence = {sequence}")
    with Ledger.open(path) as fresh:
        before = rows(path)
        # Under another dataset's name the registration is not found at all.
        hidden = (sequence, assignment) == (1, "dataset = 'other'")
        kinds = (LedgerIntegrityError, UnregisteredDatasetError) if hidden else LedgerIntegrityError
        if assignment.startswith("body = replace") and sequence == 1:
            kinds = LedgerError  # nothing was replaced: the registration has no 0.1
            charge(fresh, "run-9")
            return
        with pytest.raises(kinds):
            charge(fresh, "run-9")
        assert rows(path) == before


def rows(path: Path) -> list[Any]:
    """Everything in the table of entries."""
    raw = sqlite3.connect(path)
    raw.text_factory = bytes
    found = raw.execute("SELECT * FROM entries ORDER BY sequence").fetchall()
    raw.close()
    return found


def test_a_removed_entry_is_named(ledger: Ledger, path: Path) -> None:
    for number in range(1, 4):
        charge(ledger, f"run-{number}")
    tamper(path, "DELETE FROM entries WHERE sequence = 2")
    with pytest.raises(LedgerIntegrityError) as caught:
        ledger.verify()
    assert caught.value.sequence == 2


@pytest.mark.parametrize("cut", ["sequence = 3", "sequence > 1"])
def test_an_open_ledger_notices_that_its_end_was_cut_off(
    ledger: Ledger, path: Path, cut: str
) -> None:
    charge(ledger)
    charge(ledger, "run-2")
    charge(ledger, "run-1")  # a repetition of an older entry does not move the anchor back
    tamper(path, f"DELETE FROM entries WHERE {cut}")
    with pytest.raises(LedgerIntegrityError) as caught:
        charge(ledger, "run-3")
    assert caught.value.sequence == 3
    assert_plain(caught.value)


def test_an_open_ledger_notices_that_an_older_copy_was_put_back(ledger: Ledger, path: Path) -> None:
    """The copy is whole, and other entries were written on top of it."""
    charge(ledger)
    tamper(path, "DELETE FROM entries WHERE sequence = 2")
    with Ledger.open(path) as other:
        charge(other, "run-7", epsilon="0.2")
        charge(other, "run-8")
        assert other.verify().entries == 3
    for attempt in (
        lambda: charge(ledger, "run-9"),
        lambda: register(ledger, "new"),
        lambda: ledger.checkpoint(KEY),
    ):
        with pytest.raises(LedgerIntegrityError, match="no longer the one") as caught:
            attempt()
        assert caught.value.sequence == 2
    assert ledger.verify().entries == 3


@pytest.mark.parametrize("changes", [{}, {"dataset": "other"}])
def test_the_anchor_may_be_any_entry(ledger: Ledger, changes: dict[str, Any]) -> None:
    """What this object wrote last is read again, whatever others wrote after it."""
    register(ledger, "other")
    acts = [lambda: charge(ledger, **changes), lambda: charge(ledger, "run-2", **changes)]
    acts += [lambda: ledger.void(run_id="run-2", reason="late", dataset=dataset)]
    dataset = changes.get("dataset", "census")
    for number, act in enumerate(acts):
        act()
        with Ledger.open(ledger.where) as second:
            charge(second, f"more-{number}")
            charge(second, f"most-{number}", dataset="other")
    charge(ledger, "last")
    account = ledger.account("census")
    replayed = sum(c.loss["epsilon"] for c in account.charges.values() if "void" not in c.later)
    assert account.spent["epsilon"] == replayed
    assert ledger.verify().entries == 12


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("DROP TRIGGER entries_no_delete", "entries_no_delete"),
        ("DROP TRIGGER entries_no_update", "entries_no_update"),
        ("DROP TRIGGER entries_follow", "entries_follow"),
        ("CREATE TABLE surplus (a)", "surplus"),
        ("CREATE VIEW surplus AS SELECT 1", "surplus"),
        ("CREATE INDEX surplus ON entries (kind)", "surplus"),
        (
            "CREATE TRIGGER surplus AFTER INSERT ON entries BEGIN SELECT 1; END",
            "surplus",
        ),
        ("DROP INDEX entries_by_run", "entries_by_run"),
        ("DROP INDEX entries_by_dataset", "entries_by_dataset"),
    ],
)
def test_altered_guards_are_noticed_at_opening(
    ledger: Ledger, path: Path, statement: str, named: str
) -> None:
    raw = sqlite3.connect(path)
    raw.execute(statement)
    raw.close()
    for create in (True, False):
        with pytest.raises(LedgerIntegrityError, match=named) as caught:
            Ledger.open(path, create=create)
        assert_plain(caught.value)


def test_a_guard_that_does_less_is_noticed_at_opening(ledger: Ledger, path: Path) -> None:
    raw = sqlite3.connect(path)
    raw.execute("DROP TRIGGER entries_no_delete")
    raw.execute("CREATE TRIGGER entries_no_delete BEFORE DELETE ON entries BEGIN SELECT 1; END")
    raw.close()
    with pytest.raises(LedgerIntegrityError, match="entries_no_delete"):
        Ledger.open(path)


def test_verify_recomputes_what_the_mechanisms_spend(ledger: Ledger) -> None:
    charge(ledger)
    charge(ledger, "run-2", mechanisms=[{"mechanism": "gaussian"}])
    seen: list[str] = []

    def recompute(body: dict[str, Any]) -> Loss:
        seen.append(body["run_id"])
        more = body["mechanisms"][0]["mechanism"] != "laplace"
        return loss("0.11" if more else 0.1, "0.005")

    with pytest.raises(LedgerIntegrityError, match=r"spend epsilon 0\.11 ") as caught:
        ledger.verify(recompute)
    assert caught.value.sequence == 3
    assert_plain(caught.value)
    assert seen == ["run-1", "run-2"]
    assert ledger.verify(lambda body: loss("0.1", "0.005")).entries == 3
    with pytest.raises(LedgerIntegrityError, match="rho"):
        ledger.verify(lambda body: loss("0.1", "0.0051"))


def loss(epsilon: object, rho: object) -> Loss:
    """A loss without deltas."""
    return Loss.of({"epsilon": epsilon, "delta": 0, "rho": rho, "rho_delta": 0})


def test_the_first_flaw_is_named_whatever_its_nature(ledger: Ledger, path: Path) -> None:
    for number in range(1, 4):
        charge(ledger, f"run-{number}")
    tamper(path, "UPDATE entries SET kind = 'x' WHERE sequence = 3")
    for spent, sequence in ((loss(1, 0), 2), (loss(0, 0), 3)):
        with pytest.raises(LedgerIntegrityError) as caught:
            ledger.verify(lambda body, spent=spent: spent)
        assert caught.value.sequence == sequence


@pytest.mark.parametrize("runs", [1, 501])
def test_a_kept_error_does_not_hold_the_ledger_at_an_old_moment(path: Path, runs: int) -> None:
    """An error carries its traceback, and the traceback a cursor that is half read."""
    entries = 2 * runs + 2
    with Ledger.open(path) as ledger:
        ledger.restore(iter(long_history(runs)))
        with pytest.raises(LedgerIntegrityError) as kept:
            ledger.verify(lambda body: loss(1, 1))
        with Ledger.open(path) as other:
            charge(other, "last")
            assert other.verify().entries == entries
        assert ledger.verify().entries == entries
        assert len(list(ledger.entries())) == entries
    assert kept.value.sequence == 2
