"""The ledger of a home: opening its accounts, asking it, and the last head that the home has seen.

A ledger that was emptied, cut off, rolled back or rewritten still holds by itself. Whoever has
seen a later entry of it knows better, so the home keeps the last one for each ledger, apart from
the ledger.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statpress.mechanisms.domain.domain import Privacy
from statpress.mechanisms.errors import LedgerIntegrityError, UnregisteredDatasetError
from statpress.tasks.private_zone.folders import Home, replacing

if TYPE_CHECKING:
    from statpress.tasks.ledger.accounts import Account
    from statpress.tasks.ledger.entries import Loss
    from statpress.tasks.ledger.ledger import Ledger

_HEADS = "heads"


def register_dataset(
    home: Home, dataset: str, privacy: Privacy, *, policy: str = "basic", **terms: Any
) -> Account:
    """Open an account on the terms of ``Ledger.register``, in a ledger made if need be."""
    from statpress.tasks.ledger.ledger import Ledger

    home.folder("")
    with Ledger.open(home.ledger) as ledger:
        check_head(home, ledger)
        ledger.register(
            dataset=dataset,
            policy=policy,
            adjacency=str(privacy.adjacency),
            unit=str(privacy.unit),
            unit_records=privacy.unit_records,
            n_records=privacy.n_records,
            **terms,
        )
        keep_head(home, ledger)
        return ledger.account(dataset)


def remaining_budget(home: Home, dataset: str) -> Loss | None:
    """What the ledger still grants a dataset; None without a ledger or an account."""
    account = _asked(home, lambda ledger: ledger.state().accounts.get(dataset))
    return account.remaining if account else None


def account_terms(home: Home, dataset: str) -> Account | None:
    """A dataset's account without its charges, so that the chain is not replayed.

    None without a ledger or an account.
    """
    try:
        return _asked(home, lambda ledger: ledger.account_terms(dataset))
    except UnregisteredDatasetError:
        return None


def _asked(home: Home, ask: Callable[[Ledger], Account | None]) -> Account | None:
    """What the home's ledger answers; None if there is none."""
    if isinstance(home.ledger, Path) and not home.ledger.exists():
        return None  # before the database's library is imported
    from statpress.tasks.ledger.ledger import Ledger

    if not Ledger.exists(home.ledger):
        return None
    with Ledger.open(home.ledger, create=False) as ledger:
        return ask(ledger)


def keep_head(home: Home, ledger: Ledger) -> None:
    """Note the last entry of the home's ledger, as far as it was read.

    Where that cannot be written the one before stays, which the ledger holds as well.
    """
    known = ledger.positions
    if not known.length:
        return
    seen = {"ledger": ledger.where, "entries": known.length, "head": known.head}
    with contextlib.suppress(OSError):
        home.folder(_HEADS)
        with replacing(_file(home, ledger)) as file:
            json.dump(seen, file)


def check_head(home: Home, ledger: Ledger) -> None:
    """Raise unless the ledger holds the last entry that this home has seen of it."""
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
    return home.root / _HEADS / f"{hashlib.sha256(where.encode()).hexdigest()[:16]}.json"


def _read(place: Path) -> tuple[int, str]:
    """Number of entries and head; 0 and no text if the home has seen nothing."""
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
