"""A table with discrete Laplace noise on every possible cell.

The guarantee is proven in mechanisms.tables.perturbed_histogram.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting.noise_losses import DiscreteLaplaceLoss
from mechanisms.accounting.privacy_loss import PrivacyLoss
from mechanisms.base.citation import DWORK, GHOSH, PROOF, Citation
from mechanisms.sampling.randomness import Randomness
from mechanisms.tables.perturbed_histogram import Perturbed


@dataclass(frozen=True)
class LaplaceTable(Perturbed):
    """Two-sided geometric noise, exp(-|z|/scale); charged its pure epsilon 2c/scale."""

    name: ClassVar[str] = "laplace"
    citations: ClassVar[tuple[Citation, ...]] = (
        DWORK,
        GHOSH,
        PROOF.at("Theorems 3.1 and 3.2"),
    )
    pure: ClassVar[bool] = True
    is_laplace: ClassVar[bool] = True

    def _loss(self, unit_records: int) -> PrivacyLoss:
        return DiscreteLaplaceLoss(self.scale / unit_records, 1, 2)

    def _noise(self, rng: Randomness, size: int) -> NDArray[np.int64]:
        return rng.discrete_laplace(self.scale, size)

    @property
    def sd(self) -> float:
        """Of variance 2 r / (1 - r)**2, r = exp(-1/scale)."""
        return math.sqrt(2) * math.exp(-0.5 / float(self.scale)) / -math.expm1(-1 / self.scale)
