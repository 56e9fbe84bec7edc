"""The drill: a machine is lost, its backup restored elsewhere, and work goes on there.

With a real agency, its ledger in SQLite and in PostgreSQL; what a backup file may do to a home.
"""

from __future__ import annotations

import io
import itertools
import json
import shutil
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from bad_input import CANARY
from prepared import OFFICER

from statpress.flows.release import publish
from statpress.flows.runner import plain_context
from statpress.mechanisms.errors import (
    ApprovalError,
    LedgerError,
    LedgerIntegrityError,
    LedgerUnavailableError,
    OutputNotWritableError,
    StatpressError,
)
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.ledger.accounts import Status
from statpress.tasks.ledger.entries import public_text
from statpress.tasks.ledger.home_ledger import open_ledger
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.release.review import decide, waiting
from statpress.tasks.upkeep import backup
from statpress.tasks.upkeep.backup import back_up, restore
from statpress.tasks.upkeep.checkup import examine, metrics, needing_attention
from statpress.tasks.uploads.heads import destination, send_head

pytestmark = pytest.mark.system
OPEN, KILLED = "c" * 32, "d" * 32


class Installation:
    """An agency with a published run, one that waits, one that is only charged, one killed."""

    def __init__(self, agency: Any, fresh: Callable[[], str | None]) -> None:
        self.agency, self.fresh = agency, fresh
        agency.amend(epsilon="9")
        agency.replace(", name: first", "")
        self.published = agency.run()
        with open_ledger(agency.home) as ledger:
            ledger.set_approvers(dataset="testdata", approvers=[public_text(OFFICER)])
        self.waiting = agency.run()
        self.charge(OPEN)
        codes = agency.home.folder("work") / KILLED / "codes"
        codes.parent.mkdir()
        codes.write_text(CANARY)
        agency.inspector.log.write(CANARY)
        self.file, self.head = agency.folder / "backup.tar.gz", agency.folder / "head.json"

    def charge(self, run_id: str) -> None:
        """Charge what the first run was charged, as a run that stops then."""
        with open_ledger(self.agency.home) as ledger:
            body = ledger.state().charges[self.published.run_id].entry.body
            names = "mechanisms config_sha256 insecure_seed version adjacency unit unit_records"
            names += " n_records epsilon delta rho rho_delta"
            given = {name: body[name] for name in names.split()}
            ledger.charge(dataset="testdata", run_id=run_id, **given)

    def back_up(self) -> None:
        back_up(self.agency.home, self.file)
        send_head(self.agency.home, destination(str(self.head)))

    def elsewhere(self, name: str) -> Home:
        """A new home, and an empty place for its ledger."""
        return Home(self.agency.folder / name, self.fresh())


@pytest.fixture(params=["sqlite", "postgres"])
def lost(request: pytest.FixtureRequest, tmp_path: Path, founded: Callable[..., Any]) -> Any:
    made = founded(tmp_path)

    def fresh() -> str | None:
        return None

    if request.param == "postgres":
        fresh = request.getfixturevalue("postgres_server").database
        made.address = fresh()
        made.register()
    return Installation(made, fresh)


def in_order(home: Home) -> bool:
    """Whether nothing is wrong, by a clock that is not behind that of the first entry."""
    with open_ledger(home) as ledger:
        last = max(datetime.fromisoformat(entry.body["created"]) for entry in ledger.entries())
    return not needing_attention(examine(home, max(last, datetime.now(UTC))))


def status(home: Home, run_id: str) -> Status:
    with open_ledger(home) as ledger:
        return ledger.state().charges[run_id].status


def void(home: Home, run_id: str, key: Any = None) -> None:
    with open_ledger(home) as ledger:
        ledger.void(run_id=run_id, dataset="testdata", reason="it never drew", key=key)


