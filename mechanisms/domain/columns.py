"""Column kinds: total functions from any value to a small integer code.

Each kind is a frozen declaration. ``code_of`` is the definition of the function, one value at a
time; the counting engine evaluates the same function as an expression, and a property test holds
the two equal. Every value of a column's type has a code (mechanisms/README.md, section 1), so the
domain never depends on the data:

* a null, or a NaN, goes to ``missing`` if declared, else ``other``, else code 0;
* a value outside the declared categories goes to ``other`` if declared, else
  ``missing``, else code 0;
* a declared special value of numbers or dates, within the declared range or beyond it, has a code
  of its own;
* other numbers and dates outside the declared range are clamped to its ends.
"""

from __future__ import annotations

import datetime
import functools
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.column import Category, Codes, Column, Ranges, in_words
from statpress.mechanisms.errors import ConfigError, EdgesError

__all__ = [
    "ABSENT", "Categorical", "Category", "Codes", "Column", "Date", "Integer", "Numeric", "Ordinal",
    "Period", "Slot", "labels", "tiled_uppers",
]  # fmt: skip


def labels(column: Column) -> list[str | None]:
    """Values by code, None for missing; a number has no decimals that it does not need.

    >>> from statpress.mechanisms.domain.columns import Numeric
    >>> labels(Numeric(name="pay", edges=(0.0, 20.0, 25.0), missing=True))
    ['10', '22.5', None]
    """
    found: list[str | None] = [
        str(value).removesuffix(".0") if isinstance(value, float) else str(value)
        for value in column.decode(np.arange(column.size)).tolist()
    ]
    if column.missing_code is not None:
        found[column.missing_code] = None
    return found


Period = Literal["year", "month", "day"]


@dataclass(frozen=True, kw_only=True)
class Categorical(Column):
    """Declared categories, with optional ``other`` and ``missing`` cells.

    Attributes:
        categories: Distinct values of one type: text, numbers or booleans.
        other: Whether undeclared values have a cell, labelled ``other``.
    """

    kind: ClassVar[str] = "categorical"
    categories: tuple[Category, ...]
    other: bool = False

    def _check(self) -> None:
        if not self.categories:
            raise ConfigError("No categories are declared.", where=self.name)
        kinds = {_type_group(category) for category in self.categories}
        if len(kinds) > 1:
            raise ConfigError(
                "Categories mix text, numbers and booleans; quote them alike.", where=self.name
            )
        if len(set(self.categories)) < len(self.categories):
            raise ConfigError("A category is declared twice.", where=self.name)
        if self.other and "other" in self.categories:
            raise ConfigError(
                "'other' is both a category and the name of the other cell.", where=self.name
            )
        if any(isinstance(c, float) and not math.isfinite(c) for c in self.categories):
            raise ConfigError("A category is not a finite number.", where=self.name)

    @property
    def n_values(self) -> int:
        return len(self.categories)

    @property
    def other_code(self) -> int | None:
        return len(self.categories) if self.other else None

    def _code_of(self, value: Any) -> int:
        if _type_group(value) != _type_group(self.categories[0]):
            return self.unseen_code
        try:
            return self.categories.index(value)
        except ValueError:
            return self.unseen_code

    def _decode(self, codes: Codes) -> NDArray[Any]:
        labels: Sequence[Category] = self.categories
        if self.other:
            labels = [*(str(category) for category in labels), "other"]
        values = np.empty(len(labels), dtype=object)
        values[:] = labels
        return np.asarray(values[codes])


@dataclass(frozen=True, kw_only=True)
class Ordinal(Categorical):
    """Categories whose declared order has a meaning."""

    kind: ClassVar[str] = "ordinal"


def tiled_uppers(lower: int, upper: int, width: int) -> str:
    """The nearest upper bounds that cells of a width tile, in words.

    >>> tiled_uppers(0, 500, 10)
    '499 or 509'
    >>> tiled_uppers(0, 5, 10)
    '9'
    """
    below = lower + (upper - lower + 1) // width * width - 1
    return f"{below} or {below + width}" if below >= lower else f"{below + width}"


