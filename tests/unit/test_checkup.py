"""The checkup: each thing that is wrong is found by its own check, and nothing private is said."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from census_ledger import charge, draw, register
from prepared import Office

from statpress.flows.cli import app, status_of
from statpress.mechanisms.errors import CheckupError
from statpress.tasks.ledger.export import write_export
from statpress.tasks.ledger.home_ledger import open_ledger
from statpress.tasks.orchestration import server
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.private_zone.guards import CuratorLog
from statpress.tasks.private_zone.run_context import RunContext
from statpress.tasks.release.ledger_check import verify_ledger
from statpress.tasks.upkeep import checkup
from statpress.tasks.upkeep.checkup import Finding, examine, needing_attention

DAY = timedelta(days=1)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home in order: its ledger is verified and exported."""
    made = Home(tmp_path / "home")
    made.folder("curator")
    with open_ledger(made, create=True) as ledger:
        register(ledger)
        write_export(ledger, tmp_path / "export.jsonl")
    verify_ledger(made)
    return made


def wrong(home: Home, **given: Any) -> dict[str, str]:
    """What is wrong, by check."""
    return {
        each.check: f"{each.what} {each.next_step}"
        for each in needing_attention(examine(home, **given))
    }


def noted(home: Home) -> dict[str, Finding]:
    return {each.check: each for each in examine(home) if each.verdict == "note"}


def after(days: float) -> datetime:
    return datetime.now(UTC) + days * DAY


def test_nothing_is_wrong_with_a_home_in_order(home: Home) -> None:
    assert wrong(home) == {}
    checks = {each.check for each in examine(home)}
    assert checks >= {"modes", "space", "ledger", "database", "clock", "verification", "export"}


@pytest.mark.parametrize(("mode", "found"), [(0o711, "modes"), (0o750, ""), (0o700, "")])
def test_a_home_that_others_may_enter(home: Home, mode: int, found: str) -> None:
    home.root.chmod(mode)
    assert set(wrong(home)) == ({found} if found else set())
    assert ("modes" in noted(home)) == (mode == 0o750)


@pytest.mark.parametrize("name", ["ledger.sqlite", "curator/a.log", "drawn", "work"])
def test_a_file_that_others_may_read(home: Home, name: str) -> None:
    place = home.root / name
    if place.suffix:
        place.touch(0o600)
    else:
        home.folder(name)
    assert wrong(home) == {}
    place.chmod(0o604 if place.suffix else 0o705)
    assert f"{place} (0{place.stat().st_mode & 0o777:o})" in wrong(home)["modes"]


def test_a_home_of_another_user(home: Home) -> None:
    other = home.root.stat().st_uid + 1
    assert "belongs to another user" in wrong(home, user=other)["modes"]
    found = {each.check for each in examine(home, user=other)}
    assert found == {"modes", "space"}  # nothing was opened
    home.root.chmod(0o770)
    assert "ledger" in {each.check for each in examine(home, user=other)}


def test_a_clock_that_went_back(home: Home) -> None:
    assert "has an entry of" in wrong(home, now=after(-1))["clock"]
    assert "clock" not in wrong(home, now=datetime.now(UTC) - checkup.SKEW / 2)


def test_a_disk_that_is_nearly_full(home: Home) -> None:
    assert set(wrong(home, least_space=2**62)) == {"space"}
    assert checkup.LEAST_SPACE == 2**30


def test_a_verification_and_an_export_that_are_overdue(home: Home, tmp_path: Path) -> None:
    assert "export" not in wrong(home, now=after(3))  # the copy has every entry
    with open_ledger(home) as ledger:
        charge(ledger)
    assert set(wrong(home, now=after(1))) == set()
    assert set(wrong(home, now=after(3))) == {"export"}
    assert set(wrong(home, now=after(33))) == {"export", "verification"}
    with open_ledger(home) as ledger:
        write_export(ledger, tmp_path / "export.jsonl")
    assert set(wrong(home, now=after(33))) == {"verification"}


