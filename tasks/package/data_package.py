"""``datapackage.json``: what a bundle is, who publishes it, and its files with their columns.

Source: Frictionless Data Package v1 (https://specs.frictionlessdata.io/data-package/), with the
``categories`` of Table Schema v2. Made from the config's words and the plan, and of the written
files their sizes and hashes; so it says nothing of the source.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechanisms.domain.columns import Column
from mechanisms.domain.domain import Domain
from mechanisms.planning.plan import PlannedProduct
from tasks.formats.registry import as_written
from tasks.products.codebook import codebook, with_words
from tasks.products.counts.fields import column_field
from tasks.products.files import resources_of
from tasks.products.kind import Field

if TYPE_CHECKING:
    from configs.models.about import AboutConfig
    from configs.models.release import ReleaseConfig

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
    """The data package of a release, without sizes and hashes.

    Args:
        config: Whose words it has.
        domain: Its declared columns.
        products: As planned.
        run_id: Of the run, which gives the identifier unless the config has one.
        created: When, as ISO 8601 text.
    """
    described = {product.name: words_of(config.products[product.name]) for product in products}
    owners: dict[str, list[str]] = {}
    files: dict[str, dict[str, Any]] = {}
    for product in products:
        for resource in resources_of(product, config.publish):
            owners.setdefault(resource["path"], []).append(product.name)
            files[resource["path"]] = resource
    resources = [
        with_product(resource, owners[path][0], described[owners[path][0]])
        if len(owners[path]) == 1
        else resource  # a file that several products share is of none of them
        for path, resource in files.items()
    ]
    words = codebook(config.domain, domain)
    used = {name for product in products for name in product.request.columns}
    columns = [_column(domain[name], words.get(name, {})) for name in domain.names if name in used]
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
        {**each, "schema": {"fields": [_in_format(f, each["format"]) for f in _fields(each)]}}
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
        listed = [as_written(form, value) for value in field["constraints"]["enum"]]
        changed["constraints"] = field["constraints"] | {"enum": listed}
        if form == "csv" and "" in listed:  # which readers of a CSV take for a null
            changed["constraints"]["required"] = False
    if "categories" in field:
        changed["categories"] = [
            each | {"value": as_written(form, each["value"])} for each in field["categories"]
        ]
    return changed


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """What has a value."""
    return {key: value for key, value in values.items() if value not in (None, "", [], {})}
