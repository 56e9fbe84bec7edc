"""Privacy loss distributions on a grid h Z, with bounds on either side of their composition.

**Many draws.** ``mechanisms.accounting.draws`` finds one value of the curve with small relative
error, by an integral of its own. Composition asks for thousands of values of the same curve, where
an absolute error far below any delta will do. The sum S of m steps has its masses by a discrete
Fourier transform of length M in ball arithmetic,

    c_j = 1/M sum over k of phi(z_k)^m z_k^-j = sum over r of Pr[S = j + r M],

z_k = e^(2 pi i k/M). Whatever lies outside -W..W, 2 W < M, falls on one c_j, so every sum within
the window is known up to t = Pr[|S| > W], bounded by exp(-x s) phi(e^x)^m for s = W + 1 and
the x near the best (Chernoff). Then delta(epsilon) = Pr[S >= j] - e^epsilon Pr[S <= -j] for the
first j whose loss passes epsilon, the pair being symmetric.

**Upper bound.** Each part's curve, evaluated by proven bounds on the grid h Z, is replaced by its
chords in e^epsilon: connect the dots (Doroshenko et al. 2022, arXiv 2207.04380). That pair
dominates the part, so the convolution dominates the composition (Zhu, Dong and Wang 2022, arXiv
2106.08567, Theorem 10).

**Lower bound.** Connecting the dots moves a loss L between two grid points to L + E, with one
of the two points as result and E[e^-E | L] = 1. So E | L spans h, has mean at most h^2/8 and,
by Hoeffding's lemma, for n parts Pr[sum of E > n h^2/8 + s] <= exp(-2 s^2 / (n h^2)). Hence

    delta(epsilon) >= delta'(epsilon + n h^2/8 + s) - exp(-2 s^2 / (n h^2)) - (mass moved further),

delta' the upper curve. The excess grows with h sqrt(n), never with h n.

**Rounding.** If two curves differ by at most s everywhere, then so do their compositions with
any third. The curve of the masses actually convolved is compared with the proven one at every
grid point and the largest difference is added (subtracted), and so is the error of the
convolutions.

**Convolutions.** The n-fold sum of independent losses on a grid is the n-th power of one transform
(Koskela, Jälkö and Honkela 2020, arXiv 1906.03049). Its transform is as long as the window in which
the sum lies but for a mass of ``TRUNCATION``, by Chernoff's bound at a few orders; what lies
outside wraps around.

The computed transform of x has an error of at most 8 u (1 + log2 N) |x|_1 in every
entry, u = 2^-53: the textbook bound with room to spare (Higham 2002, Accuracy and Stability of
Numerical Algorithms, chapter 24). That NumPy's transform (pocketfft) obeys it is assumed. SciPy's
is the same code and gives the same bits, but its import takes longer than most plans.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from flint import acb, arb, ctx

from statpress.mechanisms.accounting.balls import Bounds, Floats, ball, outwards
from statpress.mechanisms.accounting.draws import DrawsLoss, contour_delta
from statpress.mechanisms.accounting.losses import PrivacyLoss

MOST_POINTS = 1 << 14
"""The longest transform; a wider lattice has no table."""

_BITS = 192
_TABLE_TAIL = 2.0**-120
_STRIDE = 16  # between looks at how much is left


@dataclass(frozen=True, kw_only=True)
class TabulatedLoss(DrawsLoss):
    """The loss of draws whose window fits a table (``fits``)."""

    @functools.cached_property
    def _table(self) -> tuple[arb, list[tuple[arb, arb]]]:
        """The step between losses, and the sums; kept here, where asking takes no hash."""
        with ctx.workprec(_BITS):
            return ball(self.up / self.down).log(), _table_sums(self)

    def _ahead(self, epsilon: float) -> Bounds:
        step, table = self._table
        with ctx.workprec(_BITS):
            first = (arb(epsilon) / step).floor().unique_fmpz()
            if first is None:
                return contour_delta(self, epsilon)
            place = min(int(first) + 1, len(table) - 1)
            above, below = table[place]
            value = above - arb(epsilon).exp() * below
            low, high = outwards(value, 1.0)
            if not value.upper() <= above.upper():
                high = min(high, outwards(above, 1.0).upper)
            return Bounds(low, high)

    def epsilon(self, delta: float) -> Bounds:
        """As the contour proves it, looked for first where the table has it."""
        return self._epsilon(delta, self._near(delta))

    def _near(self, delta: float) -> float | None:
        """About the epsilon at a delta: up to step j the curve is A_j - e^epsilon B_j."""
        step, table = self._table
        with ctx.workprec(_BITS):
            low, high = 0, len(table) - 1
            while high - low > 1:
                j = (low + high) // 2
                above, below = table[j]
                low, high = (j, high) if above - (step * j).exp() * below > delta else (low, j)
            above, below = table[high]
            found = ((above - delta) / below).log()
            return float(found) if found.is_finite() and found > 0 else None


def fits(loss: DrawsLoss) -> bool:
    """Whether a table of the loss is possible and worth its while."""
    return not loss.is_free and 2 * _window(loss) < MOST_POINTS


@functools.lru_cache(maxsize=256)
def _window(loss: DrawsLoss) -> int:
    """A W with Pr[|S| > W] below the tail."""
    mean = loss.draws * float(loss.up - loss.down)
    sd = math.sqrt(loss.draws * float(loss.up + loss.down))
    width = mean + 13 * sd + 30
    while width < MOST_POINTS and not _outside(loss, math.ceil(width) + 1) < _TABLE_TAIL:
        width *= 1.25
    return min(math.ceil(width), loss.draws)


def _outside(loss: DrawsLoss, start: int) -> arb:
    """An upper bound on Pr[|S| >= start], at the precision of the moment."""
    if start > loss.draws:
        return arb(0)
    mean, variance = (loss.draws * float(loss.up + s * loss.down) for s in (-1, 1))
    tilt = math.asinh((start - mean) / max(variance, 1e-300))
    z, up, down = arb(tilt).exp(), ball(loss.up), ball(loss.down)
    one, other = (
        (1 + a * (z - 1) + b * (1 / z - 1)) ** loss.draws for a, b in ((up, down), (down, up))
    )
    return (one + other) * (-arb(tilt) * start).exp()


@functools.lru_cache(maxsize=128)
def _table_sums(loss: DrawsLoss) -> list[tuple[arb, arb]]:
    """Pr[S >= j] and Pr[S <= -j] for j = 0..W + 1."""
    width = _window(loss)
    return _sums_within(loss, width, _outside(loss, width + 1))


def _sums_within(loss: DrawsLoss, width: int, moved: arb) -> list[tuple[arb, arb]]:
    """The sums for a window W outside of which there is at most so much on either side."""
    points = 1 << (2 * width + 1).bit_length()
    with ctx.workprec(_BITS + 2 * max(loss.draws, 2).bit_length()):
        half = _spectrum(loss, points)
        powers = half + [value.conjugate() for value in half[-2:0:-1]]
        masses = [value.real / points for value in acb.dft(powers)]
        error = (-moved).union(moved)
        ends = (masses[width::-1], [masses[-j] for j in range(width, -1, -1)])
        above, below = (itertools.accumulate(end, initial=error) for end in ends)
        return [*zip(above, below, strict=True)][::-1]


def _spectrum(loss: DrawsLoss, points: int) -> list[acb]:
    """phi(z_k)^m for k = 0..points/2, at the precision of the moment.

    |phi(e^iu)|^2 = 1 - 2 v x + b x^2 with x = 1 - cos u is convex, so of a run of k it is largest
    at an end. Where it is too small to be seen at both ends of what is left, a ball around 0
    stands for each.
    """
    up, down = ball(loss.up), ball(loss.down)
    rest = ball(1 - loss.up - loss.down)
    v, b = up + down - (up - down) ** 2, 4 * up * down
    last, unseen = points // 2, arb(2) ** -(int(ctx.prec) + 16)

    def height(k: int) -> arb:
        x = 1 - (arb.pi() * 2 * k / points).cos()
        return (1 - 2 * v * x + b * x**2).abs_upper() ** (arb(loss.draws) / 2)

    far, found = height(last), []
    for k in range(last + 1):
        if k % _STRIDE == 0 and far < unseen and (near := height(k)) < unseen:
            most = near.max(far).upper()
            around = (-most).union(most)
            found += [acb(around, around)] * (last + 1 - k)
            break
        z = acb.exp_pi_i(acb(arb(2 * k) / points))
        found.append((rest + up * z + down / z) ** loss.draws)
    return found


_FARTHEST = 11_000.0  # the logarithm of what an extended number can hold, and less
_SMALL = 1e-6  # advantage, below which the normal density is as good as flat
_TAIL = 1e-18  # a part's curve is followed to here,
_FAR = 4096.0  # or to this epsilon
_MOVED = 1e-24
_ZERO = np.longdouble(0)

Counts = tuple[tuple[PrivacyLoss, int], ...]


@dataclass(frozen=True)
class _Grid:
    """Masses at h j for j >= first, of one part or more, and the slack of both bounds."""

    first: int
    masses: Floats
    infinite: float
    above: float
    below: float


GridOf = Callable[[PrivacyLoss, float], _Grid]


@dataclass(frozen=True)
class Account:
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

    @classmethod
    def of_tails(cls, parts: Counts, h: float) -> Account:
        """The composition of all parts by sums of products, for small deltas; no lower bound.

        Every mass is a sum of non-negative products, with an error relative to itself, and not
        to the largest mass as a transform's is. After each product the lowest and the highest
        losses, of mass below 1e-24, are moved to the next kept one and to infinity.
        """
        whole = _Grid(0, np.ones(1), 0.0, 0.0, 0.0)
        for part, times in parts:
            power = _grid(part, h)
            while times:
                whole = _product(whole, power) if times % 2 else whole
                times //= 2
                power = _product(power, power) if times else power
        return _sums(whole, h, sum(times for _, times in parts), 1.0)

    def _read(self, epsilon: float) -> tuple[float, float]:
        """The curve at epsilon >= 0, and a bound on the error of these sums."""
        k = min(max(math.floor(epsilon / self.h) + 1 - self.start, 0), len(self.p) - 1)
        with np.errstate(over="ignore"):
            p, q = self.p[k], self.q[k] * np.exp(np.longdouble(epsilon)) if self.q[k] else _ZERO
        if not np.isfinite(q):  # past the numbers; it is not negative
            q = _ZERO
        value = self.infinite + float(p - q)
        unit = 4 * (len(self.p) + 16) * float(np.finfo(np.longdouble).eps)
        return value, unit * float(abs(p) + abs(q)) + 4 * UNIT * abs(value)

    def upper(self, epsilon: float) -> float:
        value, error = self._read(epsilon)
        return min(max(value + error + self.above, 0.0), 1.0)

    def lower(self, epsilon: float) -> float:
        near = self._read(epsilon)[0]
        if near <= self.below or epsilon > _FARTHEST:
            return 0.0
        chance = max(near, 1e-300) * 1e-3
        width = self.count * self.h**2
        shift = width / 8 + math.sqrt(width * -math.log(chance) / 2)
        value, error = self._read(math.nextafter(epsilon + shift * (1 + 1e-12), math.inf))
        return max(value - error - chance * (1 + 1e-9) - self.below, 0.0)


@functools.lru_cache(maxsize=32)
def account(parts: Counts, h: float, grid_of: GridOf | None = None) -> Account:
    """The composition of all parts: equal ones by self-composition, then the smallest first.

    ``grid_of`` puts the losses of a part on the grid of interval h: by default they are enclosed.
    """
    above = below = error = 0.0
    heap: list[tuple[int, int, _Grid]] = []
    for part, times in parts:
        grid = (grid_of or _grid)(part, h)
        above += times * grid.above
        below += times * grid.below
        if times > 1:
            first, masses, off = power(grid.masses, times)
            error += off
            # 1 - (1 - infinite)^times, and what may lie outside the window
            rest = TRUNCATION + (
                -math.expm1(times * math.log1p(-grid.infinite)) if grid.infinite < 1 else 1.0
            )
            grid = _Grid(times * grid.first + first, masses, rest, 0.0, 0.0)
        heapq.heappush(heap, (len(grid.masses), len(heap), grid))
    for order in range(len(heap), 2 * len(heap) - 1):
        (_, _, one), (_, _, two) = heapq.heappop(heap), heapq.heappop(heap)
        error += product_error(one.masses, two.masses)
        masses = product(one.masses, two.masses)
        infinite = one.infinite + two.infinite - one.infinite * two.infinite
        both = _Grid(one.first + two.first, masses, infinite, 0.0, 0.0)
        heapq.heappush(heap, (len(masses), order, both))
    error *= 1.01
    count = sum(times for _, times in parts)
    whole = heap[0][2]
    grid = _Grid(whole.first, whole.masses, whole.infinite, above + error, below)
    return _sums(grid, h, count, below + above + error)


def _sums(grid: _Grid, h: float, count: int, below: float) -> Account:
    """Sums over the losses of at least 0, which are all that epsilon >= 0 needs."""
    start = max(grid.first, 0)
    masses = grid.masses[start - grid.first :].astype(np.longdouble)
    weights = masses * np.exp(-h * (start + np.arange(len(masses))).astype(np.longdouble))
    p, q = (np.append(np.cumsum(x[::-1])[::-1], _ZERO) for x in (masses, weights))
    return Account(h, count, start, p, q, float(grid.infinite), grid.above, below)


def _product(one: _Grid, two: _Grid) -> _Grid:
    """Losses added; slacks add up, since curves that differ by s compose to such as do."""
    masses = np.convolve(one.masses, two.masses)
    terms = min(len(one.masses), len(two.masses)) + 8
    masses *= 1 + 2 * UNIT * terms  # each at least its exact sum of products
    behind, ahead = np.cumsum(masses), np.cumsum(masses[::-1])
    low = min(int(np.searchsorted(behind, _MOVED)), len(masses) - 1)
    high = max(len(masses) - int(np.searchsorted(ahead, _MOVED)), low + 1)
    kept = masses[low:high].copy()
    kept[0] += 1.001 * masses[:low].sum()
    far = 1.001 * float(masses[high:].sum()) + one.infinite + two.infinite
    return _Grid(one.first + two.first + low, kept, far, one.above + two.above, 0.0)


@functools.lru_cache(maxsize=512)
def _grid(part: PrivacyLoss, h: float) -> _Grid:
    """Connect the dots of the curve.

    Masses at positive losses come from the curve, those at negative losses from its mirror
    image, being e^loss times its masses, so that both keep their relative accuracy.
    """
    count = math.ceil(reach(part) / h) + 1
    lower, upper = tabulated(part).curve(h, count)
    upper = np.minimum.accumulate(upper)
    ahead = _dots(upper, h)
    grid = h * np.arange(1, count + 1)
    behind = (ahead * np.exp(-grid))[::-1]
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
    most = np.concatenate([1 - mirror + mirror * upper[:0:-1], upper.astype(wide)])
    least = np.concatenate([1 - mirror + mirror * lower[:0:-1], lower.astype(wide)])
    whole = infinite + after_p[0] + masses[0]
    noise = 8 * (count + 8) * float(np.finfo(wide).eps)
    above = max(0.0, float(np.max(most - curve)), float(1 - whole)) + noise
    excess = max(0.0, float(np.max(curve - least)), float(whole - 1)) + noise
    return _Grid(-count, masses, infinite, above, excess + float(masses[0]) + infinite)


def _dots(upper: Floats, h: float) -> Floats:
    """Masses at h, 2h, .. of the chords through a curve's values at 0, h, 2h, .."""
    steps = np.diff(upper)
    inner = (steps[1:] - math.exp(h) * steps[:-1]) / math.expm1(h)
    masses: Floats = np.append(inner, steps[-1] / math.expm1(-h))
    return masses.clip(min=0.0)


