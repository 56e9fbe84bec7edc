"""Medians and quantiles by the exponential mechanism, with an interval that holds for every law.

The mechanism is mechanisms.inference.quantiles.quantile_choice on the column's own cells in the
order of their values; it needs no delta. What is published of a cell are numbers that a record in
it can have: both edges of a bin and their middle, the first and the last whole number of a cell of
whole numbers, and of categories that are numbers the number itself. **The upper end may be the last
whole number** of a cell, not the first of the next: if that is below the quantile x, then x is in a
later cell, and the records counted up to the cell's end are all below x, which is what the proof of
the interval needs. Numbers within a cell are not told apart: for a bin the quantile is known up to
its width. Records without a value are left out, and how many they are stays private.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_DOWN, Context
from fractions import Fraction
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting.analytic import BoundedRangeLoss
from mechanisms.accounting.privacy_loss import PrivacyLoss
from mechanisms.base.citation import CESAR_ROGERS, MCSHERRY_TALWAR, PROOF, SMITH, Citation
from mechanisms.base.kind import Kind
from mechanisms.base.mechanism import Target, check_frame
from mechanisms.domain.columns import Codes, Column, Integer, Numeric
from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.errors import ConfigError
from mechanisms.estimates.kind import ESTIMATE
from mechanisms.estimates.knobs import EstimandKnobs
from mechanisms.estimates.mechanism import (
    ExpectedInterval,
    check_loss_frame,
    check_serves,
    estimand_for,
    number,
)
from mechanisms.estimates.released import Estimate, RawEstimates, SamplingDistribution
from mechanisms.estimates.terms import Scale, Terms
from mechanisms.inference.quantiles.quantile_choice import END_SHARE, NoisyQuantile, quantile_loss
from mechanisms.sampling.randomness import Progress, Randomness

MOST_CELLS = 4_000_000
"""Of a column; they are all held in memory."""

_Doubles = NDArray[np.float64]
_STEPS, _DIGITS = 40, Context(prec=9, rounding=ROUND_DOWN)
_FIRST_END_SHARE = Fraction(1, 3)  # of descriptions that do not say


class OrderedCells(NamedTuple):
    """The cells of a column of numbers, in the order of their values.

    Attributes:
        codes: int64[k], of each cell in this order.
        first: float64[k], the least value in each.
        last: float64[k], the largest; of a bin its upper edge.
        middle: float64[k], as released.
    """

    codes: Codes
    first: _Doubles
    last: _Doubles
    middle: _Doubles

    @classmethod
    def of(cls, column: Column) -> Self:
        """The cells of a column that hold a value."""
        codes = np.arange(column.n_values)
        middle = column.decode(codes).astype(np.float64)
        if isinstance(column, Numeric):
            edges = column.edge_array
            return cls(codes, edges[:-1], edges[1:], middle)
        half = (column.width - 1) / 2 if isinstance(column, Integer) else 0.0
        order = np.argsort(middle)
        middle = middle[order]
        return cls(codes[order], middle - half, middle + half, middle)


@dataclass(frozen=True)
class QuantileOfCells:
    """The release at fixed parameters; all of them are public.

    Attributes:
        epsilon: Of all three choices together.
        terms: What is stated of the estimate.
        end_share: Of epsilon, for each end of the interval.
        quantile: The choices; None where the mechanism was rebuilt from its description.
        cells: To count by; likewise.
    """

    name: ClassVar[str] = "noisy_quantile"
    citations: ClassVar[tuple[Citation, ...]] = (
        SMITH,
        MCSHERRY_TALWAR,
        CESAR_ROGERS,
        PROOF.at("Theorem 4.2"),
    )
    kinds: ClassVar[tuple[Kind, ...]] = (ESTIMATE,)
    knobs: ClassVar[type] = EstimandKnobs
    pure: ClassVar[bool] = True

    epsilon: Fraction
    terms: Terms
    end_share: Fraction = END_SHARE
    quantile: NoisyQuantile | None = dataclasses.field(default=None, compare=False)
    cells: OrderedCells | None = dataclasses.field(default=None, compare=False)

    @classmethod
    def calibrate(cls, knobs: EstimandKnobs, target: Target) -> Self:
        """The largest epsilon that the target allows.

        Raises:
            ConfigError: The statistic is not one of these.
            InfeasibleBudgetError: The budget allows none.
        """
        check_serves(
            knobs,
            cls.name,
            lambda statistic: statistic.is_quantile,
            guarantees=lambda statistic: statistic.is_quantile,
        )
        estimand = estimand_for(knobs, target, cls.name)
        assert target.domain is not None
        column = target.domain[estimand.arguments[0].name]
        if not 2 <= column.n_values <= MOST_CELLS:
            raise ConfigError(
                f"A quantile needs a column of 2 to {MOST_CELLS:,} cells, and '{column.name}' has "
                f"{column.n_values:,}.",
                where="columns",
                next_step="Declare a larger width, or fewer bins.",
            )
        cells = OrderedCells.of(column)
        epsilon = largest_epsilon(target)
        share = knobs.q or estimand.statistic.quantile_share
        assert share is not None
        quantile = NoisyQuantile(
            edges=tuple(float(place) for place in range(len(cells.codes) + 1)),
            share=share,
            level=knobs.confidence,
            epsilon=epsilon,
            n_records=target.n_records,
            values_lacking=column.size > column.n_values,
        )
        terms = Terms((estimand.quantity(),), (Scale(),), knobs.confidence)
        return cls(epsilon, terms, quantile=quantile, cells=cells)

    @property
    def expected_cells(self) -> int:
        """How many cells the interval spans, for records spread evenly over them."""
        assert self.quantile is not None and self.cells is not None
        count = len(self.cells.codes)
        return min(count, int(self.quantile.expected_share * count) + 1)

    @property
    def span(self) -> float:
        """From the least to the largest value that the quantile can have."""
        assert self.cells is not None
        return float(self.cells.last[-1] - self.cells.first[0])

    def loss(self, *, n_records: int, n_cells: int, unit_records: int = 1) -> PrivacyLoss:
        """The privacy loss of the three choices; takes no data."""
        check_frame(n_records=n_records, n_cells=n_cells, unit_records=unit_records)
        check_loss_frame(n_records, unit_records)
        return quantile_loss(self.epsilon, self.end_share)

    def release(
        self, table: ContingencyTable, rng: Randomness, progress: Progress | None = None
    ) -> RawEstimates:
        """Make the three choices."""
        assert self.quantile is not None and self.cells is not None
        there = table.cells < len(self.cells.codes)  # other codes are those without a value
        places, counts = np.argsort(self.cells.codes)[table.cells[there]], table.counts[there]
        order = np.argsort(places)
        at, low, high = self.quantile.chosen(places[order], counts[order], rng)
        numbers = {
            "value": (float(self.cells.middle[at]),),
            "lower": (float(self.cells.first[low]),),
            "upper": (float(self.cells.last[high]),),
            "cells": (abs(int(high) - int(low)) + 1,),
        }
        return RawEstimates(numbers, table.n_records)

    def estimates(self, raw: RawEstimates) -> tuple[Estimate, ...]:
        """The estimate with its interval."""
        (value,), (one,), (two,) = (raw.numbers[name] for name in ("value", "lower", "upper"))
        return (
            Estimate(
                quantity=self.terms.quantities[0],
                value=value,
                lower=min(one, two),
                upper=max(one, two),
                confidence=self.terms.confidence,
                standard_error=None,
                cells=int(raw.numbers["cells"][0]),
                inference="guaranteed",
            ),
        )

    def distributions(self, raw: RawEstimates) -> tuple[SamplingDistribution, ...]:
        """None is known."""
        return ()

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedInterval:
        """The width for records spread evenly over the cells."""
        assert self.quantile is not None and self.cells is not None
        count, spanned = len(self.cells.codes), self.expected_cells
        start = (count - spanned) // 2
        width = self.cells.last[start + spanned - 1] - self.cells.first[start]
        return ExpectedInterval(
            quantities=self.terms.quantities, width=(float(width),), noise_sd=(None,)
        )

    def describe(self) -> dict[str, str | int]:
        """The parameters, enough to rebuild all but what the quantile is chosen by."""
        return {
            "mechanism": self.name,
            "epsilon_per_record": str(self.epsilon),
            **({} if self.end_share == _FIRST_END_SHARE else {"end_share": str(self.end_share)}),
            **self.terms.describe(),
        }

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from ``describe``."""
        share = _FIRST_END_SHARE
        if "end_share" in description:
            share = number(description, "end_share")
        if not 0 < 2 * share < 1:
            raise ConfigError("The description's end_share is not between 0 and 1/2.")
        epsilon = number(description, "epsilon_per_record")
        return cls(epsilon, Terms.from_description(description), share)


