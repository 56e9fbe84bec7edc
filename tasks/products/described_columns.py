"""Declared columns as a data package describes them, and read back from there.

With what no file of them holds, structural zeros and absent records, and the number of records.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

import numpy as np

from statpress.mechanisms.domain.columns import (
    Categorical,
    Column,
    Date,
    Integer,
    Numeric,
    Ordinal,
    Slot,
)
from statpress.mechanisms.domain.domain import Domain, ZeroPattern
from statpress.tasks.products.publication import Field

LISTED_CELLS = 10_000
"""Cells of a column up to which they are listed in full."""

_COLUMNS = MappingProxyType(
    {kind.kind: kind for kind in (Categorical, Ordinal, Integer, Numeric, Date, Slot)}
)
_DATES = ("first", "last")


def column_field(column: Column) -> Field:
    """A column with its declaration and, if that is short enough, its codebook."""
    values = column.decode(np.arange(min(column.size, LISTED_CELLS) - column.missing))
    types = {"i": "integer", "f": "number", "b": "boolean"}
    kind = types.get(np.asarray(values.tolist()).dtype.kind, "string")
    field: Field = {"name": column.name, "type": kind, "declared": describe_column(column)}
    if column.size <= LISTED_CELLS:
        field["constraints"] = {"enum": values.tolist(), "required": not column.missing}
    return field


def range_field(column: Column, sloped: bool = False) -> Field:
    """A column whose values are drawn within its cells, evenly or by slopes."""
    assert column.ends is not None
    low, high = column.ends
    types: dict[type, str] = {int: "integer", float: "number"}
    kind = types.get(type(low), "date")
    constraints = {"minimum": low, "maximum": high, "required": not column.missing}
    declared = describe_column(column)
    field = {"name": column.name, "type": kind, "declared": declared, "constraints": constraints}
    return field | ({"within": "slope"} if sloped else {})


def plain_field(field: Mapping[str, Any], column: Column) -> Field:
    """A described column with its values as they are, and not as the format of a file has them."""
    values: Field = {k: v for k, v in column_field(column).items() if k in field}
    labelled = field.get("categories")
    if labelled is not None:
        own = column.decode(np.arange(len(labelled))).tolist()
        values["categories"] = [
            dict(each) | {"value": value} for each, value in zip(labelled, own, strict=True)
        ]
    return {**field, **values}


def describe_column(column: Column) -> dict[str, Any]:
    """A column's full public declaration, as JSON values."""
    declared = {f.name: getattr(column, f.name) for f in fields(column)}
    for name in ("special", "whole"):  # later additions, which earlier versions do not know
        if not declared.get(name, True):
            del declared[name]
    return {"kind": column.kind} | {name: _stated(value) for name, value in declared.items()}


def _stated(value: Any) -> Any:
    """A declared value, or several, as JSON has them."""
    if isinstance(value, tuple):
        return tuple(map(_stated, value))
    if isinstance(value, Column):
        return describe_column(value)
    return value if isinstance(value, (str, int, float, bool)) else str(value)


def column_from(description: Mapping[str, Any]) -> Column:
    """Rebuild a column from ``describe_column``.

    Raises:
        ValueError: It is of a kind that this version does not know.
        ConfigError: It is not a valid declaration.
    """
    fields = dict(description)
    kind = fields.pop("kind")
    if kind not in _COLUMNS:
        raise ValueError(f"there is no kind of column '{kind}' in this version")
    read = datetime.date.fromisoformat if kind == Date.kind else None
    for name, value in fields.items():
        if isinstance(value, Mapping):  # of a place in a household, the column of persons
            fields[name] = column_from(value)
        elif isinstance(value, (list, tuple)):
            fields[name] = tuple(map(read, value)) if read else tuple(value)
        elif read and name in _DATES:
            fields[name] = read(value)
    return _COLUMNS[kind](**fields)


def zeros_by_codes(domain: Domain) -> list[dict[str, list[list[int]]]]:
    """Of each structural zero the runs of codes by column, first and last code of each."""
    return [
        {name: [list(run) for run in runs] for name, runs in zero.sets} for zero in domain.zeros
    ]


def unlisted_in_words(domain: Domain) -> str:
    """Which records and combinations of values a domain's files do not hold; may be empty."""
    words = []
    if domain.zeros:
        words.append("Combinations of values that no record can have (structural zeros).")
    if domain.absent:
        words.append(
            "Absent records, which units do not have: every unit counts for the same number of "
            "records, and one with fewer is filled up with absent ones, which have no values. "
            "What is listed adds up to the public number of records only together with these."
        )
    return " ".join(words)


def not_in_it(domain: Domain) -> str:
    """What is not in a file, as its description in a data package says it; may be empty."""
    words = unlisted_in_words(domain)
    return f"Not in it: {words}" if words else ""


_LARGEST = 2**62


def zero_from(sets: Mapping[str, Any]) -> ZeroPattern:
    """A structural zero from its runs of codes by column."""
    runs = {
        name: tuple((whole(first), whole(last)) for first, last in runs)
        for name, runs in sets.items()
    }
    if any(last < first for pairs in runs.values() for first, last in pairs):
        raise ValueError("a structural zero has a run of codes that ends before it begins")
    return ZeroPattern(tuple(runs.items()))


def whole(number: object) -> int:
    """A count or a code as a file states it."""
    if type(number) is not int or not -_LARGEST < number < _LARGEST:
        raise ValueError("a count or a code is no integer, or too large")
    return number


def size_stated(stated: Mapping[str, Any]) -> int:
    """The number of records that a statement is of: the public one, or that of its noisy counts."""
    number: int = stated.get("estimated_records", stated["n_records"])
    return number
