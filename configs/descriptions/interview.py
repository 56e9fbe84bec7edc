"""A description by asking, column by column."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from configs.descriptions.column_list import BETWEEN, KEYS, TYPES, column_of
from configs.descriptions.described import DescribedColumn, Description, line, sorted_out
from mechanisms.errors import DescriptionError

Ask = Callable[[str], str]
"""Asks a question and gives the answer, blank for none."""
Tell = Callable[[str], None]

_CATEGORIES = (
    ("categories", f"every value that may occur, separated by {BETWEEN}"),
    ("value_labels", f"what each of them means, separated by {BETWEEN}"),
)
_QUESTIONS = MappingProxyType(
    {
        "categorical": _CATEGORIES,
        "ordinal": _CATEGORIES,
        "integer": (
            ("lower", "least possible value"),
            ("upper", "largest possible value"),
            ("width", "values in a cell"),
        ),
        "numeric": (
            ("lower", "least possible value"),
            ("upper", "largest possible value"),
            ("bins", "number of cells"),
        ),
        "date": (
            ("first", "first possible date"),
            ("last", "last possible date"),
            ("by", "cells by year, month or day"),
        ),
    }
)
_LAST = (("missing", "may it be missing (yes or no)"), ("label", "label"), ("unit", "unit"))


def interview(ask: Ask, tell: Tell) -> Description:
    """Ask for columns until a name is left blank.

    An answer that cannot be read is told and asked for again; any other answer but name and
    type may be blank.

    Raises:
        DescriptionError: No column was named.
    """
    columns: list[DescribedColumn] = []
    while True:
        name = line(ask(f"Column {len(columns) + 1}, its name in the source (nothing: no more)"))
        if not name:
            break
        if any(each.name == name for each in columns):
            tell("There is a column of this name already.")
            continue
        columns.append(_column(name, ask, tell))
    found, left_out = sorted_out(columns, "answers")
    return Description(form="answers", columns=found, left_out=left_out)


def _column(name: str, ask: Ask, tell: Tell) -> DescribedColumn:
    cells = dict.fromkeys(KEYS, "") | {"name": name}
    column = _asked(cells, "type", f"type ({', '.join(TYPES)})", ask, tell)
    for key, question in (*_QUESTIONS[column.type], *_LAST):
        if key != "value_labels" or cells["categories"]:
            column = _asked(cells, key, question, ask, tell)
    return column


def _asked(cells: dict[str, str], key: str, question: str, ask: Ask, tell: Tell) -> DescribedColumn:
    """Ask until the answer can be read; the column as far as it is known."""
    while True:
        cells[key] = ask(f"  {question}").strip()
        try:
            column = column_of(cells, cells["name"])
            sorted_out([column], cells["name"])
            return column
        except DescriptionError as error:
            problem = error.what
        if key != "type" and "no column that a release" in problem:
            return column
        tell(f"  {problem}")
