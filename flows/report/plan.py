"""A plan as JSON facts and as text. Public quantities alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from configs.loading import Release
from flows.report.outcomes import loss_facts, remaining_text
from flows.report.terminal import table
from mechanisms.estimates.knobs import EstimandKnobs
from mechanisms.functions.knobs import FunctionKnobs
from mechanisms.planning.mechanism_choice import (
    LARGEST_ERROR,
    WIDTH,
    Candidate,
    compare,
    compare_noises,
)
from mechanisms.planning.plan import Plan, PlannedProduct
from mechanisms.tables.mechanism import table_mechanism
from tasks.ledger_rules.amounts import Loss, canonical

_FIGURES = {
    "cell_sd": "sd of a cell, average",
    "total_variation": "total variation, projected",
    "kolmogorov_smirnov": "KS distance",
}
_COMPARED_BY = {
    "estimate": {WIDTH: "width of the interval"},
    "function": {LARGEST_ERROR: "largest error"},
}


def plan_facts(release: Release, plan: Plan, remaining: Loss | None) -> dict[str, Any]:
    """Everything a plan says."""
    products = {}
    for product in plan.products:
        products[product.request.name] = {
            **product.describe(plan.privacy),
            "kind": product.request.kind,
            "columns": list(product.domain.names),
            "share": canonical(product.request.share),
            "epsilon_lower": product.epsilon_bounds.lower,
            "epsilon_upper": product.epsilon_bounds.upper,
            "expected_error": asdict(product.expected_error),
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
        "attack_advantage": plan.attack_advantage,
        "products": products,
        "remaining": loss_facts(remaining),
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
    rows.append(["an attack gains, at most", f"{plan.attack_advantage:.2%}"])
    rows.append(["remaining budget", remaining_text(remaining)])
    if remaining is not None:
        fits = remaining.covers(Loss(plan.amounts))
        rows.append(["it covers this release", "yes" if fits else "NO"])
    yield table("Plan, from public quantities alone", ["", ""], rows)


def _product_rows(product: PlannedProduct) -> list[list[str]]:
    described = product.mechanism.describe()
    rows = [
        [product.request.name, f"{product.request.kind} by {described.pop('mechanism')}"],
        ["  share", canonical(product.request.share)],
        ["  cells", f"{product.domain.n_possible:,}"],
        *([f"  {name}", _figure(value)] for name, value in described.items()),
        ["  alone: epsilon, delta", f"{canonical(product.epsilon)}, {canonical(product.delta)}"],
        ["  alone: rho", canonical(product.rho)],
        *_EXPECTED.get(product.request.kind, _table_rows)(product),
    ]
    if product.choice is not None:
        rows.insert(1, ["  chosen", product.choice.reason()])
    return rows


def _estimate_rows(product: PlannedProduct) -> list[list[str]]:
    expected = product.expected_error
    return [
        [f"  expected width: {quantity}", _width(width, sd)]
        for quantity, width, sd in zip(
            expected.quantities, expected.width, expected.noise_sd, strict=True
        )
    ]


def _width(width: float | None, noise: float | None) -> str:
    said = "without end" if width is None else f"{width:.5g}"
    return said if noise is None else f"{said} (sd of its noise {noise:.4g})"


def _table_rows(product: PlannedProduct) -> list[list[str]]:
    error = product.expected_error
    rows = [
        ["  expected sd of a cell, average", f"{error.cell_sd_average:,.1f} records"],
        ["  expected sd of a cell, at most", f"{error.cell_sd_most:,.1f} records"],
        ["  expected total variation, projected", f"{error.projected_total_variation:.4f}"],
        ["  the same unprojected, at most", f"{error.total_variation:.4f}"],
    ]
    if not table_mechanism(product.mechanism).unbiased:
        rows.append(["  bias of the estimates", "depends on the data, and comes on top"])
    if error.uniform_share:
        rows.append(["  records that are uniform", f"{error.uniform_share:.1%}"])
    if error.uniform_share > 0.5:
        rows.append(["", "mostly uniform noise: fewer cells or a larger share would help"])
    return rows


def _function_rows(product: PlannedProduct) -> list[list[str]]:
    expected = product.expected_error
    parts = f"{expected.bias:.4g} of the polynomial, {expected.noise:.4g} of the noise"
    return [
        ["  expected largest error", f"{expected.sup_error:.5g} ({parts})"],
        ["  the same with 95 %, at most", _known(expected.bound_95)],
        ["  no release errs less for all data", _known(expected.least_error)],
        ["  sd of the noise in the middle", f"{expected.noise_sd_middle:.4g}"],
    ]


_EXPECTED: dict[str, Callable[[PlannedProduct], list[list[str]]]] = {
    "estimate": _estimate_rows,
    "function": _function_rows,
}


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
        figures_by = _COMPARED_BY.get(product.request.kind, _FIGURES)
        for candidate in _compared(product):
            mark = " *" if _is_planned(candidate, product) else ""
            if candidate.expected_error is None:
                unable.append(f"  {candidate.name}{mark}: {candidate.reason}")
                continue
            figures = [candidate.error(name) for name in figures_by]
            rows.append([candidate.name + mark, *(f"{figure:,.4g}" for figure in figures)])
        yield table(
            f"{product.request.name}: expected errors at its share, by mechanism (* planned)",
            ["mechanism", *figures_by.values()],
            rows,
        )
        if unable:
            yield "\n".join(["Not compared:", *unable, ""])


def _is_planned(candidate: Candidate, product: PlannedProduct) -> bool:
    planned = product.request.mechanism
    if product.request.kind == "function":
        planned += f", {product.mechanism.describe()['noise']} noise"
    return candidate.name == planned


def _compared(product: PlannedProduct) -> tuple[Candidate, ...]:
    knobs = product.request.knobs
    if isinstance(knobs, FunctionKnobs):
        return compare_noises(knobs, product.target)
    estimand = knobs if isinstance(knobs, EstimandKnobs) else None
    found = compare(product.request.kind, product.target, product.pure_target, estimand)
    return tuple(sorted(found, key=lambda candidate: candidate.error("total_variation")))


def _candidate_facts(candidate: Candidate) -> dict[str, Any]:
    if candidate.mechanism is None or candidate.expected_error is None:
        return {"reason": candidate.reason}
    error = candidate.expected_error
    return {
        **candidate.mechanism.describe(),
        "expected_error": asdict(error),
    }


def _figure(value: str | int) -> str:
    """A parameter as a person reads it."""
    if isinstance(value, int):
        return f"{value:,}"
    try:
        return value if len(value) < 12 else f"{float(Fraction(value)):.6g}"
    except ValueError:
        return value


def _known(figure: float | None) -> str:
    return "not known" if figure is None else f"{figure:.5g}"


def _rounded(amount: Any) -> str:
    return f"{float(amount):.6g}"


def _bounds(bounds: tuple[float, float]) -> str:
    return f"{bounds[0]:.12g} to {bounds[1]:.12g}"
