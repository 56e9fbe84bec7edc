"""Half-widths of intervals where noise hides the variance.

They are of normal intervals whose variance is itself estimated from noisy replicates. A
centre has variance b V + s^2, where V in [0, M] is the unknown variance of a statistic. Independent
of it is S^2, a chi-square variable with f degrees of freedom, over f, times a V + t^2. Everything
but V is public. So (S^2 - t^2)/a =: v estimates V without bias, but where t^2 is large beside a V
it can be far off, and often negative.

**Rule.** The half-width is z sqrt(s^2 + b max(0, alpha + beta v)), no more than the cap
z sqrt(s^2 + b M). Alpha and beta are the pair with the least mean width, over variances from a
quarter to four times the one presumed, of which the coverage is below the level by no more than
5 % of 1 - level **for every V from 0 to M**, by quadrature over the law of S^2, before any data is
seen. (At the level itself no finite pair is: a cap reached by chance can only lose.) Adding alpha
before the maximum is taken, not after, keeps what a negative v says.

How close that is to the best of all functions of S^2 is computed by duality in
tests/benchmarks/black_box_bound.py.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from statpress.mechanisms.estimates.fieller import Floats, normal_quantile

_NODES, _VARIANCES, _HALVINGS = 400, 72, 15
TOLERANCE = 0.05
"""By which part of 1 - level the coverage in the model may be below the level."""
AROUND = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Variances over the presumed one at which the width counts."""
_FACTORS = (1.0, 1.02, 1.05, 1.1, 1.2, 1.35, 1.6, 2.0, 2.5)


@dataclass(frozen=True)
class NoisyVariance:
    """What is public of a centre and of replicates."""

    spread_gain: float  # the a of the variance a V + t^2 of a replicate
    spread_noise: float  # the t^2
    freedom: int  # degrees of freedom f of the replicates' variance S^2
    centre_gain: float  # the b of the variance b V + s^2 of the centre
    centre_noise: float  # the s^2
    most: float  # the largest V there can be, M

    def variance_of_centre(self, variance: Floats) -> Floats:
        """The variance of the centre at these V."""
        return self.centre_gain * variance + self.centre_noise

    def estimated(self, spread: Floats) -> Floats:
        """V estimated from S^2, without bias; perhaps negative."""
        return (spread - self.spread_noise) / self.spread_gain

    def spreads(self, variances: Floats, nodes: int = _NODES) -> Floats:
        """Equally likely values float64[.., nodes] of S^2 at these V."""
        means = self.spread_gain * variances + self.spread_noise
        return means[..., None] * chi_square(self.freedom, nodes)

    def capped(self, half_width: Floats, level: float) -> Floats:
        """No wider than what follows from the largest V."""
        largest = self.centre_gain * self.most + self.centre_noise
        return np.minimum(half_width, normal_quantile(level) * math.sqrt(largest))


class WidthRule(Protocol):
    """From S^2 to the half-width of an interval."""

    def half_width(self, known: NoisyVariance, spread: Floats, level: float) -> Floats:
        """float64 of the shape of ``spread``."""


@dataclass(frozen=True)
class CalibratedWidth:
    """The rule of this module, with its two constants."""

    factor: float  # Beta, on the estimated variance
    addend: float  # Alpha, a variance

    def half_width(self, known: NoisyVariance, spread: Floats, level: float) -> Floats:
        """The half-width at these S^2."""
        presumed = self.addend + self.factor * known.estimated(spread)
        square = known.variance_of_centre(np.maximum(presumed, 0.0))
        return known.capped(normal_quantile(level) * np.sqrt(square), level)


def widths_from_description(
    description: Mapping[str, object], count: int
) -> tuple[CalibratedWidth, ...]:
    """The rules of so many numbers, from the constants that a description states."""
    return tuple(
        CalibratedWidth(
            *(float(str(description[f"reach_{name}_{i}"])) for name in ("factor", "addend"))
        )
        for i in range(1, count + 1)
    )


def coverage(
    rule: WidthRule, known: NoisyVariance, variances: Floats, level: float, nodes: int = _NODES
) -> Floats:
    """Coverage of the intervals of a rule at each of these V, in the model."""
    from scipy.special import erf

    deviation = np.sqrt(2 * known.variance_of_centre(variances))[:, None]
    reach = rule.half_width(known, known.spreads(variances, nodes), level)
    return np.asarray(np.mean(erf(reach / deviation), axis=1))


def mean_width(rule: WidthRule, known: NoisyVariance, variances: Floats, level: float) -> Floats:
    """Mean widths of the intervals of a rule, at each of these V."""
    half = rule.half_width(known, known.spreads(variances), level)
    return np.asarray(2 * np.mean(half, axis=-1))


@functools.lru_cache(maxsize=256)
def narrowest_width(known: NoisyVariance, presumed: float, level: float) -> CalibratedWidth:
    """The constants of the narrowest intervals around a presumed variance that keep the level.

    With the factor 1 and the largest addend an interval is the cap, whatever was drawn. With a
    larger factor it need not be, so that no rule is taken that was not seen to keep the level.
    """
    least = level - TOLERANCE * (1 - level)
    every = np.concatenate([[0.0], known.most * np.geomspace(1e-6, 1.0, _VARIANCES - 1)])
    typical = np.minimum(presumed * np.array(AROUND), known.most)
    oracle = np.sqrt(known.variance_of_centre(typical))

    hardest = 0  # where the coverage was least, which refuses most rules by itself

    def covers(rule: CalibratedWidth) -> bool:
        nonlocal hardest
        if coverage(rule, known, every[hardest : hardest + 1], level)[0] < least:
            return False
        covered = coverage(rule, known, every, level)
        hardest = int(np.argmin(covered))
        return bool(covered[hardest] >= least)

    best: list[tuple[float, CalibratedWidth]] = []
    for factor in _FACTORS:
        low, high = -known.most, 4 * known.most + 2 * known.spread_noise / known.spread_gain
        if not covers(CalibratedWidth(factor, high)):
            continue
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if covers(CalibratedWidth(factor, middle)) else (middle, high)
        rule = CalibratedWidth(factor, high)
        width = float(np.mean(mean_width(rule, known, typical, level) / oracle))
        best.append((width, rule))
    return min(best, key=lambda candidate: candidate[0])[1]


@functools.lru_cache(maxsize=64)
def chi_square(freedom: int, nodes: int) -> Floats:
    """Equally likely values of a chi-square variable over its degrees of freedom."""
    from scipy.special import gammaincinv

    places = (np.arange(nodes) + 0.5) / nodes
    values: Floats = gammaincinv(freedom / 2, places) / (freedom / 2)
    values.flags.writeable = False
    return values
