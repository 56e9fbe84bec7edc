"""Noisy tables of the same bins at two resolutions, made consistent: small errors of the cdf.

A share below an edge adds up the noise of all bins below it. With s = a b bins, released
are the table of a coarse blocks and that of all s bins, each with discrete Gaussian noise;
their weighted least squares (``mechanisms.consistency``) adds up a few coarse blocks and
the bins of one block alone. Last the blocks are projected onto the simplex, then the bins
of each block onto its total. For wider trees see Hay, Rastogi, Miklau and Suciu (2010).

The loss is that of both tables composed (``mechanisms.composition``). The parts are all
in the library; as one mechanism for a config it is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mechanisms.accuracy import BRIDGE
from mechanisms.columns import Integer
from mechanisms.composition import compose
from mechanisms.consistency import NoisyTable, make_consistent
from mechanisms.domain import Domain
from mechanisms.errors import InfeasibleBudgetError
from mechanisms.losses import PrivacyLoss
from mechanisms.mechanism import Target
from mechanisms.perturbed import GaussianTable
from mechanisms.projection import project_to_simplex
from mechanisms.randomness import Randomness
from mechanisms.table import ContingencyTable
from tests.benchmarks.papers.bin_shares import Counts, Shares

_STEPS, _WIDEST = 256, 1 << 20  # scales are multiples of 1/256


@dataclass(frozen=True)
class TwoResolutions:
    """The release at fixed parameters.

    Attributes:
        blocks: Number a of coarse blocks.
        width: Bins b of each.
        noise: Of both tables.
    """

    blocks: int
    width: int
    noise: GaussianTable

    def loss(self, *, n_records: int, n_cells: int) -> PrivacyLoss:
        """Of both tables together; a record that moves counts in two cells of each."""
        return compose([self.noise.loss(n_records=n_records, n_cells=n_cells)] * 2)

    def expected_error(self, *, n_records: int) -> float:
        """About the expected KS error, from public quantities alone.

        As for one table (``mechanisms.accuracy``): twice BRIDGE times the largest standard
        deviation of the cdf, half-way through the middle block; a bridge over a blocks of
        pooled variance, plus one over b bins.
        """
        square = self.noise.sd**2
        block = square / (1 + 1 / self.width)
        peak = (self.blocks * block + self.width * square) / 4
        return 2 * BRIDGE * math.sqrt(peak) / n_records

    def release(self, counts: Counts, rng: Randomness) -> Shares:
        """float64[s], projected, from private counts int64[s]."""
        n, occupied = int(counts.sum()), np.flatnonzero(counts)
        columns = [("block", self.blocks), ("bin", self.width)]
        domain = Domain(tuple(Integer(name=c, lower=0, upper=k - 1) for c, k in columns))
        bins = ContingencyTable(domain, occupied, counts[occupied])
        noisy = []
        for table in (bins.marginal(["block"]), bins):
            shape = [column.size for column in table.domain.columns]
            drawn = self.noise.release(table, rng).counts.reshape(shape)
            noisy.append(NoisyTable(table.domain, drawn.astype(np.float64), self.noise.sd**2))
        coarse, fine = make_consistent(noisy, total=n)
        totals = project_to_simplex(coarse.estimates, n).values
        rows = zip(fine.estimates, totals, strict=True)
        return np.concatenate([project_to_simplex(row, total).values for row, total in rows]) / n

    @classmethod
    def calibrate(cls, target: Target) -> TwoResolutions | None:
        """The least noise that meets the target, at the split of the least expected error.

        None if the number of bins is prime.

        Raises:
            InfeasibleBudgetError: Noise of scale 4096 is too little.
        """
        low, high = 0, _WIDEST
        while high - low > 1:
            middle = (low + high) // 2
            made = cls(1, 1, GaussianTable(Fraction(middle, _STEPS)))
            fits = target.allows(made.loss(n_records=target.n_records, n_cells=target.n_cells))
            low, high = (low, middle) if fits else (middle, high)
        if high == _WIDEST:
            raise InfeasibleBudgetError("Noise of scale 4096 is too little for the budget.")
        noise, s = GaussianTable(Fraction(high, _STEPS)), target.n_cells
        splits = [cls(a, s // a, noise) for a in range(2, s) if s % a == 0]
        return min(
            splits,
            key=lambda split: split.expected_error(n_records=target.n_records),
            default=None,
        )
