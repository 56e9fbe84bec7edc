"""What a data package says of columns and files, as values for pages that people read.

``codebook.md`` and the columns of ``report.html`` are made of this; it needs nothing but the
contents of ``datapackage.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from tasks.products.counts.fields import column_from

_TYPES = {
    "categorical": "categories",
    "ordinal": "categories in an order",
    "integer": "whole numbers",
    "numeric": "numbers",
    "date": "dates",
}
_FIELD_TYPES = {"string": "text", "boolean": "true or false", "integer": "whole number"}
_WIDEST_CODES = 1e15
_MOST_EDGES = 12


@dataclass(frozen=True, kw_only=True)
class ColumnFacts:
    """A declared column in words; text that there is none of is empty.

    Attributes:
        name: In the files.
        title: In a few words.
        description: In more.
        unit: Of the values.
        type: Of what kind the values are.
        range: The declared ends.
        cells: How its values were grouped before anything was counted.
        outside: Where values went that are not declared.
        missing: Where nulls went, and how they show.
        categories: Value and label of each; the label may be empty.
        middles: Stems of the files that show the middle of each value's cell.
        within: Stems of the files whose values were drawn within the cells.
    """

    name: str
    title: str
    description: str
    unit: str
    type: str
    range: str
    cells: str
    outside: str
    missing: str
    categories: tuple[tuple[str, str], ...]
    middles: tuple[str, ...]
    within: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FieldFacts:
    """A column of one file.

    Attributes:
        name: In the file.
        type: Of its values, in words.
        words: What it holds.
        declared: Whether it is one of the declared columns, and not a figure.
    """

    name: str
    type: str
    words: str
    declared: bool


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """A file, in every format that it is written in.

    Attributes:
        stem: Its name without suffix.
        product: That it is of; empty if several share it.
        title: What it is.
        description: What else to know.
        paths: In the bundle, one for each format.
        sizes: Bytes of each, None before it is written.
        fields: Of a table.
    """

    stem: str
    product: str
    title: str
    description: str
    paths: tuple[str, ...]
    sizes: tuple[int | None, ...]
    fields: tuple[FieldFacts, ...]


def column_facts(package: Mapping[str, Any]) -> list[ColumnFacts]:
    """The declared columns of all files of a data package, each once, in their order."""
    found = {each["name"]: each for each in package.get("columns", ()) if "declared" in each}
    shown: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for resource in package["resources"]:
        stem = PurePosixPath(resource["path"]).stem
        for field in resource.get("schema", {}).get("fields", ()):
            if "declared" in field:
                found.setdefault(field["name"], field)
                shown.setdefault(field["name"], ({}, {}))[_is_spread(field)][stem] = None
    return [
        _column(field, *(tuple(stems) for stems in shown.get(name, ({}, {}))))
        for name, field in found.items()
    ]


def file_facts(package: Mapping[str, Any]) -> list[FileFacts]:
    """The files of a data package, those that differ in their format only as one."""
    groups: dict[tuple[str, bool], list[Mapping[str, Any]]] = {}
    for resource in package["resources"]:
        path = PurePosixPath(resource["path"])
        key = str(path.with_suffix("")) if "schema" in resource else str(path)
        groups.setdefault((key, "schema" in resource), []).append(resource)
    return [
        FileFacts(
            stem=PurePosixPath(first["path"]).stem,
            product=first.get("product", ""),
            title=first.get("title", ""),
            description=first.get("description", ""),
            paths=tuple(each["path"] for each in same),
            sizes=tuple(each.get("bytes") for each in same),
            fields=tuple(map(_field, first.get("schema", {}).get("fields", ()))),
        )
        for same in groups.values()
        for first in same[:1]
    ]


def _is_spread(field: Mapping[str, Any]) -> bool:
    """Whether values were drawn within cells: then ends are stated, and no values listed."""
    return "minimum" in field.get("constraints", {})


def _field(field: Mapping[str, Any]) -> FieldFacts:
    declared = "declared" in field
    kind = str(field.get("type", "string"))
    words = field.get("title", "") if declared else field.get("description", "")
    return FieldFacts(
        name=field["name"], type=_FIELD_TYPES.get(kind, kind), words=words, declared=declared
    )


def _column(
    field: Mapping[str, Any], middles: tuple[str, ...], within: tuple[str, ...]
) -> ColumnFacts:
    declared = field["declared"]
    kind = declared["kind"]
    extent, cells, outside, lowest = _FORMS[kind](declared)
    missing = "They have a cell of their own, and show as null, which is an empty field in CSV."
    if not declared.get("missing"):
        missing = f"They have no cell; if the checks of `config.yaml` allow any, {lowest}."
    labels = {_text(each["value"]): each["label"] for each in field.get("categories", ())}
    whole = kind in ("categorical", "ordinal")
    grouped = not whole and not (kind == "integer" and declared["width"] == 1)
    return ColumnFacts(
        name=field["name"],
        title=field.get("title", ""),
        description=field.get("description", ""),
        unit=field.get("unit", ""),
        type=_TYPES[kind],
        range=extent,
        cells=cells,
        outside=outside,
        missing=missing,
        categories=tuple(
            (_text(value), labels.get(_text(value), "")) for value in declared.get("categories", ())
        ),
        middles=middles if grouped and kind != "date" else (),
        within=within,
    )


_Form = tuple[str, str, str, str]
"""Range, cells, what becomes of values outside, and what a null counts as without its own cell."""


def _categories(declared: Mapping[str, Any]) -> _Form:
    values = declared["categories"]
    first = f"`{_text(values[0])}`"
    other = "`other`" if declared["other"] else None
    outside = other or ("missing" if declared["missing"] else first)
    counted = f"A value that is not listed counted as {outside}."
    if not other:
        allowed = "if the checks of `config.yaml` allow any"
        counted = f"A value that is not listed, {allowed}, counted as {outside}."
    return (
        "",
        f"{len(values):,} categories" + (", and one for all others" if other else ""),
        counted,
        f"they counted as {other or first}",
    )


def _integers(declared: Mapping[str, Any]) -> _Form:
    lower, upper, width = declared["lower"], declared["upper"], declared["width"]
    n_cells = (upper - lower + 1) // width
    cells = f"{n_cells:,} values, each a cell"
    if width > 1:
        shown = [f"{low} to {low + width - 1}" for low in range(lower, upper + 1, width)[:2]]
        if n_cells > len(shown):
            shown.append(f"{'... ' if n_cells > 3 else ''}{upper - width + 1} to {upper}")
        cells = f"{n_cells:,} cells of {width:,} values: {', '.join(shown)}"
    outside = f"Fractions were rounded down; a value below {lower} counted as {lower}, one above "
    return (
        f"{lower} to {upper}",
        cells,
        f"{outside}{upper} as {upper}.",
        "they counted in the lowest cell",
    )


def _numbers(declared: Mapping[str, Any]) -> _Form:
    edges = declared["edges"]
    low, high, n_cells = _text(edges[0]), _text(edges[-1]), len(edges) - 1
    width = (edges[-1] - edges[0]) / n_cells
    even = edges[0] + np.arange(len(edges)) * width
    same = np.all(np.abs(even - edges) <= 1e-9 * max(abs(edges[0]), abs(edges[-1])))
    cells = f"{n_cells:,} cells, each {width:.6g} wide"
    if not same:
        listed = [*map(_text, edges[:_MOST_EDGES])]
        if len(edges) > _MOST_EDGES:
            listed = [*listed[: _MOST_EDGES - 2], "...", high]
        cells = f"{n_cells:,} cells between {', '.join(listed)}"
    cells += "; a value on an edge is in the cell above"
    outside = f"A value below {low} counted in the lowest cell, one above {high} in the highest."
    return f"{low} to {high}", cells, outside, "they counted in the lowest cell"


def _dates(declared: Mapping[str, Any]) -> _Form:
    first, last, by = declared["first"], declared["last"], declared["by"]
    outside = f"A date before {first} counted in the first cell, one after {last} in the last."
    cells = f"{column_from(declared).n_values:,} cells, one for each {by}"
    return f"{first} to {last}", cells, outside, "they counted in the first cell"


_FORMS = {
    "categorical": _categories,
    "ordinal": _categories,
    "integer": _integers,
    "numeric": _numbers,
    "date": _dates,
}


def _text(value: Any) -> str:
    """A value as it stands in the files, without needless digits."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        whole = value.is_integer() and abs(value) < _WIDEST_CODES
        return str(int(value)) if whole else f"{value:.10g}"
    return str(value)
