"""The ledger of a home: opening it with what the home remembers of it, and asking it.

A ledger that was emptied, cut off, rolled back or rewritten still holds by itself. Whoever has
seen a later entry of it knows better. So the home remembers, apart from the ledger:

- in ``heads/``, after every act, the last entry of each ledger, and the runs that were charged here
  and have not drawn;
- in ``drawn/``, before its first random bit, each run that drew here. Where that cannot be
  written, nothing is drawn;
- in ``upkeep/``, when each ledger was last verified, exported, backed up, and its head sent.

No act follows on a ledger that lacks the head, no run of ``drawn/`` draws again or is given back,
whatever the ledger says.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from statpress.mechanisms.domain.domain import Privacy, Size
from statpress.mechanisms.errors import (
    LedgerIntegrityError,
    OutputNotWritableError,
    UnregisteredDatasetError,
)
from statpress.tasks.ledger.accounts import drawn_before
from statpress.tasks.private_zone.folders import Home, replacing, sync

if TYPE_CHECKING:
    from statpress.tasks.ledger.accounts import Account, Charge, State
    from statpress.tasks.ledger.chain import Positions
    from statpress.tasks.ledger.entries import Loss
    from statpress.tasks.ledger.ledger import Ledger

_HEADS, _DRAWN, _UPKEEP = "heads", "drawn", "upkeep"

Act = Literal["verified", "exported", "backed up", "head sent"]
"""What is done to keep a ledger safe."""


@dataclass(frozen=True)
class Kept:
    """When an act of upkeep was last done, and how far the ledger went then.

    Attributes:
        at: UTC time, as ISO 8601 text.
        entries: Number of entries.
        head: Hash of the last one.
    """

    at: str
    entries: int
    head: str

    @property
    def time(self) -> datetime:
        """The time."""
        return datetime.fromisoformat(self.at)


class Memory:
    """What a home remembers of a ledger, apart from it.

    Args:
        home: The home.
        where: The ledger's place; that of the home's own may move with the home.
    """

    def __init__(self, home: Home, where: str) -> None:
        self.home, self.where = home, where
        name = "" if home.address is None else where
        self.place = home.root / _HEADS / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"

    def check(self, hash_at: Callable[[int], str | None]) -> None:
        """Raise unless the ledger holds the last entry that this home has seen of it."""
        seen = self._seen()
        entries, head = seen["entries"], seen["head"]
        if not entries or hash_at(entries) == head:
            return
        flaw = f"The chain ends without the head {head}, which is entry {entries}"
        if hash_at(1) is None:
            flaw = f"The ledger is empty, and this home has seen entry {entries} of it"
        raise LedgerIntegrityError(
            f"{flaw}: it was truncated, rolled back or rewritten.",
            sequence=entries,
            where=self.where,
            next_step="Stop releasing and compare with a backup of the ledger. Only if a backup was"
            f" restored on purpose, and what it lost was put right, remove {self.place}.",
        )

    def keep(self, known: Positions, kind: str = "", run_id: str = "") -> None:
        """Remember the last entry that was read; of a charge, that its run was charged here.

        Where that cannot be written, what was remembered before stays, which holds as well.
        """
        if not known.length:
            return
        with contextlib.suppress(OSError, OutputNotWritableError), self._alone():
            seen = self._seen()
            runs = set(seen["reserved"]) | ({run_id} if kind == "charge" else set())
            runs -= {run_id} if kind in ("draw", "void") else set()
            if known.length >= seen["entries"]:  # else another process has seen more
                seen |= {"entries": known.length, "head": known.head}
            with replacing(self.place) as file:
                json.dump({"ledger": self.where, **seen, "reserved": sorted(runs)}, file)
            sync(self.place.parent)

    def note(self, act: Act, entries: int, head: str) -> None:
        """Remember that an act of upkeep was just done; where that cannot be written, nothing."""
        kept = Kept(datetime.now(UTC).isoformat(timespec="seconds"), entries, head)
        with contextlib.suppress(OSError, OutputNotWritableError), self._alone():
            acts = {name: asdict(each) for name, each in self.upkeep().items()}
            place = self.home.folder(_UPKEEP) / self.place.name
            with replacing(place) as file:
                json.dump({"ledger": self.where, "acts": acts | {act: asdict(kept)}}, file)

    def upkeep(self) -> dict[str, Kept]:
        """The last acts of upkeep by this home; one that cannot be read was not done."""
        try:
            place = self.home.root / _UPKEEP / self.place.name
            acts = json.loads(place.read_text(encoding="utf-8"))["acts"]
            kept = {name: Kept(**each) for name, each in acts.items()}
            return {name: each for name, each in kept.items() if each.time.tzinfo}
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return {}

    def charged(self, run_id: str) -> bool:
        """Whether a run was charged by this home, and has neither drawn nor been given back."""
        return run_id in self._seen()["reserved"]

    def drew(self, run_id: str) -> bool:
        """Whether a run began to draw in this home."""
        return (self.home.root / _DRAWN / run_id).exists()

    def check_draws(
        self, charges: Mapping[str, Charge], again: Callable[[], Mapping[str, Charge]]
    ) -> None:
        """Raise if a run drew here whose charge the ledger lost, or gave back.

        Args:
            charges: As the ledger had them.
            again: Reads them anew, since a run may have been charged and have drawn meanwhile.
        """
        folder = self.home.root / _DRAWN
        drew = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        lost = [run_id for run_id in drew if not _stands(charges.get(run_id))]
        charges = again() if lost else charges
        for run_id in lost:
            if not _stands(charges.get(run_id)) and self._drew_by(folder / run_id):
                raise LedgerIntegrityError(
                    f"The run {run_id} drew in this home, and the ledger holds no charge of it: it"
                    " was truncated, rolled back or rewritten.",
                    where=self.where,
                    next_step="Stop releasing and compare with a backup of the ledger. Only if a"
                    " backup was restored on purpose, lower the limit by what the run spent"
                    f" ('statpress ledger amend'), then remove {folder / run_id}.",
                )

    def _drew_by(self, place: Path) -> bool:
        """Whether a run that drew was charged to this ledger, as far as that can be read."""
        try:
            found = json.loads(place.read_text(encoding="utf-8"))["head"]
        except (OSError, ValueError, LookupError, TypeError):
            return True
        return bool(found == self.place.name)

    def begin(self, run_id: str, draw: str) -> None:
        """Remember for good, on disk, that a run begins to draw.

        Raises:
            LedgerError: It began before.
            OutputNotWritableError: The disk is full, or fails.
        """
        reason = None
        try:
            place = self.home.folder(_DRAWN) / run_id
            descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump({"ledger": self.where, "head": self.place.name, "draw": draw}, file)
                file.flush()
                os.fsync(file.fileno())
            sync(place.parent)
        except FileExistsError:
            reason = ""
        except OSError as error:
            reason = error.strerror or type(error).__name__
        if reason:
            raise OutputNotWritableError(
                f"The home cannot remember that the run begins to draw ({reason}). Nothing was"
                " drawn; the run was charged, and stays so.",
                where=str(self.home.root / _DRAWN),
                next_step="Mend the disk, then run again, which is charged again.",
            )
        if reason is not None:
            raise drawn_before(run_id)

    def _seen(self) -> dict[str, Any]:
        """What was remembered; 0 entries if the home has seen nothing."""
        try:
            seen = json.loads(self.place.read_text(encoding="utf-8"))
            runs = [str(run) for run in seen.get("reserved", ())]
            return {"entries": int(seen["entries"]), "head": str(seen["head"]), "reserved": runs}
        except FileNotFoundError:
            return {"entries": 0, "head": "", "reserved": []}
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            pass
        raise LedgerIntegrityError(
            "What this home has seen of its ledger cannot be read.",
            where=str(self.place),
            next_step="Verify the ledger with --head of a head kept elsewhere, then remove the"
            " file.",
        )

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes of this home from remembering meanwhile."""
        descriptor = os.open(self.home.folder(_HEADS), os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _stands(charge: Charge | None) -> bool:
    """Whether a charge is there and was not given back."""
    return charge is not None and charge.status != "void"


def open_ledger(home: Home, *, create: bool = False, known: Positions | None = None) -> Ledger:
    """Open the ledger of a home, whose memory its acts respect and extend; see ``Ledger.open``.

    The home remembers the address of a ledger outside it that was opened once.
    """
    from statpress.tasks.ledger.ledger import Ledger

    ledger = Ledger.open(home.ledger, create=create, known=known)
    home.remember_address()
    ledger.memory = Memory(home, ledger.where)
    return ledger


def register_dataset(
    home: Home,
    dataset: str,
    privacy: Privacy,
    *,
    policy: str = "basic",
    sources: Collection[str] = (),
    also_in: Collection[str] = (),
    reason: str | None = None,
    **terms: Any,
) -> Account:
    """Open an account on the terms of ``Ledger.register``, in a ledger made if need be.

    If sources are given, it is bound to them as by ``Ledger.bind``. It is bound to a size only
    where that is declared.
    """
    home.folder("")
    with open_ledger(home, create=True) as ledger:
        ledger.check_apart(dataset, sources, also_in, reason)
        ledger.register(
            dataset=dataset,
            policy=policy,
            adjacency=str(privacy.adjacency),
            unit=str(privacy.unit),
            unit_records=privacy.unit_records,
            n_records=privacy.n_records if privacy.size is Size.DECLARED else None,
            **terms,
        )
        if sources:
            ledger.bind(dataset=dataset, sources=sources, also_in=also_in, reason=reason)
        return ledger.account(dataset)


def remaining_budget(home: Home, dataset: str, period: str | None = None) -> Loss | None:
    """What the ledger still grants a release of a period, or of none.

    None without a ledger or an account.
    """
    account = _asked(home, lambda ledger: ledger.state().accounts.get(dataset))
    return account.remaining_for(period) if account else None


def remaining_after(home: Home, dataset: str, run_id: str) -> tuple[Loss | None, str | None]:
    """What the ledger still grants the period that a run was charged to, and that period.

    Both are None without an account, and the period is for one without a design.
    """
    account = _asked(home, lambda ledger: ledger.state().accounts.get(dataset))
    if account is None:
        return None, None
    charge = account.charges.get(run_id)
    period = charge.period if charge else None
    return account.remaining_for(period), period if account.has_design else None


def standing_charges(account: Account | None) -> list[Mapping[str, Any]]:
    """The charges of an account's releases, without those that were voided or rejected."""
    charges = account.charges.values() if account else ()
    return [charge.entry.body for charge in charges if charge.stands]


def charges_so_far(home: Home, dataset: str) -> list[Mapping[str, Any]]:
    """The standing charges of a dataset; none without a ledger or an account."""
    return standing_charges(_asked(home, lambda ledger: ledger.state().accounts.get(dataset)))


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
    with open_ledger(home) as ledger:
        return ask(ledger)


def remember(ledger: Ledger, state: State) -> None:
    """Check a ledger that was read against its home's memory, and remember how far it was read."""
    if ledger.memory:
        ledger.memory.check(ledger.hash_at)
        ledger.memory.check_draws(state.charges, lambda: ledger.state().charges)
        ledger.memory.keep(ledger.positions)
