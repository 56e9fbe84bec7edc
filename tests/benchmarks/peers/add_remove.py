"""Our mechanisms calibrated for the peers' adjacency; for these benchmarks only.

Peers protect a record that is added or removed. The product protects one that is replaced and takes
the number of records n as public. Here n stays public, which add/remove does not allow by itself:
the comparison is of noise, not of guarantees. A record that is added moves one cell of a table by
one, where one that is replaced moves two: squared sensitivity 1 for 2, and the L1 score of a pair
moves by at most 1 for 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from statpress.mechanisms.accounting.losses import PrivacyLoss
from statpress.mechanisms.accounting.noise_losses import DiscreteGaussianLoss, DiscreteLaplaceLoss
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.tables.perturbed import GaussianTable, LaplaceTable

_ROOT = Fraction(math.sqrt(2) * (1 - 1e-12))


class AddRemoveTarget(Target):
    """A target whose mu is sqrt(2) times as large: exact for tables, too careful for scores.

    With mu' = sqrt(2) mu the mechanism adds noise of variance 2 / (mu'^2 f) = 1 / (mu^2 f) to a
    table, which spends f of mu^2. To P scores it adds 4 P / (mu'^2 f) = 2 P / (mu^2 f), of which
    they would need half.
    """

    def largest_mu(self) -> Fraction:
        return super().largest_mu() * _ROOT


@dataclass(frozen=True)
class AddRemoveLaplace(LaplaceTable):
    """One cell moves by one."""

    def _loss(self, unit_records: int) -> PrivacyLoss:
        return DiscreteLaplaceLoss(self.scale / unit_records, 1, 1)


@dataclass(frozen=True)
class AddRemoveGaussian(GaussianTable):
    """One cell moves by one."""

    def _loss(self, unit_records: int) -> PrivacyLoss:
        return DiscreteGaussianLoss(self.scale**2, unit_records, 1)
