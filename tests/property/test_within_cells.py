"""Values drawn within cells have the codes of their cells, in every kind of column."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statpress.mechanisms.domain.columns import Categorical, Column, Date, Integer, Numeric

DAYS = st.dates(datetime.date(1, 1, 1), datetime.date(9990, 12, 31))
LAST = float(np.nextafter(1.0, 0.0))


@st.composite
def columns(draw: st.DrawFn) -> Column:
    missing = draw(st.booleans())
    kind = draw(st.sampled_from(["integer", "numeric", "date", "categorical"]))
    if kind == "integer":
        width, cells = draw(st.integers(1, 50)), draw(st.integers(1, 20))
        lower = draw(st.integers(-(10**6), 10**6))
        upper = lower + width * cells - 1
        return Integer(name="c", lower=lower, upper=upper, width=width, missing=missing)
    if kind == "numeric":
        numbers = st.floats(-1e9, 1e9, allow_nan=False)
        edges = draw(st.lists(numbers, min_size=2, max_size=10, unique=True))
        return Numeric(name="c", edges=tuple(sorted(edges)), missing=missing)
    if kind == "date":
        first = draw(DAYS)
        last = min(first + datetime.timedelta(draw(st.integers(0, 3000))), datetime.date.max)
        by: Any = draw(st.sampled_from(["year", "month", "day"]))
        return Date(name="c", first=first, last=last, by=by, missing=missing)
    return Categorical(name="c", categories=("a", "b"), missing=missing)


@given(columns(), st.lists(st.floats(0, LAST), min_size=1, max_size=5))
def test_a_value_within_a_cell_has_its_code(column: Column, fractions: list[float]) -> None:
    for fraction in [0.0, LAST, *fractions]:
        codes = np.arange(column.n_values)
        values = column.spread(codes, np.full(len(codes), fraction)).tolist()
        if isinstance(column, Date):
            values = [datetime.date.fromisoformat(f"{v:0>10}") for v in values if len(v) == 10]
            codes = codes if column.ends or column.by == "day" else codes[:0]
        assert [column.code_of(value) for value in values] == codes.tolist()


def test_values_fill_their_cells() -> None:
    column = Integer(name="c", lower=10, upper=29, width=10)
    found = column.spread(np.array([0, 0, 1, 1]), np.array([0.0, LAST, 0.0, LAST]))
    assert found.tolist() == [10, 19, 20, 29]
    year = Date(
        name="c", first=datetime.date(2000, 3, 1), last=datetime.date(2001, 2, 3), by="year"
    )
    found = year.spread(np.array([0, 0, 1, 1]), np.array([0.0, LAST, 0.0, LAST]))
    assert found.tolist() == ["2000-03-01", "2000-12-31", "2001-01-01", "2001-02-03"]
    assert year.ends == ("2000-03-01", "2001-02-03")


@pytest.mark.parametrize("width", [1, 2])
def test_only_ranges_have_ends(width: int) -> None:
    column = Integer(name="c", lower=0, upper=3, width=width)
    assert (column.ends is None) == (width == 1)
