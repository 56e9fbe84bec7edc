"""The number of records with some values of a column."""

from __future__ import annotations

from mechanisms.estimates.statistics.named_statistic import NamedStatistic, total_scale
from mechanisms.inference.statistics import Mean

COUNT = NamedStatistic(
    name="count",
    needs=("values",),
    allows=("where",),
    is_total=True,
    bounded=Mean(),
    even_variance=1 / 4,
    scales=total_scale,
)
