"""Choosing a mechanism by its expected error, before any data is read.

Each mechanism that serves the kind of product is calibrated, with its defaults, to the same
target; the expected errors follow from public quantities, so choosing costs no privacy. A
mechanism whose estimates are biased is never chosen: its error depends on the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from mechanisms.base.mechanism import Mechanism, Target
from mechanisms.errors import ConfigError, InfeasibleBudgetError, StatpressError
from mechanisms.estimates.knobs import EstimandKnobs
from mechanisms.estimates.mechanism import ExpectedInterval, estimand_for
from mechanisms.functions.bernstein_release import ExpectedFunction, FunctionRelease
from mechanisms.functions.knobs import FunctionKnobs
from mechanisms.planning.calibration import ProductRequest
from mechanisms.planning.registry import REGISTRY
from mechanisms.tables.expected_error import ExpectedError
from mechanisms.tables.mechanism import table_mechanism

AUTO = "auto"
"""Where a config leaves the mechanism open."""

Criterion = Literal["total_variation", "kolmogorov_smirnov", "cell_sd"]
WIDTH = "interval_width"
"""What decides between mechanisms for an estimate."""
LARGEST_ERROR = "largest_error"
"""What decides between kinds of noise for a function."""


@dataclass(frozen=True, kw_only=True)
class AutoKnobs:
    """What a config may say where it leaves the mechanism open.

    Attributes:
        minimise: The expected error that decides: ``total_variation`` of the projected
            counts, ``kolmogorov_smirnov`` for ordered cells, or ``cell_sd``, the
            standard deviation of an average cell's estimate.
    """

    minimise: Criterion = "total_variation"


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What one mechanism could do for a product.

    Attributes:
        name: Of the mechanism.
        mechanism: At fixed parameters; None if it cannot serve.
        expected_error: From public quantities alone; None if it cannot serve.
        reason: Why it cannot.
    """

    name: str
    mechanism: Mechanism | None = None
    expected_error: ExpectedError | ExpectedInterval | ExpectedFunction | None = None
    reason: str = ""

    def error(self, criterion: str) -> float:
        """The figure that decides; infinite if the mechanism cannot serve."""
        if self.expected_error is None:
            return math.inf
        if isinstance(self.expected_error, ExpectedInterval):
            width = self.expected_error.width[-1]
            return math.inf if width is None else width
        if isinstance(self.expected_error, ExpectedFunction):
            return self.expected_error.sup_error
        return {
            "total_variation": self.expected_error.projected_total_variation,
            "kolmogorov_smirnov": self.expected_error.kolmogorov_smirnov,
            "cell_sd": self.expected_error.cell_sd_average,
        }[criterion]


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
    kind: str,
    target: Target,
    pure_target: Target | None = None,
    estimand: EstimandKnobs | None = None,
) -> tuple[Candidate, ...]:
    """Every mechanism that serves a kind of product, calibrated with its defaults.

    Args:
        kind: Of the product.
        target: What it may spend.
        pure_target: What a mechanism without delta may spend, where that is another budget.
        estimand: What an estimate is of.
    """
    return tuple(
        _candidate(
            mechanism,
            _knobs(mechanism, estimand),
            pure_target if mechanism.pure and pure_target else target,
        )
        for mechanism in REGISTRY.values()
        if kind in mechanism.kinds
    )


def compare_noises(knobs: FunctionKnobs, target: Target) -> tuple[Candidate, ...]:
    """What Laplace and Gaussian noise would do for a function."""
    found = []
    for noise in ("laplace", "gaussian"):
        candidate = _candidate(FunctionRelease, replace(knobs, noise=noise), target)
        found.append(replace(candidate, name=f"{candidate.name}, {noise} noise"))
    return tuple(found)


