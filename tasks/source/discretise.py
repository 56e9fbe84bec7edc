"""The domain's discretisation as one expression of the counting engine.

``mechanisms.domain.columns`` defines the function, one value at a time; here it is an
Ibis expression, so that it runs where the data lies. They agree on every value:

* nulls and NaN are set apart first, since engines order NaN differently;
* a number is compared with each declared edge in the column's own type, that is,
  with the least value of that type not below the edge, so nothing is rounded;
* bins are found by bisection of the edges, and many equal bins by a product
  proved to be the bin or the next, and one comparison with the edge between;
* categories are looked up by a join with their list, since a chain of
  comparisons costs every record the length of the list;
* a decimal is compared with the shortest decimal that denotes an edge or a
  category, as the config writes it.

Codes times strides are summed as doubles while the domain has at most 2**53
cells: exact there, and cheaper than int64 sums that watch for overflow.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mechanisms.domain.columns import Categorical, Column, Date, Integer, Numeric
from mechanisms.domain.domain import Domain
from mechanisms.domain.structural_zeros import Runs
from mechanisms.errors import ColumnNotFoundError, ColumnTypeError
from tasks.source.engine_types import (
    EXACT_DOUBLES,
    below,
    double,
    floor,
    grid,
    in_type,
    is_exact_double,
    literal,
)

if TYPE_CHECKING:
    import ibis.expr.types as ir

_LARGEST_SCALE = 18  # no engine's type holds int64 and decimals of a larger scale
_FEWEST_BINS_TO_GUESS = 8
_TEXT_READ_AS = {"number": "float64"}


@dataclass(frozen=True)
class Coded:
    """A column's code times its stride, and whether its value is null or outside."""

    digit: Any
    is_null: Any
    is_outside: Any


@dataclass(frozen=True)
class _Place:
    """A column's place in the cell code: which it is, its stride, the sum's type."""

    index: int
    stride: int
    dtype: str

    def constant(self, code: int) -> Any:
        step = code * self.stride
        return double(step) if self.dtype == "float64" else literal(step, self.dtype)

    def times(self, code: Any) -> Any:
        code = code.cast(self.dtype)
        return code if self.stride == 1 else code * self.constant(1)


def cell_table(domain: Domain, table: ir.Table, *, unit: str | None = None) -> ir.Table:
    """The cell code of every record of a table.

    Args:
        domain: The declared domain.
        table: Any Ibis table with at least the declared columns.
        unit: Column that names each record's unit; it comes along.

    Returns:
        A table derived from ``table``: an int64 column ``cell``, equal to
        ``domain.cell_of`` of each record, and a column ``unit`` if one was given.

    Raises:
        ColumnNotFoundError: A declared column is missing.
        ColumnTypeError: A column's type cannot carry its discretisation.
    """
    derived, coded = coded_columns(domain, table, unit=unit)
    digits = [column.digit for column in coded]
    cell = sum(digits[1:], start=digits[0])
    units = {} if unit is None else {"unit": derived.unit}
    return derived.select(cell=cell.cast("int64"), **units)


def coded_columns(
    domain: Domain, table: ir.Table, *, unit: str | None = None
) -> tuple[ir.Table, list[Coded]]:
    """A derived table, and what becomes of each column on it, in the domain's order.

    Takes the arguments of ``cell_table``.

    Raises:
        ColumnNotFoundError: A declared column is missing.
        ColumnTypeError: A column's type cannot carry its discretisation.
    """
    dtype = _digit_type(domain)
    places = [_Place(index, stride, dtype) for index, stride in enumerate(domain.strides)]
    units = {} if unit is None else {"unit": table[unit]}
    derived = table.select(
        **{f"value_{i}": _comparable(column, table) for i, column in enumerate(domain.columns)},
        **units,
    )
    for column, place in zip(domain.columns, places, strict=True):
        if isinstance(column, Categorical):
            derived = _join_digits(derived, column, place)
    return derived, [
        _coded(column, derived, place) for column, place in zip(domain.columns, places, strict=True)
    ]


