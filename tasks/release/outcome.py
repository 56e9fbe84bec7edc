"""What a run leaves behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.ledger_rules.accounts import Status
from tasks.ledger_rules.entries import Entry


@dataclass(frozen=True, kw_only=True)
class Uploaded:
    """What came of an upload to one target; public.

    Attributes:
        place: Address of the release there.
        sent: Number of files that were sent.
        kept: Number of files that were there already.
        latest: What the pointer to the newest release says now, in words; empty without one.
    """

    place: str
    sent: int
    kept: int
    latest: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run leaves behind; public.

    Attributes:
        run_id: The run.
        dataset: Its account.
        status: What became of it: published, or prepared for its approval.
        bundle: Where the bundle lies.
        seal: SHA-256 of its manifest.
        epsilon: Charged, as decimal text.
        delta: Charged.
        ledger_entry: Hash of the charge.
        publishable: Whether its randomness is secret.
        uploads: What came of the uploads to the config's targets.
    """

    run_id: str
    dataset: str
    status: Status
    bundle: Path
    seal: str
    epsilon: str
    delta: str
    ledger_entry: str
    publishable: bool
    uploads: Sequence[Uploaded] = ()


def outcome_of(charge: Entry, status: Status, place: Path, seal: str) -> Outcome:
    """What a run leaves behind, as its charge states it."""
    body = charge.body
    return Outcome(
        run_id=body["run_id"],
        dataset=body["dataset"],
        status=status,
        bundle=place,
        seal=seal,
        epsilon=body["epsilon"],
        delta=body["delta"],
        ledger_entry=charge.hash,
        publishable=not body["insecure_seed"],
    )
