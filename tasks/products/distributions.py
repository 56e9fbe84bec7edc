"""Charts of how records are distributed, and of how columns are related.

The cells of a declared column as a person reads them, from a data package's field.
Charts of how records are distributed over the cells of one column, or of two.
How strongly pairs of columns are related, by their noisy joint tables, and charts of that.

Figures that a series tracks from period to period are shares of values, and estimates. A kind of
product gives them by ``ProductKind.tracked``, from the public files of a bundle.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.column import Ranges
from statpress.mechanisms.domain.columns import (
    Categorical,
    Column,
    Date,
    Integer,
    Numeric,
    Ordinal,
    labels,
)
from statpress.tasks.pages.blocks import Bars, Chart, Curves, Grid, HeatMap, Line
from statpress.tasks.pages.numbers import count, measured, plain, share

MISSING, OTHER = "missing", "other"


def cell_names(column: Column, field: Mapping[str, Any]) -> list[str]:
    """By code what the cell holds: a label, a value, a range, ``other`` or ``missing``.

    >>> from statpress.mechanisms.domain.columns import Numeric
    >>> cell_names(Numeric(name="pay", edges=(0.0, 20.0, 25.5), missing=True), {})
    ['0 to 20', '20 to 25.5', 'missing']
    >>> cell_names(Numeric(name="pay", edges=(0.0, 20.0, 25.5), special=(0, 22)), {})
    ['0', '0 to 20', '22', '20 to 25.5']
    >>> cell_names(Numeric(name="visits", edges=(0, 1, 2, 5), whole=True), {})
    ['0', '1', '2 to 5']
    """
    if isinstance(column, Ranges):
        names = _names_of_ranges(column, field)
    else:
        names = [_text(value) for value in column.decode(np.arange(column.n_values)).tolist()]
    if len(labels := field.get("categories", ())) == len(names):
        names = [str(each["label"]) for each in labels]  # a format may write values otherwise
    names += [OTHER] * (column.other_code is not None)
    return names + [MISSING] * column.missing


def is_ordered(column: Column) -> bool:
    """Whether the order of a column's cells means something: of ranges, ordinals and numbers.

    >>> is_ordered(Categorical(name="year", categories=(1994, 1996)))
    True
    """
    if not isinstance(column, Categorical) or isinstance(column, Ordinal):
        return True
    return all(type(value) in (int, float) for value in column.categories)


def _names_of_ranges(column: Ranges, field: Mapping[str, Any]) -> list[str]:
    """By code the ends of a bin, or its only value; special values with their label."""
    bins = column.codes_of_bins(np.arange(column.n_bins))
    if isinstance(column, Numeric) and column.whole:
        limits = zip(*column.limits_of(bins), strict=True)
        names = [plain(a) if a == b else f"{plain(a)} to {plain(b)}" for a, b in limits]
    elif isinstance(column, Numeric):
        ends = [plain(edge) for edge in column.edges]
        names = [f"{low} to {high}" for low, high in itertools.pairwise(ends)]
    elif isinstance(column, Integer) and column.width > 1:
        lows = range(column.lower, column.upper + 1, column.width)
        names = [f"{low} to {low + column.width - 1}" for low in lows]
    else:
        names = [_text(value) for value in column.decode(bins).tolist()]
    meant = [f" ({each['label']})" for each in field.get("special", ())]
    for k, code in enumerate(column.special_codes.tolist()):  # ascending: each lands at its code
        (value,) = column.decode(np.array([code])).tolist()
        written = plain(value) if isinstance(value, float) else str(value)
        names.insert(code, f"{written}{meant[k] if meant else ''}")
    return names


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def places(column: Column) -> NDArray[np.float64] | None:
    """Where the bins of a column begin on an axis, and where the last ends: float64[n_bins + 1].

    None for a column whose values are not numbers.
    """
    if isinstance(column, (Numeric, Integer)):
        return column.borders
    if isinstance(column, Date) and column.by != "day":
        steps = column.period_of(column.first) + np.arange(column.n_bins + 1)
        return np.asarray(steps / (1 if column.by == "year" else 12))
    return None


def heading(field: Mapping[str, Any]) -> str:
    """A column's name, with its label where it has one."""
    title = field.get("title") or field.get("label")
    return f"{field['name']}: {title}" if title else str(field["name"])


