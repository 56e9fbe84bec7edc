"""The domain's discretisation as one expression of the counting engine.

``mechanisms.domain.columns`` defines the function, one value at a time; here it is an
Ibis expression, so that it runs where the data lies. They agree on every value:

* nulls and NaN are set apart first, since engines order NaN differently;
* a number is compared with each declared edge in the column's own type, that is,
  with the least value of that type not below the edge, so nothing is rounded;
* bins are found by bisection of the edges, and many equal bins by a product
  proved to be the bin or the next, and one comparison with the edge between, which of very many
  is computed too (tasks.counting.equal_bins); very many unequal bins
  are searched or joined (tasks.counting.unequal_bins);
* categories are looked up by a join with their list, since a chain of
  comparisons costs every record the length of the list;
* a decimal is compared with the shortest decimal that denotes an edge or a
  category, as the config writes it.

Codes times strides are summed as doubles while that gives at most 2**53
numbers: exact there, and cheaper than int64 sums that watch for overflow. Of a domain too wide
for one int64 code there are several such sums (mechanisms.domain.packed_codes).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mechanisms.domain.columns import Categorical, Column, Date, Numeric
from mechanisms.domain.domain import Domain
from mechanisms.domain.packed_codes import PackedCodes
from mechanisms.domain.structural_zeros import Runs
from mechanisms.errors import ColumnNotFoundError, ColumnTypeError
from tasks.counting.digits import Coded, Place, coded_column, find_bins, join_codes
from tasks.counting.text_values import read_text
from tasks.engines.engine_types import EXACT_DOUBLES, is_exact_double
from tasks.source.csv_options import CsvOptions

if TYPE_CHECKING:
    import ibis.expr.types as ir

_LARGEST_SCALE = 18  # no engine's type holds int64 and decimals of a larger scale


def packed_table(
    domain: Domain,
    table: ir.Table,
    *,
    unit: str | None = None,
    text: CsvOptions | None = None,
) -> ir.Table:
    """The codes of every record of a table, packed into as few integers as hold them.

    Args:
        domain: The declared domain.
        table: Any Ibis table with at least the declared columns.
        unit: Column that names each record's unit; it comes along.
        text: If all columns are text, how values are written.

    Returns:
        A table derived from ``table``: int64 columns ``word_0``, ``word_1``, ... as
        ``PackedCodes`` says, and a column ``unit`` if one was given. Of a domain with a joint
        table the one word is the cell, ``domain.cell_of`` of each record.

    Raises:
        ColumnNotFoundError: A declared column is missing.
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
        ColumnNotFoundError: A declared column is missing.
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
    """A derived table of values, ready to be coded (``tasks.counting.digits``).

    Takes the arguments of ``packed_table``.

    Raises:
        ColumnNotFoundError: A declared column is missing.
        ColumnTypeError: A column's type cannot carry its discretisation.
    """
    selected = {} if unit is None else {"unit": table[unit]}
    for index, column in enumerate(domain.columns):
        if column.name not in table.columns:
            what = f"The source has no column '{column.name}' (names are compared exactly)."
            raise ColumnNotFoundError(what, where=column.name)
        value, wanted = table[column.name], _wanted_type(column)
        if text is not None:
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


def impossible(domain: Domain, coded: Sequence[Coded]) -> Any:
    """Whether a record lies in a structural zero, from what ``coded_columns`` gave.

    Sets of several runs are those of listed categories, so their codes are listed too.
    """
    places = places_of(PackedCodes.of(domain))

    def in_set(name: str, runs: Runs) -> Any:
        place = places[domain.names.index(name)]
        digit = coded[place.index].digit
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
    """A column of text in the type that its kind needs.

    Raises:
        ColumnTypeError: No double equals a declared category.
    """
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
