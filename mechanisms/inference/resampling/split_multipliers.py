"""The half-widths of splits released before version 2 of their intervals.

The interval was g + noise +- k sqrt(max(V, 0) + s^2 + a), truncated by the cap. Bundles of that
time name no constants; these are theirs, computed as they were: the shortest pair of which the
coverage is no more than 5 % of 1 - level below the level for every V from 0 to n D^2/4. New
releases have those of mechanisms.inference.resampling.unknown_variance, and name them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.errors import RecordsError
from mechanisms.inference.intervals import normal_quantile
from mechanisms.inference.resampling.unknown_variance import NoisyVariance, chi_square

_NODES, _VARIANCES = 400, 120
_TOLERANCE = 0.05  # of 1 - level
_TYPICAL = (0.3, 0.1, 0.02)  # variances over the largest, at which the width counts
_MULTIPLIERS = (1.0, 1.01, 1.02, 1.03, 1.05, 1.07, 1.1, 1.15, 1.2, 1.3, 1.5)  # over z
_Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Multiplier:
    """That rule, with its two constants k and a, and the p of the subsamples.

    Sums and products are in the order of that time, so that the figures are the same ones.
    """

    factor: float
    addend: float
    share: float

    def half_width(self, known: NoisyVariance, spread: _Doubles, level: float) -> _Doubles:
        """The half-width at these S^2."""
        share = self.share
        variance = np.maximum(share / (1 - share) * (spread - known.spread_noise), 0.0)
        found = self.factor * np.sqrt(variance + known.centre_noise + self.addend)
        return known.capped(found, level)


@functools.lru_cache(maxsize=256)
def former_multiplier(known: NoisyVariance, share: float, level: float) -> Multiplier:
    """The k and a of the shortest interval that keeps the level for every variance."""
    from scipy.special import erf

    z, least = normal_quantile(level), level - _TOLERANCE * (1 - level)
    chi = chi_square(known.freedom, _NODES)
    variances = np.concatenate([[0.0], known.most * np.geomspace(1e-6, 1.0, _VARIANCES - 1)])
    spread = (known.spread_gain * variances + known.spread_noise)[:, None] * chi
    deviation = np.sqrt(2 * (variances + known.centre_noise))[:, None]
    oracle = np.sqrt(known.most * np.array(_TYPICAL) + known.centre_noise)[:, None]
    gains = known.spread_gain * known.most * np.array(_TYPICAL)
    typical = (gains + known.spread_noise)[:, None] * chi

    def covers(k: float, a: float) -> bool:
        reach = Multiplier(k, a, share).half_width(known, spread, level)
        return bool(np.min(np.mean(erf(reach / deviation), axis=1)) >= least)

    found: list[tuple[float, float, float]] = []
    for k in (z * factor for factor in _MULTIPLIERS):
        low, high = 0.0, 4 * known.most
        if not covers(k, high):
            continue
        while high > low + 1e-4 * known.most:
            middle = (low + high) / 2
            low, high = (low, middle) if covers(k, middle) else (middle, high)
        reach = Multiplier(k, high, share).half_width(known, typical, level)
        found.append((float(np.mean(reach / oracle)), k, high))
    if not found:
        raise RecordsError("No interval keeps the level; ask for more subsamples.")
    return Multiplier(*min(found)[1:], share)