def test_what_a_home_cannot_read_of_its_upkeep_was_not_done(home: Home) -> None:
    (kept,) = (home.root / "upkeep").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    for text in ("{}", "[]", '{"acts": {"verified": {"at": "2020-01-01"}}}', "\x00"):
        kept.write_text(text)
        assert {"verification", "export"} <= noted(home).keys()
    shutil.rmtree(kept.parent)  # a home of an earlier version has none
    assert set(wrong(home)) == set()
    assert set(wrong(home, now=after(33))) == {"export", "verification"}


def test_a_ledger_that_is_missing_damaged_or_cut_back(home: Home) -> None:
    with open_ledger(home) as ledger:
        charge(ledger)
        draw(ledger)
    whole = home.root / "ledger.sqlite"
    kept = whole.read_bytes()
    whole.write_bytes(kept[:5000])
    assert "ledger" in wrong(home)
    for name in ("", "-wal", "-shm"):
        Path(f"{whole}{name}").unlink(missing_ok=True)
    assert "There is no ledger here" in wrong(home)["ledger"]
    with open_ledger(home, create=True) as ledger:
        pass
    assert "The ledger is empty" in wrong(home)["ledger"]
    shutil.rmtree(home.root)
    assert {"modes", "ledger"} == wrong(home).keys()


def test_a_dataset_that_its_looks_closed(home: Home) -> None:
    with open_ledger(home) as ledger:
        register(ledger, "small", max_looks=1)
        ledger.look(run="r" * 32, dataset="small", config_sha256="a" * 64, gates="exact")
    assert "small" in wrong(home)["looks"] and "--reopen" in wrong(home)["looks"]


def test_what_waits_and_what_is_unfinished_is_noted(tmp_path: Path) -> None:
    office = Office(tmp_path)
    with open_ledger(office.home) as ledger:
        register(ledger, "other")
        charge(ledger, "later", dataset="other")
    found = noted(office.home)
    assert "ab" * 16 in found["review"].what and "waits for a decision" in found["review"].what
    assert "later" in found["unfinished"].what
    assert wrong(office.home).keys() <= {"modes"}  # which the test's umask decides


@pytest.fixture
def press(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """The command in this process: exit code and output."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)

    def run(*words: str) -> tuple[int, str]:
        given = [*words, "--home", str(home.root)]
        code = status_of(lambda: app(given, exit_on_error=False), as_json="--json" in words)
        return code, capsys.readouterr().out

    return run


def test_the_command_says_all_and_ends_with_its_own_code(
    home: Home, press: Callable[..., tuple[int, str]]
) -> None:
    code, out = press("doctor", "--json")
    facts = json.loads(out)
    assert (code, facts["healthy"]) == (0, True)
    assert {"check": "server", "verdict": "note"}.items() <= facts["findings"][-1].items()
    home.root.chmod(0o755)
    code, out = press("doctor", "--json")
    facts = json.loads(out)
    assert (code, facts["healthy"]) == (CheckupError.exit_code, False)
    code, out = press("doctor")
    assert code == CheckupError.exit_code and out.rstrip().splitlines()[-2].startswith("wrong ")


def test_the_deployed_checkup_names_checks_and_tells_the_curator_the_rest(home: Home) -> None:
    from statpress.flows.deployed import confirm_installation

    context = RunContext(home=home, log=CuratorLog(home.folder("curator"), "c" * 32))
    with context.steps():
        confirm_installation(context)
    home.root.chmod(0o711)
    with context.steps(), pytest.raises(CheckupError, match=r"attention: modes\.") as caught:
        confirm_installation(context)
    assert str(home.root) not in caught.value.what
    assert f"{home.root} (0711)" in context.log.path.read_text()


def test_a_server_that_does_not_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: "http://user:secret@127.0.0.1:9/api"}):
        (found,) = server.examine_server()
    assert found.verdict == "wrong" and "does not answer" in found.what
    assert "secret" not in f"{found.what}{found.next_step}"