def axis(field: Mapping[str, Any]) -> str:
    """The name of a column for an axis, with its unit where it has one."""
    unit = field.get("unit")
    return f"{field['name']} ({unit})" if unit else str(field["name"])


NORMAL_95 = 1.96
"""Standard errors on either side that hold with 95 % under normal noise."""

MOST_BARS = 24
MOST_STEPS = 1000
MOST_SIDE = 40
LARGEST = 20
_WHOLE = 10.0  # records, above which a reach has no decimals

WHISKERS = (
    "Whiskers hold the number in the confidential records with 95 % each; they are about the "
    "noise of this release, and the sampling of the records comes on top."
)
CERTAIN = "In 95 of 100 such releases the number in the records that were used is within that."
SURPLUS = "Blue: more records than if the columns were unrelated; orange: fewer."
CHOSEN = "Chosen as the largest, they are too high more often than too low."

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Distribution:
    """Estimated counts of every cell of a column.

    Attributes:
        column: As declared.
        field: The same as the data package describes it.
        counts: float64[size], estimated.
        errors: float64[size], their standard errors; None where they are not known.
    """

    column: Column
    field: Mapping[str, Any]
    counts: Floats
    errors: Floats | None


def display_order(found: Distribution) -> list[int]:
    """The codes in the order of a chart: as declared, or by size; missing ones last."""
    column, codes = found.column, list(range(found.column.size))
    if not is_ordered(column):
        own = slice(0, column.n_values)
        codes[own] = sorted(codes[own], key=lambda code: -found.counts[code])
    return codes


def distribution_chart(
    found: Distribution, n_records: int, ordered: Sequence[int] | None = None
) -> Chart:
    """Bars of every cell, or steps where there are many in order, or bars of the largest.

    Args:
        found: The counts.
        n_records: Of which they are shares.
        ordered: The codes in the order of their bars, where each has one; by default as declared.
    """
    names = cell_names(found.column, found.field)
    title, note = heading(found.field), str(found.field.get("description", ""))
    many = len(names) > MOST_BARS
    order = np.arange(len(names)) if many or ordered is None else np.asarray(ordered)
    drawing: Curves | Bars | None = None
    starts = places(found.column) if many and len(names) <= MOST_STEPS else None
    if starts is not None:
        assert isinstance(found.column, Ranges)
        bins = found.column.codes_of_bins(np.arange(len(starts) - 1))
        drawing = _steps(found, starts, bins)
        rest = sorted(set(range(len(names))).difference(bins.tolist()))
        said = ", ".join(f"{names[k]} {_figure(found, k)}" for k in rest)
        note = f"{note} Not drawn: {said}.".strip() if said else note
    elif many:
        order = np.argsort(-found.counts, kind="stable")[:LARGEST]
        chosen = "" if found.errors is None else f" {CHOSEN}"
        note = f"{note} The {LARGEST} largest of {len(names):,} cells.{chosen}".strip()
    if drawing is None:
        drawing = bars([names[k] for k in order], found.counts[order], _some(found.errors, order))
    largest = int(np.argmax(found.counts))
    words = f"Estimated records by {title}; most are {names[largest]}, {_figure(found, largest)}."
    shown = order if len(order) <= MOST_BARS else order[: 10 * LARGEST]
    rows = [_row(found, names, k, n_records) for k in shown]
    known = found.errors is not None
    headings = ("value", "records", *(("± 95 %",) if known else ()), "share")
    part = "" if len(rows) == len(names) else f", {len(rows)} of {len(names):,} cells"
    data = Grid(headings, rows, title=f"Figures of {found.field['name']}{part}", folded=True)
    return Chart(title, drawing, words, data, note)


