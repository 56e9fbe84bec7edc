"""Backup and restore of a home and its ledger, wherever that lies, in one file.

A backup holds the ledger's own export, which restores into SQLite and PostgreSQL alike; the marks
of runs that drew; and the prepared bundles. It leaves out what may hold values of the source: the
private folders of runs, curator logs and reports.

A ledger of yesterday does not know what was charged and drawn since. Only a head that was kept
elsewhere shows that a backup is the newest; without one, whatever it leaves unpublished counts as
drawn, in the ledger and in the marks of the new home, so that no charge of it is given back and no
run of it draws again.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from statpress.mechanisms.errors import (
    LedgerError,
    LedgerIntegrityError,
    LedgerUnavailableError,
    OutputNotWritableError,
)
from statpress.tasks.ledger.accounts import State, Status
from statpress.tasks.ledger.export import export_lines, parse_head, read_head
from statpress.tasks.ledger.export import restore as import_entries
from statpress.tasks.ledger.home_ledger import open_ledger
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.folders import Home, make_private, replacing
from statpress.tasks.release.ledger_check import verify_ledger
from statpress.tasks.release.review import check_sealed
from statpress.tasks.release.runs import PREPARED

_FORMAT = "statpress-backup/1"
_FACTS, _LEDGER, _DRAWN = "backup.json", "ledger.jsonl", "drawn"
_RUN = re.compile(r"[0-9a-f]{32}")
_MEMBER = re.compile(
    rf"{re.escape(_FACTS)}|{re.escape(_LEDGER)}|{_DRAWN}/[^/]+|{PREPARED}/[0-9a-f]{{32}}/.+"
)
_WAITING = (Status.PREPARED, Status.APPROVED)
_OVER = (Status.PUBLISHED, Status.REJECTED, Status.VOID)
_TRIES = 3
_PARTS = (_DRAWN, "heads", "upkeep", PREPARED, "ledger.sqlite-wal", "ledger.sqlite")


@dataclass(frozen=True, kw_only=True)
class BackedUp:
    """What a backup holds.

    Attributes:
        entries: Number of the ledger's entries.
        head: Hash of the last one.
        prepared: The runs whose prepared bundles are in it.
    """

    entries: int
    head: str
    prepared: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Restored:
    """What a restore left.

    Attributes:
        where: The ledger's place.
        entries: Number of its entries.
        head: Hash of the last one.
        counted_as_drawn: Runs that count as drawn because no head shows that they did not draw.
        prepared: Runs whose prepared bundles are in the home.
        missing: Runs that wait and whose bundles were not in the backup.
    """

    where: str
    entries: int
    head: str
    counted_as_drawn: tuple[str, ...]
    prepared: tuple[str, ...]
    missing: tuple[str, ...]


def back_up(home: Home, file: Path) -> BackedUp:
    """Write a backup that its owner only can read; releases may be at work meanwhile.

    Raises:
        LedgerError: The ledger does not hold, or others keep deciding about prepared bundles.
        OutputNotWritableError: There is a file of this name, or it cannot be written.
    """
    if os.path.lexists(file):
        raise OutputNotWritableError(
            "There is something of this name already.",
            where=str(file),
            next_step="Give each backup a name of its own, with the date.",
        )
    verify_ledger(home)
    failure = ""
    try:
        with open_ledger(home) as ledger:
            done = _written(home, ledger, file)
            assert ledger.memory is not None
            ledger.memory.note("backed up", done.entries, done.head)
            return done
    except OSError as error:
        failure = error.strerror or type(error).__name__
    raise OutputNotWritableError(
        f"The backup cannot be written ({failure}).",
        where=str(file),
        next_step="Give a file in a folder that this user may write to, with room for it.",
    )


def _written(
    home: Home, ledger: Ledger, file: Path, meanwhile: Callable[[], None] = lambda: None
) -> BackedUp:
    """Write the backup, again if a prepared bundle was decided about or published meanwhile.

    ``meanwhile`` is called between the archive and the second look at the bundles.
    """
    for _ in range(_TRIES):
        prepared = _prepared(home, ledger.state())
        with tempfile.TemporaryFile(dir=home.root) as archive:
            try:
                done = _archived(home, ledger, list(prepared), archive)
            except FileNotFoundError:  # a bundle went into its place
                continue
            meanwhile()
            if prepared == _prepared(home, ledger.state()):
                archive.seek(0)
                with replacing(file) as target:
                    shutil.copyfileobj(archive, target.buffer)
                return done
    raise LedgerError(
        "Prepared bundles were decided about or published during each attempt.",
        where=str(home.root / PREPARED),
        next_step="Try again when nobody decides or publishes.",
    )


def _archived(home: Home, ledger: Ledger, runs: list[str], into: IO[bytes]) -> BackedUp:
    """Write the archive; the marks are read first, so that the export has every run of theirs."""
    marks = sorted(path for path in (home.root / _DRAWN).glob("*") if path.is_file())
    line = ""
    with (
        tempfile.TemporaryFile(dir=home.root) as export,
        tarfile.open(fileobj=into, mode="w:gz") as archive,
    ):
        for line in export_lines(ledger):
            export.write(f"{line}\n".encode("ascii"))
        entries, head = parse_head(line.encode("ascii"), ledger.where)
        _add(archive, _FACTS, json.dumps(_facts(entries, head)).encode("ascii"))
        _add(archive, _LEDGER, export)
        for path in marks:
            _add(archive, f"{_DRAWN}/{path.name}", path.read_bytes())
        for run_id in runs:
            _add_folder(archive, home.root / PREPARED / run_id, f"{PREPARED}/{run_id}")
    return BackedUp(entries=entries, head=head, prepared=tuple(runs))


def _prepared(home: Home, state: State) -> dict[str, Status]:
    """The runs whose bundles in this home still matter, with what was decided about each."""
    folder = home.root / PREPARED
    found = sorted(path.name for path in folder.glob("*") if _RUN.fullmatch(path.name))
    statuses = {run: state.charges[run].status for run in found if run in state.charges}
    return {run: status for run, status in statuses.items() if status not in _OVER}


def _facts(entries: int, head: str) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": version("statpress"),
        "entries": entries,
        "head": head,
    }


def _add(archive: tarfile.TarFile, name: str, content: bytes | IO[bytes]) -> None:
    """Add a file of mode 0600 that says nothing of its owner."""
    info = tarfile.TarInfo(name)
    info.mode = 0o600
    if isinstance(content, bytes):
        content = io.BytesIO(content)
    info.size = content.seek(0, os.SEEK_END)
    content.seek(0)
    archive.addfile(info, content)


def _add_folder(archive: tarfile.TarFile, folder: Path, name: str) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                _add(archive, f"{name}/{path.relative_to(folder).as_posix()}", file)


def restore(home: Home, file: Path, head: Path | None = None) -> Restored:
    """Restore a backup into a new home and an empty ledger, and verify it.

    A ledger in a database that was not lost is kept as it is, if it continues the backup.

    Args:
        home: The new home; where its ledger lies in a database, that is empty, or was not lost.
        file: The backup.
        head: The newest head that was exported, which the ledger must end with; without it,
            charges that published nothing count as drawn.

    Raises:
        LedgerIntegrityError: The backup does not end with the head, or an entry does not hold.
        LedgerError: The home holds something already, or the file is not a backup.
        ApprovalError: A prepared bundle is not the one that the ledger knows.
    """
    _check_new(home)
    wanted = read_head(head) if head else None
    root = home.folder("")
    with tempfile.TemporaryDirectory(prefix=".restoring-", dir=root) as folder:
        content, staged = Path(folder) / "backup", Home(Path(folder) / "home", home.address)
        facts = _unpack(file, content)
        staged.folder("")
        with open_ledger(staged, create=True) as ledger:
            if home.address is None:
                assert ledger.memory is not None
                ledger.memory.where = str(home.ledger)
            state, counted = _restore_ledger(ledger, content / _LEDGER, facts, wanted)
            _restore_memory(ledger, content, state, counted)
        prepared = _restore_prepared(staged, content, state)
        for name in _PARTS:  # the ledger comes last, and makes it a home
            if (staged.root / name).exists():
                os.rename(staged.root / name, root / name)
    verified = verify_ledger(home, head=wanted)
    waiting = [run for run, charge in state.charges.items() if charge.status in _WAITING]
    return Restored(
        where=str(home.ledger) if home.address is None else ledger.where,
        entries=verified.entries,
        head=verified.head,
        counted_as_drawn=tuple(counted),
        prepared=tuple(prepared),
        missing=tuple(run for run in waiting if run not in prepared),
    )


def _check_new(home: Home) -> None:
    """Raise if a home has anything that a restore would mix with."""
    there = [name for name in _PARTS if (home.root / name).exists()]
    if there:
        raise LedgerError(
            f"This home has something of its own already: {', '.join(there)}.",
            where=str(home.root),
            next_step="Restore into a new home: name it with --home or STATPRESS_HOME.",
        )


def _unpack(file: Path, into: Path) -> dict[str, Any]:
    """Write the files of a backup into a private folder; what it says of itself."""
    failure, facts = "", None
    try:
        with tarfile.open(file, mode="r:gz") as archive:
            for member in archive:
                _unpack_one(archive, member, into, file)
        facts = json.loads((into / _FACTS).read_text(encoding="utf-8"))
    except (tarfile.TarError, EOFError, ValueError, KeyError):
        failure = "it is not a whole backup"
    except OSError as error:
        failure = error.strerror or "it is not a whole backup"
    if failure:
        raise LedgerUnavailableError(
            f"The backup cannot be read: {failure}.",
            where=str(file),
            next_step="Fetch it again from where it is kept, or take the one before.",
        )
    if not isinstance(facts, dict) or facts.get("format") != _FORMAT:
        raise LedgerError(
            "This version does not know this form of a backup.",
            where=str(file),
            next_step=f"Restore it with the version of statpress that wrote it; here: {_FORMAT}.",
        )
    return facts


def _unpack_one(archive: tarfile.TarFile, member: tarfile.TarInfo, into: Path, file: Path) -> None:
    place = into / member.name
    inside = _MEMBER.fullmatch(member.name) and ".." not in Path(member.name).parts
    source = archive.extractfile(member) if inside and member.isreg() else None
    if source is None or place.exists():
        raise LedgerError(
            "The backup holds something that no backup holds.",
            where=str(file),
            next_step="Fetch it again from where it is kept, and find out who changed it.",
        )
    make_private(place.parent)
    with open(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target:
        shutil.copyfileobj(source, target)


def _restore_ledger(
    ledger: Ledger, export: Path, facts: dict[str, Any], wanted: str | None
) -> tuple[State, list[str]]:
    """Fill an empty ledger, or see that one with entries continues the backup.

    Returns:
        The state, and the runs that count as drawn for want of a head.
    """
    if ledger.hash_at(1) is None:
        number, state = import_entries(ledger, export, wanted)
        draws = {run: c.later["draw"] for run, c in state.charges.items() if "draw" in c.later}
        return state, [run for run, draw in draws.items() if draw.sequence > number]
    if ledger.hash_at(int(facts["entries"])) != facts["head"]:
        raise LedgerIntegrityError(
            "The ledger has entries, and does not continue the backup's.",
            where=ledger.where,
            next_step="Restore into an empty database, or with the backup of this ledger.",
        )
    state = ledger.state()
    runs = [run for run, c in state.charges.items() if c.status is Status.RESERVED]
    return state, [] if wanted else runs


def _restore_memory(ledger: Ledger, content: Path, state: State, counted: list[str]) -> None:
    """Give the new home the marks of whatever drew, or may have drawn.

    It is not the home that charged a run: whoever gives a charge back here answers for it.
    """
    memory = ledger.memory
    assert memory is not None
    for run_id, charge in state.charges.items():
        draw = charge.later.get("draw")
        if draw is not None or run_id in counted:
            memory.begin(run_id, draw.hash if draw else "")
    for path in sorted((content / _DRAWN).glob("*")):
        if not memory.drew(path.name):  # of another ledger that the old home had
            shutil.copyfile(path, memory.home.folder(_DRAWN) / path.name)
    memory.keep(ledger.positions)


def _restore_prepared(staged: Home, content: Path, state: State) -> list[str]:
    """Put the prepared bundles that still matter into the home, each if its seal holds."""
    runs = []
    for folder in sorted((content / PREPARED).glob("*")):
        charge = state.charges.get(folder.name)
        if charge is None or charge.status in _OVER:
            continue
        if charge.preparation is not None:
            seal = charge.preparation.body["manifest_sha256"]
            check_sealed(folder, seal, f"{PREPARED}/{folder.name} of the backup", prepared=True)
        os.rename(folder, staged.folder(PREPARED) / folder.name)
        runs.append(folder.name)
    return runs