@functools.lru_cache(maxsize=512)
def tabulated(part: PrivacyLoss) -> PrivacyLoss:
    """The loss in the form whose curve is cheapest to evaluate often."""
    if isinstance(part, DrawsLoss) and fits(part):
        return TabulatedLoss(up=part.up, down=part.down, draws=part.draws)
    return part


@functools.lru_cache(maxsize=512)
def reach(part: PrivacyLoss) -> float:
    """An epsilon beyond which the curve is as good as flat."""
    most, part = min(part.pure_epsilon.upper, _FAR), tabulated(part)
    floor = part.delta(_FAR).upper * (1 + 1e-6) + _TAIL
    low, high = 0.0, min(most, max(equivalent_mu(part), 1e-9))
    while high < most and part.delta(high).upper > floor:
        low, high = high, min(2 * high, most)
    while high - low > 0.02 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if part.delta(middle).upper > floor else (low, middle)
    return high


@functools.lru_cache(maxsize=512)
def equivalent_mu(part: PrivacyLoss) -> float:
    """The mu of the Gaussian loss with the same advantage, or the same mean if that is near 1."""
    advantage = part.delta(0.0).upper
    mean = part.renyi(1).upper if advantage > 1 - 1e-9 else math.inf
    if mean < math.inf:
        return math.sqrt(2 * mean)
    if advantage < _SMALL:
        return math.sqrt(2 * math.pi) * advantage
    return 2 * NormalDist().inv_cdf((1 + min(advantage, 1 - 1e-9)) / 2)


