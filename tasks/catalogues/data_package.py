"""``datapackage.json``, and the codebook, citation and sections of a README that are read from it.

The package says what a bundle is, who publishes it, and what its files and their columns are.
Source: Frictionless Data Package v1 (https://specs.frictionlessdata.io/data-package/), with the
``categories`` of Table Schema v2. It is made from the config's words and the plan, and of the
written files their sizes and hashes; so it says nothing of the source. Everything else here needs
nothing but the contents of ``datapackage.json``.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from statpress.mechanisms.domain.column import Ranges
from statpress.mechanisms.domain.columns import Column, Date
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.planning.plan import PlannedProduct
from statpress.tasks.bundle.file_formats import format_named
from statpress.tasks.pages.rendering import markdown
from statpress.tasks.products.product_kind import kind_of
from statpress.tasks.products.publication import (
    Field,
    codebook,
    column_field,
    column_from,
    fields_with_words,
)

if TYPE_CHECKING:
    from statpress.configs.about import AboutConfig
    from statpress.configs.release_config import ReleaseConfig


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
        within: Stems of the files whose values were drawn evenly within the cells.
        sloped: Stems of those whose values were drawn there by the slope of neighbouring cells.
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
    sloped: tuple[str, ...]


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
    shown: dict[str, tuple[dict[str, None], ...]] = {}
    for resource in package["resources"]:
        stem = PurePosixPath(resource["path"]).stem
        for field in resource.get("schema", {}).get("fields", ()):
            if "declared" in field:
                found.setdefault(field["name"], field)
                shown.setdefault(field["name"], ({}, {}, {}))[_shown_as(field)][stem] = None
    return [
        _column_of_field(field, *map(tuple, shown.get(name, ({}, {}, {}))))
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


def _shown_as(field: Mapping[str, Any]) -> int:
    """0 for declared values; 1 where they were drawn evenly within cells, 2 by slopes.

    Where they were drawn, ends are stated and no values listed.
    """
    return "minimum" in field.get("constraints", {}) and (2 if "within" in field else 1)


def _field(field: Mapping[str, Any]) -> FieldFacts:
    declared = "declared" in field
    kind = str(field.get("type", "string"))
    words = field.get("title", "") if declared else field.get("description", "")
    return FieldFacts(
        name=field["name"], type=_FIELD_TYPES.get(kind, kind), words=words, declared=declared
    )


def _column_of_field(
    field: Mapping[str, Any],
    middles: tuple[str, ...],
    within: tuple[str, ...],
    sloped: tuple[str, ...],
) -> ColumnFacts:
    declared = field["declared"]
    kind = declared["kind"]
    extent, cells, outside, lowest = _FORMS[kind](declared)
    missing = "They have a cell of their own, and show as null, which is an empty field in CSV."
    if not declared.get("missing"):
        missing = f"They have no cell; if the checks of `config.yaml` let any pass, {lowest}."
    labels = {
        _text(each["value"]): each["label"]
        for each in (*field.get("categories", ()), *field.get("special", ()))
    }
    special = [_text(value) for value in declared.get("special", ())]
    if special:
        each = "the special value" if len(special) == 1 else "each of the special values"
        cells += f", and one for {each} {', '.join(special)}"
        built = column_from(declared)
        codes = isinstance(built, Ranges) and built.outlying
        outside += " Special values stayed as they are"
        outside += "; means and quantiles leave out those outside the range." if codes else "."
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
            (text, labels.get(text, ""))
            for text in [*map(_text, declared.get("categories", ())), *(special if labels else ())]
        ),
        middles=middles if grouped and kind != "date" else (),
        within=within,
        sloped=sloped,
    )


_Form = tuple[str, str, str, str]
"""Range, cells, what becomes of values outside, and what a null counts as without its own cell."""


def _categories_of_field(declared: Mapping[str, Any]) -> _Form:
    values = declared["categories"]
    first = f"`{_text(values[0])}`"
    other = "`other`" if declared["other"] else None
    outside = other or ("missing" if declared["missing"] else first)
    counted = f"A value that is not listed counted as {outside}."
    if not other:
        allowed = "if the checks of `config.yaml` let any pass"
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
    if declared.get("whole"):
        cells += ", and a cell counts as the mean of the whole numbers in it"
    outside = f"A value below {low} counted in the lowest cell, one above {high} in the highest."
    return f"{low} to {high}", cells, outside, "they counted in the lowest cell"


def _dates(declared: Mapping[str, Any]) -> _Form:
    first, last, by = declared["first"], declared["last"], declared["by"]
    outside = f"A date before {first} counted in the first cell, one after {last} in the last."
    column = column_from(declared)
    assert isinstance(column, Date)
    cells = f"{column.n_bins:,} cells, one for each {by}"
    return f"{first} to {last}", cells, outside, "they counted in the first cell"


_FORMS = {
    "categorical": _categories_of_field,
    "ordinal": _categories_of_field,
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


CODEBOOK_NAME = "codebook.md"
_MOST_LISTED = 1000


def write_codebook(folder: Path, package: Mapping[str, Any]) -> Path:
    """Write the codebook of a bundle."""
    path = folder / CODEBOOK_NAME
    path.write_text(codebook_text(package), encoding="utf-8")
    return path


def codebook_text(package: Mapping[str, Any]) -> str:
    """The codebook as Markdown; the same package gives the same text."""
    return markdown(
        "codebook.md.jinja",
        title=package["title"],
        columns=column_facts(package),
        files=file_facts(package),
        most=_MOST_LISTED,
    )


NAME = "datapackage.json"
_SPDX = "https://spdx.org/licenses/{}.html"


def data_package(
    config: ReleaseConfig,
    domain: Domain,
    products: Sequence[PlannedProduct[Any]],
    *,
    run_id: str,
    created: str,
) -> dict[str, Any]:
    """The data package of a release, without sizes and hashes."""
    described = {product.name: words_of(config.products[product.name]) for product in products}
    owners: dict[str, list[str]] = {}
    files: dict[str, dict[str, Any]] = {}
    for product in products:
        for resource in kind_of(product).publication(product).resources(config.publish):
            owners.setdefault(resource["path"], []).append(product.name)
            files[resource["path"]] = resource
    resources = [
        with_product(resource, owners[path][0], described[owners[path][0]])
        if len(owners[path]) == 1
        else resource  # a file that several products share is of none of them
        for path, resource in files.items()
    ]
    declared = Domain(domain.declared)
    words = codebook(config.columns, declared)
    used = {column.name for product in products for column in product.domain.declared}
    columns = [_column(c, words.get(c.name, {})) for c in declared.columns if c.name in used]
    own = [{"name": name} | said for name, said in described.items() if said]
    return {
        "profile": "data-package",
        "name": slug(config.dataset),
        "id": config.about.identifier or uuid.UUID(run_id).urn,
        "title": config.title,
        **facts_of(config.about),
        "created": created,
        "resources": in_their_formats(with_words(resources, words)),
        **({"products": own} if own else {}),
        "columns": columns,
    }


def with_words(
    resources: Iterable[Mapping[str, Any]], words: Mapping[str, Field]
) -> list[dict[str, Any]]:
    """The resources of a data package, with the words of their declared columns."""
    return [
        {
            **resource,
            "schema": resource["schema"]
            | {"fields": fields_with_words(resource["schema"]["fields"], words)},
        }
        if "schema" in resource
        else dict(resource)
        for resource in resources
    ]


def facts_of(about: AboutConfig) -> dict[str, Any]:
    """What the section ``about`` says, under the keys of a data package; without blank ones."""
    publisher, contact, licence = about.publisher, about.contact, about.licence
    contributors = []
    if publisher is not None:
        contributors.append({"title": publisher.name, "path": publisher.url, "role": "publisher"})
    if contact is not None:
        title = contact.name or (publisher and publisher.name) or contact.email or contact.url
        contributors.append(
            {"title": title, "path": contact.url, "email": contact.email, "role": "contact"}
        )
    licences: list[Mapping[str, str | None]] = []
    if isinstance(licence, str):
        licences.append({"name": licence, "title": licence, "path": _SPDX.format(licence)})
    elif licence is not None:
        licences.append({"title": licence.name, "path": licence.url})
    temporal, spatial = about.temporal, about.spatial
    found = {
        "description": about.description,
        "homepage": about.landing_page,
        "keywords": list(about.keywords),
        "licenses": licences,
        "contributors": [_given(each) for each in contributors],
        "temporal": temporal and _given({"start": temporal.start, "end": temporal.end}),
        "spatial": spatial and _given({"title": spatial.name, "path": spatial.url}),
    }
    return _given(found)


def words_of(product: Any) -> dict[str, str]:
    """What the config says of a product in words: ``title`` and ``description``."""
    return _given({"title": product.title, "description": product.description})


def with_product(
    resource: Mapping[str, Any], product: str, words: Mapping[str, str]
) -> dict[str, Any]:
    """A resource with the product that it is of, and that product's words."""
    what, said = resource.get("title"), resource.get("description")
    title = words.get("title", product)
    about = "\n\n".join(each for each in (words.get("description"), said) if each)
    first = {key: resource[key] for key in ("name", "path")}
    return first | _given(
        {
            "title": f"{title}: {what}" if what else title,
            "description": about,
            "product": product,
            **{k: v for k, v in resource.items() if k not in ("title", "description", *first)},
        }
    )


