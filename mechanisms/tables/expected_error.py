"""Expected error of a release, from public quantities only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mechanisms.tables.expected_variation import (
    drawn_total_variation,
    projected_total_variation,
)

BRIDGE = math.sqrt(math.pi / 2) * math.log(2)
"""Expected largest absolute value of a Brownian bridge (Kolmogorov's law), 0.8687."""


@dataclass(frozen=True, kw_only=True)
class ExpectedCounts:
    """What an analyst can expect before any data is read.

    With N = n + pseudocount |domain| and a cell of sampling probability p, the
    debiased count has standard deviation N sqrt(p(1-p)/m) (mechanisms/README.md,
    section 2).

    Attributes:
        cell_sd_average: That deviation, in records, at p = 1/|domain|.
        cell_sd_empty: The same for a cell that is empty in the data.
        cell_sd_most: The largest it can be for any cell of any data: p = 1/2, or the
            largest possible p = (n + pseudocount)/N if that is less.
        total_variation: Bound on the expected total variation distance (half the
            sum of absolute differences) between the debiased shares, which may be
            negative, and the true ones, for any data; it may pass 1. (Cauchy-Schwarz
            over the cells; their deviations add up to most when all are equal.)
        projected_total_variation: About the expected total variation of the projected
            counts, for reference shapes (this module's text): a guide, not a bound.
        kolmogorov_smirnov: About the expected Kolmogorov-Smirnov distance between the
            shares of ordered cells, made to add up to 1, and the true ones, taken as that
            of a Brownian bridge: a guide to compare mechanisms by, not a bound. Few cells
            have less; shares that may be negative and need not add up to 1 have more.
        uniform_share: Expected share of the drawn records that come from the
            pseudocount, uniform over the domain, and not from the data.
    """

    cell_sd_average: float
    cell_sd_empty: float
    cell_sd_most: float
    total_variation: float
    projected_total_variation: float
    kolmogorov_smirnov: float
    uniform_share: float

    def deciding(self, criterion: str) -> float:
        """The error that a product with an open mechanism minimises."""
        return {
            "total_variation": self.projected_total_variation,
            "kolmogorov_smirnov": self.kolmogorov_smirnov,
            "cell_sd": self.cell_sd_average,
        }.get(criterion, math.inf)

    def rows(self) -> Iterator[tuple[str, str]]:
        """Labels and values."""
        yield "expected sd of a cell, average", f"{self.cell_sd_average:,.1f} records"
        yield "expected sd of a cell, at most", f"{self.cell_sd_most:,.1f} records"
        yield "expected total variation, projected", f"{self.projected_total_variation:.4f}"
        yield "the same unprojected, at most", f"{self.total_variation:.4f}"
        if self.uniform_share:
            yield "records that are uniform", f"{self.uniform_share:.1%}"

    def summary(self) -> str:
        """The average error of a cell, and the total variation."""
        return (
            f"sd of a cell {self.cell_sd_average:,.1f} records on average, total variation "
            f"{self.projected_total_variation:.4f} once projected"
        )

    @classmethod
    def of_noise(
        cls, sd: float, *, n_records: int, n_cells: int, laplace: bool = False
    ) -> ExpectedCounts:
        """Expected error of independent noise of this standard deviation on every cell."""
        return cls(
            cell_sd_average=sd,
            cell_sd_empty=sd,
            cell_sd_most=sd,
            total_variation=sd * n_cells / (2 * n_records),
            projected_total_variation=projected_total_variation(
                lambda counts: np.full_like(counts, sd),
                n_records=n_records,
                n_cells=n_cells,
                laplace=laplace,
            ),
            kolmogorov_smirnov=BRIDGE * sd * math.sqrt(n_cells) / n_records,
            uniform_share=0.0,
        )

    @classmethod
    def of_bootstrap(
        cls, pseudocount: Fraction, records: int, *, n_records: int, n_cells: int
    ) -> ExpectedCounts:
        """Expected error of m = ``records`` draws with this pseudocount."""
        total = n_records + pseudocount * n_cells

        def deviation(p: Fraction) -> float:
            return float(total) * math.sqrt(p * (1 - p) / records)

        return cls(
            cell_sd_average=deviation(Fraction(1, n_cells)),
            cell_sd_empty=deviation(pseudocount / total),
            cell_sd_most=deviation(min(Fraction(1, 2), (n_records + pseudocount) / total)),
            total_variation=float(total / n_records) * math.sqrt((n_cells - 1) / records) / 2,
            projected_total_variation=drawn_total_variation(
                pseudocount, records, n_records=n_records, n_cells=n_cells
            ),
            kolmogorov_smirnov=BRIDGE * float(total / n_records) / math.sqrt(records),
            uniform_share=float(pseudocount * n_cells / total),
        )

    @classmethod
    def of_records(cls, records: int, *, n_records: int, n_cells: int) -> ExpectedCounts:
        """Sampling error of k = ``records`` records that stand for the data as they are.

        What chooses them is biased by an amount that depends on the data, so these
        figures are a guide for data near the base measure, not bounds; that of the
        total variation is the one that always holds.
        """

        def deviation(p: float) -> float:
            return n_records * math.sqrt(p * (1 - p) / records)

        return cls(
            cell_sd_average=deviation(1 / n_cells),
            cell_sd_empty=deviation(1 / (records + 2)),
            cell_sd_most=deviation(0.5),
            total_variation=1.0 if n_cells > 1 else 0.0,
            projected_total_variation=1.0 if n_cells > 1 else 0.0,
            kolmogorov_smirnov=min(BRIDGE / math.sqrt(records), 1.0),
            uniform_share=0.0,
        )


@dataclass(frozen=True, kw_only=True)
class ExpectedRecords(ExpectedCounts):
    """The same of microdata, with what decides between their mechanisms.

    Attributes:
        pair_total_variation: About the expected total variation of the tables of two columns
            of the records, on average (mechanisms.expectations.pairs_of_columns); None if it is not
            known.
    """

    pair_total_variation: float | None

    def deciding(self, criterion: str) -> float:
        if criterion != "pair_total_variation":
            return super().deciding(criterion)
        pairs = self.pair_total_variation
        return math.inf if pairs is None else pairs

    def rows(self) -> Iterator[tuple[str, str]]:
        if self.pair_total_variation is not None:
            yield "expected total variation of pairs", f"{self.pair_total_variation:.4f}"
        yield from super().rows()
