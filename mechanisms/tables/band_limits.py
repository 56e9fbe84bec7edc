"""Bounds behind the confidence bands of a table: tails of noise, limits of shares, cumulated noise.

**Tails of the noise on one cell.** The noise is symmetric with one peak: exp(-|z|/scale) or
exp(-z^2/(2 scale^2)) over the integers. Every figure is P(Z >= k) or more. That of Laplace noise is
in closed form. Of the Gaussian it is summed over the integers up to a scale of 2^12; above, with G
standard normal,

    P(Z >= k) = sum over j >= k of exp(-j^2/2s^2)/(normalising sum) <= P(s G >= k - 1)  for k >= 1,

as the terms decrease and the normalising sum is at least s sqrt(2 pi) (Poisson summation), and at
least P(s G >= k), but for a factor within 10^-2000 of 1, from which P(Z >= k) follows for k <= 0.

**How far the cumulated noise of ordered cells strays, all sums at once.** Let Z_1 .. Z_K be the
noise of K cells and S_i = Z_1 + .. + Z_i. The number of records is public, so the noisy counts show
the last sum S_K = r. Everything here is given r, hence valid on average: a bound on
P(max over i of |S_i - centre_i| >= x | S_K = r) for a known centre.

*Gaussian noise of scale s >= 2*, centre_i = i r/K. Given r a path has a probability proportional
to the product of exp(-z_i^2/2s^2), so also to that of exp(-(z_i - r/K)^2/2s^2). Let T be the walk
with steps z_i - r/K of that law; given T_K = 0 it is S_i - i r/K. Its sum of m steps is u with
probability f_m(u) = C_m exp(-u^2/2ms^2) up to a factor within 1 +- m 10^-16 (add one step after the
other: each time a theta sum of variance s^2 m/(m + 1) >= s^2/2 appears, which by Poisson summation
is a constant within 1 +- 2.1 exp(-pi^2 s^2)). Let a = floor(2x)/2 and stop at the first t with T_t
= u >= a. As |2a - u| <= u and 2a is an integer, 2a - u is a sum that K - t steps can have, and
f_(K-t)(-u) <= f_(K-t)(2a - u) but for that factor: reflection (Lévy 1939; here with what the walk
passes a by). Summed over t and u,

    P(max T_i >= a, T_K = 0) <= P(T_K = 2a),  so  P(max T_i >= a | T_K = 0) <= exp(-2a^2/(K s^2)),

and twice that for both sides, the law of a Brownian bridge's largest value.

*Any noise that is symmetric with one peak*, centre_i = r/2. The sum of m steps has such a law p_m
too (a mixture of uniform laws about 0, whose sums have one peak: Wintner 1938), so that p_m(u - r)
<= p_m(2a - r - u) for u >= a >= max(r, 0), and in the same way

    P(max |S_i - r/2| >= x | S_K = r) <= 2 p_K(ceil(2x))/p_K(r).

*Small tables*: the probability that the walk stays between the lines about i r/K and ends at r is
computed step by step, which is exact, and a tenth less than the bound for twenty cells.

*Drawn records*: of m draws from the smoothed shares the cumulated shares err by x or more with
probability at most 2 exp(-2 m x^2) (Dvoretzky, Kiefer and Wolfowitz 1956, with the constant of
Massart 1990, doi 10.1214/aop/1176990746).

**What is released in a cell**, as a law by its count and by its share. *Counts, independent noise*:
|y_j - h_j| <= q for all cells has the probability (1 - 2 P(Z >= q + 1))^K, exactly, and q is the
least that makes it the level. *Counts, drawn records*: z_j is Binomial(m, (h_j + k)/N) given h, N =
n + kK. Each h_j is limited as Clopper and Pearson (1934) do, at (1 - level)/2K for each end; some
limit fails with probability at most 1 - level (Bonferroni). *Shares*: what is released in a cell,
y = h + Z or z, is stochastically larger the larger h is, and h is Binomial(n, p), larger the larger
p is. So for an observed y the p with P(Y >= y; p) <= a are those below a limit, which is above the
true share with probability at most a: Clopper and Pearson's limit with the noise inside, and not a
limit of the noise and another one of sampling, each with a part of the level. The laws are rounded
upwards to nodes, and what is beyond the last counts as failing: P(Y >= y; p) is never less than
the truth.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.postprocessing.consistency import Floats

_SUMMED = 2.0**12
_REACH = 37.0  # deviations beyond which the terms are not doubles


@dataclass(frozen=True)
class DiscreteNoise:
    """Noise on one cell.

    Attributes:
        scale: In records.
        laplace: Whether it is Laplace; else Gaussian.
    """

    scale: float
    laplace: bool = False

    @property
    def sd(self) -> float:
        """An upper bound on the standard deviation, in records."""
        if not self.laplace:
            return self.scale
        return math.sqrt(2) * math.exp(-0.5 / self.scale) / -math.expm1(-1 / self.scale)

    def at_least(self, k: Codes) -> Floats:
        """P(Z >= k), or a little more, float64 of the shape of k."""
        k = np.asarray(k, np.int64)
        above = self._at_least(np.maximum(k, 1), 1)
        return np.where(k > 0, above, 1 - self._at_least(np.maximum(1 - k, 1), 0))

    def _at_least(self, k: Codes, more: int) -> Floats:
        """P(Z >= k) for k >= 1; of a large scale a little more if ``more`` is 1, less if 0."""
        if self.laplace:
            ratio = math.exp(-1 / self.scale)
            return np.asarray(np.exp(-k / self.scale) / (1 + ratio))
        if self.scale > _SUMMED:
            from scipy.special import ndtr

            return np.asarray(ndtr(-(k - more) / self.scale))
        tails = _gaussian_tails(self.scale)
        return np.asarray(np.where(k < len(tails), tails[np.minimum(k, len(tails) - 1)], 0.0))

    def masses(self, reach: int) -> Floats:
        """P(Z = k) for k from -reach to reach, float64[2 reach + 1]."""
        k = np.abs(np.arange(-reach, reach + 1, dtype=np.float64))
        terms = np.exp(-k / self.scale) if self.laplace else np.exp(-((k / self.scale) ** 2) / 2)
        return np.asarray(terms / self._normalising())

    def _normalising(self) -> float:
        if self.laplace:
            return (1 + math.exp(-1 / self.scale)) / -math.expm1(-1 / self.scale)
        k = np.arange(1, math.ceil(_REACH * self.scale) + 2, dtype=np.float64)
        return 1 + 2 * float(np.sum(np.exp(-((k / self.scale) ** 2) / 2)))

    def quantile(self, tail: float) -> int:
        """The least k >= 1 with P(Z >= k) at most ``tail``."""
        low, high = 0, 1
        while float(self.at_least(np.array([high]))[0]) > tail:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            fits = float(self.at_least(np.array([middle]))[0]) <= tail
            low, high = (low, middle) if fits else (middle, high)
        return high


@functools.lru_cache(maxsize=8)
def _gaussian_tails(scale: float) -> Floats:
    """P(Z >= k) by k, summed from the far end."""
    k = np.arange(math.ceil(_REACH * scale) + 2, dtype=np.float64)
    terms = np.exp(-((k / scale) ** 2) / 2)
    sums = np.cumsum(terms[::-1])[::-1]
    tails: Floats = sums / (2 * sums[0] - 1)
    return tails


Limits = tuple[Floats, Floats]
"""Lower and upper limits float64[K] each."""

LEFT_OUT = 1e-3
"""Share of a limit's probability that stands for what is beyond the last node."""

