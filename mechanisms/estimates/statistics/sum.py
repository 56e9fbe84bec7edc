"""The sum of a column, over all records or those that count."""

from __future__ import annotations

from mechanisms.estimates.statistics.named_statistic import NamedStatistic, total_scale
from mechanisms.inference.statistics import Mean

SUM = NamedStatistic(
    name="sum",
    allows=("where",),
    is_total=True,
    bounded=Mean(),
    even_variance=1 / 12,
    scales=total_scale,
)
