"""Power lost at any byte of the SQLite log: what was acknowledged is there again.

``synchronous=FULL`` syncs the log before a commit returns. So after a loss of power
the files are those of the last acknowledged act, and of what was being written then
some part: a prefix, a torn frame, or garbage where a frame was to be. The test keeps
the files after every act, makes each such pair of files, and opens it.
"""

from __future__ import annotations

import random
import sqlite3
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import census_ledger
import pytest
from census_ledger import TERMS
from sqlalchemy import event

from statpress.mechanisms.errors import StatpressError
from statpress.tasks.ledger.entries import Entry
from statpress.tasks.ledger.ledger import Ledger

pytestmark = pytest.mark.system

HEADER, FRAME_HEADER = 32, 24


@dataclass(frozen=True)
class Files:
    """The database and its log as they were when an act was acknowledged."""

    database: bytes
    log: bytes
    told: tuple[str, ...]  # the hashes acknowledged until then

    @property
    def frame(self) -> int:
        """Bytes of a frame in the log."""
        return FRAME_HEADER + int(struct.unpack(">I", self.log[8:12])[0])

    @property
    def end(self) -> int:
        """Where the frames end that belong to the present header of the log."""
        if len(self.log) < HEADER:
            return 0
        salts, place = self.log[16:24], HEADER
        while self.log[place + 8 : place + 16] == salts:
            place += self.frame
        return place


def charge(ledger: Ledger, run_id: str) -> Entry:
    found: Entry = census_ledger.charge(ledger, run_id, epsilon="0.001", rho="0.0000005")
    return found


def keep(path: Path, told: list[str]) -> Files:
    """Copies of the files, made by another process: closing a file here drops locks."""
    copies = [path.with_name(f"copy{suffix}") for suffix in ("", "-wal")]
    both = 'cp "$0" "$1" && cp "$0-wal" "$2"'
    subprocess.run(["/bin/sh", "-c", both, path, *copies], check=True)
    return Files(copies[0].read_bytes(), copies[1].read_bytes(), tuple(told))


def move_log_into_database(path: Path, mode: str) -> None:
    with sqlite3.connect(path, isolation_level=None) as connection:
        assert connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()[0] == 0
    connection.close()


def lived(
    folder: Path,
    charges: int,
    *,
    moves: dict[int, str] | None = None,
    keep_from: int = 0,
    pages: int | None = None,
) -> list[Files]:
    """Files after each act of a history.

    ``moves`` says after which to move the log, ``pages`` at how many of them SQLite does it.
    """
    path, told, kept = folder / "ledger.db", [], []
    with Ledger.open(path) as ledger:
        if pages is not None:
            with ledger.store.writer.begin() as connection:  # the one that writes
                connection.exec_driver_sql(f"PRAGMA wal_autocheckpoint={pages}")
        told.append(ledger.register(dataset="census", epsilon="1", delta=0, **TERMS).hash)
        for number in range(charges):
            told.append(charge(ledger, f"run-{number}").hash)
            if number >= keep_from:
                kept.append(keep(path, told))
            if moves and number in moves:
                move_log_into_database(path, moves[number])
                kept.append(keep(path, told))
    return kept


def lived_too_sure(folder: Path, charges: int) -> list[Files]:
    """The same of a ledger that acknowledges an entry before it is committed."""
    path, kept, told = folder / "ledger.db", [], []
    with Ledger.open(path) as ledger:
        ledger.register(dataset="census", epsilon="1", delta=0, **TERMS)

        @event.listens_for(ledger.store.writer, "commit")
        def acknowledge(connection: Any) -> None:
            hashes = connection.exec_driver_sql("SELECT hash FROM entries ORDER BY sequence")
            told[:] = [row[0] for row in hashes]
            kept.append(keep(path, told))

        for number in range(charges):
            charge(ledger, f"run-{number}")
    return kept


