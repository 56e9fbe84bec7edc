"""Frictionless Data: ``datapackage.json`` and Table Schema, in their versions 1 and 2.

Source: Data Package v2.0 (https://datapackage.org/standard/table-schema/). Nothing is fetched
from anywhere: a schema or a resource that is only a reference to the network is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

from statpress.configs.descriptions.described import (
    IDENTIFIER,
    Category,
    DescribedColumn,
    Description,
    LeftOut,
    about_of,
    all_of,
    between,
    items,
    line,
    mapping,
    number,
    parse_json,
    sorted_out,
    whole,
    words_of,
)
from statpress.mechanisms.errors import DescriptionError

ReadOther = Callable[[str], str]
"""Text of a file that the description names, by its path from there."""

_DATES = ("date", "datetime")
_TRUE, _FALSE = ["true", "True", "TRUE", "1"], ["false", "False", "FALSE", "0"]


def from_frictionless(
    value: Mapping[str, Any], name: str, table: str | None, read_other: ReadOther
) -> Description | None:
    """The table that a data package, a resource or a Table Schema describes; None of other JSON.

    Args:
        value: The JSON of the file.
        name: Of the file, for messages.
        table: Name of the resource, where there are several.
        read_other: For schemas that are files of their own.

    Raises:
        DescriptionError: It is not clear which table is meant, or a field cannot be read.
    """
    fields = mapping(value.get("schema", value)).get("fields")
    if not isinstance(value.get("resources"), list) and not isinstance(fields, list):
        return None
    resource: Mapping[str, Any] = value if "schema" in value else {"schema": value}
    if "resources" in value:
        resource = _chosen(list(map(mapping, value["resources"])), name, table)
    schema = resource.get("schema")
    if isinstance(schema, str):
        if "://" in schema:
            raise DescriptionError(
                "The schema lies on the network, where nothing is fetched from.",
                where=f"{name}: schema",
                next_step="Download it next to the description and give its path there.",
            )
        schema = parse_json(read_other(schema), schema)
    fields = mapping(schema).get("fields")
    if not isinstance(fields, list):
        raise DescriptionError("The resource has no schema with fields.", where=name)
    keys = {str(each) for each in items(mapping(schema).get("primaryKey"))}
    codes = tuple(
        str(mapping(each).get("value", each))
        for each in items(mapping(schema).get("missingValues"))
    )
    reads = [partial(_column, mapping(each), keys, name, i) for i, each in enumerate(fields)]
    columns, left_out = sorted_out(reads, name)
    path = next(iter(items(resource.get("path"))), None)
    return Description(
        form="a Frictionless data package" if "resources" in value else "a Frictionless schema",
        columns=columns,
        left_out=left_out,
        title=line(resource.get("title")) or line(value.get("title")),
        path=path if isinstance(path, str) and "://" not in path else None,
        missing_codes=tuple(code for code in codes if code != ""),
        delimiter=line(mapping(resource.get("dialect")).get("delimiter")),
        encoding=line(resource.get("encoding")),
        about=_about({**value, **{k: v for k, v in resource.items() if v}}),
    )


def _about(said: Mapping[str, Any]) -> dict[str, Any]:
    """Who publishes, and what it is about; of a resource, else of its package."""
    named = [mapping(each) for each in items(said.get("contributors"))]
    parties = {
        role: next((each for each in named if role in _roles(each)), {})
        for role in ("publisher", "contact")
    }
    publisher, contact = parties["publisher"], parties["contact"]
    licence = mapping(next(iter(items(said.get("licenses"))), None))
    temporal, spatial = mapping(said.get("temporal")), mapping(said.get("spatial"))
    return about_of(
        description=said.get("description"),
        publisher={"name": publisher.get("title"), "url": publisher.get("path")},
        contact={
            "name": contact.get("title"), "email": contact.get("email"), "url": contact.get("path")
        },
        licence={
            "id": licence.get("name"), "name": licence.get("title"), "url": licence.get("path")
        },
        keywords=items(said.get("keywords")),
        temporal={key: temporal.get(key) for key in ("start", "end")},
        spatial={"name": spatial.get("title"), "url": spatial.get("path")},
    )  # fmt: skip


def _roles(contributor: Mapping[str, Any]) -> list[str]:
    """``role`` of version 1, or ``roles`` of version 2."""
    named = [contributor.get("role"), *items(contributor.get("roles"))]
    return [str(each).lower() for each in named if each]


def _chosen(resources: list[Mapping[str, Any]], name: str, table: str | None) -> Mapping[str, Any]:
    """The resource that is meant."""
    tabular = [each for each in resources if each.get("schema")]
    named = [each for each in tabular if table in (None, each.get("name"))]
    if len(named) == 1:
        return named[0]
    names = ", ".join(str(line(each.get("name"))) for each in tabular[:20])
    raise DescriptionError(
        f"The package describes {len(tabular)} tables{f': {names}' if tabular else ''}; "
        f"{'none of this name' if table else 'one has to be chosen'}.",
        where=name,
        next_step="Give the name of one with --table." if tabular else "",
    )


def _column(
    field: Mapping[str, Any], keys: set[str], name: str, i: int
) -> DescribedColumn | LeftOut:
    """One field as a column."""
    called, where = line(field.get("name")) or "", f"{name}: fields.{i}"
    kind, rules = field.get("type", "string"), mapping(field.get("constraints"))
    if called in keys or rules.get("unique") is True:
        return LeftOut(called, IDENTIFIER)
    common: dict[str, Any] = {
        "name": called,
        "missing": rules.get("required") is not True,
        **words_of(field.get("title"), field.get("description"), field.get("unit")),
    }
    listed = items(field.get("categories")) or items(rules.get("enum"))
    if listed or kind in ("string", "boolean"):
        ordered = field.get("categoriesOrdered") is True
        common |= {"type": "ordinal" if ordered else "categorical"}
        if kind == "boolean":
            return DescribedColumn(**common, categories=_booleans(field))
        values = [mapping(each).get("value", each) for each in listed]
        labels = [line(mapping(each).get("label")) for each in listed]
        return DescribedColumn(
            **common,
            categories=tuple(_value(each, kind, where) for each in values) or None,
            value_labels=tuple(map(str, labels)) if listed and all(labels) else None,
        )
    lower, upper = rules.get("minimum"), rules.get("maximum")
    above, below = rules.get("exclusiveMinimum"), rules.get("exclusiveMaximum")
    if kind in ("integer", "year"):
        least, largest, over, under = all_of(
            partial(whole, lower, where, up=True),
            partial(whole, upper, where, up=False),
            partial(whole, above, where, up=False),
            partial(whole, below, where, up=True),
        )
        least = over + 1 if over is not None else least
        largest = under - 1 if under is not None else largest
        return DescribedColumn(**common, type="integer", lower=least, upper=largest)
    ends = above if lower is None else lower, below if upper is None else upper
    if kind == "number":
        return between(common, "numeric", ends, where)
    if kind in _DATES:
        return between(common, "date", ends, where)
    return LeftOut(called, f"values of type {line(str(kind), 40)} have no cells")


def _booleans(field: Mapping[str, Any]) -> tuple[Category, ...]:
    """False and true, or the one word that each is written as."""
    false, true = field.get("falseValues", _FALSE), field.get("trueValues", _TRUE)
    if false == _FALSE and true == _TRUE:
        return (False, True)
    words = [str(each) for each in (*items(false), *items(true))]
    return tuple(words)


def _value(value: object, kind: object, where: str) -> Category:
    """A listed value, of the field's type."""
    if kind in ("integer", "year", "number"):
        found = number(value, where)
        if found is not None:
            return int(found) if found == found.to_integral_value() else found
    if kind == "string" and isinstance(value, str):
        return value
    if isinstance(value, (str, int, bool, Decimal)) and kind not in ("string",):
        return value
    raise DescriptionError("A listed value is not of the field's type.", where=where)
