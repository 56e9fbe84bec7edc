"""Declared numbers in the engine's own types: exact values and exact comparisons.

A column keeps its type; the declared edge or category is brought into it, never
the other way round, so that nothing is rounded.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from mechanisms.domain.columns import Category
from tasks.engines.registry import engine_of

if TYPE_CHECKING:
    import ibis.expr.datatypes as dt

EXACT_DOUBLES = 2**53


def literal(value: Any, dtype: Any) -> Any:
    """A constant of a type."""
    import ibis

    return ibis.literal(value, type=dtype)


def double(number: float) -> Any:
    """A double, written as text: engines take 0.1 in a query for a decimal."""
    return literal(repr(float(number)), "string").cast("float64")


def floor(number: Any) -> Any:
    """The floor as a double."""
    if number.type().is_decimal():
        whole = number.cast("int64")  # to the nearest or towards zero, as engines please
        return (whole - (whole > number).cast("int64")).cast("float64")
    return engine_of(number).floor(number)


def grid(dtype: dt.DataType) -> tuple[int, int, int]:
    """Least and greatest value of an integer or decimal type in units of 10**-scale, scale."""
    if dtype.is_decimal():
        greatest = 10 ** int(dtype.precision) - 1
        return -greatest, greatest, int(dtype.scale)
    return int(dtype.bounds.lower), int(dtype.bounds.upper), 0


def has_any_scale(dtype: dt.DataType) -> bool:
    """Whether a type holds decimals of any number of places."""
    return bool(dtype.is_decimal() and dtype.scale is None)


def _written(number: float) -> Decimal:
    """A declared number as the config writes it; beyond 2**53 what the double is."""
    short = isinstance(number, float) and abs(number) < EXACT_DOUBLES
    return Decimal(repr(number)) if short else Decimal(number)


def _units(number: float, dtype: dt.DataType) -> Fraction:
    """A declared number in the units of an integer or decimal type."""
    written = dtype.is_decimal() and isinstance(number, float) and abs(number) < EXACT_DOUBLES
    return Fraction(repr(number) if written else number) * Fraction(10) ** grid(dtype)[2]


def _of_units(units: int, dtype: dt.DataType) -> int | Decimal:
    """So many units as a value of the type."""
    return Decimal(f"{units}E-{grid(dtype)[2]}") if dtype.is_decimal() else units


def is_exact_double(category: Category) -> bool:
    """Whether a category is not an integer, or is one that some double equals."""
    try:
        return not isinstance(category, int) or float(category) == category
    except OverflowError:
        return False


def in_type(category: Category, dtype: dt.DataType) -> Any:
    """A category in the column's type, or None if no value of it is equal."""
    if isinstance(category, (str, bool)):
        return category
    if dtype.is_floating():
        return float(category) if is_exact_double(category) else None
    if has_any_scale(dtype):
        return _written(category)
    units, (lowest, highest, _) = _units(category, dtype), grid(dtype)
    whole = units.denominator == 1 and lowest <= units <= highest
    return _of_units(int(units), dtype) if whole else None


def below(value: Any, bound: float, *, or_equal: bool = False) -> Any:
    """Whether value < bound (or <=), for a value that is neither null nor NaN."""
    dtype = value.type()
    if dtype.is_floating():
        least = float(bound)
        if least < bound:  # an integer between two doubles
            least = math.nextafter(least, math.inf)
        return value <= double(least) if or_equal else value < double(least)
    if has_any_scale(dtype):
        limit = literal(_written(bound), dtype)
        return value <= limit if or_equal else value < limit
    units, (lowest, highest, _) = _units(bound, dtype), grid(dtype)
    least = math.floor(units) + 1 if or_equal else math.ceil(units)
    if not lowest < least <= highest:
        return literal(least > highest, "boolean")
    return value < literal(_of_units(least, dtype), dtype)