def impossible(domain: Domain, coded: Sequence[Coded]) -> Any:
    """Whether a record lies in a structural zero, from what ``coded_columns`` gave.

    Sets of several runs are those of listed categories, so their codes are listed too.
    """

    def in_set(name: str, runs: Runs) -> Any:
        index = domain.names.index(name)
        digit = coded[index].digit
        place = _Place(index, domain.strides[index], _digit_type(domain))
        if len(runs) == 1:
            first, last = map(place.constant, runs[0])
            return (digit >= first) & (digit <= last)
        codes = np.concatenate([np.arange(first, last + 1) for first, last in runs])
        return digit.cast("int64").isin((codes * place.stride).tolist())

    boxes = (
        functools.reduce(operator.and_, (in_set(name, runs) for name, runs in zero.sets))
        for zero in domain.zeros
    )
    return functools.reduce(operator.or_, boxes)


def read_text(domain: Domain, table: ir.Table, *, unit: str | None = None) -> ir.Table:
    """The declared columns of a table of text, each in the type its kind needs.

    The column ``unit``, if there is one, stays as it is. Text that cannot be read is null.
    A number is the double nearest to the text; of a date with a time and an offset the
    date stands as written.

    Raises:
        ColumnTypeError: No double equals a declared category.
    """
    read = {} if unit is None else {unit: table[unit]}
    for column in (column for column in domain.columns if column.name in table.columns):
        categories = column.categories if isinstance(column, Categorical) else ()
        if not all(map(is_exact_double, categories)):
            raise ColumnTypeError(
                "Text is read as doubles, and none equals a category beyond 2**53.",
                where=column.name,
                next_step="Quote the categories, so that they are compared as text.",
            )
        wanted = _wanted_type(column)
        read[column.name] = table[column.name].try_cast(_TEXT_READ_AS.get(wanted, wanted))
    return table.select(**read) if read else table


def _digit_type(domain: Domain) -> str:
    """The type in which codes times strides are summed."""
    return "float64" if domain.n_cells <= EXACT_DOUBLES else "int64"


def _wanted_type(column: Column) -> str:
    """The group of engine types that can carry a column."""
    if isinstance(column, Categorical):
        return {bool: "boolean", str: "string"}.get(type(column.categories[0]), "number")
    return "date" if isinstance(column, Date) else "number"


def _comparable(column: Column, table: ir.Table) -> Any:
    """The column's value in a type whose comparisons are exact."""
    if column.name not in table.columns:
        what = f"No column '{column.name}' is in all files of the source, once and of one type."
        raise ColumnNotFoundError(what, where=column.name)
    value, wanted = table[column.name], _wanted_type(column)
    found = value.type()
    fits = {
        "number": found.is_integer() or found.is_floating() or found.is_decimal(),
        "date": found.is_date() or found.is_timestamp(),
        "string": found.is_string(),
        "boolean": found.is_boolean(),
    }
    if not fits[wanted]:
        raise ColumnTypeError(
            f"A column of kind {column.kind} is declared with values of type {wanted}; "
            f"the source holds {found.copy(nullable=True)}.",
            where=column.name,
        )
    if found.is_timestamp():
        return value.cast("date")
    inexact = found.is_floating() or (found.is_decimal() and found.scale > _LARGEST_SCALE)
    return value.cast("float64") if inexact else value


def _coded(column: Column, derived: ir.Table, place: _Place) -> Coded:
    value = derived[f"value_{place.index}"]
    is_null = value.isnull()
    if value.type().is_floating():
        is_null = is_null | value.isnan()
    if isinstance(column, Categorical):
        found = derived[f"digit_{place.index}"]
        digit, outside = found.fill_null(place.constant(column.unseen_code)), found.isnull()
        if column.null_code == column.unseen_code:
            return Coded(digit, is_null, outside & ~is_null)
    else:
        digit, outside = _KINDS[column.kind](column, value, place)
    digit = is_null.ifelse(place.constant(column.null_code), digit)
    return Coded(digit, is_null, outside & ~is_null)


def _join_digits(derived: ir.Table, column: Categorical, place: _Place) -> ir.Table:
    """The table with the digit of each declared category, null for all else."""
    import ibis
    import pyarrow as pa

    value = derived[f"value_{place.index}"]
    codes = {in_type(category, value.type()): c for c, category in enumerate(column.categories)}
    codes.pop(None, None)
    digits = pa.array([code * place.stride for code in codes.values()], type=pa.int64())
    keys = pa.array(list(codes), type=value.type().to_pyarrow())
    key, digit = f"key_{place.index}", f"digit_{place.index}"
    categories = ibis.memtable(pa.table({key: keys, digit: digits}))
    categories = categories.mutate(**{digit: categories[digit].cast(place.dtype)})
    return derived.left_join(categories, value == categories[key])


