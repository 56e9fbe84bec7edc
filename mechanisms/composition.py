"""Composition of privacy losses, with a proven bracket around the exact answer.

Equal kinds compose exactly where there is a formula: Gaussian losses add their mu squared
(Dong, Roth and Su 2022, Corollary 3.3), lattice losses of one pair add their draws, discrete
losses of one noise add their cells, pure epsilons add up. What is left goes through the
privacy loss distributions of dp-accounting.

**Upper bound.** Each part's curve, evaluated by proven bounds on the grid h Z, is replaced by
its chords in e^epsilon: connect the dots (Doroshenko et al. 2022). That pair dominates the
part, so the convolution dominates the composition (Zhu, Dong and Wang 2022, Theorem 10).

**Lower bound.** Connecting the dots moves a loss L between two grid points to L + E, with one
of the two points as result and E[e^-E | L] = 1. So E | L spans h, has mean at most h^2/8 and,
by Hoeffding's lemma, for n parts Pr[sum of E > n h^2/8 + s] <= exp(-2 s^2 / (n h^2)). Hence

    delta(epsilon) >= delta'(epsilon + n h^2/8 + s) - exp(-2 s^2 / (n h^2)) - (mass moved further),

delta' the upper curve. The excess grows with h sqrt(n), never with h n, and h is chosen from
n, the spread of the parts and the query so that it stays below 1 % of epsilon, as long as the
number of grid points allows.

**Rounding.** If two curves differ by at most s everywhere, then so do their compositions with
any third. The curve of the masses actually convolved is compared with the proven one at every
grid point and the largest difference is added (subtracted). The transform is charged with
|error of an FFT output| <= 8 u (1 + log2 N) |x|_1, u = 2^-53, the textbook bound with room to
spare (Higham 2002, chapter 24); that dp-accounting's transform obeys it is assumed, not proven.

**Orders of asymmetric pairs.** For one pair of neighbours, part 1 may show (P, Q) where part 2
shows (Q, P). The upper bound therefore composes the worse order of every part at every epsilon
(a maximum of convex curves is a curve). Where all pairs are known to have the same order, as
parts of one mechanism have, ``same_order`` composes (P, Q) and (Q, P) apart, which is tighter.
"""

from __future__ import annotations

import functools
import heapq
import importlib
import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from types import ModuleType
from typing import Any

import numpy as np
from flint import arb, ctx
from scipy import fft  # type: ignore[import-untyped]

from mechanisms.lattice import Bounds, LatticeLoss, _outwards
from mechanisms.losses import (
    FEW_DRAWS,
    DiscreteGaussianLoss,
    DiscreteLaplaceLoss,
    DiscreteLoss,
    DrawsLoss,
    GaussianLoss,
    Loss,
    Order,
    PrivacyLoss,
    _turn,
)
from mechanisms.renyi import epsilon_at

_SHARE = 0.006  # of epsilon, what the lower bound's shift may take
_COARSE = 0.1  # first interval, in standard deviations of an average part
_POINTS = 60_000  # evaluations of a curve for one composition
_TAIL = 1e-18  # a part's curve is followed to here,
_FAR = 4096.0  # or to this epsilon
_TRUNCATION = 1e-15  # of dp-accounting's self-composition
_ROUND = 2.0**-53
_ZERO = np.longdouble(0)
_MOST_CELLS = 16  # of discrete Gaussian noise, whose constants cost the square
_ORDERS = (1.01, 1.1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 512)


Counts = tuple[tuple[PrivacyLoss, int], ...]


def compose(losses: Iterable[PrivacyLoss], *, same_order: bool = False) -> PrivacyLoss:
    """The loss of several mechanisms on the same data.

    Args:
        losses: The parts; a part may occur any number of times.
        same_order: Every pair has its P on the same side of any two neighbours.
    """
    composed = ComposedLoss(tuple(losses), same_order)
    return composed.parts[0] if len(composed.parts) == 1 else composed


