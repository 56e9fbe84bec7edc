"""The sum of one column over that of another, both of amounts."""

from __future__ import annotations

from mechanisms.estimates.statistics.moment_formula import formula
from mechanisms.estimates.statistics.named_statistic import NamedStatistic
from mechanisms.estimates.terms import Scale
from mechanisms.inference.moments import moment_designs, moment_functions

RATIO = NamedStatistic(
    name="ratio",
    columns=2,
    moments=formula(moment_functions.RATIO, design=moment_designs.RATIO, amounts=True),
    scales=lambda spans, n_records: (Scale(0.0, spans[0].upper / spans[1].upper),),
)
