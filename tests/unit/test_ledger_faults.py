"""What the ledger says when its file is at fault: one error class for each cause."""

from __future__ import annotations

import fcntl
import itertools
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from census_ledger import assert_plain, charge, register
from privileges import held_to_modes
from sqlalchemy import Engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from statpress.mechanisms.errors import (
    LedgerError,
    LedgerFullError,
    LedgerIntegrityError,
    LedgerLockedError,
    LedgerReadOnlyError,
    LedgerSchemaError,
    LedgerUnavailableError,
    StatpressError,
)
from statpress.tasks.ledger import store as ledger_sqlite
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.ledger.store import SQLiteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed ledger with census registered."""
    place = tmp_path / "private" / "ledger.db"
    with Ledger.open(place) as made:
        register(made)
    return place


def change(path: Path, *statements: str) -> None:
    """Run statements on the file itself."""
    raw = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        raw.execute(statement)
    raw.close()


def assert_fault(
    attempt: Callable[[], Any], kind: type[StatpressError], said: str
) -> StatpressError:
    """It raises exactly this kind, in our words, with nothing of the database along."""
    with pytest.raises(kind, match=said) as caught:
        attempt()
    error = caught.value
    assert type(error) is kind
    assert_plain(error)
    return error


def test_each_fault_has_its_own_exit_code() -> None:
    kinds = [LedgerError, LedgerIntegrityError, LedgerUnavailableError, LedgerSchemaError]
    kinds += [LedgerLockedError, LedgerFullError, LedgerReadOnlyError]
    assert [kind.exit_code for kind in kinds] == [30, 31, 32, 34, 35, 36, 37]


# --- not a ledger of this version -------------------------------------------------


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no database at all, but long enough to be one\n" * 50)
    database = tmp_path / "other.db"
    change(database, "CREATE TABLE entries (a)")
    for file, words in ((text, "not an SQLite"), (database, "something else")):
        before = file.read_bytes()
        for create in (True, False):
            assert_fault(
                lambda file=file, create=create: Ledger.open(file, create=create),
                LedgerIntegrityError,
                words,
            )
        assert file.read_bytes() == before
        assert_fault(lambda file=file: Ledger.upgrade(file), LedgerIntegrityError, words)
    assert text.read_text().startswith("no database at all")
    assert_fault(lambda: Ledger.open(tmp_path), LedgerUnavailableError, "not a file")


def test_an_empty_or_missing_file_is_no_ledger(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    opened = [lambda: Ledger.open(file, create=False), lambda: Ledger.upgrade(file)]
    for attempt in opened:
        assert_fault(attempt, LedgerUnavailableError, "no ledger here")
    file.touch()
    assert_fault(opened[0], LedgerUnavailableError, "empty")
    assert file.read_bytes() == b""


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE schema_version SET version_num = 'third'", "'third'.*does not know"),
        ("UPDATE schema_version SET version_num = 'first'", "'first'.*does not know"),
        ("UPDATE schema_version SET version_num = ''", "does not know"),
        ("DELETE FROM schema_version", "does not know"),
        ("INSERT INTO schema_version VALUES ('zzz')", "does not know"),
    ],
)
def test_another_schema_is_refused(path: Path, statement: str, said: str) -> None:
    change(path, statement)
    for create in (True, False):
        assert_fault(
            lambda create=create: Ledger.open(path, create=create), LedgerSchemaError, said
        )
    assert_fault(lambda: Ledger.upgrade(path), LedgerSchemaError, said)


# --- a ledger that cannot be read ---------------------------------------------------


def test_a_damaged_file_is_reported(path: Path) -> None:
    with Ledger.open(path) as ledger:
        for number in range(9):
            charge(ledger, f"run-{number}", mechanisms=[{"note": "x" * 4000}])
    whole = path.read_bytes()
    for damage in (
        whole[:8192] + b"\xff" * (len(whole) - 8192),
        whole[: len(whole) // 2],
        whole[:100] + b"\xff" * 3996 + whole[4096:],
    ):
        path.write_bytes(damage)
        assert_fault(lambda: read_all(path), LedgerIntegrityError, "damaged")
        assert path.read_bytes() == damage


def read_all(path: Path) -> None:
    """Open and verify."""
    with Ledger.open(path, create=False) as ledger:
        ledger.verify()


def test_entries_reports_a_fault_like_the_rest(path: Path) -> None:
    with Ledger.open(path) as ledger:
        ledger.close()
        path.unlink()
        for attempt in (lambda: next(ledger.entries()), ledger.verify, lambda: charge(ledger)):
            assert_fault(attempt, LedgerUnavailableError, "cannot be opened")
        assert not path.exists()


def test_a_forked_process_has_to_open_its_own(path: Path) -> None:
    with Ledger.open(path) as ledger:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for act in (ledger.verify, lambda: charge(ledger), lambda: next(ledger.entries())):
                    assert_fault(act, LedgerUnavailableError, "another process")
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert ledger.verify().entries == 1


# --- a ledger that cannot be written ------------------------------------------------


def test_a_locked_ledger_is_reported_after_a_while(path: Path) -> None:
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with Ledger.open(path, patience=0.1) as hasty:
        assert_fault(lambda: charge(hasty), LedgerLockedError, "locked")
        assert hasty.verify().entries == 1  # reading goes on
        holder.execute("ROLLBACK")
        holder.close()
        charge(hasty)
        assert hasty.verify().entries == 2


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
            ledger_sqlite._log_ahead(raw, 30)
    else:
        ledger_sqlite._log_ahead(raw, 30)
    assert raw.calls == tries


def test_a_full_disk_is_reported_and_spends_nothing(path: Path) -> None:
    def shrink(raw: sqlite3.Connection, _record: object) -> None:
        raw.execute("PRAGMA max_page_count = 1")  # of what the file has already

    event.listen(Engine, "connect", shrink)
    try:
        with Ledger.open(path) as full:
            huge = [{"note": "x" * 100_000}]
            assert_fault(lambda: charge(full, mechanisms=huge), LedgerFullError, "no space")
            assert full.verify().entries == 1
            assert full.account("census").charges == {}
    finally:
        event.remove(Engine, "connect", shrink)
    with Ledger.open(path) as roomy:
        charge(roomy, mechanisms=huge)
        assert roomy.verify().entries == 2


@pytest.fixture
def unprivileged(tmp_path: Path) -> Iterator[Path]:
    """A folder of a user whom permissions bind."""
    with held_to_modes():
        yield tmp_path
    tmp_path.chmod(0o755)


def test_a_read_only_file_is_reported(unprivileged: Path) -> None:
    file = unprivileged / "ledger.db"
    with Ledger.open(file) as made:
        register(made)
    file.chmod(0o400)
    with Ledger.open(file) as reader:
        assert_fault(lambda: charge(reader), LedgerReadOnlyError, "cannot be written")
        assert reader.verify().entries == 1
    file.chmod(0o000)
    assert_fault(lambda: Ledger.open(file), LedgerUnavailableError, "cannot be opened")


def test_a_read_only_folder_is_reported(unprivileged: Path) -> None:
    unprivileged.chmod(0o555)
    for path in (unprivileged / "ledger.db", unprivileged / "sub" / "ledger.db"):
        assert_fault(lambda path=path: Ledger.open(path), LedgerUnavailableError, "cannot be made")
    unprivileged.chmod(0o755)
    with Ledger.open(unprivileged / "ledger.db") as made:
        register(made)
    unprivileged.chmod(0o555)
    assert_fault(
        lambda: Ledger.open(unprivileged / "ledger.db"), LedgerReadOnlyError, "cannot be written"
    )


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_NOTADB, LedgerIntegrityError),
        (sqlite3.SQLITE_CORRUPT, LedgerIntegrityError),
        (sqlite3.SQLITE_CORRUPT_INDEX, LedgerIntegrityError),
        (sqlite3.SQLITE_CONSTRAINT_TRIGGER, LedgerIntegrityError),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, LedgerIntegrityError),
        (sqlite3.SQLITE_BUSY, LedgerLockedError),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, LedgerLockedError),
        (sqlite3.SQLITE_LOCKED, LedgerLockedError),
        (sqlite3.SQLITE_READONLY, LedgerReadOnlyError),
        (sqlite3.SQLITE_READONLY_DIRECTORY, LedgerReadOnlyError),
        (sqlite3.SQLITE_PERM, LedgerReadOnlyError),
        (sqlite3.SQLITE_FULL, LedgerFullError),
        (sqlite3.SQLITE_CANTOPEN, LedgerUnavailableError),
        (sqlite3.SQLITE_IOERR_FSYNC, LedgerUnavailableError),
        (sqlite3.SQLITE_NOMEM, LedgerUnavailableError),
        (None, LedgerUnavailableError),
    ],
)
def test_each_code_of_sqlite_means_one_kind(code: int | None, kind: type[StatpressError]) -> None:
    cause = sqlite3.OperationalError("detail of the database")
    if code is not None:
        cause.sqlite_errorcode = code
        cause.sqlite_errorname = "SQLITE_NAME"
    store = ledger_sqlite.SQLiteStore(Path("/nowhere/ledger.db"), 30)
    error = DBAPIError("SELECT secret", None, cause)
    found = store.fault(error)
    assert type(found) is kind
    assert found.where == "/nowhere/ledger.db"
    for hidden in ("secret", "detail of the database"):
        assert hidden not in str(found)
    assert store.transient(error) is False
    assert type(store.fault(SQLAlchemyError())) is LedgerUnavailableError


# --- turns of the writers --------------------------------------------------

ROUNDS = 30


def _somebody_waits() -> bool:
    """Whether a thread of this process waits for a lock of a file, as Linux lists it."""
    return any(
        "->" in line and f" {os.getpid()} " in line
        for line in Path("/proc/locks").read_text().splitlines()
    )


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs the list of locks of Linux")
def test_a_writer_that_comes_again_at_once_lets_others_go_first(path: Path) -> None:
    """Its rival, which began to wait before, was let in once in 278 times."""
    order: list[str] = []
    greedy, patient = SQLiteStore(path, 60.0), SQLiteStore(path, 60.0)
    over = threading.Event()

    def wait_again_and_again() -> None:
        while not over.is_set():
            patient.write(lambda _: order.append("patient"))

    def held(_: object) -> None:
        until = time.monotonic() + 2  # only as long if nobody ever waits
        while not _somebody_waits() and time.monotonic() < until:
            time.sleep(0.001)
        order.append("greedy")

    rival = threading.Thread(target=wait_again_and_again)
    rival.start()
    try:
        for _ in range(ROUNDS):
            greedy.write(held)
    finally:
        over.set()
        rival.join()
        greedy.close()
        patient.close()
    turns = sum(pair == ("greedy", "patient") for pair in itertools.pairwise(order))
    assert turns >= ROUNDS - 2


def test_a_turn_that_never_comes_is_not_waited_for(path: Path) -> None:
    """Whoever keeps the folder locked keeps nobody from the ledger, which has its own lock."""
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with Ledger.open(path, patience=0.1) as ledger:
            charge(ledger)
            assert ledger.verify().entries == 2
    finally:
        os.close(descriptor)


def test_a_turn_is_given_back(path: Path) -> None:
    with Ledger.open(path) as ledger:
        charge(ledger)
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(descriptor)


# --- PostgreSQL, without a server ---------------------------------------------------


@pytest.mark.parametrize(
    ("state", "kind", "address"),
    [
        ("23505", LedgerIntegrityError, False),
        ("P0001", LedgerIntegrityError, False),
        ("42501", LedgerReadOnlyError, False),
        ("53100", LedgerFullError, False),
        ("55P03", LedgerLockedError, False),
        ("57P01", LedgerUnavailableError, True),
        ("08006", LedgerUnavailableError, True),
        ("99999", LedgerUnavailableError, False),
        ("", LedgerUnavailableError, True),
    ],
)
def test_each_state_of_postgresql_means_one_kind(
    state: str, kind: type[StatpressError], address: bool
) -> None:
    cause: Any = Exception("detail of the database")
    cause.sqlstate = state
    store: Any = SimpleNamespace(where="postgresql://host/database")
    found = ledger_sqlite.PostgresStore.fault(store, DBAPIError("SELECT secret", None, cause))
    assert type(found) is kind and found.where == store.where
    assert ("STATPRESS_LEDGER" in found.next_step) == address
    assert "secret" not in str(found) and "detail" not in str(found)
