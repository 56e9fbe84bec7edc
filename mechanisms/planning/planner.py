"""From a budget to fixed mechanism parameters, and what other budgets would buy.

Inside one release all parameters are fixed by the config, so the products' losses compose:
their shares become parameters such that the composed loss just meets the budget
(mechanisms.planning.choice), and what is charged is what composition proves. The rho of
zero-concentrated privacy comes along, for accounts kept in that measure.

**Meeting it.** One product is calibrated to the budget itself, and so are products that need no
delta, each to its part of epsilon. Several at (epsilon, delta) are calibrated to their shares of a
Rényi divergence, which are scaled together until the composed loss just meets the budget. The scale
is a guess improved a few times; the last composition is the proof.

An ``Offer`` is the release at a multiple of its budget: what each product's expected error would be
for less or more. Everything here follows from the config only, so it can be looked at before
anything is paid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

from statpress.mechanisms.accounting.balls import double_below
from statpress.mechanisms.accounting.composition import compose_quickly
from statpress.mechanisms.accounting.losses import PrivacyLoss
from statpress.mechanisms.domain.columns import Total
from statpress.mechanisms.domain.domain import MAX_CELLS, Adjacency, Domain, Privacy, parts_of
from statpress.mechanisms.errors import (
    ConfigError,
    InfeasibleBudgetError,
    RecordsError,
    StatpressError,
)
from statpress.mechanisms.mechanism import Mechanism, Target
from statpress.mechanisms.planning.charges import EXACT, charged, exact_sum
from statpress.mechanisms.planning.choice import (
    AUTO,
    Budget,
    Choice,
    Part,
    ProductRequest,
    calibrated,
    check_needs,
    choose,
    gaussian_mu,
    part_of,
    targets,
)
from statpress.mechanisms.planning.plan import Division, Plan, PlannedProduct, judge
from statpress.mechanisms.planning.shares import UNREADABLE, WORTH, Way, with_shares
from statpress.mechanisms.registry import mechanism_named

_Needed = tuple[Mechanism, Domain]
"""A mechanism and the domain of its product."""


_MOST_SHARED = 2**42  # parts of all units, of which sums are exact in 64 bits
_ROUNDS = 4  # of finding shares, as long as other mechanisms are the best at them
_SMALL_TABLE = 1 << 20
"""Cells of a joint table that products always share."""


def plan_release(
    products: Sequence[ProductRequest],
    *,
    domain: Domain,
    privacy: Privacy,
    budget: Budget,
    gate: ProductRequest | None = None,
    briefly: bool = False,
) -> Plan:
    """Fix every product's parameters so that together they meet the budget.

    Args:
        products: At least one; their shares, with that of the gate, add up to 1. Of those that are
            open, others may be found (``mechanisms.planning.shares``).
        domain: The declared domain.
        privacy: Frame of reference of the guarantee.
        budget: Of the release.
        gate: The noisy checks of the input, as a product of its own; None if they are exact.
        briefly: Only what the plan comes to is asked for, not what choices were between.

    Raises:
        ConfigError: A product has only one cell, or a mechanism cannot serve it.
        DomainTooLargeError: A mechanism needs the joint table of a product that has none.
        InfeasibleBudgetError: A product's knobs do not fit its part.
    """
    requests = (*products, gate) if gate is not None else tuple(products)
    domains = [_counted(request, domain.project(request.columns)) for request in requests]
    for request, own in zip(requests, domains, strict=True):
        if own.n_possible == 1 and privacy.adjacency is Adjacency.REPLACE_ONE:
            raise ConfigError(
                "This product has a single cell, whose count is the public number of records.",
                where=request.name,
                next_step="Give it a column with at least two cells, or leave it out.",
            )
    tables = [
        Target(
            n_records=privacy.counting(own).n_records,
            n_cells=own.n_possible,
            unit_records=privacy.counting(own).unit_records,
            # One zero less and the absent cell more would make up for each other.
            shape=(0,) if own.zeros or own.absent else tuple(c.size for c in own.columns),
            domain=own,
            adjacency=privacy.adjacency,
            expected_records=privacy.counting(own).expected_records,
        )
        for own in domains
    ]
    met, division = _divided(requests, tables, budget, briefly)
    requests, choices, asked, mechanisms = met.requests, met.choices, met.asked, met.mechanisms
    delta, losses = met.delta, _losses_of(mechanisms, met.parts)
    domains = [
        _shared(own, mechanism, privacy) for own, mechanism in zip(domains, mechanisms, strict=True)
    ]
    planned = tuple(
        _product(request, own, choice, target, mechanism, loss, budget, delta)
        for request, own, choice, target, mechanism, loss in zip(
            requests, domains, choices, asked, mechanisms, losses, strict=True
        )
    )
    if len(planned) == 1:
        planned = (replace(planned[0], pure_target=met.pure_asked[0]),)
    released = planned[: len(products)]
    _check_further(released, briefly)
    needed = [(product.mechanism, product.domain) for product in released]
    used = {name for _, own in needed for name in own.names}
    whole = compose_quickly(losses)
    return Plan(
        privacy=privacy,
        domain=_some(domain, used),
        products=released,
        epsilon=_charge(whole, planned, budget, delta),
        delta=delta,
        loss=whole,
        joint=_joint_domains(domain, needed, privacy.n_records),
        coded=_coded_domain(domain, needed),
        budget=budget,
        gate=None if gate is None else planned[-1],
        division=division,
    )


def _losses_of(mechanisms: Sequence[Mechanism], parts: Sequence[Part]) -> list[PrivacyLoss]:
    """Each mechanism's loss on its product's table."""
    return [
        mechanism.loss(**part.table.frame)
        for mechanism, part in zip(mechanisms, parts, strict=True)
    ]


_ENOUGH = 0.9  # of delta, at which the search for the scale ends
_AIM = 0.95
_GUESSES = 12
_WORTH = Decimal("1.05")  # in epsilon, that composing pure mechanisms must gain to spend delta
_SAID = Context(prec=4, rounding=ROUND_CEILING)
_STEPS = 12
_FAR = 2.0**20  # times the budget, up to which one that would do is looked for


def _meet_budget(
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
        alone = (loss.pure_epsilon.upper for loss in _losses_of(found, parts))
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
        with _of_product(request.name):
            mechanism = mechanism_named(request.mechanism)
            check_needs(mechanism, target)
            found.append(calibrated(mechanism, request.knobs, target))
    return tuple(found)


@contextmanager
def _of_product(name: str) -> Iterator[None]:
    """Let errors of the config or the budget name the product, before the key that they name."""
    try:
        yield
    except (ConfigError, InfeasibleBudgetError) as error:
        error.where = ".".join(filter(None, (name, error.where)))
        raise


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
    for _ in range(_GUESSES):
        mechanisms = tuple(calibrate(scale))
        if mechanisms == tried:
            break  # nothing is left to scale
        tried = mechanisms
        spent = compose_quickly(_losses_of(mechanisms, parts)).delta(epsilon).upper
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


@dataclass(frozen=True, kw_only=True)
class _Met:
    """Products whose mechanisms together meet the budget, with what they were asked for."""

    requests: tuple[ProductRequest, ...]
    parts: list[Part]
    asked: Sequence[Target]
    pure_asked: Sequence[Target | None]
    choices: Sequence[Choice | None]
    mechanisms: tuple[Mechanism, ...]
    delta: Decimal

    def mean_error(self, criteria: Mapping[int, str]) -> float:
        """Geometric mean of the expected errors of some products, as far as they are known.

        Args:
            criteria: What decides, by the product's place.
        """
        logarithms = []
        for i, first in criteria.items():
            kind = self.requests[i].kind
            error = kind.expected_error(self.mechanisms[i], self.asked[i])
            figure = error.deciding(kind.judged_by(first, error))
            if 0 < figure < math.inf:
                logarithms.append(math.log(figure))
        return math.exp(math.fsum(logarithms) / max(len(logarithms), 1))

    def unreadable(self) -> set[str]:
        """The products of which readers have nothing."""
        found = set()
        for request, mechanism, target in zip(
            self.requests, self.mechanisms, self.asked, strict=True
        ):
            error = request.kind.expected_error(mechanism, target)
            if judge(request.kind, mechanism, error, target).name in UNREADABLE:
                found.add(request.name)
        return found


def _met(
    requests: Sequence[ProductRequest], tables: Sequence[Target], budget: Budget, briefly: bool
) -> _Met:
    """Choose, and calibrate to the shares as they are."""
    parts = [Part(each.share, table) for each, table in zip(requests, tables, strict=True)]
    asked, pure_asked = targets(budget, parts), _pure_targets(budget, parts)
    choices = choose_open(requests, asked, pure_asked, briefly=briefly)
    chosen = tuple(
        request
        if choice is None
        else replace(request, mechanism=choice.mechanism, knobs=choice.knobs)
        for request, choice in zip(requests, choices, strict=True)
    )
    mechanisms, delta = _meet_budget(chosen, parts, budget)
    return _Met(
        requests=chosen,
        parts=parts,
        asked=asked,
        pure_asked=pure_asked,
        choices=choices,
        mechanisms=mechanisms,
        delta=delta,
    )


def choose_open(
    requests: Sequence[ProductRequest],
    asked: Sequence[Target],
    pure: Sequence[Target | None],
    *,
    briefly: bool = False,
) -> list[Choice | None]:
    """The choices where requests leave the mechanism open, else None.

    A mechanism that needs no delta divides epsilon if no other product needs delta. So it is
    taken at that target if the product is alone, and among several products if all can do
    without delta and none is worse for it.
    """
    alone = pure if len(asked) == 1 else [None] * len(asked)
    found = [_choose(*entry, briefly) for entry in zip(requests, asked, alone, strict=True)]
    if len(asked) > 1 and None not in pure:
        found = _without_delta(requests, pure, found, briefly)
    return found


def _choose(
    request: ProductRequest, target: Target | None, pure: Target | None, briefly: bool
) -> Choice | None:
    if request.mechanism != AUTO or target is None:
        return None
    with _of_product(request.name):
        return choose(request.kind, request.knobs, target, pure, briefly=briefly)


def _without_delta(
    requests: Sequence[ProductRequest],
    pure: Sequence[Target | None],
    found: list[Choice | None],
    briefly: bool,
) -> list[Choice | None]:
    """The choices if no product may need delta, where all can do so and none is worse for it.

    The first product that cannot, or is, ends the search: mostly that is the first of all.
    """
    named = (each.mechanism for each in requests if each.mechanism != AUTO)
    if not all(mechanism_named(name).pure for name in named):
        return found
    second: list[Choice | None] = []
    for request, target, one in zip(requests, pure, found, strict=True):
        try:
            two = _choose(request, target, None, briefly)
        except InfeasibleBudgetError:
            return found
        worse = one is not None and two is not None and two.least > one.least
        if worse or (two is not None and not mechanism_named(two.mechanism).pure):
            return found
        second.append(two)
    return second


def _divided(
    requests: Sequence[ProductRequest], tables: Sequence[Target], budget: Budget, briefly: bool
) -> tuple[_Met, Division | None]:
    """The products at the shares that serve best, where theirs are open, and what that gains."""
    places = [i for i, each in enumerate(requests) if each.open_share]
    if len(places) < 2:
        return _met(requests, tables, budget, briefly), None
    names = tuple(requests[i].name for i in places)
    try:
        equal = _met(requests, tables, budget, briefly=True)
    except InfeasibleBudgetError:
        equal = None
    criteria = {i: requests[i].kind.criterion(requests[i].knobs) for i in places}
    ways = {} if equal is None else {i: [_way(equal.requests[i])] for i in places}
    found = None
    for pure in (False, True):
        if not pure or (equal is not None and _may_be_pure(equal.requests, budget)):
            other = _found(requests, tables, budget, ways, briefly=briefly, pure=pure)
            if found is None or (
                other is not None and other.mean_error(criteria) < found.mean_error(criteria)
            ):
                found = other
    if found is not None:
        before = None if equal is None else equal.mean_error(criteria)
        gain = None if before is None else 1 - found.mean_error(criteria) / before
        spared: set[str] = set()
        if equal is not None and (lost := equal.unreadable().intersection(names)):
            spared = lost - found.unreadable()
        if gain is None or gain >= WORTH or spared:
            return found, Division(names, gain, tuple(sorted(spared)))
    return _met(requests, tables, budget, briefly), Division(names, 0.0)


def _found(
    requests: Sequence[ProductRequest],
    tables: Sequence[Target],
    budget: Budget,
    ways: Mapping[int, Sequence[Way]],
    *,
    briefly: bool,
    pure: bool,
) -> _Met | None:
    """The products at shares that are found with the mechanisms that are best there."""
    for _ in range(_ROUNDS):
        shared = with_shares(requests, tables, budget, ways, pure=pure)
        if shared is requests:
            return None
        try:
            found = _met(shared, tables, budget, briefly)
        except InfeasibleBudgetError:
            return None
        now = {i: _way(each) for i, each in enumerate(found.requests) if each.open_share}
        if all(way in ways.get(i, [way]) for i, way in now.items()):
            return found
        ways = {i: [*ways.get(i, []), way] for i, way in now.items()}
    return found


def _may_be_pure(requests: Sequence[ProductRequest], budget: Budget) -> bool:
    """Whether the release may come to divide epsilon, though it has a delta."""
    mechanisms = (mechanism_named(each.mechanism) for each in requests)
    return budget.rho is None and bool(budget.delta) and all(each.pure for each in mechanisms)


def _way(request: ProductRequest) -> Way:
    return request.mechanism, request.knobs


def _coded_domain(domain: Domain, products: Sequence[_Needed]) -> Domain | None:
    """The columns whose codes are kept, those of all products that need them; None if none does."""
    wide = (own for mechanism, own in products if mechanism.needs != "joint")
    names = {name for own in wide for name in own.names}
    return _some(domain, names) if names else None


def _joint_domains(
    domain: Domain, products: Sequence[_Needed], n_records: int
) -> tuple[Domain, ...]:
    """The domains of the joint tables to count, each of as many products as fit.

    Products join, in their order, the first table that counts what they count and has room for
    their columns, as long as it is small or can have no more occupied cells than two tables apart:
    of many columns nearly every record has a cell of its own.
    """

    def together(names: set[str], own: Iterable[str]) -> bool:
        cells = _some(domain, names.union(own)).n_cells
        apart = (_some(domain, each).n_cells for each in (names, own))
        most = max(_SMALL_TABLE, sum(min(each, n_records) for each in apart))
        return cells <= MAX_CELLS and min(cells, n_records) <= most

    found: list[tuple[set[str], Domain]] = []
    for mechanism, own in products:
        if mechanism.needs != "joint":
            continue
        for names, first in found:
            if own.counts_as(first) and together(names, own.names):
                names.update(own.names)
                break
        else:
            found.append((set(own.names), own))
    return tuple(
        first
        if first.total
        else replace(_some(domain, names), absent=first.absent, parts=first.parts)
        for names, first in found
    )


def _counted(request: ProductRequest, own: Domain) -> Domain:
    """The domain of a product's table; where each unit counts one, without an absent cell."""
    clamped = getattr(request.knobs, "total", None)
    if clamped is not None:
        if not own.absent:
            raise ConfigError(
                "A 'total' is of what several records of a unit hold, and a unit has one here.",
                where=request.name,
                next_step="Leave 'total' and 'per' out.",
            )
        (column, *_) = own.columns
        return Domain((Total(name=column.name, of=column, **asdict(clamped)),))
    each_unit = getattr(request.knobs, "per", None) == "unit"
    return replace(own, absent=False) if own.absent and each_unit else own


