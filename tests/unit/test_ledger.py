"""The ledger on disk: what it keeps, refuses and says when the file is at fault."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from mechanisms.errors import (
    AlreadyRegisteredError,
    AmountError,
    InsufficientBudgetError,
    LedgerError,
    LedgerIntegrityError,
    LedgerUnavailableError,
    StatpressError,
    UnregisteredDatasetError,
)
from tasks import ledger_file
from tasks.amounts import Loss
from tasks.ledger import Ledger, Verification

TERMS: dict[str, Any] = {
    "adjacency": "replace_one",
    "unit": "record",
    "unit_records": 1,
    "n_records": 1000,
}


def register(ledger: Ledger, dataset: str = "census", **changes: Any) -> Any:
    return ledger.register(
        **{"dataset": dataset, "epsilon": 1, "delta": "1e-8", **TERMS, **changes}
    )


def charge(ledger: Ledger, run_id: str = "run-1", **changes: Any) -> Any:
    fields = {"dataset": "census", "run_id": run_id, "epsilon": 0.1, "delta": 0, **TERMS}
    fields |= {"mechanisms": [{"mechanism": "laplace", "edges": (1, 2)}], "version": "0.1.0"}
    fields |= {"config_sha256": "a" * 64, "insecure_seed": False}
    return ledger.charge(**{**fields, **changes})


def publish(ledger: Ledger, run_id: str = "run-1", **changes: Any) -> Any:
    fields = {"run_id": run_id, "dataset": "census", "bundle": "releases/one"}
    return ledger.publish(**{**fields, "manifest_sha256": "b" * 64, **changes})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "private" / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    """A ledger with census registered."""
    with Ledger.open(path) as opened:
        register(opened)
        yield opened


def assert_plain(error: StatpressError) -> None:
    """The message is ours, and nothing of the database rides along."""
    assert error.__context__ is None
    assert error.__cause__ is None
    for word in ("sqlalchemy", "Traceback", "sqlite3.", "(Background"):
        assert word not in str(error)
    assert error.where
    assert error.next_step


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- opening --------------------------------------------------------------------


def test_a_new_ledger_is_for_its_owner_alone(ledger: Ledger, path: Path) -> None:
    assert mode(path.parent) == 0o700
    assert {mode(file) for file in path.parent.iterdir()} == {0o600}
    assert len(list(path.parent.iterdir())) == 3  # the ledger, its log and the log's index


def test_it_logs_ahead_and_waits_for_the_disk(ledger: Ledger, path: Path) -> None:
    with ledger._writer.begin() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 30_000


def test_path_text_and_address_name_the_same_ledger(ledger: Ledger, path: Path) -> None:
    for location in (str(path), f"sqlite:///{path}", f"sqlite+pysqlite:///{path}"):
        with Ledger.open(location, create=False) as same:
            assert same.path == path
            assert list(same.accounts()) == ["census"]


@pytest.mark.parametrize("name", ["a b.db", "50%.db", "what?mode=ro.db", "a#b.db", "ü.db"])
def test_any_file_name_will_do(tmp_path: Path, name: str) -> None:
    with Ledger.open(tmp_path / name) as made:
        register(made)
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    "address",
    ["postgresql://press:secret@host/db", "sqlite://", "sqlite:///:memory:", "x://y:z:w"]
    + ["sqlite:///a.db?mode=memory", "sqlite+aiosqlite:///a.db", "://"],
)
def test_other_databases_are_refused(address: str) -> None:
    with pytest.raises(LedgerUnavailableError, match="SQLite file") as caught:
        Ledger.open(address)
    assert_plain(caught.value)
    assert "secret" not in str(caught.value)


def test_reading_a_missing_ledger_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailableError, match="There is no ledger here") as caught:
        Ledger.open(tmp_path / "sub" / "ledger.db", create=False)
    assert_plain(caught.value)
    assert "ledger register" in caught.value.next_step
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_becomes_a_ledger_only_when_asked(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    file.touch()
    with pytest.raises(LedgerUnavailableError, match="empty"):
        Ledger.open(file, create=False)
    assert file.stat().st_size == 0
    with Ledger.open(file) as made:
        register(made)


def test_reading_leaves_every_byte_as_it_was(ledger: Ledger, path: Path, tmp_path: Path) -> None:
    charge(ledger)
    # A copy taken mid-flight has its last entries in the log alone, as after a crash.
    copy = tmp_path / "copy"
    shutil.copytree(path.parent, copy)
    watched = [copy / "ledger.db", copy / "ledger.db-wal"]
    before = [file.read_bytes() for file in watched]
    assert len(before[1]) > 0
    for create in (False, True):
        with Ledger.open(copy / "ledger.db", create=create) as reader:
            assert reader.verify().entries == 2
            assert len(list(reader.entries())) == 2
            assert reader.account("census").spent.epsilon == Decimal("0.1")
        assert [file.read_bytes() for file in watched] == before
    ledger.close()
    before = [path.read_bytes()]
    with Ledger.open(path, create=False) as reader:
        assert reader.verify().entries == 2
    assert [path.read_bytes()] == before


# --- writing --------------------------------------------------------------------


def test_accounts_are_exact_and_survive_reopening(ledger: Ledger, path: Path) -> None:
    register(ledger, "other", epsilon="0.30", delta=0)
    for number in range(10):
        charge(ledger, f"run-{number}", delta="1e-9")
    publish(ledger, "run-3")
    ledger.close()
    with Ledger.open(path, create=False) as again:
        account = again.account("census")
        assert account.limit == account.spent == Loss(Decimal(1), Decimal("1e-8"))
        assert account.remaining == Loss(Decimal(0), Decimal(0))
        assert [run for run, c in account.charges.items() if c.published] == ["run-3"]
        assert list(account.charges) == [f"run-{number}" for number in range(10)]
        assert account.charges["run-0"].loss == Loss(Decimal("0.1"), Decimal("1e-9"))
        assert list(again.accounts()) == ["census", "other"]
        assert again.account("other").limit == Loss(Decimal("0.3"), Decimal(0))
        with pytest.raises(InsufficientBudgetError):
            charge(again, "one-more", epsilon="1e-300")
        kinds = ["register", "register", *["charge"] * 10, "publish"]
        assert [entry.kind for entry in again.entries()] == kinds
        assert again.verify() == Verification(13, again.state().head)


def test_a_returned_entry_is_the_stored_one(ledger: Ledger) -> None:
    entry = charge(ledger, mechanisms=[{"edges": (1, 2), "name": "é"}])
    assert entry == list(ledger.entries())[-1]
    assert entry.body["mechanisms"] == [{"edges": [1, 2], "name": "é"}]
    assert entry.body["created"].endswith("+00:00")


def test_charge_and_publish_may_be_repeated(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, published = charge(ledger), publish(ledger)
    later = ledger_clock("2099-01-01T00:00:00+00:00")
    monkeypatch.setattr("tasks.ledger.datetime", later)
    assert charge(ledger, epsilon="0.10") == first
    assert publish(ledger) == published
    assert ledger.verify().entries == 3
    assert charge(ledger, "run-2").body["created"] == later.TEXT
    with pytest.raises(LedgerError, match="differs in delta, epsilon"):
        charge(ledger, epsilon="0.2", delta="1e-9")
    with pytest.raises(LedgerError, match="differs in manifest_sha256"):
        publish(ledger, manifest_sha256="c" * 64)
    assert ledger.verify().entries == 4


def ledger_clock(text: str) -> Any:
    """A stand-in for datetime whose now is this text."""

    class Clock:
        TEXT = text

        @classmethod
        def now(cls, zone: object) -> Any:
            return cls

        @classmethod
        def isoformat(cls, timespec: str) -> str:
            return cls.TEXT

    return Clock


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"epsilon": float("nan")}, AmountError),
        ({"epsilon": "1.1"}, InsufficientBudgetError),
        ({"dataset": "other"}, UnregisteredDatasetError),
        ({"mechanisms": [{"scale": 0.5}]}, AmountError),
        ({"run_id": ["run"]}, LedgerError),
        ({"run_id": None}, LedgerError),
    ],
)
def test_a_refusal_writes_nothing(
    ledger: Ledger, changes: dict[str, Any], kind: type[StatpressError]
) -> None:
    before = ledger.verify()
    with pytest.raises(kind) as caught:
        charge(ledger, **changes)
    assert_plain(caught.value)
    assert ledger.verify() == before
    charge(ledger)
    assert ledger.verify().entries == 2


def test_a_dataset_is_registered_once(ledger: Ledger) -> None:
    with pytest.raises(AlreadyRegisteredError, match="n_records 1000") as caught:
        register(ledger)
    assert_plain(caught.value)
    with pytest.raises(UnregisteredDatasetError, match="other"):
        ledger.account("other")


def test_two_ledgers_of_one_file_see_each_other(ledger: Ledger, path: Path) -> None:
    with Ledger.open(path) as second:
        charge(ledger, "run-1", epsilon="0.6")
        with pytest.raises(InsufficientBudgetError) as caught:
            charge(second, "run-2", epsilon="0.5")
        assert caught.value.remaining.epsilon == Decimal("0.4")
        charge(second, "run-3", epsilon="0.4")
        with pytest.raises(InsufficientBudgetError):
            charge(ledger, "run-4", epsilon="1e-9")


def test_threads_share_a_ledger(ledger: Ledger) -> None:
    outcomes: list[str] = []

    def spend(worker: int) -> None:
        for number in range(4):
            try:
                charge(ledger, f"run-{worker}-{number}")
                outcomes.append("charged")
            except InsufficientBudgetError:
                outcomes.append("refused")

    threads = [threading.Thread(target=spend, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["charged"] * 10 + ["refused"] * 6
    assert ledger.account("census").remaining.epsilon == 0


def test_a_reader_does_not_hold_up_a_charge(ledger: Ledger) -> None:
    charge(ledger)
    seen = ledger.entries()
    assert next(seen).kind == "register"
    charge(ledger, "run-2")
    assert len(list(seen)) == 1  # as of the moment reading began
    assert ledger.verify().entries == 3


# --- tampering ------------------------------------------------------------------


def tamper(path: Path, *statements: str) -> None:
    """Do to the file what the triggers would refuse, and put the triggers back."""
    raw = sqlite3.connect(path, isolation_level=None)
    for name in ledger_file._TRIGGERS:
        raw.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        assert raw.execute(statement).rowcount > 0
    for trigger in ledger_file._TRIGGERS.values():
        raw.execute(trigger)
    raw.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET kind = 'refund'",
        "UPDATE entries SET body = '{}' WHERE sequence = 2",
        "DELETE FROM entries WHERE sequence = 3",
        "INSERT INTO entries VALUES (9, 'charge', '{}', 'x', 'y')",
        "INSERT INTO entries VALUES (4, 'charge', '{}', 'x', 'y')",
        "INSERT INTO entries SELECT 9, kind, body, hash, 'y' FROM entries WHERE sequence = 3",
        "REPLACE INTO entries SELECT 3, kind, body, previous, 'y' FROM entries WHERE sequence = 3",
        """REPLACE INTO entries SELECT 4, kind, body,
        (SELECT hash FROM entries WHERE sequence = 3), hash FROM entries WHERE sequence = 1""",
    ],
)
def test_the_database_refuses_all_but_the_next_entry(
    ledger: Ledger, path: Path, statement: str
) -> None:
    charge(ledger)
    publish(ledger)
    raw = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError):
        raw.execute(statement)
    raw.close()
    assert ledger.verify().entries == 3


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
    with Ledger.open(path) as fresh, pytest.raises(LedgerIntegrityError) as caught:
        charge(fresh, "run-9")
    assert caught.value.sequence == sequence


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
    charge(ledger, "run-2")  # a repetition replays what the first attempt wrote
    tamper(path, f"DELETE FROM entries WHERE {cut}")
    with pytest.raises(LedgerIntegrityError) as caught:
        charge(ledger, "run-3")
    assert caught.value.sequence == 3


def test_missing_guards_are_noticed_at_opening(ledger: Ledger, path: Path) -> None:
    raw = sqlite3.connect(path)
    raw.execute("DROP TRIGGER entries_no_delete")
    raw.close()
    with pytest.raises(LedgerIntegrityError, match="entries_no_delete") as caught:
        Ledger.open(path)
    assert_plain(caught.value)


def test_verify_recomputes_what_the_mechanisms_spend(ledger: Ledger) -> None:
    charge(ledger)
    charge(ledger, "run-2", mechanisms=[{"mechanism": "gaussian"}])
    seen: list[str] = []

    def recompute(body: dict[str, Any]) -> tuple[object, object]:
        seen.append(body["run_id"])
        return (0.1, 0) if body["mechanisms"][0]["mechanism"] == "laplace" else ("0.11", 0)

    with pytest.raises(LedgerIntegrityError, match=r"spend epsilon 0\.11 ") as caught:
        ledger.verify(recompute)
    assert caught.value.sequence == 3
    assert_plain(caught.value)
    assert seen == ["run-1", "run-2"]
    assert ledger.verify(lambda body: (Decimal("0.1"), 0)).entries == 3


def test_the_first_flaw_is_named_whatever_its_nature(ledger: Ledger, path: Path) -> None:
    for number in range(1, 4):
        charge(ledger, f"run-{number}")
    tamper(path, "UPDATE entries SET kind = 'x' WHERE sequence = 3")
    for loss, sequence in (((1, 0), 2), ((0, 0), 3)):
        with pytest.raises(LedgerIntegrityError) as caught:
            ledger.verify(lambda body, loss=loss: loss)
        assert caught.value.sequence == sequence


# --- faults of the file -----------------------------------------------------------


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no database at all, but long enough to be one\n" * 50)
    database = tmp_path / "other.db"
    raw = sqlite3.connect(database)
    raw.execute("CREATE TABLE entries (a)")
    raw.close()
    for file, words in ((text, "not an SQLite"), (database, "something else")):
        before = file.read_bytes()
        for create in (True, False):
            with pytest.raises(LedgerIntegrityError, match=words) as caught:
                Ledger.open(file, create=create)
            assert_plain(caught.value)
        assert file.read_bytes() == before
    with pytest.raises(LedgerUnavailableError, match="no file") as caught:
        Ledger.open(tmp_path)
    assert_plain(caught.value)


@pytest.mark.parametrize("schema", ["'2'", "NULL"])
def test_another_schema_is_refused(ledger: Ledger, path: Path, schema: str) -> None:
    raw = sqlite3.connect(path)
    raw.execute(f"UPDATE meta SET value = {schema}")
    raw.commit()
    raw.close()
    with pytest.raises(LedgerUnavailableError, match="schema") as caught:
        Ledger.open(path)
    assert_plain(caught.value)


def test_a_damaged_file_is_reported(ledger: Ledger, path: Path) -> None:
    for number in range(9):
        charge(ledger, f"run-{number}", mechanisms=[{"note": "x" * 4000}])
    ledger.close()
    raw = bytearray(path.read_bytes())
    raw[8192:] = b"\xff" * (len(raw) - 8192)
    path.write_bytes(raw)
    with pytest.raises(LedgerIntegrityError) as caught:
        Ledger.open(path, create=False).verify()
    assert_plain(caught.value)


def test_a_locked_ledger_is_unavailable_after_a_while(
    ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_file, "BUSY_SECONDS", 0.1)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with Ledger.open(path) as hasty:
        with pytest.raises(LedgerUnavailableError, match="locked") as caught:
            charge(hasty)
        assert_plain(caught.value)
        assert hasty.verify().entries == 1  # reading goes on
        holder.execute("ROLLBACK")
        holder.close()
        charge(hasty)


@pytest.mark.parametrize(("code", "tries"), [(sqlite3.SQLITE_BUSY, 3), (sqlite3.SQLITE_IOERR, 1)])
def test_the_switch_to_logging_ahead_is_tried_again_when_locked(code: int, tries: int) -> None:
    class Contended:
        calls = 0

        def execute(self, statement: str) -> Contended:
            self.calls += 1
            if self.calls < 3:
                error = sqlite3.OperationalError()
                error.sqlite_errorcode = code
                raise error
            return self

        def fetchone(self) -> None:
            return None

    raw: Any = Contended()
    if tries == 1:
        with pytest.raises(sqlite3.OperationalError):
            ledger_file._log_ahead(raw)
    else:
        ledger_file._log_ahead(raw)
    assert raw.calls == tries


def test_a_full_disk_is_reported_and_spends_nothing(ledger: Ledger, path: Path) -> None:
    def shrink(raw: sqlite3.Connection, _record: object) -> None:
        raw.execute("PRAGMA max_page_count = 1")  # of what the file has already

    event.listen(Engine, "connect", shrink)
    try:
        with Ledger.open(path) as full:
            with pytest.raises(LedgerUnavailableError, match="no space") as caught:
                charge(full, mechanisms=[{"note": "x" * 100_000}])
            assert_plain(caught.value)
            assert full.verify().entries == 1
    finally:
        event.remove(Engine, "connect", shrink)


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder of a user whom permissions bind."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    user = os.geteuid()
    if user == 0:
        os.chown(folder, 65534, 65534)
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if user == 0:
            os.seteuid(0)
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_read_only_file_is_reported(unprivileged: Path) -> None:
    file = unprivileged / "ledger.db"
    with Ledger.open(file) as made:
        register(made)
    file.chmod(0o400)
    with Ledger.open(file) as reader:
        with pytest.raises(LedgerUnavailableError, match="cannot be written") as caught:
            charge(reader)
        assert_plain(caught.value)
        assert reader.verify().entries == 1


def test_a_read_only_folder_is_reported(unprivileged: Path) -> None:
    unprivileged.chmod(0o555)
    for path in (unprivileged / "ledger.db", unprivileged / "sub" / "ledger.db"):
        with pytest.raises(LedgerUnavailableError, match="cannot be made") as caught:
            Ledger.open(path)
        assert_plain(caught.value)
    unprivileged.chmod(0o755)
    with Ledger.open(unprivileged / "ledger.db") as made:
        register(made)
    unprivileged.chmod(0o555)
    with pytest.raises(LedgerUnavailableError, match="cannot be written") as caught:
        Ledger.open(unprivileged / "ledger.db")
    assert_plain(caught.value)


def test_a_forked_process_has_to_open_its_own(ledger: Ledger, monkeypatch: Any) -> None:
    monkeypatch.setattr("tasks.ledger.os.getpid", lambda: -1)
    for attempt in (ledger.verify, lambda: charge(ledger), lambda: next(ledger.entries())):
        with pytest.raises(LedgerUnavailableError, match="another process"):
            attempt()


def test_entries_reports_a_fault_like_the_rest(ledger: Ledger, path: Path) -> None:
    ledger.close()
    path.unlink()
    with pytest.raises(LedgerUnavailableError, match="cannot be opened") as caught:
        next(ledger.entries())
    assert_plain(caught.value)
