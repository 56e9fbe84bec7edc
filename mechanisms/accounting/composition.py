"""Composition of privacy losses, with a proven bracket around the exact answer.

Equal kinds compose exactly where there is a formula: Gaussian losses add their mu squared (Dong,
Roth and Su 2022, doi 10.1111/rssb.12454, Corollary 3.3), lattice losses of one pair add their
draws, discrete losses of one noise add their cells, pure epsilons and bounds on rho add up. What
is left goes through the privacy loss distributions of mechanisms.accounting.pld, on the grid h Z.
Its upper bound holds for every h; its lower bound is short by a shift of epsilon that grows with h
sqrt(n) for n parts, never with h n. Here h is chosen from n, the spread of the parts and the query
so that the shift stays below 1 % of epsilon, as long as the number of grid points allows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from flint import arb, ctx

from mechanisms.accounting.conversions import epsilon_at
from mechanisms.accounting.merging import counted, merged
from mechanisms.accounting.numerics.convolution import TRUNCATION
from mechanisms.accounting.numerics.enclosures import Above, Bounds, last_true, outwards
from mechanisms.accounting.pld import (
    Counts,
    account,
    equivalent_mu,
    evaluation_cost,
    is_sharp,
    reach,
)
from mechanisms.accounting.privacy_loss import Loss, Order, PrivacyLoss

_SHARE = 0.006  # of epsilon, what the lower bound's shift may take
_COARSE = 0.1  # first interval, in standard deviations of an average part
_POINTS = 60_000  # evaluations of a curve for one composition
_ORDERS = (1.01, 1.1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 512)


def compose(losses: Iterable[PrivacyLoss]) -> PrivacyLoss:
    """The loss of several mechanisms on the same data; a part may occur any number of times."""
    composed = ComposedLoss(tuple(losses))
    return composed.parts[0] if len(composed.parts) == 1 else composed


def compose_quickly(losses: Iterable[PrivacyLoss]) -> PrivacyLoss:
    """The same on the coarsest grid: upper bounds as good, lower bounds that may be far off."""
    composed = compose(losses)
    return _OnGrid(composed, composed._coarse()) if isinstance(composed, ComposedLoss) else composed


@dataclass(frozen=True)
class ComposedLoss(Loss):
    """The loss of all parts together.

    Attributes:
        parts: The losses; nested compositions are opened and equal kinds merged.
    """

    parts: tuple[PrivacyLoss, ...]

    def __post_init__(self) -> None:
        flat: list[PrivacyLoss] = []
        for part in self.parts:
            if isinstance(part, ComposedLoss):
                flat.extend(part.parts)
            else:
                flat.append(part)
        object.__setattr__(self, "parts", merged(counted(flat)))

    @functools.cached_property
    def _counts(self) -> Counts:
        return tuple(counted(self.parts).items())

    @property
    def pure_epsilon(self) -> Bounds:
        return _sum((part.pure_epsilon, times) for part, times in self._counts)

    @property
    def rho(self) -> Bounds:
        """The upper bound adds suprema; the lower one is of the sum, at a few orders."""
        upper = _sum((part.rho, times) for part, times in self._counts).upper
        seen = [(a, self.renyi(a).lower) for a in (1, 1.25, 2, 8, 64, 512, 4096)]
        if math.isinf(max(low for _, low in seen)):
            return Bounds(math.inf, math.inf)
        with ctx.workprec(128):
            lower = max(outwards(arb(low) / a).lower for a, low in seen)
        return Bounds(min(lower, upper), upper)

    def renyi_of_curve(self, order: Order) -> Bounds:
        return _sum((part.renyi_of_curve(order), times) for part, times in self._counts)

    def renyi(self, order: Order) -> Bounds:
        return _sum((part.renyi(order), times) for part, times in self._counts)

    def epsilon(self, delta: float) -> Bounds:
        if not 0 <= delta < 1:
            raise ValueError("delta must be in [0, 1)")
        most = self.pure_epsilon.upper
        if delta == 0 or not self._spread:
            return self.pure_epsilon if delta == 0 else Bounds(0.0, 0.0)
        coarse = _OnGrid(self, self._coarse())
        _, rough = last_true(Above.both(coarse.delta, delta)[1], most)
        fine = _OnGrid(self, self._interval(min(rough, most), delta))
        lower, upper = Above.both(fine.delta, delta)
        low, _ = last_true(lower, most)
        _, high = last_true(upper, most)
        high = min(high, rough, most)
        if low < high / 2:  # a single part may say more
            low = max(low, *(part.epsilon(delta).lower for part, _ in self._counts))
        if math.isinf(high) or delta < 1e-8:
            high = min(high, max(0.0, epsilon_at(self._divergences(), delta)))
        return Bounds(min(low, high), high)

    def trade_off(self, alpha: float) -> Bounds:
        """The base's search, all on one grid."""
        return self._for_tests().trade_off(alpha)

    def missed_at_least(self, alphas: Sequence[Fraction], scale: float) -> tuple[float, ...]:
        return self._for_tests().missed_at_least(alphas, scale)

    def _for_tests(self) -> _OnGrid:
        """The grid for questions about tests, whose errors are not small."""
        return _OnGrid(self, self._interval(0.0, 1e-4))

    def _divergences(self) -> list[tuple[float, float]]:
        return [(order, self.renyi(order).upper) for order in _ORDERS]

    def _ahead(self, epsilon: float) -> Bounds:
        if epsilon >= self.pure_epsilon.upper or not self._spread:
            return Bounds(0.0, 0.0)
        rough = self._at(epsilon, self._coarse()).upper
        alone = max(part.delta(epsilon).lower for part, _ in self._counts)
        found = self._at(epsilon, self._interval(epsilon, max(rough, TRUNCATION)))
        high = min(found.upper, rough)
        return Bounds(min(max(found.lower, alone), high), high)

    def _at(self, epsilon: float, h: float) -> Bounds:
        """The curve at epsilon >= 0 from the grid of interval h."""
        high = self._capped(epsilon, account(self._counts, h).upper(epsilon))
        if not self._sharp:
            return Bounds(0.0, high)
        return Bounds(min(account(self._sharp, h).lower(epsilon), high), high)

    def _capped(self, epsilon: float, high: float) -> float:
        """The upper bound, or that of a single part plus the advantages of all others.

        A part moves the curve by no more than its total variation. Where all parts but one
        lose next to nothing, this is below what the transform's error leaves to be seen.
        """
        largest, rest = self._largest
        if rest >= high:
            return high
        return min(high, math.nextafter(rest + largest.delta(epsilon).upper, math.inf))

    @functools.cached_property
    def _largest(self) -> tuple[PrivacyLoss, float]:
        """The part of the largest advantage, and the sum of all other advantages, rounded up."""
        found = [(part.delta(0.0).upper, part, times) for part, times in self._counts]
        _, largest, _ = max(found, key=lambda entry: entry[0])
        rest = math.fsum(
            advantage * (times - (part is largest)) for advantage, part, times in found
        )
        return largest, math.nextafter(rest * (1 + 1e-12), math.inf)

    @functools.cached_property
    def _sharp(self) -> Counts:
        """The parts whose lower bounds are worth composing."""
        return tuple((part, times) for part, times in self._counts if is_sharp(part))

    @functools.cached_property
    def _spread(self) -> float:
        """Standard deviation of the loss, as if every part were Gaussian."""
        return math.sqrt(
            math.fsum(times * equivalent_mu(part) ** 2 for part, times in self._counts)
        )

    def _coarse(self) -> float:
        return self._affordable(_COARSE * self._spread / math.sqrt(len(self.parts)))

    def _interval(self, epsilon: float, delta: float) -> float:
        """The grid at which the lower bound's shift is a small share of epsilon."""
        if not self._sharp:
            return self._coarse()
        scale = min(max(epsilon, self._spread / 2), 100 * self._spread + 1)
        logs = math.log(1000 / delta)
        fine = _SHARE * scale / math.sqrt(len(self.parts) * logs / 2)
        return min(self._affordable(fine), self._coarse())

    def _affordable(self, h: float) -> float:
        points = math.fsum(reach(part) * evaluation_cost(part) for part, _ in self._counts)
        h = max(h, points / _POINTS)
        mantissa, exponent = math.frexp(h)  # a short mantissa: multiples of h are exact
        return math.ldexp(max(math.floor(mantissa * 8), 4) / 8, exponent)


