"""What other budgets would buy: each product's expected error over the budget of the release.

Everything here follows from the config only, so it can be looked at before anything is paid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from mechanisms.planning.budget_split import Budget, gaussian_mu
from mechanisms.planning.plan import Plan, PlannedProduct

TIMES = tuple(map(Decimal, ("0.125", "0.25", "0.5", "0.7", "1", "1.4", "2", "4", "8")))
"""Budgets that are compared, as multiples of the config's own."""


@dataclass(frozen=True)
class Offer:
    """A release planned for some multiple of its budget.

    Attributes:
        times: The multiple.
        plan: What it would come to; None if it cannot be met.
        reason: Why not; empty if it can.
    """

    times: Decimal
    plan: Plan | None
    reason: str = ""

    def product(self, name: str) -> PlannedProduct[Any] | None:
        """One of its products; None if the budget cannot be met."""
        if self.plan is None:
            return None
        return next(each for each in self.plan.products if each.name == name)


def criterion_of(product: PlannedProduct[Any]) -> str:
    """The error by which a product is judged, in words."""
    return product.kind.criteria[_criterion(product)]


def error_of(product: PlannedProduct[Any] | None) -> float | None:
    """That error; None if it is not known or has no end."""
    if product is None:
        return None
    error = product.kind.expected_error(product.mechanism, product.target)
    found = error.deciding(_criterion(product))
    return float(found) if math.isfinite(found) else None


def _criterion(product: PlannedProduct[Any]) -> str:
    """What decides between mechanisms, or the first error that is known where that is not."""
    first = product.kind.criterion(product.request.knobs)
    error = product.kind.expected_error(product.mechanism, product.target)
    known = (each for each in product.kind.criteria if math.isfinite(error.deciding(each)))
    return first if math.isfinite(error.deciding(first)) else next(known, first)


def errors_over(offers: Sequence[Offer], name: str) -> list[tuple[Offer, float]]:
    """The offers for which a product's error is known, with that error."""
    found = [(offer, error_of(offer.product(name))) for offer in offers]
    return [(offer, error) for offer, error in found if error is not None]


def error_at_part(
    offers: Sequence[Offer], name: str, ratio: float, budget: Budget, *, n_products: int
) -> float | None:
    """About the error of a product whose part of the budget is some multiple of its own.

    A product's error depends on its part only, and the same part comes of a larger share or of a
    larger budget. So it is read off the offers, linear in logarithms. What is divided is epsilon
    or rho, or the square of the Gaussian mu where several products have a delta
    (``mechanisms.planning.budget_split``).

    Args:
        offers: In ascending order.
        name: Of the product.
        ratio: Of the part to the product's own, above 0.
        budget: The config's.
        n_products: Of the release.

    Returns:
        None if the offers do not reach so far.
    """
    known = [(offer, error) for offer, error in errors_over(offers, name) if error > 0]
    parts = [_part(offer.times, budget, n_products) for offer, _ in known]
    if len(known) < 2 or not parts[0] <= ratio <= parts[-1]:
        return None
    errors = [math.log(error) for _, error in known]
    return math.exp(float(np.interp(math.log(ratio), np.log(parts), errors)))


def _part(times: Decimal, budget: Budget, n_products: int) -> float:
    """What so many times the budget multiplies every product's part by."""
    if budget.rho is not None or n_products == 1 or not budget.delta:
        return float(times)
    assert budget.epsilon is not None
    epsilon, delta = float(budget.epsilon), float(budget.delta)
    larger, own = gaussian_mu(epsilon * float(times), delta), gaussian_mu(epsilon, delta)
    return (larger / own) ** 2
