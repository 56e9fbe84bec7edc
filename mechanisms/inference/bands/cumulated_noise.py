"""How far the cumulated noise of ordered cells strays, all sums at once.

Let Z_1 .. Z_K be the noise of K cells and S_i = Z_1 + .. + Z_i. The number of records is public, so
the noisy counts show the last sum S_K = r. Everything here is given r, hence valid on average: a
bound on P(max over i of |S_i - centre_i| >= x | S_K = r) for a known centre.

**Gaussian noise of scale s >= 2**, centre_i = i r/K. Given r a path has a probability proportional
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

**Any noise that is symmetric with one peak**, centre_i = r/2. The sum of m steps has such a law p_m
too (a mixture of uniform laws about 0, whose sums have one peak: Wintner 1938), so that p_m(u - r)
<= p_m(2a - r - u) for u >= a >= max(r, 0), and in the same way

    P(max |S_i - r/2| >= x | S_K = r) <= 2 p_K(ceil(2x))/p_K(r).

**Small tables**: the probability that the walk stays between the lines about i r/K and ends at r is
computed step by step, which is exact, and a tenth less than the bound for twenty cells.

**Two resolutions** (mechanisms.tables.two_resolutions), s >= 3. Let U_B be the sum of the noise of
the b cells of block B, V_B the noise of its own count. Least squares errs by e_B = U_B - b/(b + 1)
(U_B - V_B) in a block's total, before the totals are moved to n in proportion to w_B = s^2 b/(b +
1). Given all U_B - V_B, which are released, and the sum of all U_B, the e_B are Gaussian on shifted
integers with variances w_B, given their sum: T as above with steps of variances w_B, so that the
errors C of the cumulated totals have P(max |C| >= x) <= 2 exp(-2a^2/(sum of w_B)). Given all U_B
and V_B the sums within the blocks, less their share of U_B, are independent, each of P(max >= x) <=
2 exp(-2a^2/(b s^2)). A cumulative count errs by at most the sum of both maxima, and the second
bound holds whatever the first part is: so P(max + max >= x) <= E G(x - C'), C' being as large as
the first bound allows and G the second one for all blocks.

**Drawn records**: of m draws from the smoothed shares the cumulated shares err by x or more with
probability at most 2 exp(-2 m x^2) (Dvoretzky, Kiefer and Wolfowitz 1956, with the constant of
Massart 1990, doi 10.1214/aop/1176990746).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.inference.bands.noise_tails import DiscreteNoise, Floats

Tail = Callable[[Floats], Floats]

ROUNDING = 1 + 1e-7
"""Factor of a bound that is more than all rounding, and more than the factors left out above."""

_LEAST_GAUSSIAN, _LEAST_BLOCKS = 2.0, 3.0
_NODES, _STEPS = 120, 32
_MOST_WALK = 40_000  # cells times width of a walk that is computed step by step
_MOST_LATTICE = 1 << 22
_TOUCHING = 1e-9  # of a line, within which a sum counts as on it
_SEEN = 1e-9  # likelihood of the last sum below which rounding could matter


@dataclass(frozen=True, eq=False)
class Strays:
    """How far cumulative counts stray from their estimates by noise, all at once.

    Attributes:
        centre: float64[K], what is known of the cumulated noise; estimates are less by it.
        tail: Of x float64[k] the probability that the largest distance is x or more, at most.
        spread: The distance that is typical, in records.
    """

    centre: Floats
    tail: Tail
    spread: float

    def quantile(self, alpha: float) -> float:
        """A distance that is reached with probability at most alpha; infinite if none is known."""
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

    Args:
        first: Bound of the first distance.
        second: Bound of the second, given the first.
        reach: Up to where the first is looked at; beyond, the sum counts as too large.
    """
    nodes = np.linspace(0, reach, _NODES + 1)[1:]
    above = np.minimum(first(nodes), 1.0)
    masses = -np.diff(above, prepend=1.0)

    def tail(x: Floats) -> Floats:
        rest = np.asarray(x)[:, None] - nodes
        found = np.where(rest > 0, np.minimum(second(np.maximum(rest, 0).ravel()), 1.0).reshape(
            rest.shape
        ), 1.0)  # fmt: skip
        return np.asarray(found @ masses + above[-1])

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


def of_noise(noise: DiscreteNoise, n_cells: int, end: int = 0) -> Strays | None:
    """Of independent noise on every cell, of the sum ``end``; None if no bound is known."""
    slanted: Floats = np.arange(1, n_cells + 1, dtype=np.float64) * (end / n_cells)
    spread = noise.sd * math.sqrt(n_cells)
    if walked := _walk(noise, n_cells, end):
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


def of_blocks(scale: float, widths: NDArray[np.int64]) -> Strays | None:
    """Of the least squares of two resolutions; centre 0 is about its own estimates.

    Args:
        scale: Of the Gaussian noise.
        widths: int64[k], cells of every block.
    """
    if scale < _LEAST_BLOCKS:
        return None
    between = scale**2 * float(np.sum(widths / (widths + 1)))
    longest, blocks = int(widths.max()), len(widths)
    totals, within = bridge_tail(between), bridge_tail(longest * scale**2)
    if longest == 1:
        return Strays(np.zeros(int(widths.sum())), totals, math.sqrt(between))

    def all_within(x: Floats) -> Floats:
        return np.asarray(-np.expm1(blocks * np.log1p(-np.minimum(within(x), 1 - 1e-16))))

    reach = 5 * math.sqrt(between)
    spread = math.sqrt(between) + scale * math.sqrt(longest)
    return Strays(np.zeros(int(widths.sum())), added(totals, all_within, reach), spread)


def of_draws(draws: int, total: float, n_cells: int) -> Strays:
    """Of cumulative counts from ``draws`` records, each of which stands for total/draws."""

    def tail(x: Floats) -> Floats:
        bound = 2 * np.exp(-2 * draws * (np.asarray(x) / total) ** 2) * ROUNDING
        return np.asarray(np.minimum(bound, 1.0))

    return Strays(np.zeros(n_cells), tail, total / math.sqrt(draws))


def of_sampling(n_records: int) -> Tail:
    """The bound of cumulative counts of n records about n times their distribution function."""
    return of_draws(n_records, n_records, 1).tail


def _walk(noise: DiscreteNoise, n_cells: int, end: int) -> Tail | None:
    """The exact law of the largest distance from i end/K; None where that takes too long."""
    width = math.ceil(2 + 3.2 * noise.sd * math.sqrt(n_cells) * (1.5 if noise.laplace else 1))
    if n_cells * width > _MOST_WALK or abs(end) > width:
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