def test_the_drill_with_the_newest_head(lost: Installation) -> None:
    lost.back_up()
    said = str(examine(lost.agency.home)) + metrics(lost.agency.home)
    assert CANARY not in said and str(lost.agency.source) not in said and KILLED in said
    assert lost.file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(lost.file) as archive:
        names = archive.getnames()
        contents = [archive.extractfile(name).read() for name in names]  # type: ignore[union-attr]
    assert not any(CANARY.encode() in content for content in contents)
    assert {name.split("/")[0] for name in names} == {
        "backup.json", "ledger.jsonl", "drawn", "prepared"
    }  # fmt: skip
    home = lost.elsewhere("new")
    found = restore(home, lost.file, lost.head)
    assert found.head == lost.agency.entries()[-1].hash and found.counted_as_drawn == ()
    assert (found.prepared, found.missing) == ((lost.waiting.run_id,), ())
    shutil.rmtree(lost.agency.home.root)  # the machine is lost

    assert in_order(home)
    assert {path.name for path in (home.root / "drawn").iterdir()} == {
        lost.published.run_id, lost.waiting.run_id
    }  # fmt: skip
    assert [each.run_id for each in waiting(home)] == [lost.waiting.run_id]
    decide(home, lost.waiting.run_id, "approve", reason=None, key=OFFICER)
    outcome = publish(plain_context(home, orchestrated=False), lost.waiting.run_id)
    assert verify_bundle(outcome.bundle)["run_id"] == lost.waiting.run_id
    with pytest.raises(ApprovalError):  # a head may be older than the last draw
        void(home, OPEN)
    void(home, OPEN, OFFICER)
    assert status(home, OPEN) is Status.VOID
    with pytest.raises(LedgerError, match="never undone"):
        void(home, lost.published.run_id)
    lost.agency.inspector.log = plain_context(home).log
    assert not list(home.root.glob(".restoring-*"))


def test_without_a_head_every_open_charge_counts_as_drawn_and_a_newer_head_refuses(
    lost: Installation,
) -> None:
    back_up(lost.agency.home, lost.file)
    lost.charge("e" * 32)
    send_head(lost.agency.home, destination(str(lost.head)))
    home = lost.elsewhere("new")
    with pytest.raises(LedgerIntegrityError, match="is not the newest, or was cut"):
        restore(home, lost.file, lost.head)
    assert list(home.root.iterdir()) == []
    assert restore(home, lost.file).counted_as_drawn == (OPEN,)
    assert status(home, OPEN) is Status.DRAWN and (home.root / "drawn" / OPEN).exists()
    with pytest.raises(LedgerError, match="never undone"):
        void(home, OPEN, OFFICER)
    assert in_order(home)


def test_a_database_that_was_not_lost_is_kept(lost: Installation) -> None:
    if lost.agency.address is None:
        lost.agency.address = str(lost.agency.folder / "apart" / "ledger.db")
        with open_ledger(Home(lost.agency.folder / "home")) as old:
            entries = list(old.entries())
        with open_ledger(lost.agency.home, create=True) as ledger:
            ledger.restore(iter(entries))
    back_up(lost.agency.home, lost.file)
    lost.charge("e" * 32)
    decide(lost.agency.home, lost.waiting.run_id, "reject", reason="no", key=OFFICER)
    before = lost.agency.entries()
    home = Home(lost.agency.folder / "new", lost.agency.address)
    found = restore(home, lost.file)
    assert lost.agency.entries() == before and found.entries == len(before)
    assert set(found.counted_as_drawn) == {OPEN, "e" * 32} and found.prepared == ()
    with pytest.raises(LedgerError, match="never undone"):
        void(home, "e" * 32)
    other = lost.elsewhere("other")
    with open_ledger(other, create=True) as ledger:
        ledger.register(dataset="other", adjacency="replace_one", unit="record", unit_records=1,
                        n_records=9, epsilon="1", delta="0")  # fmt: skip
    if other.address is not None:
        with pytest.raises(LedgerIntegrityError, match="does not continue"):
            restore(Home(lost.agency.folder / "third", other.address), lost.file)
    with pytest.raises(LedgerError, match="something of its own already"):
        restore(other, lost.file)


@pytest.fixture
def office(tmp_path: Path, founded: Callable[..., Any]) -> Any:
    return Installation(founded(tmp_path), lambda: None)