@dataclass(frozen=True, kw_only=True)
class Integer(Ranges):
    """Whole numbers lower..upper (both included) in cells of ``width`` values.

    Fractional values are rounded down; values outside are clamped. A cell wider
    than one is released as its midpoint. Special values are whole.
    """

    kind: ClassVar[str] = "integer"
    lower: int
    upper: int
    width: int = 1

    def _check_bins(self) -> None:
        if not -(2**53) <= self.lower <= self.upper <= 2**53:
            raise EdgesError("lower and upper must be in order and within ±2**53.", where=self.name)
        if self.width < 1:
            raise EdgesError(
                f"A cell of width {self.width} holds no value.",
                where=self.name,
                next_step="Give a width of 1 or more, which divides upper - lower + 1.",
            )
        if (self.upper - self.lower + 1) % self.width:
            raise EdgesError(
                f"Cells of width {self.width} do not tile the {self.upper - self.lower + 1} "
                f"values from {self.lower} to {self.upper}: "
                f"give upper {tiled_uppers(self.lower, self.upper, self.width)}.",
                where=self.name,
                next_step="Or give a width that divides upper - lower + 1.",
            )

    def _as_special(self, value: Any) -> int:
        if type(value) is not int or abs(value) > 2**53:
            raise EdgesError(
                f"The special value {value} is not a whole number within ±2**53.", where=self.name
            )
        return value

    @property
    def n_bins(self) -> int:
        return (self.upper - self.lower + 1) // self.width

    @property
    def extent(self) -> tuple[int, int]:
        return self.lower, self.upper

    @property
    def _single(self) -> bool:
        return self.width == 1

    def bin_of(self, value: Any) -> int:
        clamped = min(max(value, self.lower), self.upper)
        return int(math.floor(clamped) - self.lower) // self.width

    def begin_of(self, j: int) -> int:
        return self.lower + j * self.width

    def _is_above(self, value: int, j: int) -> bool:
        return 2 * value > 2 * self.begin_of(j) + self.width - 1

    def _middles(self, bins: Codes) -> NDArray[Any]:
        first = self.lower + bins * self.width
        return first if self.width == 1 else first + (self.width - 1) / 2

    @property
    def borders(self) -> NDArray[np.float64]:
        return np.asarray(self.lower + np.arange(self.n_bins + 1) * float(self.width), np.float64)

    def _limits(self, bins: Codes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        first = np.asarray(self.lower + bins * float(self.width), np.float64)
        return first, first + float(self.width - 1)

    def _n_left(self, bins: Codes) -> NDArray[np.int64]:
        first, special = self.lower + bins * self.width, np.array(self.special, dtype=np.int64)
        return self.width - n_between(special, first, first + self.width)

    def _within(self, bins: Codes, fractions: NDArray[np.float64]) -> NDArray[Any]:
        steps = np.floor(fractions * self._n_left(bins)).astype(np.int64)
        special = np.array(self.special, dtype=np.int64)
        return skipping(special, self.lower + bins.astype(np.int64) * self.width, steps)


def n_between(special: NDArray[Any], first: NDArray[Any], end: NDArray[Any]) -> NDArray[np.int64]:
    """How many special values lie from the first up to below the end of each range."""
    return np.asarray(np.searchsorted(special, end) - np.searchsorted(special, first))


def skipping(special: NDArray[Any], first: NDArray[Any], steps: NDArray[Any]) -> NDArray[Any]:
    """Whole values so many steps above the first of each range, special ones not counted."""
    values = first + steps
    for value in special:
        values += ((first <= value) & (value <= values)).astype(steps.dtype)
    return np.asarray(values)


@dataclass(frozen=True, kw_only=True)
class Numeric(Ranges):
    """Real numbers in bins between declared edges, clamped at both ends.

    Bin j holds edges[j] <= x < edges[j+1]; the last bin holds its upper edge.
    Bins are released as midpoints, of whole numbers as the mean of those that they hold.

    Attributes:
        edges: At least two finite numbers, strictly increasing.
        whole: Whether the numbers are whole, as declared: a bin that holds a single one is it.
    """

    kind: ClassVar[str] = "numeric"
    edges: tuple[float, ...]
    whole: bool = field(default=False, repr=False)  # it is read as one of other numbers

    @staticmethod
    def uniform_edges(lower: float, upper: float, bins: int) -> tuple[float, ...]:
        """Edges of ``bins`` equal bins, each the double nearest to the exact edge."""
        (a, b), (c, d) = Fraction(lower).as_integer_ratio(), Fraction(upper).as_integer_ratio()
        low, high, whole = a * d, c * b, b * d * bins
        # The quotient of two integers is rounded correctly.
        return tuple((low * (bins - i) + high * i) / whole for i in range(bins + 1))

    def _check_bins(self) -> None:
        if len(self.edges) < 2:
            raise EdgesError("A numeric column needs at least two edges.", where=self.name)
        if not np.isfinite(self.edge_array).all():
            raise EdgesError("An edge is not a finite number.", where=self.name)
        if np.any(self.edge_array[1:] <= self.edge_array[:-1]):
            raise EdgesError("Edges overlap or are not in increasing order.", where=self.name)
        if self.whole:
            self._check_whole()

    def _check_whole(self) -> None:
        """Refuse bins that hold no whole number."""
        if np.abs(self.edge_array).max() > 2**53:
            raise EdgesError("Edges of whole numbers lie within ±2**53.", where=self.name)
        first, last = self._limits(np.arange(self.n_bins))
        if np.any(last < first):
            j = int(np.argmax(last < first))
            raise EdgesError(
                f"No whole number lies in the cell from {in_words(self.edges[j])} to "
                f"{in_words(self.edges[j + 1])}.",
                where=self.name,
                next_step="Give edges that have one in each cell, or leave out 'whole'.",
            )

    @functools.cached_property
    def edge_array(self) -> NDArray[np.float64]:
        """The edges, float64[n_bins + 1], which cannot be written to."""
        edges = np.array(self.edges, dtype=np.float64)
        edges.setflags(write=False)
        return edges

    @functools.cached_property
    def _hash_of_edges(self) -> int:
        return hash(self.edges)

    def __hash__(self) -> int:  # of a million edges found once: it takes longer than a look-up
        return hash((self.name, self.missing, self.special, self._hash_of_edges))

    def _as_special(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise EdgesError(f"The special value {value} is not a number.", where=self.name)
        if not math.isfinite(value):
            raise EdgesError("A special value is not a finite number.", where=self.name)
        if self.whole and value % 1:
            raise EdgesError(f"The special value {value} is not a whole number.", where=self.name)
        return float(value) + 0.0  # -0.0 is 0.0

    @property
    def n_bins(self) -> int:
        return len(self.edges) - 1

    @property
    def extent(self) -> tuple[float, float]:
        return self.edges[0], self.edges[-1]

    def bin_of(self, value: Any) -> int:
        return bisect_right(self.edges, value, 1, len(self.edges) - 1) - 1

    def begin_of(self, j: int) -> float:
        return self.edges[j]

    def _is_above(self, value: float, j: int) -> bool:
        return bool(value > self._middles(np.array([j]))[0])

    @property
    def _single(self) -> bool:
        return self.whole and bool(np.equal(*self._limits(np.arange(self.n_bins))).all())

    def _middles(self, bins: Codes) -> NDArray[Any]:
        first, last = self._limits(bins)
        return np.asarray(first / 2 + last / 2)

    @property
    def borders(self) -> NDArray[np.float64]:
        return self.edge_array

    def _limits(self, bins: Codes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        first, last = self.edge_array[bins], self.edge_array[bins + 1]
        if not self.whole:
            return first, last
        below = np.where(bins == self.n_bins - 1, np.floor(last), np.ceil(last) - 1)
        return np.ceil(first) + 0.0, below + 0.0  # -0.0 is 0.0

    def _n_left(self, bins: Codes) -> NDArray[np.int64]:
        if not self.whole:
            return np.ones(len(bins), dtype=np.int64)
        first, last = self._limits(bins)
        special = np.array(self.special, dtype=np.float64)
        return (last - first).astype(np.int64) + 1 - n_between(special, first, last + 1)

    def _within(self, bins: Codes, fractions: NDArray[np.float64]) -> NDArray[Any]:
        if self.whole:
            steps = np.floor(fractions * self._n_left(bins))
            return skipping(np.array(self.special), self._limits(bins)[0], steps)
        low, high = self.edge_array[bins], self.edge_array[1:][bins]
        last = np.nextafter(high, low)  # of each bin, the greatest value
        values = np.clip(low * (1 - fractions) + high * fractions, low, last)
        while self.special and (taken := np.isin(values, self.special)).any():
            # Towards the middle, which is not special.
            values[taken] = np.nextafter(values[taken], self._middles(bins[taken]))
        return np.asarray(values)


@dataclass(frozen=True, kw_only=True)
class Date(Ranges):
    """Calendar dates first..last by year, month or day, clamped at both ends.

    Released as ISO 8601 text of that precision (``2000``, ``2000-03``, ``2000-03-14``), special
    dates as days.
    """

    kind: ClassVar[str] = "date"
    first: datetime.date
    last: datetime.date
    by: Period = "month"

    def _check_bins(self) -> None:
        if self.by not in get_args(Period):
            raise ConfigError("'by' must be year, month or day.", where=self.name)
        if isinstance(self.first, datetime.datetime) or isinstance(self.last, datetime.datetime):
            raise ConfigError("first and last are dates, without a time.", where=self.name)
        if self.first > self.last:
            raise EdgesError("first is later than last.", where=self.name)

    def period_of(self, day: datetime.date) -> int:
        """Periods since the year 0 (year, month) or the ordinal day."""
        if self.by == "year":
            return day.year
        return day.year * 12 + day.month - 1 if self.by == "month" else day.toordinal()

    def _as_special(self, value: Any) -> datetime.date:
        if type(value) is not datetime.date:
            raise EdgesError(
                f"The special value {value} is not a date, without a time.", where=self.name
            )
        return value

    @property
    def n_bins(self) -> int:
        return self.period_of(self.last) - self.period_of(self.first) + 1

    @property
    def extent(self) -> tuple[datetime.date, datetime.date]:
        return self.first, self.last

    @property
    def _single(self) -> bool:
        return self.by == "day"

    def _written(self, value: datetime.date) -> str:
        return value.isoformat()

    def _comparable(self, value: Any) -> datetime.date:
        return _day_of(value)

    def bin_of(self, value: Any) -> int:
        clamped = min(max(_day_of(value), self.first), self.last)
        return self.period_of(clamped) - self.period_of(self.first)

    def begin_of(self, j: int) -> datetime.date:
        first: datetime.date = self.days_of(np.array([j]))[0].tolist()[0]
        return first

    def _is_above(self, value: datetime.date, j: int) -> bool:
        first, end = self.days_of(np.array([j]))
        day = np.datetime64(value)
        return bool(day - first[0] >= end[0] - day)  # the last day of a period is end - 1

    def _periods(self, bins: Codes) -> NDArray[np.datetime64]:
        unit = {"year": "Y", "month": "M", "day": "D"}[self.by]
        start = np.array([self.first], dtype=f"datetime64[{unit}]")
        return np.asarray(start + bins.astype(f"timedelta64[{unit}]"))

    def days_of(self, bins: Codes) -> tuple[NDArray[np.datetime64], NDArray[np.datetime64]]:
        """The first day of bins int64[k], and the one after the last."""
        periods = self._periods(bins)
        first = np.maximum(periods.astype("datetime64[D]"), np.datetime64(self.first))
        end = np.minimum((periods + 1).astype("datetime64[D]"), np.datetime64(self.last) + 1)
        return first, end

    @property
    def borders(self) -> NDArray[np.float64]:
        first, end = self.days_of(np.arange(self.n_bins))
        return np.append(first, end[-1]).astype(np.int64).astype(np.float64)

    def _middles(self, bins: Codes) -> NDArray[Any]:
        return np.asarray(self._periods(bins).astype(np.str_))

    def _n_left(self, bins: Codes) -> NDArray[np.int64]:
        first, end = self.days_of(bins)
        special = np.array(self.special, dtype="datetime64[D]")
        return (end - first).astype(np.int64) - n_between(special, first, end)

    def _within(self, bins: Codes, fractions: NDArray[np.float64]) -> NDArray[Any]:
        first, _ = self.days_of(bins)
        days = np.floor(fractions * self._n_left(bins)).astype("timedelta64[D]")
        drawn = skipping(np.array(self.special, dtype="datetime64[D]"), first, days)
        if (self.last - self.first).days > len(bins):
            return np.asarray(drawn.astype(np.str_))
        start_day = np.datetime64(self.first)
        written = np.arange(start_day, np.datetime64(self.last) + 1).astype(np.str_)
        return np.asarray(written[(drawn - start_day).astype(np.int64)])  # each day's text once


def _day_of(value: Any) -> datetime.date:
    day: datetime.date = value.date() if isinstance(value, datetime.datetime) else value
    return day


def _type_group(value: object) -> str:
    """Text, number or boolean: values of two groups are never equal."""
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, (int, float)) else type(value).__name__


_TOTAL_STEPS = 2**20


@dataclass(frozen=True, kw_only=True)
class Total(Column):
    """What the records of a unit hold together, clamped; no config declares such a column.

    Codes are the steps of a grid of 2**20 from ``lower`` to ``upper``.

    Attributes:
        of: The column of the records, whose cells are equally far apart.
        lower: What a unit counts at least.
        upper: What it counts at most.
    """

    kind: ClassVar[str] = "total"
    of: Column
    lower: float
    upper: float

    def _check(self) -> None:
        if self.of.n_values < 2 or self.of.decode(np.arange(2)).dtype.kind not in "iuf":
            raise ConfigError(f"Column '{self.name}' has no two numbers.", where="columns")
        if isinstance(self.of, Ranges) and self.of.special:
            raise ConfigError(
                f"Totals of units are of amounts, and column '{self.name}' has special values.",
                where="total",
                next_step="Leave out 'special', or write 'per: record' without 'total'.",
            )
        if isinstance(self.of, Integer):
            return
        values = self.of.decode(np.arange(self.of.n_values))
        gaps = np.diff(values.astype(np.float64))
        if not np.allclose(gaps, gaps[0], rtol=1e-6, atol=0):
            raise ConfigError(
                f"Totals of units are of cells that are equally far apart, and those of column "
                f"'{self.name}' are not.",
                where="total",
                next_step="Declare bins of one width, or write 'per: record' without 'total'.",
            )

    @property
    def n_values(self) -> int:
        return _TOTAL_STEPS + 1

    def _code_of(self, value: Any) -> int:
        share = (min(max(value, self.lower), self.upper) - self.lower) / (self.upper - self.lower)
        return int(np.rint(share * _TOTAL_STEPS))

    def _decode(self, codes: Codes) -> NDArray[Any]:
        return self.lower + (self.upper - self.lower) * (codes / _TOTAL_STEPS)

    def codes_of(self, numbers: Codes, sums: Codes) -> Codes:
        """int64[k] of units with so many values, int64[k], and sums of their codes, int64[k]."""
        most = self.of.n_values - 1
        first, last = self.of.decode(np.array([0, most])).astype(np.float64).tolist()
        step = (last - first) / most
        totals = np.clip(numbers * first + sums * step, self.lower, self.upper)
        shares = (totals - self.lower) / (self.upper - self.lower)
        codes: Codes = np.rint(shares * _TOTAL_STEPS).astype(np.int64)
        return codes


ABSENT = "absent"
"""The label of a place without a person."""


@dataclass(frozen=True, kw_only=True)
class Slot(Column):
    """A column of the person in one place of a household, or that there is nobody.

    Codes are those of ``of``, and the last one is that of an absent person. A config declares
    ``of``; the source's engine makes the slots (tasks.source.linked).

    Attributes:
        of: The column of a person.
        place: Of the person in the household, from 1.
        size_name: Name of the column with the household's number of persons.
    """

    kind: ClassVar[str] = "slot"
    of: Column
    place: int
    size_name: str

    def _check(self) -> None:
        if ABSENT in labels(self.of):
            raise ConfigError(
                f"'{ABSENT}' is a value of the column '{self.of.name}', and stands for a place "
                "without a person.",
                where=self.of.name,
                next_step="Give the category another name in the source.",
            )

    @property
    def n_values(self) -> int:
        return self.of.size + 1

    @property
    def absent_code(self) -> int:
        """Code of a place without a person."""
        return self.of.size

    @property
    def missing_code(self) -> int | None:
        return self.of.missing_code

    def code_of(self, value: Any) -> int:
        """The code of the label that ``decode`` gives; that of nobody for all else."""
        known = labels(self.of)
        return known.index(value) if value in known else self.absent_code

    def _code_of(self, value: Any) -> int:
        return self.code_of(value)

    def _decode(self, codes: Codes) -> NDArray[Any]:
        return np.array([*(label or "" for label in labels(self.of)), ABSENT], dtype=object)[codes]
