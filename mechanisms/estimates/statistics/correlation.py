"""The correlation of two columns."""

from __future__ import annotations

from mechanisms.estimates.statistics.moment_formula import formula
from mechanisms.estimates.statistics.named_statistic import NamedStatistic
from mechanisms.inference.moments import moment_functions

CORRELATION = NamedStatistic(
    name="correlation",
    columns=2,
    moments=formula(moment_functions.CORRELATION),
)
