"""From a budget to fixed mechanism parameters, before any data is read.

Inside one release all parameters are fixed by the config, so the products'
losses compose. In this first form epsilon and delta are each divided by the
declared shares (basic composition, exact decimals); every mechanism is then
charged what it provably costs, never more than its part. The rho of
zero-concentrated privacy comes along, for accounts kept in that measure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

from mechanisms.accuracy import ExpectedError
from mechanisms.domain import Domain
from mechanisms.enclosures import Bounds, double_below
from mechanisms.errors import AmountError, InfeasibleBudgetError
from mechanisms.losses import PrivacyLoss
from mechanisms.mechanism import Mechanism, Target
from mechanisms.privacy import Privacy
from mechanisms.registry import REGISTRY

_EXACT = Context(prec=1000)
_CHARGED = Context(prec=12, rounding=ROUND_CEILING)
_MEASURES = ("epsilon", "delta", "rho", "rho_delta")


@dataclass(frozen=True, kw_only=True)
class ProductRequest:
    """A product as declared: name, kind, columns, mechanism with its knobs, share."""

    name: str
    kind: str
    mechanism: str
    knobs: Any
    columns: tuple[str, ...]
    share: Decimal


@dataclass(frozen=True, kw_only=True)
class PlannedProduct:
    """A product with its mechanism at fixed parameters.

    Attributes:
        epsilon: Charged: the proven epsilon at ``delta``, rounded up.
        delta: Charged: the product's part of delta.
        rho: Charged under zCDP: the proven rho, rounded up.
        rho_delta: Delta beside rho; 0, since every mechanism so far has a rho.
        epsilon_bounds: Enclosure of the exact epsilon at that delta.
        delta_bounds: Enclosure of the exact delta at the product's part of epsilon.
        expected_error: From public quantities alone.
        loss: The mechanism's privacy loss at this size and domain.
    """

    request: ProductRequest
    domain: Domain
    mechanism: Mechanism
    epsilon: Decimal
    delta: Decimal
    rho: Decimal
    rho_delta: Decimal
    epsilon_bounds: Bounds
    delta_bounds: Bounds
    expected_error: ExpectedError
    loss: PrivacyLoss

    @property
    def attack_advantage(self) -> float:
        """Most that an attack gains over guessing, the loss's delta at epsilon 0."""
        return self.loss.attack_advantage.upper

    @property
    def rows(self) -> int:
        """Rows of its main file, at most: records of microdata, else listed cells."""
        if self.request.kind == "microdata":
            return int(self.mechanism.describe()["records"])
        return min(self.mechanism.rows(n_cells=self.domain.n_possible), self.domain.n_listed)

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
        }


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a release will do and cost."""

    privacy: Privacy
    domain: Domain
    products: tuple[PlannedProduct, ...]

    @property
    def epsilon(self) -> Decimal:
        """Charged in all, an exact sum."""
        return _sum(product.epsilon for product in self.products)

    @property
    def delta(self) -> Decimal:
        """Charged in all, an exact sum."""
        return _sum(product.delta for product in self.products)

    @property
    def amounts(self) -> dict[str, Decimal]:
        """Charged in all, by measure: exact sums."""
        return {name: _sum(getattr(p, name) for p in self.products) for name in _MEASURES}

    @property
    def attack_advantage(self) -> float:
        """The same for the whole release: total variation adds up, and ends at 1."""
        return min(1.0, math.fsum(product.attack_advantage for product in self.products))

    def describe(self) -> list[dict[str, str | int]]:
        """The mechanisms of a charge."""
        return [product.describe(self.privacy) for product in self.products]


def plan_release(
    requests: Sequence[ProductRequest],
    *,
    domain: Domain,
    privacy: Privacy,
    epsilon: Decimal,
    delta: Decimal,
) -> Plan:
    """Fix every product's parameters so that together they meet (epsilon, delta).

    Args:
        requests: At least one product; their shares add up to 1.
        domain: The declared domain.
        privacy: Frame of reference of the guarantee.
        epsilon: Budget of the release.
        delta: Budget of the release.

    Raises:
        InfeasibleBudgetError: A product's knobs do not fit its part.
    """
    products = []
    for request in requests:
        part = domain.project(request.columns)
        epsilon_part = _EXACT.multiply(epsilon, request.share)
        delta_part = _EXACT.multiply(delta, request.share)
        if REGISTRY[request.mechanism].pure:
            delta_part = Decimal(0)
        target = Target(
            epsilon=double_below(epsilon_part),
            delta=double_below(delta_part),
            n_records=privacy.n_records,
            n_cells=part.n_possible,
            unit_records=privacy.unit_records,
        )
        mechanism = _calibrated(request, target)
        loss = mechanism.loss(
            n_records=privacy.n_records, n_cells=part.n_possible, unit_records=privacy.unit_records
        )
        bounds = loss.epsilon(target.delta)
        delta_bounds = loss.delta(target.epsilon)
        if delta_bounds.upper > target.delta:
            raise ArithmeticError("the calibrated mechanism is not proven to meet its target")
        products.append(
            PlannedProduct(
                request=request,
                domain=part,
                mechanism=mechanism,
                epsilon=min(charged(bounds.upper), epsilon_part),
                delta=delta_part,
                rho=charged(loss.rho.upper),
                rho_delta=Decimal(0),
                epsilon_bounds=bounds,
                delta_bounds=delta_bounds,
                loss=loss,
                expected_error=mechanism.expected_error(
                    n_records=privacy.n_records, n_cells=part.n_possible
                ),
            )
        )
    used = [name for name in domain.names if any(name in p.domain.names for p in products)]
    return Plan(privacy=privacy, domain=domain.project(used), products=tuple(products))


def _calibrated(request: ProductRequest, target: Target) -> Mechanism:
    """The product's mechanism; an error names the product."""
    try:
        return REGISTRY[request.mechanism].calibrate(request.knobs, target)
    except InfeasibleBudgetError as error:
        error.where = request.name
        raise


