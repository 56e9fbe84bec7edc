"""Simultaneous confidence bands for the cells of a noisy or drawn table.

Two bands at one level, each for all K cells at once: of the *counts* h of the records that were
counted, and of the *shares* p of the law that the n records are independent draws of. Limits are
from what was released in a cell and public figures, and hold for every table and every law.

**Counts, independent noise.** |y_j - h_j| <= q for all cells has the probability (1 - 2 P(Z >= q +
1))^K, exactly, and q is the least that makes it the level.

**Counts, drawn records.** z_j is Binomial(m, (h_j + k)/N) given h, N = n + kK. Each h_j is limited
as Clopper and Pearson (1934) do, at (1 - level)/2K for each end; some limit fails with probability
at most 1 - level (Bonferroni).

**Shares.** What is released in a cell, y = h + Z or z, is stochastically larger the larger h is,
and h is Binomial(n, p), larger the larger p is. So for an observed y the p with P(Y >= y; p) <= a
are those below a limit, which is above the true share with probability at most a: Clopper and
Pearson's limit with the noise inside, and not a limit of the noise and another one of sampling,
each with a part of the level. a = (1 - level)/2K for each end: counts of cells are negatively
associated (Joag-Dev and Proschan 1983, doi 10.1214/aos/1176346079), so that the product of the
cells' levels is not a bound, and Bonferroni's differs from it by a fortieth of 1 - level. The laws
are rounded upwards to nodes, and what is beyond the last counts as failing: P(Y >= y; p) is never
less than the truth.

**The total.** Counts add up to n and shares to 1, so where all limits hold a cell's upper limit is
also at most the total less the other cells' lower limits, and the other way round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mechanisms.inference.bands.noise_tails import DiscreteNoise, Floats
from mechanisms.inference.bands.place_limits import (
    LEFT_OUT,
    Exceeding,
    Limits,
    binomial_at_least,
    place_limits,
)

Integers = NDArray[np.int64]

MARGIN = 1e-6
"""Share of every probability that is kept for rounding."""

_NODES, _DEVIATIONS = 16, 6.5  # nodes to a deviation of the noise; of drawn records
_MOST_VALUES = 1024


class CellLaw(Exceeding, Protocol):
    """How what is released in a cell depends on its count, and on its share of a law."""

    @property
    def n_records(self) -> int:
        """Number of records."""

    @property
    def n_cells(self) -> int:
        """Number of cells."""

    def counts(self, released: Integers, level: float) -> Limits:
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

    def counts(self, released: Integers, level: float) -> Limits:
        q = self.half_width(level)
        low, high = (np.clip(released + each, 0, self.n_records) for each in (-q, q))
        return low.astype(np.float64), high.astype(np.float64)

    def exceeding(self, y: Floats, p: Floats, alpha: float, *, other: bool) -> Floats:
        del other  # the noise is symmetric
        reach = self.noise.quantile(LEFT_OUT * alpha)
        width = max(1, int(self.noise.sd / _NODES))
        edges = width * np.arange(-(reach // width) - 1, reach // width + 2)
        above = np.append(self.noise.at_least(edges + 1), 0.0)
        above[-2] = 0.0  # beyond: left out below
        masses = -np.diff(np.append(1.0, above[:-1]))
        found = np.zeros(len(p))
        for edge, mass in zip(edges.tolist(), masses.tolist(), strict=True):
            found += mass * binomial_at_least(y - edge, self.n_records, p)
        return found + LEFT_OUT * alpha

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

    def counts(self, released: Integers, level: float) -> Limits:
        from scipy.special import betaincinv

        alpha = (1 - level) / (2 * self.n_cells) * (1 - MARGIN)
        m, z = self.draws, released.astype(np.float64)
        low = np.where(z > 0, betaincinv(np.maximum(z, 1), m - np.maximum(z, 1) + 1, alpha), 0.0)
        below = np.minimum(z, m - 1)
        high = np.where(z < m, betaincinv(below + 1, m - below, 1 - alpha), 1.0)
        found = [share * self.total - self.pseudocount for share in (low, high)]
        n = self.n_records
        slack = 1e-9 * self.total  # of rounding
        return np.clip(np.ceil(found[0] - slack), 0, n), np.clip(np.floor(found[1] + slack), 0, n)

    def exceeding(self, y: Floats, p: Floats, alpha: float, *, other: bool) -> Floats:
        n, k = (
            self.n_records,
            self.pseudocount * (self.n_cells - self.joined if other else self.joined),
        )
        sd = np.sqrt(n * p * (1 - p))
        found, left = np.zeros(len(p)), np.ones(len(p))
        for place in np.linspace(-_DEVIATIONS, _DEVIATIONS, 10 * _NODES):
            edge = np.clip(np.floor(n * p + place * sd + (place + 6) * (place > 0)), 0, n)
            above = binomial_at_least(edge + 1, n, p)
            share = np.minimum((edge + k) / self.total, 1.0)
            found += np.maximum(left - above, 0) * binomial_at_least(y, self.draws, share)
            left = np.minimum(left, above)
        return found + left

    def centre(self, y: Floats) -> Floats:
        share = (y / self.draws * self.total - self.pseudocount * self.joined) / self.n_records
        return np.asarray(np.clip(share, 0, 1))

    def whole(self) -> int:
        return self.draws


@dataclass(frozen=True, eq=False)
class NoisySums:
    """Binomial counts with noise of their own, that is Gaussian on shifted integers.

    The noise is that of a Gaussian walk at one place given its end (mechanisms.inference.
    cumulated_noise): P(T = u) is in proportion to exp(-u^2/2v), u in a shift of the integers, with
    the normal law's factor. So P(T >= a) <= P(sqrt(v) G >= a - 1), and a - 1/2 where the density
    is convex, from a - 1/2 >= sqrt(v) on: each term is at most the integral about it.

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
        found, left = np.zeros(len(y)), np.ones(len(y))
        for place in np.arange(-reach, reach, 1 / _NODES):
            edge = place * self.sds
            above = ndtr((np.where(edge - 0.5 >= self.sds, 0.5, 1.0) - edge) / self.sds)
            found += np.maximum(left - above, 0) * binomial_at_least(
                np.ceil(y - edge), self.n_records, p
            )
            left = np.minimum(left, above)
        return found + left


