"""Generated domains, and sources whose values lie at and around what they declare."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import datetime
import decimal
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import assume
from hypothesis import strategies as st

from statpress.mechanisms.domain.columns import (
    Categorical,
    Column,
    Date,
    Integer,
    Numeric,
    Ordinal,
    Total,
)
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import EdgesError

NAMES = ("a", "A", "q\"uo'te", "s p a.c;e", "größe", "value_0", "digit_0", "c1", "cell", "select")
INTEGERS = {
    pa.int8(): (-(2**7), 2**7 - 1),
    pa.int16(): (-(2**15), 2**15 - 1),
    pa.int32(): (-(2**31), 2**31 - 1),
    pa.int64(): (-(2**63), 2**63 - 1),
    pa.uint8(): (0, 2**8 - 1),
    pa.uint16(): (0, 2**16 - 1),
    pa.uint32(): (0, 2**32 - 1),
    pa.uint64(): (0, 2**64 - 1),
}
DECIMALS = (pa.decimal128(4, 1), pa.decimal128(15, 3), pa.decimal128(15, 15), pa.decimal128(9, 0),
            pa.decimal128(18, 2), pa.decimal128(25, 10))  # fmt: skip
flags = st.booleans()
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
finite = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([-0.0, 0.0, 5e-324])
modest = st.floats(-100, 100) | st.integers(-1000, 1000).map(lambda i: i / 10)
integers = st.integers(-20, 20) | st.integers(-(2**66), 2**66) | st.sampled_from([2**53 + 1, 2**63])
days = st.dates() | st.dates(datetime.date(1999, 12, 1), datetime.date(2001, 2, 1))


def near(numbers: st.SearchStrategy[float]) -> st.SearchStrategy[float]:
    """Doubles at, just below and just above a number, or its negative."""
    steps = st.sampled_from([lambda x: x, lambda x: math.nextafter(x, -math.inf),
                             lambda x: math.nextafter(x, math.inf), lambda x: -x])  # fmt: skip
    return st.builds(lambda step, x: step(float(x)), steps, numbers)


def numbers_of(kind: pa.DataType, anchors: st.SearchStrategy[float]) -> st.SearchStrategy[object]:
    """Python values of an Arrow number type, many of them at or near the anchors."""
    if kind in INTEGERS:
        low, high = INTEGERS[kind]
        around = st.builds(lambda x, d: min(max(math.floor(x) + d, low), high), anchors,
                           st.integers(-1, 1))  # fmt: skip
        return around | st.integers(low, high) | st.sampled_from([low, high])
    if pa.types.is_decimal(kind):
        top = 10**kind.precision - 1
        unit = decimal.Decimal(1).scaleb(-kind.scale)
        scaled = anchors.map(lambda x: min(max(round(x * 10.0**kind.scale), -top), top)
                             if abs(x) < 1e20 else top)  # fmt: skip
        steps = st.integers(-1, 1)
        around = st.builds(lambda units, d: min(max(units + d, -top), top), scaled, steps)
        return (around | st.integers(-top, top)).map(lambda units: units * unit)
    doubles = near(anchors) | finite | st.sampled_from([math.nan, math.inf, -math.inf, 1e300])
    if kind == pa.float32():
        with np.errstate(over="ignore"):
            return doubles.map(lambda x: float(np.float32(np.clip(x, -3e38, 3e38))))
    return doubles


@st.composite
def many_edges(draw: st.DrawFn) -> tuple[float, ...]:
    """Unequal edges, more than are bisected; the larger the spread, the more bins in one place."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    widths = random.lognormal(sigma=draw(st.sampled_from([0.01, 1, 8])), size=600)
    edges = draw(modest) + draw(st.sampled_from([1e-3, 1.0])) * np.cumsum(widths)
    return tuple(np.unique(edges).tolist())


