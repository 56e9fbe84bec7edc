"""From a budget to fixed mechanism parameters, before any data is read.

Inside one release all parameters are fixed by the config, so the products' losses compose:
their shares become parameters such that the composed loss just meets the budget
(mechanisms.planning.budget_split), and what is charged is what composition proves. The rho of
zero-concentrated privacy comes along, for accounts kept in that measure.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Generic, TypeVar

from mechanisms.accounting.composition import compose, compose_quickly
from mechanisms.accounting.enclosures import Bounds, double_below
from mechanisms.accounting.privacy_loss import PrivacyLoss
from mechanisms.base.kind import Kind
from mechanisms.base.mechanism import Mechanism, Target
from mechanisms.domain.domain import Domain
from mechanisms.domain.privacy_unit import Privacy
from mechanisms.errors import ConfigError
from mechanisms.planning.budget_split import Budget, Part, losses_of, part_of, targets
from mechanisms.planning.calibration import ProductRequest, meet_budget
from mechanisms.planning.charges import charged, concentrated, exact_sum
from mechanisms.planning.count_domains import coded_domain, joint_domains
from mechanisms.planning.mechanism_choice import Choice, choose_open

M = TypeVar("M", bound=Mechanism, covariant=True)


@dataclass(frozen=True, kw_only=True)
class PlannedProduct(Generic[M]):
    """A product with its mechanism at fixed parameters.

    Attributes:
        request: With the mechanism that was chosen, if that was left open.
        choice: How it was chosen, if it was.
        target: What it was to spend, at first.
        pure_target: The same for a mechanism that needs no delta, if that is not the same.
        epsilon: What it costs by itself: the proven epsilon at ``delta``, rounded up.
        delta: Its share of delta.
        rho: What it costs under zCDP: the proven rho, rounded up.
        rho_delta: Up to which that holds; 0 if it holds for the whole loss.
        epsilon_bounds: Enclosure of the exact epsilon at that delta.
        loss: The mechanism's privacy loss at this size and domain.
    """

    request: ProductRequest
    domain: Domain
    mechanism: M
    choice: Choice | None
    target: Target
    epsilon: Decimal
    delta: Decimal
    rho: Decimal
    epsilon_bounds: Bounds
    loss: PrivacyLoss
    pure_target: Target | None = None
    rho_delta: Decimal = Decimal(0)

    @property
    def attack_advantage(self) -> float:
        """Most that an attack gains over guessing, the loss's delta at epsilon 0."""
        return self.loss.attack_advantage.upper

    @property
    def name(self) -> str:
        """As in the config."""
        return self.request.name

    @property
    def kind(self) -> Kind:
        """Its kind."""
        return self.request.kind

    @functools.cached_property
    def expected_error(self) -> Any:
        """The expected error, from public quantities only; of the type that the kind knows.

        What only compares mechanisms, and may take a simulation, is in it if one was chosen.
        """
        target = self.target
        if self.choice is not None:
            error = self.kind.expected_error(self.mechanism, target)
        else:
            n_records, n_cells = target.n_records, target.n_cells
            error = self.mechanism.expected_error(n_records=n_records, n_cells=n_cells)
        if self.further is None:
            return error
        return self.kind.with_further(error, self.further, self.mechanism, target)

    @property
    def further(self) -> Any:
        """What is published besides, None if nothing is asked for."""
        return self.request.further

    @property
    def draws(self) -> int:
        """Records or noisy cells that will be drawn, for a progress bar."""
        return self.kind.draws(self.mechanism, self.domain.n_possible)

    def describe(self, privacy: Privacy) -> dict[str, str | int]:
        """All that is needed to recompute this product's loss, for the ledger."""
        return {
            "product": self.request.name,
            **self.mechanism.describe(),
            "n_records": privacy.n_records,
            "n_cells": str(self.domain.n_possible),
            "unit_records": privacy.unit_records,
            "epsilon": f"{self.epsilon:f}",
            "delta": str(self.delta),
            "rho": f"{self.rho:f}",
            **({"rho_delta": str(self.rho_delta)} if self.rho_delta else {}),
        }


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a release will do and cost.

    Attributes:
        domain: The columns of all products.
        joint: Domains of the joint tables that the source is counted into.
        coded: The columns of which the records' codes are kept, if a product needs them.
        epsilon: Charged in all: the products composed, at ``delta``, rounded up.
        delta: Charged in all.
        rho: Charged in all under zCDP: an exact sum.
        loss: Of the release; its upper bounds are tight, its lower ones need not be.
    """

    privacy: Privacy
    domain: Domain
    products: tuple[PlannedProduct[Any], ...]
    epsilon: Decimal
    delta: Decimal
    rho: Decimal
    loss: PrivacyLoss
    joint: tuple[Domain, ...]
    coded: Domain | None

    @property
    def amounts(self) -> dict[str, Decimal]:
        """Charged in all, by measure."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "rho": self.rho,
            "rho_delta": exact_sum(product.rho_delta for product in self.products),
        }

    @property
    def added(self) -> Decimal:
        """What the products' epsilons would come to, added up at the same delta."""
        return exact_sum(product.epsilon for product in self.products)

    @property
    def saved(self) -> Decimal:
        """Share of that sum that composing saved; 0 if nothing was."""
        return max(Decimal(0), 1 - self.epsilon / self.added) if self.added else Decimal(0)

    @functools.cached_property
    def epsilon_bounds(self) -> Bounds:
        """Enclosure of the exact epsilon at the delta that is charged."""
        return compose(product.loss for product in self.products).epsilon(double_below(self.delta))

    @property
    def attack_advantage(self) -> float:
        """Most that an attack gains over guessing from the whole release."""
        return self.loss.attack_advantage.upper

    def describe(self) -> list[dict[str, str | int]]:
        """The mechanisms of a charge."""
        return [product.describe(self.privacy) for product in self.products]


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
        joint=joint_domains(domain, needed),
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
    bounds = loss.epsilon(double_below(delta))
    most = budget.rho_delta_of(request.share)
    rho, rho_delta = concentrated(loss, charged(bounds.upper), delta, most)
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
