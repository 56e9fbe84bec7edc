"""Outcomes and accounts as JSON facts and as text. Public quantities alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from decimal import ROUND_CEILING, Context, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.report.terminal import share_bar, table
from flows.report.uploads import upload_facts, upload_lines
from tasks.ledger_rules.accounts import Account, Charge, Status
from tasks.ledger_rules.amounts import Loss, canonical
from tasks.release.unfinished_runs import in_words, refusals_in_words

if TYPE_CHECKING:
    from rich.table import Table

    from mechanisms.accounting.odometer import Reading
    from tasks.ledger_rules.entries import Entry
    from tasks.release.outcome import Outcome
    from tasks.release.review import Waiting

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
    """The same for a person."""
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


def refinement_report(output: Path, facts: dict[str, Any]) -> Iterator[Any]:
    """Refined tables for a person."""
    source = facts["source"]
    mark = "" if source["publishable"] else " It is NOT PUBLISHABLE (known seed)."
    rows = [
        [
            name,
            f"{product['kind']} by {product['mechanism']['mechanism']}",
            f"{product['rows']:,}",
            f"{product['root_mean_square_standard_error']:,.1f}" if product["rows"] else "-",
            product.get("rounding_keeps", "not rounded"),
        ]
        for name, product in facts["products"].items()
    ]
    columns = ["product", "from", "rows", "standard error (rms)", "rounding keeps"]
    yield table(f"Refined {source['title']}; no budget is spent", columns, rows)
    gaps = facts.get("largest_disagreement_in_records", {})
    if gaps:
        said = ", ".join(f"{name} {gap:,.2f}" for name, gap in gaps.items())
        yield f"Largest disagreement between tables, in records: {said}."
    if facts["without_counts"]:
        yield f"Without counts, left out: {', '.join(facts['without_counts'])}."
    yield f"Wrote {output} from the bundle with the seal {source['seal'][:16]}.{mark}"


def timings_report(timings: dict[str, float]) -> Table:
    """Seconds per step."""
    return table("Timings", ["step", "seconds"], [[k, f"{v:.2f}"] for k, v in timings.items()])


def account_facts(account: Account, reading: Reading | None = None) -> dict[str, Any]:
    """One account of the ledger."""
    facts: dict[str, Any] = {
        "dataset": account.dataset,
        "policy": account.policy,
        "limit": loss_facts(account.limit),
        "spent": loss_facts(account.spent - account.reserved),
        "reserved": loss_facts(account.reserved),
        "remaining": loss_facts(account.remaining),
        "registered": dict(account.registration.body),
        "amendments": [dict(entry.body) for entry in account.amendments],
        "approvers": list(account.approvers),
        "unsigned_approvals": account.unsigned,
        "max_refusals": account.max_refusals,
        "refusals_since_reopening": account.open_refusals,
        "refusals": [{**entry.body, "sequence": entry.sequence} for entry in account.refusals],
        "reopenings": [{**e.body, "sequence": e.sequence} for e in account.reopenings],
        "charges": [charge_facts(charge) for charge in account.charges.values()],
    }
    if reading is not None:
        facts["reading"] = {
            "delta": canonical(reading.delta),
            "epsilon_adaptive": _finite(reading.adaptive),
            "epsilon_fixed": _finite(reading.fixed),
        }
    return facts


def charge_facts(charge: Charge) -> dict[str, Any]:
    """One charge, with what became of it."""
    body, publication = charge.entry.body, charge.publication
    return {
        "sequence": charge.entry.sequence,
        "created": body["created"],
        "dataset": body["dataset"],
        "run_id": body["run_id"],
        **charge.loss.texts(),
        "status": str(charge.status),
        "published": charge.published,
        "config_sha256": body["config_sha256"],
        "publishable": not body["insecure_seed"],
        "bundle": publication.body["bundle"] if publication else None,
        "decision": decision_facts(charge.decision) if charge.decision else None,
        "entry": charge.entry.hash,
    }


def account_report(account: Account, reading: Reading) -> Iterator[Any]:
    """The same for a person: the odometer, with a bar per limited measure."""
    reserved = account.reserved
    rows, bars = [], []
    for measure, limit in account.limit.amounts.items():
        spent, kept = account.spent[measure] - reserved[measure], reserved[measure]
        left = account.remaining[measure]
        amounts = [canonical(amount) for amount in (limit, spent, kept, left)]
        rows.append([_WORDS.get(measure, measure), *amounts])
        bars.append(share_bar(f"{_WORDS.get(measure, measure):<8}", left, limit))
    columns = ["", "limit", "spent", "reserved", "remaining"]
    yield table(f"{account.dataset}: policy {account.policy}", columns, rows)
    yield from bars
    was = account.registration.body
    yield (
        f"Registered {was['created'][:10]}: {was['n_records']:,} records, {was['adjacency']}, "
        f"unit {was['unit']}{_of_several(was['unit_records'])}."
    )
    counts = Counter(str(charge.status) for charge in account.charges.values())
    runs = ", ".join(f"{n} {status}" for status, n in counts.items()) or "none"
    yield f"Charges: {runs}."
    yield from in_words(account)
    if account.refusals:
        yield refusals_in_words(account)
        last = account.refusals[-1].body
        yield f"  {len(account.refusals)} in all, the last at {last['created']}: {last['run_id']}."
    if account.amendments:
        last = account.amendments[-1].body
        yield f"Amended {len(account.amendments)} times, last at {last['created']}."
    if account.reviewed:
        yield review_text(account)
    delta = canonical(reading.delta)
    yield f"All charges together: epsilon {_rounded(reading.adaptive)} at delta {delta}."
    if reading.fixed < reading.adaptive:
        yield (
            f"  If no config depended on an earlier release: epsilon {_rounded(reading.fixed)} "
            f"at delta {delta}."
        )
    yield ""


def _of_several(unit_records: int) -> str:
    return f" of {unit_records:,} records each" if unit_records > 1 else ""


def history_report(charges: list[dict[str, Any]]) -> str:
    """All charges for a person, two lines each."""
    lines = []
    for charge in charges:
        mark = "" if charge["publishable"] else " NOT PUBLISHABLE"
        lines += [
            f"{charge['sequence']:>6}  {charge['created']}  {charge['dataset']}  "
            f"{charge['status']}{mark}  run {charge['run_id']}",
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


def decision_report(decision: Entry) -> str:
    """The same for a person."""
    body = decision.body
    by = f"{body['by']} (not signed)" if "by" in body else f"the key {body['public_key']}"
    word = {"approve": "Approved", "reject": "Rejected"}[body["decision"]]
    why = f": {body['reason']}" if body["reason"] else "."
    return f"{word} {body['created']} by {by}{why}"


def waiting_facts(found: Waiting) -> dict[str, Any]:
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


def form_text(found: Waiting) -> str:
    """A prepared bundle in Markdown, above the form that asks for a decision."""
    facts = waiting_facts(found)
    mark = "" if facts["publishable"] else "\n\n**NOT PUBLISHABLE: drawn from a known seed.**"
    return (
        f"**{facts['title']}**, dataset `{facts['dataset']}`: epsilon {facts['epsilon']},"
        f" delta {facts['delta']}, products {', '.join(facts['products'])}.{mark}\n\n"
        f"The bundle lies in `{facts['folder']}` and would be published as `{facts['place']}`."
        " Its budget is spent, whatever is decided. A rejection is final."
    )


def waiting_report(found: list[Waiting]) -> str:
    """The same for a person, a few lines each."""
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


def _rounded(epsilon: float) -> str:
    """Five digits, rounded up."""
    return f"{Context(prec=5, rounding=ROUND_CEILING).create_decimal(Decimal(epsilon)):f}"


def _finite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None
