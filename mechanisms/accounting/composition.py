"""Composition of privacy losses, conversions to epsilon, and the odometer of a history of charges.

**Composition**, with a proven bracket around the exact answer. Equal kinds compose exactly where
there is a formula: Gaussian losses add their mu squared (Dong, Roth and Su 2022, doi
10.1111/rssb.12454, Corollary 3.3), draws from one pair their numbers, discrete losses of one noise
their cells, bounds on rho, and the normal laws that go with them, their values; pure epsilons add
up. What is left goes through the privacy loss distributions of
statpress.mechanisms.accounting.privacy_loss_distributions, on the grid h Z. Its upper bound holds
for every h; its lower bound is short by a shift of epsilon that grows with h sqrt(n) for n parts,
never with h n. Here h is chosen from n, the spread of the parts and the query so that the shift
stays below 1 % of epsilon, as long as the number of grid points allows.

**The odometer** reads what a history of charges amounts to as one (epsilon, delta). A filter holds
a budget; an odometer reads what was spent. The sums of a history are themselves random when each
charge may depend on earlier outputs, so a reading that is to hold at every moment of such a history
needs more than a conversion:

* *basic*: the sums of epsilon and delta are a reading at every moment (Rogers, Roth, Ullman and
  Vadhan 2016, arXiv 1605.08294, section 3);
* *zcdp*: fix a grid of levels of rho beforehand and a delta for each, so that the deltas add up to
  nine tenths of the one asked for; the last tenth is for the deltas charged with rho. At each
  level a filter holds (Whitehouse, Ramdas, Rogers and Wu 2023, arXiv 2203.05481, Theorem 1), so
  with the union over all levels the smallest level that covers the history is a reading, whenever
  one looks (the doubling of Lecuyer 2021, arXiv 2103.01379, "Practical privacy filters and
  odometers", on a finer grid). Per level the tail of the privacy loss is bounded (Bun and Steinke
  2016, arXiv 1605.02065).

Which of the two is read is fixed before the first charge, by the policy a dataset is
registered with. The smaller of both would not do: an analyst who picks each charge by
the outputs before could spend the whole delta on either, and so twice.

If no charge depended on an earlier output, the direct conversions hold, which are
tighter, and the smallest of them does.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from flint import arb, ctx

from statpress.mechanisms.accounting.balls import (
    Above,
    Bounds,
    ball,
    double_above,
    double_below,
    last_true,
    outwards,
)
from statpress.mechanisms.accounting.draws import FEW_DRAWS, DrawsLoss
from statpress.mechanisms.accounting.losses import (
    ConcentratedLoss,
    GaussianLoss,
    Order,
    PrivacyLoss,
)
from statpress.mechanisms.accounting.noise_losses import (
    DiscreteGaussianLoss,
    DiscreteLaplaceLoss,
    ResampledGaussianLoss,
)
from statpress.mechanisms.accounting.privacy_loss_distributions import (
    TRUNCATION,
    Counts,
    account,
    equivalent_mu,
    reach,
    tabulated,
)

_MOST_CELLS = 16  # of discrete Gaussian noise, whose constants cost the square
_BITS = 192


def counted(parts: Iterable[PrivacyLoss]) -> dict[PrivacyLoss, int]:
    """How often each part occurs; the same object is not hashed twice."""
    same: dict[int, tuple[PrivacyLoss, int]] = {}
    for part in parts:
        same[id(part)] = part, same.get(id(part), (part, 0))[1] + 1
    counts: dict[PrivacyLoss, int] = {}
    for part, times in same.values():
        counts[part] = counts.get(part, 0) + times
    return counts


def merged(counts: dict[PrivacyLoss, int]) -> tuple[PrivacyLoss, ...]:
    """Equal kinds as one loss, where that is exact; parts that cost nothing left out."""
    square = Fraction(0)
    draws: dict[tuple[Fraction, Fraction], int] = {}
    laplace: dict[tuple[Fraction, int], int] = {}
    noise: dict[tuple[Fraction, int], int] = {}
    parts: list[PrivacyLoss] = []
    bounded: list[ConcentratedLoss] = []
    for part, times in counts.items():
        if part.delta(0.0).upper == 0:
            continue
        if isinstance(part, GaussianLoss):
            square += times * part.mu_squared
        elif isinstance(part, DrawsLoss):
            pair = part.up, part.down
            draws[pair] = draws.get(pair, 0) + times * part.draws
        elif isinstance(part, DiscreteLaplaceLoss):
            kind = part.scale, part.shift
            laplace[kind] = laplace.get(kind, 0) + times * part.cells
        elif isinstance(part, ConcentratedLoss):
            bounded.extend([part] * times)
        elif isinstance(part, DiscreteGaussianLoss):
            kind = part.sigma_squared, part.shift
            cells = noise.get(kind, 0) + times * part.cells
            if cells <= _MOST_CELLS:
                noise[kind] = cells
            else:
                parts.extend([part] * times)
        else:
            parts.extend([part] * times)
    root = Fraction(math.isqrt(square.numerator), math.isqrt(square.denominator))
    if root**2 == square:
        parts.append(GaussianLoss(root))
    else:
        parts.append(GaussianLoss(Fraction(0), square))
    parts += [DrawsLoss(up=a, down=b, draws=m) for (a, b), m in draws.items()]
    if bounded:
        # Where the known pairs do not merge into one, the worst of them is a lower bound.
        known = merged(counted(part.attained for part in bounded))
        worst = max(known, key=lambda part: part.rho.upper)
        rho = sum((part.bound for part in bounded), Fraction(0))
        parts.append(ConcentratedLoss(rho, worst))
    parts += [DiscreteLaplaceLoss(a, b, cells) for (a, b), cells in laplace.items()]
    parts += [DiscreteGaussianLoss(a, b, cells) for (a, b), cells in noise.items()]
    free = GaussianLoss(Fraction(0))
    return tuple(part for part in parts if part != free) or (free,)


_SHARE = 0.006  # of epsilon, what the lower bound's shift may take
_COARSE = 0.1  # first interval, in standard deviations of an average part
_POINTS = 60_000  # evaluations of a curve for one composition
_ORDERS = (1.01, 1.1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 512)


def compose(losses: Iterable[PrivacyLoss]) -> PrivacyLoss:
    """The loss of several mechanisms on the same data; a part may occur any number of times."""
    composed = ComposedLoss(tuple(losses))
    return composed.parts[0] if len(composed.parts) == 1 else composed


def compose_quickly(losses: Iterable[PrivacyLoss]) -> PrivacyLoss:
    """``compose`` on the coarsest grid: upper bounds as good, lower bounds that may be far off."""
    composed = compose(losses)
    return _OnGrid(composed, composed._coarse()) if isinstance(composed, ComposedLoss) else composed


@dataclass(frozen=True)
class ComposedLoss(PrivacyLoss):
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
        return tuple((part, times) for part, times in self._counts if _is_sharp(part))

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
        points = math.fsum(reach(part) * _evaluation_cost(part) for part, _ in self._counts)
        h = max(h, points / _POINTS)
        mantissa, exponent = math.frexp(h)  # a short mantissa: multiples of h are exact
        return math.ldexp(max(math.floor(mantissa * 8), 4) / 8, exponent)


def _evaluation_cost(part: PrivacyLoss) -> int:
    """What one evaluation of a curve costs, roughly, in those of the cheapest."""
    part = tabulated(part)
    if type(part) is DrawsLoss and part.draws > FEW_DRAWS:
        return 30
    if isinstance(part, ResampledGaussianLoss):
        return 25  # of one point; many at once are cheap, but a finer grid costs more than it gains
    return 12 if type(part) is DiscreteGaussianLoss else 1


@functools.lru_cache(maxsize=512)
def _is_sharp(part: PrivacyLoss) -> bool:
    """Whether the lower bound on the curve is worth composing."""
    low, high = part.delta(0.0)
    return high - low < 1e-9


@dataclass(frozen=True)
class _OnGrid(PrivacyLoss):
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


def epsilon_at(divergences: Sequence[tuple[float, float]], delta: float) -> float:
    """The smallest epsilon >= 0 proven at delta by Rényi divergences.

    Canonne, Kamath and Steinke (2020, arXiv 2004.00010), Proposition 12; infinity where nothing is
    proven.

    Args:
        divergences: Pairs of an order above 1 and an upper bound on the divergence.
        delta: In [0, 1).
    """
    if not 0 <= delta < 1:
        raise ValueError("delta must be in [0, 1)")
    if not all(1 < order < math.inf and value >= 0 for order, value in divergences):
        raise ValueError("orders must be finite and above 1, divergences at least 0")
    with ctx.workprec(_BITS):
        found = (
            _converted(arb(value), arb(order) - 1, delta)
            for order, value in divergences
            if value < math.inf and delta > 0
        )
        return min(found, default=math.inf)


def epsilon_of_rho(rho: Decimal, delta: float) -> float:
    """The smallest epsilon >= 0 proven at delta by rho-zCDP, D <= rho alpha.

    The bound of epsilon_at has one minimum over t = alpha - 1, where
    rho t^2 = log(1 / (delta alpha)). It is located in floating point, where a miss costs
    accuracy but not validity, and evaluated once, rounded up.
    """
    if not (rho.is_finite() and rho >= 0 and 0 <= delta < 1):
        raise ValueError("rho must be finite and at least 0, delta in [0, 1)")
    if delta == 0 or rho == 0:
        return math.inf if rho else 0.0
    low, high, scale = -700.0, 700.0, float(rho)
    for _ in range(64):
        middle = (low + high) / 2
        t = math.exp(middle)
        if scale * t * t + math.log(delta) + math.log1p(t) < 0:
            low = middle
        else:
            high = middle
    with ctx.workprec(_BITS):
        t_ball = arb(math.exp(high))
        return _converted(ball(Fraction(rho)) * (1 + t_ball), t_ball, delta)


def tail_of_rho(rho: Decimal, delta: Decimal | float) -> float:
    """An epsilon that the privacy loss exceeds with probability at most delta.

    rho + 2 sqrt(rho log(1/delta)) by Markov's inequality (Bun and Steinke 2016,
    Proposition 1.3).
    """
    if not (rho.is_finite() and rho >= 0 and 0 <= delta <= 1):
        raise ValueError("rho must be finite and at least 0, delta in [0, 1]")
    if delta == 0 or rho == 0:
        return math.inf if rho else 0.0
    with ctx.workprec(_BITS):
        exact, chance = ball(Fraction(rho)), Fraction(delta)
        return outwards(exact + 2 * (exact * ball(1 / chance - 1).log1p()).sqrt()).upper


def _converted(divergence: arb, t: arb, delta: float) -> float:
    """Proposition 12 at order 1 + t, rounded up."""
    share = t.log() - t.log1p()  # log(1 - 1/alpha), also for small t
    return outwards(divergence + share - (arb(delta).log() + t.log1p()) / t).upper


_STEP = Decimal("0.9")  # from level to level
_CHARGED = Decimal("0.1")  # of delta, kept for the deltas charged with rho
_UP = Context(prec=60, rounding=ROUND_CEILING)
_DOWN = Context(prec=60, rounding=ROUND_FLOOR)


@dataclass(frozen=True, slots=True)
class Reading:
    """The smallest proven epsilons at one delta.

    Attributes:
        delta: The delta of the reading.
        adaptive: Holds whatever each charge depended on.
        fixed: Holds if no charge depended on the output of an earlier one.
    """

    delta: Decimal
    adaptive: float
    fixed: float

    @classmethod
    def of_history(
        cls,
        *,
        epsilon: Decimal,
        epsilon_delta: Decimal,
        rho: Decimal,
        rho_delta: Decimal,
        anchor: Decimal | None,
        delta: Decimal,
        divergences: Sequence[tuple[float, float]] = (),
    ) -> Reading:
        """The tightest (epsilon, delta) readings of a history.

        Args:
            epsilon: Sum of the charged epsilons.
            epsilon_delta: Sum of the deltas charged with them.
            rho: Sum of the charged rhos.
            rho_delta: Sum of the deltas charged with them.
            anchor: The registered limit of rho, where the policy *zcdp* was registered;
                None for *basic*. Either way fixed before the first charge.
            delta: Of the reading, in (0, 1).
            divergences: Pairs (order, sum of upper bounds on the Rényi divergences of
                that order), if every mechanism of the history is known; of whole losses, so that
                the delta charged with rho has no part in them.

        Returns:
            Epsilons rounded up; infinite if nothing holds at this delta.
        """
        if not 0 < delta < 1:
            raise ValueError("delta must be in (0, 1)")
        basic = double_above(epsilon) if epsilon_delta <= delta else math.inf
        adaptive = basic
        if anchor is not None:
            charged = _DOWN.multiply(delta, _CHARGED)
            levels = _DOWN.subtract(delta, charged)
            adaptive = _levelled(rho, anchor, levels) if rho_delta <= charged else math.inf
        fixed = min(basic, adaptive)
        left = double_below(_DOWN.subtract(delta, rho_delta))
        if left > 0:
            fixed = min(fixed, epsilon_of_rho(rho, left))
        if divergences:
            fixed = min(fixed, epsilon_at(divergences, double_below(delta)))
        return cls(delta, adaptive, fixed)


def _levelled(rho: Decimal, anchor: Decimal, delta: Decimal) -> float:
    """The tail at the smallest level anchor * 0.9**j, j of either sign, that covers rho.

    Level j has the delta 1/(3 (1 + |j|)**2) of the whole; over all j they add up to
    (pi**2/3 - 1)/3 < 0.77.
    """
    if rho == 0:
        return 0.0
    j = math.floor(float((rho / anchor).ln() / _STEP.ln()))
    while _level(anchor, j) < rho:  # the logarithms are only near
        j -= 1
    while _level(anchor, j + 1) >= rho:
        j += 1
    part = _DOWN.divide(delta, Decimal(3 * (1 + abs(j)) ** 2))
    return tail_of_rho(_level(anchor, j), part)


def _level(anchor: Decimal, j: int) -> Decimal:
    """The j-th level, rounded up; the same for every history."""
    return _UP.multiply(anchor, _UP.power(_STEP, j))
