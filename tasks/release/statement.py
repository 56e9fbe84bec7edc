"""The statement of a release's guarantee, with everything needed to recompute it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from configs.loading import Release
from mechanisms.accounting.privacy_loss import PrivacyLoss
from mechanisms.planning.plan import Plan, PlannedProduct
from mechanisms.planning.verdict import disclosures
from tasks.ledger_rules.entries import Entry
from tasks.plans.verdicts import verdict_facts
from tasks.products.registry import kind_of
from tasks.release.places import Run

_IMPOSSIBLE = (
    "One of them is that no record lies in a structural zero which the config declares: the "
    "guarantee is between sources of which this is true. "
)


def statement(run: Run, release: Release, plan: Plan) -> dict[str, Any]:
    """What the release reveals at most, as far as it is known before the charge."""
    return {
        "publishable": run.insecure_seed is None,
        "outside_the_guarantee": "Quality checks on the source may stop a run before it is "
        "charged; that a release exists shows that they passed. "
        f"{_IMPOSSIBLE if release.domain.zeros else ''}How long the steps of a run take depends "
        "on the source, and is seen by whoever watches the orchestrator.",
        **_guarantee(release, plan),
    }


def charged_statement(
    run: Run, release: Release, plan: Plan, charge: Entry, drawn: Mapping[str, Any]
) -> dict[str, Any]:
    """The same with the charge, and what can be said of the products only once they are drawn."""
    stated = statement(run, release, plan)
    products = {
        product.request.name: stated["products"][product.request.name]
        | kind_of(product).stated(product, drawn[product.request.name])
        for product in plan.products
    }
    charged = {"ledger_entry": {"sequence": charge.sequence, "hash": charge.hash}}
    return charged | stated | {"products": products}


def _guarantee(release: Release, plan: Plan) -> dict[str, Any]:
    """What is known of a release's loss before it is charged."""
    privacy = plan.privacy
    return {
        "adjacency": privacy.adjacency,
        "unit": privacy.unit,
        "unit_in_words": privacy.words,
        "n_units": privacy.n_units,
        "unit_records": privacy.unit_records,
        "n_records": privacy.n_records,
        "epsilon": f"{plan.epsilon:f}",
        "delta": str(plan.delta),
        "rho": f"{plan.amounts['rho']:f}",
        **({"rho_delta": str(least)} if (least := plan.amounts["rho_delta"]) else {}),
        "composition": "the privacy losses of the products, composed; rho and its delta add up",
        "epsilon_lower": plan.epsilon_bounds.lower,
        "epsilon_upper": plan.epsilon_bounds.upper,
        "curve": _curve(plan.loss, float(plan.epsilon)),
        "attack_advantage": plan.attack_advantage,
        "meaning": f"Someone who knows everything but {privacy.words}, and must decide between "
        f"two candidates for what it is, gains at most {_percent(plan.attack_advantage)} over "
        "guessing (true positive rate minus false positive rate).",
        "warnings": disclosures(plan),
        "products": {p.request.name: _product_statement(release, p, plan) for p in plan.products},
    }


def _product_statement(
    release: Release, product: PlannedProduct[Any], plan: Plan
) -> dict[str, Any]:
    choice = product.choice
    chosen = {} if choice is None else {"chosen": choice.reason()}
    return {
        **product.describe(plan.privacy),
        "columns": list(product.domain.names),
        "epsilon_lower": product.epsilon_bounds.lower,
        "epsilon_upper": product.epsilon_bounds.upper,
        "attack_advantage": product.attack_advantage,
        "curve": _curve(product.loss, float(product.epsilon)),
        **chosen,
        "kind": product.kind.name,
        "expected_error": dataclasses.asdict(product.expected_error),
        "verdict": verdict_facts(release, product),
    }


def _percent(share: float) -> str:
    """A share in percent, rounded up to two decimals."""
    return f"{min(1.0, math.ceil(share * 1e4) / 1e4):.2%}"


def _curve(loss: PrivacyLoss, epsilon: float) -> list[dict[str, float]]:
    """Delta at some epsilons up to twice the one charged."""
    curve = []
    for factor in (0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2):
        bounds = loss.delta(epsilon * factor)
        curve.append(
            {
                "epsilon": epsilon * factor,
                "delta_lower": bounds.lower,
                "delta_upper": bounds.upper,
            }
        )
    return curve
