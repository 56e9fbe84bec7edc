"""Choosing a mechanism by its expected error, before any data is read.

Each mechanism that serves the kind of product is calibrated, with its defaults, to the same
target; the expected errors follow from public quantities, so choosing costs no privacy. A
mechanism whose estimates are biased is never chosen: its error depends on the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mechanisms.base.kind import ExpectedError, Kind
from mechanisms.base.mechanism import Mechanism, Target
from mechanisms.errors import ConfigError, InfeasibleBudgetError, StatpressError
from mechanisms.planning.calibration import ProductRequest
from mechanisms.planning.count_domains import check_needs
from mechanisms.planning.registry import REGISTRY, serving

AUTO = "auto"
"""Where a config leaves the mechanism open."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What one mechanism could do for a product.

    Attributes:
        name: Label of the mechanism, which may name more than its class.
        knobs: Its knobs.
        mechanism: At fixed parameters; None if it cannot serve.
        expected_error: From public quantities only; None if it cannot serve.
        reason: Why it cannot.
        needs_delta: Whether that is because the budget has no delta.
    """

    name: str
    knobs: Any = None
    mechanism: Mechanism | None = None
    expected_error: ExpectedError | None = None
    reason: str = ""
    needs_delta: bool = False

    def error(self, criterion: str) -> float:
        """The figure that decides; infinite if the mechanism cannot serve."""
        if self.expected_error is None:
            return math.inf
        return self.expected_error.deciding(criterion)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A mechanism chosen, and what it was compared with.

    Attributes:
        mechanism: Name of the best.
        minimise: The criterion.
        candidates: All that serve the kind, best first.
    """

    mechanism: str
    minimise: str
    candidates: tuple[Candidate, ...]

    @property
    def knobs(self) -> Any:
        """Those of the best."""
        return self.candidates[0].knobs

    @property
    def least(self) -> float:
        """The expected error of the best."""
        return self.candidates[0].error(self.minimise)

    def reason(self) -> str:
        """Why, in a sentence."""
        best, *others = self.candidates
        words = self.minimise.replace("_", " ")
        said = f"least expected {words}, {best.error(self.minimise):.4g}"
        able = [c for c in others if c.expected_error is not None]
        if able:
            said += f"; next is {able[0].name} with {able[0].error(self.minimise):.4g}"
        return said


def compare(
    kind: Kind, knobs: Any, target: Target, pure_target: Target | None = None
) -> tuple[Candidate, ...]:
    """Everything that serves a kind of product, calibrated with its defaults.

    Args:
        kind: Of the product.
        knobs: What the config says of the product.
        target: What it may spend.
        pure_target: What a mechanism without delta may spend, where that is another budget.
    """
    return tuple(
        _candidate(kind, *variant, pure_target if variant[1].pure and pure_target else target)
        for variant in kind.variants(knobs, serving(kind))
    )


def choose(kind: Kind, knobs: Any, target: Target, pure_target: Target | None = None) -> Choice:
    """The mechanism with the least expected error.

    Args:
        kind: Of the product.
        knobs: What the config says of the product.
        target: What it may spend.
        pure_target: As for ``compare``.

    Raises:
        ConfigError: No mechanism can serve these columns.
        InfeasibleBudgetError: None can serve at this budget.
    """
    kind.check(knobs, target)
    minimise = kind.criterion(knobs)
    found = sorted(
        compare(kind, knobs, target, pure_target),
        key=lambda candidate: (candidate.mechanism is None, candidate.error(minimise)),
    )
    if not found or found[0].mechanism is None:
        if lacking := [f"'{each.name}'" for each in found if each.needs_delta]:
            raise InfeasibleBudgetError(
                f"No mechanism can serve this product without a delta above 0, which"
                f" {', '.join(lacking)} would need.",
                next_step="Give a delta above 0.",
            )
        named: dict[str, list[str]] = {}
        for candidate in found:
            named.setdefault(candidate.reason, []).append(candidate.name)
        reasons = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in named.items())
        raise InfeasibleBudgetError(f"No mechanism can serve this product ({reasons}).")
    return Choice(mechanism=found[0].mechanism.name, minimise=minimise, candidates=tuple(found))


def choose_open(
    requests: Sequence[ProductRequest], asked: Sequence[Target], pure: Sequence[Target | None]
) -> list[Choice | None]:
    """The choices where requests leave the mechanism open, else None.

    A mechanism that needs no delta divides epsilon if no other product needs delta. So it is
    taken at that target if the product is alone, and among several products if all can do
    without delta and none is worse for it.
    """
    alone = pure if len(asked) == 1 else [None] * len(asked)
    found = [_choose(*entry) for entry in zip(requests, asked, alone, strict=True)]
    if len(asked) > 1 and None not in pure:
        found = _without_delta(requests, pure, found)
    return found


def _choose(request: ProductRequest, target: Target | None, pure: Target | None) -> Choice | None:
    if request.mechanism != AUTO or target is None:
        return None
    try:
        return choose(request.kind, request.knobs, target, pure)
    except (ConfigError, InfeasibleBudgetError) as error:
        error.where = request.name
        raise


def _without_delta(
    requests: Sequence[ProductRequest],
    pure: Sequence[Target | None],
    found: list[Choice | None],
) -> list[Choice | None]:
    """The choices if no product may need delta, where all can do so and none is worse for it.

    The first product that cannot, or is, ends the search: mostly that is the first of all.
    """
    named = (each.mechanism for each in requests if each.mechanism != AUTO)
    if not all(REGISTRY[name].pure for name in named):
        return found
    second: list[Choice | None] = []
    for request, target, one in zip(requests, pure, found, strict=True):
        try:
            two = _choose(request, target, None)
        except InfeasibleBudgetError:
            return found
        worse = one is not None and two is not None and two.least > one.least
        if worse or (two is not None and not REGISTRY[two.mechanism].pure):
            return found
        second.append(two)
    return second


def _candidate(
    kind: Kind, label: str, mechanism: type[Mechanism], knobs: Any, target: Target
) -> Candidate:
    try:
        check_needs(mechanism, target)
        calibrated = mechanism.calibrate(knobs, target)
        if reason := kind.objection(calibrated, target):
            return Candidate(name=label, reason=reason)
        error = kind.expected_error(calibrated, target)
    except StatpressError as problem:
        budget = isinstance(problem, InfeasibleBudgetError) and not mechanism.pure
        lacking = budget and target.rho is None and not target.delta
        return Candidate(name=label, reason=problem.what, needs_delta=lacking)
    return Candidate(name=label, knobs=knobs, mechanism=calibrated, expected_error=error)
