"""Noisy bootstrap replicates of a statistic: the DP bootstrap, strictly at finite B.

Algorithm 1 of Wang, Cheng and Awan (2022, arXiv 2210.06140) on weighted cells: a replicate is the
statistic of a bootstrap resample plus Gaussian noise. Replace-one neighbours; a unit is one
record. The loss of one replicate is theirs of Theorem 3.4
(mechanisms.accounting.resampling_losses), composed B times; the noise is the least that is proven
to meet the goal, or the paper's, asymptotic and too small, for comparison. Either way ``loss`` is
the proven cost of the noise used.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting.privacy_loss import PrivacyLoss
from mechanisms.accounting.resampling_losses import BootstrapLoss
from mechanisms.domain.columns import Codes
from mechanisms.errors import InfeasibleBudgetError, RecordsError
from mechanisms.inference.resampling.replicate_intervals import NoisyReplicates
from mechanisms.inference.resampling.resampling_calibration import (
    Goal,
    composed,
    gaussian_goal,
    largest_mu_squared,
    paper_mu_squared,
)
from mechanisms.inference.statistics import Statistic, evaluated
from mechanisms.sampling.randomness import Randomness
from mechanisms.sampling.resample_sampler import BootstrapSampler
from mechanisms.sampling.statistic_noise import StatisticNoise

Calibration = Literal["strict", "paper"]
_CHUNK = 1 << 20  # counts held at a time


@dataclass(frozen=True)
class BootstrapReplicates:
    """The release of B noisy replicates at fixed parameters; all of them are public.

    Attributes:
        statistic: What is replicated.
        n_records: Number of records n.
        replicates: Number of replicates B.
        noise: On each of them.
        calibration: How the noise was chosen.
    """

    statistic: Statistic
    n_records: int
    replicates: int
    noise: StatisticNoise
    calibration: Calibration = "strict"

    def __post_init__(self) -> None:
        if self.n_records < 2 or self.replicates < 1:
            raise RecordsError("A bootstrap needs two records and one replicate at least.")

    @classmethod
    def calibrate(
        cls,
        statistic: Statistic,
        goal: Goal | Fraction,
        *,
        n_records: int,
        replicates: int,
        n_cells: int | None = None,
    ) -> BootstrapReplicates:
        """The least noise proven to meet a goal, or mu-GDP down to delta = 1e-10.

        Args:
            statistic: What is replicated.
            goal: Points (epsilon, largest delta), or a mu.
            n_records: Number of records n.
            replicates: Number of replicates B.
            n_cells: Of the declared domain; as many as records if not given.
        """
        StatisticNoise.check_accuracy(n_records=n_records, n_cells=n_cells or n_records)
        part = BootstrapLoss(Fraction(1), n_records)
        points = gaussian_goal(goal) if isinstance(goal, Fraction) else goal
        square = largest_mu_squared(part, replicates, points)
        return cls(statistic, n_records, replicates, _noise(statistic, n_records, square))

    @classmethod
    def as_in_paper(
        cls,
        statistic: Statistic,
        mu: Fraction,
        *,
        n_records: int,
        replicates: int,
        n_cells: int | None = None,
    ) -> BootstrapReplicates:
        """The paper's noise, which costs more than mu; ``loss`` says how much."""
        StatisticNoise.check_accuracy(n_records=n_records, n_cells=n_cells or n_records)
        square = paper_mu_squared(mu, replicates)
        noise = _noise(statistic, n_records, square)
        return cls(statistic, n_records, replicates, noise, "paper")

    def loss(self) -> PrivacyLoss:
        """The privacy loss of all replicates; takes no data."""
        return composed(BootstrapLoss(self.noise.mu_squared, self.n_records), self.replicates)

    def check_goal(self, goal: Goal) -> None:
        """Refuse noise, the paper's, of which the proven loss passes a goal.

        Raises:
            InfeasibleBudgetError: It does.
        """
        loss = self.loss()
        if any(loss.delta(epsilon).upper > delta for epsilon, delta in goal):
            raise InfeasibleBudgetError(
                "The paper's noise costs more than this budget.",
                next_step="Raise the budget, lower mu, or leave 'calibration' and 'mu' out.",
            )

    def release(
        self, counts: Codes, columns: NDArray[np.float64], rng: Randomness
    ) -> NDArray[np.float64]:
        """Noisy replicates.

        Args:
            counts: int64[k], private counts of the occupied cells, adding up to n.
            columns: float64[k, c], values of the statistic's columns in [0, 1].
            rng: Source of bits; charge the ledger before building it.

        Returns:
            float64[B, dimension].
        """
        found = np.empty((self.replicates, self.statistic.dimension))
        sampler = BootstrapSampler(counts)
        step = min(self.replicates, max(1, _CHUNK // len(counts)))
        weights = np.empty((step, len(counts)), np.int64)
        for start in range(0, self.replicates, step):
            part = found[start : start + step]
            resamples = sampler.draw(len(part), rng, out=weights[: len(part)])
            part[:] = evaluated(self.statistic, resamples, columns)
        return self.noise.release(found, rng)

    def inference(self, values: NDArray[np.float64], coordinate: int = 0) -> NoisyReplicates:
        """One coordinate of what was released, with what its intervals need."""
        most = float(self.noise.sensitivity)
        return NoisyReplicates(values[:, coordinate], self.noise.sigma, self.n_records, most)


def _noise(statistic: Statistic, n_records: int, mu_squared: Fraction) -> StatisticNoise:
    found = StatisticNoise.calibrate(
        mu_squared,
        sensitivity=Fraction(statistic.constant) / n_records,
        dimension=statistic.dimension,
    )
    found.check_bounds(*statistic.bounds)
    return found