def test_a_backup_replaces_nothing_and_says_why_it_fails(office: Installation) -> None:
    home = office.agency.home
    office.file.write_text("the backup of yesterday")
    with pytest.raises(OutputNotWritableError, match="of this name already"):
        back_up(home, office.file)
    with pytest.raises(OutputNotWritableError, match="No such file"):
        back_up(home, office.file.parent / "nowhere" / "b")
    assert office.file.read_text() == "the backup of yesterday"
    waits = home.root / "prepared" / office.waiting.run_id
    places = itertools.cycle([waits.with_name("aside"), waits])

    def move() -> None:
        next(waits.parent.iterdir()).rename(next(places))

    with open_ledger(home) as ledger, pytest.raises(LedgerError, match="during each attempt"):
        backup._written(home, ledger, office.file.with_name("b"), move)
    assert not office.file.with_name("b").exists()


def test_a_bundle_that_is_published_meanwhile_is_left_out(office: Installation) -> None:
    home = office.agency.home

    def publish_it() -> None:
        if waiting(home):
            decide(home, office.waiting.run_id, "approve", reason=None, key=OFFICER)
            publish(plain_context(home, orchestrated=False), office.waiting.run_id)

    with open_ledger(home) as ledger:
        assert backup._written(home, ledger, office.file, publish_it).prepared == ()
    assert restore(office.elsewhere("new"), office.file).missing == ()


def rewritten(file: Path, change: Callable[[str, bytes], tuple[str, bytes] | None]) -> Path:
    """A backup with other members."""
    changed = file.with_name("changed.tar.gz")
    with tarfile.open(file) as old, tarfile.open(changed, "w:gz") as new:
        for member in old:
            pair = change(member.name, old.extractfile(member).read())  # type: ignore[union-attr]
            if pair is not None:
                info = tarfile.TarInfo(pair[0])
                info.size = len(pair[1])
                new.addfile(info, io.BytesIO(pair[1]))
    return changed


def test_a_damaged_or_foreign_backup_is_refused(office: Installation) -> None:
    office.back_up()

    def later(name: str, content: bytes) -> tuple[str, bytes]:
        form = b"statpress-backup/1", b"statpress-backup/9"
        return (name, content.replace(*form)) if name == "backup.json" else (name, content)

    def another(name: str, content: bytes) -> tuple[str, bytes]:
        return (name, content.replace(b"north", b"south") + b" ") if "/data/" in name else (
            name, content)  # fmt: skip

    def shorter(name: str, content: bytes) -> tuple[str, bytes]:
        lines = content.splitlines(keepends=True)
        return (
            (name, b"".join(lines[:2] + lines[3:])) if name.endswith("jsonl") else (name, content)
        )

    cut = office.file.with_name("cut.tar.gz")
    cut.write_bytes(office.file.read_bytes()[:3000])
    text = office.file.with_name("text")
    text.write_text("no archive")
    kinds: list[tuple[Path, type[StatpressError]]] = [
        (cut, LedgerUnavailableError),
        (text, LedgerUnavailableError),
        (text.with_name("nothing"), LedgerUnavailableError),
        (rewritten(office.file, lambda n, b: None if n == "backup.json" else (n, b)),
         LedgerUnavailableError),
    ]  # fmt: skip
    for file, kind in kinds:
        with pytest.raises(kind):
            restore(office.elsewhere("new"), file)
    for change, error in ((later, LedgerError), (another, ApprovalError), (shorter, LedgerError)):
        home = office.elsewhere("new")
        with pytest.raises(error):
            restore(home, rewritten(office.file, change), office.head)
        assert list(home.root.iterdir()) == []
    assert json.loads(office.head.read_text())["entries"] == len(office.agency.entries())
    drawn = "drawn/" + office.published.run_id
    for name in ("../x", "prepared/" + "a" * 32 + "/../../../x", "/x", "curator/x"):
        home = office.elsewhere("new")
        with pytest.raises(LedgerError, match="that no backup holds"):
            restore(
                home,
                rewritten(office.file, lambda n, b, to=name: (to if n == drawn else n, b)),
                office.head,
            )
        assert list(home.root.iterdir()) == [] and not (office.agency.folder / "x").exists()
    restore(office.elsewhere("new"), office.file, office.head)
