"""Noting a bundle in the ledger, where a run ended before it could do so itself."""

from __future__ import annotations

from pathlib import Path

from mechanisms.errors import BundleVerificationError
from tasks.audit.ledger_check import charge_of_bundle, check_described
from tasks.bundle.manifest import verify_bundle
from tasks.execution.home import Home
from tasks.ledger.ledger import Ledger
from tasks.ledger_rules.entries import Entry
from tasks.release.places import PREPARED


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
