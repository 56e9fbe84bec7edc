"""Plans, outcomes and accounts as JSON facts and as text. Public quantities alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from configs.loading import Release
from flows.terminal import table
from mechanisms.planning import Plan
from tasks.accounts import Account
from tasks.amounts import Loss, canonical
from tasks.pipeline import Outcome

if TYPE_CHECKING:
    from rich.table import Table


def plan_facts(release: Release, plan: Plan, remaining: Loss | None) -> dict[str, Any]:
    """Everything a plan says."""
    products = {}
    for product in plan.products:
        error = product.expected_error
        products[product.request.name] = {
            **product.describe(plan.privacy),
            "kind": product.request.kind,
            "columns": list(product.domain.names),
            "epsilon_lower": product.epsilon_bounds.lower,
            "epsilon_upper": product.epsilon_bounds.upper,
            "delta_lower": product.delta_bounds.lower,
            "delta_upper": product.delta_bounds.upper,
            "expected_error": {n: getattr(error, n) for n in error.__dataclass_fields__},
        }
    return {
        "dataset": release.config.dataset,
        "config_sha256": release.sha256,
        "epsilon": canonical(plan.epsilon),
        "delta": canonical(plan.delta),
        "products": products,
        "remaining": loss_facts(remaining),
    }


def plan_report(release: Release, plan: Plan, remaining: Loss | None) -> Iterator[Any]:
    """The same for a person."""
    yield f"{release.config.title}\n"
    rows = []
    for product in plan.products:
        described, error = product.mechanism.describe(), product.expected_error
        rows += [
            [product.request.name, f"{product.request.kind} by {described['mechanism']}"],
            ["  cells", f"{product.domain.n_cells:,}"],
            ["  pseudocount", str(described["pseudocount"])],
            ["  records", f"{product.n_records:,}"],
            ["  epsilon, charged", canonical(product.epsilon)],
            ["  epsilon at that delta, proven", _bounds(product.epsilon_bounds)],
            ["  delta, charged", canonical(product.delta)],
            ["  delta at its part of epsilon", _bounds(product.delta_bounds)],
            ["  expected sd of a cell, average", f"{error.cell_sd_average:,.1f} records"],
            ["  expected sd of a cell, at most", f"{error.cell_sd_most:,.1f} records"],
            ["  expected total variation, at most", f"{error.total_variation:.4f}"],
            ["  records from the pseudocount", f"{error.uniform_share:.1%}"],
        ]
        if error.uniform_share > 0.5:
            rows.append(["", "mostly uniform noise: fewer cells or a larger share would help"])
    rows.append(["release: epsilon, delta", f"{canonical(plan.epsilon)}, {canonical(plan.delta)}"])
    rows.append(["remaining budget", _remaining(remaining)])
    yield table("Plan, from public quantities alone", ["", ""], rows)


def outcome_facts(
    outcome: Outcome, remaining: Loss | None, timings: dict[str, float] | None
) -> dict[str, Any]:
    """What a run did."""
    facts: dict[str, Any] = {
        "run_id": outcome.run_id,
        "dataset": outcome.dataset,
        "bundle": str(outcome.bundle),
        "seal": outcome.seal,
        "epsilon": outcome.epsilon,
        "delta": outcome.delta,
        "ledger_entry": outcome.ledger_entry,
        "publishable": outcome.publishable,
        "remaining": loss_facts(remaining),
    }
    if timings is not None:
        facts["timings"] = {title: round(spent, 3) for title, spent in timings.items()}
    return facts


def outcome_report(outcome: Outcome, remaining: Loss | None) -> str:
    """The same for a person."""
    lines = [
        f"Published {outcome.bundle}",
        f"  charged   epsilon {outcome.epsilon}, delta {outcome.delta}",
        f"  remaining {_remaining(remaining)}",
        f"  ledger    {outcome.ledger_entry}",
    ]
    if not outcome.publishable:
        lines.append("  NOT PUBLISHABLE: drawn from a known seed")
    return "\n".join(lines)


def timings_report(timings: dict[str, float]) -> Table:
    """Seconds per step."""
    return table("Timings", ["step", "seconds"], [[k, f"{v:.2f}"] for k, v in timings.items()])


def account_facts(account: Account) -> dict[str, Any]:
    """One account of the ledger."""
    return {
        "dataset": account.dataset,
        "limit": loss_facts(account.limit),
        "spent": loss_facts(account.spent),
        "remaining": loss_facts(account.remaining),
        "registered": dict(account.registration.body),
        "charges": [
            {
                "run_id": run_id,
                **(loss_facts(charge.loss) or {}),
                "published": charge.published,
                "created": charge.entry.body["created"],
                "entry": charge.entry.hash,
            }
            for run_id, charge in account.charges.items()
        ],
    }


def ledger_report(accounts: list[Account]) -> Table:
    """All accounts for a person."""
    rows = [
        [
            account.dataset,
            _loss(account.limit),
            _loss(account.spent),
            _loss(account.remaining),
            f"{len(account.charges)} ({sum(c.published for c in account.charges.values())})",
        ]
        for account in accounts
    ]
    columns = ["dataset", "limit", "spent", "remaining", "charges (published)"]
    return table("Ledger: epsilon, delta", columns, rows)


def loss_facts(loss: Loss | None) -> dict[str, str] | None:
    """A loss as exact decimal text."""
    if loss is None:
        return None
    return {"epsilon": canonical(loss.epsilon), "delta": canonical(loss.delta)}


def _loss(loss: Loss) -> str:
    return f"{canonical(loss.epsilon)}, {canonical(loss.delta)}"


def _remaining(loss: Loss | None) -> str:
    return "dataset not registered" if loss is None else _loss(loss)


def _bounds(bounds: tuple[float, float]) -> str:
    return f"{bounds[0]:.12g} to {bounds[1]:.12g}"
