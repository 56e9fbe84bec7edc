"""Shares of a budget where a config leaves them open, by the errors that products are expected to have.

**What is least.** Products err in different units, so what counts is by which factor an error falls:
the sum of the logarithms of the expected errors is least, which is their geometric mean. A product
is judged by the error that its mechanisms are compared by. So the product that gains most by a
little more of the budget gets it, until all gain the same. All of it is public.

**How.** A product's error depends on its own part of the budget only. It is looked at for some
parts, by the mechanism that is best at an equal share, and read between them linearly in
logarithms. Shares, in thousandths of what is open, then follow by dynamic programming, which finds
the least sum whatever the shape of the curves. There the errors are looked at again, and mechanisms
that have become better too, until nothing moves. The same release with its products in another
order has the same shares.

**What no product falls below.** A sixteenth of an equal share, the part that its parameters need,
and the part from which it is mostly noise, or mostly independent, where it is not with an equal
share. A product whose error does not fall with its part gets no more than this. One whose error is
not known keeps an equal share, as all do where finding others gains less than half a hundredth of
the mean error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np

from statpress.mechanisms.errors import ConfigError, InfeasibleBudgetError, StatpressError
from statpress.mechanisms.estimates.fieller import Floats
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.planning.charges import EXACT, exact_sum
from statpress.mechanisms.planning.choice import (
    AUTO,
    Budget,
    Part,
    ProductRequest,
    calibrated,
    choose,
    targets,
)
from statpress.mechanisms.planning.plan import judge
from statpress.mechanisms.registry import mechanism_named

UNITS = 1000
"""Into which what is open is divided."""

WORTH = 0.005
"""Of the mean error, what other shares than equal ones have to gain."""

_MOST = 100  # products up to which shares are found
_LOOKS = (1 / 16, 1 / 4, 1.0)  # parts that are looked at first, of an equal one
_ROUNDS = 4
_NEAR = 1.03  # factor between a part and one that was looked at, which will do for it
_HALVINGS = 4
_EXACT_HALVINGS = 14
_FLAT = 1e-9
_SPARE = 1.1  # of the part that fixed parameters need, for what is lost in composing
_UNREAD = ("mostly_noise", "mostly_independent")


@dataclass
class _Curve:
    """A product's error by its part of the budget.

    Attributes:
        request: With its mechanism left open or not.
        target: What a part of the budget is for it.
        equal: Its equal part.
        ways: The mechanisms that are looked at, with their knobs.
        seen: By part and mechanism the error and the verdict.
        errors: By part the least expected error; infinite where it cannot be served so.
        least: The part that it does not fall below.
    """

    request: ProductRequest
    target: Callable[[float], Target]
    equal: float
    ways: list[tuple[str, Any]] = field(default_factory=list)
    errors: dict[float, float] = field(default_factory=dict)
    seen: dict[tuple[float, int], tuple[float, str]] = field(default_factory=dict)
    least: float = 0.0

    def look(self, part: float) -> float:
        """The least error at a part."""
        self.errors[part] = min(self._by(part, way)[0] for way in range(len(self.ways)))
        return self.errors[part]

    def adds(self, mechanism: str, knobs: Any) -> bool:
        """Whether a mechanism was not looked at so far; from now on it is."""
        if (mechanism, knobs) in self.ways:
            return False
        self.ways.append((mechanism, knobs))
        for part in self.errors:
            self.look(part)
        return True

    def serves(self, part: float, *, read: bool = False) -> bool:
        """Whether a part is enough, and if asked so for what can be read."""
        verdicts = {self._by(part, way)[1] for way in range(len(self.ways))} - {""}
        return bool(verdicts.difference(_UNREAD) if read else verdicts)

    def _by(self, part: float, way: int) -> tuple[float, str]:
        """The error by one mechanism, with the verdict; infinite and none if it cannot serve."""
        if (part, way) not in self.seen:
            (name, knobs), target, kind = self.ways[way], self.target(part), self.request.kind
            try:
                mechanism = calibrated(mechanism_named(name), knobs, target)
                error = kind.expected_error(mechanism, target)
                found = judge(kind, mechanism, error, target).name
                self.seen[part, way] = error.deciding(kind.judged_by(knobs, error)), found
            except StatpressError:
                self.seen[part, way] = math.inf, ""
        return self.seen[part, way]

    def bounded(self, whole: float) -> None:
        """Look at the first parts, and find the least."""
        parts = sorted({min(times * self.equal, whole) for times in _LOOKS} | {whole})
        errors = [error for part in parts if math.isfinite(error := self.look(part))]
        flat = max(errors) <= min(errors) * (1 + _FLAT)
        read = self.serves(self.equal, read=True)
        enough = [self.serves(part, read=read) for part in parts]
        first = next(i for i in range(len(parts)) if all(enough[i:]))
        low, high = (parts[first - 1] if first else 0.0), parts[first]
        if first or flat:
            for _ in range(_EXACT_HALVINGS if flat else _HALVINGS):
                middle = (low + high) / 2
                low, high = (low, middle) if self.serves(middle, read=read) else (middle, high)
            self.look(high)
        self.least = _SPARE * high if flat else high

    def costs(self, whole: float) -> Floats:
        """Logarithms of the error with 0 to UNITS units of the whole; infinite below the least."""
        units = np.arange(UNITS + 1)
        known = sorted(part for part, error in self.errors.items() if math.isfinite(error))
        places, values = np.log(known), np.log([max(self.errors[part], 1e-300) for part in known])
        found = np.interp(np.log(np.maximum(units, 0.5) * whole / UNITS), places, values)
        return np.where(units < self.fewest(whole), math.inf, found)

    def fewest(self, whole: float) -> int:
        """Units of the whole that it needs at least."""
        return max(1, math.ceil(min(self.least / whole, 2.0) * UNITS * (1 - 1e-12)))


def with_shares(
    requests: Sequence[ProductRequest], tables: Sequence[Target], budget: Budget
) -> Sequence[ProductRequest]:
    """The products with the shares that are found where theirs are open.

    Args:
        requests: All that is released; where a share is open, it is an equal one.
        tables: Public quantities of each.
        budget: Of the release.

    Returns:
        The same where fewer than two shares are open, no others are better by themselves, or some
        product cannot be served with the budget at all.
    """
    places = sorted(
        (i for i, each in enumerate(requests) if each.open_share), key=lambda i: requests[i].name
    )
    if not 2 <= len(places) <= _MOST:
        return requests
    equal = float(exact_sum(requests[i].share for i in places)) / len(places)
    curves = {}
    for i in places:
        curve = _curve(requests[i], tables[i], budget, equal, equal * len(places), len(requests))
        if curve is None:
            return requests
        if any(map(math.isfinite, curve.errors.values())):
            curves[i] = curve
    if len(curves) < 2:
        return requests
    open_share = exact_sum(requests[i].share for i in curves)
    whole = float(open_share)
    for curve in curves.values():
        curve.bounded(whole)
    if sum(curve.fewest(whole) for curve in curves.values()) > UNITS:
        return requests
    units = _settled(curves, whole)
    return [
        replace(each, share=_part(open_share, units[i])) if i in units else each
        for i, each in enumerate(requests)
    ]


def _part(whole: Decimal, units: int) -> Decimal:
    return EXACT.multiply(whole, Decimal(units) / UNITS)


def _curve(
    request: ProductRequest,
    table: Target,
    budget: Budget,
    equal: float,
    whole: float,
    products: int,
) -> _Curve | None:
    """A product's curve, looked at where it first can be; None if it cannot be served at all."""

    def target(part: float) -> Target:
        return targets(budget, [Part(Decimal(part), table)] * products)[0]

    curve = _Curve(request, target, equal)
    for part in (equal, whole):
        try:
            curve.adds(*_best(request, target(part)))
        except (ConfigError, InfeasibleBudgetError):
            continue
        curve.look(part)
        if curve.serves(part):
            return curve
    return None