def described_loss(description: Mapping[str, Any]) -> PrivacyLoss:
    """The privacy loss of a mechanism as a charge describes it."""
    return (
        REGISTRY[description["mechanism"]]
        .from_description(description)
        .loss(
            n_records=int(description["n_records"]),
            n_cells=int(description["n_cells"]),
            unit_records=int(description["unit_records"]),
        )
    )


def recompute_charge(mechanisms: Sequence[Mapping[str, Any]]) -> dict[str, Decimal]:
    """What a charge's mechanism descriptions cost at least, from scratch, by measure.

    Args:
        mechanisms: As given by ``Plan.describe``.
    """
    epsilon = delta = rho = Decimal(0)
    for description in mechanisms:
        loss, part = described_loss(description), Decimal(description["delta"])
        stated = Decimal(description["epsilon"])
        if not (stated >= 0 and 0 <= part < 1):
            raise AmountError("A mechanism's description states no valid amount.")
        proven = stated
        if loss.delta(double_below(stated)).upper > double_below(part):
            proven = Decimal(loss.epsilon(double_below(part)).upper)
        epsilon = _EXACT.add(epsilon, proven)
        delta = _EXACT.add(delta, part)
        # The lower end: a later version's tighter or looser bound is no tampering.
        rho = _EXACT.add(rho, Decimal(loss.rho.lower))
    return dict(zip(_MEASURES, (epsilon, delta, rho, Decimal(0)), strict=True))


def charged(epsilon: float) -> Decimal:
    """Twelve significant digits of an upper bound, rounded up."""
    return _CHARGED.create_decimal(Decimal(epsilon))


def _sum(amounts: Any) -> Decimal:
    total = Decimal(0)
    for amount in amounts:
        total = _EXACT.add(total, amount)
    return total
