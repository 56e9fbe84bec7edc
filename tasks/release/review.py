"""Prepared bundles: what waits for a decision, what officers decide, and how it is published.

A bundle that is approved may be published weeks after its release. Only the home and the ledger
hold state. Every step of a publication may be cut off and begun again: the prepared bundle is kept
until the ledger has noted the publication, what appears in the publishing directory is a copy of it
that was verified, and it appears in one step.

``decide`` carries a decision to the ledger, whose ``Ledger.decide`` checks its signature. Where the
officer's key stays on another machine, it signs there what ``write_statement`` wrote.
``note_bundle`` notes a bundle in the ledger where a run ended before it could do so itself.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from statpress.mechanisms.errors import (
    ApprovalError,
    BundleVerificationError,
    OutputNotWritableError,
    StatpressError,
)
from statpress.tasks.bundle.manifest import APPROVAL_NAME as APPROVAL
from statpress.tasks.bundle.manifest import approval_text, verify_bundle
from statpress.tasks.ledger.accounts import Charge, Status
from statpress.tasks.ledger.entries import Entry, canonical_json
from statpress.tasks.ledger.home_ledger import open_ledger
from statpress.tasks.ledger.rules import SignedElsewhere, decision_body, decision_statement
from statpress.tasks.private_zone.folders import Home, claims, remove_abandoned
from statpress.tasks.private_zone.run_context import RunContext, step
from statpress.tasks.release.ledger_check import charge_of_bundle, check_described
from statpress.tasks.release.runs import (
    BUILDING,
    PREPARED,
    Outcome,
    final_places,
    make_directory,
    outcome_of,
    publish_folder,
    undecided,
)
from statpress.tasks.release.series_periods import point_latest

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from statpress.tasks.ledger.ledger import Ledger

_LARGEST_STATEMENT = 2**20


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A bundle that a run prepared for its approval; public facts only.

    Attributes:
        charge: Of the run, with what followed.
        folder: Where the bundle waits in this home.
        target: Where it is to be published.
        title: Of the release, where it was read; None if the bundle is not in this home, or was
            changed.
    """

    charge: Charge
    folder: Path
    target: Path
    title: str | None = None

    @property
    def run_id(self) -> str:
        """The run."""
        return str(self.charge.entry.body["run_id"])

    @property
    def seal(self) -> str:
        """The seal, as the ledger has it."""
        assert self.charge.preparation is not None
        return str(self.charge.preparation.body["manifest_sha256"])

    @property
    def published(self) -> Path | None:
        """Where the ledger says that the bundle was published, if it was."""
        noted = self.charge.publication
        return Path(noted.body["bundle"]) if noted else None

    @classmethod
    @step("describe bundle")
    def described(cls, home: Home, run_id: str) -> Prepared:
        """What was prepared by one run, whatever was decided about it since."""
        return _titled(_prepared(home, _charge_of(home, run_id), run_id))

    @classmethod
    @step("check approval")
    def approved(cls, home: Home, run_id: str) -> Prepared:
        """Replay the ledger, which checks every signature in it, and find the approval of a run."""
        charge = _charge_of(home, run_id)
        status = charge.status if charge else None
        if charge and charge.decision and status in {Status.APPROVED, Status.PUBLISHED}:
            return _prepared(home, charge, run_id)
        flaws = {
            None: "The ledger has no charge of this run.",
            Status.PREPARED: "The bundle waits for its approval.",
            Status.REJECTED: "The bundle was rejected.",
            Status.PUBLISHED: "This run was published without a review.",
        }
        flaw = flaws.get(status, f"The run is {status}: there is no bundle that was prepared.")
        step = (
            "" if status is Status.PREPARED else "'statpress ledger charge-history' lists the runs."
        )
        if status is Status.REJECTED:
            step = f"Its budget stays spent; delete the folder {home.root / PREPARED / run_id}."
        raise ApprovalError(flaw, where=f"run {run_id!r}", next_step=step)

    @contextmanager
    def open_publication(self, home: Home) -> Iterator[Path]:
        """Claim the folder beside the final place where the copy is made; it goes in any case."""
        directory = self.target.parent
        make_directory(directory, home)
        remove_abandoned(directory, BUILDING)
        with claims() as claim:
            yield claim(directory / f"{BUILDING}{self.run_id}")

    @step("find bundle")
    def find_moved(self) -> Path | None:
        """The bundle's place, if it was moved there and whoever did it was cut off then."""
        for place in final_places(self.target, self.run_id):
            if os.path.lexists(place) and _has_seal(place, self.seal):
                return place
        return None

    @step("copy bundle")
    def copy_bundle(self, building: Path) -> None:
        """Copy the prepared bundle, put its approval beside its seal, verify the copy."""
        place, decision, failure = str(self.folder), self.charge.decision, ""
        assert decision is not None
        try:
            shutil.copytree(self.folder, building, symlinks=True, dirs_exist_ok=True)
            (building / APPROVAL).write_text(approval_text(decision), encoding="ascii")
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
                f"The bundle cannot be copied ({failure}).", where=str(self.target.parent)
            )
        check_sealed(building, self.seal, place, prepared=False)

    @step("move into place")
    def move_into_place(self, building: Path) -> Path:
        """Let the verified copy appear in one step; returns its final place."""
        return publish_folder(building, self.target, self.run_id)

    @step("note publication")
    def note_publication(self, home: Home, place: Path) -> Outcome:
        """Note the publication in the ledger, then remove the prepared bundle."""
        charged = self.charge.entry
        try:
            with open_ledger(home) as ledger:
                ledger.publish(
                    run_id=self.run_id,
                    dataset=charged.body["dataset"],
                    bundle=str(place),
                    manifest_sha256=self.seal,
                )
        except StatpressError as error:
            error.what += f" The bundle is published at {place}, and not noted in the ledger."
            error.next_step = f"Then run 'statpress publish {self.run_id}' again."
            raise
        point_latest(place)
        shutil.rmtree(self.folder, ignore_errors=True)
        return outcome_of(charged, Status.PUBLISHED, place, self.seal)


