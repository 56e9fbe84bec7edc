"""The periods of a series of releases: years, quarters, months and ISO weeks.

A period is written as SDMX and ISO 8601 write it: ``2026``, ``2026-Q3``, ``2026-10``, ``2026-W05``.
A week begins on Monday and belongs to the year of its Thursday (ISO 8601). Years are 1000 to 2999;
dates have no time zone.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

Frequency = Literal["year", "quarter", "month", "week"]
"""How often a series has a period."""
FREQUENCIES: tuple[Frequency, ...] = get_args(Frequency)

_FORMS: dict[str, tuple[str, str]] = {
    "year": (r"([12]\d{3})", "2026"),
    "quarter": (r"([12]\d{3})-Q([1-4])", "2026-Q3"),
    "month": (r"([12]\d{3})-(0[1-9]|1[0-2])", "2026-10"),
    "week": (r"([12]\d{3})-W(\d{2})", "2026-W05"),
}
"""By the frequency, the pattern of a period's text and an example of it."""

_MONTHS = {"year": 12, "quarter": 3, "month": 1}
_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, order=True)
class SeriesPeriod:
    """One period; those of one frequency are ordered by time.

    Attributes:
        start: Its first day.
        by: The frequency.

    >>> str(SeriesPeriod.parse("2026-W53", "week").following)
    '2027-W01'
    """

    start: datetime.date
    by: Frequency

    @classmethod
    def parse(cls, text: str, by: Frequency) -> SeriesPeriod:
        """The period that a text names.

        Raises:
            ValueError: It names none of this frequency; the message says how one is written.
        """
        pattern, example = _FORMS[by]
        found = re.fullmatch(pattern, text, re.ASCII)
        try:
            if found is None:
                raise ValueError(text)
            year, *number = map(int, found.groups())
            if by == "week":
                return cls(datetime.date.fromisocalendar(year, number[0], 1), by)
            month = 1 if by == "year" else (number[0] - 1) * _MONTHS[by] + 1
            return cls(datetime.date(year, month, 1), by)
        except ValueError:
            pass
        raise ValueError(f"must be a {by}, written as {example}")

    @classmethod
    def of(cls, day: datetime.date, by: Frequency) -> SeriesPeriod:
        """The period that a day lies in."""
        if by == "week":
            return cls(day - day.weekday() * _DAY, by)
        return cls(day.replace(month=day.month - (day.month - 1) % _MONTHS[by], day=1), by)

    @classmethod
    @functools.lru_cache(maxsize=65_536)
    def read(cls, text: str) -> SeriesPeriod:
        """The period of any frequency that a text names.

        Raises:
            ValueError: It names none.
        """
        for by in FREQUENCIES:
            with contextlib.suppress(ValueError):
                return cls.parse(text, by)
        raise ValueError("is not a year, quarter, month or week: 2026, 2026-Q3, 2026-10, 2026-W05")

    @classmethod
    def at(cls, number: int, by: Frequency) -> SeriesPeriod:
        """The period with a ``number``."""
        if by == "week":
            return cls(datetime.date.fromordinal(number * 7 + 1), by)
        month = number * _MONTHS[by]
        return cls(datetime.date(month // 12, month % 12 + 1, 1), by)

    @property
    def number(self) -> int:
        """Its place among all periods of its frequency; the next one has the next."""
        if self.by == "week":
            return self.start.toordinal() // 7
        return (self.start.year * 12 + self.start.month - 1) // _MONTHS[self.by]

    def __str__(self) -> str:
        year, month = self.start.year, self.start.month
        if self.by == "week":
            year, week, _ = self.start.isocalendar()
            return f"{year:04}-W{week:02}"
        number = {"year": "", "quarter": f"-Q{(month + 2) // 3}", "month": f"-{month:02}"}
        return f"{year:04}{number[self.by]}"

    @property
    def following(self) -> SeriesPeriod:
        """The next period."""
        return SeriesPeriod.at(self.number + 1, self.by)

    @property
    def end(self) -> datetime.date:
        """Its last day."""
        return self.following.start - _DAY

    def due_on(self, lag: int) -> datetime.date:
        """The first day on which it may be released.

        Args:
            lag: Whole days after the day that follows its end.
        """
        return self.following.start + lag * _DAY

    def dates(self) -> tuple[str, str]:
        """First and last year, month or day of it as ISO 8601 text, as coarse as it is exact.

        >>> SeriesPeriod.parse("2026-Q3", "quarter").dates()
        ('2026-07', '2026-09')
        """
        length = {"year": 4, "quarter": 7, "month": 7, "week": 10}[self.by]
        return self.start.isoformat()[:length], self.end.isoformat()[:length]

    def due_from(self, lag: int, today: datetime.date) -> Iterator[SeriesPeriod]:
        """The periods from this one on that may be released on a day, in order.

        Args:
            lag: As of ``SeriesPeriod.due_on``.
            today: The day.
        """
        period = self
        while period.due_on(lag) <= today:
            yield period
            period = period.following
