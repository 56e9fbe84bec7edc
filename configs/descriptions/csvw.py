"""CSV on the Web: the metadata of a table or of a group of tables.

Source: Metadata Vocabulary for Tabular Data, W3C Recommendation 2015. No context or schema is
fetched from anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from statpress.configs.descriptions.described import (
    IDENTIFIER,
    DescribedColumn,
    Description,
    LeftOut,
    about_of,
    all_of,
    between,
    items,
    line,
    mapping,
    sorted_out,
    values_of,
    whole,
    words_of,
)
from statpress.mechanisms.errors import DescriptionError

_INTEGERS = frozenset(
    {
        "integer", "long", "int", "short", "byte", "nonNegativeInteger", "positiveInteger",
        "unsignedLong", "unsignedInt", "unsignedShort", "unsignedByte", "nonPositiveInteger",
        "negativeInteger", "gYear",
    }
)  # fmt: skip
_NUMBERS = frozenset({"number", "decimal", "double", "float"})
_DATES = frozenset({"date", "datetime", "dateTime", "dateTimeStamp"})
_TEXTS = frozenset(
    {"string", "normalizedString", "token", "anyAtomicType", "any", "Name", "NMTOKEN"}
)
_LEAST = {
    "nonNegativeInteger": 0, "positiveInteger": 1, "unsignedLong": 0, "unsignedInt": 0,
    "unsignedShort": 0, "unsignedByte": 0,
}  # fmt: skip
_OF_A_PARTY = {
    "name": ("schema:name", "foaf:name", "vcard:fn", "rdfs:label"),
    "email": ("schema:email", "vcard:hasEmail", "foaf:mbox"),
    "url": ("schema:url", "foaf:homepage", "vcard:hasURL", "@id"),
}
_LIST = re.compile(r"\^?\(?((?:[\w ,'-]+\|)+[\w ,'-]+)\)?\$?")
"""A regular expression that only lists words."""


def from_csvw(value: Mapping[str, Any], name: str, table: str | None) -> Description | None:
    """The table that the metadata describe; None if they are not of a table or a group of tables.

    Args:
        value: The JSON of the file.
        name: Of the file, for messages.
        table: The ``url`` of the table, where there are several.

    Raises:
        DescriptionError: It is not clear which table is meant, or a column cannot be read.
    """
    columns = mapping(value.get("tableSchema")).get("columns")
    if not isinstance(value.get("tables"), list) and not isinstance(columns, list):
        return None
    tables = [mapping(each) for each in items(value.get("tables"))] or [value]
    named = [each for each in tables if table in (None, each.get("url"))]
    if len(named) != 1:
        urls = ", ".join(str(line(each.get("url"))) for each in tables[:20])
        raise DescriptionError(
            f"The metadata describe {len(tables)} tables: {urls}; "
            f"{'none has this url' if table else 'one has to be chosen'}.",
            where=name,
            next_step="Give the url of one with --table.",
        )
    chosen = named[0]
    schema = mapping(chosen.get("tableSchema", value.get("tableSchema")))
    columns = schema.get("columns")
    if not isinstance(columns, list):
        raise DescriptionError("The table has no tableSchema with columns.", where=name)
    keys = {str(each) for each in items(schema.get("primaryKey"))}
    inherited = {**value, **chosen, **schema}
    reads = [
        partial(_column, mapping(each), keys, inherited, f"{name}: columns.{i}")
        for i, each in enumerate(columns)
        if mapping(each).get("virtual") is not True
    ]
    described, left_out = sorted_out(reads, name)
    codes = tuple(str(each) for each in items(inherited.get("null")) if each)
    url, dialect = chosen.get("url"), mapping(inherited.get("dialect"))
    return Description(
        form="CSVW metadata",
        columns=described,
        left_out=left_out,
        title=_words(chosen, "dc:title") or _words(value, "dc:title"),
        path=url if isinstance(url, str) and "://" not in url else None,
        missing_codes=codes,
        delimiter=line(dialect.get("delimiter")),
        encoding=line(dialect.get("encoding")),
        about=_about({**value, **chosen}),
    )


def _about(said: Mapping[str, Any]) -> dict[str, Any]:
    """Who publishes, and what it is about, in Dublin Core, DCAT or schema.org."""
    publisher, contact = _first(said, "publisher"), _first(said, "contactPoint")
    start, _, end = (_words(said, "dc:temporal") or "").partition("/")
    keywords = [*items(said.get("dcat:keyword")), *items(said.get("dc:subject"))]
    return about_of(
        description=_words(said, "dc:description") or _words(said, "schema:description"),
        publisher=_party(publisher),
        contact=_party(contact),
        licence={"url": _party(_first(said, "license")).get("url")},
        keywords=[_words({"": each}, "") for each in keywords],
        temporal={"start": start, "end": end},
        spatial=_party(_first(said, "spatial")),
    )


def _first(said: Mapping[str, Any], name: str) -> Any:
    """A property under the prefix of the vocabulary that has it."""
    found = (said.get(f"{prefix}:{name}") for prefix in ("dc", "dcterms", "dcat", "schema"))
    return next((next(iter(items(each)), None) for each in found if each), None)


def _party(value: Any) -> dict[str, str | None]:
    """Name and addresses of a node, or of one that is only its name or its address."""
    if not isinstance(value, dict):
        text = line(value)
        return {"url" if text and "://" in text else "name": text}
    node: dict[str, str | None] = {}
    for key, names in _OF_A_PARTY.items():
        node[key] = next(filter(None, (_address(value.get(name)) for name in names)), None)
    if node["email"]:
        node["email"] = node["email"].removeprefix("mailto:")
    return node


def _address(value: Any) -> str | None:
    """Text, or what a node is called by."""
    found = next(iter(items(value)), None)
    return line(found.get("@id") or found.get("@value") if isinstance(found, dict) else found)


def _column(
    column: Mapping[str, Any], keys: set[str], inherited: Mapping[str, Any], where: str
) -> DescribedColumn | LeftOut:
    """One column; datatype, required and null may stand further out."""
    titles = _words(column, "titles")
    called = line(column.get("name")) or titles or ""
    if called in keys:
        return LeftOut(called, IDENTIFIER)
    datatype = column.get("datatype", inherited.get("datatype", "string"))
    rules = mapping(datatype)
    base = str(rules.get("base", "string") if rules else datatype)
    common: dict[str, Any] = {
        "name": called,
        "missing": column.get("required", inherited.get("required")) is not True,
        **words_of(
            titles if titles != called else None,
            _words(column, "dc:description") or _words(column, "schema:description"),
            _words(column, "schema:unitText") or _words(column, "unit"),
        ),
    }
    written = rules.get("format")
    if base == "boolean":
        words = str(written).split("|") if isinstance(written, str) else []
        pair = tuple(reversed(words)) if len(words) == 2 else (False, True)
        return DescribedColumn(**common, type="categorical", categories=pair)
    if base in _TEXTS:
        listed = _LIST.fullmatch(written) if isinstance(written, str) else None
        texts = listed[1].split("|") if listed else []
        values = values_of(texts, text_only=True) or None
        return DescribedColumn(**common, type="categorical", categories=values)
    lower = rules.get("minimum", rules.get("minInclusive"))
    upper = rules.get("maximum", rules.get("maxInclusive"))
    above, below = rules.get("minExclusive"), rules.get("maxExclusive")
    if base in _INTEGERS:
        least, largest, over, under = all_of(
            partial(whole, lower, where, up=True),
            partial(whole, upper, where, up=False),
            partial(whole, above, where, up=False),
            partial(whole, below, where, up=True),
        )
        least = over + 1 if over is not None else least
        largest = under - 1 if under is not None else largest
        least = _LEAST.get(base) if least is None else least
        return DescribedColumn(**common, type="integer", lower=least, upper=largest)
    ends = above if lower is None else lower, below if upper is None else upper
    if base in _NUMBERS:
        return between(common, "numeric", ends, where)
    if base in _DATES:
        return between(common, "date", ends, where)
    return LeftOut(called, f"values of type {line(base, 40)} have no cells")


def _words(value: Mapping[str, Any], key: str) -> str | None:
    """Natural-language text: text, a list of it, or by language, English first."""
    found = value.get(key)
    if isinstance(found, dict) and "@value" in found:
        found = found["@value"]
    elif isinstance(found, dict):
        found = found.get("en", next(iter(found.values()), None))
    return line(next(iter(items(found)), None))
