"""What a statistic says of itself, so that no mechanism compares names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from mechanisms.estimates.statistics.moment_formula import MomentFormula
from mechanisms.estimates.terms import Scale, Spans
from mechanisms.inference.statistics import Mean, Statistic

Knob = Literal["values", "q", "group", "where"]


@dataclass(frozen=True, kw_only=True)
class NamedStatistic:
    """A statistic that a config can name, and what mechanisms can ask of it.

    A mechanism serves it for what it is: one with ``bounded`` is served by the mechanisms for any
    statistic of known sensitivity, one with ``moments`` by ``pair_moments``, a quantile by
    ``noisy_quantile``. Everything is public and follows from the declaration.

    Attributes:
        name: As a config names it; also the name of its module.
        columns: How many columns it takes, not counting that of a group.
        needs: Knobs of the config that it must be given.
        allows: Knobs that it may be given.
        is_total: Whether records that do not count are 0 in it; otherwise they are left out.
        leaves_out_missing: Whether records without a value are left out; otherwise a column
            that can lack values is refused.
        bounded: The statistic of columns in [0, 1] with its sensitivity, known at every size.
        even_variance: Variance of ``bounded``, times n, for n records spread evenly over [0, 1],
            or half of them counting; None to have it simulated.
        moments: How it follows from the joint moments of two columns.
        quantile_share: For a quantile without ``q``: the share of records below it.
        scales: From the ranges and the number of records to one scale for each number, from its
            value for columns in [0, 1] to its own units; by default it has none.
        words: From the quantity in words to the words for each number.
    """

    name: str
    columns: int = 1
    needs: tuple[Knob, ...] = ()
    allows: tuple[Knob, ...] = ()
    is_total: bool = False
    leaves_out_missing: bool = False
    bounded: Statistic | None = None
    even_variance: float | None = None
    moments: MomentFormula | None = None
    quantile_share: Fraction | None = None
    scales: Callable[[Spans, int], tuple[Scale, ...]] | None = None
    words: Callable[[str], tuple[str, ...]] | None = None

    @property
    def is_share(self) -> bool:
        """Whether every record counts as 0 or 1."""
        return "values" in self.needs

    @property
    def is_mean(self) -> bool:
        """Whether it is a mean of one column, or n times one."""
        return isinstance(self.bounded, Mean)

    @property
    def is_quantile(self) -> bool:
        """Whether it is a quantile of one column."""
        return self.quantile_share is not None or "q" in self.needs

    def own_units(self, spans: Spans, n_records: int) -> tuple[Scale, ...]:
        """From each number, for columns in [0, 1], to its own units."""
        if self.scales is not None:
            return self.scales(spans, n_records)
        return (Scale(),) * (1 if self.bounded is None else self.bounded.dimension)

    def quantities(self, quantity: str) -> tuple[str, ...]:
        """Each number in words, from the words for the statistic of its columns."""
        if self.words is not None:
            return self.words(quantity)
        if self.bounded is None or self.bounded.dimension == 1:
            return (quantity,)
        return tuple(f"{quantity}, number {i}" for i in range(1, self.bounded.dimension + 1))


def mean_scale(spans: Spans, n_records: int) -> tuple[Scale, ...]:
    """Of a mean, in the units of its column."""
    (span,) = spans
    return (Scale(span.lower, span.upper - span.lower),)


def total_scale(spans: Spans, n_records: int) -> tuple[Scale, ...]:
    """Of n times a mean, in the units of its column."""
    (span,) = spans
    return (Scale(n_records * span.lower, n_records * (span.upper - span.lower)),)


def product_scale(spans: Spans, n_records: int) -> tuple[Scale, ...]:
    """Of a variance or a covariance, in the units of its columns multiplied."""
    first, second = spans[0], spans[-1]
    return (Scale(0.0, (first.upper - first.lower) * (second.upper - second.lower)),)
