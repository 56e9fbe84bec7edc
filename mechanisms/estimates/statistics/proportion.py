"""The share of records with some values of a column, of all or of those that count."""

from __future__ import annotations

from mechanisms.estimates.statistics.moment_formula import MEAN_OF_SOME
from mechanisms.estimates.statistics.named_statistic import NamedStatistic, mean_scale
from mechanisms.inference.statistics import Mean

PROPORTION = NamedStatistic(
    name="proportion",
    needs=("values",),
    allows=("where",),
    bounded=Mean(),
    even_variance=1 / 4,
    moments=MEAN_OF_SOME,
    scales=mean_scale,
)