def with_special(draw: st.DrawFn, column: Column, values: st.SearchStrategy[object]) -> Column:
    """The column, perhaps with special values in some bins, at their edges, and outside."""
    for value in draw(st.lists(values, max_size=4, unique=True)) if draw(flags) else []:
        with contextlib.suppress(EdgesError):  # it has a cell of its own already
            column = dataclasses.replace(column, special=(*column.special, value))
    return column


@st.composite
def numeric(draw: st.DrawFn, name: str, missing: bool) -> Numeric:
    if draw(flags):
        low, high = sorted(draw(st.lists(modest | finite, min_size=2, max_size=2, unique=True)))
        bins = draw(st.integers(1, 40) | st.sampled_from([64, 65, 70, 520]))
        edges = Numeric.uniform_edges(low, high, bins)
        assume(all(a < b for a, b in itertools.pairwise(edges)))
    elif draw(flags):
        edges = draw(many_edges())
    else:
        edges = sorted(draw(st.lists(modest | finite, min_size=2, max_size=9, unique=True)))
    column = Numeric(name=name, missing=missing, edges=tuple(edges))
    return with_special(draw, column, near(st.sampled_from(edges) | modest))


@st.composite
def whole(draw: st.DrawFn, name: str, missing: bool) -> Integer:
    width = draw(st.sampled_from([1, 2, 5, 7, 1000, 2**51 - 1]))
    cells = draw(st.integers(1, 30) | st.just(2**41)) if width < 10 else draw(st.integers(1, 8))
    lower = draw(st.integers(-50, 50) | st.sampled_from([-(2**53), -(2**40), 2**53 - 3, 250]))
    upper = lower + width * cells - 1
    assume(upper <= 2**53)
    column = Integer(name=name, missing=missing, lower=lower, upper=upper, width=width)
    around = st.integers(max(lower - 2, -(2**53)), min(upper + 2, 2**53))
    return with_special(draw, column, around | st.sampled_from([-9, 999]))


@st.composite
def categorical(draw: st.DrawFn, name: str, missing: bool) -> Categorical:
    few_numbers = st.integers(-9, 9) | modest | integers
    pool = draw(st.sampled_from([texts, few_numbers, flags]))
    chosen = draw(st.lists(pool, min_size=1, max_size=12, unique=True))
    other = draw(flags) and "other" not in chosen
    kind = draw(st.sampled_from([Categorical, Ordinal]))
    return kind(name=name, missing=missing, categories=tuple(chosen), other=other)


@st.composite
def dates(draw: st.DrawFn, name: str, missing: bool) -> Date:
    first, last = sorted(draw(st.lists(days, min_size=2, max_size=2)))
    period = draw(st.sampled_from(["year", "month", "day"]))
    column = Date(name=name, missing=missing, first=first, last=last, by=period)
    return with_special(draw, column, days | st.sampled_from([first, last]))


@st.composite
def typed_values(draw: st.DrawFn, column: Column) -> tuple[pa.DataType, st.SearchStrategy[object]]:
    """An engine type that can carry the column, and values of it."""
    if isinstance(column, Date):
        kind = draw(st.sampled_from([pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"),
                                     pa.timestamp("ms")]))  # fmt: skip
        around = st.sampled_from([column.first, column.last, *column.special]) | days
        if kind == pa.date32():
            return kind, around
        zone = datetime.UTC if kind.tz else None
        times = st.times().map(lambda t: t.replace(microsecond=0))
        return kind, st.builds(lambda d, t: datetime.datetime.combine(d, t, zone), around, times)
    if isinstance(column, Categorical) and not isinstance(column.categories[0], (int, float)):
        return pa.string(), st.sampled_from(column.categories) | texts
    if isinstance(column, Categorical) and isinstance(column.categories[0], bool):
        return pa.bool_(), flags
    decimals = DECIMALS
    if isinstance(column, Categorical) or column.special:
        decimals = DECIMALS[:4]  # of wider ones the nearest double may be a category
    if isinstance(column, Categorical):
        anchors = st.sampled_from([float(category) for category in column.categories])
    elif isinstance(column, Numeric):
        anchors = st.sampled_from([*column.edges, *column.special])
    else:
        ends = [column.lower, column.upper, column.upper + 1, *column.special]
        anchors = st.sampled_from(ends) | st.integers(column.lower, column.upper)
    kind = draw(st.sampled_from([pa.float64(), pa.float32(), *decimals, *INTEGERS]))
    return kind, numbers_of(kind, anchors)


