"""The domain's discretisation as one expression of the counting engine.

Text that does not stand for a value in the declared form is null here, and counted apart from
nulls. Nothing is guessed: digits are in groups only where a mark between
them is declared, the other decimal mark is not one, and years have four digits unless the declared
format has two.

``mechanisms.domain.columns`` defines the function, one value at a time; here it is an
Ibis expression, so that it runs where the data lies. They agree on every value:

* nulls and NaN are set apart first, since engines order NaN differently;
* a number is compared with each declared edge in the column's own type, that is,
  with the least value of that type not below the edge, so nothing is rounded;
* bins are found by bisection of the edges, and many equal bins by a product
  proved to be the bin or the next, and one comparison with the edge between, which of very many
  is computed too (tasks.source.bins); very many unequal bins
  are searched or joined (tasks.source.bins);
* categories are looked up by a join with their list, since a chain of
  comparisons costs every record the length of the list;
* special values of numbers and dates are compared one by one, as edges are, and the bins after
  them count them;
* a decimal is compared with the shortest decimal that denotes an edge, a special value or a
  category, as the config writes it.

Codes times strides are summed as doubles while that gives at most 2**53
numbers: exact there, and cheaper than int64 sums that watch for overflow. Of a domain too wide
for one int64 code there are several such sums (mechanisms.domain.contingency_table).
"""

from __future__ import annotations

import collections
import datetime
import functools
import operator
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.column import Ranges
from statpress.mechanisms.domain.columns import Categorical, Column, Date, Integer, Numeric, Slot
from statpress.mechanisms.domain.contingency_table import PackedCodes
from statpress.mechanisms.domain.domain import Domain, Runs
from statpress.mechanisms.errors import ColumnTypeError
from statpress.tasks.source.bins import EdgeFormula, with_bins
from statpress.tasks.source.engine import (
    EXACT_DOUBLES,
    CsvOptions,
    below,
    double,
    engine_of,
    floor,
    grid,
    has_any_scale,
    in_type,
    is_exact_double,
    literal,
    missing_column,
)

if TYPE_CHECKING:
    import ibis.expr.types as ir


_ISO_BEGINS = r"^\s*[0-9]{4}[^0-9]"
_FIRST_YEAR = 1000  # an earlier one is a year of fewer digits


def read_text(text: ir.StringValue, wanted: str, options: CsvOptions) -> Any:
    """A column of text as values.

    Args:
        text: Fields that are not empty, or null.
        wanted: ``string``, ``boolean``, ``number`` or ``date``.
        options: The declared form.

    Returns:
        An expression of that type, a number as the nearest double; null where the text cannot
        be read. Of an ISO 8601 date with a time and an offset the date stands as written.
    """
    if wanted == "number":
        return _number(text, options)
    if wanted == "date":
        return _date_of_text(text, options)
    return text if wanted == "string" else text.try_cast(wanted)


def _number(text: Any, options: CsvOptions) -> Any:
    import ibis

    written = text
    if options.thousands is not None:
        mark, point = re.escape(options.thousands), re.escape(options.decimal)
        grouped = (
            rf"^\s*[+-]?[0-9]{{1,3}}(?:{mark}[0-9]{{2,3}})*{mark}[0-9]{{3}}(?:{point}[0-9]*)?\s*$"
        )
        ungrouped = text.strip().replace(options.thousands, "")
        unmarked = text.strip().contains(options.thousands)
        written = unmarked.ifelse(text.re_search(grouped).ifelse(ungrouped, ibis.null(str)), text)
    if options.decimal == ",":
        written = written.translate(",.", ".,")  # a point is no decimal mark then
    # The engine takes 1_000 for a number.
    return written.contains("_").ifelse(ibis.null("float64"), written.try_cast("float64"))


