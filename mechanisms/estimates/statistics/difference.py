"""The mean of a column in a group, less that of the rest."""

from __future__ import annotations

from mechanisms.estimates.statistics.moment_formula import formula
from mechanisms.estimates.statistics.named_statistic import NamedStatistic
from mechanisms.estimates.terms import Scale
from mechanisms.inference.moments import moment_designs, moment_functions

DIFFERENCE = NamedStatistic(
    name="difference",
    needs=("group",),
    moments=formula(moment_functions.GROUP_DIFFERENCE, design=moment_designs.GROUP),
    scales=lambda spans, n_records: (Scale(0.0, spans[0].upper - spans[0].lower),),
)
