"""From a budget to fixed mechanism parameters, before any data is read.

Inside one release all parameters are fixed by the config, so the products' losses compose:
their shares become parameters such that the composed loss just meets the budget
(mechanisms.planning.budget_split), and what is charged is what composition proves. The rho of
zero-concentrated privacy comes along, for accounts kept in that measure.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from mechanisms.accounting.composition import compose_quickly
from mechanisms.accounting.numerics.enclosures import Bounds, double_below
from mechanisms.accounting.pld import tabulated
from mechanisms.accounting.privacy_loss import PrivacyLoss
from mechanisms.base.mechanism import Mechanism, Target
from mechanisms.domain.domain import Domain
from mechanisms.domain.privacy_unit import Privacy
from mechanisms.errors import ConfigError
from mechanisms.planning.budget_split import Budget, Part, losses_of, part_of, targets
from mechanisms.planning.calibration import ProductRequest, meet_budget
from mechanisms.planning.charges import charged, concentrated, exact_sum
from mechanisms.planning.count_domains import coded_domain, joint_domains
from mechanisms.planning.mechanism_choice import Choice, choose_open
from mechanisms.planning.plan import Plan, PlannedProduct


def plan_release(
    requests: Sequence[ProductRequest], *, domain: Domain, privacy: Privacy, budget: Budget
) -> Plan:
    """Fix every product's parameters so that together they meet the budget.

    Args:
        requests: At least one product; their shares add up to 1.
        domain: The declared domain.
        privacy: Frame of reference of the guarantee.
        budget: Of the release.

    Raises:
        ConfigError: A product has only one cell, or a mechanism cannot serve it.
        DomainTooLargeError: A mechanism needs the joint table of a product that has none.
        InfeasibleBudgetError: A product's knobs do not fit its part.
    """
    domains = [domain.project(request.columns) for request in requests]
    for request, own in zip(requests, domains, strict=True):
        if own.n_possible == 1:
            raise ConfigError(
                "This product has a single cell, whose count is the public number of records.",
                where=request.name,
                next_step="Give it a column with at least two cells, or leave it out.",
            )
    parts = [
        Part(
            request.share,
            privacy.n_records,
            own.n_possible,
            privacy.unit_records,
            # One zero less and the absent cell more would make up for each other.
            (0,) if own.zeros or own.absent else tuple(column.size for column in own.columns),
            own,
        )
        for request, own in zip(requests, domains, strict=True)
    ]
    asked, pure_asked = targets(budget, parts), _pure_targets(budget, parts)
    choices = choose_open(requests, asked, pure_asked)
    requests = tuple(
        request
        if choice is None
        else replace(request, mechanism=choice.mechanism, knobs=choice.knobs)
        for request, choice in zip(requests, choices, strict=True)
    )
    mechanisms, delta = meet_budget(requests, parts, budget)
    losses = losses_of(mechanisms, parts)
    products = tuple(
        _product(request, own, choice, target, mechanism, loss, budget, delta)
        for request, own, choice, target, mechanism, loss in zip(
            requests, domains, choices, asked, mechanisms, losses, strict=True
        )
    )
    if len(products) == 1:
        products = (replace(products[0], pure_target=pure_asked[0]),)
    _check_further(products)
    used = [name for name in domain.names if any(name in own.names for own in domains)]
    needed = [(product.mechanism, product.request.columns) for product in products]
    whole = compose_quickly(losses)
    return Plan(
        privacy=privacy,
        domain=domain.project(used),
        products=products,
        epsilon=_charge(whole, products, budget, delta),
        delta=delta,
        rho=exact_sum(product.rho for product in products),
        loss=whole,
        joint=joint_domains(domain, needed, privacy.n_records),
        coded=coded_domain(domain, needed),
    )


def _check_further(products: Sequence[PlannedProduct[Any]]) -> None:
    """Refuse what the planned mechanisms cannot publish besides."""
    for product in products:
        if product.further is not None:
            try:
                _ = product.expected_error
            except ConfigError as error:
                error.where = product.name
                raise


def _pure_targets(budget: Budget, parts: Sequence[Part]) -> Sequence[Target | None]:
    """What each product may spend if none needs delta, where that is not the same."""
    if budget.rho is not None or not budget.delta:
        return [None] * len(parts)
    return targets(budget, parts, pure=True)


def _product(
    request: ProductRequest,
    domain: Domain,
    choice: Choice | None,
    target: Target,
    mechanism: Mechanism,
    loss: PrivacyLoss,
    budget: Budget,
    delta: Decimal,
) -> PlannedProduct[Any]:
    delta = part_of(delta, request.share)
    most = budget.rho_delta_of(request.share)
    bounds, rho, rho_delta = _alone(loss, delta, most)
    if budget.rho is not None:
        held = part_of(budget.rho, request.share)
        if loss.approximate_rho(double_below(most)).rho.upper <= double_below(held):
            rho = min(rho, held)
    return PlannedProduct(
        request=request,
        domain=domain,
        mechanism=mechanism,
        choice=choice,
        target=target,
        epsilon=charged(bounds.upper),
        delta=delta,
        rho=rho,
        rho_delta=rho_delta,
        epsilon_bounds=bounds,
        loss=loss,
    )


@functools.lru_cache(maxsize=1024)
def _alone(
    loss: PrivacyLoss, delta: Decimal, rho_delta: Decimal
) -> tuple[Bounds, Decimal, Decimal]:
    """Epsilon and rho of a loss by itself, found once for all products of one loss and share."""
    bounds = tabulated(loss).epsilon(double_below(delta))
    return bounds, *concentrated(loss, charged(bounds.upper), delta, rho_delta)


def _charge(
    whole: PrivacyLoss, products: Sequence[PlannedProduct[Any]], budget: Budget, delta: Decimal
) -> Decimal:
    """Epsilon charged: what is proven at delta, and never more than the budget."""
    proven = charged(whole.epsilon(double_below(delta)).upper)
    if budget.epsilon is None:
        return proven
    if whole.delta(double_below(budget.epsilon)).upper <= double_below(delta):
        return min(proven, budget.epsilon)
    # Parts of epsilon and delta add up to them, if each product was held to its own.
    parts = (part_of(budget.epsilon, product.request.share) for product in products)
    held = [min(product.epsilon, part) for product, part in zip(products, parts, strict=True)]
    if any(
        product.loss.delta(double_below(epsilon)).upper > double_below(product.delta)
        for product, epsilon in zip(products, held, strict=True)
    ):
        raise ArithmeticError("the calibrated mechanisms are not proven to meet the budget")
    return exact_sum(held)
