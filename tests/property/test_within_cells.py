"""Values drawn within cells have the codes of their cells, in every kind of column."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statpress.mechanisms.domain.column import Ranges
from statpress.mechanisms.domain.columns import Categorical, Column, Date, Integer, Numeric
from statpress.mechanisms.errors import EdgesError

DAYS = st.dates(datetime.date(1, 1, 1), datetime.date(9990, 12, 31))
LAST = float(np.nextafter(1.0, 0.0))


NUMBERS = st.floats(-1e9, 1e9, allow_nan=False)


@st.composite
def columns(draw: st.DrawFn) -> Column:
    column = draw(plain_columns())
    if not isinstance(column, Ranges):
        return column
    around = {
        "integer": lambda: st.integers(column.lower - 3, column.upper + 3),
        "numeric": lambda: NUMBERS | st.sampled_from(column.edges),
        "date": lambda: DAYS | st.sampled_from([column.first, column.last]),
    }[column.kind]()
    for value in draw(st.lists(around, max_size=4, unique=True)):
        with contextlib.suppress(EdgesError):  # it cannot have a cell of its own
            column = dataclasses.replace(column, special=(*column.special, value))
    return column


@st.composite
def plain_columns(draw: st.DrawFn) -> Column:
    missing = draw(st.booleans())
    kind = draw(st.sampled_from(["integer", "numeric", "date", "categorical"]))
    if kind == "integer":
        width, cells = draw(st.integers(1, 50)), draw(st.integers(1, 20))
        lower = draw(st.integers(-(10**6), 10**6))
        upper = lower + width * cells - 1
        return Integer(name="c", lower=lower, upper=upper, width=width, missing=missing)
    if kind == "numeric":
        whole = draw(st.booleans())
        numbers: Any = st.integers(-(10**6), 10**6).map(float) if whole else NUMBERS
        edges = draw(st.lists(numbers, min_size=2, max_size=10, unique=True))
        return Numeric(name="c", edges=tuple(sorted(edges)), missing=missing, whole=whole)
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


@given(columns())
def test_written_values_are_in_order_and_of_their_own_cell(column: Column) -> None:
    """Of periods the middle day stands for what is written."""
    if not isinstance(column, Ranges):
        return
    codes = np.arange(column.n_values)
    written = column.decode(codes)
    assert len(set(written.tolist())) == len(codes)
    own = column.is_special(codes)
    bins = column.bins_of(codes)[~own]
    assert bins.tolist() == list(range(column.n_bins))
    assert column.codes_of_bins(bins).tolist() == codes[~own].tolist()
    if isinstance(column, Date):
        first, end = column.days_of(column.bins_of(codes))
        middles = (first + (end - 1 - first) // 2).tolist()
        specials = iter(column.special)
        values = [next(specials) if mine else day for mine, day in zip(own, middles, strict=True)]
        assert values == sorted(values)
        assert [v.isoformat() for v in column.special] == written[own].tolist()
        return
    assert written.tolist() == sorted(written.tolist())
    assert written[own].tolist() == list(column.special)
    assert [column.code_of(value) for value in written.tolist()] == codes.tolist()


@given(columns(), st.data())
def test_a_value_has_the_cell_of_its_special_value_or_of_its_bin(
    column: Column, data: st.DataObject
) -> None:
    if not isinstance(column, Ranges):
        return
    plain = dataclasses.replace(column, special=())
    for value, code in zip(column.special, column.special_codes.tolist(), strict=True):
        assert column.code_of(value) == code
    around = DAYS if isinstance(column, Date) else NUMBERS
    value = data.draw(around | st.sampled_from([*column.extent, *column.special]))
    code = np.array([column.code_of(value)])
    assert column.is_special(code)[0] == (value in column.special)
    if value not in column.special:
        assert column.bins_of(code)[0] == plain.code_of(value)


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
