"""What an officer sees of prepared bundles, and says about them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from statpress.mechanisms.errors import ApprovalError, BundleVerificationError
from statpress.tasks.bundle.manifest import APPROVAL_NAME as APPROVAL
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.ledger.accounts import Charge, Status
from statpress.tasks.ledger.entries import Entry
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.private_zone.run_context import RunContext, step
from statpress.tasks.release.publication import check_sealed
from statpress.tasks.release.run_places import PREPARED, undecided

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A prepared bundle; public facts alone.

    Attributes:
        charge: Its charge, with what followed.
        title: Of the release; None if the bundle is not in this home, or was changed.
        folder: Where it lies in this home.
        target: Where it is to be published.
    """

    charge: Charge
    title: str | None
    folder: Path
    target: Path


def waiting(home: Home) -> list[Waiting]:
    """What waits for a decision or, approved, for its publication; in the ledger's order."""
    with Ledger.open(home.ledger, create=False) as ledger:
        charges = ledger.state().charges.values()
    found = [each for each in charges if each.status in {Status.PREPARED, Status.APPROVED}]
    return [_waiting(home, charge) for charge in found]


@step("describe bundle")
def describe_waiting(home: Home, run_id: str) -> Waiting:
    """What was prepared by one run, whatever was decided about it since.

    Raises:
        ApprovalError: It prepared nothing.
    """
    with Ledger.open(home.ledger, create=False) as ledger:
        charge = ledger.state().charges.get(run_id)
    if charge is None or charge.preparation is None:
        raise ApprovalError(
            "The ledger knows of no prepared bundle of this run.", where=f"run {run_id!r}"
        )
    return _waiting(home, charge)


def decide(
    home: Home,
    target: str,
    decision: str,
    *,
    reason: str | None,
    key: Ed25519PrivateKey | None = None,
    by: str | None = None,
) -> Entry:
    """Record an officer's decision about the bundle that they have before them.

    Args:
        home: Where the ledger lies.
        target: The run, whose bundle is in this home; or the folder of a copy of it.
        decision: ``approve`` or ``reject``.
        reason: Needed to reject.
        key: The officer's.
        by: In place of a key their name, where the ledger allows unsigned decisions.

    Raises:
        ApprovalError: The bundle is not the prepared one, or whoever decides may not.
        LedgerError: A value is not usable.
    """
    folder, run_id = Path(target), target
    if folder.is_dir():
        prepared = not (folder / APPROVAL).exists()
        run_id = str(verify_bundle(folder, prepared=prepared)["run_id"])
    else:
        folder = home.root / PREPARED / run_id
    with Ledger.open(home.ledger, create=False) as ledger:
        charge = ledger.state().charges.get(run_id)
        if charge is None or charge.preparation is None:
            raise ApprovalError(
                "The ledger knows of no prepared bundle of this run.", where=f"run {run_id!r}"
            )
        seal = charge.preparation.body["manifest_sha256"]
        if decision == "approve" and charge.decision is None:
            check_sealed(folder, seal, str(folder), prepared=True)
        return ledger.decide(
            charge=charge, manifest_sha256=seal, decision=decision, reason=reason, key=key, by=by
        )


@step("check review")
def check_unsigned(home: Home, dataset: str) -> None:
    """Raise unless decisions without a signature count for a dataset.

    Raises:
        ApprovalError: They do not, so that a form could only be filled in for nothing.
    """
    with Ledger.open(home.ledger, create=False) as ledger:
        account = ledger.account(dataset)
    if not account.unsigned:
        raise ApprovalError(
            "Releases of this dataset are decided by signature alone, not by a form.",
            where=f"dataset {dataset!r}",
            next_step="Use the deployment without a form, and 'statpress approve'.",
        )


@step("check decisions")
def check_decided(context: RunContext, dataset: str) -> None:
    """Raise if a release of a dataset is undecided: prepared, and neither approved nor rejected.

    Raises:
        ApprovalError: One is. Nothing was charged.
    """
    known = context.ledger_positions
    with Ledger.open(context.home.ledger, create=False, known=known) as ledger:
        found = undecided(ledger.account(dataset))
    if found:
        raise ApprovalError(
            f"Run {found[0]} of this dataset waits for a decision, neither approved nor rejected;"
            " nothing was charged.",
            where=f"dataset {dataset!r}",
            next_step="'statpress review' lists what waits. Approve or reject it and start again,"
            " or give the flow while_undecided: charge.",
        )


@step("find prepared bundle")
def is_prepared(home: Home, run_id: str) -> bool:
    """Whether a run has prepared its bundle, also if that was decided about since."""
    with Ledger.open(home.ledger, create=False) as ledger:
        charge = ledger.state().charges.get(run_id)
    return charge is not None and charge.preparation is not None


@step("record decision")
def record_unsigned(home: Home, run_id: str, *, decision: str, reason: str, by: str) -> Status:
    """Record what a person wrote into a form; nobody vouches for who they are.

    Returns:
        What the run is now.
    """
    decide(home, run_id, decision, reason=reason, by=by)
    return Status.APPROVED if decision == "approve" else Status.REJECTED


def _waiting(home: Home, charge: Charge) -> Waiting:
    """What is known of a prepared bundle."""
    assert charge.preparation is not None
    prepared = charge.preparation.body
    folder = home.root / PREPARED / prepared["run_id"]
    title = None
    if folder.is_dir():
        try:
            manifest = verify_bundle(folder, prepared=True)
            title = manifest["title"] if manifest["seal"] == prepared["manifest_sha256"] else None
        except (BundleVerificationError, OSError):
            title = None
    return Waiting(charge=charge, title=title, folder=folder, target=Path(prepared["bundle"]))
