"""The verdicts of a plan on its products: what stops before the charge, and what is said."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from configs.loading import Release
from mechanisms.errors import MostlyNoiseError, together
from mechanisms.planning.plan import Plan, PlannedProduct
from mechanisms.planning.verdict import Verdict, disclosures, verdict


def check_verdicts(release: Release, plan: Plan) -> list[str]:
    """Refuse products that are mostly noise, unless the config accepts them.

    Returns:
        Warnings for people: what is accepted, and what nearly discloses the records.

    Raises:
        MostlyNoiseError: A product would be mostly noise.
    """
    refused = []
    for name, found in mostly_noise(plan).items():
        if not accepted(release, name):
            place = release.document.where(("products", name))
            refused.append(MostlyNoiseError(f"'{name}' would be {found.words}.", where=place))
    if refused:
        raise together(refused)
    return warnings(release, plan)


def warnings(release: Release, plan: Plan, *, apart: int | None = None) -> list[str]:
    """What a person should know before the charge; public.

    Args:
        release: The config.
        plan: Of that.
        apart: How many products that would stop a run have a text each; more of them share one.
    """
    found = []
    noisy = mostly_noise(plan)
    stopping = [name for name in noisy if not accepted(release, name)]
    if apart is not None and len(stopping) > apart:
        found.append(
            f"{len(stopping)} products would be mostly noise: {', '.join(stopping)}. A run stops "
            "before the charge unless each of them says 'accept: mostly_noise'."
        )
        noisy = {name: each for name, each in noisy.items() if name not in stopping}
    for name, each in noisy.items():
        if accepted(release, name):
            found.append(f"'{name}' is {each.words}. The config accepts that.")
        else:
            found.append(
                f"'{name}' would be {each.words}. A run stops before the charge unless the "
                "product says 'accept: mostly_noise'."
            )
    return found + disclosures(plan)


def mostly_noise(plan: Plan) -> dict[str, Verdict]:
    """The verdicts on the products that are mostly noise, by product."""
    found = {product.name: verdict(product) for product in plan.products}
    return {name: each for name, each in found.items() if each.name == "mostly_noise"}


def accepted(release: Release, product: str) -> bool:
    """Whether the config accepts that a product is mostly noise."""
    return release.config.products[product].accept is not None


def verdict_facts(release: Release, product: PlannedProduct[Any]) -> dict[str, Any]:
    """The verdict on a product as JSON values, with whether the config accepts noise."""
    return asdict(verdict(product)) | {"accepted": accepted(release, product.name)}