@st.composite
def domains(draw: st.DrawFn) -> Domain:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    kinds = st.sampled_from([numeric, whole, categorical, dates])
    columns = tuple(draw(draw(kinds)(name, draw(flags))) for name in names)
    return Domain(columns)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Domain, pa.Table]:
    domain = draw(domains())
    n = draw(st.integers(1, 40))
    arrays = {}
    for column in domain.columns:
        kind, values = draw(typed_values(column))
        column_values = draw(st.lists(st.none() | values, min_size=n, max_size=n))
        arrays[column.name] = pa.array(column_values, type=kind, from_pandas=False)
    return domain, pa.table(arrays)


def read(value: object) -> object:
    """A value as the definition takes it: a decimal is the double nearest to it.

    It is the one before if that double, as a config writes it, is greater than the decimal.
    """
    if not isinstance(value, decimal.Decimal):
        return value
    nearest = float(value)
    written = decimal.Decimal(repr(nearest) if abs(nearest) < 2**53 else nearest)
    return math.nextafter(nearest, -math.inf) if value < written else nearest


@st.composite
def text_tables(draw: st.DrawFn) -> tuple[Domain, list[dict[str, str]], list[dict[str, object]]]:
    """A domain, records of text, and the values that the text stands for."""
    domain = draw(domains())
    n = draw(st.integers(1, 30))
    columns: dict[str, list[tuple[str, object]]] = {}
    for column in domain.columns:
        junk: st.SearchStrategy[tuple[str, object]] = st.sampled_from(
            [("", None), ("abc", None), ("1,5", None), ("--", None)]
        )
        if isinstance(column, Date):
            of_interest = st.sampled_from([column.first, *column.special]) | days
            pairs = of_interest.map(lambda d: (d.isoformat(), d)) | junk
        elif isinstance(column, Categorical) and isinstance(column.categories[0], str):
            plain = st.sampled_from(column.categories) | texts
            pairs = plain.filter(lambda t: "\0" not in t).map(lambda t: (t, t or None))
        elif isinstance(column, Categorical) and isinstance(column.categories[0], bool):
            pairs = flags.map(lambda f: (str(f).lower(), f)) | junk
        else:
            categories = column.categories if isinstance(column, Categorical) else ()
            assume(all(abs(category) <= 2**53 for category in categories))
            anchors = {Categorical: categories, Ordinal: categories}.get(type(column))
            if isinstance(column, Numeric):
                anchors = (*column.edges, *column.special)
            elif isinstance(column, Integer):
                anchors = (column.lower, column.upper, *column.special)
            doubles = numbers_of(pa.float64(), st.sampled_from(anchors))
            pairs = doubles.map(lambda x: (repr(x), x)) | junk
        columns[column.name] = draw(st.lists(pairs, min_size=n, max_size=n))
    texts_, values = ([{k: v[i][side] for k, v in columns.items()} for i in range(n)]
                      for side in (0, 1))  # fmt: skip
    return domain, texts_, values


def totals_of(domain: Domain) -> list[Domain]:
    """Domains of what units hold in total of each column of whole numbers."""
    return [
        Domain((Total(name=column.name, of=column, lower=-5, upper=20),))
        for column in domain.columns
        if isinstance(column, Integer) and column.n_values > 1 and not column.special
    ]


def write_lines(folder: Path, domain: Domain, lines: Sequence[Mapping[str, str]]) -> Path:
    """A new CSV file of these records, every value of them quoted."""
    path = folder / "records.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, domain.names, lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(lines)
    return path