@dataclass(frozen=True)
class ComposedLoss(Loss):
    """The loss of all parts together.

    Attributes:
        parts: The losses; nested compositions are opened and equal kinds merged.
        same_order: Every pair has its P on the same side of any two neighbours.
    """

    parts: tuple[PrivacyLoss, ...]
    same_order: bool = False

    def __post_init__(self) -> None:
        flat: list[PrivacyLoss] = []
        for part in self.parts:
            if isinstance(part, ComposedLoss) and self._opens(part):
                flat.extend(part.parts)
            else:
                flat.append(part)
        object.__setattr__(self, "parts", _merged(_counted(flat)))

    def _opens(self, part: ComposedLoss) -> bool:
        """Whether a part's own parts may take its place."""
        return part.same_order == self.same_order or all(p.symmetric for p in part.parts)

    @functools.cached_property
    def _counts(self) -> Counts:
        return tuple(_counted(self.parts).items())

    @property
    def symmetric(self) -> bool:
        return not self.same_order or all(part.symmetric for part, _ in self._counts)

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
            lower = max(_outwards(arb(low) / a).lower for a, low in seen)
        return Bounds(min(lower, upper), upper)

    def renyi(self, order: Order) -> Bounds:
        found = [(part.renyi(order), times) for part, times in self._counts]
        total = _sum(found)
        if not self.same_order or self.symmetric:
            return total
        return Bounds(max(one.lower for one, _ in found), total.upper)

    def epsilon(self, delta: float) -> Bounds:
        if not 0 <= delta < 1:
            raise ValueError("delta must be in [0, 1)")
        most = self.pure_epsilon.upper
        if delta == 0 or not self._spread:
            return self.pure_epsilon if delta == 0 else Bounds(0.0, 0.0)
        coarse = _OnGrid(self, self._coarse())
        _, rough = _turn(lambda e: coarse.delta(e).upper > delta, most)
        fine = _OnGrid(self, self._interval(min(rough, most), delta))
        low, _ = _turn(lambda e: fine.delta(e).lower > delta, most)
        _, high = _turn(lambda e: fine.delta(e).upper > delta, most)
        alone = max(part.epsilon(delta).lower for part, _ in self._counts)
        high = min(high, rough, most)
        if math.isinf(high) or delta < 1e-8:
            high = min(high, max(0.0, epsilon_at(self._divergences(), delta)))
        return Bounds(min(max(low, alone), high), high)

    def trade_off(self, alpha: float) -> Bounds:
        """The base's search, all on one grid."""
        return _OnGrid(self, self._interval(0.0, 1e-4)).trade_off(alpha)

    def _divergences(self) -> list[tuple[float, float]]:
        return [(order, self.renyi(order).upper) for order in _ORDERS]

    def _ahead(self, epsilon: float, reverse: bool) -> Bounds:
        if epsilon >= self.pure_epsilon.upper or not self._spread:
            return Bounds(0.0, 0.0)
        rough = self._at(epsilon, reverse, self._coarse()).upper
        alone = max(part.ordered(epsilon, reverse=reverse).lower for part, _ in self._counts)
        found = self._at(epsilon, reverse, self._interval(epsilon, max(rough, _TRUNCATION)))
        high = min(found.upper, rough)
        return Bounds(min(max(found.lower, alone), high), high)

    def _at(self, epsilon: float, reverse: bool, h: float) -> Bounds:
        """One order's curve at epsilon >= 0 from the grid of interval h."""
        one_way = reverse if self.same_order and not self.symmetric else None
        high = _account(self._counts, one_way, h).upper(epsilon)
        sharp = self._sharp
        if not sharp:
            return Bounds(0.0, high)
        if one_way is not None or all(part.symmetric for part, _ in sharp):
            orders: tuple[bool | None, ...] = (one_way,)
        else:
            orders = (False, True)
        low = max(_account(sharp, order, h).lower(epsilon) for order in orders)
        return Bounds(min(low, high), high)

    @functools.cached_property
    def _sharp(self) -> Counts:
        """The parts whose lower bounds are worth composing."""
        return tuple((part, times) for part, times in self._counts if _is_sharp(part))

    @functools.cached_property
    def _spread(self) -> float:
        """Standard deviation of the loss, as if every part were Gaussian."""
        return math.sqrt(math.fsum(times * _shift(part) ** 2 for part, times in self._counts))

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
        points = math.fsum(_reach(part) * _weight(part) for part, _ in self._counts)
        h = max(h, points / _POINTS)
        mantissa, exponent = math.frexp(h)  # a short mantissa: multiples of h are exact
        return math.ldexp(max(math.floor(mantissa * 8), 4) / 8, exponent)


