"""A release as it is planned, and the verdicts on its products.

A plan has each product's mechanism and what is charged for it. Its verdicts say before any data is
read which products are mostly noise or nearly disclosed.

A product is *mostly noise* if more than half of its records are expected to be uniform, or if the
expected error from noise of what an analyst will read is above a quarter: of a table its own total
variation, of microdata that of tables of two columns, on the planner's reference shapes; of an
estimate half its interval, and of a function what noise adds to its largest error, as shares of
what is possible (``Kind.noise_figure``). Records are *mostly independent* if typical relations of
two columns, of Cramér's V .15, are not expected to survive. A product is *nearly disclosed* if no
count is expected to be off by half a record, and so is a whole release at an epsilon above 10.

All figures are public, and verdicts rules of thumb: no guarantee depends on them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Generic, Literal, TypeVar

from statpress.mechanisms.accounting.balls import Bounds, double_below
from statpress.mechanisms.accounting.composition import compose
from statpress.mechanisms.accounting.losses import PrivacyLoss, PureLoss
from statpress.mechanisms.accounting.privacy_loss_distributions import tabulated
from statpress.mechanisms.domain.domain import Adjacency, Domain, Privacy
from statpress.mechanisms.mechanism import (
    MOST_NOISE,
    TYPICAL_ASSOCIATION,
    Kind,
    Mechanism,
    Target,
    stated_error,
)
from statpress.mechanisms.planning.charges import charged, exact_sum
from statpress.mechanisms.planning.choice import Budget, Choice, ProductRequest
from statpress.mechanisms.postprocessing.covariance import EstimatedTotal

M = TypeVar("M", bound=Mechanism, covariant=True)


@functools.lru_cache(maxsize=1024)
def _epsilon_alone(loss: PrivacyLoss, delta: Decimal) -> Bounds:
    """Epsilon of a loss by itself, found once for all products of one loss and share."""
    return tabulated(loss).epsilon(double_below(delta))


def concentrated(
    loss: PrivacyLoss, epsilon: Decimal, delta: Decimal, rho_delta: Decimal
) -> tuple[Decimal, Decimal, str]:
    """A rho that is proven, the delta up to which it is, and the rule by which, if it is by one.

    The delta is ``rho_delta`` at most, or ``delta``.
    A loss without a finite rho is (epsilon, delta)-DP all the same: but for delta it is no
    more than that of a randomised response of epsilon (Kairouz, Oh and Viswanath 2015), whose
    rho it has delta-approximately (Bun and Steinke 2016, section 8).
    """
    found = loss.approximate_rho(double_below(rho_delta))
    if math.isfinite(found.rho.upper):
        return charged(found.rho.upper), min(charged(found.delta), rho_delta), found.rule
    return charged(PureLoss(Fraction(epsilon)).rho.upper), delta, ""


_rho_alone = functools.lru_cache(maxsize=1024)(concentrated)


@dataclass(frozen=True, kw_only=True)
class PlannedProduct(Generic[M]):
    """A product with its mechanism at fixed parameters.

    Attributes:
        request: With the mechanism that was chosen, if that was left open.
        choice: How it was chosen, if it was.
        target: What it was to spend, at first.
        pure_target: What a mechanism that needs no delta could spend, if that is not the same.
        delta: Its share of delta.
        loss: The mechanism's privacy loss at this size and domain.
        rho_most: Its share of the delta of rho.
        rho_part: Its share of a budget of rho; None of another.
    """

    request: ProductRequest
    domain: Domain
    mechanism: M
    choice: Choice | None
    target: Target
    delta: Decimal
    loss: PrivacyLoss
    rho_most: Decimal
    rho_part: Decimal | None = None
    pure_target: Target | None = None

    @property
    def epsilon_bounds(self) -> Bounds:
        """Enclosure of the exact epsilon at ``delta``."""
        return _epsilon_alone(self.loss, self.delta)

    @property
    def epsilon(self) -> Decimal:
        """What it costs by itself: the proven epsilon at ``delta``, rounded up."""
        return charged(self.epsilon_bounds.upper)

    @functools.cached_property
    def _rho(self) -> tuple[Decimal, Decimal, str]:
        rho, rho_delta, rule = _rho_alone(self.loss, self.epsilon, self.delta, self.rho_most)
        if self.rho_part is not None:
            proven = self.loss.approximate_rho(double_below(self.rho_most)).rho.upper
            if proven <= double_below(self.rho_part):
                rho = min(rho, self.rho_part)
        return rho, rho_delta, rule

    @property
    def rho(self) -> Decimal:
        """What it costs under zCDP: the proven rho, rounded up."""
        return self._rho[0]

    @property
    def rho_delta(self) -> Decimal:
        """Up to which ``rho`` holds; 0 if it holds for the whole loss."""
        return self._rho[1]

    @property
    def rho_rule(self) -> str:
        """By which event ``rho`` holds up to that, of draws (``truncated_draws.RULES``)."""
        return self._rho[2]

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
        """What the planner knows of such products."""
        return self.request.kind

    @functools.cached_property
    def own_error(self) -> Any:
        """The expected error of the product itself, of the type that the kind knows.

        What only compares mechanisms, and may take a simulation, is in it if one was chosen.
        """
        if self.choice is not None:
            return self.compared_error
        return stated_error(self.mechanism, self.target)

    @functools.cached_property
    def expected_error(self) -> Any:
        """The same with what is published besides, from public quantities only."""
        if self.further is None:
            return self.own_error
        return self.kind.with_further(self.own_error, self.further, self.mechanism, self.target)

    @property
    def criterion(self) -> str:
        """The error by which it is judged, a key of the kind's ``criteria``."""
        choice, knobs = self.choice, self.request.knobs
        first = self.kind.criterion(knobs) if choice is None else choice.minimise
        return self.kind.judged_by(first, self.compared_error)

    @property
    def deciding_error(self) -> float:
        """That error; infinite if it is not known."""
        return float(self.compared_error.deciding(self.criterion))

    @functools.cached_property
    def compared_error(self) -> Any:
        """The expected error by which its mechanism is compared with others."""
        return self.kind.expected_error(self.mechanism, self.target)

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
            **({"per": per} if (per := getattr(self.request.knobs, "per", None)) else {}),
            "epsilon": f"{self.epsilon:f}",
            "delta": str(self.delta),
            "rho": f"{self.rho:f}",
            **({"rho_delta": str(self.rho_delta)} if self.rho_delta else {}),
            **({"rho_rule": self.rho_rule} if self.rho_rule else {}),
        }


