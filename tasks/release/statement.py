"""The statement of a release's guarantee, with everything needed to recompute it.

What all releases of a dataset have spent, as it stands in the ledger at a release's charge.
What the guarantee of a release does not cover, in sentences for its privacy statement.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from statpress.configs.loading import Release
from statpress.configs.privacy_statement import FORMAT
from statpress.mechanisms.accounting.losses import PrivacyLoss
from statpress.mechanisms.domain.domain import Unit
from statpress.mechanisms.planning.plan import Plan, PlannedProduct, disclosures
from statpress.tasks.ledger.accounts import Account, limit_of
from statpress.tasks.ledger.entries import Entry, Loss
from statpress.tasks.pages.numbers import at_most
from statpress.tasks.products.kinds import kind_of
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
        policy that was in force, ``spent_before`` and ``spent`` in all.
    """
    entries = (account.registration, *account.amendments)
    terms = max(
        (entry for entry in entries if entry.sequence < charge.sequence),
        key=lambda entry: entry.sequence,
    )
    limit, spent = limit_of(terms.body), Loss.sums(charge.body["spent"])
    return {
        "dataset": account.dataset,
        "policy": terms.body["policy"],
        "limit": limit.texts(),
        "spent_before": (spent - Loss.of(charge.body)).texts(),
        "spent": spent.texts(),
        "remaining": (limit - spent).texts(),
    }


_CHECKS = (
    "Quality checks on the source may stop a run before it is charged; that a release exists shows "
    "that they passed."
)
_IMPOSSIBLE = (
    "One of them is that no record lies in a structural zero which the config declares: the "
    "guarantee is between sources of which this is true."
)
_TIME = (
    "How long the steps of a run take depends on the source, and is seen by whoever watches the "
    "orchestrator."
)
_GROUPS = (
    "What the statistics say of a group can be held against each of its members. That is not "
    "prevented: it would be learned nearly as well if the data of any one of them were different."
)
_OTHERS = (
    "Other publications from the same data that this ledger did not charge, with noise or without, "
    "are not counted here; what they give away adds to what this release does."
)
_ACCESS = (
    "Whoever can read the source, the private folder of a run or the curator log sees confidential "
    "data without protection, and so does whoever steals them."
)
_RECORD = (
    "What is protected is one record. A person, household or firm with k records is protected "
    "less: by up to k times the epsilon, at a larger delta."
)
_CURATOR = (
    "A report of the exact errors of this release was made for the curator, in a private folder. "
    "What is done because of what it says, such as publishing or repeating the release, is not "
    "covered, and neither is how long it took to make."
)
_SEEDED = (
    "The randomness came from a known seed: no guarantee holds, and whoever knows the seed can "
    "take the noise away."
)


def not_covered(release: Release, plan: Plan, *, publishable: bool) -> list[str]:
    """The sentences, from the config only.

    Args:
        release: The config.
        plan: Of that.
        publishable: Whether the randomness was secret.
    """
    privacy = plan.privacy
    size = f"the number of records, {privacy.n_records:,}"
    if privacy.unit == Unit.RECORD:
        unit = _RECORD
    else:
        column = privacy.unit.removeprefix("column ")
        unit = (
            f"What is protected is one value of `{column}` with all its records. Whoever has "
            "several of them, and what the members of a household or a firm have in common, is "
            "protected less."
        )
        size = f"the number of units, {privacy.n_units:,}, and that at most {privacy.unit_records}"
        size += " records of each are used"
    public = (
        f"Taken as public, and not protected: {size}, and everything that config.yaml says, such "
        "as columns, categories, bounds and known totals."
    )
    impossible = [_IMPOSSIBLE] if release.domain.zeros else []
    seeded = [] if publishable else [_SEEDED]
    curator = [_CURATOR] if release.config.curator.report else []
    known = [_CHECKS, *impossible, _TIME, *curator, _GROUPS, unit, _OTHERS, public, _ACCESS]
    return [*seeded, *known]


SCHEMA = "privacy.schema.json"
"""The JSON Schema of the statement: a file of ``configs``, and of every bundle."""
FALSE_POSITIVE_RATES = (Fraction(1, 100), Fraction(1, 20))
"""At which the trade-off is stated."""


def statement(release: Release, plan: Plan, *, publishable: bool) -> dict[str, Any]:
    """What the release reveals at most, as far as it is known before the charge.

    Args:
        release: The config.
        plan: Of that.
        publishable: Whether it is drawn from secret randomness.
    """
    sentences = not_covered(release, plan, publishable=publishable)
    return {
        "publishable": publishable,
        "outside_the_guarantee": " ".join(sentences),
        "not_covered": sentences,
        **_guarantee(release, plan),
    }


def charged_statement(
    release: Release,
    plan: Plan,
    charge: Entry,
    spent: Mapping[str, Any],
    drawn: Mapping[str, Any],
    *,
    publishable: bool,
) -> dict[str, Any]:
    """The same with the charge, and what can be said of the products only once they are drawn.

    Args:
        release: The config.
        plan: Of that.
        charge: The ledger's entry.
        spent: What the dataset has spent with it (``tasks.release.statement``).
        drawn: What the mechanisms gave, by product.
        publishable: Whether from secret randomness.
    """
    stated = statement(release, plan, publishable=publishable)
    products = {
        product.request.name: stated["products"][product.request.name]
        | kind_of(product).stated(product, drawn[product.request.name])
        for product in plan.products
    }
    head = {
        "$schema": SCHEMA,
        "format": FORMAT,
        "ledger_entry": {"sequence": charge.sequence, "hash": charge.hash},
        "lifetime": dict(spent),
        "source": release.config.source.kind,
    }
    return head | stated | {"products": products}


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
        f"two candidates for what it is, gains at most {at_most(plan.attack_advantage)} over "
        "guessing (true positive rate minus false positive rate).",
        "trade_off": _trade_off(plan.loss, float(plan.epsilon)),
        "warnings": disclosures(plan),
        "explanations": EXPLANATIONS,
        "citations": {
            product.mechanism.name: [each.describe() for each in product.mechanism.citations]
            for product in plan.products
        },
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
