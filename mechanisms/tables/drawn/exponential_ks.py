"""Exponential mechanism of the Kolmogorov-Smirnov distance: records near in distribution.

Source: Wasserman and Zhou (2010, doi 10.1198/jasa.2009.tm08651), section 5.1, sampled exactly by
mechanisms.sampling.ks_sampler, with utility u(z) = ceil(n KS(h, z)), which a replaced record moves
by at most 1. Released are k records of one column. Its cells count in their declared order,
``other`` and ``missing`` last; of categories without an order the distance is as private and says
little.

**Records.** By default n^(2/3) (Theorem 15), at most 10^5 over the number of cells s. The
time depends on the data and on epsilon: some milliseconds, and up to half a minute at
s k = 10^5 where epsilon n is so small that the release knows next to nothing. A given k
may go up to 10^5 and s k = 10^6, where such a case takes many minutes.

**Error.** Within a band of radius x of the data's distribution function lie k uniform
draws with log probability about -pi^2/(8 k x^2), if the data are near uniform (the small
ball of a Brownian bridge; the paper's section 5). The release's radius is about the x
that makes pi^2/(8 k x^2) + e n x/2 least, x = (pi^2/(2 k e n))^(1/3), and not above the
sampling error of k records. Data far from uniform add a bias that no public quantity tells;
it is small where k is well below e n.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import ClassVar, Self

from mechanisms.accounting.analytic import BoundedRangeLoss
from mechanisms.base.citation import CESAR_ROGERS, MCSHERRY_TALWAR, PROOF, WASSERMAN_ZHOU, Citation
from mechanisms.base.mechanism import Target
from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.errors import ConfigError, RecordsError
from mechanisms.sampling.ks_sampler import sample_ks
from mechanisms.sampling.randomness import Progress, Randomness
from mechanisms.tables.drawn.exponential_records import (
    ExponentialRecords,
    check_records,
    dense_counts,
    sparse_table,
)
from mechanisms.tables.expected_error import BRIDGE, ExpectedCounts

MOST_CELLS = 100_000
_MOST_STEPS, _MOST_GIVEN_STEPS = 10**5, 10**6
_INSTEAD = (
    "Give one column and fewer cells, or use 'sample_resample', 'smoothed_histogram' or"
    " 'bootstrap', which serve several columns."
)


@dataclass(frozen=True, kw_only=True)
class ExponentialKSKnobs:
    """What a config may say about this mechanism.

    Attributes:
        records: Records to release, k; by default n^(2/3), bounded as the module says.
    """

    records: int | None = None

    def __post_init__(self) -> None:
        if self.records is not None:
            check_records(self.records, "records")


@dataclass(frozen=True, kw_only=True)
class ExponentialKS(ExponentialRecords):
    """The mechanism at fixed parameters."""

    name: ClassVar[str] = "exponential_ks"
    citations: ClassVar[tuple[Citation, ...]] = (
        WASSERMAN_ZHOU.at("Theorem 5, section 5.1"),
        MCSHERRY_TALWAR,
        CESAR_ROGERS,
        PROOF.at("Theorems 4.1 and 4.2"),
    )
    knobs: ClassVar[type] = ExponentialKSKnobs

    def release(
        self, table: ContingencyTable, rng: Randomness, progress: Progress | None = None
    ) -> ContingencyTable:
        """Draw the records, held as counts per drawn cell."""
        drawn = sample_ks(dense_counts(table), self.records, self.epsilon, rng)
        if progress is not None:
            progress(self.records)
        return sparse_table(table.domain, drawn)

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedCounts:
        """As the module's text says; a guide, not a bound."""
        error = super().expected_error(n_records=n_records, n_cells=n_cells)
        energy = self.records * float(self.epsilon) * n_records
        radius = (math.pi**2 / (2 * energy)) ** (1 / 3)
        distance = min(radius, BRIDGE / math.sqrt(self.records), 1.0)
        return replace(error, kolmogorov_smirnov=distance)

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        return cls(
            epsilon_per_record=Decimal(str(description["epsilon_per_record"])),
            records=int(str(description["records"])),
        )

    @classmethod
    def calibrate(cls, knobs: ExponentialKSKnobs, target: Target) -> Self:
        """The largest epsilon that the target allows.

        Raises:
            ConfigError: The product has several columns or too many cells, or there are
                too many records for it.
            InfeasibleBudgetError: The budget is next to nothing.
        """
        (cells,) = target.grid(cls.name, columns=1, instead=_INSTEAD)
        if cells > MOST_CELLS:
            raise ConfigError(
                f"The mechanism '{cls.name}' serves at most {MOST_CELLS:,} cells; "
                f"{cells:,} are too many.",
                next_step=_INSTEAD,
            )
        rate = max(1, round(target.n_records ** (2 / 3)))
        records = knobs.records or min(rate, max(1, _MOST_STEPS // cells))
        most = min(_MOST_GIVEN_STEPS // cells, _MOST_STEPS)
        if records > most:
            raise RecordsError(
                f"'{cls.name}' can draw at most {most:,} records over {cells:,} cells.",
                next_step=f"Give at most {most:,} records, or leave them out.",
            )
        return cls(epsilon_per_record=target.pure_epsilon(BoundedRangeLoss), records=records)
