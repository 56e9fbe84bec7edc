"""How a statistic follows from the joint moments of two columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from mechanisms.estimates.terms import Spans
from mechanisms.inference.moments.moment_designs import PAIR, SOME, MomentDesign
from mechanisms.inference.moments.moment_functions import RATIO, Derived


def _zero(spans: Spans) -> float:
    return 0.0


@dataclass(frozen=True, kw_only=True)
class MomentFormula:
    """One or more functions of the means of x, y, x^2, x y and y^2, columns in [0, 1].

    Of a statistic of two columns y is the first and x the second: a response comes before its
    predictor, a numerator before its denominator, and a group last.

    Attributes:
        functions: From the number of records and the origin to the functions, one an estimate.
        design: What is released for them; of one column if only x is used.
        origin: From the columns' ranges to the -x at which the functions take the predictor as 0
            in its own units.
        of_some: Whether x is 1 for a record that counts, y then its value, and both are 0 for the
            others.
        amounts: Whether the columns are amounts: scaled from 0, and refused if they can be below.
        is_variance: Whether it is the variance of x, for which there are guaranteed limits.
    """

    functions: Callable[[int, float], tuple[Derived, ...]]
    design: MomentDesign = PAIR
    origin: Callable[[Spans], float] = _zero
    of_some: bool = False
    amounts: bool = False
    is_variance: bool = False


def formula(
    function: Derived,
    *,
    design: MomentDesign = PAIR,
    of_some: bool = False,
    amounts: bool = False,
) -> MomentFormula:
    """One function, whatever the number of records."""
    return MomentFormula(
        functions=lambda n_records, origin: (function,),
        design=design,
        of_some=of_some,
        amounts=amounts,
    )


def unbiased(
    function: Derived, *, design: MomentDesign = PAIR, is_variance: bool = False
) -> MomentFormula:
    """One function with n - 1 in place of n."""

    def functions(n_records: int, origin: float) -> tuple[Derived, ...]:
        more = n_records / (n_records - 1)
        return (dataclasses.replace(function, numerator=lambda m: more * function.numerator(m)),)

    return MomentFormula(functions=functions, design=design, is_variance=is_variance)


MEAN_OF_SOME = formula(dataclasses.replace(RATIO, bounds=(0.0, 1.0)), design=SOME, of_some=True)
"""The sum of the values of records that count, over their number."""