TRUNCATION = 1e-15
"""Mass that a power may leave outside its window."""

UNIT = 2.0**-53
"""Relative error of one rounding."""

_ORDERS = (*range(-20, 0), *range(1, 21))  # of Chernoff's bound, over the number of masses


class Power(NamedTuple):
    """The law of a sum of equally distributed losses.

    Attributes:
        first: Index of the first mass, that of a single loss being 0.
        masses: float64[k].
        error: Bound on the sum of absolute errors of the masses, without ``TRUNCATION``
            outside the window.
    """

    first: int
    masses: Floats
    error: float


def power(masses: Floats, times: int) -> Power:
    """The sum of ``times`` independent losses with the masses float64[m]."""
    first, last = _kept_range(masses, times)
    size = last - first + 1
    length = fast_length(max(size, len(masses)))
    half = np.fft.rfft(masses, length)
    transform = np.concatenate([half, half[1 : (length + 1) // 2][::-1].conj()])
    whole = np.real(np.fft.ifft(transform**times))

    unit = 8 * UNIT * (1 + math.log2(length))
    spectrum = np.maximum(np.abs(transform) + unit, 1e-300)
    powers = spectrum**times
    phases = 4 * UNIT * (times * (np.abs(np.log(spectrum)) + math.pi) + 4)
    forward = np.linalg.norm(powers * (times * unit / spectrum + phases))
    error = float(forward + unit * np.sum(powers)) + 2 * TRUNCATION
    return Power(first, np.roll(whole, -first)[:size], error)


def product(one: Floats, two: Floats) -> Floats:
    """The sum of two independent losses: float64[a] and float64[b] to float64[a + b - 1]."""
    size = len(one) + len(two) - 1
    if min(len(one), len(two)) == 1:
        return one * two
    length = fast_length(size, largest=5)
    spectrum = np.fft.rfft(one, length) * np.fft.rfft(two, length)
    whole: Floats = np.fft.irfft(spectrum, length)
    return whole[:size].copy()


def product_error(one: Floats, two: Floats) -> float:
    """Bound on the sum of absolute errors of a product."""
    length = 2 * (len(one) + len(two))
    unit = 8 * UNIT * (1 + math.log2(length))
    a, b = float(np.linalg.norm(one)), float(np.linalg.norm(two))
    sums = float(np.abs(one).sum()) * b + float(np.abs(two).sum()) * a
    return 1.1 * unit * (math.sqrt(length) * sums + length * a * b)


def fast_length(size: int, largest: int = 11) -> int:
    """The least length of at least ``size`` without a prime factor above ``largest``."""
    lengths = _fast_lengths((size - 1).bit_length(), largest)
    return lengths[bisect_left(lengths, size)]


@functools.cache
def _fast_lengths(bits: int, largest: int) -> list[int]:
    """All of them up to a power of two, in their order."""
    most, found = 1 << bits, [1 << bit for bit in range(bits + 1)]
    for prime in (3, 5, 7, 11):
        if prime > largest:
            break
        for each in list(found):
            grown = each * prime
            while grown < most:
                found.append(grown)
                grown *= prime
    return sorted(found)


def _kept_range(masses: Floats, times: int) -> tuple[int, int]:
    """First and last index within which the sum lies but for ``TRUNCATION``."""
    first, last = 0, (len(masses) - 1) * times
    places = np.arange(len(masses))
    for multiple in _ORDERS:
        order = multiple / len(masses)
        most = (len(masses) - 1) * max(order, 0.0)  # no exponent above 0
        total = float(masses @ np.exp(places * order - most))
        if not total > 0:
            continue
        moment = most + math.log(total)
        bound = (times * moment + math.log(2 / TRUNCATION)) / order
        if not math.isfinite(bound):
            continue
        if order > 0:
            last = min(last, math.ceil(bound))
        else:
            first = max(first, math.floor(bound))
    return first, max(first, last)  # of less mass than that, anywhere
