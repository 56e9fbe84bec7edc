"""Dividing a budget, calibrating a mechanism to a part of it, and choosing among mechanisms.

**Dividing.** All parameters of a release are fixed before any data is read, so the losses of its
products compose (mechanisms.accounting.composition), and n products cost far less than their
epsilons added up. What is divided has to add up all the same, and it does in these currencies:

* **a budget of rho**: zero-concentrated privacy adds up, so a share of rho is a target of its own
  (Bun and Steinke 2016, arXiv 1605.02065, Lemma 2.3), and so does the delta but for which it
  holds (their section 8);
* **one product, or a budget without delta**: a share of epsilon, at delta or at 0; and so
  where parameters that are fixed fit no other division, a share of each;
* **several products at (epsilon, delta)**: a share of the Rényi divergence of one order a,
  which adds up too (Mironov 2017, Proposition 1). The order is the one that matters at
  (epsilon, delta): the least of the bound (a - 1)(a mu^2/2 - epsilon) on log delta, for the
  Gaussian mu of the budget, is at a = 1/2 + epsilon/mu^2. For Gaussian noise this is a share of
  mu^2, whatever the order. Of the shares, scaled by s^2 together, only the proportions matter:
  the s is sought at which the composed loss just meets (epsilon, delta).

**Choosing**, before any data is read. Each mechanism that serves the kind of product is calibrated,
with its defaults, to the same target; the expected errors follow from public quantities, so
choosing costs no privacy. A mechanism whose estimates are biased is never chosen: its error depends
on the data.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from statpress.mechanisms.accounting.balls import double_below
from statpress.mechanisms.accounting.losses import GaussianLoss
from statpress.mechanisms.domain.domain import Adjacency
from statpress.mechanisms.errors import ConfigError, InfeasibleBudgetError, StatpressError
from statpress.mechanisms.mechanism import ExpectedError, Kind, Mechanism, Target
from statpress.mechanisms.planning.charges import EXACT
from statpress.mechanisms.registry import serving

_LARGEST_MU = 64.0


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a release may cost: epsilon at delta, or rho.

    Attributes:
        delta: At least 0; with rho, where the epsilon of the release is stated.
        epsilon: Above 0, or None.
        rho: Above 0, or None; one of the two is given.
        rho_delta: The largest delta with which the rho of products may fail; by default ``delta``.
    """

    delta: Decimal
    epsilon: Decimal | None = None
    rho: Decimal | None = None
    rho_delta: Decimal | None = None

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.rho is None):
            raise ValueError("a budget is of epsilon or of rho")

    def rho_delta_of(self, share: Decimal) -> Decimal:
        """A share's part of the delta of rho, exactly."""
        return part_of(self.delta if self.rho_delta is None else self.rho_delta, share)


@dataclass(frozen=True)
class Part:
    """One product's part: its share, and the public quantities of its table.

    Attributes:
        share: Of the budget.
        table: A target of nothing, with these quantities.
    """

    share: Decimal
    table: Target


def part_of(amount: Decimal, share: Decimal) -> Decimal:
    """Share times amount, exactly."""
    return EXACT.multiply(amount, share)


def targets(
    budget: Budget,
    parts: Sequence[Part],
    *,
    scale: float = 1.0,
    pure: bool = False,
    added: bool = False,
) -> list[Target]:
    """What each product may spend.

    Args:
        budget: Of the release.
        parts: Its products; their shares add up to 1.
        scale: Multiplies epsilon, or mu; exactly nothing is lost at 1.
        pure: Leave delta aside.
        added: Divide epsilon and delta, whose sums bound any composition.
    """
    delta = Decimal(0) if pure else budget.delta
    factor = Decimal(scale)
    if budget.rho is not None:
        rhos = [EXACT.multiply(part_of(budget.rho, part.share), factor**2) for part in parts]
        return [
            replace(
                _gaussian_target(part, 2 * float(rho), delta),
                rho=double_below(rho),
                rho_delta=double_below(budget.rho_delta_of(part.share)),
            )
            for rho, part in zip(rhos, parts, strict=True)
        ]
    assert budget.epsilon is not None
    if added or len(parts) == 1 or not delta:
        return [
            replace(
                part.table,
                epsilon=double_below(EXACT.multiply(part_of(budget.epsilon, part.share), factor)),
                delta=double_below(part_of(delta, part.share)),
            )
            for part in parts
        ]
    mu = gaussian_mu(float(budget.epsilon), float(delta))
    order = max(2, round(0.5 + float(budget.epsilon) / mu**2))
    squares = [(scale * mu) ** 2 * float(part.share) for part in parts]
    return [
        replace(_gaussian_target(part, square, delta), renyi=(order, order * square / 2))
        for square, part in zip(squares, parts, strict=True)
    ]


@functools.lru_cache(maxsize=256)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """About the mu of the Gaussian loss with this delta at this epsilon; a guide, not a bound."""
    low, high = 0.0, _LARGEST_MU
    for _ in range(60):
        middle = (low + high) / 2
        if GaussianLoss(Fraction(middle)).delta(epsilon).upper > delta:
            high = middle
        else:
            low = middle
        if high - low <= 1e-9 * high:
            break
    return high


