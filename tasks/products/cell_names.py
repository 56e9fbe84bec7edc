"""The cells of a declared column as a person reads them, from a data package's field."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.columns import Column, Date, Integer, Numeric
from tasks.pages.numbers import plain

MISSING, OTHER = "missing", "other"


def cell_names(column: Column, field: Mapping[str, Any]) -> list[str]:
    """By code what the cell holds: a label, a value, a range, ``other`` or ``missing``.

    Args:
        column: As declared.
        field: The same in the data package, with the labels of its ``categories``.

    >>> from mechanisms.domain.columns import Numeric
    >>> cell_names(Numeric(name="pay", edges=(0.0, 20.0, 25.5), missing=True), {})
    ['0 to 20', '20 to 25.5', 'missing']
    """
    codes = np.arange(column.n_values)
    if isinstance(column, Numeric):
        ends = [plain(edge) for edge in column.edges]
        names = [f"{low} to {high}" for low, high in itertools.pairwise(ends)]
    elif isinstance(column, Integer) and column.width > 1:
        lows = (column.lower + codes * column.width).tolist()
        names = [f"{low} to {low + column.width - 1}" for low in lows]
    else:
        names = [_text(value) for value in column.decode(codes).tolist()]
    if len(labels := field.get("categories", ())) == len(names):
        names = [str(each["label"]) for each in labels]  # a format may write values otherwise
    names += [OTHER] * (column.other_code is not None)
    return names + [MISSING] * column.missing


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def places(column: Column) -> NDArray[np.float64] | None:
    """Where the cells of values begin on an axis, and where the last ends: float64[n_values + 1].

    None for a column whose values are not numbers.
    """
    steps = np.arange(column.n_values + 1)
    if isinstance(column, Numeric):
        return column.edge_array
    if isinstance(column, Integer):
        return np.asarray(column.lower + steps * float(column.width))
    if isinstance(column, Date) and column.by != "day":
        first = column.period_of(column.first)
        return np.asarray((first + steps) / (1 if column.by == "year" else 12))
    return None


def heading(field: Mapping[str, Any]) -> str:
    """A column's name, with its label where it has one."""
    title = field.get("title") or field.get("label")
    return f"{field['name']}: {title}" if title else str(field["name"])


def axis(field: Mapping[str, Any]) -> str:
    """The same for an axis: the unit behind it."""
    unit = field.get("unit")
    return f"{field['name']} ({unit})" if unit else str(field["name"])
