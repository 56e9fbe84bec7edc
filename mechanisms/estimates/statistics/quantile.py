"""The quantile of a column at a given share of the records."""

from __future__ import annotations

from mechanisms.estimates.statistics.named_statistic import NamedStatistic

QUANTILE = NamedStatistic(
    name="quantile",
    needs=("q",),
    leaves_out_missing=True,
)
