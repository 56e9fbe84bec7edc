"""The steps that publish an approved bundle, and its note in the ledger.

Noting a bundle in the ledger, where a run ended before it could do so itself.

The steps that publish an approved bundle; they may run weeks after the release.

Only the home and the ledger hold state. Every step may be cut off and begun again: the
prepared bundle is kept until the ledger has noted the publication, what appears in the
publishing directory is a copy of it that was verified, and it appears in one step.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from statpress.mechanisms.errors import (
    ApprovalError,
    BundleVerificationError,
    OutputNotWritableError,
    StatpressError,
)
from statpress.tasks.bundle.manifest import APPROVAL_NAME as APPROVAL
from statpress.tasks.bundle.manifest import approval_text, verify_bundle
from statpress.tasks.ledger.accounts import Charge, Status
from statpress.tasks.ledger.entries import Entry
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.folders import Home, claims, remove_abandoned
from statpress.tasks.private_zone.run_context import step
from statpress.tasks.release.ledger_check import charge_of_bundle, check_described
from statpress.tasks.release.run_places import (
    BUILDING,
    PREPARED,
    Outcome,
    final_places,
    make_directory,
    outcome_of,
    publish_folder,
)


def note_bundle(home: Home, bundle: Path, prepared_for: Path | None = None) -> Entry:
    """Note a whole bundle as published or as prepared, where a run ended before it could.

    Args:
        home: Where the ledger lies.
        bundle: The bundle.
        prepared_for: For one that waits for its approval, where it is to be published.

    Raises:
        BundleVerificationError: The bundle is not whole, or not what was charged.
        ApprovalError: It is under review, and is not approved.
        LedgerError: Its run never drew, or published another bundle.
    """
    manifest = verify_bundle(bundle, prepared=prepared_for is not None)
    if manifest.get("reprint_of"):
        raise BundleVerificationError(
            "This is a reprint; the ledger notes only its original.",
            where=str(bundle),
            next_step=f"Note the bundle with the seal {manifest['reprint_of']['seal']}.",
        )
    with Ledger.open(home.ledger, create=False) as ledger:
        charge = charge_of_bundle(ledger, bundle, manifest)
        check_described(charge, bundle)
        if prepared_for is not None:
            if "review" not in manifest:
                raise BundleVerificationError(
                    "The bundle could be used without its approval.", where=str(bundle)
                )
            if bundle.resolve() != (home.root / PREPARED / manifest["run_id"]).resolve():
                raise BundleVerificationError(
                    "The bundle is not where prepared bundles of this home wait.",
                    where=str(bundle),
                    next_step=f"Note the one in {home.root / PREPARED}.",
                )
            return ledger.prepare(
                run_id=manifest["run_id"],
                dataset=charge.entry.body["dataset"],
                bundle=str(prepared_for.absolute()),
                manifest_sha256=manifest["seal"],
            )
        if charge.publication is not None:
            place = charge.publication.body["bundle"]
        else:
            place = str(bundle.absolute())
        return ledger.publish(
            run_id=manifest["run_id"],
            dataset=charge.entry.body["dataset"],
            bundle=place,
            manifest_sha256=manifest["seal"],
        )


@dataclass(frozen=True, kw_only=True)
class Approved:
    """A bundle that may be published.

    Attributes:
        charge: Its charge, with what followed.
        decision: The approval.
        seal: Of the bundle that was approved.
        prepared: Where it waits.
        target: Where it is to go.
    """

    charge: Charge
    decision: Entry
    seal: str
    prepared: Path
    target: Path

    @property
    def run_id(self) -> str:
        """The run."""
        return str(self.charge.entry.body["run_id"])

    @property
    def published(self) -> Path | None:
        """Where the ledger says that it was published, if it was."""
        noted = self.charge.publication
        return Path(noted.body["bundle"]) if noted else None


@step("check approval")
def check_approval(home: Home, run_id: str) -> Approved:
    """Replay the ledger, which checks every signature in it, and find the approval of a run.

    Raises:
        ApprovalError: The run is not approved.
        LedgerIntegrityError: An entry does not hold.
    """
    with Ledger.open(home.ledger, create=False) as ledger:
        charge = ledger.state().charges.get(run_id)
    status = charge.status if charge else None
    if charge and charge.decision and status in {Status.APPROVED, Status.PUBLISHED}:
        assert charge.preparation is not None
        return Approved(
            charge=charge,
            decision=charge.decision,
            seal=charge.preparation.body["manifest_sha256"],
            prepared=home.root / PREPARED / run_id,
            target=Path(charge.preparation.body["bundle"]),
        )
    flaws = {
        None: "The ledger has no charge of this run.",
        Status.PREPARED: "The bundle waits for its approval.",
        Status.REJECTED: "The bundle was rejected.",
        Status.PUBLISHED: "This run was published without a review.",
    }
    flaw = flaws.get(status, f"The run is {status}: there is no bundle that was prepared.")
    step = "" if status is Status.PREPARED else "'statpress ledger charge-history' lists the runs."
    if status is Status.REJECTED:
        step = f"Its budget stays spent; delete the folder {home.root / PREPARED / run_id}."
    raise ApprovalError(flaw, where=f"run {run_id!r}", next_step=step)


@contextmanager
def open_publication(home: Home, approved: Approved) -> Iterator[Path]:
    """Claim the folder beside the final place where the copy is made; removed whatever happens.

    Raises:
        OutputNotWritableError: The publishing directory cannot be used, or another process
            publishes this run just now.
    """
    directory = approved.target.parent
    make_directory(directory, home)
    remove_abandoned(directory, BUILDING)
    with claims() as claim:
        yield claim(directory / f"{BUILDING}{approved.run_id}")


@step("find bundle")
def find_moved(approved: Approved) -> Path | None:
    """The bundle's place, if it was moved there and whoever did it was cut off then."""
    for place in final_places(approved.target, approved.run_id):
        if os.path.lexists(place) and _has_seal(place, approved.seal):
            return place
    return None