@dataclass(frozen=True)
class _OnGrid(Loss):
    """A composition whose curve is always read from the same grid."""

    whole: ComposedLoss
    h: float

    @property
    def symmetric(self) -> bool:
        return self.whole.symmetric

    def _ahead(self, epsilon: float, reverse: bool) -> Bounds:
        if epsilon >= self.pure_epsilon.upper or not self.whole._spread:
            return Bounds(0.0, 0.0)
        return self.whole._at(epsilon, reverse, self.h)

    @functools.cached_property
    def pure_epsilon(self) -> Bounds:
        return self.whole.pure_epsilon

    @property
    def rho(self) -> Bounds:
        return self.whole.rho

    def renyi(self, order: Order) -> Bounds:
        return self.whole.renyi(order)


@dataclass(frozen=True)
class _Grid:
    """Masses at h j for j >= first, of one part, and the slack of both bounds."""

    first: int
    masses: np.ndarray[Any, np.dtype[np.float64]]
    infinite: float
    above: float
    below: float


@dataclass(frozen=True)
class _Account:
    """Composed masses with what rounding (above) and moved mass (below) may add up to.

    ``p`` and ``q`` are sums over the losses from h (start + k) on, ending with 0.
    """

    h: float
    count: int
    start: int
    p: np.ndarray[Any, np.dtype[np.longdouble]]
    q: np.ndarray[Any, np.dtype[np.longdouble]]
    infinite: float
    above: float
    below: float

    def _read(self, epsilon: float) -> tuple[float, float]:
        """The curve at epsilon >= 0, and a bound on the error of these sums."""
        k = min(max(math.floor(epsilon / self.h) + 1 - self.start, 0), len(self.p) - 1)
        p, q = self.p[k], self.q[k] * np.exp(np.longdouble(epsilon)) if self.q[k] else _ZERO
        value = self.infinite + float(p - q)
        unit = 4 * (len(self.p) + 16) * float(np.finfo(np.longdouble).eps)
        return value, unit * float(abs(p) + abs(q)) + 4 * _ROUND * abs(value)

    def upper(self, epsilon: float) -> float:
        value, error = self._read(epsilon)
        return min(max(value + error + self.above, 0.0), 1.0)

    def lower(self, epsilon: float) -> float:
        near = self._read(epsilon)[0]
        if near <= self.below:
            return 0.0
        chance = max(near, 1e-300) * 1e-3
        width = self.count * self.h**2
        shift = width / 8 + math.sqrt(width * -math.log(chance) / 2)
        value, error = self._read(math.nextafter(epsilon + shift * (1 + 1e-12), math.inf))
        return max(value - error - chance * (1 + 1e-9) - self.below, 0.0)


@functools.lru_cache(maxsize=32)
def _account(parts: Counts, one_way: bool | None, h: float) -> _Account:
    """The composition of all parts: equal ones by self-composition, then the smallest first."""
    above = below = transform = 0.0
    heap: list[tuple[int, int, Any]] = []
    for part, times in parts:
        grid = _grid(part, None if part.symmetric else one_way, h)
        above += times * grid.above
        below += times * grid.below
        pmf = _pld_pmf().DensePLDPmf(h, grid.first, grid.masses, grid.infinite, True)
        if times > 1:
            repeated = pmf.self_compose(times, _TRUNCATION)
            transform += _power_error(grid.masses, times, repeated.size)
            pmf = repeated
        heapq.heappush(heap, (pmf.size, len(heap), pmf))
    for order in range(len(heap), 2 * len(heap) - 1):
        (_, _, one), (_, _, two) = heapq.heappop(heap), heapq.heappop(heap)
        transform += _product_error(one._probs, two._probs)
        both = one.compose(two, 0.0)
        heapq.heappush(heap, (both.size, order, both))
    transform *= 1.01
    count = sum(times for _, times in parts)
    return _sums(heap[0][2], h, count, above + transform, below + above + transform)


def _sums(pmf: Any, h: float, count: int, above: float, below: float) -> _Account:
    """Sums over the losses of at least 0, which are all that epsilon >= 0 needs."""
    start = max(pmf._lower_loss, 0)
    masses = pmf._probs[start - pmf._lower_loss :].astype(np.longdouble)
    weights = masses * np.exp(-h * (start + np.arange(len(masses))).astype(np.longdouble))
    p, q = (np.append(np.cumsum(x[::-1])[::-1], _ZERO) for x in (masses, weights))
    return _Account(h, count, start, p, q, float(pmf._infinity_mass), above, below)