def _charge_of(home: Home, run_id: str) -> Charge | None:
    """The charge of a run, from a replay of the ledger, which checks every signature in it."""
    with open_ledger(home) as ledger:
        return ledger.state().charges.get(run_id)


def _prepared(home: Home, charge: Charge | None, run_id: str) -> Prepared:
    """What a run prepared, whatever was decided about it since."""
    if charge is None or charge.preparation is None:
        raise ApprovalError(
            "The ledger knows of no prepared bundle of this run.", where=f"run {run_id!r}"
        )
    target = Path(charge.preparation.body["bundle"])
    return Prepared(charge=charge, folder=home.root / PREPARED / run_id, target=target)


def _titled(prepared: Prepared) -> Prepared:
    """A prepared bundle with the title that it states, if it is here and unchanged."""
    title = None
    if prepared.folder.is_dir():
        try:
            manifest = verify_bundle(prepared.folder, prepared=True)
            title = manifest["title"] if manifest["seal"] == prepared.seal else None
        except (BundleVerificationError, OSError):
            title = None
    return replace(prepared, title=title)


def waiting(home: Home) -> list[Prepared]:
    """What waits for a decision or, approved, for its publication; in the ledger's order."""
    with open_ledger(home) as ledger:
        charges = ledger.state().charges
    return [
        _titled(_prepared(home, charge, run_id))
        for run_id, charge in charges.items()
        if charge.status in {Status.PREPARED, Status.APPROVED}
    ]


def decide(
    home: Home,
    target: str,
    decision: str,
    *,
    reason: str | None,
    key: Ed25519PrivateKey | None = None,
    by: str | None = None,
    statement: Path | None = None,
    signature: Path | None = None,
) -> Entry:
    """Record an officer's decision about the bundle that they have before them.

    Args:
        home: Where the ledger lies.
        target: The run, whose bundle is in this home; or the folder of a copy of it.
        decision: ``approve`` or ``reject``.
        reason: Needed to reject.
        key: The officer's.
        by: In place of a key their name, where the ledger allows unsigned decisions.
        statement: In place of a key what ``write_statement`` wrote about this decision, ...
        signature: ... and its signature, 64 bytes, which the officer made elsewhere.

    Raises:
        ApprovalError: The bundle is not the prepared one, or whoever decides may not.
        LedgerError: A value is not usable.
    """
    with _before_decision(home, target, decision) as (ledger, prepared):
        signed = None
        if statement is not None and signature is not None:
            text = _read(statement)
            reason, created = _stated(prepared, decision, reason, text, statement)
            signed = SignedElsewhere(created=created, signature=_read(signature).hex())
        return ledger.decide(
            charge=prepared.charge,
            manifest_sha256=prepared.seal,
            decision=decision,
            reason=reason,
            key=key,
            by=by,
            signed=signed,
        )


def write_statement(
    home: Home, target: str, decision: str, *, reason: str | None, file: Path
) -> None:
    """Write what an officer signs, where their key is, to make a decision.

    Raises:
        ApprovalError: The bundle is not the prepared one, or was decided about.
        OutputNotWritableError: The file is there already, or cannot be written.
    """
    from statpress.tasks.ledger.ledger import now

    with _before_decision(home, target, decision) as (_, prepared):
        if prepared.charge.status is not Status.PREPARED:
            raise ApprovalError(
                f"This run is {prepared.charge.status} already; a decision is final.",
                where=f"run {prepared.run_id!r}",
            )
    body = decision_body(prepared.charge, prepared.seal, decision, reason, now())
    failure = ""
    try:
        with file.open("x", encoding="ascii") as out:
            out.write(canonical_json(decision_statement(body)))
    except OSError as error:
        failure = error.strerror or type(error).__name__
    if failure:
        raise OutputNotWritableError(
            f"The statement cannot be written ({failure}).",
            where=str(file),
            next_step="Name a new file; to hand in a signature of this one, give --signature.",
        )


