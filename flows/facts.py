"""What commands say, as JSON facts and as text for a person. Public quantities only."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from decimal import ROUND_CEILING, Context, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statpress.configs.loading import Release
from statpress.flows.terminal import registration, table
from statpress.mechanisms.mechanism import shown
from statpress.mechanisms.planning.choice import Candidate, compare
from statpress.mechanisms.planning.plan import Plan, PlannedProduct, verdict
from statpress.mechanisms.planning.planner import criterion_of, error_of, error_with_more
from statpress.tasks.ledger.accounts import Account, Charge, Status
from statpress.tasks.ledger.entries import Loss, canonical
from statpress.tasks.pages.numbers import at_most, how_many
from statpress.tasks.products.product_kind import kind_of
from statpress.tasks.release.foreseen import (
    forecast_facts,
    forecasts,
    peak,
    size_in_words,
    verdict_facts,
    warnings,
)
from statpress.tasks.release.run_places import (
    design_in_words,
    left_in_words,
    looks_in_words,
    sources_in_words,
    unfinished_in_words,
)
from statpress.tasks.release.share_words import division_words, share_origin, with_more
from statpress.tasks.report.privacy_page import EXPLANATIONS

if TYPE_CHECKING:
    from rich.table import Table

    from statpress.mechanisms.accounting.composition import Reading
    from statpress.tasks.ledger.entries import Entry
    from statpress.tasks.release.rehearsal_steps import Rehearsed
    from statpress.tasks.release.review import Prepared
    from statpress.tasks.release.run_places import Outcome, Uploaded
    from statpress.tasks.upkeep.backup import Restored
    from statpress.tasks.upkeep.checkup import Finding


_BAR = 40


def query_report(facts: Mapping[str, Any]) -> Iterator[Any]:
    """A row for each cell: its values, the estimate, its error and interval."""
    from statpress.tasks.products.answer_words import caveats
    from statpress.tasks.release.answer_chart import title_of
    from statpress.tasks.release.query import TESTED

    columns, statistic = facts["columns"], facts["statistic"]
    sums = statistic in ("count", "total")
    first = facts["cells"][0]
    limits = [name for name in ("share_lower", "share_upper") if name in first]
    compared = [name for name in ("earlier", "later") if name in first]
    tested = ["p_value"] if statistic in TESTED or compared else []
    if tested and any(cell["method"] != "Wald" for cell in facts["cells"]):
        tested.append("method")
    further = [*limits, *tested]
    marked = {True: "yes", False: ""}
    rows = [
        [
            *(cell["values"][name] for name in columns),
            *(_figure(cell[part], sums) for part in (*compared, *_PARTS)),
            *(x if isinstance(x := cell[name], str) else f"{x:.4f}" for name in further),
            *([marked[cell["changed"]]] if compared else []),
        ]
        for cell in facts["cells"]
    ]
    level = f"{facts['confidence']:.4g}"
    conditions = [f"{name} = {' or '.join(values)}" for name, values in facts["where"].items()]
    title = f"{facts['product']}: {title_of(facts)}" + (
        f" with {', '.join(conditions)}" * bool(conditions)
    )
    headings = [*columns, *compared, "change" if compared else "estimate", "standard error"]
    headings += [f"from ({level})", f"to ({level})"]
    headings += [name.replace("_lower", " from").replace("_upper", " to") for name in limits]
    headings += ["p", "interval by"][: len(tested)]
    headings += ["changed"] if compared else []
    yield table(title, headings, rows, ends_in_words="method" in tested or bool(compared))
    yield "\n".join([*facts["notes"], *caveats(facts)])


_PARTS = ("estimate", "standard_error", "lower", "upper")


def _figure(figure: float, of_sum: bool) -> str:
    if not math.isfinite(figure):
        return "–" if math.isnan(figure) else f"{figure:+}".replace("inf", "∞")
    return f"{figure:,.1f}" if of_sum else f"{figure:,.4g}"


def query_csv(facts: Mapping[str, Any]) -> str:
    """A line for each cell, with the columns of the estimates and a heading."""
    lines, text = [_flat(cell) for cell in query_facts(facts)["cells"]], io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue().rstrip("\n")


def query_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """An answer as JSON has it: null for a figure that is not there or has no end."""
    cells = [
        {
            name: None if isinstance(each, float) and not math.isfinite(each) else each
            for name, each in cell.items()
        }
        for cell in facts["cells"]
    ]
    return {**facts, "cells": cells}


def _flat(cell: Mapping[str, Any]) -> dict[str, Any]:
    return {**cell["values"], **{name: each for name, each in cell.items() if name != "values"}}


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


def whole_report(
    where: str, manifest: Mapping[str, Any], *, lists: bool, rederived: bool | None
) -> str:
    """That every file is as its manifest says, and what else is known of it."""
    text = f"{where}: {len(manifest['files'])} files, all as the manifest says."
    if manifest.get("reprint_of"):
        text += f" A reprint of what was drawn for {manifest['reprint_of']['seal']}."
        if rederived is None:
            text += " That it follows from that was not checked: verify its folder."
        elif not rederived:
            text += " Its estimates, by other versions, were not derived again."
    if not manifest["publishable"]:
        text += " It is NOT PUBLISHABLE (known seed)."
    if not lists:
        text += " A server does not list its files: whether it has more of them is not known."
    return text


def signature_report(signed: Mapping[str, Any] | None) -> str:
    """Who signed it."""
    if signed is None:
        return "It is not signed."
    if signed["trusted"]:
        return f"Signed by the given key, whose fingerprint is {signed['fingerprint']}."
    return (
        f"Signed by a key that was not given, whose fingerprint is {signed['fingerprint']}. Anyone "
        "can sign: give the publisher's public key with --key, and have it from elsewhere."
    )


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


def rehearsal_facts(done: Rehearsed) -> dict[str, Any]:
    """What a rehearsal made."""
    return {
        "run_id": done.run_id,
        "dataset": done.dataset,
        "status": "rehearsed",
        "bundle": str(done.bundle),
        "publishable": False,
        "charged": False,
        "would_charge": {"epsilon": done.epsilon, "delta": done.delta},
    }


def rehearsal_report(done: Rehearsed) -> str:
    """What a rehearsal made, in a few lines."""
    return (
        f"Rehearsed {done.bundle}\n"
        "  NOT PUBLISHABLE: its data are made up; no source was opened and nothing was charged\n"
        f"  a run would be charged epsilon {done.epsilon}, delta {done.delta}\n"
        f"  look at   {done.bundle / 'report.html'}"
    )


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


def checkup_facts(findings: Sequence[Finding]) -> dict[str, Any]:
    """What a checkup found, and whether nothing of it is wrong."""
    return {
        "healthy": all(each.verdict != "wrong" for each in findings),
        "findings": [asdict(each) for each in findings],
    }


def checkup_report(findings: Sequence[Finding]) -> Iterator[str]:
    """A line or two for each finding; what is wrong comes last, next to the prompt."""
    order = ("fine", "note", "wrong")
    for each in sorted(findings, key=lambda finding: order.index(finding.verdict)):
        yield f"{each.verdict:<6} {each.check}: {each.what}"
        if each.next_step and each.verdict != "fine":
            yield f"       {each.next_step}"


def restored_report(done: Restored) -> Iterator[str]:
    """What a restore left, and what follows from it."""
    yield f"{done.where}: {done.entries} entries, chain and sums hold. Head {done.head}"
    if done.counted_as_drawn:
        yield f"Counted as drawn, for want of a head: {', '.join(done.counted_as_drawn)}."
    if done.prepared:
        yield f"Prepared bundles: {', '.join(done.prepared)}."
    if done.missing:
        yield f"These wait, and the backup had no bundle of them: {', '.join(done.missing)}."


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


def plan_facts(release: Release, plan: Plan, remaining: Loss | None) -> dict[str, Any]:
    """Everything a plan says."""
    products = {}
    for product in plan.products:
        products[product.request.name] = {
            **product.describe(plan.privacy),
            "kind": product.kind.name,
            "columns": list(product.domain.names),
            "share": canonical(product.request.share),
            "with_a_tenth_more": {
                "criterion": product.criterion,
                "expected_error": error_of(product),
                "then": error_with_more(plan, product),
            },
            "epsilon_lower": product.epsilon_bounds.lower,
            "epsilon_upper": product.epsilon_bounds.upper,
            "expected_error": asdict(product.expected_error),
            "verdict": verdict_facts(release, product),
        }
        if product.choice is not None:
            products[product.request.name]["chosen"] = product.choice.reason()
    gate = plan.gate
    checks = {} if gate is None else gate.describe(plan.privacy) | asdict(gate.expected_error)
    return {
        "dataset": release.config.dataset,
        "config_sha256": release.sha256,
        "unit": plan.privacy.unit,
        "unit_in_words": plan.privacy.words,
        **{measure: canonical(amount) for measure, amount in plan.amounts.items()},
        "epsilon_lower": plan.epsilon_bounds.lower,
        "epsilon_upper": plan.epsilon_bounds.upper,
        "epsilon_added": canonical(plan.added),
        "explanations": EXPLANATIONS,
        "attack_advantage": plan.attack_advantage,
        **({"checks": checks} if checks else {}),
        **({"open_shares": asdict(plan.division)} if plan.division else {}),
        "products": products,
        "warnings": _warnings(release, plan, remaining),
        "remaining": loss_facts(remaining),
        "memory": forecast_facts(release, plan),
    }


def plan_report(release: Release, plan: Plan, remaining: Loss | None) -> Iterator[Any]:
    """A plan as a table, with what its figures mean and what should be known before a run."""
    yield f"{release.config.title}\n"
    rows = [["protected", plan.privacy.words]]
    rows.append(
        ["made from", how_many(plan.privacy.n_units, plan.privacy.n_records, plan.privacy.size)]
    )
    for product in plan.products:
        rows += _product_rows(plan, product)
    if plan.gate is not None:
        cost = f"{canonical(plan.gate.epsilon)}, {canonical(plan.gate.delta)}"
        rows += [[plan.gate.name, ""], ["  share", f"{float(plan.gate.request.share):.6g}"]]
        rows += [["  alone: epsilon, delta", cost], _rho_row(plan.gate)]
        rows += [[f"  {label}", value] for label, value in plan.gate.expected_error.rows()]
    rows.append(["release: epsilon, delta", f"{canonical(plan.epsilon)}, {canonical(plan.delta)}"])
    rows.append(["  epsilon at that delta, proven", _bounds(plan.epsilon_bounds)])
    if plan.saved:
        rows.append(
            ["  saved by composing", f"{plan.saved:.0%} of {_rounded(plan.added)}, epsilons added"]
        )
    zcdp = ", ".join(canonical(plan.amounts[name]) for name in ("rho", "rho_delta"))
    rows.append(["release under zcdp: rho, delta", zcdp])
    rows.append(["an attack gains, at most", at_most(plan.attack_advantage)])
    rows.append(["remaining budget", remaining_text(remaining)])
    if remaining is not None:
        fits = remaining.covers(Loss(plan.amounts))
        rows.append(["it covers this release", "yes" if fits else "NO"])
    yield table("Plan, from public quantities only", ["", ""], rows)
    yield _memory(release, plan)
    if plan.division is not None:
        yield f"shares. {division_words(plan)}"
    yield from _epsilons()
    yield from (f"warning: {text}" for text in _warnings(release, plan, remaining))


def _memory(release: Release, plan: Plan) -> str:
    """The most that a run may need of memory, and where."""
    most, declared = peak(forecasts(release, plan)), release.config.resources.memory
    of = f" for '{most.product}'" if most.product else ""
    limit = f"; declared: {declared}" if declared else ""
    return (
        f"memory. At most {size_in_words(most.bytes)}, in the step '{most.step}'{of} "
        f"({most.figure}){limit}."
    )


def _epsilons() -> Iterator[str]:
    """What each epsilon in the table is."""
    yield f"alone: epsilon. {EXPLANATIONS['products.epsilon']}"
    yield f"release: epsilon. {EXPLANATIONS['epsilon']}"
    yield f"epsilon, proven. {EXPLANATIONS['epsilon_lower, epsilon_upper']}"


def _warnings(release: Release, plan: Plan, remaining: Loss | None) -> list[str]:
    """What stops a run, or should be known before it."""
    found = warnings(release, plan)
    if remaining is None:
        series, panel = release.config.series, ""
        sources: list[str] = []
        if series is not None:
            from statpress.tasks.release.steps import source_names

            period = series.current or series.period.first
            sources = [name.replace(period, "*") for name in source_names(release)]
            panel = (
                " If a person takes part in a few periods only, as in a panel, add --design, such"
                f" as --design '8 consecutive {series.period.by}s'; else all periods add up."
            )
        found.append(
            f"The dataset {release.config.dataset!r} is not registered in this ledger, so that a "
            "run would stop. Register it once, with the budget of its whole life in place of the "
            f"capitals: '{registration(release.config, sources)}'.{panel}"
        )
    return found


def _product_rows(plan: Plan, product: PlannedProduct[Any]) -> list[list[str]]:
    described = kind_of(product).parameters(product)
    rows = [
        [product.request.name, f"{product.kind.name} by {described['mechanism']}"],
        ["  share", f"{float(product.request.share):.6g}{share_origin(plan, product)}"],
        ["  cells", f"{product.domain.n_possible:,}"],
        *([f"  {label}", value] for label, value in shown(described)),
        ["  alone: epsilon, delta", f"{canonical(product.epsilon)}, {canonical(product.delta)}"],
        _rho_row(product),
        *(
            [f"  {label}" if label else "", shown]
            for label, shown in product.kind.error_rows(product.mechanism, product.expected_error)
        ),
    ]
    if more := with_more(plan, product):
        rows.append(["  a tenth more of the budget", f"{criterion_of(product)} {more}"])
    rows.append(["  verdict", verdict(product).words])
    if product.choice is not None:
        rows.insert(1, ["  chosen", product.choice.reason()])
    return rows


def _rho_row(product: PlannedProduct[Any]) -> list[str]:
    """Rho, with the delta with which it may fail if there is one."""
    if not product.rho_delta:
        return ["  alone: rho", canonical(product.rho)]
    rule = f" by {product.rho_rule.replace('_', ' ')}" if product.rho_rule else ""
    amounts = f"{canonical(product.rho)}, {canonical(product.rho_delta)}"
    return ["  alone: rho, delta", amounts + rule]


def comparison_facts(plan: Plan) -> dict[str, Any]:
    """What every mechanism would do at each product's target, by product and mechanism."""
    return {
        product.request.name: {
            candidate.name: _candidate_facts(candidate) for candidate in _compared(product)
        }
        for product in plan.products
    }


