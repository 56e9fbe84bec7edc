"""Simultaneous confidence bands for the distribution function of one ordered column.

Released are estimates of the cumulative counts H_1 .. H_K of n records. Two bands at one level, each
for all cells at once: of H itself, and of the distribution function F of the law that the records are
independent draws of.

**Counts.** |H_i - estimate_i| < x for all i, x being the distance that noise reaches with
probability at most 1 - level (mechanisms.inference.cumulated_noise). Integers, which do not
decrease, so that the upper limit of a cell holds for all before it and the lower for all after.

**Distribution function.** max |H_i - n F_i| >= d has a probability of at most 2 exp(-2 d^2/n)
whatever F is (Dvoretzky, Kiefer and Wolfowitz 1956; the constant is that of Massart 1990, doi
10.1214/aop/1176990746; for cells as for points, of which they are some). The bound of the noise holds given the
records, so that for the sum of both distances, A of the noise and B of sampling,

    P(A + B >= x) <= E min(1, bound of B at x - A'),  A' as large as the bound of A allows,

which is the level at a smaller x than any division of 1 - level between A and B gives: for two equal
bounds .93 of what the even division gives at .95. The least x is found from public figures.
"""

from __future__ import annotations

import math

import numpy as np

from mechanisms.inference.cell_bands import MARGIN, Limits
from mechanisms.inference.cumulated_noise import Strays, added, of_sampling
from mechanisms.inference.noise_tails import Floats


def count_distance(strays: Strays, level: float) -> float:
    """The x of the band of counts, in records; infinite where there is none."""
    return strays.quantile((1 - level) * (1 - MARGIN))


def share_distance(strays: Strays, n_records: int, level: float) -> float:
    """The x of the band of the distribution function, in records; infinite where there is none."""
    alpha = (1 - level) * (1 - MARGIN)
    most = strays.reach(1e-4 * alpha)
    if not math.isfinite(most):
        return most
    spread = math.sqrt(n_records) + strays.spread
    both = added(strays.tail, of_sampling(n_records), most)
    return Strays(strays.centre, both, spread).quantile(alpha)


def count_band(estimates: Floats, distance: float, n_records: int) -> Limits:
    """The band of the cumulative counts, float64[K] each: integers."""
    lower, upper = np.ceil(estimates - distance), np.floor(estimates + distance)
    return _monotone(lower, upper, float(n_records))


def share_band(estimates: Floats, distance: float, n_records: int) -> Limits:
    """The band of the distribution function, float64[K] each."""
    return _monotone((estimates - distance) / n_records, (estimates + distance) / n_records, 1.0)


def _monotone(lower: Floats, upper: Floats, last: float) -> Limits:
    """Limits between 0 and the last value, which do not decrease; the last cell has that value."""
    lower, upper = np.clip(lower, 0, last), np.clip(upper, 0, last)
    lower[-1] = upper[-1] = last
    return np.maximum.accumulate(lower), np.minimum.accumulate(upper[::-1])[::-1]