def cuts(before: Files, after: Files) -> Iterator[bytes]:
    """Logs that may be found when the power fails between two acts.

    The log grows at its end, or begins again at its start if it was moved into the
    database before. What lay behind the cut is missing, or is what was there, or garbage.
    """
    grows = before.log[:HEADER] == after.log[:HEADER]
    start = before.end if grows else 0
    places = sorted({start, HEADER, *range(HEADER, after.end + 1, after.frame)})
    places += [place + part for place in places for part in (7, 24, after.frame // 2)]
    noise = random.Random(7)
    for place in sorted(place for place in places if start <= place <= after.end):
        begun = after.log[:place]
        yield begun
        yield begun + before.log[place:]
        yield begun + noise.randbytes(after.frame)


def flaw(place: Path, database: bytes, log: bytes, told: tuple[str, ...]) -> str:
    """What is wrong with the ledger in these files; it may hold one entry more than told."""
    place.write_bytes(database)
    place.with_name(place.name + "-wal").write_bytes(log)
    try:
        with Ledger.open(place, create=False) as ledger:
            verified = ledger.verify()
            kept = tuple(entry.hash for entry in ledger.entries())
    except StatpressError as error:
        return str(error)
    finally:
        for suffix in ("", "-wal", "-shm"):
            place.with_name(place.name + suffix).unlink(missing_ok=True)
    if kept[: len(told)] != told:
        return f"of {len(told)} acknowledged entries {len(kept)} are left"
    if not len(told) <= len(kept) <= len(told) + 1 or verified.entries != len(kept):
        return f"{len(kept)} entries where {len(told)} were acknowledged"
    return ""


def flaws(folder: Path, kept: list[Files]) -> tuple[int, list[str]]:
    """How many losses of power were played through, and what went wrong in them."""
    tried, found = 0, []
    for before, after in pairwise(kept):
        for log in cuts(before, after):
            tried += 1
            found.append(flaw(folder / "found.db", before.database, log, before.told))
    return tried, [text for text in found if text]


FULL = pytest.mark.nightly


@pytest.mark.parametrize(
    ("charges", "moves"),
    [
        (3, {}),
        (4, {0: "PASSIVE", 1: "FULL", 2: "RESTART"}),
        pytest.param(8, {}, marks=FULL),
        pytest.param(8, {1: "PASSIVE", 3: "FULL", 5: "RESTART", 6: "PASSIVE"}, marks=FULL),
    ],
    ids=["log that only grows", "log moved in between", "grows-full", "moved-full"],
)
def test_power_lost_at_any_place_of_the_log(
    tmp_path: Path, charges: int, moves: dict[int, str]
) -> None:
    tried, found = flaws(tmp_path, lived(tmp_path, charges, moves=moves))
    print(f"\n{tried} losses of power")
    assert tried > 25 * (charges - 1)
    assert found == []


@pytest.mark.nightly
def test_power_lost_around_the_moves_that_sqlite_makes_by_itself(tmp_path: Path) -> None:
    """Of 60 pages instead of 1000, so that the histories to verify are short."""
    kept = lived(tmp_path, 20, keep_from=6, pages=60)
    restarts = [
        number
        for number in range(1, len(kept))
        if kept[number].log[:HEADER] != kept[number - 1].log[:HEADER]
    ]
    assert restarts, "the pages were not reached"
    for number in restarts:
        around = kept[max(number - 2, 0) : number + 2]
        _, found = flaws(tmp_path, around)
        assert found == []


@pytest.mark.parametrize("charges", [8, pytest.param(24, marks=FULL)])
def test_the_log_cut_anywhere_keeps_what_was_told_before_the_cut(
    tmp_path: Path, charges: int
) -> None:
    kept = lived(tmp_path, charges)
    last = kept[-1]
    for place in range(kept[0].end, last.end + 1, last.frame):
        told = max((files.told for files in kept if files.end <= place), key=len)
        for cut in (place, place + last.frame // 2, place + last.frame - 1):
            log = last.log[:cut]
            assert flaw(tmp_path / "found.db", last.database, log, told) == ""


@pytest.mark.parametrize("times", [20, pytest.param(60, marks=FULL)])
def test_power_lost_while_the_log_is_moved_into_the_database(tmp_path: Path, times: int) -> None:
    before, after = lived(tmp_path, 12, moves={11: "PASSIVE"})[-2:]
    assert before.database != after.database and before.told == after.told
    page, noise = before.frame - FRAME_HEADER, random.Random(7)
    pages = range(0, len(after.database), page)
    grown = before.database.ljust(len(after.database), b"\0")
    for _ in range(times):
        share = noise.random()
        mixed = b"".join(
            (after.database if noise.random() < share else grown)[place : place + page]
            for place in pages
        )
        torn = noise.randrange(len(mixed))
        half = after.database[:torn] + grown[torn:]
        for database in (mixed, half):
            assert flaw(tmp_path / "found.db", database, before.log, before.told) == ""


def test_the_cuts_find_a_ledger_that_acknowledges_before_the_commit(tmp_path: Path) -> None:
    _, found = flaws(tmp_path, lived_too_sure(tmp_path, 6))
    assert any("are left" in text for text in found)


def test_every_writing_connection_syncs_its_commits(tmp_path: Path) -> None:
    with (
        Ledger.open(tmp_path / "ledger.db") as ledger,
        ledger.store.writer.begin() as connection,
    ):
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