def choose(
    kind: str,
    target: Target,
    minimise: str,
    pure_target: Target | None = None,
    estimand: EstimandKnobs | None = None,
) -> Choice:
    """The mechanism with the least expected error.

    Args:
        kind: Of the product.
        target: What it may spend.
        minimise: The error that decides.
        pure_target: As for ``compare``.
        estimand: What an estimate is of.

    Raises:
        ConfigError: The columns do not suit the statistic of an estimate.
        InfeasibleBudgetError: None can serve.
    """
    if estimand is not None:
        estimand_for(estimand, target, AUTO)
    found = sorted(
        compare(kind, target, pure_target, estimand),
        key=lambda candidate: (candidate.mechanism is None, candidate.error(minimise)),
    )
    if not found or found[0].mechanism is None:
        reasons = "; ".join(f"{candidate.name}: {candidate.reason}" for candidate in found)
        raise InfeasibleBudgetError(f"No mechanism can serve this product ({reasons}).")
    return Choice(mechanism=found[0].name, minimise=minimise, candidates=tuple(found))


def choose_open(
    requests: Sequence[ProductRequest], asked: Sequence[Target], pure: Sequence[Target | None]
) -> list[tuple[Choice | None, Any]]:
    """The mechanisms with their knobs where requests leave them open, else None.

    A mechanism that needs no delta divides epsilon if no other product needs delta. So it is
    taken at that target if the product is alone, and among several products if all can do
    without delta and none is worse for it.
    """
    alone = pure if len(asked) == 1 else [None] * len(asked)
    found = [_choose(*entry) for entry in zip(requests, asked, alone, strict=True)]
    if len(asked) > 1 and None not in pure:
        found = _without_delta(requests, pure, found)
    return [
        (choice, None if choice is None else _knobs(REGISTRY[choice.mechanism], request.knobs))
        for choice, request in zip(found, requests, strict=True)
    ]


def _choose(request: ProductRequest, target: Target | None, pure: Target | None) -> Choice | None:
    if request.mechanism != AUTO or target is None:
        return None
    try:
        if isinstance(request.knobs, EstimandKnobs):
            return choose(request.kind, target, WIDTH, pure, request.knobs)
        return choose(request.kind, target, request.knobs.minimise, pure)
    except (ConfigError, InfeasibleBudgetError) as error:
        error.where = request.name
        raise


def _without_delta(
    requests: Sequence[ProductRequest],
    pure: Sequence[Target | None],
    found: list[Choice | None],
) -> list[Choice | None]:
    """The choices if no product may need delta, where all can do so and none is worse for it."""
    try:
        second = [_choose(*pair, None) for pair in zip(requests, pure, strict=True)]
    except InfeasibleBudgetError:
        return found
    named = [
        request.mechanism if choice is None else choice.mechanism
        for request, choice in zip(requests, second, strict=True)
    ]
    better = all(
        two is None or one is None or two.least <= one.least
        for one, two in zip(found, second, strict=True)
    )
    return second if better and all(REGISTRY[name].pure for name in named) else found


def _knobs(mechanism: type[Mechanism], estimand: object) -> Any:
    """A mechanism's defaults, with what an estimate is of."""
    if not isinstance(estimand, EstimandKnobs):
        return mechanism.knobs()
    said = {each.name: getattr(estimand, each.name) for each in fields(EstimandKnobs)}
    return mechanism.knobs(**said)


def _candidate(mechanism: type[Mechanism], knobs: Any, target: Target) -> Candidate:
    try:
        calibrated = mechanism.calibrate(knobs, target)
        tables = {"table", "microdata"} & set(mechanism.kinds)
        if tables and not table_mechanism(calibrated).unbiased:
            reason = "Its estimates are biased, by an amount that depends on the data."
            return Candidate(name=mechanism.name, reason=reason)
        error = calibrated.expected_error(n_records=target.n_records, n_cells=target.n_cells)
    except StatpressError as problem:
        return Candidate(name=mechanism.name, reason=problem.what)
    return Candidate(name=mechanism.name, mechanism=calibrated, expected_error=error)
