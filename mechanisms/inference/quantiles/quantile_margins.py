"""Which counts the ends of a quantile's interval aim at: one failure probability for all errors.

A lower end is the lower edge of a cell chosen among K with probability proportional to exp(-a (C_j
- r)) where the count C_j below the cell exceeds the wanted count r, and to 1 at most elsewhere; 1
if r lies between the counts at the cell's ends (mechanisms.inference.quantiles.quantile_choice).
Let x be a q-quantile of the law of m independent records, and S = #(records <= x), which is
Binomial(m, q) at the least, in stochastic order.

**Failure.** The end is above x only if the chosen cell is. Such cells have C_j >= S, and there are
at most K' = K - 1 of them, since the cell of x is not one. If S = s >= r, some other cell has
weight 1: that of x if the count below it is at most r, and else one before it. So their
probability, given the data, is at most

    h(s - r),   h(d) = K' e^(-a d)/(1 + K' e^(-a d)) for d >= 0, and h(d) = 1 for d < 0,

and as h falls, the end is above x with probability at most E h(B - r), B ~ Binomial(m, q). The
wanted count R(m) is the largest r for which this is at most the failure allowed. No choice of this
kind can want more: where q of the records are in the first cell and the others in the last,
h(s - r) is the probability itself for all s >= r. h is the tail of a logistic variable of scale 1/a
about ln(K')/a, which explains the size: R(m) is ln(K')/a below a quantile of the sum of a binomial
and a logistic variable.

**One more record.** Binomial(m + 1, q) lies between Binomial(m, q) and the same plus 1, so that
E h(B_{m+1} - r) <= E h(B_m - r) and E h(B_{m+1} - r - 1) >= E h(B_m - r): R(m + 1) is R(m) or
R(m) + 1.

**Rounding.** B - r is rounded down to a grid of offsets (all of them where a is large), h being
what it is at the grid's point below: E h is then a weighted sum of binomial distribution functions,
and too large. What is asked is less than is allowed by one in 10^9, more than the errors of scipy's
incomplete beta function and of the sum.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.columns import Codes

_FINE, _COARSE = 0.1, 0.2  # distance of offsets, in 1/a
_ROUNDING = 1 - 1e-9
_SPARSE = 48  # sizes at which R is searched for without a guess
_GRID_STEP = 0.1  # of the square root of a size: what it costs is at most a tenth of that
_MOST_SIZES = 20_000


class EndRule(NamedTuple):
    """What the wanted count of a lower end depends on, besides the number of records.

    Attributes:
        share: The q of the quantile; 1 - q for an upper end, seen from above.
        rate: The a above.
        others: The K' above.
        failure: Allowed for the end to lie beyond the quantile.
    """

    share: float
    rate: float
    others: int
    failure: float

    def wanted(self, present: int) -> int:
        """R, or a little less; below 0 where the records are too few."""
        return int(self._largest(np.array([present]), self._steps(_FINE))[0])

    def on_grid(self, most: int) -> tuple[Codes, Codes]:
        """Sizes up to the largest, close in their square roots, with R or a little less."""
        step = max(_GRID_STEP, 2 * math.sqrt(most) / _MOST_SIZES)
        points = np.arange(0, 2 * math.sqrt(most) / step)
        sizes = np.unique(np.append(np.floor((points * step / 2) ** 2), most))
        sizes = sizes[sizes <= most].astype(np.int64)
        steps = self._steps(_COARSE)
        sparse = np.unique(np.linspace(0, len(sizes) - 1, _SPARSE).astype(int))
        margins = np.floor(sizes[sparse] * self.share) - self._largest(sizes[sparse], steps)
        guess = np.interp(np.sqrt(sizes), np.sqrt(sizes[sparse]), margins)
        found = (np.floor(sizes * self.share) - np.ceil(guess)).astype(np.int64)
        todo = np.arange(len(sizes))
        while len(todo):
            todo = todo[self._chance(sizes[todo], found[todo], steps) > self.failure * _ROUNDING]
            found[todo] -= 1
        found[-1] = max(int(found[-1]), self.wanted(most))
        return sizes, found

    def _steps(self, distance: float) -> tuple[Codes, NDArray[np.float64]]:
        """Offsets int64[t] from 0, and by how much h falls at each; the last bounds the rest."""
        log_others = math.log(self.others)
        end = (log_others - math.log(self.failure) + 12) / self.rate
        start = max(0.0, (log_others - 12) / self.rate)
        grid = np.arange(start, end, max(1.0, distance / self.rate))
        offsets = np.unique(np.append(np.ceil(grid), [0, math.ceil(end)])).astype(np.int64)
        beyond = np.clip(self.rate * offsets - log_others, -700, 700)
        heights = np.append(1.0, 1 / (1 + np.exp(beyond)))
        return offsets, np.append(-np.diff(heights), heights[-1])

    def _chance(
        self, sizes: Codes, wanted: Codes, steps: tuple[Codes, NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """float64[k]: the bound on E h for each size and wanted count."""
        offsets, falls = steps
        below = _binomial_cdf(wanted[:, None] + offsets - 1, sizes[:, None], self.share)
        found: NDArray[np.float64] = below @ falls[:-1] + falls[-1]
        return found

    def _largest(self, sizes: Codes, steps: tuple[Codes, NDArray[np.float64]]) -> Codes:
        """The largest wanted count that keeps the failure, for each size, by bisection."""
        low, high = np.full(len(sizes), -int(steps[0][-1]) - 1), sizes + 1
        while np.any(high - low > 1):
            middle = (low + high) // 2
            kept = self._chance(sizes, middle, steps) <= self.failure * _ROUNDING
            low, high = np.where(kept, middle, low), np.where(kept, high, middle)
        return low


def _binomial_cdf(at: Codes, sizes: Codes, share: float) -> Any:
    """P(Binomial(size, share) <= at), float64 of the shape of both."""
    from scipy.special import betainc

    inside = (at >= 0) & (at < sizes)
    found = betainc(np.where(inside, sizes - at, 1), np.where(inside, at + 1, 1), 1 - share)
    return np.where(inside, found, (at >= sizes) * 1.0)