def _shared(own: Domain, mechanism: Mechanism, privacy: Privacy) -> Domain:
    """The domain with the parts that a unit's records share, if the mechanism takes them."""
    if own.absent or not getattr(mechanism, "takes_parts", False):
        return own
    parts = parts_of(privacy.unit_records)
    if parts * privacy.n_units >= _MOST_SHARED:
        raise RecordsError("There are more than 2**42 parts of units.", where="privacy.n_units")
    return replace(own, parts=parts)


def _some(domain: Domain, names: Iterable[str]) -> Domain:
    """Some of the columns, in the domain's order."""
    wanted = set(names)
    return domain.project(name for name in domain.names if name in wanted)


def _check_further(products: Sequence[PlannedProduct[Any]], briefly: bool) -> None:
    """Refuse what the planned mechanisms cannot publish besides."""
    for product in products:
        if product.further is not None:
            with _of_product(product.name):
                product.kind.check_served(product.further, product.mechanism, product.target)
                _ = None if briefly else product.expected_error


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
    return PlannedProduct(
        request=request,
        domain=domain,
        mechanism=mechanism,
        choice=choice,
        target=target,
        delta=part_of(delta, request.share),
        loss=loss,
        rho_most=budget.rho_delta_of(request.share),
        rho_part=None if budget.rho is None else part_of(budget.rho, request.share),
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


TIMES = tuple(map(Decimal, ("0.125", "0.25", "0.5", "0.7", "1", "1.4", "2", "4", "8")))
"""Budgets that are compared, as multiples of the config's own."""


@dataclass(frozen=True)
class Offer:
    """A release planned for some multiple of its budget.

    Attributes:
        times: The multiple.
        plan: What it would come to; None if it cannot be met.
        reason: Why not; empty if it can.
    """

    times: Decimal
    plan: Plan | None
    reason: str = ""

    def product(self, name: str) -> PlannedProduct[Any] | None:
        """One of its products; None if the budget cannot be met."""
        if self.plan is None:
            return None
        return next(each for each in self.plan.products if each.name == name)


def criterion_of(product: PlannedProduct[Any]) -> str:
    """The error by which a product is judged, in words."""
    return product.kind.criteria[product.criterion]


def error_of(product: PlannedProduct[Any] | None) -> float | None:
    """The error by which a product is judged; None if it is not known or infinite."""
    if product is None or not math.isfinite(product.deciding_error):
        return None
    return product.deciding_error


A_TENTH = Decimal("0.1")
"""Of the release's budget, what a product is given more to see what it gains."""


def error_with_more(plan: Plan, product: PlannedProduct[Any]) -> float | None:
    """About the error by which a product is judged if it had a tenth of the budget more.

    The mechanism stays, and so do the parts of all others. None if the error is not known.
    """
    own, pure = error_of(product), not plan.delta

    def at(share: Decimal) -> float:
        table = replace(product.target, epsilon=0.0, delta=0.0, rho=None, rho_delta=0.0, renyi=None)
        parts = [Part(share, table)] * len(plan.charged)
        target = targets(plan.budget, parts, pure=pure)[0]
        mechanism = calibrated(type(product.mechanism), product.request.knobs, target)
        error = product.kind.expected_error(mechanism, target)
        return float(error.deciding(product.criterion))

    if own is None:
        return None
    try:
        before, after = (at(product.request.share + more) for more in (Decimal(0), A_TENTH))
    except StatpressError:  # parameters that fit the whole release, but not this part
        return own
    return own * after / before if before else own