@step("copy bundle")
def copy_bundle(approved: Approved, building: Path) -> None:
    """Copy the prepared bundle, put its approval beside its seal, verify the copy.

    Raises:
        ApprovalError: The prepared bundle is not there, or not the one that was approved.
        OutputNotWritableError: The copy cannot be written.
    """
    place = str(approved.prepared)
    failure = ""
    try:
        shutil.copytree(approved.prepared, building, symlinks=True, dirs_exist_ok=True)
        (building / APPROVAL).write_text(approval_text(approved.decision), encoding="ascii")
    except FileNotFoundError:
        raise ApprovalError(
            "The prepared bundle is not in this home.",
            where=place,
            next_step="Publish on the machine, and as the user, that prepared it.",
        ) from None
    except (OSError, shutil.Error) as error:
        failure = getattr(error, "strerror", None) or type(error).__name__
    if failure:
        raise OutputNotWritableError(
            f"The bundle cannot be copied ({failure}).", where=str(approved.target.parent)
        )
    check_sealed(building, approved.seal, place, prepared=False)


@step("move into place")
def move_into_place(approved: Approved, building: Path) -> Path:
    """Let the verified copy appear in one step; returns its final place."""
    return publish_folder(building, approved.target, approved.run_id)


@step("note publication")
def note_publication(home: Home, approved: Approved, place: Path) -> Outcome:
    """Note the publication in the ledger, then remove the prepared bundle."""
    charged = approved.charge.entry
    try:
        with Ledger.open(home.ledger, create=False) as ledger:
            ledger.publish(
                run_id=approved.run_id,
                dataset=charged.body["dataset"],
                bundle=str(place),
                manifest_sha256=approved.seal,
            )
    except StatpressError as error:
        error.what += f" The bundle is published at {place}, and not noted in the ledger."
        error.next_step = f"Then run 'statpress publish {approved.run_id}' again."
        raise
    shutil.rmtree(approved.prepared, ignore_errors=True)
    return outcome_of(charged, Status.PUBLISHED, place, approved.seal)


def check_sealed(folder: Path, seal: str, place: str, *, prepared: bool) -> None:
    """Raise unless a folder holds the bundle with this seal, every byte of it.

    Args:
        folder: The bundle, or a copy of it.
        seal: As the ledger has it.
        place: Where a person finds it.
        prepared: Whether it has no approval yet.

    Raises:
        ApprovalError: It does not.
    """
    try:
        manifest = verify_bundle(folder, prepared=prepared)
        flaw = "" if manifest["seal"] == seal else "It has another seal."
        if "review" not in manifest:
            flaw = "It could be used without its approval."
    except BundleVerificationError as error:
        flaw = error.what
    if flaw:
        raise ApprovalError(
            f"The prepared bundle is not the one that the ledger knows: {flaw}",
            where=place,
            next_step="Find out who changed it; nothing else of this run may be published.",
        )


def _has_seal(folder: Path, seal: str) -> bool:
    """Whether a folder is the published bundle with this seal."""
    try:
        return bool(verify_bundle(folder)["seal"] == seal)
    except StatpressError:
        return False
