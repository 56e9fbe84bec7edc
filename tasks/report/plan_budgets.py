"""What other budgets and shares would buy, on the page of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal
from itertools import pairwise
from typing import Any

from configs.loading import Release
from mechanisms.planning.plan import Plan, PlannedProduct
from mechanisms.planning.prices import Offer, criterion_of, error_at_part, error_of, errors_over
from mechanisms.planning.verdict import verdict
from tasks.ledger_rules.amounts import Loss
from tasks.pages.blocks import Block, Chart, Gallery, Grid, Option, Prose, Section, Slider
from tasks.pages.drawings import Curves, Line
from tasks.pages.numbers import count, measured, share
from tasks.report.privacy_figures import at_most, short

_ERRORS = {
    "total variation of pairs": "The share of records that stand in a wrong cell of a table of "
    "two columns, on average over pairs.",
    "sd of a cell, average": "By how many records a count is typically off.",
    "total variation, projected": "The share of records that stand in a wrong cell.",
    "KS distance": "The largest error of a cumulative share.",
    "width of the interval": "From the lower to the upper end, in the units of the estimate.",
    "largest error": "Of the function's value, over its whole range.",
}
"""What the errors are that mechanisms are compared by."""
VERDICTS = {
    "usable": "usable",
    "mostly_noise": "mostly noise",
    "nearly_disclosed": "nearly discloses the data",
    "not_known": "depends on the data",
}
"""The names of verdicts for a person."""
_ONE = Decimal(1)
_GROWS = " Where it grows with the budget, that is too small for the figure to mean anything."


def budgets(plan: Plan, offers: Sequence[Offer], remaining: Loss | None) -> list[Block]:
    """A slider over the offers, and each product's error over them as a curve."""
    start = next(place for place, offer in enumerate(offers) if offer.times == _ONE)
    options = [Option(_label(offer), [_offer(offer, plan, remaining)]) for offer in offers]
    charts = [_curve(product, offers) for product in plan.products]
    return [
        Prose(
            [
                "Errors mostly shrink as the budget grows, and so does the protection. Move the "
                "slider to see what the same config would give for a larger or smaller budget."
            ]
        ),
        Slider("Budget of the release:", options, start),
        Gallery([chart for chart in charts if chart is not None]),
    ]


def _label(offer: Offer) -> str:
    """The budget of an offer as its slider names it."""
    times = "the planned budget" if offer.times == _ONE else f"{offer.times} times the planned one"
    if offer.plan is None:
        return f"{times}: cannot be met"
    return f"epsilon {short(offer.plan.epsilon, digits=4)}, {times}"


def _offer(offer: Offer, plan: Plan, remaining: Loss | None) -> Block:
    """What one budget gives."""
    if offer.plan is None:
        return Prose([f"This budget cannot be met: {offer.reason}"])
    rows = []
    for product in offer.plan.products:
        own = next(each for each in plan.products if each.name == product.name)
        rows.append(
            [
                product.name,
                product.mechanism.name,
                criterion_of(product),
                measured(error_of(product), 3),
                measured(error_of(own), 3),
                VERDICTS[verdict(product).name],
            ]
        )
    left = "" if remaining is None else f" {repeats(offer.plan, remaining)}"
    return Grid(
        ["product", "mechanism", "expected error", "here", "as planned", "verdict"],
        rows,
        note=f"An attacker gains at most {at_most(offer.plan.attack_advantage)}.{left}",
    )


def _curve(product: PlannedProduct[Any], offers: Sequence[Offer]) -> Chart | None:
    """A product's error over the budget; None where too few are known."""
    known = errors_over(offers, product.name)
    if len(known) < 2:
        return None
    plans = [offer.plan for offer, _ in known]
    epsilons = [float(each.epsilon) for each in plans if each is not None]
    errors = [error for _, error in known]
    own = [
        (epsilon, error)
        for epsilon, (offer, error) in zip(epsilons, known, strict=True)
        if offer.times == _ONE
    ]
    words = criterion_of(product)
    grows = _GROWS if any(b > 1.05 * a for a, b in pairwise(errors)) else ""
    return Chart(
        f"{product.name}: {words}",
        Curves(
            [Line("", epsilons, errors)],
            "epsilon of the release",
            f"expected {words}",
            points=own,
            log_x=True,
            from_zero=True,
        ),
        f"The expected error goes from {measured(errors[0], 3)} at epsilon "
        f"{measured(epsilons[0], 3)} to {measured(errors[-1], 3)} at {measured(epsilons[-1], 3)}.",
        Grid(
            ["epsilon of the release", f"expected {words}"],
            [[measured(x), measured(y)] for x, y in zip(epsilons, errors, strict=True)],
        ),
        note=f"{_ERRORS.get(words, '')} The dot is this plan.{grows}".strip(),
    )


def shares(release: Release, plan: Plan, offers: Sequence[Offer]) -> list[Section]:
    """What a larger or smaller share of a product would buy; nothing of a single one."""
    if len(plan.products) < 2:
        return []
    budget, n_products, rows = release.budget(), len(plan.products), []
    for product in plan.products:
        own = float(product.request.share)
        half, double = (
            error_at_part(offers, product.name, ratio, budget, n_products=n_products)
            if ratio * own < 1
            else None
            for ratio in (0.5, 2.0)
        )
        figures = [measured(each, 3) for each in (half, error_of(product), double)]
        rows.append([product.name, share(own), criterion_of(product), *figures])
    grid = Grid(
        ["product", "share", "expected error", "with half its share", "planned", "with twice"],
        rows,
        note="Read off the curves above, so the errors with other shares are approximate. What one "
        "product gains the others lose: the shares add up to the release's budget.",
    )
    return [Section("shares", "What each share buys", [grid])]


def repeats(plan: Plan, remaining: Loss) -> str:
    """How often a release fits into what remains, in a sentence."""
    often = [
        int((left / cost).to_integral_value(ROUND_FLOOR))
        for measure, left in remaining.amounts.items()
        if (cost := plan.amounts[measure])
    ]
    if not often or min(often) < 1:
        return "The remaining budget does not cover this release."
    times = "once" if min(often) == 1 else f"{count(min(often))} times"
    return f"The remaining budget covers this release {times}."
