"""Dividing a budget, calibrating mechanisms to it, and choosing among them.

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

**Meeting it.** One product is calibrated to the budget itself, and so are products that need no
delta, each to its part of epsilon. Several at (epsilon, delta) are calibrated to their shares of a
Rényi divergence, which are scaled together until the composed loss just meets the budget. The scale
is a guess improved a few times; the last composition is the proof.

**Choosing**, before any data is read. Each mechanism that serves the kind of product is calibrated,
with its defaults, to the same target; the expected errors follow from public quantities, so
choosing costs no privacy. A mechanism whose estimates are biased is never chosen: its error depends
on the data.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from statpress.mechanisms.accounting.balls import double_below
from statpress.mechanisms.accounting.composition import compose_quickly
from statpress.mechanisms.accounting.losses import GaussianLoss, PrivacyLoss
from statpress.mechanisms.domain.domain import Adjacency
from statpress.mechanisms.errors import ConfigError, InfeasibleBudgetError, StatpressError
from statpress.mechanisms.mechanism import ExpectedError, Kind, Mechanism, Target
from statpress.mechanisms.planning.charges import EXACT, charged, exact_sum
from statpress.mechanisms.registry import mechanism_named, serving

if TYPE_CHECKING:
    pass

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


def losses_of(mechanisms: Sequence[Mechanism], parts: Sequence[Part]) -> list[PrivacyLoss]:
    """Each mechanism's loss on its product's table."""
    return [
        mechanism.loss(**part.table.frame)
        for mechanism, part in zip(mechanisms, parts, strict=True)
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
        open_share: Whether the config leaves the share open, so that others may serve better.
    """

    name: str
    kind: Kind
    mechanism: str
    knobs: Any
    columns: tuple[str, ...]
    share: Decimal
    further: Any = None
    open_share: bool = False


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
    pure = all(mechanism_named(request.mechanism).pure for request in requests)
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
        with of_product(request.name):
            mechanism = mechanism_named(request.mechanism)
            _check_needs(mechanism, target)
            found.append(calibrated(mechanism, request.knobs, target))
    return tuple(found)


@contextmanager
def of_product(name: str) -> Iterator[None]:
    """Let errors of the config or the budget name the product, before the key that they name."""
    try:
        yield
    except (ConfigError, InfeasibleBudgetError) as error:
        error.where = ".".join(filter(None, (name, error.where)))
        raise


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
        _check_needs(mechanism, target)
        made = make(knobs, target) if make else calibrated(mechanism, knobs, target)
        if reason := kind.objection(made, target):
            return Candidate(name=label, reason=reason)
        error = kind.expected_error(made, target)
    except StatpressError as problem:
        budget = isinstance(problem, InfeasibleBudgetError) and not mechanism.pure
        lacking = budget and target.rho is None and not target.delta
        return Candidate(name=label, reason=problem.what, needs_delta=lacking)
    return Candidate(name=label, knobs=knobs, mechanism=made, expected_error=error)


def _check_needs(mechanism: type[Mechanism], target: Target) -> None:
    """Refuse a product whose joint table is needed and has too many cells."""
    if mechanism.needs == "joint" and target.domain is not None:
        target.domain.check_joint()