@dataclass(frozen=True)
class _OnGrid(Loss):
    """A composition whose curve is always read from the same grid."""

    whole: ComposedLoss
    h: float

    def epsilon(self, delta: float) -> Bounds:
        """By the grid, or by Rényi divergences where delta is below what it shows."""
        found = super().epsilon(delta)
        if delta == 0 or delta >= 1e-8:
            return found
        high = min(found.upper, max(0.0, epsilon_at(self.whole._divergences(), delta)))
        return Bounds(min(found.lower, high), high)

    def _ahead(self, epsilon: float) -> Bounds:
        if epsilon >= self.pure_epsilon.upper or not self.whole._spread:
            return Bounds(0.0, 0.0)
        return self.whole._at(epsilon, self.h)

    @functools.cached_property
    def pure_epsilon(self) -> Bounds:
        return self.whole.pure_epsilon

    @property
    def rho(self) -> Bounds:
        return self.whole.rho

    def renyi(self, order: Order) -> Bounds:
        return self.whole.renyi(order)


def _sum(values: Iterable[tuple[Bounds, int]]) -> Bounds:
    """Sum of enclosures times their counts, rounded outwards."""
    found = list(values)

    def total(numbers: list[tuple[float, int]]) -> arb:
        return sum((arb(value) * times for value, times in numbers), arb(0))

    with ctx.workprec(128):
        lows = [(v.lower, times) for v, times in found]
        highs = [(v.upper, times) for v, times in found]
        if any(math.isinf(low) for low, _ in lows):
            return Bounds(math.inf, math.inf)
        lower = outwards(total(lows)).lower
        if any(math.isinf(high) for high, _ in highs):
            return Bounds(lower, math.inf)
        return Bounds(lower, outwards(total(highs)).upper)
