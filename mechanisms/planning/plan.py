"""A release as it is planned: each product's mechanism, and what is charged for it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Generic, TypeVar

from mechanisms.accounting.composition import compose
from mechanisms.accounting.numerics.enclosures import Bounds, double_below
from mechanisms.accounting.privacy_loss import PrivacyLoss
from mechanisms.base.kind import Kind
from mechanisms.base.mechanism import Mechanism, Target
from mechanisms.domain.domain import Domain
from mechanisms.domain.privacy_unit import Privacy
from mechanisms.planning.calibration import ProductRequest
from mechanisms.planning.charges import exact_sum
from mechanisms.planning.mechanism_choice import Choice

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