@dataclass(frozen=True)
class Division:
    """How the budget was divided where the config leaves shares open.

    Attributes:
        names: The products whose shares were open, two or more.
        gain: By how much their mean expected error (geometric) falls below that with equal shares;
            0 if shares are equal, None if nothing is known of equal ones, which do not do.
        spared: Those of them that would be mostly noise or mostly independent with equal shares.
    """

    names: tuple[str, ...]
    gain: float | None
    spared: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a release will do and cost.

    Attributes:
        domain: The columns of all products.
        joint: Domains of the joint tables that the source is counted into.
        coded: The columns of which the records' codes are kept, if a product needs them.
        epsilon: Charged in all: the products composed, at ``delta``, rounded up.
        delta: Charged in all.
        loss: Of the release; its upper bounds are tight, its lower ones need not be.
        budget: That was to be met.
        gate: The noisy checks of the input, which cost what a product costs; None if exact.
        division: How open shares were found; None if fewer than two were open.
    """

    privacy: Privacy
    domain: Domain
    products: tuple[PlannedProduct[Any], ...]
    epsilon: Decimal
    delta: Decimal
    loss: PrivacyLoss
    joint: tuple[Domain, ...]
    coded: Domain | None
    budget: Budget
    gate: PlannedProduct[Any] | None = None
    division: Division | None = None

    def estimated_total(self, drawn: Mapping[str, Any]) -> EstimatedTotal | None:
        """The number of records, absent ones included, by the noisy counts of all products.

        Args:
            drawn: What each product released, by its name; some may be left out.

        Returns:
            None where the number is public, and where no product counts all records.
        """
        if self.privacy.adjacency is Adjacency.REPLACE_ONE:
            return None
        totals = []
        for product in self.products:
            total_of = getattr(product.mechanism, "total", None)
            if total_of is None or product.name not in drawn:
                continue
            total = total_of(drawn[product.name])
            if total is not None:
                counted = self.privacy.counting(product.domain)
                totals.append(total.times(self.privacy.unit_records // counted.unit_records))
        return EstimatedTotal.combined(totals) if totals else None

    def size_of(self, drawn: Mapping[str, Any]) -> int:
        """The number of records that released products are post-processed with; public."""
        total = self.estimated_total(drawn)
        return self.privacy.n_records if total is None else total.records

    @property
    def charged(self) -> tuple[PlannedProduct[Any], ...]:
        """All that costs: the products, and the noisy checks if there are any."""
        return self.products if self.gate is None else (*self.products, self.gate)

    @functools.cached_property
    def rho(self) -> Decimal:
        """Charged in all under zCDP: an exact sum."""
        return exact_sum(product.rho for product in self.charged)

    @property
    def amounts(self) -> dict[str, Decimal]:
        """Charged in all, by measure."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "rho": self.rho,
            "rho_delta": exact_sum(product.rho_delta for product in self.charged),
        }

    @property
    def added(self) -> Decimal:
        """What the products' epsilons would come to, added up at the same delta."""
        return exact_sum(product.epsilon for product in self.charged)

    @property
    def saved(self) -> Decimal:
        """Share of that sum that composing saved; 0 if nothing was."""
        return max(Decimal(0), 1 - self.epsilon / self.added) if self.added else Decimal(0)

    @functools.cached_property
    def epsilon_bounds(self) -> Bounds:
        """Enclosure of the exact epsilon at the delta that is charged."""
        return compose(product.loss for product in self.charged).epsilon(double_below(self.delta))

    @property
    def attack_advantage(self) -> float:
        """Most that an attack gains over guessing from the whole release."""
        return self.loss.attack_advantage.upper

    def describe(self) -> list[dict[str, str | int]]:
        """The mechanisms of a charge."""
        return [product.describe(self.privacy) for product in self.charged]


