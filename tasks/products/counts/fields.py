"""Declared columns as a data package describes them, and read back from there."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

import numpy as np

from mechanisms.domain.columns import Categorical, Column, Date, Integer, Numeric, Ordinal
from tasks.products.kind import Field

LISTED_CELLS = 10_000
"""Cells of a column up to which they are listed in full."""

_COLUMNS = MappingProxyType(
    {kind.kind: kind for kind in (Categorical, Ordinal, Integer, Numeric, Date)}
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


def range_field(column: Column) -> Field:
    """A column whose values are drawn within its cells."""
    assert column.ends is not None
    low, high = column.ends
    types: dict[type, str] = {int: "integer", float: "number"}
    kind = types.get(type(low), "date")
    constraints = {"minimum": low, "maximum": high, "required": not column.missing}
    declared = describe_column(column)
    return {"name": column.name, "type": kind, "declared": declared, "constraints": constraints}


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
    values = {
        name: str(v) if not isinstance(v, (str, int, float, bool, tuple)) else v
        for name, v in declared.items()
    }
    return {"kind": column.kind, **values}


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
    for name, value in fields.items():
        if isinstance(value, list):
            fields[name] = tuple(value)
        elif name in _DATES:
            fields[name] = datetime.date.fromisoformat(value)
    return _COLUMNS[kind](**fields)