def _best(request: ProductRequest, target: Target) -> tuple[str, Any]:
    """The mechanism of a product at a target, with its knobs."""
    if request.mechanism != AUTO:
        return request.mechanism, request.knobs
    choice = choose(request.kind, request.knobs, target, briefly=True)
    return choice.mechanism, choice.knobs


def _settled(curves: Mapping[int, _Curve], whole: float) -> dict[int, int]:
    """Units by product, once each is near to where its error was looked at."""
    for _ in range(_ROUNDS):
        units = _divided({i: curve.costs(whole) for i, curve in curves.items()})
        looked = False
        for i, curve in curves.items():
            part = units[i] * whole / UNITS
            if all(not 1 / _NEAR < part / seen < _NEAR for seen in curve.errors):
                looked = True
                curve.look(part)
                if curve.request.mechanism == AUTO:
                    curve.adds(*_best(curve.request, curve.target(part)))
        if not looked:
            break
    return units


def _divided(costs: Mapping[int, Floats]) -> dict[int, int]:
    """The units by product with the least sum of costs that add up to UNITS."""
    best, taken = np.full(UNITS + 1, math.inf), []
    best[0] = 0.0
    units = np.arange(UNITS + 1)
    left = units[:, None] - units  # of the first so many units, what the others have
    for each in costs.values():
        sums = np.where(left >= 0, best[left], math.inf) + each
        taken.append(np.argmin(sums, axis=1))
        best = sums[units, taken[-1]]
    found, rest = {}, UNITS
    for i, own in zip(reversed(costs), reversed(taken), strict=True):
        found[i] = int(own[rest])
        rest -= found[i]
    return found
