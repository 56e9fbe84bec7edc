"""The covariance of two columns, with n - 1."""

from __future__ import annotations

from mechanisms.estimates.statistics.moment_formula import unbiased
from mechanisms.estimates.statistics.named_statistic import NamedStatistic, product_scale
from mechanisms.inference.moments import moment_functions
from mechanisms.inference.statistics import Covariance

COVARIANCE = NamedStatistic(
    name="covariance",
    columns=2,
    bounded=Covariance(),
    even_variance=1 / 144,
    moments=unbiased(moment_functions.COVARIANCE),
    scales=product_scale,
)
