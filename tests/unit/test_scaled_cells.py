"""Columns as variables of a function, and tables as weighted points."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

from statpress.mechanisms.domain.columns import Categorical, Date, Integer, Numeric, Ordinal
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.functions.learner import Axis, WeightedPoints


def test_middles_are_the_declared_ones_scaled_by_the_declared_range() -> None:
    pay = Axis.of(Numeric(name="pay", edges=(-10.0, 0.0, 30.0), missing=True))
    assert (pay.lower, pay.upper, pay.width, pay.complete) == (-10, 30, 40, False)
    assert pay.middles == pytest.approx((0.125, 0.625))
    age = Axis.of(Integer(name="age", lower=10, upper=29, width=10))
    assert (age.lower, age.upper, age.complete) == (10, 29, True)
    assert age.middles == pytest.approx((4.5 / 19, 14.5 / 19))
    educ = Axis.of(Ordinal(name="educ", categories=(9, 16, 12), other=True))
    assert (educ.lower, educ.upper, educ.complete) == (9, 16, False)
    assert educ.middles == pytest.approx((0, 1, 3 / 7))
    assert all(0 <= m <= 1 for axis in (pay, age, educ) for m in axis.middles)


@pytest.mark.parametrize(
    "column",
    [
        Categorical(name="x", categories=(1, 2)),
        Ordinal(name="x", categories=("low", "high")),
        Ordinal(name="x", categories=(False, True)),
        Date(name="x", first=datetime.date(2000, 1, 1), last=datetime.date(2001, 1, 1)),
    ],
)
def test_what_is_no_number_is_refused(column) -> None:
    with pytest.raises(ConfigError, match="does not hold numbers"):
        Axis.of(column)


def test_records_without_a_value_are_left_out_and_others_merged() -> None:
    a = Integer(name="a", lower=0, upper=1, missing=True)
    b = Ordinal(name="b", categories=(1, 2), other=True)
    c = Integer(name="c", lower=0, upper=4)
    domain = Domain((a, b, c))
    codes = {
        "a": np.array([0, 0, 2, 1, 1]),
        "b": np.array([1, 1, 0, 2, 0]),
        "c": np.array([3, 4, 0, 1, 2]),
    }
    cells = domain.encode(codes)
    table = ContingencyTable.from_cells(domain, cells, np.array([5, 6, 7, 8, 9]))
    found = WeightedPoints.of(table, ["b", "a"])
    seen = {(int(x), int(y)): int(n) for (x, y), n in zip(found.codes, found.counts, strict=True)}
    assert seen == {(1, 0): 11, (0, 1): 9}
    assert "counts" not in repr(found)
