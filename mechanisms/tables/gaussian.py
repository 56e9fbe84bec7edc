"""A table with discrete Gaussian noise on every possible cell.

The guarantee is proven in mechanisms.tables.perturbed_histogram.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting.analytic import ConcentratedLoss
from mechanisms.accounting.noise_losses import DiscreteGaussianLoss
from mechanisms.accounting.privacy_loss import PrivacyLoss
from mechanisms.base.citation import CANONNE_KAMATH_STEINKE, PROOF, Citation
from mechanisms.sampling.randomness import Randomness
from mechanisms.tables.perturbed_histogram import Perturbed


@dataclass(frozen=True)
class GaussianTable(Perturbed):
    """Discrete Gaussian noise, exp(-z**2/(2 scale**2))."""

    name: ClassVar[str] = "gaussian"
    citations: ClassVar[tuple[Citation, ...]] = (
        CANONNE_KAMATH_STEINKE.at("Theorem 4"),
        PROOF.at("Theorems 3.1 and 3.2"),
    )
    is_laplace: ClassVar[bool] = False

    def _loss(self, unit_records: int) -> PrivacyLoss:
        one_move = DiscreteGaussianLoss(self.scale**2, unit_records, 2)
        if unit_records == 1:
            return one_move
        return ConcentratedLoss.of_discrete_gaussian(
            Fraction(2 * unit_records**2), self.scale, 2 * unit_records, one_move
        )

    def _noise(self, rng: Randomness, size: int) -> NDArray[np.int64]:
        return rng.discrete_gaussian(self.scale, size)

    @property
    def sd(self) -> float:
        """At most the scale (Canonne, Kamath and Steinke 2020, Corollary 9)."""
        return float(self.scale)
