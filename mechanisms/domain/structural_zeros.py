"""Structural zeros: combinations of values that no record can have.

A pattern is a box of cells: some columns, and for each a set of codes; a cell lies in it
if all of these columns have such codes, whatever the others are. The union of a few
boxes is counted exactly by inclusion and exclusion and never listed, so it may lie in a
domain of any size.
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.columns import Categorical, Category, Codes, Column, Date, Integer, Numeric
from mechanisms.errors import ConfigError

MOST_PATTERNS = 12
End = int | float | Decimal | datetime.date | None
Runs = tuple[tuple[int, int], ...]
_FARTHEST = 2**1000
_SAME_EDGE = Fraction(1, 10**9)  # of a bin's width, between an edge and how it is written


@dataclass(frozen=True)
class ZeroPattern:
    """Impossible cells: those whose codes lie in all of the given sets at once.

    Args:
        sets: Per column its name and its codes as runs, first and last code of each;
            kept in order and without overlap.
    """

    sets: tuple[tuple[str, Runs], ...]

    def __post_init__(self) -> None:
        if not self.sets:
            raise ConfigError("A structural zero needs at least one column.")
        merged = tuple((name, _merged(runs)) for name, runs in self.sets)
        for name, runs in merged:
            if not runs:
                raise ConfigError("A structural zero needs at least one value.", where=name)
        object.__setattr__(self, "sets", merged)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns it looks at."""
        return tuple(name for name, _ in self.sets)

    def contains(self, codes: Mapping[str, Codes]) -> NDArray[np.bool_]:
        """bool[k]: which cells lie in the box, from the codes int64[k] of its columns."""
        inside = np.ones(len(codes[self.names[0]]), dtype=np.bool_)
        for name, runs in self.sets:
            ends = np.array(runs, dtype=np.int64)
            place = np.searchsorted(ends[:, 0], codes[name], side="right") - 1
            inside &= (place >= 0) & (codes[name] <= ends[place, 1])
        return inside


def n_covered(patterns: Sequence[ZeroPattern], sizes: Mapping[str, int]) -> int:
    """Number of cells that lie in at least one pattern, exactly.

    Inclusion and exclusion over the sets of patterns that meet, at most 2**len(patterns).

    Args:
        patterns: Their columns are among the sizes.
        sizes: Number of codes of every column of the domain.
    """

    def meeting(start: int, met: Mapping[str, Runs], sign: int) -> int:
        total = 0
        for i in range(start, len(patterns)):
            both = {**met}
            for name, runs in patterns[i].sets:
                both[name] = _common(met[name], runs) if name in met else runs
            if all(both.values()):
                sides = (_length(both[n]) if n in both else size for n, size in sizes.items())
                total += sign * math.prod(sides) + meeting(i + 1, both, -sign)
        return total

    return meeting(0, {}, 1)


def codes_of_values(column: Column, values: Iterable[Category | None]) -> Runs:
    """The codes of listed values: declared categories, ``other``, or null for missing.

    Raises:
        ConfigError: A value is not declared, or the column's values are not categories.
    """
    runs = []
    for value in values:
        code = column.missing_code if value is None else None
        if isinstance(column, Categorical) and value is not None:
            if any(_same(value, category) for category in column.categories):
                code = column.code_of(value)
            elif value == "other":
                code = column.other_code
        elif value is not None:
            raise ConfigError(
                f"The values of a column of kind {column.kind} are given as a range.",
                where=column.name,
                next_step="Write {lower: …, upper: …}; one end may be left out.",
            )
        if code is None:
            written = "null" if value is None else repr(value)
            raise ConfigError(
                f"The column does not declare {written[:60]}.",
                where=column.name,
                next_step="Give declared values, 'other' or null, where the column has such cells.",
            )
        runs.append((code, code))
    return tuple(runs)


def codes_of_range(column: Column, lower: End, upper: End) -> Runs:
    """The codes of a range, both ends included; an end that is None is the column's own.

    Raises:
        ConfigError: The range does not consist of whole cells, or the column has no range.
    """
    n = column.n_values
    if isinstance(column, Integer):
        first = 0 if lower is None else _whole(lower, column.lower, column.width)
        last = n if upper is None else _whole(upper, column.lower - 1, column.width)
    elif isinstance(column, Numeric):
        first = 0 if lower is None else _edge(column, lower)
        last = n if upper is None else _edge(column, upper)
    elif isinstance(column, Date):
        first = 0 if lower is None else _begin(column, lower)
        last = n if upper is None else _end(column, upper)
    else:
        raise ConfigError(
            f"A column of kind {column.kind} has no range.",
            where=column.name,
            next_step="List the values.",
        )
    if first is None or last is None or not 0 <= first < last <= n:
        raise ConfigError(
            "The range does not consist of whole cells of the column.",
            where=column.name,
            next_step="Begin with the first and end with the last value of a declared cell.",
        )
    return ((first, last - 1),)


def _same(one: object, two: object) -> bool:
    """Equal, and both booleans or neither."""
    return one == two and isinstance(one, bool) == isinstance(two, bool)


def _number(end: End) -> Fraction | None:
    """An end as an exact number; None for a date, and beyond all columns."""
    if not isinstance(end, (int, float, Decimal)) or not -_FARTHEST < end < _FARTHEST:
        return None
    return Fraction(end)


def _whole(end: End, start: int, width: int) -> int | None:
    """How many cells lie between the start and an end that is the border of one."""
    number = _number(end)
    cells = None if number is None else (number - start) / width
    return int(cells) if cells is not None and cells.denominator == 1 else None


def _edge(column: Numeric, end: End) -> int | None:
    """Index of the edge that an end is; decimals are written with few digits."""
    number = _number(end)
    if number is None:
        return None
    edges = column.edge_array
    index = int(np.argmin(np.abs(edges - float(number))))
    nearby = edges[max(index - 1, 0) : index + 2].tolist()
    width = min(Fraction(b) - Fraction(a) for a, b in itertools.pairwise(nearby))
    return index if abs(Fraction(column.edges[index]) - number) <= width * _SAME_EDGE else None


def _begin(column: Date, end: End) -> int | None:
    """Code of the period that begins on a day."""
    if not isinstance(end, datetime.date) or not column.first <= end <= column.last:
        return None
    period = column.period_of(end)
    begins = end == column.first or column.period_of(end - datetime.timedelta(1)) < period
    return period - column.period_of(column.first) if begins else None


def _end(column: Date, end: End) -> int | None:
    """One more than the code of the period that ends on a day."""
    if not isinstance(end, datetime.date) or not column.first <= end <= column.last:
        return None
    period = column.period_of(end)
    ends = end == column.last or column.period_of(end + datetime.timedelta(1)) > period
    return period - column.period_of(column.first) + 1 if ends else None


def _merged(runs: Iterable[tuple[int, int]]) -> Runs:
    """Runs in order, those that touch joined."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(runs):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return tuple(joined)


def _common(one: Runs, two: Runs) -> Runs:
    """The codes in both."""
    pairs = ((max(a, c), min(b, d)) for a, b in one for c, d in two)
    return tuple((first, last) for first, last in pairs if first <= last)


def _length(runs: Runs) -> int:
    return sum(last - first + 1 for first, last in runs)
