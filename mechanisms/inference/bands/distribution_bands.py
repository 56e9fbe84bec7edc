"""Simultaneous confidence bands for the distribution function of one ordered column.

Released are estimates of the cumulative counts H_1 .. H_K of n records. Two bands at one level,
each for all cells at once: of H itself, and of the distribution function F of the law that the
records are independent draws of.

**Counts.** |H_i - estimate_i| < x for all i, x being the distance that noise reaches with
probability at most 1 - level (mechanisms.inference.bands.cumulated_noise). Integers, which do not
decrease, so that the upper limit of a cell holds for all before it and the lower for all after.

**Distribution function.** max |H_i - n F_i| >= d has a probability of at most 2 exp(-2 d^2/n)
whatever F is (Dvoretzky, Kiefer and Wolfowitz 1956; the constant is that of Massart 1990, doi
10.1214/aop/1176990746; for cells as for points, of which they are some). The bound of the noise
holds given the records, so that for the sum of both distances, A of the noise and B of sampling,

    P(A + B >= x) <= E min(1, bound of B at x - A'),  A' as large as the bound of A allows,

which is the level at a smaller x than any division of 1 - level between A and B gives: for two
equal bounds .93 of what the even division gives at .95. The least x is found from public figures.

**Place by place**, for few cells: at each of the K - 1 places before the last what is released is a
Binomial(n, F_i) with noise of a known law, or a Binomial of draws, so that F_i has Clopper and
Pearson's limits with the noise inside (mechanisms.inference.bands.cell_bands), at
(1 - level)/2(K - 1) for each end. These are narrow near 0 and 1. Which of the two bands is computed
is decided by their average width for records spread evenly, from public figures only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mechanisms.inference.bands.cell_bands import MARGIN
from mechanisms.inference.bands.cumulated_noise import Strays, added, of_sampling
from mechanisms.inference.bands.noise_tails import Floats
from mechanisms.inference.bands.place_limits import Exceeding, Limits, place_limits


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


@dataclass(frozen=True, eq=False)
class Places:
    """What is released of the cumulative counts at some of the places before the last.

    Attributes:
        law: Of it.
        y: float64[k], released.
        near: float64[k], estimates of the distribution function.
        whole: What is released, on average, of all records together.
        number: How many places there are, K - 1.
    """

    law: Exceeding
    y: Floats
    near: Floats
    whole: float
    number: int

    def limits(self, level: float) -> Limits:
        """Limits of the distribution function, float64[k] each."""
        alpha = (1 - level) / (2 * self.number) * (1 - MARGIN)
        return place_limits(self.law, self.y, self.whole, np.clip(self.near, 0, 1), alpha)


def share_band_by_place(places: Places, level: float) -> Limits:
    """The same from limits of every place, float64[K] each."""
    lower, upper = places.limits(level)
    return _monotone(np.append(lower, 1.0), np.append(upper, 1.0), 1.0)


def count_band(estimates: Floats, distance: float, n_records: int) -> Limits:
    """The band of the cumulative counts, float64[K] each: integers."""
    lower, upper = np.ceil(estimates - distance), np.floor(estimates + distance)
    return _monotone(lower, upper, float(n_records))


def share_band(estimates: Floats, distance: float, n_records: int) -> Limits:
    """The band of the distribution function, float64[K] each."""
    return _monotone((estimates - distance) / n_records, (estimates + distance) / n_records, 1.0)


def _monotone(lower: Floats, upper: Floats, last: float) -> Limits:
    """Limits between 0 and the last value, which do not decrease; the last cell has that value.

    Where noise makes the estimates fall by more than twice the distance, no law is within both
    limits, which would cross; they are given the other way round, which only widens the band.
    """
    lower, upper = np.clip(lower, 0, last), np.clip(upper, 0, last)
    lower[-1] = upper[-1] = last
    rising, falling = np.maximum.accumulate(lower), np.minimum.accumulate(upper[::-1])[::-1]
    return np.minimum(rising, falling), np.maximum(rising, falling)
