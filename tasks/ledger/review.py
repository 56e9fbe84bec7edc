"""The acts of review: set who approves, prepare a bundle, decide about it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from tasks.ledger.acts import Appender, now
from tasks.ledger_rules.accounts import Charge, State
from tasks.ledger_rules.entries import Body, Entry
from tasks.ledger_rules.review_rules import approvers_statement, decision_statement
from tasks.ledger_rules.signing import signature_fields

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def set_approvers(
    ledger: Appender,
    *,
    dataset: str,
    approvers: Collection[str],
    unsigned: bool = False,
    reason: str | None = None,
    key: Ed25519PrivateKey | None = None,
) -> Entry:
    """Put the set of those who approve in force; runs charged from then on are reviewed.

    Args:
        ledger: The ledger.
        dataset: Name of the account.
        approvers: Public keys in hexadecimal. Without any, and without unsigned
            decisions, runs that are charged later are not reviewed.
        unsigned: Whether decisions without a signature count.
        reason: Needed where there is a review already.
        key: Of an approver in force, where there are any.

    Raises:
        ApprovalError: The key is not that of an approver in force.
        LedgerError: The rules forbid it, or a value is not usable.
    """
    given: Body = {
        "dataset": dataset,
        "approvers": sorted(set(approvers)),
        "unsigned": unsigned,
        "reason": reason,
        "created": now(),
    }

    def compose(state: State) -> Body:
        if key is None:
            return {}
        return signature_fields(key, approvers_statement(state.account_of(dataset), given))

    return ledger.append("set-approvers", given, compose)


def prepare(
    ledger: Appender, *, run_id: str, dataset: str, bundle: str, manifest_sha256: str
) -> Entry:
    """Record that a sealed bundle waits for its approval; may be repeated.

    Args:
        ledger: The ledger.
        run_id: The run, which has drawn.
        dataset: Name of the account.
        bundle: The place it is to be published at.
        manifest_sha256: Its seal.

    Raises:
        LedgerError: The run is not drawn, not under review, or was prepared otherwise.
    """
    body = {"run_id": run_id, "dataset": dataset, "bundle": bundle}
    return ledger.append("prepare", body | {"manifest_sha256": manifest_sha256})


def decide(
    ledger: Appender,
    *,
    charge: Charge,
    manifest_sha256: str,
    decision: str,
    reason: str | None = None,
    key: Ed25519PrivateKey | None = None,
    by: str | None = None,
) -> Entry:
    """Record an approval or a rejection; the same decision again returns the first.

    Args:
        ledger: The ledger.
        charge: Of the run.
        manifest_sha256: Seal of the bundle that the officer has seen.
        decision: ``approve`` or ``reject``.
        reason: Needed to reject.
        key: The officer's.
        by: In place of a key the name of whoever decides, which nobody vouches for.

    Raises:
        ApprovalError: Whoever decides may not, or it was decided otherwise before.
        LedgerError: A value is not usable.
    """
    run = charge.entry.body
    body: Body = {
        "dataset": run["dataset"],
        "run_id": run["run_id"],
        "charge": charge.entry.hash,
        "manifest_sha256": manifest_sha256,
        "decision": decision,
        "reason": reason,
        "created": now(),
    }
    body |= {"by": by} if key is None else signature_fields(key, decision_statement(body))
    return ledger.append("decide", body)