def bars(names: Sequence[str], counts: Floats, errors: Floats | None) -> Bars:
    """Bars with whiskers at 95 %."""
    if errors is None:
        return Bars(names, counts.tolist(), axis="records")
    reach = NORMAL_95 * errors
    return Bars(
        names, counts.tolist(), (counts - reach).tolist(), (counts + reach).tolist(),
        axis="records, 95 % whiskers",
    )  # fmt: skip


def joint_chart(
    rows: Distribution, columns: Distribution, counts: Floats, note: str = "", *,
    signed: bool = False,
) -> Chart | None:  # fmt: skip
    """A heat map of two columns, counts float64[rows, columns]; None of too many cells.

    If it is signed, it shows how many records more or fewer there are than of unrelated columns.
    """
    sides = cell_names(rows.column, rows.field), cell_names(columns.column, columns.field)
    if max(map(len, sides)) > MOST_SIDE:
        return None
    first, second = rows.field["name"], columns.field["name"]
    order = np.argsort(-counts.ravel(), kind="stable")[:LARGEST]
    cells = [
        (sides[0][k // counts.shape[1]], sides[1][k % counts.shape[1]], count(counts.flat[k]))
        for k in order
    ]
    part = f", the {len(cells)} largest of {counts.size:,}" if len(cells) < counts.size else ""
    data = Grid((first, second, "records"), cells, title=f"Figures{part}", folded=True)
    drawing = HeatMap(*sides, counts.tolist(), scale="records")
    if signed:
        unrelated = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / max(counts.sum(), 1.0)
        surplus = (counts - unrelated).tolist()
        drawing = HeatMap(*sides, surplus, scale="more or fewer", signed=True)
        note = f"{SURPLUS} {note}".strip()
    words = (
        f"Estimated records by {first} and {second}; most are {cells[0][0]} and {cells[0][1]}, "
        f"{cells[0][2]}."
    )
    return Chart(f"{first} (down) by {second} (across)", drawing, words, data, note)


def _steps(found: Distribution, starts: Floats, bins: NDArray[np.int64]) -> Curves:
    counts = found.counts[bins]
    ends = np.append(counts, counts[-1])
    lower: Floats | tuple[float, ...] = ()
    upper: Floats | tuple[float, ...] = ()
    if found.errors is not None:
        reach = NORMAL_95 * np.append(found.errors[bins], found.errors[bins[-1]])
        lower, upper = ends - reach, ends + reach
    line = Line("", starts.tolist(), ends.tolist(), list(lower), list(upper), stepped=True)
    words = "records in each cell" + (", 95 % band" if found.errors is not None else "")
    return Curves([line], axis(found.field), words)


def _figure(found: Distribution, k: int) -> str:
    said = count(found.counts[k])
    return said if found.errors is None else f"{said} {reach_95(found.errors[k])}"


def reach_95(error: float) -> str:
    """A standard error as what to give and take at 95 %."""
    reach = NORMAL_95 * float(error)
    return f"± {count(reach)}" if reach >= _WHOLE else give_or_take(reach)


def give_or_take(value: float | None) -> str:
    """Half the width of an interval.

    >>> give_or_take(54.3)
    '± 54.3'
    """
    return "" if value is None or not math.isfinite(value) else f"± {measured(value, 3)}"


def _row(found: Distribution, names: Sequence[str], k: int, n_records: int) -> list[str]:
    known = [] if found.errors is None else [reach_95(found.errors[k])]
    return [names[k], count(found.counts[k]), *known, share(found.counts[k] / n_records)]


def _some(values: Floats | None, chosen: NDArray[Any]) -> Floats | None:
    return None if values is None else values[chosen]


def typical_figure(found: Distribution, where: str) -> tuple[str, str] | None:
    """A count of the first value in words, and its reach; None where errors are not known.

    Not of the value with the largest estimate: noise would have a hand in that choice, and the
    interval hold less often than it says.
    """
    if found.errors is None:
        return None
    names = cell_names(found.column, found.field)
    first = next(k for k, name in enumerate(names) if name != MISSING)
    figure = f"{count(found.counts[first])} {reach_95(found.errors[first])}"
    return figure, f"records with {where} = {names[first]}. {CERTAIN}"


Pair = tuple[str, str]

EXPLAINED = (
    "Strength is Cramér's V: 0 where the two columns have nothing to do with each other, 1 where "
    "one tells the other. What noise alone would show has been taken off, so that 0 also stands "
    "for a relation too weak to be told from noise."
)


def matrix_chart(names: Sequence[str], strengths: Mapping[Pair, float], marked: str) -> Chart:
    """A matrix of all pairs, shaded by strength; pairs without one are marked."""
    rows, columns = list(names[1:]), list(names[:-1])
    values: list[list[float | None]] = [
        [strengths.get((column, row)) if j <= i else np.nan for j, column in enumerate(columns)]
        for i, row in enumerate(rows)
    ]
    ordered = sorted(strengths.items(), key=lambda each: -each[1])
    cells = [(a, b, f"{value:.2f}") for (a, b), value in ordered[:60]]
    part = f", the {len(cells)} strongest of {len(ordered)}" if len(cells) < len(ordered) else ""
    said = f"strongest are {cells[0][0]} and {cells[0][1]}, {cells[0][2]}" if cells else "none"
    return Chart(
        "How strongly each pair of columns is related",
        HeatMap(rows, columns, values, marked=marked, scale="Cramér's V"),
        f"Matrix of pairs of columns; {said}.",
        Grid(("column", "column", "strength"), cells, title=f"Strengths{part}", folded=True),
        EXPLAINED,
    )


SHARE, WEIGHTED = "share", "weighted share"
CONFIDENCE = 0.95
"""Of the intervals of shares."""
REACH = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
"""Standard errors on either side of a normal interval."""
MOST_CELLS = 1000
"""Cells of one column up to which their shares are tracked."""
MOST_PAIR_CELLS = 60
"""Cells of two columns of a table up to which their joint shares are tracked."""


class Reading(NamedTuple):
    """A figure with its interval; None where a number is not known or infinite."""

    value: float | None
    lower: float | None = None
    upper: float | None = None
    standard_error: float | None = None

    @classmethod
    def of(cls, *numbers: float | None) -> Reading:
        """The numbers, without those that are not finite."""
        return cls(*(float(x) if x is not None and math.isfinite(x) else None for x in numbers))


@dataclass(frozen=True)
class TrackedFigure:
    """A figure of one release.

    Attributes:
        name: ``share``, ``weighted share`` by the survey weights of records, or what is estimated.
        cell: Of a share its columns, each with its value as published; empty of an estimate.
        label: The value in words, or what is estimated.
        reading: The figure.
        confidence: Of its interval; None where none is known, as of a biased figure.
        of: Whether the interval is about the ``records`` or the ``population`` that they are of.
    """

    name: str
    cell: tuple[tuple[str, str], ...]
    label: str
    reading: Reading
    confidence: float | None
    of: str


def tracked_shares(
    columns: Sequence[Column],
    fields: Sequence[Mapping[str, Any]],
    read: Callable[[tuple[int, ...]], Reading],
    confidence: float | None = CONFIDENCE,
    name: str = SHARE,
) -> Iterator[TrackedFigure]:
    """The shares of all cells of some columns, of the records that are missing in none of them.

    Args:
        columns: One, or several for their joint shares.
        fields: The same as the data package describes them.
        read: Gives the share of the cell with these codes.
        confidence: Of their intervals; None where none is known.
        name: Of the figure.
    """
    values = [labels(column) for column in columns]
    words = [cell_names(*each) for each in zip(columns, fields, strict=True)]
    for codes in itertools.product(*(range(each.size - each.missing) for each in columns)):
        cell = tuple(
            (column.name, str(listed[code]))
            for column, listed, code in zip(columns, values, codes, strict=True)
        )
        label = " · ".join(names[code] for names, code in zip(words, codes, strict=True))
        yield TrackedFigure(name, cell, label, read(codes), confidence, "records")