def count_band(law: CellLaw, released: Integers, level: float) -> Limits:
    """The band of the counts of the records that were counted, float64[K] each: integers."""
    return with_total(*law.counts(released, level), law.n_records)


def share_band(law: CellLaw, released: Integers, level: float) -> Limits:
    """The band of the shares of the law that the records are drawn from, float64[K] each."""
    return with_total(*share_limits(law, released, level), 1.0)


def share_limits(law: CellLaw, released: Integers, level: float) -> Limits:
    """The same before the total is used, of any of the cells."""
    values, places = np.unique(released, return_inverse=True)
    alpha = (1 - level) / (2 * law.n_cells) * (1 - MARGIN)
    chosen = np.unique(np.rint(np.linspace(0, len(values) - 1, min(_MOST_VALUES, len(values)))))
    listed = values[chosen.astype(np.int64)].astype(np.float64)
    below = np.searchsorted(listed, values, side="right") - 1
    above = np.searchsorted(listed, values, side="left")
    lower, upper = place_limits(law, listed, law.whole(), law.centre(listed), alpha)
    return lower[below][places], upper[above][places]


def with_total(lower: Floats, upper: Floats, total: float) -> Limits:
    """Limits narrowed by what they add up to; as they are where they cannot add up to it."""
    least, most = float(lower.sum()), float(upper.sum())
    if not least <= total <= most:
        return lower, upper
    slack = 1e-9 * total  # of adding up, kept from narrowing
    most_left, least_left = total - (least - lower) + slack, total - (most - upper) - slack
    if total > 1:  # counts
        most_left, least_left = np.floor(most_left), np.ceil(least_left)
    narrow, wide = np.minimum(upper, most_left), np.maximum(lower, least_left)
    return np.minimum(wide, narrow), np.maximum(wide, narrow)