@functools.lru_cache(maxsize=512)
def _grid(part: PrivacyLoss, one_way: bool | None, h: float) -> _Grid:
    """Connect the dots of one order's curve, or of the worse order's where one_way is None.

    Masses at positive losses come from the curve, those at negative losses from the other
    order's, being e^loss times its masses, so that both keep their relative accuracy.
    """
    count = math.ceil(_reach(part) / h) + 1
    lower, upper = _values(_curve(part, one_way), h, count)
    if one_way is None or part.symmetric:
        other_lower, other_upper = lower, upper
    else:
        other_lower, other_upper = _values(_curve(part, not one_way), h, count)
    ahead, behind = _dots(upper, h), _dots(other_upper, h)
    grid = h * np.arange(1, count + 1)
    behind = (behind * np.exp(-grid))[::-1]
    centre = max(0.0, 1 - math.fsum(ahead) - math.fsum(behind) - float(upper[-1]))
    masses = np.concatenate([behind, [centre], ahead])
    infinite = float(upper[-1])

    wide = np.longdouble
    points = h * np.arange(-count, count + 1).astype(wide)
    after_p = np.append(np.cumsum(masses[:0:-1].astype(wide))[::-1], wide(0))
    weights = masses.astype(wide) * np.exp(-points)
    after_q = np.append(np.cumsum(weights[:0:-1])[::-1], wide(0))
    curve = infinite + after_p - np.exp(points) * after_q
    mirror = np.exp(points[:count])
    most = np.concatenate([1 - mirror + mirror * other_upper[:0:-1], upper.astype(wide)])
    least = np.concatenate([1 - mirror + mirror * other_lower[:0:-1], lower.astype(wide)])
    whole = infinite + after_p[0] + masses[0]
    noise = 8 * (count + 8) * float(np.finfo(wide).eps)
    above = max(0.0, float(np.max(most - curve)), float(1 - whole)) + noise
    excess = max(0.0, float(np.max(curve - least)), float(whole - 1)) + noise
    return _Grid(-count, masses, infinite, above, excess + float(masses[0]) + infinite)


def _values(
    curve: Callable[[float], Bounds], h: float, count: int
) -> tuple[np.ndarray[Any, np.dtype[np.float64]], np.ndarray[Any, np.dtype[np.float64]]]:
    """Both bounds of a curve at 0, h, .., count h."""
    found = np.array([curve(h * j) for j in range(count + 1)], dtype=np.float64)
    upper: np.ndarray[Any, np.dtype[np.float64]] = np.minimum.accumulate(found[:, 1])
    return found[:, 0], upper


