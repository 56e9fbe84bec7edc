"""The digit of a column in the cell code: its code times its stride, as an engine's expression.

One function per kind of column; ``tasks.counting.discretise`` says why they agree on every value
with ``mechanisms.domain.columns``.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from mechanisms.domain.columns import Categorical, Column, Date, Integer, Numeric
from tasks.counting.equal_bins import EdgeFormula, guessing_scale
from tasks.counting.unequal_bins import with_bins
from tasks.engines.engine_types import (
    EXACT_DOUBLES,
    below,
    double,
    floor,
    grid,
    has_any_scale,
    in_type,
    literal,
)
from tasks.engines.registry import engine_of

if TYPE_CHECKING:
    import ibis.expr.types as ir

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
        digit, outside = _KINDS[column.kind](column, derived, place)
    null = place.constant(column.null_code, NULL)
    if is_unreadable is not None and place.mark:
        null = is_unreadable.ifelse(place.constant(column.null_code, UNREADABLE), null)
    digit = none.ifelse(null, digit)
    return Coded(digit, is_null, outside & ~none, is_unreadable)


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
    if column.n_values < _FEWEST_BINS_TO_FIND:
        return derived
    value = _as_double(derived[f"value_{index}"], column.edges)
    if value is None or _equal_bins(column) is not None:
        return derived
    return with_bins(derived, value, column.edge_array, index)


def _numeric(column: Numeric, derived: ir.Table, place: Place) -> tuple[Any, Any]:
    value = derived[f"value_{place.index}"]
    edges, last = column.edges, column.n_values - 1
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
    if column.n_values < _FEWEST_BINS_TO_GUESS:
        return None
    edges = column.edge_array
    scale = guessing_scale(edges)
    if scale is None or column.n_values < _FEWEST_BINS_TO_COMPUTE:
        return None if scale is None else (scale, None)
    formula = EdgeFormula.of(edges)
    return None if formula is None else (scale, formula)


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
    last = column.n_values - 1
    low = below(value, column.lower).ifelse(place.constant(0, OUTSIDE), inside)
    high = place.outside(last, ~below(value, column.upper + 1))
    return below(value, column.upper).ifelse(low, high), outside


def _digit_of_whole(column: Integer, whole: Any, place: Place) -> Any:
    """The digit of whole doubles in the column's range."""
    # Over a range that wide, the distance from the middle is exact, from the end not.
    middle = column.n_values // 2 if column.upper - column.lower > EXACT_DOUBLES else 0
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
    high = place.outside(column.n_values - 1, value > last)
    digit = (value < last).ifelse(low, high)
    return digit, (value < first) | (value > last)


_KINDS: dict[str, Any] = {Numeric.kind: _numeric, Integer.kind: _integer, Date.kind: _date}
