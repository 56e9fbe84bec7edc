"""The command ``plan``: what a plan says, as JSON facts, as text and as a page.

Public quantities only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from statpress.configs.loading import PlannedOrder, Release, leaves_period_open, load_order
from statpress.flows.cli.options import (
    HomeFolder,
    Json,
    Overrides,
    Period,
    Result,
    home_of,
    order_of,
)
from statpress.flows.facts import loss_facts, remaining_text
from statpress.flows.terminal import Progress, registration, table
from statpress.mechanisms.errors import MemoryLimitError, PolicyMismatchError
from statpress.mechanisms.mechanism import shown
from statpress.mechanisms.planning.choice import Candidate, compare
from statpress.mechanisms.planning.plan import Division, Plan, PlannedProduct, verdict
from statpress.mechanisms.planning.planner import criterion_of, error_of, error_with_more
from statpress.tasks.ledger.entries import Loss, canonical
from statpress.tasks.ledger.home_ledger import account_terms, remaining_budget
from statpress.tasks.pages.numbers import at_most, how_many
from statpress.tasks.products.product_kind import kind_of
from statpress.tasks.release.foreseen import (
    division_words,
    forecasts,
    foreseen,
    peak,
    plan_for_account,
    share_origin,
    size_in_words,
    verdict_facts,
    warnings,
    with_more,
)
from statpress.tasks.release.runs import design_in_words, lasting_in_words, sources_in_words
from statpress.tasks.report.privacy_page import EXPLANATIONS


def plan(
    config: Path,
    *,
    compare: Annotated[bool, Parameter(negative="--no-compare")] = False,
    html: Path | None = None,
    period: Period = None,
    set_: Overrides = None,
    home: HomeFolder = None,
    json: Json = False,
) -> Result:
    """Print what a release draws, what it costs and the errors to expect, without the source.

    Args:
        config: The release config.
        compare: Show what every mechanism would do for each product.
        html: Write a page for deciding before paying, with the errors at other budgets.
    """
    if html is not None:
        from statpress.tasks.release.plan_page import check_page

        check_page(html)
    written, place = order_of(config, set_, period), home_of(home)
    calendar = None
    if leaves_period_open(written):
        from statpress.tasks.release.series_periods import calendar_of

        calendar = calendar_of(place, load_order(written))
        written = written.at_period(str(calendar.first_open))
    order = PlannedOrder.of(written)
    if calendar is None and order.release.config.series is not None:
        from statpress.tasks.release.series_periods import calendar_of

        calendar = calendar_of(place, order.release)
    remaining = remaining_budget(place, order.release.config.dataset, order.release.period_text)
    account = account_terms(place, order.release.config.dataset)
    looks = None if account is None else account.looks_left
    planned = plan_for_account(place, order.release, order.plan)
    stopping = foreseen(order.release, planned)
    if account is not None:
        from statpress.tasks.ledger.rules import check_period, check_terms
        from statpress.tasks.release.ledger_check import terms_of

        try:
            check_terms(account, terms_of(planned.privacy))
            check_period(account, order.release.period_text)
        except PolicyMismatchError as error:
            stopping.append(error)
    page: dict[str, Any] = {}
    if html is not None:
        from statpress.tasks.release.plan_page import write_plan_page

        with Progress(shown=not json) as progress:
            write_plan_page(
                html, place, order.release, planned, remaining, stopping, progress.announce
            )
        page = {"page": str(html)}

    def facts() -> dict[str, Any]:
        compared = {"comparison": comparison_facts(planned)} if compare else {}
        stops = {"looks_left": looks, "would_stop": [str(each) for each in stopping]}
        said = plan_facts(order.release, planned, remaining)
        if account is not None and account.has_design:
            said |= {"design": account.design, "design_in_words": account.panel.words}
        if calendar is not None:
            said |= {"series": calendar.facts() | {"planned": str(order.release.period)}}
        return said | stops | compared | page

    def report() -> Iterator[Any]:
        yield from plan_report(order.release, planned, remaining)
        if calendar is not None:
            yield f"Series {calendar.name}, planned here: {order.release.period}."
            yield from calendar.words()
        if account is not None and account.has_design:
            yield design_in_words(account)
        if account is not None and calendar is not None:
            yield lasting_in_words(account, Loss(planned.amounts), str(calendar.first_open))
        if looks is not None:
            yield f"Looks at the data that are left before it has to be reopened: {looks}."
        if account is not None and not account.sources:
            yield sources_in_words(account)
        yield from (f"A run would stop: {each}" for each in stopping)
        yield from comparison_report(planned) if compare else ()
        if html is not None:
            yield f"Wrote {html}."

    short = [each.exit_code for each in stopping if isinstance(each, MemoryLimitError)]
    return Result(json=json, facts=facts, report=report, exit_code=short[0] if short else 0)


def plan_facts(release: Release, plan: Plan, remaining: Loss | None) -> dict[str, Any]:
    """Everything a plan says."""
    products = {}
    for product in plan.products:
        products[product.request.name] = {
            **product.describe(plan.privacy),
            **kind_of(product).stated(product),
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
        **({"open_shares": _division(plan.division)} if plan.division else {}),
        "products": products,
        "warnings": _warnings(release, plan, remaining),
        "remaining": loss_facts(remaining),
        "memory": forecast_facts(release, plan),
    }


def _division(division: Division) -> dict[str, Any]:
    """How shares were found; of products that were spared nothing if there are none."""
    return {key: value for key, value in asdict(division).items() if value or key != "spared"}


def forecast_facts(release: Release, plan: Plan) -> dict[str, Any]:
    """The forecasts as JSON values."""
    found = forecasts(release, plan)
    steps = [{k: v for k, v in asdict(each).items() if k != "next_step"} for each in found]
    return {
        "declared": release.config.resources.memory_bytes,
        "threads": release.config.resources.threads,
        "peak": peak(found).bytes,
        "steps": steps,
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
