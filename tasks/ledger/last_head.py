"""The last head that a home has seen of its ledger, kept apart from the ledger.

A ledger that was emptied, cut off, rolled back or rewritten still holds by itself. Whoever has
seen a later entry of it knows better, so the home keeps the last one for each ledger.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path

from mechanisms.errors import LedgerIntegrityError
from tasks.execution.home import Home
from tasks.ledger.ledger import Ledger

_FOLDER = "heads"


def keep_head(home: Home, ledger: Ledger) -> None:
    """Note the last entry of the home's ledger, as far as it was read.

    Where that cannot be written the one before stays, which the ledger holds as well.
    """
    known = ledger.positions
    if not known.length:
        return
    place, new = _file(home, ledger), ""
    seen = {"ledger": ledger.where, "entries": known.length, "head": known.head}
    with contextlib.suppress(OSError):
        home.folder(_FOLDER)
        try:
            descriptor, new = tempfile.mkstemp(prefix=".head-", dir=place.parent)  # of mode 0600
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(seen, file)
            os.replace(new, place)
            new = ""
        finally:
            if new:
                os.unlink(new)


def check_head(home: Home, ledger: Ledger) -> None:
    """Raise unless the ledger holds the last entry that this home has seen of it.

    Raises:
        LedgerIntegrityError: It does not, or what the home keeps cannot be read.
    """
    place = _file(home, ledger)
    entries, head = _read(place)
    if not entries or ledger.hash_at(entries) == head:
        return
    flaw = f"The chain ends without the head {head}, which is entry {entries}"
    if ledger.hash_at(1) is None:
        flaw = f"The ledger is empty, and this home has seen entry {entries} of it"
    raise LedgerIntegrityError(
        f"{flaw}: it was truncated, rolled back or rewritten.",
        sequence=entries,
        where=ledger.where,
        next_step="Stop releasing and compare with a backup of the ledger. Only if a backup was"
        f" restored on purpose, and what it lost was put right, remove {place}.",
    )


def _file(home: Home, ledger: Ledger) -> Path:
    """The file for this ledger; that of the home's own may move with the home."""
    where = "" if home.address is None else ledger.where
    return home.root / _FOLDER / f"{hashlib.sha256(where.encode()).hexdigest()[:16]}.json"


def _read(place: Path) -> tuple[int, str]:
    """Number of entries and head; 0 and no text if the home has seen nothing.

    Raises:
        LedgerIntegrityError: The file cannot be read.
    """
    try:
        seen = json.loads(place.read_text(encoding="utf-8"))
        return int(seen["entries"]), str(seen["head"])
    except FileNotFoundError:
        return 0, ""
    except (OSError, ValueError, LookupError, TypeError):
        pass
    raise LedgerIntegrityError(
        "What this home has seen of its ledger cannot be read.",
        where=str(place),
        next_step="Verify the ledger with --head of a head kept elsewhere, then remove the file.",
    )
