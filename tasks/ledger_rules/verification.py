"""Verification of a whole chain, against itself and against what was kept elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mechanisms.errors import LedgerError, LedgerIntegrityError
from tasks.ledger_rules.chain import Recompute, check_recomputed, replay
from tasks.ledger_rules.entries import ZERO_HASH, Entry


@dataclass(frozen=True, slots=True)
class Verification:
    """What a verified ledger holds.

    Attributes:
        entries: Number of entries.
        head: Hash of the last one.
        checkpoints: Sequences of the entries that sign the chain before them.
        signers: Public keys of the checkpoints, in hexadecimal.
        database_checked: Whether the database checked itself as well.
    """

    entries: int
    head: str
    checkpoints: tuple[int, ...] = ()
    signers: frozenset[str] = frozenset()
    database_checked: bool = field(default=False, compare=False)


def inspect(
    entries: Iterable[Entry],
    recompute: Recompute | None = None,
    *,
    head: str | None = None,
    trusted: frozenset[str] = frozenset(),
) -> Verification:
    """Replay all entries and check each against the rules and what else is known.

    Args:
        entries: From the first to the last.
        recompute: As in ``Ledger.verify``.
        head: A hash kept elsewhere, which must be one of the chain's.
        trusted: Public keys; with any, every checkpoint must be by one of them.

    Raises:
        LedgerIntegrityError: The first entry that does not hold.
        LedgerError: The head is not a hash.
    """
    if head is not None and not re.fullmatch("[0-9a-f]{64}", head):
        raise LedgerError(
            "This head is not a hash.",
            where="head",
            next_step="Give 64 lower-case hexadecimal digits, as 'ledger verify' prints them.",
        )
    checkpoints: list[int] = []
    signers: set[str] = set()
    met = head in (None, ZERO_HASH)

    def inspected() -> Iterator[Entry]:
        nonlocal met
        for entry in entries:
            yield entry  # the replay has passed it when the loop goes on
            met = met or entry.hash == head
            if recompute and entry.kind == "charge":
                check_recomputed(entry, recompute)
            if entry.kind == "checkpoint":
                key = entry.body["public_key"]
                if trusted and key not in trusted:
                    raise LedgerIntegrityError(
                        f"The checkpoint is by the key {key}, which is not trusted.",
                        sequence=entry.sequence,
                        where=f"entry {entry.sequence}",
                    )
                checkpoints.append(entry.sequence)
                signers.add(key)

    state = replay(inspected())
    missing = "" if met else f"the head {head}"
    if trusted and not checkpoints:
        missing = "any checkpoint by a trusted key"
    if missing:
        raise LedgerIntegrityError(
            f"The chain ends without {missing}: it was truncated, rolled back or rewritten.",
            sequence=state.next_sequence,
            where=f"entry {state.next_sequence}",
        )
    return Verification(state.next_sequence - 1, state.head, tuple(checkpoints), frozenset(signers))