def _date_of_text(text: Any, options: CsvOptions) -> Any:
    import ibis

    none = ibis.null("date")
    if options.date_format is None:
        return text.re_search(_ISO_BEGINS).ifelse(text.try_cast("date"), none)
    # Words such as "infinity" are dates to the engine.
    found = _try_strptime()(text, options.date_format).cast("date")
    known = text.re_search("[0-9]") & (found.year() >= _FIRST_YEAR)
    return known.ifelse(found, none)


@functools.cache
def _try_strptime() -> Any:
    """The engine's parser of dates that gives null instead of failing."""
    import ibis

    signature = (("string", "string"), "timestamp")
    return ibis.udf.scalar.builtin(
        lambda text, form: text, name="try_strptime", signature=signature
    )


_FEWEST_BINS_TO_GUESS = 8
_FEWEST_BINS_TO_COMPUTE = 65  # with a formula for the edges instead of a list of them
_FEWEST_BINS_TO_FIND = 513
_EqualBins = tuple[float, EdgeFormula | None]
KEPT, NULL, OUTSIDE, UNREADABLE = range(4)
"""What becomes of a value: the marks of a digit."""
N_FATES = 4


@dataclass(frozen=True)
class Coded:
    """A column's code times its stride, and whether its value is null, outside or unreadable.

    Attributes:
        digit: With its mark, if the place has one; of an unreadable value that of a null.
        is_null: Whether there is no value, or NaN.
        is_outside: Whether it is an undeclared category or clamped.
        is_unreadable: Whether there is text that is not a value; None where text is not read.
    """

    digit: Any
    is_null: Any
    is_outside: Any
    is_unreadable: Any = None


@dataclass(frozen=True)
class Place:
    """A column's place in a sum of digits.

    Attributes:
        index: Which column it is.
        stride: What its code is multiplied with.
        dtype: Of the sum.
        mark: What a record's fate is multiplied with and added; 0 for no marks.
    """

    index: int
    stride: int
    dtype: str
    mark: int = 0

    def constant(self, code: int, fate: int = KEPT) -> Any:
        """The digit of a code."""
        step = code * self.stride + fate * self.mark
        return double(step) if self.dtype == "float64" else literal(step, self.dtype)

    def times(self, code: Any) -> Any:
        """The digit of an expression for a code."""
        if not self.stride:
            return self.constant(0)
        code = code.cast(self.dtype)
        return code if self.stride == 1 else code * self.constant(1)

    def outside(self, code: int, is_outside: Any) -> Any:
        """The digit of a code, marked where a value lies outside."""
        plain = self.constant(code)
        return is_outside.ifelse(self.constant(code, OUTSIDE), plain) if self.mark else plain


def coded_column(column: Column, derived: ir.Table, place: Place) -> Coded:
    """What becomes of a column whose value, and digit if it is categorical, are in a table.

    Where text was read, whether there was any is in the table too.
    """
    value, there = derived[f"value_{place.index}"], f"there_{place.index}"
    if isinstance(column, Slot):
        return _of_place(column, value, place)
    none = value.isnull()
    if value.type().is_floating():
        none = none | value.isnan()
    is_null, is_unreadable = none, None
    if there in derived.columns:
        is_unreadable = derived[there] & value.isnull()
        is_null = none & ~is_unreadable
    if isinstance(column, Categorical):
        found = derived[f"code_{place.index}"]
        unseen = place.constant(column.unseen_code, OUTSIDE)
        digit, outside = place.times(found).fill_null(unseen), found.isnull()
        if not place.stride:
            digit = outside.ifelse(unseen, place.constant(0))
        if column.null_code == column.unseen_code and not place.mark:
            return Coded(digit, is_null, outside & ~none, is_unreadable)
    else:
        assert isinstance(column, Ranges)
        digit, outside = _KINDS[column.kind](column, derived, place)
        digit, outside = _with_special(column, value, digit, outside, place)
    null = place.constant(column.null_code, NULL)
    if is_unreadable is not None and place.mark:
        null = is_unreadable.ifelse(place.constant(column.null_code, UNREADABLE), null)
    digit = none.ifelse(null, digit)
    return Coded(digit, is_null, outside & ~none, is_unreadable)


