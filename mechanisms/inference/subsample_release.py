"""An interval for any statistic of sensitivity c/m: one release and many small subsamples.

Part of the budget goes to the statistic g of all n records, with normal noise of standard
deviation s. The rest goes to B random subsamples of m = p n records drawn without
replacement, each statistic with noise of standard deviation t, amplified by the sampling
(mechanisms.accounting.resampling_losses.SubsampleLoss). Replace-one neighbours.

The subsamples' statistics have variance S^2 = (1 - p)/p V + t^2 about, V the variance of g, so
V is estimated by p/(1 - p) (S^2 - t^2). With B - 1 degrees of freedom and much noise that
estimate can be far off. So the interval is g + noise +- k sqrt(max(V, 0) + s^2 + a), truncated
by the cap z sqrt(n D^2/4 + s^2) with D = c/n. Multiplier k and addend a are the shortest pair
of which the coverage is no more than 5 % of 1 - level below the level **for every V from 0
to n D^2/4**, by quadrature over the chi-square law of S^2, before any data is seen. (At the
level itself no finite pair is: a cap reached by chance can only lose.)
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting.analytic import GaussianLoss
from mechanisms.accounting.privacy_loss import PrivacyLoss
from mechanisms.accounting.resampling_losses import SubsampleLoss
from mechanisms.domain.columns import Codes
from mechanisms.errors import RecordsError
from mechanisms.inference.intervals import normal_quantile
from mechanisms.inference.resampling_calibration import (
    Goal,
    composed,
    gaussian_goal,
    largest_mu_squared,
)
from mechanisms.inference.statistics import Statistic, evaluated
from mechanisms.sampling.randomness import Randomness
from mechanisms.sampling.resample_sampler import subset_counts
from mechanisms.sampling.statistic_noise import StatisticNoise

LEAST_SUBSAMPLE = 30
"""Records in a subsample, for statistics that are not linear."""

_NODES, _VARIANCES = 400, 120
_TOLERANCE = 0.05  # of 1 - level
_TYPICAL = (0.3, 0.1, 0.02)  # variances over the largest, at which the width counts
_MULTIPLIERS = (1.0, 1.01, 1.02, 1.03, 1.05, 1.07, 1.1, 1.15, 1.2, 1.3, 1.5)  # over z
_Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class SplitDesign:
    """How the budget is split; from public quantities only.

    Attributes:
        full: Share of mu^2 for the statistic of all records.
        share: Records in a subsample over n, p.
        subsamples: Their number B.
    """

    full: Fraction
    share: Fraction
    subsamples: int

    def __post_init__(self) -> None:
        if not (0 < self.full < 1 and 0 < self.share <= Fraction(1, 2) and self.subsamples >= 2):
            raise RecordsError("A split needs shares in (0, 1) and (0, 1/2], two subsamples.")


def default_design(mu: Fraction, n_records: int) -> SplitDesign:
    """A design that works at this mu, with subsamples of at least 30 records."""
    half, some = Fraction(1, 2), Fraction(3, 5)
    if mu >= Fraction(3, 4):
        design = SplitDesign(half, Fraction(1, 20), 160)
    elif mu >= Fraction(1, 5):
        design = SplitDesign(half if mu >= Fraction(2, 5) else some, Fraction(1, 50), 160)
    else:
        design = SplitDesign(Fraction(7, 10), Fraction(1, 100), 160)
    smallest = Fraction(LEAST_SUBSAMPLE, n_records)
    if smallest > Fraction(1, 2):
        raise RecordsError("A split needs at least 60 records.")
    return SplitDesign(design.full, max(design.share, smallest), design.subsamples)


@dataclass(frozen=True)
class SubsampleSplit:
    """The release of one statistic at fixed parameters; all of them are public.

    Attributes:
        statistic: One number of sensitivity c/m.
        n_records: Number of records n.
        size: Records m in a subsample.
        subsamples: Their number B.
        full: Noise on the statistic of all records.
        part: Noise on that of a subsample.
    """

    statistic: Statistic
    n_records: int
    size: int
    subsamples: int
    full: StatisticNoise
    part: StatisticNoise

    def __post_init__(self) -> None:
        if self.statistic.dimension != 1:
            raise RecordsError("A split takes a statistic of one number.")

    @classmethod
    def calibrate(
        cls,
        statistic: Statistic,
        mu: Fraction,
        *,
        n_records: int,
        n_cells: int | None = None,
        design: SplitDesign | None = None,
        goal: Goal | None = None,
    ) -> SubsampleSplit:
        """The least noise on the subsamples proven to meet a goal together with the full one.

        Args:
            statistic: One number of sensitivity c/m.
            mu: Of everything released, by which it is split.
            n_records: Number of records n.
            n_cells: Of the declared domain; as many as records if not given.
            design: How the budget is split; a good one by default.
            goal: Points (epsilon, largest delta); by default those of mu-GDP down to 1e-10.
        """
        StatisticNoise.check_accuracy(n_records=n_records, n_cells=n_cells or n_records)
        design = design or default_design(mu, n_records)
        size = max(2, round(design.share * n_records))
        full = StatisticNoise.calibrate(
            design.full * mu**2, sensitivity=Fraction(statistic.constant) / n_records
        )
        full.check_bounds(*statistic.bounds)  # its steps are smaller than those of the parts
        square = largest_mu_squared(
            SubsampleLoss(Fraction(1), Fraction(size, n_records)),
            design.subsamples,
            goal or gaussian_goal(mu),
            (GaussianLoss(Fraction(0), full.mu_squared),),
        )
        part = StatisticNoise.calibrate(square, sensitivity=Fraction(statistic.constant) / size)
        return cls(statistic, n_records, size, design.subsamples, full, part)

    def loss(self) -> PrivacyLoss:
        """The privacy loss of everything released; takes no data."""
        share = Fraction(self.size, self.n_records)
        return composed(
            SubsampleLoss(self.part.mu_squared, share),
            self.subsamples,
            (GaussianLoss(Fraction(0), self.full.mu_squared),),
        )

    def release(self, counts: Codes, columns: _Doubles, rng: Randomness) -> tuple[float, _Doubles]:
        """The noisy statistic of all records, and those float64[B] of the subsamples.

        Args:
            counts: int64[k], private counts of the occupied cells, adding up to n.
            columns: float64[k, c], values of the statistic's columns in [0, 1].
            rng: Source of bits; charge the ledger before building it.
        """
        weights = subset_counts(counts, self.size, self.subsamples, rng)
        whole = self.full.release(evaluated(self.statistic, counts[None, :], columns), rng)
        parts = self.part.release(evaluated(self.statistic, weights, columns), rng)
        return float(whole[0, 0]), parts[:, 0]

    @property
    def most_variance(self) -> float:
        """The largest variance the statistic can have, n D^2/4."""
        return self.n_records * float(self.full.sensitivity) ** 2 / 4

    def half_width(self, spread: _Doubles | float, level: float) -> _Doubles:
        """Half the width of the interval, from the subsamples' variance S^2 (with B - 1)."""
        k, a = _constants(self._known, self.subsamples, level)
        found = np.asarray(spread, np.float64)
        return _half_width(found, self._known, k, a, normal_quantile(level))

    def interval(self, value: float, parts: _Doubles, level: float) -> tuple[float, float]:
        """The interval for what the statistic estimates."""
        reach = float(self.half_width(float(np.var(parts, ddof=1)), level))
        low, high = self.statistic.bounds
        return min(max(value - reach, low), high), min(max(value + reach, low), high)

    @property
    def _known(self) -> _Known:
        share = self.size / self.n_records
        return _Known(share, self.part.sigma**2, self.full.sigma**2, self.most_variance)

    def expected_width(self, variance: float, level: float) -> float:
        """Mean width if the statistic has this variance."""
        share = self.size / self.n_records
        draws = _chi_square(self.subsamples)
        spread = ((1 - share) / share * variance + self.part.sigma**2) * draws
        return 2 * float(np.mean(self.half_width(spread, level)))


