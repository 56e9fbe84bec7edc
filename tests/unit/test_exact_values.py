"""Statistics of the confidential records without noise, against NumPy on the records."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from estimating import COLUMNS, columns_of, draw, needed_knobs, table_of, values_of

from statpress.mechanisms.estimates.estimand import Among, Estimand, EstimandKnobs
from statpress.mechanisms.estimates.exact_values import exact_values
from statpress.mechanisms.estimates.statistics import STATISTICS, Scale

N = 500
CODES = draw(N, seed=3)
SEX = CODES["sex"] == 1


def _line(y: Any, x: Any) -> list[float]:
    slope, intercept = np.polyfit(x, y, 1)
    return [intercept, slope]


EXPECTED: dict[str, Any] = {
    "count": lambda sex: [np.sum(sex == "f")],
    "proportion": lambda sex: [np.mean(sex == "f")],
    "mean": lambda x: [x.mean()],
    "sum": lambda x: [x.sum()],
    "variance": lambda x: [x.var(ddof=1)],
    "covariance": lambda x, y: [np.cov(x, y)[0, 1]],
    "correlation": lambda x, y: [np.corrcoef(x, y)[0, 1]],
    "median": lambda x: [np.quantile(x, 0.5, method="inverted_cdf")],
    "quantile": lambda x: [np.quantile(x, 0.25, method="inverted_cdf")],
    "ratio": lambda y, x: [y.sum() / x.sum()],
    "regression": _line,
    "difference": lambda y, group: [y[group == "m"].mean() - y[group != "m"].mean()],
}


def exact(names: list[str], **said: Any) -> list[float]:
    """Through the estimand, with the scales that mechanisms state."""
    knobs = EstimandKnobs(**said)
    table = table_of(names, CODES)
    estimand = Estimand.resolve(knobs, table.domain)
    statistic, spans = estimand.statistic, estimand.arguments
    scales = (Scale(),) if statistic.is_quantile else statistic.own_units(spans, N)
    return list(exact_values(knobs, table, scales))


@pytest.mark.parametrize("name", STATISTICS)
def test_every_statistic_of_all_records(name: str) -> None:
    names = columns_of(STATISTICS[name])
    found = exact(names, statistic=name, **needed_knobs(STATISTICS[name]))
    assert found == pytest.approx(EXPECTED[name](*values_of(names, CODES)), rel=1e-9)


def test_records_that_do_not_count_or_lack_a_value_are_left_out() -> None:
    (pay,), (rent,) = values_of(["pay"], CODES), values_of(["rent"], CODES)
    men = Among(column="sex", values=("m",))
    assert exact(["pay", "sex"], statistic="mean", where=men) == pytest.approx([pay[SEX].mean()])
    there = CODES["rent"] < 40
    known = rent[there].astype(float)
    assert exact(["rent"], statistic="mean") == pytest.approx([known.mean()])
    q = exact(["rent"], statistic="quantile", q=Fraction(9, 10))
    assert q == pytest.approx([np.quantile(known, 0.9, method="inverted_cdf")])


def test_a_mean_of_no_record_is_no_number() -> None:
    table = table_of(["pay", "sex"], {"pay": CODES["pay"][~SEX], "sex": CODES["sex"][~SEX]})
    knobs = EstimandKnobs(statistic="mean", where=Among(column="sex", values=("m",)))
    assert np.isnan(exact_values(knobs, table, (Scale(),))).all()
    assert COLUMNS["sex"].size == 2