MOST_UNIFORM = 0.5
"""Share of the records that may be uniform."""

LEAST_NOISE = 0.5
"""Standard deviation, in records, below which a count is nearly disclosed."""

MOST_EPSILON = 10
"""Epsilon above which a whole release is."""

Name = Literal["usable", "mostly_noise", "mostly_independent", "nearly_disclosed", "not_known"]

ADVICE: Mapping[str, str] = {
    "mostly_noise": "do not read more into any single figure than its standard error allows",
    "mostly_independent": "do not take columns for unrelated because they are so in these records",
}
"""What readers are told of products by verdicts that a config has to accept."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A verdict with the public figure that it follows from.

    Attributes:
        name: What it is.
        figure: What decided, in words; empty if nothing is known.
        value: The figure; None if it is not known.
        threshold: What it was compared with; likewise.
    """

    name: Name
    figure: str = ""
    value: float | None = None
    threshold: float | None = None

    @classmethod
    def stated(cls, product: Mapping[str, Any]) -> Verdict | None:
        """The one that a bundle states of a product; bundles of earlier versions have none."""
        facts = product.get("verdict")
        if facts is None:
            return None
        return cls(**{name: value for name, value in facts.items() if name != "accepted"})

    @property
    def words(self) -> str:
        """The verdict with its figure, for a person."""
        said = self.name.replace("_", " ")
        if self.value is None or self.threshold is None:
            return f"{said}: the error depends on the data"
        side = "above" if self.value > self.threshold else "below"
        if self.value == self.threshold:
            side = "not above"
        shown = f"{self.value:.3g}"
        if float(shown) == self.threshold:  # it would read as if it were not apart from it
            shown = f"{self.value:.5g}"
        return f"{said}: {self.figure} {shown}, {side} {self.threshold:g}"


def verdict(product: PlannedProduct[Any]) -> Verdict:
    """The verdict on a product, from public quantities only."""
    return judge(product.kind, product.mechanism, product.own_error, product.target)


def judge(kind: Kind, mechanism: Mechanism, error: Any, target: Target) -> Verdict:
    """The verdict on a mechanism at fixed parameters with its expected error for a product."""
    uniform: float = getattr(error, "uniform_share", 0.0)
    if uniform > MOST_UNIFORM:
        return Verdict(
            name="mostly_noise",
            figure="share of records that are uniform",
            value=uniform,
            threshold=MOST_UNIFORM,
        )
    figure = kind.noise_figure(mechanism, error, target)
    if figure is not None and figure.value > MOST_NOISE:
        return Verdict(
            name="mostly_noise", figure=figure.words, value=figure.value, threshold=MOST_NOISE
        )
    sd = kind.largest_noise(error)
    if sd is not None and sd < LEAST_NOISE:
        return Verdict(
            name="nearly_disclosed",
            figure="expected noise of every count, in records,",
            value=sd,
            threshold=LEAST_NOISE,
        )
    least: float | None = getattr(error, "least_association", None)
    if least is not None and least > TYPICAL_ASSOCIATION:
        return Verdict(
            name="mostly_independent",
            figure="weakest relation of which the records keep half, as Cramér's V,",
            value=least,
            threshold=TYPICAL_ASSOCIATION,
        )
    if figure is None:
        return Verdict(name="not_known")
    return Verdict(name="usable", figure=figure.words, value=figure.value, threshold=MOST_NOISE)


def release_verdict(plan: Plan) -> Verdict | None:
    """That the whole release is nearly disclosed; None if its epsilon is not that large."""
    epsilon = float(plan.epsilon)
    if epsilon <= MOST_EPSILON:
        return None
    return Verdict(
        name="nearly_disclosed",
        figure="epsilon",
        value=epsilon,
        threshold=MOST_EPSILON,
    )


def disclosures(plan: Plan) -> list[str]:
    """Warnings that the release nearly discloses its table, in words; mostly there are none."""
    found = []
    whole = release_verdict(plan)
    if whole is not None:
        found.append(
            f"The release nearly discloses the records: epsilon {whole.value:.4g} is "
            f"above {MOST_EPSILON}."
        )
    for product in plan.products:
        each = verdict(product)
        if each.name == "nearly_disclosed":
            found.append(
                f"'{product.name}' nearly discloses its table: the noise of every count "
                f"is expected to be {each.value:.2g} records, below {LEAST_NOISE:g}."
            )
    return found
