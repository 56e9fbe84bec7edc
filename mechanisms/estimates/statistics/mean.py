"""The mean of a column, over all records or those that count."""

from __future__ import annotations

from mechanisms.estimates.statistics.moment_formula import MEAN_OF_SOME
from mechanisms.estimates.statistics.named_statistic import NamedStatistic, mean_scale
from mechanisms.inference.statistics import Mean

MEAN = NamedStatistic(
    name="mean",
    allows=("where",),
    leaves_out_missing=True,
    bounded=Mean(),
    even_variance=1 / 12,
    moments=MEAN_OF_SOME,
    scales=mean_scale,
)