_ROUNDS = 14
_AT_ONCE = 4096  # numbers of a table of chances


class Exceeding(Protocol):
    """How likely it is that much is released."""

    def exceeding(self, y: Floats, p: Floats, alpha: float, *, other: bool) -> Floats:
        """P(released >= y) or a little more where the share is p, of all others if ``other``."""


def binomial_at_least(k: Floats, n: int, p: Floats) -> Floats:
    """P(Binomial(n, p) >= k) for integers k of any size, float64 of their common shape."""
    from scipy.special import betainc

    inside = np.minimum(np.maximum(k, 1), n)
    found = np.asarray(betainc(inside, n - inside + 1, p))
    return np.where(k <= 0, 1.0, np.where(k > n, 0.0, found))


def _blocks(n: int, width: int) -> list[slice]:
    """Some of n rows of a table at a time, so many that calls of NumPy are few and it is small."""
    rows = max(1, _AT_ONCE // max(width, 1))
    return [slice(first, first + rows) for first in range(0, n, rows)]


def place_limits(law: Exceeding, y: Floats, whole: float, near: Floats, alpha: float) -> Limits:
    """Limits float64[k] of one share at every place, of which y of ``whole`` is released.

    One end of one place fails with probability at most ``alpha``; ``near`` are estimates.
    """
    lower = _lower(law, y, alpha, near, other=False)
    return lower, 1 - _lower(law, whole - y, alpha, 1 - near, other=True)


def _lower(law: Exceeding, y: Floats, alpha: float, near: Floats, *, other: bool) -> Floats:
    """Lower limits float64[k]: shares up to which y or more is less likely than alpha.

    The search ends a little below them: what it returns is a share that was tried.
    """
    low, high = np.zeros(len(y)), np.arcsin(np.sqrt(np.clip(near, 0, 1)))

    def excess(angle: Floats) -> Floats:
        """Nearly a straight line in the angle whose squared sine is the share."""
        chances = law.exceeding(y, np.sin(angle) ** 2, alpha, other=other)
        return np.asarray(
            np.sqrt(-2 * np.log(np.clip(chances, 1e-300, 1.0))) - math.sqrt(-2 * math.log(alpha))
        )

    at_low, at_high = excess(low), np.full(len(y), -math.sqrt(-2 * math.log(alpha)) / 2)
    fits = at_low >= 0  # else not even the share 0 is excluded
    side = np.zeros(len(y))
    for _ in range(_ROUNDS):
        weight = at_low / np.maximum(at_low - at_high, 1e-300)
        middle = low + np.clip(weight, 1e-3, 1 - 1e-3) * (high - low)
        excesses = excess(middle)
        excluded = excesses >= 0
        again = side == np.where(excluded, 1, -1)  # the other end counts half (Illinois)
        low = np.where(excluded, middle, low)
        high = np.where(excluded, high, middle)
        at_low = np.where(excluded, excesses, np.where(again, at_low / 2, at_low))
        at_high = np.where(excluded, np.where(again, at_high / 2, at_high), excesses)
        side = np.where(excluded, 1, -1)
    low = np.sin(low) ** 2 * (1 - 1e-12)
    return np.where(fits, low, 0.0)


Tail = Callable[[Floats], Floats]

ROUNDING = 1 + 1e-7
"""Factor of a bound that is more than all rounding, and more than the factors left out above."""

_LEAST_GAUSSIAN = 2.0
_TIME_NODES, _STEPS = 120, 32
_MOST_WALK = 40_000  # cells times width of a walk that is computed step by step
_MOST_LATTICE = 1 << 22
_TOUCHING = 1e-9  # of a line, within which a sum counts as on it
_SEEN = 1e-9  # likelihood of the last sum below which rounding could matter


@dataclass(frozen=True, eq=False)
class Strays:
    """Of a simultaneous band: how far cumulative counts stray from their estimates by noise.

    Attributes:
        centre: float64[K], what is known of the cumulated noise; estimates are less by it.
        tail: Of x float64[k] the probability that the largest distance is x or more, at most.
        spread: The distance that is typical, in records.
    """

    centre: Floats
    tail: Tail
    spread: float

    def quantile(self, alpha: float) -> float:
        """The critical value, reached with probability at most alpha; infinite if unknown."""
        low, high = 0.0, self.reach(alpha)
        if not math.isfinite(high):
            return high
        for _ in range(2):
            nodes = np.linspace(low, high, _STEPS)[1:]
            fits = np.flatnonzero(self.tail(nodes) <= alpha)
            if not len(fits):
                return high
            place = int(fits[0])
            low, high = float(nodes[place - 1]) if place else low, float(nodes[place])
        return high

    def reach(self, alpha: float) -> float:
        """A distance of which the tail is at most alpha, by doubling."""
        x = self.spread
        for _ in range(12):
            if float(self.tail(np.array([x]))[0]) <= alpha:
                return x
            x *= 1.3
        return math.inf


def added(first: Tail, second: Tail, reach: float) -> Tail:
    """A bound for the sum of two distances, the second bounded whatever the first is.

    The first is looked at up to ``reach``; beyond, the sum counts as too large.
    """
    nodes = np.linspace(0, reach, _TIME_NODES + 1)[1:]
    above = np.minimum(first(nodes), 1.0)
    masses = -np.diff(above, prepend=1.0)

    def tail(x: Floats) -> Floats:
        rest = np.asarray(x)[:, None] - nodes
        bounds = np.minimum(second(np.maximum(rest, 0).ravel()), 1.0).reshape(rest.shape)
        return np.asarray(np.where(rest > 0, bounds, 1.0) @ masses + above[-1])

    return tail


def bridge_tail(variance: float) -> Tail:
    """The bound of a Gaussian walk that returns, of this variance in all."""

    def tail(x: Floats) -> Floats:
        a = np.floor(2 * np.asarray(x)) / 2
        return np.asarray(np.minimum(2 * np.exp(-2 * a**2 / variance) * ROUNDING, 1.0))

    return tail


def is_walk(noise: DiscreteNoise) -> bool:
    """Whether cumulated noise is Gaussian on shifted integers, but for what is left out above."""
    return not noise.laplace and noise.scale >= _LEAST_GAUSSIAN


def of_noise(
    noise: DiscreteNoise, n_cells: int, end: int = 0, *, most_walk: int = _MOST_WALK
) -> Strays | None:
    """How far independent noise of the sum ``end`` strays; None if no bound is known."""
    slanted: Floats = np.arange(1, n_cells + 1, dtype=np.float64) * (end / n_cells)
    spread = noise.sd * math.sqrt(n_cells)
    if walked := _walk(noise, n_cells, end, most_walk):
        return Strays(slanted, walked, spread)
    if is_walk(noise):
        return Strays(slanted, bridge_tail(n_cells * noise.scale**2), spread)
    law = _law_of_sum(noise, n_cells)
    if law is None:
        return None
    seen = float(law[abs(end)]) if abs(end) < len(law) else 0.0

    def tail(x: Floats) -> Floats:
        if seen <= _SEEN:
            return np.ones(np.shape(x))
        place = np.ceil(2 * np.asarray(x)).astype(np.int64)
        masses = np.where(place < len(law), law[np.minimum(place, len(law) - 1)], 0.0)
        return np.asarray(np.minimum(2 * (masses / seen + _SEEN) * ROUNDING, 1.0))

    centre = np.full(n_cells, end / 2)
    centre[-1] = end
    return Strays(centre, tail, spread)


def of_draws(draws: int, total: float, n_cells: int) -> Strays:
    """How far cumulative counts stray of ``draws`` records, each of which is total/draws."""

    def tail(x: Floats) -> Floats:
        bound = 2 * np.exp(-2 * draws * (np.asarray(x) / total) ** 2) * ROUNDING
        return np.asarray(np.minimum(bound, 1.0))

    return Strays(np.zeros(n_cells), tail, total / math.sqrt(draws))


def _walk(noise: DiscreteNoise, n_cells: int, end: int, most: int) -> Tail | None:
    """The exact law of the largest distance from i end/K; None where that takes too long."""
    width = math.ceil(2 + 3.2 * noise.sd * math.sqrt(n_cells) * (1.5 if noise.laplace else 1))
    if n_cells * width > most or abs(end) > width:
        return None
    law = _law_of_sum(noise, n_cells)
    if law is None or law[abs(end)] < _SEEN:
        return None
    likelihood = float(law[abs(end)])
    lines = np.arange(n_cells + 1) * (end / n_cells)
    middles = np.rint(lines).astype(np.int64)
    most_step = int(np.abs(np.diff(middles)).max(initial=0))
    kernel = noise.masses(2 * width + most_step)
    size = 1 << (len(kernel) + 2 * width + 1).bit_length()
    transformed = np.fft.rfft(kernel, size)
    places = np.arange(-width, width + 1)

    def tail(x: Floats) -> Floats:
        bounds = np.minimum(np.asarray(x, np.float64), width)[:, None]
        state = np.zeros((len(bounds), 2 * width + 1))
        state[:, width] = 1.0
        for i in range(1, n_cells + 1):
            full = np.fft.irfft(np.fft.rfft(state, size, axis=1) * transformed, size, axis=1)
            first = 2 * width + most_step + int(middles[i] - middles[i - 1])
            state = full[:, first : first + 2 * width + 1]
            away = np.abs(places + (middles[i] - lines[i]))
            state = np.where(away[None, :] < bounds - _TOUCHING, np.maximum(state, 0.0), 0.0)
        return np.asarray(np.clip(1 - state[:, width] / likelihood + 1e-9, 0.0, 1.0))

    return tail


def _law_of_sum(noise: DiscreteNoise, n_cells: int) -> Floats | None:
    """P(S_K = u) for u >= 0, to about 10^-15; None if there are too many values."""
    half = math.ceil(20 + noise.sd * (9 * math.sqrt(n_cells) + (30 if noise.laplace else 9)))
    if 2 * half > _MOST_LATTICE:
        return None
    size = 1 << (2 * half + 1).bit_length()
    masses = noise.masses(half)
    around = np.zeros(size)
    around[: half + 1], around[size - half :] = masses[half:], masses[:half]
    sums = np.fft.irfft(np.fft.rfft(around).real ** n_cells, size)
    return np.maximum(sums[: half + 1], 0.0)


MARGIN = 1e-6
"""Share of every probability that is kept for rounding."""

_NODES, _DEVIATIONS = 16, 6.5  # nodes to a deviation of the noise; of drawn records


class CellLaw(Exceeding, Protocol):
    """How what is released in a cell depends on its count, and on its share of a law."""

    @property
    def n_records(self) -> int:
        """Number of records."""

    @property
    def n_cells(self) -> int:
        """Number of cells."""

    def counts(self, released: Codes, level: float) -> Limits:
        """Limits float64[K] of the counts, before the total is used."""

    def centre(self, y: Floats) -> Floats:
        """The share that is the estimate, between 0 and 1."""

    def whole(self) -> int:
        """What is released, on average, of all cells together."""


@dataclass(frozen=True)
class NoisyCells:
    """Independent noise on every cell.

    Attributes:
        noise: On a cell.
        n_records: Number of records n.
        n_cells: Number of cells K.
    """

    noise: DiscreteNoise
    n_records: int
    n_cells: int

    def half_width(self, level: float) -> int:
        """The q of this module's text, in records."""
        miss = -np.expm1(np.log(level) / self.n_cells) / 2 * (1 - MARGIN)
        return self.noise.quantile(float(miss)) - 1

    def counts(self, released: Codes, level: float) -> Limits:
        q = self.half_width(level)
        low, high = (np.clip(released + shift, 0, self.n_records) for shift in (-q, q))
        return low.astype(np.float64), high.astype(np.float64)

    def exceeding(self, y: Floats, p: Floats, alpha: float, *, other: bool) -> Floats:
        del other  # the noise is symmetric
        reach = self.noise.quantile(LEFT_OUT * alpha)
        width = max(1, int(self.noise.sd / _NODES))
        edges = width * np.arange(-(reach // width) - 1, reach // width + 2)
        above = np.append(self.noise.at_least(edges + 1), 0.0)
        above[-2] = 0.0  # beyond: left out below
        masses = -np.diff(np.append(1.0, above[:-1]))
        chance = np.zeros(len(p))
        for some in _blocks(len(edges), len(p)):
            reached = binomial_at_least(y - edges[some, None], self.n_records, p)
            for mass, above in zip(masses[some].tolist(), reached, strict=True):
                chance += mass * above
        return chance + LEFT_OUT * alpha

    def centre(self, y: Floats) -> Floats:
        return np.asarray(np.clip(y / self.n_records, 0, 1))

    def whole(self) -> int:
        return self.n_records


@dataclass(frozen=True)
class DrawnCells:
    """Records drawn from smoothed shares.

    Attributes:
        draws: Their number m.
        pseudocount: The k of this module's text.
        n_records: Number of records n.
        n_cells: Number of cells K.
        joined: How many cells are counted together, one number or float64[k] of as many limits.
    """

    draws: int
    pseudocount: float
    n_records: int
    n_cells: int
    joined: Any = 1

    @property
    def total(self) -> float:
        """The N of this module's text."""
        return self.n_records + self.pseudocount * self.n_cells

    def counts(self, released: Codes, level: float) -> Limits:
        from scipy.special import betaincinv

        alpha = (1 - level) / (2 * self.n_cells) * (1 - MARGIN)
        m, z = self.draws, released.astype(np.float64)
        low = np.where(z > 0, betaincinv(np.maximum(z, 1), m - np.maximum(z, 1) + 1, alpha), 0.0)
        below = np.minimum(z, m - 1)
        high = np.where(z < m, betaincinv(below + 1, m - below, 1 - alpha), 1.0)
        limits = [share * self.total - self.pseudocount for share in (low, high)]
        n = self.n_records
        slack = 1e-9 * self.total  # of rounding
        return np.clip(np.ceil(limits[0] - slack), 0, n), np.clip(np.floor(limits[1] + slack), 0, n)

    def exceeding(self, y: Floats, p: Floats, alpha: float, *, other: bool) -> Floats:
        n, k = (
            self.n_records,
            self.pseudocount * (self.n_cells - self.joined if other else self.joined),
        )
        sd = np.sqrt(n * p * (1 - p))
        chance, left = np.zeros(len(p)), np.ones(len(p))
        places = np.linspace(-_DEVIATIONS, _DEVIATIONS, 10 * _NODES)
        for some in _blocks(len(places), len(p)):
            place = places[some, None]
            edges = np.clip(np.floor(n * p + place * sd + (place + 6) * (place > 0)), 0, n)
            shares = np.minimum((edges + k) / self.total, 1.0)
            passed = binomial_at_least(edges + 1, n, p)
            reached = binomial_at_least(y, self.draws, shares)
            for above, chances in zip(passed, reached, strict=True):
                chance += np.maximum(left - above, 0) * chances
                left = np.minimum(left, above)
        return chance + left

    def centre(self, y: Floats) -> Floats:
        share = (y / self.draws * self.total - self.pseudocount * self.joined) / self.n_records
        return np.asarray(np.clip(share, 0, 1))

    def whole(self) -> int:
        return self.draws


@dataclass(frozen=True, eq=False)
class NoisySums:
    """Binomial counts with noise of their own, that is Gaussian on shifted integers.

    The noise is that of a Gaussian walk at one place given its end
    (this module's text): P(T = u) is in proportion to
    exp(-u^2/2v), u in a shift of the integers, with the normal law's factor. So P(T >= a) <=
    P(sqrt(v) G >= a - 1), and a - 1/2 where the density is convex, from a - 1/2 >= sqrt(v) on: each
    term is at most the integral about it.

    Attributes:
        n_records: Number of records n.
        sds: float64[k], the square roots of v.
    """

    n_records: int
    sds: Floats

    def exceeding(self, y: Floats, p: Floats, alpha: float, *, other: bool) -> Floats:
        """P(count + noise >= y) or a little more, float64[k]."""
        del other  # the noise is symmetric but for the shift, which the bound does not use
        from scipy.special import ndtr, ndtri

        reach = -float(ndtri(LEFT_OUT * alpha)) + 1 / _NODES
        chance, left = np.zeros(len(y)), np.ones(len(y))
        places = np.arange(-reach, reach, 1 / _NODES)
        for some in _blocks(len(places), len(y)):
            edges = places[some, None] * self.sds
            passed = ndtr((np.where(edges - 0.5 >= self.sds, 0.5, 1.0) - edges) / self.sds)
            reached = binomial_at_least(np.ceil(y - edges), self.n_records, p)
            for above, chances in zip(passed, reached, strict=True):
                chance += np.maximum(left - above, 0) * chances
                left = np.minimum(left, above)
        return chance + left