def comparison_report(plan: Plan) -> Iterator[Any]:
    """A table for each product: the errors that its mechanism states, of all; or why one cannot."""
    for product in plan.products:
        planned, found = product.kind.label(product.mechanism), _compared(product)
        of_planned = [each for each in found if each.name == planned and each.expected_error]
        criteria = {
            name: words
            for name, words in product.kind.criteria.items()
            if not of_planned or any(math.isfinite(each.error(name)) for each in of_planned)
        }
        rows: list[list[str]] = []
        reasons: dict[str, list[str]] = {}
        for candidate in found:
            name = candidate.name + " *" * (candidate.name == planned)
            if candidate.expected_error is None:
                reasons.setdefault(candidate.reason, []).append(name)
            else:
                rows.append([name, *(_error(candidate.error(each)) for each in criteria)])
        why = ["why it is not compared"] if reasons else []
        rows = [[*row, *("" for _ in why)] for row in rows]
        rows += [["\n".join(s), *("-" for _ in criteria), text] for text, s in reasons.items()]
        yield table(
            f"{product.request.name}: expected errors at its share, by mechanism (* planned)",
            ["mechanism", *criteria.values(), *why],
            rows,
            ends_in_words=bool(why),
        )


def _compared(product: PlannedProduct[Any]) -> tuple[Candidate, ...]:
    kind, knobs = product.kind, product.request.knobs
    found = compare(kind, knobs, product.target, product.pure_target)
    return tuple(sorted(found, key=lambda candidate: candidate.error(kind.criterion(knobs))))


def _candidate_facts(candidate: Candidate) -> dict[str, Any]:
    if candidate.mechanism is None or candidate.expected_error is None:
        return {"reason": candidate.reason}
    error: Any = candidate.expected_error
    return {**candidate.mechanism.describe(), "expected_error": asdict(error)}


def _error(figure: float) -> str:
    return f"{figure:,.4g}" if math.isfinite(figure) else "not stated"


def _rounded(amount: Any) -> str:
    return f"{float(amount):.6g}"


def _bounds(bounds: tuple[float, float]) -> str:
    return f"{bounds[0]:.12g} to {bounds[1]:.12g}"
