"""What commands say, as JSON facts and as text for a person. Public quantities only."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from statpress.tasks.ledger.accounts import Account, Charge, Status
from statpress.tasks.ledger.entries import Loss, canonical

if TYPE_CHECKING:
    from statpress.mechanisms.accounting.composition import Reading
    from statpress.tasks.ledger.entries import Entry
    from statpress.tasks.release.review import Prepared
    from statpress.tasks.release.runs import Outcome, Uploaded


def upload_facts(uploads: Sequence[Uploaded]) -> dict[str, Any]:
    """What came of uploads."""
    return {"uploads": [asdict(each) for each in uploads]}


def upload_lines(uploads: Sequence[Uploaded]) -> Iterator[str]:
    """A line or two for each upload."""
    for each in uploads:
        files = "1 file" if each.sent == 1 else f"{each.sent} files"
        there = f", {each.kept} already there" if each.kept else ""
        yield f"Uploaded to {each.place}: {files} sent{there}, all read back."
        if each.latest:
            yield f"  {each.latest}"


def outcome_facts(
    outcome: Outcome, left: tuple[Loss | None, str | None], timings: dict[str, float] | None
) -> dict[str, Any]:
    """What a run did, and what is left after it, perhaps for a period."""
    remaining, period = left
    facts: dict[str, Any] = {
        "run_id": outcome.run_id,
        "dataset": outcome.dataset,
        "status": str(outcome.status),
        "bundle": str(outcome.bundle),
        "seal": outcome.seal,
        "epsilon": outcome.epsilon,
        "delta": outcome.delta,
        "ledger_entry": outcome.ledger_entry,
        "publishable": outcome.publishable,
        "remaining": loss_facts(remaining),
        **({"remaining_for": period} if period else {}),
    }
    if outcome.uploads:
        facts |= upload_facts(outcome.uploads)
    if timings is not None:
        facts["timings"] = {title: round(spent, 3) for title, spent in timings.items()}
    return facts


def outcome_report(outcome: Outcome, left: tuple[Loss | None, str | None]) -> str:
    """What a run did, in a few lines."""
    remaining, period = left
    prepared = outcome.status is Status.PREPARED
    lines = [
        f"{'Prepared' if prepared else 'Published'} {outcome.bundle}",
        f"  charged   epsilon {outcome.epsilon}, delta {outcome.delta}",
        f"  remaining {remaining_text(remaining)}{f', for {period}' if period else ''}",
        f"  ledger    {outcome.ledger_entry}",
    ]
    if not outcome.publishable:
        lines.append("  NOT PUBLISHABLE: drawn from a known seed")
    if prepared:
        lines.append(f"  It waits for its approval: statpress approve {outcome.run_id} --key FILE")
        lines.append("  (or --by NAME, where the ledger allows unsigned decisions)")
    return "\n".join([*lines, *upload_lines(outcome.uploads)])


def account_facts(
    account: Account, reading: Reading | None = None, period: str | None = None
) -> dict[str, Any]:
    """One account of the ledger; what remains is for a period, by default the next one."""
    facts: dict[str, Any] = {
        "dataset": account.dataset,
        "policy": account.policy,
        "limit": loss_facts(account.limit),
        "spent": loss_facts(account.spent - account.reserved),
        "reserved": loss_facts(account.reserved),
        "remaining": loss_facts(account.remaining_for(period or account.next_period)),
        **(_design_facts(account, period) if account.has_design else {}),
        "registered": dict(account.registration.body),
        "amendments": [dict(entry.body) for entry in account.amendments],
        "approvers": list(account.approvers),
        "unsigned_approvals": account.unsigned,
        "max_looks": account.max_looks,
        **({"noisy_gates": True} if account.noisy_gates else {}),
        "sources": list(account.sources),
        **({"also_in": account.binding.body["also_in"]} if account.binding else {}),
        "looks_since_reopening": account.open_looks,
        "last_look": _in_order(account.last_look) if account.last_look else None,
        "max_refusals": account.max_refusals,
        "refusals_since_reopening": account.open_refusals,
        "refusals": [_in_order(entry) for entry in account.refusals],
        "reopenings": [_in_order(entry) for entry in account.reopenings],
        "charges": [charge_facts(charge) for charge in account.charges.values()],
    }
    if reading is not None:
        facts["reading"] = {
            "delta": canonical(reading.delta),
            "epsilon_adaptive": _finite(reading.adaptive),
            "epsilon_fixed": _finite(reading.fixed),
        }
    return facts


def _design_facts(account: Account, period: str | None) -> dict[str, Any]:
    """What an account with a design has besides; sums of periods by measure of the policy."""
    amounts = account.by_period.amounts
    return {
        "design": account.design,
        "design_in_words": account.panel.words,
        "spent_by_one": loss_facts(account.spent_by_one()),
        "remaining_for": period or account.next_period,
        "periods": {
            each: {m: canonical(amounts[m][each]) for m in account.limit.amounts}
            for each in sorted(account.by_period.periods)
        },
    }


def _in_order(entry: Entry) -> dict[str, Any]:
    return {**entry.body, "sequence": entry.sequence}


def charge_facts(charge: Charge) -> dict[str, Any]:
    """One charge, with what became of it."""
    body, publication = charge.entry.body, charge.publication
    return {
        "sequence": charge.entry.sequence,
        "created": body["created"],
        "dataset": body["dataset"],
        "run_id": body["run_id"],
        **({"period": charge.period} if charge.period else {}),
        **charge.loss.texts(),
        "status": str(charge.status),
        "published": charge.published,
        "config_sha256": body["config_sha256"],
        "publishable": not body["insecure_seed"],
        "bundle": publication.body["bundle"] if publication else None,
        "decision": decision_facts(charge.decision) if charge.decision else None,
        "entry": charge.entry.hash,
    }


def review_text(account: Account) -> str:
    """Who approves the releases of a dataset."""
    if not account.reviewed:
        return "Releases need no approval."
    by = [f"the keys {', '.join(account.approvers)}"] if account.approvers else []
    by += ["unsigned decisions"] if account.unsigned else []
    return f"Releases wait for an approval, by {' or '.join(by)}."


def decision_facts(decision: Entry) -> dict[str, Any]:
    """An approval or a rejection; ``signed_by`` or, without a signature, ``by``."""
    body = decision.body
    names = ("decision", "dataset", "run_id", "created", "reason", "manifest_sha256")
    return {
        **{name: body[name] for name in names},
        "signed_by": body.get("public_key"),
        "by": body.get("by"),
        "entry": decision.hash,
    }


def decision_report(decision: Entry) -> str:
    """Who decided what, when and why, in a line."""
    body = decision.body
    by = f"{body['by']} (not signed)" if "by" in body else f"the key {body['public_key']}"
    word = {"approve": "Approved", "reject": "Rejected"}[body["decision"]]
    why = f": {body['reason']}" if body["reason"] else "."
    return f"{word} {body['created']} by {by}{why}"


def waiting_facts(found: Prepared) -> dict[str, Any]:
    """A prepared bundle, in public facts."""
    body, preparation = found.charge.entry.body, found.charge.preparation
    assert preparation is not None
    return {
        "run_id": body["run_id"],
        "dataset": body["dataset"],
        "title": found.title,
        "status": str(found.charge.status),
        "prepared": preparation.body["created"],
        **found.charge.loss.texts(),
        "products": list(dict.fromkeys(each["product"] for each in body["mechanisms"])),
        "publishable": not body["insecure_seed"],
        "seal": preparation.body["manifest_sha256"],
        "folder": str(found.folder),
        "place": str(found.target),
        "decision": decision_facts(found.charge.decision) if found.charge.decision else None,
    }


def loss_facts(loss: Loss | None) -> dict[str, str] | None:
    """A loss as exact decimal text."""
    return None if loss is None else loss.texts()


def remaining_text(loss: Loss | None) -> str:
    """What the ledger still grants, or that the dataset has no account."""
    return "dataset not registered" if loss is None else str(loss)


def _finite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None