def _gaussian_target(part: Part, mu_squared: float, delta: Decimal) -> Target:
    """The target with the (epsilon, delta) of the Gaussian loss, at the product's part of delta."""
    own = double_below(part_of(delta, part.share))
    epsilon = _epsilon(mu_squared, own) if own else mu_squared / 2
    return replace(part.table, epsilon=epsilon, delta=own)


@functools.lru_cache(maxsize=256)
def _epsilon(mu_squared: float, delta: float) -> float:
    """Epsilon of the Gaussian loss, found once for all products of one share."""
    return GaussianLoss(Fraction(mu_squared**0.5)).epsilon(delta).upper


@dataclass(frozen=True, kw_only=True)
class ProductRequest:
    """A product as declared: name, kind, columns, mechanism with its knobs, share.

    Attributes:
        further: What is published besides, a value of ``Kind.further``; None if that says nothing.
        open_share: Whether the config leaves the share open, so that others may serve better.
        accepted: Verdicts that the config accepts.
    """

    name: str
    kind: Kind
    mechanism: str
    knobs: Any
    columns: tuple[str, ...]
    share: Decimal
    further: Any = None
    open_share: bool = False
    accepted: tuple[str, ...] = ()


def calibrated(mechanism: type[Mechanism], knobs: Any, target: Target) -> Mechanism:
    """A mechanism calibrated to a target, once for all that ask for the same.

    What a config names as ``module:name`` is calibrated each time: such objects are equal by name.
    """
    check_adjacency(mechanism, target)
    if getattr(knobs, "function", None) is None:
        try:
            return _calibrated_once(mechanism, knobs, target)
        except TypeError:  # knobs that cannot be hashed
            pass
    return mechanism.calibrate(knobs, target)


def check_adjacency(mechanism: type[Mechanism], target: Target) -> None:
    """Refuse a mechanism whose loss is not proven for the neighbouring relation.

    Raises:
        ConfigError: It is not among its ``adjacencies``.
    """
    if target.adjacency in getattr(mechanism, "adjacencies", (Adjacency.REPLACE_ONE,)):
        return
    raise ConfigError(
        f"The mechanism '{mechanism.name}' serves only {Adjacency.REPLACE_ONE}: it needs the exact "
        "number of records, which is private here.",
        next_step="Under add_remove use 'marginals' for microdata and 'gaussian' or 'laplace' for "
        "tables, 'joint_moments' for means, proportions, sums and counts, and ask a bundle of "
        "'marginals' for other figures with 'statpress query'.",
    )


@functools.lru_cache(maxsize=256)
def _calibrated_once(mechanism: type[Mechanism], knobs: Any, target: Target) -> Mechanism:
    return mechanism.calibrate(knobs, target)


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


_SKETCHED = 0.999
"""Of the error of a sketch, what the mechanism's own is never below."""


def _contenders(
    kind: Kind, knobs: Any, target: Target, pure_target: Target | None
) -> list[Candidate]:
    """The candidates, but those that need long and of which a sketch says that another is better.

    A sketch is a mechanism whose noise is not proven yet, and proving only adds to it.
    """
    minimise, found, sketched = kind.criterion(knobs), [], []
    for label, mechanism, own in kind.variants(knobs, serving(kind)):
        part = pure_target if mechanism.pure and pure_target else target
        if (sketch := getattr(mechanism, "sketch", None)) is None:
            found.append(_candidate(kind, label, mechanism, own, part))
        else:
            sketched.append((sketch, (kind, label, mechanism, own, part)))
    least = min((each.error(minimise) for each in found), default=math.inf)
    for sketch, variant in sketched:
        if not _SKETCHED * _candidate(*variant, make=sketch).error(minimise) > least:
            found.append(_candidate(*variant))
    return found


def choose(
    kind: Kind,
    knobs: Any,
    target: Target,
    pure_target: Target | None = None,
    *,
    briefly: bool = False,
) -> Choice:
    """The mechanism with the least expected error.

    Args:
        kind: Of the product.
        knobs: What the config says of the product.
        target: What it may spend.
        pure_target: As for ``compare``.
        briefly: Only the best is asked for, so that not all need be among the candidates.

    Raises:
        ConfigError: No mechanism can serve these columns.
        InfeasibleBudgetError: None can serve at this budget.
    """
    kind.check(knobs, target)
    minimise = kind.criterion(knobs)
    found = sorted(
        (_contenders if briefly else compare)(kind, knobs, target, pure_target),
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


def _candidate(
    kind: Kind,
    label: str,
    mechanism: type[Mechanism],
    knobs: Any,
    target: Target,
    make: Callable[[Any, Target], Mechanism] | None = None,
) -> Candidate:
    try:
        check_needs(mechanism, target)
        made = make(knobs, target) if make else calibrated(mechanism, knobs, target)
        if reason := kind.objection(made, target):
            return Candidate(name=label, reason=reason)
        error = kind.expected_error(made, target)
    except StatpressError as problem:
        budget = isinstance(problem, InfeasibleBudgetError) and not mechanism.pure
        lacking = budget and target.rho is None and not target.delta
        return Candidate(name=label, reason=problem.what, needs_delta=lacking)
    return Candidate(name=label, knobs=knobs, mechanism=made, expected_error=error)


def check_needs(mechanism: type[Mechanism], target: Target) -> None:
    """Refuse a product whose joint table is needed and has too many cells."""
    if mechanism.needs == "joint" and target.domain is not None:
        target.domain.check_joint()
