"""A plan as JSON facts and as text. Public quantities alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from configs.loading import Release
from flows.report.command_lines import registration
from flows.report.outcomes import loss_facts, remaining_text
from flows.report.terminal import table
from mechanisms.base.parameters import shown
from mechanisms.planning.mechanism_choice import Candidate, compare
from mechanisms.planning.plan import Plan, PlannedProduct
from mechanisms.planning.verdict import verdict
from tasks.ledger_rules.amounts import Loss, canonical
from tasks.plans.memory import forecast_facts, forecasts, in_words, peak
from tasks.plans.verdicts import verdict_facts, warnings
from tasks.products.registry import kind_of
from tasks.report.privacy_figures import EXPLANATIONS, at_most


def plan_facts(release: Release, plan: Plan, remaining: Loss | None) -> dict[str, Any]:
    """Everything a plan says."""
    products = {}
    for product in plan.products:
        products[product.request.name] = {
            **product.describe(plan.privacy),
            "kind": product.kind.name,
            "columns": list(product.domain.names),
            "share": canonical(product.request.share),
            "epsilon_lower": product.epsilon_bounds.lower,
            "epsilon_upper": product.epsilon_bounds.upper,
            "expected_error": asdict(product.expected_error),
            "verdict": verdict_facts(release, product),
        }
        if product.choice is not None:
            products[product.request.name]["chosen"] = product.choice.reason()
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
        "products": products,
        "warnings": _warnings(release, plan, remaining),
        "remaining": loss_facts(remaining),
        "memory": forecast_facts(release, plan),
    }


def plan_report(release: Release, plan: Plan, remaining: Loss | None) -> Iterator[Any]:
    """The same for a person."""
    yield f"{release.config.title}\n"
    rows = [["protected", plan.privacy.words]]
    for product in plan.products:
        rows += _product_rows(product)
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
    yield from _epsilons()
    yield from (f"warning: {text}" for text in _warnings(release, plan, remaining))


def _memory(release: Release, plan: Plan) -> str:
    """The most that a run may need of memory, and where."""
    most, declared = peak(forecasts(release, plan)), release.config.resources.memory
    of = f" for '{most.product}'" if most.product else ""
    limit = f"; declared: {declared}" if declared else ""
    return (
        f"memory. At most {in_words(most.bytes)}, in the step '{most.step}'{of} "
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
        found.append(
            f"The dataset {release.config.dataset!r} is not registered in this ledger, so that a "
            "run would stop. Register it once, with the budget of its whole life in place of the "
            f"capitals: '{registration(release.config)}'."
        )
    return found


def _product_rows(product: PlannedProduct[Any]) -> list[list[str]]:
    described = kind_of(product).parameters(product)
    rows = [
        [product.request.name, f"{product.kind.name} by {described['mechanism']}"],
        ["  share", f"{float(product.request.share):.6g}"],
        ["  cells", f"{product.domain.n_possible:,}"],
        *([f"  {label}", value] for label, value in shown(described)),
        ["  alone: epsilon, delta", f"{canonical(product.epsilon)}, {canonical(product.delta)}"],
        _rho_row(product),
        *(
            [f"  {label}" if label else "", shown]
            for label, shown in product.kind.error_rows(product.mechanism, product.expected_error)
        ),
    ]
    rows.append(["  verdict", verdict(product).words])
    if product.choice is not None:
        rows.insert(1, ["  chosen", product.choice.reason()])
    return rows


def _rho_row(product: PlannedProduct[Any]) -> list[str]:
    """Rho, with the delta with which it may fail if there is one."""
    if not product.rho_delta:
        return ["  alone: rho", canonical(product.rho)]
    return ["  alone: rho, delta", f"{canonical(product.rho)}, {canonical(product.rho_delta)}"]


def comparison_facts(plan: Plan) -> dict[str, Any]:
    """What every mechanism would do at each product's target, by product and mechanism."""
    return {
        product.request.name: {
            candidate.name: _candidate_facts(candidate) for candidate in _compared(product)
        }
        for product in plan.products
    }


def comparison_report(plan: Plan) -> Iterator[Any]:
    """The same for a person: a table a product."""
    for product in plan.products:
        rows, unable = [], []
        planned = product.kind.label(product.mechanism)
        figures_by = product.kind.criteria
        for candidate in _compared(product):
            mark = " *" if candidate.name == planned else ""
            if candidate.expected_error is None:
                unable.append(f"  {candidate.name}{mark}: {candidate.reason}")
                continue
            figures = [candidate.error(name) for name in figures_by]
            rows.append([candidate.name + mark, *map(_error, figures)])
        yield table(
            f"{product.request.name}: expected errors at its share, by mechanism (* planned)",
            ["mechanism", *figures_by.values()],
            rows,
        )
        if unable:
            yield "\n".join(["Not compared:", *unable, ""])


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
