"""Shares of a budget where a config leaves them open, by the errors that products expect.

**What is least.** Products err in different units, so what counts is by which factor an error
falls: the geometric mean of the expected errors is least, each by what its mechanisms are compared
by. So whichever product gains most by a little more of the budget gets it, until all gain the same.
Expected errors are public, and so are shares.

**How.** A product's error depends on its own part of the budget only. It is looked at for a few
parts, and read between and beyond them linearly in logarithms. Shares, in thousandths of what is
open, then follow by dynamic programming, which finds the least sum of logarithms whatever the shape
of the curves. There the errors are looked at again, until none has moved. The order of the products
decides nothing.

**What no product falls below.** The part that its parameters need; the part at which it becomes
mostly noise or mostly independent; a thousandth. Of those that are so with an equal share, without
the config accepting it, as many are spared it as fit besides, first whichever needs least: a small
gain of many small tables would else outweigh records of which nothing is left. A product whose
error does not fall with its part gets no more than it needs, and one whose error is not known an
equal share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from statpress.mechanisms.errors import ConfigError, InfeasibleBudgetError, StatpressError
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

Floats = NDArray[np.float64]

UNITS = 1000
"""Into which what is open is divided."""

WORTH = 0.005
"""Of the mean error, what other shares than equal ones have to gain."""

MOST = 100
"""Products up to which shares are found."""

Way = tuple[str, Any]
"""A mechanism that serves a product, with its knobs."""

_FIRST = 1 / 4  # of an equal part, what is looked at besides
_ROUNDS = 5
_NEAR = 1.03  # factor between a part and one that was looked at, which will do for it
_CLOSE = 1.05  # likewise, between the least part that is enough and one that is not
_FLAT = 1 + 1e-9
_SPARE = 1.1  # of a part that is needed, for what is lost in composing
_STEEPEST = 2.0  # slope by which a curve is read beyond what was looked at
UNREADABLE = ("mostly_noise", "mostly_independent")
"""Verdicts on products of which readers have next to nothing, and less of the first."""
_RANKS = {name: rank for rank, name in enumerate(UNREADABLE)}
_READABLE = len(UNREADABLE)


@dataclass
class _Curve:
    """A product's error by its part of the budget.

    Attributes:
        request: With its mechanism left open or not.
        target: What a part of the budget is for it.
        ways: The mechanisms that are looked at.
        errors: By part the least expected error of these; infinite where none can serve.
        seen: By part the verdicts on those that can.
        least: The part that it does not fall below.
        wished: The part from which readers have something of it, where an equal one is too small.
    """

    request: ProductRequest
    target: Callable[[float], Target]
    ways: Sequence[Way]
    errors: dict[float, float] = field(default_factory=dict)
    seen: dict[float, set[str]] = field(default_factory=dict)
    least: float = 0.0
    wished: float = 0.0

    def look(self, part: float) -> float:
        """The least error at a part."""
        if part not in self.errors:
            self.errors[part], self.seen[part] = math.inf, set()
            for name, knobs in self.ways:
                kind, target = self.request.kind, self.target(part)
                try:
                    own = mechanism_named(name)
                    make = getattr(own, "sketch", None)
                    mechanism = make(knobs, target) if make else calibrated(own, knobs, target)
                    error = kind.expected_error(mechanism, target)
                except StatpressError:
                    continue
                first = kind.criterion(self.request.knobs)
                figure = error.deciding(kind.judged_by(first, error))
                self.errors[part] = min(self.errors[part], figure)
                self.seen[part].add(judge(kind, mechanism, error, target).name)
        return self.errors[part]

    def bound(self, equal: float, whole: float) -> None:
        """Find the least part, from an equal one, and the part that is wished for."""
        first = self.look(equal)
        if math.isinf(first):
            first = self.look(whole)
        least = self.rank(equal) if self.seen[equal] else _READABLE

        def enough(part: float, most: float = math.inf) -> bool:
            error = self.look(part)
            return error <= most * _FLAT and self.rank(part) >= least

        high = equal if enough(equal) else whole
        low = min(_FIRST * equal, whole)
        served, flat = enough(low), self.look(whole) * _FLAT >= first
        if self.look(low) <= first * _FLAT:
            served, flat, low, high = False, True, 0.0, low
        if flat or not served:
            low, high = _narrowed(
                low, high, whole, lambda p: enough(p, first if flat else math.inf)
            )
        if low and not self.seen[low]:  # the part that fixed parameters need
            self.least = min(_SPARE * high, whole)
        elif low and not enough(low):
            self.least = high
        accepted = self.seen[equal].intersection(self.request.accepted)
        if least < _READABLE <= self.rank(whole) and not accepted:
            least = _READABLE
            self.wished = min(_SPARE * _narrowed(equal, whole, whole, enough)[1], whole)

    def rank(self, part: float) -> int:
        """How much readers have of it at a part that was looked at, by its best verdict."""
        return max((_RANKS.get(name, _READABLE) for name in self.seen[part]), default=-1)

    def costs(self, whole: float) -> Floats:
        """Logarithms of the error with 0 to UNITS units of the whole; infinite below the least."""
        known = sorted(part for part, error in self.errors.items() if math.isfinite(error))
        x, y = np.log(known), np.log([max(self.errors[part], 1e-300) for part in known])
        units = np.arange(UNITS + 1)
        places = np.log(np.maximum(units, 0.5) * whole / UNITS)
        found = np.interp(places, x, y)
        if len(known) > 1:
            slopes = np.clip(np.diff(y) / np.diff(x), -_STEEPEST, 0.0)
            found += slopes[0] * np.minimum(places - x[0], 0.0)
            found += slopes[-1] * np.maximum(places - x[-1], 0.0)
        return np.where(units < self.fewest(whole), math.inf, found)

    def fewest(self, whole: float) -> int:
        """Units of the whole that it needs at least."""
        return max(1, math.ceil(self.least / whole * UNITS * (1 - 1e-12)))


def _narrowed(
    low: float, high: float, whole: float, enough: Callable[[float], bool]
) -> tuple[float, float]:
    """A part that is not enough and one that is, close to each other."""
    while high - low > whole / UNITS and high > _CLOSE * low:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return low, high


def with_shares(
    requests: Sequence[ProductRequest],
    tables: Sequence[Target],
    budget: Budget,
    ways: Mapping[int, Sequence[Way]],
    *,
    pure: bool = False,
) -> Sequence[ProductRequest]:
    """The products with the shares that are found where theirs are open.

    Args:
        requests: All that is released; where a share is open, it is an equal one.
        tables: Public quantities of each.
        budget: Of the release.
        ways: By place the mechanisms to look at; of others that is best which is so at an equal
            share, or with all that is open.
        pure: Divide epsilon, as where no product needs delta.

    Returns:
        The same where there is nothing to find: fewer than two shares are open or more than MOST,
        or what products need at least does not fit together.
    """
    places = [i for i, each in enumerate(requests) if each.open_share]
    if not 2 <= len(places) <= MOST:
        return requests
    whole = float(exact_sum(requests[i].share for i in places))
    equal = whole / len(places)
    curves = {}
    for i in sorted(places, key=lambda place: requests[place].name):

        def target(part: float, table: Target = tables[i]) -> Target:
            return targets(budget, [Part(Decimal(part), table)] * len(requests), pure=pure)[0]

        own = ways[i] if i in ways else _best(requests[i], target, (equal, whole))
        curve = _Curve(requests[i], target, own)
        curve.bound(equal, whole)
        if not any(curve.seen.values()):
            return requests
        if any(map(math.isfinite, curve.errors.values())):
            curves[i] = curve
    open_share = exact_sum(requests[i].share for i in curves)
    whole = float(open_share)
    fewest = sum(each.fewest(whole) for each in curves.values())
    if len(curves) < 2 or fewest > UNITS:
        return requests
    for curve in sorted(curves.values(), key=lambda each: each.wished):
        before, least = curve.fewest(whole), curve.least
        curve.least = max(least, curve.wished)
        if fewest + curve.fewest(whole) - before > UNITS:
            curve.least = least
        fewest += curve.fewest(whole) - before
    units = _settled(curves, whole)
    return [
        replace(each, share=EXACT.multiply(open_share, Decimal(units[i]) / UNITS).normalize(EXACT))
        if i in units
        else each
        for i, each in enumerate(requests)
    ]


def _best(
    request: ProductRequest, target: Callable[[float], Target], parts: Sequence[float]
) -> Sequence[Way]:
    """The best mechanism of a product at the first part at which there is one."""
    if request.mechanism != AUTO:
        return [(request.mechanism, request.knobs)]
    for part in parts:
        try:
            choice = choose(request.kind, request.knobs, target(part), briefly=True)
        except (ConfigError, InfeasibleBudgetError):
            continue
        return [(choice.mechanism, choice.knobs)]
    return []


def _settled(curves: Mapping[int, _Curve], whole: float) -> dict[int, int]:
    """Units by product, once each is near to where its error was looked at."""
    for _ in range(_ROUNDS):
        units = divided({i: curve.costs(whole) for i, curve in curves.items()})
        parts = {i: units[i] * whole / UNITS for i in curves}
        far = [
            i
            for i, curve in curves.items()
            if all(not 1 / _NEAR < parts[i] / seen < _NEAR for seen in curve.errors)
        ]
        for i in far:
            curves[i].look(parts[i])
        if not far:
            break
    return units


def divided(costs: Mapping[int, Floats]) -> dict[int, int]:
    """The units by product, UNITS in all, with the least sum of costs.

    Args:
        costs: By product float64[UNITS + 1], the cost of so many units; may be infinite.
    """
    units, before = np.arange(UNITS + 1), np.full(UNITS, math.inf)
    best, taken = np.where(units == 0, 0.0, math.inf), []
    for each in costs.values():
        left = sliding_window_view(np.append(before, best), UNITS + 1)[:, ::-1]  # to the others
        sums = left + each
        taken.append(np.argmin(sums, axis=1))
        best = sums[units, taken[-1]]
    found: dict[int, int] = {}
    for i, own in zip(reversed(list(costs)), reversed(taken), strict=True):
        found[i] = int(own[UNITS - sum(found.values())])
    return found
