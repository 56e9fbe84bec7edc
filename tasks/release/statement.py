"""``privacy.json``: the guarantee of a release, with everything needed to recompute it.

With the charge come the sums of the dataset's account as they stand in the ledger right after it,
whatever follows. What the guarantee does not cover is in the template ``not_covered.md.jinja``.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from statpress.configs.loading import Release
from statpress.configs.privacy_statement import FORMAT
from statpress.mechanisms.accounting.losses import PrivacyLoss
from statpress.mechanisms.accounting.panel_design import Panel
from statpress.mechanisms.domain.domain import Adjacency, Size
from statpress.mechanisms.mechanism import PROOF
from statpress.mechanisms.planning.plan import Plan, PlannedProduct, disclosures
from statpress.tasks.bundle.manifest import REHEARSED
from statpress.tasks.ledger.account_rules import panel_after
from statpress.tasks.ledger.accounts import Account, limit_of
from statpress.tasks.ledger.entries import Entry, Loss
from statpress.tasks.pages.numbers import at_most
from statpress.tasks.pages.rendering import markdown
from statpress.tasks.products.product_kind import kind_of
from statpress.tasks.release.foreseen import verdict_facts
from statpress.tasks.report.privacy_page import EXPLANATIONS


def lifetime(account: Account, charge: Entry) -> dict[str, Any]:
    """Policy, limit and sums right after a charge, whatever followed it; public.

    Args:
        account: Of the dataset, with its registration and amendments.
        charge: The ledger's entry, which states the sum of all charges up to it that were not
            given back.

    Returns:
        Amounts as decimal texts by measure: ``limit`` and ``remaining`` in the measures of the
        policy that was in force, ``spent_before`` and ``spent`` in all. Under a design these are
        the largest loss of one person who takes part in the period, in the policy's measures.
    """
    entries = (account.registration, *account.amendments)
    before = [entry.body for entry in entries if entry.sequence < charge.sequence]
    terms = before[-1]
    limit, body = limit_of(terms), charge.body
    if "design" in body:
        spent = Loss.sums(body["spent_by_one"], limit.amounts)
        panel = functools.reduce(panel_after, before, Panel())
        stated = {"design": body["design"], "design_in_words": panel.words}
    else:
        spent, stated = Loss.sums(body["spent"]), {}
    return {
        "dataset": account.dataset,
        "policy": terms["policy"],
        **stated,
        **({"period": body["period"]} if "period" in body else {}),
        "limit": limit.texts(),
        "spent_before": (spent - Loss.of(body)).texts(),
        "spent": spent.texts(),
        "remaining": (limit - spent).texts(),
        **_shared(account, charge),
    }


def _shared(account: Account, charge: Entry) -> dict[str, Any]:
    """Which other accounts are about the same sources, as it was said before the charge."""
    binding = account.binding
    if binding is None or binding.sequence > charge.sequence or not binding.body["also_in"]:
        return {}
    return {"also_in": binding.body["also_in"], "reason": binding.body["reason"]}


def not_covered(
    release: Release, plan: Plan, *, publishable: bool, rehearsal: bool = False
) -> list[str]:
    """What the guarantee does not cover, in sentences, from the config only."""
    unit = plan.privacy.unit
    text = markdown(
        "not_covered.md.jinja",
        noisy=plan.gate is not None,
        publishable=publishable,
        rehearsal=rehearsal,
        zeros=release.domain.zeros,
        curator=release.config.curator.report,
        weight="" if release.config.weight is None else release.config.weight.column,
        column=unit.removeprefix("column ") if unit.startswith("column ") else "",
        privacy=plan.privacy,
    )
    return text.strip().split("\n\n")


SCHEMA = "privacy.schema.json"
"""The JSON Schema of the statement: a file of ``configs``, and of every bundle."""
FALSE_POSITIVE_RATES = (Fraction(1, 100), Fraction(1, 20))
"""At which the trade-off is stated."""


def statement(
    release: Release, plan: Plan, *, publishable: bool, rehearsal: bool = False
) -> dict[str, Any]:
    """What the release reveals at most, as far as it is known before the charge."""
    sentences = not_covered(release, plan, publishable=publishable, rehearsal=rehearsal)
    return {
        "publishable": publishable,
        **(REHEARSED if rehearsal else {}),
        "outside_the_guarantee": " ".join(sentences),
        "not_covered": sentences,
        **_guarantee(release, plan),
    }


def charged_statement(
    release: Release,
    plan: Plan,
    charge: Entry | None,
    spent: Mapping[str, Any],
    drawn: Mapping[str, Any],
    *,
    publishable: bool,
) -> dict[str, Any]:
    """The statement with its charge, and with what is known of the products once they are drawn.

    A rehearsal has no charge.
    """
    stated = statement(release, plan, publishable=publishable, rehearsal=charge is None)
    total = plan.estimated_total(drawn)
    estimated = {} if total is None else {"estimated_records": total.records}
    products = {
        product.request.name: stated["products"][product.request.name]
        | kind_of(product).stated(product, drawn[product.request.name])
        | estimated
        for product in plan.products
    }
    if total is not None:
        stated |= {**estimated, "estimated_records_sd": math.sqrt(total.variance)}
    charged = {} if charge is None else {
        "$schema": SCHEMA,
        "format": FORMAT,
        "ledger_entry": {"sequence": charge.sequence, "hash": charge.hash},
        "lifetime": dict(spent),
        "source": release.config.source.kind,
    }  # fmt: skip
    return charged | stated | {"products": products}


_PROVEN = {
    Adjacency.REPLACE_ONE: (),
    Adjacency.ADD_REMOVE: (PROOF.at("Theorems 3.5 and 5.8, section 11"),),
}
_DECIDED = {
    Adjacency.REPLACE_ONE: "between two candidates for what it is",
    Adjacency.ADD_REMOVE: "whether it is there",
}


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
        **({} if privacy.size is Size.DECLARED else {"size": privacy.size}),
        "epsilon": f"{plan.epsilon:f}",
        "delta": str(plan.delta),
        "rho": f"{plan.amounts['rho']:f}",
        **({"rho_delta": str(least)} if (least := plan.amounts["rho_delta"]) else {}),
        "composition": "the privacy losses of the products, composed; rho and its delta add up",
        "epsilon_lower": plan.epsilon_bounds.lower,
        "epsilon_upper": plan.epsilon_bounds.upper,
        "curve": _curve(plan.loss, float(plan.epsilon)),
        "attack_advantage": plan.attack_advantage,
        "meaning": f"Someone who knows everything but {privacy.words}, and must decide "
        f"{_DECIDED[privacy.adjacency]}, gains at most {at_most(plan.attack_advantage)} over "
        "guessing (true positive rate minus false positive rate).",
        "trade_off": _trade_off(plan.loss, float(plan.epsilon)),
        "warnings": disclosures(plan),
        "explanations": EXPLANATIONS,
        "citations": {
            product.mechanism.name: [
                each.describe()
                for each in (*product.mechanism.citations, *_PROVEN[privacy.adjacency])
            ]
            for product in plan.charged
        },
        **_checks(plan),
        "products": {p.request.name: _product_statement(release, p, plan) for p in plan.products},
    }


def _checks(plan: Plan) -> dict[str, Any]:
    """What noisy checks of the input cost; nothing where they are exact."""
    if plan.gate is None:
        return {}
    return {
        "checks": {
            **plan.gate.describe(plan.privacy),
            "attack_advantage": plan.gate.attack_advantage,
            "expected_error": dataclasses.asdict(plan.gate.expected_error),
        }
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
        "trade_off": _trade_off(product.loss, float(product.epsilon)),
        **chosen,
        "kind": product.kind.name,
        "expected_error": dataclasses.asdict(product.expected_error),
        "verdict": verdict_facts(release, product),
    }


@functools.lru_cache(maxsize=64)  # a run asks twice: before the charge, and after it
def _missed(loss: PrivacyLoss, epsilon: float) -> tuple[float, ...]:
    return loss.missed_at_least(FALSE_POSITIVE_RATES, epsilon)


def _trade_off(loss: PrivacyLoss, epsilon: float) -> list[dict[str, float]]:
    """What every attack misses at some false-positive rates, at least."""
    return [
        {"false_positive_rate": float(rate), "false_negative_rate_at_least": missed}
        for rate, missed in zip(FALSE_POSITIVE_RATES, _missed(loss, epsilon), strict=True)
    ]


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