def marked(column: Column, derived: ir.Table, index: int) -> Any:
    """A column's code times ``N_FATES``, and the value's fate, as a whole number."""
    return coded_column(column, derived, Place(index, N_FATES, "float64", mark=1)).digit.cast(
        "int64"
    )


def _of_place(column: Slot, value: Any, place: Place) -> Coded:
    """What becomes of a column of the person in a place, from what ``marked`` gave of it."""
    fate = value % N_FATES
    there = place.times(value // N_FATES)
    if place.mark:
        there = there + fate.cast(place.dtype) * place.constant(0, 1)
    digit = value.isnull().ifelse(place.constant(column.absent_code), there)
    missing, outside, unreadable = (
        (fate == each).fill_null(False) for each in (NULL, OUTSIDE, UNREADABLE)
    )
    return Coded(digit, missing, outside, unreadable)


def join_codes(derived: ir.Table, column: Categorical, index: int) -> ir.Table:
    """The table with the code of each declared category, null for all else."""
    import ibis.expr.datatypes as dt

    value = derived[f"value_{index}"]
    codes = {in_type(category, value.type()): c for c, category in enumerate(column.categories)}
    codes.pop(None, None)
    key, code = f"key_{index}", f"code_{index}"
    listed = {key: (value.type(), list(codes)), code: (dt.int64, list(codes.values()))}
    categories = engine_of(derived).constants(derived, listed)
    categories = categories.mutate(**{code: categories[code].cast("float64")})
    return derived.left_join(categories, value == categories[key])


def find_bins(derived: ir.Table, column: Numeric, index: int) -> ir.Table:
    """The table with the bin of each value, where there are many and no formula for the edges."""
    if column.n_bins < _FEWEST_BINS_TO_FIND:
        return derived
    value = _as_double(derived[f"value_{index}"], column.edges)
    if value is None or _equal_bins(column) is not None:
        return derived
    return with_bins(derived, value, column.edge_array, index)


def _numeric(column: Numeric, derived: ir.Table, place: Place) -> tuple[Any, Any]:
    value = derived[f"value_{place.index}"]
    edges, last = column.edges, column.n_bins - 1
    low, high = below(value, edges[0]), ~below(value, edges[-1], or_equal=True)
    outside = low | high
    ends = place.outside(0, low if last else outside), place.outside(last, high)
    joined = f"bin_{place.index}"
    if joined in derived.columns:
        inside = place.times(derived[joined])
    else:
        plain = _as_double(value, edges)
        equal = _equal_bins(column) if plain is not None else None
        if equal is None:
            return _bisection(value, edges, 0, last, place, ends), outside
        inside = place.times(_equal_bin(plain, edges, equal))
    inside = below(value, edges[1]).ifelse(ends[0], inside)
    return below(value, edges[last]).ifelse(inside, ends[1]), outside


def _as_double(value: Any, edges: tuple[float, ...]) -> Any:
    """The value as a double where that changes no comparison with an edge, else None.

    So it is for what lies between the edges; what lies outside is compared as it is.

    * An integer within 2**53 is a double.
    * A decimal of at most 15 digits is not below an edge exactly if the double nearest to it is
      not below. That double does not decrease. Conversely, if a decimal below the shortest one
      that denotes the edge had the same nearest double, then this shortest one would have 15
      digits at most too, and two such decimals never have one nearest double.
    """
    dtype = value.type()
    if dtype.is_floating():
        return value
    if has_any_scale(dtype):
        return None
    most = max(abs(edges[0]), abs(edges[-1]))
    digits = dtype.scale if dtype.is_decimal() else 0
    room = Fraction(EXACT_DOUBLES, 10**digits) if not digits else Fraction(10**15, 10**digits)
    return value.cast("float64") if most < room else None


@functools.lru_cache(maxsize=16)
def _equal_bins(column: Numeric) -> _EqualBins | None:
    """A scale to guess a bin with, and the formula of the edges of many bins; None if none does."""
    if column.n_bins < _FEWEST_BINS_TO_GUESS:
        return None
    edges = column.edge_array
    scale = guessing_scale(edges)
    if scale is None or column.n_bins < _FEWEST_BINS_TO_COMPUTE:
        return None if scale is None else (scale, None)
    formula = EdgeFormula.of(edges)
    return None if formula is None else (scale, formula)


def guessing_scale(edges: NDArray[np.float64]) -> float | None:
    """A scale for which floor((x - edges[0]) * scale) is the bin of x or the next.

    Subtraction, multiplication by a positive number and floor never decrease, as
    rounded in doubles too. So if at each inner edge the result is not below the
    bin that begins there, and at the double just below not above it, then the
    same holds at all x from the first to the last inner edge. None if no such
    scale is found, as when the bins are not equal.

    Args:
        edges: float64[n_bins + 1], of two bins at least.
    """
    inner, begins = edges[1:-1], np.arange(1, len(edges) - 1)
    below = np.nextafter(inner, -np.inf)
    with np.errstate(all="ignore"):
        scale = np.max(begins / (inner - edges[0])) * (1 + 2**-50)
        enough = np.floor((inner - edges[0]) * scale) >= begins
        not_too_much = np.floor((below - edges[0]) * scale) <= begins
    return float(scale) if np.all(enough & not_too_much) else None


def _equal_bin(
    value: Any, edges: tuple[float, ...], equal: tuple[float, EdgeFormula | None]
) -> Any:
    """The bin of a double between the first and the last inner edge: the guess or the one below."""
    scale, formula = equal
    guess = floor((value - double(edges[0])) * double(scale))
    if formula is None:
        listed = literal([repr(edge) for edge in edges], "array<string>").cast("array<float64>")
        begins = listed[guess.cast("int32")]
    else:
        rest = double(formula.start_rest) + guess * double(formula.step_rest)
        begins = double(formula.start) + guess * double(formula.step) + rest
        for at, edge in formula.patches:
            begins = (guess == double(at)).ifelse(double(edge), begins)
    return guess - (value < begins).cast("float64")


def _bisection(
    value: Any,
    edges: tuple[float, ...],
    first: int,
    last: int,
    place: Place,
    ends: tuple[Any, Any],
) -> Any:
    """The digit of a value known to lie in one of the bins first..last; those of the outer two."""
    if first == last:
        if first == 0:
            return ends[0]
        return ends[1] if first == len(edges) - 2 else place.constant(first)
    middle = (first + last + 1) // 2
    low = _bisection(value, edges, first, middle - 1, place, ends)
    high = _bisection(value, edges, middle, last, place, ends)
    return below(value, edges[middle]).ifelse(low, high)


def _integer(column: Integer, derived: ir.Table, place: Place) -> tuple[Any, Any]:
    import ibis

    value = derived[f"value_{place.index}"]
    dtype = value.type()
    outside = below(value, column.lower) | ~below(value, column.upper + 1)
    if dtype.is_integer():
        lowest, highest, _ = grid(dtype)
        low, high = max(column.lower, lowest), min(column.upper, highest)
        if low <= high:
            raised = ibis.greatest(value, literal(low, dtype))
            clamped = ibis.least(raised, literal(high, dtype))
            digit = _digit_of_whole(column, clamped.cast("float64"), place)
            if place.mark:
                digit = digit + place.outside(0, clamped != value)
            return digit, clamped != value
    inside = _digit_of_whole(column, floor(value), place)
    last = column.n_bins - 1
    low = below(value, column.lower).ifelse(place.constant(0, OUTSIDE), inside)
    high = place.outside(last, ~below(value, column.upper + 1))
    return below(value, column.upper).ifelse(low, high), outside


def _digit_of_whole(column: Integer, whole: Any, place: Place) -> Any:
    """The digit of whole doubles in the column's range."""
    # Over a range that wide, the distance from the middle is exact, from the end not.
    middle = column.n_bins // 2 if column.upper - column.lower > EXACT_DOUBLES else 0
    start = column.lower + middle * column.width
    code = whole - double(start) if start else whole
    digit = place.times(code if column.width == 1 else floor(code / double(column.width)))
    return digit + place.constant(middle) if middle else digit


def _date(column: Date, derived: ir.Table, place: Place) -> tuple[Any, Any]:
    value = derived[f"value_{place.index}"]
    first, last = literal(column.first, "date"), literal(column.last, "date")
    start = column.period_of(column.first)
    period = {
        "year": lambda: value.year() - start,
        "month": lambda: value.year() * 12 + (value.month() - 1 - start),
        "day": lambda: value.delta(first, unit="day"),
    }[column.by]()
    low = (value < first).ifelse(place.constant(0, OUTSIDE), place.times(period))
    high = place.outside(column.n_bins - 1, value > last)
    digit = (value < last).ifelse(low, high)
    return digit, (value < first) | (value > last)


def _with_special(
    column: Ranges, value: Any, digit: Any, outside: Any, place: Place
) -> tuple[Any, Any]:
    """The digits of codes from those of bins, and which values are outside."""
    for before, n_special in collections.Counter(column.bins_before.tolist()).items():
        step = place.constant(n_special)
        if before < column.n_bins:  # else no bin comes after them
            begin = column.begin_of(before)
            dated = isinstance(begin, datetime.date)
            earlier = value < literal(begin, "date") if dated else below(value, begin)
            digit = digit + (earlier.ifelse(place.constant(0), step) if before else step)
    for special, code in zip(column.special, column.special_codes.tolist(), strict=True):
        if isinstance(special, datetime.date):
            own = value == literal(special, "date")
        else:
            own = ~below(value, special) & below(value, special, or_equal=True)
        digit, outside = own.ifelse(place.constant(code), digit), outside & ~own
    return digit, outside


_KINDS: dict[str, Any] = {Numeric.kind: _numeric, Integer.kind: _integer, Date.kind: _date}


_LARGEST_SCALE = 18  # no engine's type holds int64 and decimals of a larger scale


def packed_table(
    domain: Domain,
    table: ir.Table,
    *,
    unit: str | None = None,
    text: CsvOptions | None = None,
) -> ir.Table:
    """The codes of every record of a table, packed into as few integers as hold them.

    Returns:
        A table derived from ``table``: int64 columns ``word_0``, ``word_1``, ... as
        ``PackedCodes`` says, and a column ``unit`` if one was given. Of a domain with a joint
        table the one word is the cell, ``domain.cell_of`` of each record.

    Raises:
        ColumnNotFoundError: A declared column is missing from the table; opening the source has
            compared the names with those of each file (``engine.check_source_columns``).
        ColumnTypeError: A column's type cannot carry its discretisation.
    """
    derived, coded = coded_columns(domain, table, unit=unit, text=text)
    words = {
        f"word_{index}": sum_of(coded[column] for column in word)
        for index, word in enumerate(PackedCodes.of(domain).words)
    }
    return derived.select(**words, **({} if unit is None else {"unit": derived.unit}))


def coded_columns(
    domain: Domain,
    table: ir.Table,
    *,
    unit: str | None = None,
    text: CsvOptions | None = None,
) -> tuple[ir.Table, list[Coded]]:
    """A derived table, and what becomes of each column on it, in the domain's order.

    Takes the arguments of ``packed_table``.

    Raises:
        ColumnNotFoundError: A declared column is missing from the table; opening the source has
            compared the names with those of each file (``engine.check_source_columns``).
        ColumnTypeError: A column's type cannot carry its discretisation.
    """
    derived = read_columns(domain, table, unit=unit, text=text)
    return derived, [
        coded_column(column, derived, place)
        for column, place in zip(domain.columns, places_of(PackedCodes.of(domain)), strict=True)
    ]


def read_columns(
    domain: Domain,
    table: ir.Table,
    *,
    unit: str | None = None,
    text: CsvOptions | None = None,
) -> ir.Table:
    """A derived table of values, ready to be coded by ``coded_column``.

    Takes the arguments of ``packed_table``.

    Raises:
        ColumnNotFoundError: A declared column is missing from the table; opening the source has
            compared the names with those of each file (``engine.check_source_columns``).
        ColumnTypeError: A column's type cannot carry its discretisation.
    """
    selected = {} if unit is None else {"unit": table[unit]}
    for index, column in enumerate(domain.columns):
        if column.name not in table.columns:
            raise missing_column(column.name)
        if isinstance(column, Slot):
            selected[f"value_{index}"] = table[column.name]
            continue
        value, wanted = table[column.name], _wanted_type(column)
        if text is not None and value.type().is_string():
            if wanted != "string":
                selected[f"there_{index}"] = value.notnull()
            value = _read(column, value, text)
        selected[f"value_{index}"] = _comparable(column, value)
    derived = table.select(**selected)
    for index, column in enumerate(domain.columns):
        if isinstance(column, Categorical):
            derived = join_codes(derived, column, index)
        elif isinstance(column, Numeric):
            derived = find_bins(derived, column, index)
    return derived


def sum_of(coded: Iterable[Coded]) -> Any:
    """The digits of one word, added."""
    return functools.reduce(operator.add, (column.digit for column in coded)).cast("int64")


def impossible(domain: Domain, digits: Sequence[Any]) -> Any:
    """Whether a record lies in a structural zero, from each column's digit in its word.

    Sets of several runs are those of listed categories, so their codes are listed too.
    """
    places = places_of(PackedCodes.of(domain))

    def in_set(name: str, runs: Runs) -> Any:
        place = places[domain.names.index(name)]
        digit = digits[place.index]
        if len(runs) == 1:
            first, last = map(place.constant, runs[0])
            return (digit >= first) & (digit <= last)
        codes = np.concatenate([np.arange(first, last + 1) for first, last in runs])
        return digit.cast("int64").isin((codes * place.stride).tolist())

    boxes = (
        functools.reduce(operator.and_, (in_set(name, runs) for name, runs in zero.sets))
        for zero in domain.patterns
    )
    return functools.reduce(operator.or_, boxes)


def places_of(packed: PackedCodes) -> list[Place]:
    """Each column's place in its word, which is a sum of doubles if all its values are exact."""
    places = []
    for index, word in enumerate(packed.words):
        dtype = "float64" if packed.cells(index) <= EXACT_DOUBLES else "int64"
        places += [Place(column, packed.strides[column], dtype) for column in word]
    return places


def _wanted_type(column: Column) -> str:
    """The group of engine types that can carry a column."""
    if isinstance(column, Categorical):
        return {bool: "boolean", str: "string"}.get(type(column.categories[0]), "number")
    return "date" if isinstance(column, Date) else "number"


def _read(column: Column, value: Any, text: CsvOptions) -> Any:
    """A column of text in the type that its kind needs."""
    categories = column.categories if isinstance(column, Categorical) else ()
    if not all(map(is_exact_double, categories)):
        raise ColumnTypeError(
            "Text is read as doubles, and none equals a category beyond 2**53.",
            where=column.name,
            next_step="Quote the categories, so that they are compared as text.",
        )
    return read_text(value, _wanted_type(column), text)


def _comparable(column: Column, value: Any) -> Any:
    """The column's value in a type whose comparisons are exact."""
    wanted, found = _wanted_type(column), value.type()
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
    inexact = found.is_floating() or (found.is_decimal() and (found.scale or 0) > _LARGEST_SCALE)
    return value.cast("float64") if inexact else value
