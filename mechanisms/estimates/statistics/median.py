"""The median of a column."""

from __future__ import annotations

from fractions import Fraction

from mechanisms.estimates.statistics.named_statistic import NamedStatistic

MEDIAN = NamedStatistic(
    name="median",
    leaves_out_missing=True,
    quantile_share=Fraction(1, 2),
)
