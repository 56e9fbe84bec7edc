"""Checks that need the ledger and the accountant together."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

from mechanisms.errors import BundleVerificationError
from mechanisms.planning import recompute_charge
from tasks.home import Home
from tasks.ledger import Ledger, Verification


def verify_ledger(home: Home) -> Verification:
    """Recompute chain, sums, and every charge from its mechanisms' descriptions."""
    with Ledger.open(home.ledger, create=False) as ledger:
        return ledger.verify(_recomputed)


def check_bundle(home: Home, bundle: Path, manifest: dict[str, Any]) -> None:
    """Check that the ledger charged for a bundle and noted its seal.

    Raises:
        BundleVerificationError: It did not.
    """
    with Ledger.open(home.ledger, create=False) as ledger:
        charge = ledger.state().charges.get(manifest["run_id"])
    if charge is None or charge.entry.hash != manifest["ledger_entry"]["hash"]:
        raise BundleVerificationError("The ledger has no such charge.", where=str(bundle))
    body, noted = charge.entry.body, charge.publication
    if noted is None:
        raise BundleVerificationError(
            "The ledger charged this bundle and never noted it as published.",
            where=str(bundle),
            next_step="Ask the publisher whether the run was interrupted.",
        )
    if noted.body["manifest_sha256"] != manifest["seal"]:
        raise BundleVerificationError("The ledger noted another seal.", where=str(bundle))
    stated = (manifest["dataset"], manifest["config_sha256"], manifest["publishable"])
    if stated != (body["dataset"], body["config_sha256"], not body["insecure_seed"]):
        raise BundleVerificationError("The ledger's charge says otherwise.", where=str(bundle))


def _recomputed(body: dict[str, Any]) -> tuple[Decimal, Decimal]:
    return recompute_charge(body["mechanisms"])
