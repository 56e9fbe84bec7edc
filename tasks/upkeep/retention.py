"""What a home keeps too long: curator logs, reports, bundles that are over, killed runs' folders.

``STATPRESS_KEEP_DAYS`` says for how many days; without it nothing is removed. Never removed are
the ledger, what the home remembers of it (``heads/``, ``drawn/``, ``upkeep/``), and prepared
bundles that wait for a decision or for their publication.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from statpress.mechanisms.errors import ConfigError
from statpress.tasks.ledger.accounts import Charge, Status
from statpress.tasks.ledger.home_ledger import open_ledger
from statpress.tasks.private_zone.folders import Home, at_work, remove_if_abandoned
from statpress.tasks.release.runs import PREPARED

KEEP_DAYS = "STATPRESS_KEEP_DAYS"
"""Names the setting in the environment."""

_CURATOR, _WORK, _RESTORING = "curator", "work", ".restoring-"
_DAY = 24 * 60 * 60
_MOST_DAYS = 36_525
_ENDS = {Status.REJECTED: "decide", Status.PUBLISHED: "publish"}


def kept_days() -> int | None:
    """For how many days things are kept, by the environment; None for ever.

    Raises:
        ConfigError: It is not a number of days.
    """
    text = os.environ.get(KEEP_DAYS)
    if not text:
        return None
    if text.isascii() and text.isdigit() and 0 < int(text) <= _MOST_DAYS:
        return int(text)
    raise ConfigError(
        "This is not a number of days.",
        where=KEEP_DAYS,
        next_step=f"Give a whole number from 1 to {_MOST_DAYS}, or nothing to keep everything.",
    )


def overdue(
    home: Home, charges: Mapping[str, Charge], days: int, now: float | None = None
) -> list[Path]:
    """What was kept for longer than so many days and is not needed any more."""
    before = (time.time() if now is None else now) - days * _DAY
    found = [path for path in _dated(home) if _changed(path) < before]
    for path in (home.root / PREPARED).glob("*"):
        ended = _ended(charges.get(path.name))
        if ended is not None and ended < before:
            found.append(path)
    return sorted(found)


def _dated(home: Home) -> Iterator[Path]:
    """What goes by the time of its last change, and belongs to no run at work."""
    for pattern in ("*.log", "*.html"):
        for path in (home.root / _CURATOR).glob(pattern):
            if not at_work(home, path.stem):
                yield path
    yield from killed(home)
    yield from home.root.glob(f"{_RESTORING}*")


def killed(home: Home) -> Iterator[Path]:
    """The private folders that runs which were killed have left."""
    for path in (home.root / _WORK).glob("*"):
        if path.is_dir() and not path.is_symlink() and not at_work(home, path.name):
            yield path


def _changed(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:  # another process took it away
        return float("inf")


def _ended(charge: Charge | None) -> float | None:
    """When a prepared bundle was rejected or published; None while it may be needed."""
    entry = None if charge is None else charge.later.get(_ENDS.get(charge.status, ""))
    return None if entry is None else datetime.fromisoformat(entry.body["created"]).timestamp()


def tidy(home: Home, days: int) -> list[Path]:
    """Remove what is overdue; what was removed.

    Raises:
        LedgerError: The ledger cannot be read, so that nothing is known to be over.
    """
    with open_ledger(home) as ledger:
        charges = ledger.state().charges
    return [path for path in overdue(home, charges, days) if _remove(home, path)]


def _remove(home: Home, path: Path) -> bool:
    """Remove a file or folder; False if that did not work."""
    if path.parent == home.root / _WORK:
        return remove_if_abandoned(path)
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
        return True
    except OSError:
        return False
