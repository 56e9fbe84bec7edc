"""The head of the ledger goes where it is kept, after every deployed release; none fails for it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from census_ledger import register
from followed_runs import Follower, deploy, fail
from ledger_damage import cut_back

from statpress.mechanisms.errors import (
    LedgerError,
    LedgerIntegrityError,
    LedgerUnavailableError,
    UploadError,
)
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.ledger.export import read_head
from statpress.tasks.ledger.home_ledger import open_ledger
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.upkeep.checkup import HEAD_TO, examine, needing_attention
from statpress.tasks.uploads.heads import destination, send_head


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.folder("")
    with open_ledger(made, create=True) as ledger:
        register(ledger)
    return made


def test_a_file_holds_the_last_head_for_all_to_read(home: Home, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere.json"
    first = send_head(home, destination(str(place)))
    assert (first.where, first.entries) == (str(place), 1)
    assert read_head(place) == first.head and place.stat().st_mode & 0o777 == 0o644
    with open_ledger(home) as ledger:
        later = ledger.amend(dataset="census", epsilon="2", reason="later")
    assert send_head(home, destination(str(place))).head == later.hash == read_head(place)


def test_a_ledger_that_was_cut_back_replaces_no_head(home: Home, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere.json"
    send_head(home, destination(str(place)))
    with open_ledger(home) as ledger:
        ledger.amend(dataset="census", epsilon="2", reason="later")
        entries = list(ledger.entries())
    send_head(home, destination(str(place)))
    kept = place.read_bytes()
    for name in ("", "-wal", "-shm"):
        Path(f"{home.ledger}{name}").unlink(missing_ok=True)
    shutil.rmtree(home.root / "heads")  # whoever cut the ledger back could change the home as well
    with Ledger.open(home.ledger) as ledger:
        ledger.restore(iter(entries[:1]))
    with pytest.raises(LedgerIntegrityError, match="of entry 2, which is kept there"):
        send_head(home, destination(str(place)))
    assert place.read_bytes() == kept


def test_something_else_is_never_replaced(home: Home, tmp_path: Path) -> None:
    place = tmp_path / "letter.txt"
    for text in (b"Dear all,", b"\xff\xfe", b"[]", b'{"head": 1}', b""):
        place.write_bytes(text)
        with pytest.raises(LedgerError):
            send_head(home, destination(str(place)))
        assert place.read_bytes() == text
    with pytest.raises(LedgerUnavailableError, match="Is a directory"):
        send_head(home, destination(str(tmp_path)))
    with pytest.raises(LedgerUnavailableError, match="No such file"):
        send_head(home, destination(str(tmp_path / "nowhere" / "head.json")))


@pytest.mark.parametrize("text", ["", "https://user:secret@host/x", "s3://key:secret@bucket/x"])
def test_what_is_not_a_place_is_refused_without_its_password(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(HEAD_TO, raising=False)
    with pytest.raises(LedgerUnavailableError) as caught:
        destination(text)
    assert "secret" not in str(caught.value) and caught.value.next_step


def test_the_environment_names_a_file_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert destination("head.json").where == str(tmp_path / "head.json")
    monkeypatch.setenv(HEAD_TO, "head.json")  # another file in every folder
    with pytest.raises(LedgerUnavailableError, match="not a place"):
        destination(None)
    monkeypatch.setenv(HEAD_TO, str(tmp_path / "head.json"))
    assert destination(None).where == str(tmp_path / "head.json")


@pytest.fixture
def released(agency: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The deployed release of an agency with budget for several."""
    agency.amend(epsilon="9")
    agency.replace(", name: first", "")
    return deploy(agency, monkeypatch)


def test_a_deployed_release_is_followed_by_a_verification_and_the_head(
    agency: Any, released: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "elsewhere.json"
    released()
    with open_ledger(agency.home) as ledger:
        assert ledger.memory is not None
        acts = ledger.memory.upkeep()
    assert acts["verified"].head == agency.entries()[-1].hash and "head sent" not in acts
    monkeypatch.setenv(HEAD_TO, str(place))
    released()
    assert read_head(place) == agency.entries()[-1].hash


def test_a_head_that_is_not_sent_fails_no_release_and_is_told(
    agency: Any, released: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = Follower()
    monkeypatch.setenv(HEAD_TO, str(tmp_path / "nowhere" / "head.json"))
    assert verify_bundle(Path(released(follower)))["publishable"] is True
    monkeypatch.setenv(HEAD_TO, "~nobody-of-this-name/head.json")  # an error of Python's
    assert verify_bundle(Path(released(follower)))["publishable"] is True
    told = [text for text in follower.told if "was not sent" in text]
    assert len(told) == 2 and "No such file" in told[0] and "RuntimeError" in told[1]
    logs = [path.read_text() for path in (agency.home.root / "curator").glob("*.log")]
    assert sum("The head of the ledger was not sent" in text for text in logs) == 2
    late = agency.entries()[0].body["created"]
    found = needing_attention(
        examine(agency.home, datetime.fromisoformat(late) + timedelta(days=3))
    )
    assert "head" in {each.check for each in found}


def test_a_ledger_that_does_not_hold_after_a_release_is_an_error_and_the_bundle_stands(
    agency: Any, released: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "elsewhere.json"
    place.write_text(json.dumps({"format": "statpress-ledger/1", "entries": 1, "head": "a" * 64}))
    monkeypatch.setenv(HEAD_TO, str(place))
    with pytest.raises(LedgerIntegrityError, match="which is kept there"):
        released()
    assert len(agency.bundles()) == 1
    lost = Follower("verify ledger", lambda: cut_back(agency.home, 2))
    with pytest.raises(
        LedgerError, match=r"could not be verified\. The release before that stands"
    ):
        released(lost)
    assert len(agency.bundles()) == 2


def test_a_release_whose_upload_fails_is_verified_too(
    agency: Any, released: Callable[..., Any]
) -> None:
    with pytest.raises(UploadError):
        released(Follower("read config", fail(UploadError("A target is away."))))
    with open_ledger(agency.home) as ledger:
        assert ledger.memory is not None and "verified" in ledger.memory.upkeep()
