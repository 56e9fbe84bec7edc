"""The variance of a column, with n - 1."""

from __future__ import annotations

from mechanisms.estimates.statistics.moment_formula import unbiased
from mechanisms.estimates.statistics.named_statistic import NamedStatistic, product_scale
from mechanisms.inference.moments import moment_designs, moment_functions
from mechanisms.inference.statistics import Variance

VARIANCE = NamedStatistic(
    name="variance",
    bounded=Variance(),
    even_variance=1 / 80 - 1 / 144,
    moments=unbiased(moment_functions.VARIANCE, design=moment_designs.ONE, is_variance=True),
    scales=product_scale,
)
