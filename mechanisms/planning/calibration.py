"""Mechanisms that together meet a budget.

One product is calibrated to the budget itself, and so are products that need no delta, each
to its part of epsilon. Several at (epsilon, delta) are calibrated to their shares of a Rényi
divergence (mechanisms.planning.budget_split), which are scaled together until the composed loss
just meets the budget. The scale is a guess improved a few times; the last composition is the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

from mechanisms.accounting.composition import compose_quickly
from mechanisms.accounting.numerics.enclosures import double_below
from mechanisms.base.kind import Kind
from mechanisms.base.mechanism import Mechanism, Target
from mechanisms.errors import ConfigError, InfeasibleBudgetError
from mechanisms.planning.budget_split import Budget, Part, gaussian_mu, losses_of, targets
from mechanisms.planning.charges import EXACT, charged, exact_sum
from mechanisms.planning.count_domains import check_needs
from mechanisms.planning.registry import REGISTRY

_ENOUGH = 0.9  # of delta, at which the search for the scale ends
_AIM = 0.95
_ROUNDS = 12
_WORTH = Decimal("1.05")  # in epsilon, that composing pure mechanisms must gain to spend delta
_SAID = Context(prec=4, rounding=ROUND_CEILING)
_STEPS = 12
_FAR = 2.0**20  # times the budget, up to which one that would do is looked for


@dataclass(frozen=True, kw_only=True)
class ProductRequest:
    """A product as declared: name, kind, columns, mechanism with its knobs, share.

    Attributes:
        further: What is published besides, a value of ``Kind.further``; None if that says nothing.
    """

    name: str
    kind: Kind
    mechanism: str
    knobs: Any
    columns: tuple[str, ...]
    share: Decimal
    further: Any = None


def meet_budget(
    requests: Sequence[ProductRequest], parts: Sequence[Part], budget: Budget
) -> tuple[tuple[Mechanism, ...], Decimal]:
    """Calibrated mechanisms, and the delta that they are charged.

    Args:
        requests: Products whose mechanisms are named.
        parts: The same products' shares and public quantities.
        budget: Of the release.

    Raises:
        InfeasibleBudgetError: A product's knobs do not fit its part.
    """
    pure = all(REGISTRY[request.mechanism].pure for request in requests)
    try:
        return _meeting(requests, parts, budget, pure)
    except InfeasibleBudgetError as error:
        if least := _least_budget(requests, parts, budget, pure):
            error.what += f" The smallest {least[0]} that would do is about {least[1]}."
        raise


def _meeting(
    requests: Sequence[ProductRequest], parts: Sequence[Part], budget: Budget, pure: bool
) -> tuple[tuple[Mechanism, ...], Decimal]:
    if budget.rho is not None:
        return _calibrated(requests, targets(budget, parts)), budget.delta
    if not budget.delta or (pure and len(parts) == 1):
        return _calibrated(requests, targets(budget, parts, pure=True)), Decimal(0)
    if len(parts) == 1:
        return _calibrated(requests, targets(budget, parts)), budget.delta
    try:
        found = _fitted(
            budget,
            parts,
            lambda scale: _calibrated(requests, targets(budget, parts, scale=scale)),
        )
    except InfeasibleBudgetError:
        if pure:
            return _calibrated(requests, targets(budget, parts, pure=True)), Decimal(0)
        return _calibrated(requests, targets(budget, parts, added=True)), budget.delta
    if pure and budget.epsilon is not None:
        alone = (loss.pure_epsilon.upper for loss in losses_of(found, parts))
        if exact_sum(charged(epsilon) for epsilon in alone) <= EXACT.multiply(
            budget.epsilon, _WORTH
        ):
            return _calibrated(requests, targets(budget, parts, pure=True)), Decimal(0)
    return found, budget.delta


def _calibrated(
    requests: Sequence[ProductRequest], asked: Sequence[Target]
) -> tuple[Mechanism, ...]:
    """The products' mechanisms; an error names the product."""
    found = []
    for request, target in zip(requests, asked, strict=True):
        try:
            mechanism = REGISTRY[request.mechanism]
            check_needs(mechanism, target)
            found.append(mechanism.calibrate(request.knobs, target))
        except (ConfigError, InfeasibleBudgetError) as error:
            error.where = request.name
            raise
    return tuple(found)


def _least_budget(
    requests: Sequence[ProductRequest], parts: Sequence[Part], budget: Budget, pure: bool
) -> tuple[str, Decimal] | None:
    """The smallest epsilon or rho that would do at the same delta, to about a hundredth."""
    measure = "epsilon" if budget.rho is None else "rho"

    def scaled(factor: float) -> Budget:
        amount = EXACT.multiply(getattr(budget, measure), Decimal(factor))
        return replace(budget, **{measure: _SAID.create_decimal(amount)})

    def fits(factor: float) -> bool:
        """Whether each product fits its part, divided in either way."""
        larger = scaled(factor)
        added, composed = (targets(larger, parts, added=added) for added in (True, False))
        return _succeeds(_calibrated, requests, added) or _succeeds(_calibrated, requests, composed)

    low, high = 1.0, 2.0
    while not fits(high):
        low, high = high, 4 * high
        if high > _FAR:
            return None
    while high / low > 1.002:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if fits(middle) else (middle, high)
    for _ in range(_STEPS):  # what composing adds
        if _succeeds(_meeting, requests, parts, scaled(high), pure):
            return measure, getattr(scaled(high), measure)
        high *= 1.005
    return None


def _fitted(
    budget: Budget, parts: Sequence[Part], calibrate: Callable[[float], Sequence[Mechanism]]
) -> tuple[Mechanism, ...]:
    """Mechanisms of several products that together just meet epsilon at delta > 0."""
    assert budget.epsilon is not None and budget.delta
    epsilon, delta = double_below(budget.epsilon), double_below(budget.delta)
    aim = gaussian_mu(epsilon, _AIM * delta)
    scale, low, high = 1.0, 0.0, float("inf")
    found: tuple[Mechanism, ...] | None = None
    tried: tuple[Mechanism, ...] | None = None
    for _ in range(_ROUNDS):
        mechanisms = tuple(calibrate(scale))
        if mechanisms == tried:
            break  # nothing is left to scale
        tried = mechanisms
        spent = compose_quickly(losses_of(mechanisms, parts)).delta(epsilon).upper
        if spent <= delta:
            found, low = mechanisms, scale
            if spent >= _ENOUGH * delta:
                break
        else:
            high = scale
        guess = scale * min(aim / gaussian_mu(epsilon, spent), 2.0) if spent else 1.4 * scale
        scale = guess if low < guess < high else (low + min(high, 2 * low + 1)) / 2
    if found is None:
        raise InfeasibleBudgetError(
            "The products' fixed parameters pass the budget together.",
            next_step="Raise the budget, or leave out parameters of a product.",
        )
    return found


def _succeeds(attempt: Callable[..., object], *arguments: object) -> bool:
    try:
        attempt(*arguments)
    except InfeasibleBudgetError:
        return False
    return True
