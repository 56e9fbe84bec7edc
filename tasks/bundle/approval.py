"""The approval in a published bundle: the ledger's own entry, in a file beside the seal.

A manifest is sealed before anyone has approved it. So it says that the release is
reviewed, and ``approval.json`` holds the entry of the decision, which names the seal
and is signed by the officer. Whoever has the officer's public key can check it without
the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from mechanisms.errors import ApprovalError, BundleVerificationError, StatpressError
from tasks.bundle.places import Folder, Place
from tasks.ledger_rules.entries import Entry, canonical_json, entry_hash
from tasks.ledger_rules.review_rules import check_decision

NAME = "approval.json"
_PARTS = ("sequence", "kind", "body", "previous", "hash")
_LONGEST = 2**16


def approval_text(decision: Entry) -> str:
    """What the file holds: the ledger's entry."""
    parts = {name: getattr(decision, name) for name in _PARTS}
    return json.dumps(parts, indent=2, ensure_ascii=True) + "\n"


def read_approval(folder: Path, manifest: Mapping[str, Any]) -> Entry:
    """The approval of a bundle that is a folder; for the rest see ``approval_at``."""
    return approval_at(Folder(folder), manifest)


def approval_at(place: Place, manifest: Mapping[str, Any]) -> Entry:
    """The approval of a bundle, if it is one of exactly this bundle.

    Args:
        place: The bundle.
        manifest: Its manifest, which holds.

    Raises:
        BundleVerificationError: There is none, or it is another's, or its signature does
            not hold.
    """
    content = place.text(NAME, _LONGEST)
    if content is None:
        raise BundleVerificationError(
            "The release needs an approval and has none.",
            where=place.where,
            next_step="Do not use this bundle: its publisher has not released it.",
        )
    whole = False
    try:
        text = content.decode("utf-8")
        decision = Entry(**json.loads(text))
        check_decision(decision.body)
        whole = text == approval_text(decision) and _of_this(decision, manifest)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        pass
    except StatpressError:
        pass  # a field that no decision has, or a signature that does not hold
    if not whole:
        raise BundleVerificationError(f"{NAME} is no approval of this bundle.", where=place.where)
    return decision


def approved_by(
    bundle: Path | Place, manifest: Mapping[str, Any], trusted: Collection[str]
) -> Entry | None:
    """The approval of a verified bundle; None if it needs none and nobody is trusted.

    Args:
        bundle: Its folder, or where else it lies.
        manifest: Its manifest.
        trusted: Public keys; with any, the approval must be signed by one of them.

    Raises:
        ApprovalError: It is not.
    """
    place = Folder(bundle) if isinstance(bundle, Path) else bundle
    approval = approval_at(place, manifest) if "review" in manifest else None
    if trusted and (approval is None or approval.body.get("public_key") not in trusted):
        raise ApprovalError(
            "None of the given keys signed an approval of this bundle.",
            where=place.where,
            next_step="Ask its publisher who approves their releases.",
        )
    return approval


def _of_this(decision: Entry, manifest: Mapping[str, Any]) -> bool:
    """Whether a decision approves the run, charge and seal of a manifest."""
    said = {
        "decision": "approve",
        "dataset": manifest["dataset"],
        "run_id": manifest["run_id"],
        "charge": manifest["ledger_entry"]["hash"],
        "manifest_sha256": manifest["seal"],
    }
    hashed = entry_hash(decision.sequence, decision.kind, decision.body, decision.previous)
    same = canonical_json({name: decision.body[name] for name in said}) == canonical_json(said)
    return same and decision.kind == "decide" and decision.hash == hashed
