"""The page of a plan: what a release would cost and how good it would be, before it is paid for.

From public quantities only, so that a methodologist and a board may look at it together.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from configs.loading import Release
from mechanisms.base.parameters import shown
from mechanisms.planning.plan import Plan, PlannedProduct
from mechanisms.planning.prices import Offer
from mechanisms.planning.verdict import verdict
from tasks.ledger_rules.amounts import Loss, canonical
from tasks.pages.blocks import (
    Block,
    Fact,
    Facts,
    Grid,
    Page,
    Prose,
    Section,
)
from tasks.pages.numbers import count, share
from tasks.plans.verdicts import warnings
from tasks.report.plan_budgets import VERDICTS, budgets, repeats, shares
from tasks.report.privacy_figures import at_most, short

_APART = 3  # products that would stop a run, up to which each has a warning of its own


def plan_page(
    release: Release,
    plan: Plan,
    offers: Sequence[Offer],
    remaining: Loss | None,
    stopping: Sequence[str],
) -> Page:
    """The page.

    Args:
        release: The config.
        plan: Of that.
        offers: The plan among those of other budgets.
        remaining: What the ledger still grants; None if the dataset has no account.
        stopping: Why a run would stop, if it would.
    """
    marks = [f"A run would stop: {each}" for each in stopping]
    return Page(
        title=f"Plan: {release.config.title}",
        subtitle=f"Dataset {release.config.dataset}. From public quantities only: nobody has "
        "looked at the data, and nothing is charged.",
        marks=[*marks, *warnings(release, plan, apart=_APART)],
        sections=[
            Section("summary", "Summary", [_summary(plan, remaining)]),
            Section("budgets", "What another budget would buy", budgets(plan, offers, remaining)),
            *shares(release, plan, offers),
            Section("products", "The products", parts=[_product(each) for each in plan.products]),
            Section("privacy", "The guarantee", [_guarantee(plan)]),
            Section("ledger", "What remains in the ledger", _ledger(plan, remaining)),
        ],
    )


def _summary(plan: Plan, remaining: Loss | None) -> Facts:
    fits = "The dataset has no account yet." if remaining is None else repeats(plan, remaining)
    products = len(plan.products)
    return Facts(
        [
            Fact(
                "Protected",
                f"{count(plan.privacy.n_units)} {_units(plan)}",
                f"The guarantee is for {plan.privacy.words}.",
            ),
            Fact("Privacy loss", f"epsilon {short(plan.epsilon, digits=4)}", fits),
            Fact(
                "An attacker gains at most",
                at_most(plan.attack_advantage),
                "Over guessing, when deciding between two candidates for what one unit's data are.",
            ),
            Fact(
                "Products",
                f"{products}",
                _verdicts(plan),
            ),
        ],
        large=True,
    )


def _verdicts(plan: Plan) -> str:
    """The products by verdict."""
    found: dict[str, list[str]] = {}
    for each in plan.products:
        found.setdefault(VERDICTS[verdict(each).name], []).append(each.name)
    return "; ".join(f"{words}: {', '.join(names)}" for words, names in found.items())


def _units(plan: Plan) -> str:
    """What the units are, in the plural."""
    column = plan.privacy.unit.removeprefix("column ")
    return "records" if column == plan.privacy.unit else f"values of {column}"


def _product(product: PlannedProduct[Any]) -> Section:
    """What is expected of a product; how it will be made is folded away."""
    columns = ", ".join(product.domain.names)
    errors = product.kind.error_rows(product.mechanism, product.expected_error)
    chosen = [] if product.choice is None else [["chosen for", product.choice.reason()]]
    made = [
        ["mechanism", product.mechanism.name],
        *chosen,
        *([label, value] for label, value in shown(product.mechanism.describe())),
        ["cells", count(product.domain.n_possible)],
        [
            "cost as a release of its own",
            f"epsilon {short(product.epsilon, digits=4)} at delta {canonical(product.delta)}",
        ],
    ]
    return Section(
        f"product-{product.name}",
        product.name,
        [
            Facts(
                [
                    Fact("what it is", f"{product.kind.name} of {columns}"),
                    Fact("verdict", verdict(product).words),
                    *(Fact(label or "also", value) for label, value in errors),
                ]
            ),
            Grid(["parameter", "value"], made, title="How it will be made", folded=True),
        ],
    )


def _guarantee(plan: Plan) -> Facts:
    lower, upper = plan.epsilon_bounds
    rows = [
        Fact("neighbouring relation", str(plan.privacy.adjacency)),
        Fact("privacy unit", plan.privacy.words),
        Fact(
            "epsilon and delta charged",
            f"{canonical(plan.epsilon)} at {canonical(plan.delta)}",
            "All products composed, rounded up: this is what the ledger takes.",
        ),
        Fact(
            "exact epsilon",
            f"{lower:.12g} to {upper:.12g}",
            "A proven enclosure of the smallest epsilon that holds at that delta.",
        ),
        Fact(
            "rho charged",
            canonical(plan.amounts["rho"]),
            "The same loss in zero-concentrated privacy, for accounts that are kept in it.",
        ),
    ]
    if plan.saved:
        rows.append(
            Fact(
                "saved by composing",
                share(float(plan.saved)),
                f"The products' epsilons by themselves add up to {short(plan.added, digits=4)}.",
            )
        )
    return Facts(rows)


def _ledger(plan: Plan, remaining: Loss | None) -> list[Block]:
    if remaining is None:
        return [Prose(["The dataset has no account in this ledger, so a run would stop."])]
    rows = [
        Fact(
            measure.replace("_", " of "),
            f"{canonical(plan.amounts[measure])} of {canonical(left)}",
            _part_of(plan.amounts[measure], left),
        )
        for measure, left in remaining.amounts.items()
    ]
    return [Prose([repeats(plan, remaining)]), Facts(rows)]


def _part_of(cost: Decimal, left: Decimal) -> str:
    return f"{share(float(cost / left))} of what remains." if left else "Nothing remains."
