"""One release of a statistic of sensitivity c/m, and many small subsamples for its variance.

Part of the budget goes to the statistic g of all n records, with normal noise of standard
deviation s. The rest goes to B random subsamples of m = p n records drawn without
replacement, each statistic with noise of standard deviation t, amplified by the sampling
(mechanisms.accounting.resampling_losses.SubsampleLoss). Replace-one neighbours.

The subsamples' statistics have variance S^2 = (1 - p)/p V + t^2 about, V the variance of g. So V is
estimated by p/(1 - p) (S^2 - t^2), and the half-width of the interval follows from S^2 by the rule
of mechanisms.inference.resampling.unknown_variance, which keeps the level for every V from 0 to n
D^2/4, D = c/n.

**The centre.** If the statistic is unbiased (mechanisms.inference.statistics.is_unbiased), the mean
of the subsamples estimates g as well, with variance ((1 - p)/p V + t^2)/B. The centre is then
(1 - w) times the statistic of all records plus w times that mean, w by their variances at the
presumed V. Its variance is b V + (1 - w)^2 s^2 + w^2 t^2/B with b = 1 + w^2 (1 - p)/(p B), which
the rule is told. So what was spent on the subsamples also makes the estimate more precise. For any
other statistic w is 0.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting.analytic import GaussianLoss
from mechanisms.accounting.privacy_loss import PrivacyLoss
from mechanisms.accounting.resampling_losses import SubsampleLoss
from mechanisms.domain.columns import Codes
from mechanisms.inference.resampling.resampling_calibration import (
    Goal,
    composed,
    gaussian_goal,
    largest_mu_squared,
)
from mechanisms.inference.resampling.subsample_designs import SplitDesign, default_design
from mechanisms.inference.resampling.unknown_variance import NoisyVariance, WidthRule
from mechanisms.inference.statistics import Statistic, evaluated, is_unbiased
from mechanisms.sampling.randomness import Randomness
from mechanisms.sampling.resample_sampler import subset_counts
from mechanisms.sampling.statistic_noise import StatisticNoise

_Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class SubsampleSplit:
    """The release of one statistic at fixed parameters; all of them are public.

    Attributes:
        statistic: Of sensitivity c/m.
        n_records: Number of records n.
        size: Records m in a subsample.
        subsamples: Their number B.
        full: Noise on the statistic of all records.
        part: Noise on that of a subsample.
        part_weight: Weight w of the subsamples' mean in the centre.
    """

    statistic: Statistic
    n_records: int
    size: int
    subsamples: int
    full: StatisticNoise
    part: StatisticNoise
    part_weight: float = 0.0

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
        presumed: float | None = None,
    ) -> SubsampleSplit:
        """The least noise on the subsamples proven to meet a goal together with the full one.

        Args:
            statistic: Of sensitivity c/m.
            mu: Of everything released, by which it is split.
            n_records: Number of records n.
            n_cells: Of the declared domain; as many as records if not given.
            design: How the budget is split; a good one by default.
            goal: Points (epsilon, largest delta); by default those of mu-GDP down to 1e-10.
            presumed: Variance of the statistic for which the split is made; by default a third of
                the largest.
        """
        StatisticNoise.check_accuracy(n_records=n_records, n_cells=n_cells or n_records)
        move, dimension = Fraction(statistic.constant) / n_records, statistic.dimension
        variance = n_records * float(move) ** 2 / 12 if presumed is None else presumed
        unbiased = is_unbiased(statistic)
        design = design or default_design(
            mu, n_records, sensitivity=float(move), variance=variance, unbiased=unbiased
        )
        size = max(2, round(design.share * n_records))
        full = StatisticNoise.calibrate(design.full * mu**2, sensitivity=move, dimension=dimension)
        full.check_bounds(*statistic.bounds)  # its steps are smaller than those of the parts
        square = largest_mu_squared(
            SubsampleLoss(Fraction(1), Fraction(size, n_records)),
            design.subsamples,
            goal or gaussian_goal(mu),
            (GaussianLoss(Fraction(0), full.mu_squared),),
        )
        part = StatisticNoise.calibrate(
            square, sensitivity=Fraction(statistic.constant) / size, dimension=dimension
        )
        made = cls(statistic, n_records, size, design.subsamples, full, part)
        if not unbiased:
            return made
        known, noise = made.known, full.sigma**2
        mean = (known.spread_gain * variance + known.spread_noise) / design.subsamples
        return dataclasses.replace(made, part_weight=noise / (noise + mean))

    def loss(self) -> PrivacyLoss:
        """The privacy loss of everything released; takes no data."""
        share = Fraction(self.size, self.n_records)
        return composed(
            SubsampleLoss(self.part.mu_squared, share),
            self.subsamples,
            (GaussianLoss(Fraction(0), self.full.mu_squared),),
        )

    def release(
        self, counts: Codes, columns: _Doubles, rng: Randomness
    ) -> tuple[_Doubles, _Doubles]:
        """The noisy statistic float64[d] of all records, and those float64[B, d] of subsamples.

        Args:
            counts: int64[k], private counts of the occupied cells, adding up to n.
            columns: float64[k, c], values of the statistic's columns in [0, 1].
            rng: Source of bits; charge the ledger before building it.
        """
        weights = subset_counts(counts, self.size, self.subsamples, rng)
        whole = self.full.release(evaluated(self.statistic, counts[None, :], columns), rng)
        parts = self.part.release(evaluated(self.statistic, weights, columns), rng)
        return whole[0], parts

    @property
    def known(self) -> NoisyVariance:
        """What the half-width of an interval follows from."""
        share, w, count = self.size / self.n_records, self.part_weight, self.subsamples
        gain, noise = (1 - share) / share, self.part.sigma**2
        return NoisyVariance(
            spread_gain=gain,
            spread_noise=noise,
            freedom=count - 1,
            centre_gain=1 + w**2 * gain / count,
            centre_noise=(1 - w) ** 2 * self.full.sigma**2 + w**2 * noise / count,
            most=self.n_records * float(self.full.sensitivity) ** 2 / 4,
        )

    def centre(self, value: float, parts: _Doubles) -> float:
        """The estimate, from one coordinate of what was released."""
        if not self.part_weight:
            return value
        return (1 - self.part_weight) * value + self.part_weight * float(np.mean(parts))

    def interval(
        self, value: float, parts: _Doubles, level: float, rule: WidthRule
    ) -> tuple[float, float, float]:
        """The interval for what one coordinate estimates, and its half-width before clipping."""
        spread, centre = np.var(parts, ddof=1, keepdims=True), self.centre(value, parts)
        reach = float(rule.half_width(self.known, spread, level)[0])
        low, high = self.statistic.bounds
        return min(max(centre - reach, low), high), min(max(centre + reach, low), high), reach