def _numeric(column: Numeric, value: Any, place: _Place) -> tuple[Any, Any]:
    edges, last = column.edges, column.n_values - 1
    outside = below(value, edges[0]) | ~below(value, edges[-1], or_equal=True)
    scale = _guessing_scale(edges) if value.type().is_floating() else None
    if scale is None:
        return _bisection(value, edges, 0, last, place), outside
    guess = floor((value - double(edges[0])) * double(scale))
    begins = literal([repr(edge) for edge in edges], "array<string>").cast("array<float64>")
    inside = place.times(guess - (value < begins[guess.cast("int32")]).cast("float64"))
    low = below(value, edges[1]).ifelse(place.constant(0), inside)
    return below(value, edges[last]).ifelse(low, place.constant(last)), outside


def _bisection(value: Any, edges: tuple[float, ...], first: int, last: int, place: _Place) -> Any:
    """The digit of a value known to lie in one of the bins first..last."""
    if first == last:
        return place.constant(first)
    middle = (first + last + 1) // 2
    low = _bisection(value, edges, first, middle - 1, place)
    return below(value, edges[middle]).ifelse(low, _bisection(value, edges, middle, last, place))


def _guessing_scale(edges: tuple[float, ...]) -> float | None:
    """A scale for which floor((x - edges[0]) * scale) is the bin of x or the next.

    Subtraction, multiplication by a positive number and floor never decrease, as
    rounded in doubles too. So if at each inner edge the result is not below the
    bin that begins there, and at the double just below not above it, then the
    same holds at all x from the first to the last inner edge. None if no such
    scale is found, as when the bins are not equal, or if they are few.
    """
    bins = len(edges) - 1
    if bins < _FEWEST_BINS_TO_GUESS:
        return None
    inner, begins = np.asarray(edges[1:-1]), np.arange(1, bins)
    below = np.nextafter(inner, -np.inf)
    with np.errstate(all="ignore"):
        scale = np.max(begins / (inner - edges[0])) * (1 + 2**-50)
        enough = np.floor((inner - edges[0]) * scale) >= begins
        not_too_much = np.floor((below - edges[0]) * scale) <= begins
    return float(scale) if np.all(enough & not_too_much) else None


def _integer(column: Integer, value: Any, place: _Place) -> tuple[Any, Any]:
    import ibis

    dtype = value.type()
    outside = below(value, column.lower) | ~below(value, column.upper + 1)
    if dtype.is_integer():
        lowest, highest, _ = grid(dtype)
        low, high = max(column.lower, lowest), min(column.upper, highest)
        if low <= high:
            raised = ibis.greatest(value, literal(low, dtype))
            clamped = ibis.least(raised, literal(high, dtype)).cast("float64")
            return _digit_of_whole(column, clamped, place), outside
    inside = _digit_of_whole(column, floor(value), place)
    low = below(value, column.lower).ifelse(place.constant(0), inside)
    return below(value, column.upper).ifelse(low, place.constant(column.n_values - 1)), outside


def _digit_of_whole(column: Integer, whole: Any, place: _Place) -> Any:
    """The digit of whole doubles in the column's range."""
    # Over a range that wide, the distance from the middle is exact, from the end not.
    middle = column.n_values // 2 if column.upper - column.lower > EXACT_DOUBLES else 0
    start = column.lower + middle * column.width
    code = whole - double(start) if start else whole
    digit = place.times(code if column.width == 1 else floor(code / double(column.width)))
    return digit + place.constant(middle) if middle else digit


def _date(column: Date, value: Any, place: _Place) -> tuple[Any, Any]:
    first, last = literal(column.first, "date"), literal(column.last, "date")
    start = column.period_of(column.first)
    period = {
        "year": lambda: value.year() - start,
        "month": lambda: value.year() * 12 + (value.month() - 1 - start),
        "day": lambda: value.delta(first, unit="day"),
    }[column.by]()
    low = (value < first).ifelse(place.constant(0), place.times(period))
    digit = (value < last).ifelse(low, place.constant(column.n_values - 1))
    return digit, (value < first) | (value > last)


_KINDS: dict[str, Any] = {Numeric.kind: _numeric, Integer.kind: _integer, Date.kind: _date}