def in_their_formats(resources: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The resources with declared text as their formats write it."""
    return [
        {
            **each,
            "schema": each["schema"]
            | {"fields": [_in_format(f, each["format"]) for f in _fields(each)]},
        }
        if "schema" in each
        else dict(each)
        for each in resources
    ]


def with_digests(folder: Path, package: Mapping[str, Any]) -> dict[str, Any]:
    """The package with the size and hash of every file that is written."""
    return {
        **package,
        "resources": [_measured(folder / each["path"], each) for each in package["resources"]],
    }


def write_package(folder: Path, package: Mapping[str, Any]) -> Path:
    """Write ``datapackage.json`` into the folder of a bundle, whose data files are there."""
    value = with_digests(folder, package)
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    path = folder / NAME
    path.write_text(text + "\n", encoding="utf-8")
    return path


def slug(text: str) -> str:
    """Text as the name of a data package: small letters, digits, ``-``, ``.`` and ``_``.

    >>> slug("Löhne 2024")
    'l-hne-2024'
    """
    return re.sub(r"[^a-z0-9._-]", "-", text.lower())


def _column(column: Column, words: Field) -> Field:
    """A column that products are made of, which their files need not have."""
    field = column_field(column)
    first = {"name": field["name"], "type": field["type"]}
    return first | words | {"declared": field["declared"]}


def _measured(path: Path, resource: Mapping[str, Any]) -> dict[str, Any]:
    if not path.is_file():
        return dict(resource)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    size = {"bytes": path.stat().st_size, "hash": f"sha256:{digest}"}
    rest = {k: v for k, v in resource.items() if k not in (*size, "schema")}
    return rest | size | {k: v for k, v in resource.items() if k == "schema"}


def _fields(resource: Mapping[str, Any]) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = resource["schema"]["fields"]
    return fields


def _in_format(field: dict[str, Any], form: str) -> dict[str, Any]:
    """A column with its declared text as a format writes it."""
    if field["type"] != "string" or "declared" not in field:
        return field
    changed = dict(field)
    if "enum" in field.get("constraints", {}):
        listed = [format_named(form).as_written(value) for value in field["constraints"]["enum"]]
        changed["constraints"] = field["constraints"] | {"enum": listed}
        if form == "csv" and "" in listed:  # which readers of a CSV take for a null
            changed["constraints"]["required"] = False
    if "categories" in field:
        changed["categories"] = [
            each | {"value": format_named(form).as_written(each["value"])}
            for each in field["categories"]
        ]
    return changed


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """What has a value."""
    return {key: value for key, value in values.items() if value not in (None, "", [], {})}