def largest_epsilon(target: Target) -> Fraction:
    """The largest epsilon of three choices together that a target allows.

    A budget of rho, or of a divergence, allows three choices more than one with all of their
    epsilon; at (epsilon, delta) they get epsilon.

    Raises:
        InfeasibleBudgetError: The budget allows none.
    """
    if target.rho is None and target.renyi is None:
        pure = Fraction(dataclasses.replace(target, delta=0.0).pure_epsilon())
        return _rounded(pure, lambda loss: loss.pure_epsilon.upper <= target.epsilon)
    low = Fraction(target.pure_epsilon(BoundedRangeLoss))
    high = 3 * low
    for _ in range(_STEPS):
        middle = Fraction(float(low + high) / 2)
        low, high = (middle, high) if target.allows(quantile_loss(middle)) else (low, middle)
    return _rounded(low, target.allows)


def _rounded(epsilon: Fraction, allows: Callable[[PrivacyLoss], bool]) -> Fraction:
    """The largest that is allowed of those below whose twelfths have nine digits."""
    twelfth = _DIGITS.create_decimal_from_float(float(epsilon / 12))
    while not allows(quantile_loss(12 * Fraction(twelfth))):
        twelfth = twelfth.next_minus(_DIGITS)
    return 12 * Fraction(twelfth)