def _dots(
    upper: np.ndarray[Any, np.dtype[np.float64]], h: float
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Masses at h, 2h, .. of the chords through a curve's values at 0, h, 2h, .."""
    steps = np.diff(upper)
    inner = (steps[1:] - math.exp(h) * steps[:-1]) / math.expm1(h)
    masses: np.ndarray[Any, np.dtype[np.float64]] = np.append(inner, steps[-1] / math.expm1(-h))
    return masses.clip(min=0.0)


def _curve(part: PrivacyLoss, one_way: bool | None) -> Callable[[float], Bounds]:
    if one_way is None or part.symmetric:
        return part.delta
    return lambda epsilon: part.ordered(epsilon, reverse=one_way)


@functools.lru_cache(maxsize=512)
def _reach(part: PrivacyLoss) -> float:
    """An epsilon beyond which the curve is as good as flat."""
    most = min(part.pure_epsilon.upper, _FAR)
    floor = part.delta(_FAR).upper * (1 + 1e-6) + _TAIL
    low, high = 0.0, min(most, max(_shift(part), 1e-9))
    while high < most and part.delta(high).upper > floor:
        low, high = high, min(2 * high, most)
    while high - low > 0.02 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if part.delta(middle).upper > floor else (low, middle)
    return high


@functools.lru_cache(maxsize=512)
def _shift(part: PrivacyLoss) -> float:
    """The mu of the Gaussian loss with the same advantage, or the same mean if that is near 1."""
    advantage = part.delta(0.0).upper
    mean = part.renyi(1).upper if advantage > 1 - 1e-9 else math.inf
    if mean < math.inf:
        return math.sqrt(2 * mean)
    return 2 * NormalDist().inv_cdf((1 + min(advantage, 1 - 1e-9)) / 2) if advantage else 0.0


def _weight(part: PrivacyLoss) -> int:
    """What one evaluation of a curve costs, roughly, in those of the cheapest."""
    if isinstance(part, DrawsLoss) and part.lattice.draws > FEW_DRAWS:
        return 30
    return {DiscreteGaussianLoss: 12, DiscreteLoss: 4}.get(type(part), 1)


@functools.lru_cache(maxsize=512)
def _is_sharp(part: PrivacyLoss) -> bool:
    """Whether the lower bound on the curve is worth composing."""
    low, high = part.delta(0.0)
    return high - low < 1e-9


def _power_error(masses: np.ndarray[Any, Any], times: int, size: int) -> float:
    """Bound on the sum of absolute errors of a self-composition."""
    length = fft.next_fast_len(max(size, len(masses)))
    unit = 8 * _ROUND * (1 + math.log2(length))
    spectrum = np.maximum(np.abs(fft.fft(masses, length)) + unit, 1e-300)
    power = spectrum**times
    phases = 4 * _ROUND * (times * (np.abs(np.log(spectrum)) + math.pi) + 4)
    forward = np.linalg.norm(power * (times * unit / spectrum + phases))
    return float(forward + unit * np.sum(power)) + 2 * _TRUNCATION


def _product_error(one: np.ndarray[Any, Any], two: np.ndarray[Any, Any]) -> float:
    """Bound on the sum of absolute errors of a convolution."""
    length = 2 * (len(one) + len(two))
    unit = 8 * _ROUND * (1 + math.log2(length))
    a, b = float(np.linalg.norm(one)), float(np.linalg.norm(two))
    sums = float(np.abs(one).sum()) * b + float(np.abs(two).sum()) * a
    return 1.1 * unit * (math.sqrt(length) * sums + length * a * b)


@functools.cache
def _pld_pmf() -> ModuleType:
    """dp-accounting's masses, without the handler that its logging library leaves at the root."""
    before = list(logging.root.handlers)
    found = importlib.import_module("dp_accounting.pld.pld_pmf")
    logging.root.handlers[:] = before
    return found


def _counted(parts: Iterable[PrivacyLoss]) -> dict[PrivacyLoss, int]:
    """How often each part occurs; the same object is not hashed twice."""
    same: dict[int, tuple[PrivacyLoss, int]] = {}
    for part in parts:
        same[id(part)] = part, same.get(id(part), (part, 0))[1] + 1
    counts: dict[PrivacyLoss, int] = {}
    for part, times in same.values():
        counts[part] = counts.get(part, 0) + times
    return counts


def _merged(counts: dict[PrivacyLoss, int]) -> tuple[PrivacyLoss, ...]:
    """Equal kinds as one loss, where that is exact; parts that cost nothing left out."""
    square = Fraction(0)
    draws: dict[tuple[Fraction, Fraction], int] = {}
    laplace: dict[tuple[Fraction, int], int] = {}
    noise: dict[tuple[Fraction, int], int] = {}
    merged: list[PrivacyLoss] = []
    for part, times in counts.items():
        if part.delta(0.0).upper == 0:
            continue
        if isinstance(part, GaussianLoss):
            square += times * part.mu_squared
        elif isinstance(part, DrawsLoss):
            pair = part.lattice.up, part.lattice.down
            draws[pair] = draws.get(pair, 0) + times * part.lattice.draws
        elif isinstance(part, DiscreteLaplaceLoss):
            kind = part.scale, part.shift
            laplace[kind] = laplace.get(kind, 0) + times * part.cells
        elif isinstance(part, DiscreteGaussianLoss):
            kind = part.sigma_squared, part.shift
            cells = noise.get(kind, 0) + times * part.cells
            if cells <= _MOST_CELLS:
                noise[kind] = cells
            else:
                merged.extend([part] * times)
        else:
            merged.extend([part] * times)
    root = Fraction(math.isqrt(square.numerator), math.isqrt(square.denominator))
    if root**2 == square:
        merged.append(GaussianLoss(root))
    else:
        merged.append(GaussianLoss(Fraction(0), square))
    merged += [DrawsLoss(LatticeLoss(up=a, down=b, draws=m)) for (a, b), m in draws.items()]
    merged += [DiscreteLaplaceLoss(a, b, cells) for (a, b), cells in laplace.items()]
    merged += [DiscreteGaussianLoss(a, b, cells) for (a, b), cells in noise.items()]
    free = GaussianLoss(Fraction(0))
    return tuple(part for part in merged if part != free) or (free,)


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
        lower = _outwards(total(lows)).lower
        if any(math.isinf(high) for high, _ in highs):
            return Bounds(lower, math.inf)
        return Bounds(lower, _outwards(total(highs)).upper)
