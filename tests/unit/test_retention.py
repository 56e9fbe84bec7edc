"""What a home keeps too long is removed, and what it needs never is."""

from __future__ import annotations

import fcntl
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prepared import OFFICER, RUN, Office

from statpress.flows.deployed import tidy_by_setting
from statpress.mechanisms.errors import ConfigError
from statpress.tasks.ledger.home_ledger import open_ledger
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.private_zone.guards import CuratorLog
from statpress.tasks.private_zone.run_context import RunContext
from statpress.tasks.release.review import decide
from statpress.tasks.upkeep.checkup import examine
from statpress.tasks.upkeep.retention import KEEP_DAYS, kept_days, overdue, tidy

KILLED, BUSY = "c" * 32, "d" * 32
AGE = 40 * 24 * 60 * 60


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with old and new things of every kind, and a bundle that waits."""
    made = Office(tmp_path).home
    for folder in ("curator", "work", "drawn"):
        made.folder(folder)
    for name in ("old.log", "old.html", "new.log", f"{BUSY}.log", "notes.txt"):
        (made.root / "curator" / name).touch(0o600)
    for run in (KILLED, BUSY, "e" * 32):
        (made.root / "work" / run).mkdir(0o700)
        (made.root / "work" / run / "codes").touch(0o600)
    (made.root / "drawn" / RUN).touch(0o600)
    (made.root / ".restoring-x" / "home").mkdir(parents=True)
    young = {made.root / "curator" / "new.log", made.root / "work" / ("e" * 32)}
    now = time.time()  # of the test's clock, which files do not have
    for path in (*made.root.rglob("*"), made.root):
        os.utime(path, (now, now) if path in young else (now - AGE, now - AGE))
    return made


@pytest.fixture(autouse=True)
def busy(home: Home) -> object:
    """A run at work, whose things are old as well."""
    descriptor = os.open(home.root / "work" / BUSY, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield
    os.close(descriptor)


def names(home: Home) -> set[str]:
    return {path.relative_to(home.root).as_posix() for path in home.root.rglob("*")}


def test_only_what_is_old_and_over_is_removed(home: Home) -> None:
    before = names(home)
    removed = {path.relative_to(home.root).as_posix() for path in tidy(home, 30)}
    assert removed == {"curator/old.log", "curator/old.html", f"work/{KILLED}", ".restoring-x"}
    gone = before - names(home)
    assert gone == removed | {f"work/{KILLED}/codes", ".restoring-x/home"}
    assert tidy(home, 30) == []


@pytest.mark.parametrize("days", [1, 30])
def test_a_bundle_that_waits_stays_and_one_that_is_over_goes(home: Home, days: int) -> None:
    later = datetime.now(UTC) + timedelta(days=2 * days)

    def late() -> list[Path]:
        with open_ledger(home) as ledger:
            return overdue(home, ledger.state().charges, days, later.timestamp())

    prepared = home.root / "prepared" / RUN
    assert prepared not in late()
    decide(home, RUN, "reject", reason="no", key=OFFICER)
    assert prepared in late()
    with open_ledger(home) as ledger:
        assert prepared not in overdue(home, ledger.state().charges, days)
        assert prepared not in overdue(home, {}, days, later.timestamp())  # of another ledger


def test_an_approved_bundle_stays_for_ever(home: Home) -> None:
    decide(home, RUN, "approve", reason=None, key=OFFICER)
    with open_ledger(home) as ledger:
        late = overdue(home, ledger.state().charges, 1, time.time() + 1e9)
    assert home.root / "prepared" / RUN not in late
    kept = {path.relative_to(home.root).parts[0] for path in late}
    assert kept <= {"curator", "work", ".restoring-x"}


def test_without_the_setting_nothing_is_removed(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = RunContext(home=home, log=CuratorLog(home.root / "curator", "f" * 32))
    monkeypatch.delenv(KEEP_DAYS, raising=False)
    before = names(home)
    assert kept_days() is None
    with context.steps():
        tidy_by_setting(context)
    assert names(home) == before and "tidy home" not in context.timings
    monkeypatch.setenv(KEEP_DAYS, "30")
    with context.steps():
        tidy_by_setting(context)
    assert "curator/old.log" not in names(home)
    assert f"Removed {home.root}/curator/old.log." in context.log.path.read_text()


@pytest.mark.parametrize("text", ["0", "-3", "x", "1.5", "99999999", "٣"])
def test_a_setting_that_is_no_number_of_days(
    home: Home, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEEP_DAYS, text)
    with pytest.raises(ConfigError):
        kept_days()
    before = names(home)
    context = RunContext(home=home, log=CuratorLog(home.root / "curator", "f" * 32))
    with context.steps():
        tidy_by_setting(context)  # fails no release
    assert names(home) - before == {"curator/" + "f" * 32 + ".log"}
    assert "This is not a number of days" in context.log.path.read_text()
    found = {each.check: each for each in examine(home)}
    assert found["retention"].verdict == "wrong"


def test_the_checkup_names_what_is_overdue(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEEP_DAYS, raising=False)
    (found,) = [each for each in examine(home) if each.check == "retention"]
    assert found.verdict == "note" and KILLED in found.what
    monkeypatch.setenv(KEEP_DAYS, "30")
    late, left = [each for each in examine(home) if each.check == "retention"]
    assert late.verdict == "wrong" and "old.html" in late.what and "and 1 more" in late.what
    assert left.verdict == "note" and "e" * 32 in left.what
    tidy(home, 30)
    (found,) = [each for each in examine(home) if each.check == "retention"]
    assert found.verdict == "note"