@contextmanager
def _before_decision(home: Home, target: str, decision: str) -> Iterator[tuple[Ledger, Prepared]]:
    """The open ledger, and the prepared bundle that is to be decided about, checked to approve."""
    folder, run_id = Path(target), target
    if folder.is_dir():
        undecided_copy = not (folder / APPROVAL).exists()
        run_id = str(verify_bundle(folder, prepared=undecided_copy)["run_id"])
    else:
        folder = home.root / PREPARED / run_id
    with open_ledger(home) as ledger:
        prepared = _prepared(home, ledger.state().charges.get(run_id), run_id)
        if decision == "approve" and prepared.charge.decision is None:
            check_sealed(folder, prepared.seal, str(folder), prepared=True)
        yield ledger, prepared


def _stated(
    prepared: Prepared, decision: str, reason: str | None, text: bytes, file: Path
) -> tuple[str | None, str]:
    """The reason and the time in a statement, if it is the one about this decision."""
    with suppress(ValueError):
        *_, stated, created = json.loads(text)
        body = decision_body(prepared.charge, prepared.seal, decision, stated, created)
        expected = canonical_json(decision_statement(body))
        if text == expected.encode("ascii") and reason in (None, stated):
            return stated, created
    raise ApprovalError(
        "The statement is not the one about this decision, this bundle and this reason.",
        where=str(file),
        next_step="Repeat the command that wrote it, with --signature added; or write it anew.",
    )


def _read(file: Path) -> bytes:
    """The bytes of a statement or a signature."""
    try:
        with file.open("rb") as opened:
            return opened.read(_LARGEST_STATEMENT)
    except OSError as error:
        failure = error.strerror or type(error).__name__
    raise ApprovalError(
        f"The file cannot be read ({failure}).", where=str(file), next_step="Check the path."
    )


@step("check decisions")
def check_decided(context: RunContext, dataset: str) -> None:
    """Raise if a release of a dataset is undecided: prepared, and neither approved nor rejected."""
    known = context.ledger_positions
    with open_ledger(context.home, known=known) as ledger:
        runs = undecided(ledger.account(dataset))
    if runs:
        raise ApprovalError(
            f"Run {runs[0]} of this dataset waits for a decision, neither approved nor rejected;"
            " nothing was charged.",
            where=f"dataset {dataset!r}",
            next_step="'statpress review' lists what waits. Approve or reject it and start again,"
            " or give the flow while_undecided: charge.",
        )


def note_bundle(home: Home, bundle: Path, prepared_for: Path | None = None) -> Entry:
    """Note a whole bundle as published or as prepared, where a run ended before it could.

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
    with open_ledger(home) as ledger:
        charge = charge_of_bundle(ledger, bundle, manifest)
        check_described(charge, bundle)
        noted = {
            "run_id": manifest["run_id"],
            "dataset": charge.entry.body["dataset"],
            "manifest_sha256": manifest["seal"],
        }
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
            return ledger.prepare(**noted, bundle=str(prepared_for.absolute()))
        published = charge.publication
        place = published.body["bundle"] if published else str(bundle.absolute())
        entry = ledger.publish(**noted, bundle=place)
    point_latest(Path(place))
    return entry


def check_sealed(folder: Path, seal: str, place: str, *, prepared: bool) -> None:
    """Raise unless a folder holds the bundle with this seal, every byte of it."""
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


@step("check review")
def check_unsigned(home: Home, dataset: str) -> None:
    """Raise unless decisions without a signature count for a dataset."""
    with open_ledger(home) as ledger:
        account = ledger.account(dataset)
    if not account.unsigned:
        raise ApprovalError(
            "Releases of this dataset are decided by signature alone, not by a form.",
            where=f"dataset {dataset!r}",
            next_step="Use the deployment without a form, and 'statpress approve'.",
        )


@step("find prepared bundle")
def is_prepared(home: Home, run_id: str) -> bool:
    """Whether a run has prepared its bundle, also if that was decided about since."""
    with open_ledger(home) as ledger:
        charge = ledger.state().charges.get(run_id)
    return charge is not None and charge.preparation is not None


@step("record decision")
def record_unsigned(home: Home, run_id: str, *, decision: str, reason: str, by: str) -> Status:
    """Record what a person wrote into a form; nobody vouches for who they are."""
    decide(home, run_id, decision, reason=reason, by=by)
    return Status.APPROVED if decision == "approve" else Status.REJECTED
