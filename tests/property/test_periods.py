"""Periods of a series: text and back, one after the other without gap, due by their lag."""

from __future__ import annotations

import datetime
from typing import Any, get_args

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statpress.mechanisms.periods import Frequency, SeriesPeriod

DAY = datetime.timedelta(days=1)
DAYS = st.dates(datetime.date(1001, 1, 1), datetime.date(2998, 12, 31))
FREQUENCIES: Any = st.sampled_from(get_args(Frequency))
OF_PANDAS = {"year": "Y", "quarter": "Q", "month": "M", "week": "W-SUN"}


@given(DAYS, FREQUENCIES)
def test_a_text_names_its_period(day: datetime.date, by: Frequency) -> None:
    period = SeriesPeriod.of(day, by)
    assert period.start <= day <= period.end
    assert SeriesPeriod.parse(str(period), by) == period
    start, end = period.dates()
    assert period.start.isoformat().startswith(start) and period.end.isoformat().startswith(end)


@given(DAYS, FREQUENCIES)
def test_the_next_period_begins_the_day_after(day: datetime.date, by: Frequency) -> None:
    period = SeriesPeriod.of(day, by)
    following = period.following
    assert following.start == period.end + DAY
    assert following == SeriesPeriod.of(following.start, by) > period
    assert SeriesPeriod.of(period.end, by) == period


@given(st.dates(datetime.date(1800, 1, 1), datetime.date(2200, 12, 31)), FREQUENCIES)
def test_they_are_those_of_pandas(day: datetime.date, by: Frequency) -> None:
    ours, theirs = SeriesPeriod.of(day, by), pd.Timestamp(day).to_period(OF_PANDAS[by])
    assert (ours.start, ours.end) == (theirs.start_time.date(), theirs.end_time.date())


@given(DAYS)
def test_a_week_is_that_of_iso_8601(day: datetime.date) -> None:
    assert str(SeriesPeriod.of(day, "week")) == f"{day:%G-W%V}"


@given(DAYS, FREQUENCIES, st.integers(0, 20), st.integers(0, 9999), st.integers(-40, 40))
def test_due_are_those_whose_lag_is_over(
    day: datetime.date, by: Frequency, after: int, lag: int, shift: int
) -> None:
    first = SeriesPeriod.of(day, by)
    periods = [first]
    for _ in range(after):
        periods.append(periods[-1].following)
    today = periods[-1].due_on(lag) + shift * DAY
    due = list(first.due_from(lag, today))
    assert due[: len(periods)] == [p for p in periods if p.end + (lag + 1) * DAY <= today]
    assert due == sorted(set(due))
    following = due[-1].following if due else first
    assert following.due_on(lag) > today


@pytest.mark.parametrize(
    ("text", "by"),
    [
        ("2026-13", "month"), ("2026-1", "month"), ("2026-Q5", "quarter"), ("2026-W54", "week"),
        ("2025-W53", "week"), ("2026-W00", "week"), ("26", "year"), ("0000", "year"),
        ("2026-10", "year"), ("2026", "month"), ("2026-10\n", "month"), ("٢٠٢٦", "year"),
        ("", "week"),
    ],
)  # fmt: skip
def test_what_names_no_period_is_refused(text: str, by: Frequency) -> None:
    with pytest.raises(ValueError, match=f"must be a {by}, written as 2026"):
        SeriesPeriod.parse(text, by)
