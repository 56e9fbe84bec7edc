"""What commands say, as JSON facts and as text for a person. Public quantities only."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from decimal import ROUND_CEILING, Context, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statpress.flows.terminal import table
from statpress.tasks.ledger.accounts import Account, Charge, Status
from statpress.tasks.ledger.entries import Loss, canonical
from statpress.tasks.pages.numbers import how_many
from statpress.tasks.release.run_places import (
    design_in_words,
    left_in_words,
    looks_in_words,
    sources_in_words,
    unfinished_in_words,
)

if TYPE_CHECKING:
    from statpress.mechanisms.accounting.composition import Reading
    from statpress.tasks.ledger.entries import Entry
    from statpress.tasks.release.review import Prepared
    from statpress.tasks.release.run_places import Outcome, Uploaded


_BAR = 40


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


_WORDS = {"rho_delta": "delta"}


def outcome_facts(
    outcome: Outcome, remaining: Loss | None, timings: dict[str, float] | None
) -> dict[str, Any]:
    """What a run did."""
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
    }
    if outcome.uploads:
        facts |= upload_facts(outcome.uploads)
    if timings is not None:
        facts["timings"] = {title: round(spent, 3) for title, spent in timings.items()}
    return facts


def outcome_report(outcome: Outcome, remaining: Loss | None) -> str:
    """What a run did, in a few lines."""
    prepared = outcome.status is Status.PREPARED
    lines = [
        f"{'Prepared' if prepared else 'Published'} {outcome.bundle}",
        f"  charged   epsilon {outcome.epsilon}, delta {outcome.delta}",
        f"  remaining {remaining_text(remaining)}",
        f"  ledger    {outcome.ledger_entry}",
    ]
    if not outcome.publishable:
        lines.append("  NOT PUBLISHABLE: drawn from a known seed")
    if prepared:
        lines.append(f"  It waits for its approval: statpress approve {outcome.run_id} --key FILE")
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


def account_report(account: Account, reading: Reading, period: str | None = None) -> Iterator[Any]:
    """The account as an odometer, with a bar per limited measure.

    What remains is for a period, by default the next one.
    """
    reserved, period = account.reserved, period or account.next_period
    remaining, whole = account.remaining_for(period), account.spent_by_one()
    rows, bars = [], []
    for measure, limit in account.limit.amounts.items():
        spent, kept, left = account.spent[measure], reserved[measure], remaining[measure]
        by_one = [whole[measure]] if account.has_design else []
        amounts = [canonical(amount) for amount in (limit, spent - kept, kept, *by_one, left)]
        rows.append([_WORDS.get(measure, measure), *amounts])
        bars.append(share_bar(f"{_WORDS.get(measure, measure):<8}", left, limit))
    columns = ["", "limit", "spent", "reserved", "remaining"]
    if account.has_design:
        columns[2:] = ["spent", "reserved", "on one person", f"left for {period or 'a period'}"]
    yield table(f"{account.dataset}: policy {account.policy}", columns, rows)
    yield from bars
    if account.has_design:
        yield design_in_words(account)
    if lasting := left_in_words(account):
        yield lasting
    was = account.registration.body
    size = "of any size"
    if "n_records" in was:
        size = how_many(was["n_records"] // was["unit_records"], was["n_records"])
    yield (
        f"Registered {was['created'][:10]}: {size}, {was['adjacency']}, "
        f"unit {was['unit']}{_of_several(was['unit_records'])}."
    )
    yield sources_in_words(account)
    counts = Counter(str(charge.status) for charge in account.charges.values())
    runs = ", ".join(f"{n} {status}" for status, n in counts.items()) or "none"
    yield f"Charges: {runs}."
    yield from unfinished_in_words(account)
    if account.last_look or account.refusals:
        yield looks_in_words(account)
    if account.refusals:
        last = account.refusals[-1].body
        when = f"the last at {last['created']}: {last['run_id']}"
        yield f"  {len(account.refusals)} stopped in all, {when}."
    if account.amendments:
        last = account.amendments[-1].body
        yield f"Amended {len(account.amendments)} times, last at {last['created']}."
    if account.reviewed:
        yield review_text(account)
    delta = canonical(reading.delta)
    whose = "One person, at most" if account.has_design else "All charges together"
    yield f"{whose}: epsilon {_rounded_spend(reading.adaptive)} at delta {delta}."
    if reading.fixed < reading.adaptive:
        yield (
            "  If no config depended on an earlier release: "
            f"epsilon {_rounded_spend(reading.fixed)} at delta {delta}."
        )
    yield ""


def share_bar(label: str, part: Decimal, whole: Decimal) -> Any:
    """A bar as long as what is left of the whole, with its percentage rounded down."""
    from rich.text import Text

    share = min(Decimal(1), max(Decimal(0), part / whole)) if whole else Decimal(0)
    full = int(share * _BAR)
    colour = "green" if share > Decimal("0.25") else "yellow" if share else "red"
    text = Text(label)
    text.append("█" * full, style=colour)
    text.append("░" * (_BAR - full), style="dim")
    text.append(f" {int(share * 100):3d} % left")
    return text


def _of_several(unit_records: int) -> str:
    return f" of {unit_records:,} records each" if unit_records > 1 else ""


def history_report(charges: list[dict[str, Any]]) -> str:
    """All charges for a person, two lines each."""
    lines = []
    for charge in charges:
        mark = "" if charge["publishable"] else " NOT PUBLISHABLE"
        lines += [
            f"{charge['sequence']:>6}  {charge['created']}  {charge['dataset']}  "
            + (f"{charge['period']}  " if "period" in charge else "")
            + f"{charge['status']}{mark}  run {charge['run_id']}",
            f"        epsilon {charge['epsilon']}, delta {charge['delta']}; rho {charge['rho']}, "
            f"delta {charge['rho_delta']}{'; ' + charge['bundle'] if charge['bundle'] else ''}",
        ]
    return "\n".join(lines or ["No charges."])


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


def statement_report(statement: Path) -> str:
    """How the officer signs a statement, and how it comes back."""
    return (
        f"Wrote {statement}; nothing is decided yet. Where the key is:\n"
        f"  openssl pkeyutl -sign -rawin -inkey KEY -in {statement.name}"
        f" -out {statement.name}.signature\n"
        "Then repeat this command with --signature and that file."
    )


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


def form_text(found: Prepared) -> str:
    """A prepared bundle in Markdown, above the form that asks for a decision."""
    facts = waiting_facts(found)
    mark = "" if facts["publishable"] else "\n\n**NOT PUBLISHABLE: drawn from a known seed.**"
    return (
        f"**{facts['title']}**, dataset `{facts['dataset']}`: epsilon {facts['epsilon']},"
        f" delta {facts['delta']}, products {', '.join(facts['products'])}.{mark}\n\n"
        f"The bundle lies in `{facts['folder']}` and would be published as `{facts['place']}`."
        " Its budget is spent, whatever is decided. A rejection is final."
    )


def waiting_report(found: list[Prepared]) -> str:
    """A few lines for each bundle that waits."""
    lines = []
    for facts in map(waiting_facts, found):
        mark = "" if facts["publishable"] else " NOT PUBLISHABLE"
        step = "to be decided" if facts["decision"] is None else "approved, to be published"
        title = facts["title"] or "the bundle is not in this home, or was changed"
        lines += [
            f"{facts['run_id']}  {facts['dataset']}  {step}{mark}",
            f"        {title}",
            f"        epsilon {facts['epsilon']}, delta {facts['delta']};"
            f" products {', '.join(facts['products'])}; prepared {facts['prepared']}",
            f"        in {facts['folder']}, for {facts['place']}",
        ]
    return "\n".join(lines or ["Nothing waits."])


def loss_facts(loss: Loss | None) -> dict[str, str] | None:
    """A loss as exact decimal text."""
    return None if loss is None else loss.texts()


def remaining_text(loss: Loss | None) -> str:
    """What the ledger still grants, or that the dataset has no account."""
    return "dataset not registered" if loss is None else str(loss)


def _rounded_spend(epsilon: float) -> str:
    """Five digits, rounded up."""
    return f"{Context(prec=5, rounding=ROUND_CEILING).create_decimal(Decimal(epsilon)):f}"


def _finite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None
