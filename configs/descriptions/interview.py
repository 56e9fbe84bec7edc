"""A description by asking, column by column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from configs.descriptions.column_list import BETWEEN, KEYS, TYPES, column_of
from configs.descriptions.described import ASKED, DescribedColumn, Description, line, sorted_out
from configs.descriptions.publication import about_of
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
_PUBLICATION = (
    ("Publisher of the release, such as an office", "publisher", "name"),
    ("E-mail address for questions about it", "contact", "email"),
    ("Licence, by its identifier in the SPDX list such as CC-BY-4.0", "licence", "id"),
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
    found, left_out = sorted_out([partial(replace, column) for column in columns], "answers")
    return Description(form=ASKED, columns=found, left_out=left_out)


def publication(ask: Ask, tell: Tell) -> dict[str, Any]:
    """Ask who publishes and on what terms: the section ``about`` of a config.

    Any answer may be blank; one that a config would refuse is asked for again.
    """
    found: dict[str, Any] = {}
    for question, key, part in _PUBLICATION:
        while answer := line(ask(question)):
            about = about_of(**{key: {part: answer}})
            if about:
                found |= about
                break
            tell("  That is not one.")
    return found


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
            sorted_out([partial(replace, column)], cells["name"])
            return column
        except DescriptionError as error:
            problem = error.what
        if key != "type" and "no column that a release" in problem:
            return column
        tell(f"  {problem}")
