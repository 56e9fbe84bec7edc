"""The least-squares line of a response, the first column, on a predictor, the second.

For a response ly + Ry y and a predictor lx + Rx x, with b the slope of y on x, the line is at
the predictor 0 where x = -lx/Rx: the intercept is ly + Ry (E y - b (E x + lx/Rx)).
"""

from __future__ import annotations

from mechanisms.estimates.statistics.moment_formula import MomentFormula
from mechanisms.estimates.statistics.named_statistic import NamedStatistic
from mechanisms.estimates.terms import Scale, Spans
from mechanisms.inference.moments.moment_functions import SLOPE, Derived, intercept


def _intercept_and_slope(n_records: int, origin: float) -> tuple[Derived, ...]:
    return intercept(origin), SLOPE


def _origin(spans: Spans) -> float:
    predictor = spans[1]
    return predictor.lower / (predictor.upper - predictor.lower)


def _scales(spans: Spans, n_records: int) -> tuple[Scale, ...]:
    response, predictor = spans
    one, two = response.upper - response.lower, predictor.upper - predictor.lower
    return Scale(response.lower, one), Scale(0.0, one / two)


def _words(quantity: str) -> tuple[str, ...]:
    words = quantity.replace(" and ", " on ")
    return f"intercept of the {words}", f"slope of the {words}"


REGRESSION = NamedStatistic(
    name="regression",
    columns=2,
    moments=MomentFormula(functions=_intercept_and_slope, origin=_origin),
    scales=_scales,
    words=_words,
)