class _Known(NamedTuple):
    """p, the variances of both noises, and the largest of the statistic."""

    share: float
    part: float
    full: float
    most: float


def _half_width(spread: _Doubles, known: _Known, k: float, a: float, z: float) -> _Doubles:
    share = known.share
    variance = np.maximum(share / (1 - share) * (spread - known.part), 0.0)
    cap = z * math.sqrt(known.most + known.full)
    found: _Doubles = np.minimum(k * np.sqrt(variance + known.full + a), cap)
    return found


def _chi_square(subsamples: int) -> _Doubles:
    """Equally likely values of a chi-square variable over its degrees of freedom."""
    from scipy.special import gammaincinv

    places, half = (np.arange(_NODES) + 0.5) / _NODES, (subsamples - 1) / 2
    found: _Doubles = gammaincinv(half, places) / half
    return found


@functools.lru_cache(maxsize=256)
def _constants(known: _Known, subsamples: int, level: float) -> tuple[float, float]:
    """The k and a of the shortest interval that keeps the level for every variance."""
    from scipy.special import erf

    z, least = normal_quantile(level), level - _TOLERANCE * (1 - level)
    chi, odds = _chi_square(subsamples), (1 - known.share) / known.share
    variances = np.concatenate([[0.0], known.most * np.geomspace(1e-6, 1.0, _VARIANCES - 1)])
    spread = (odds * variances + known.part)[:, None] * chi
    deviation = np.sqrt(2 * (variances + known.full))[:, None]
    typical = (odds * known.most * np.array(_TYPICAL) + known.part)[:, None] * chi
    oracle = np.sqrt(known.most * np.array(_TYPICAL) + known.full)[:, None]

    def covers(k: float, a: float) -> bool:
        reach = _half_width(spread, known, k, a, z)
        return bool(np.min(np.mean(erf(reach / deviation), axis=1)) >= least)

    found: list[tuple[float, float, float]] = []
    for k in (z * factor for factor in _MULTIPLIERS):
        low, high = 0.0, 4 * known.most
        if not covers(k, high):
            continue
        while high > low + 1e-4 * known.most:
            middle = (low + high) / 2
            low, high = (low, middle) if covers(k, middle) else (middle, high)
        width = float(np.mean(_half_width(typical, known, k, high, z) / oracle))
        found.append((width, k, high))
    if not found:
        raise RecordsError("No interval keeps the level; ask for more subsamples.")
    return min(found)[1:]
