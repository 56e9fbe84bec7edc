"""A release in CKAN's words: what its dataset says, from the public files of a bundle."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from tasks.targets.store import Bundle, media_type

SEAL, NEWEST = "statpress_seal", "statpress_latest"
"""Extras of a dataset: the seal of a release, or what a pointer to the newest one says."""

_PACKAGE = "datapackage.json"
_NOTES = (
    "A release with differential privacy: privacy.json states the guarantee, report.html shows the "
    "release on one page, manifest.json has the size and SHA-256 of every file."
)
_FORMATS = {".md": "Markdown", ".parquet": "Parquet", ".py": "Python", ".yaml": "YAML"}
_LONGEST = 100


def dataset_name(bundle: str) -> str:
    """The name of a release's dataset: that of the bundle in CKAN's letters.

    >>> dataset_name("Census.2000-20260101T000000Z-abcd")
    'census-2000-20260101t000000z-abcd'
    """
    return re.sub(r"[^a-z0-9_-]", "-", bundle.lower())[:_LONGEST].ljust(2, "-")


def dataset_fields(bundle: Bundle, licences: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The fields of a dataset that follow from a bundle's metadata.

    Args:
        bundle: The bundle.
        licences: Those that the portal knows.
    """
    path = bundle.folder / _PACKAGE
    said = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    people = {each.get("role"): each for each in reversed(said.get("contributors") or ())}
    publisher, contact = people.get("publisher", {}), people.get("contact", {})
    period, area = said.get("temporal") or {}, said.get("spatial") or {}
    created = bundle.manifest["created"]
    extras = {
        "issued": created,
        "identifier": said.get("id"),
        "publisher_name": publisher.get("title"),
        "contact_name": contact.get("title"),
        "contact_email": contact.get("email"),
        "temporal_start": period.get("start"),
        "temporal_end": period.get("end"),
        "spatial_uri": area.get("path"),
    }
    fields = {
        "title": said.get("title") or bundle.manifest["title"],
        "notes": "\n\n".join(filter(None, (said.get("description"), _NOTES))),
        "url": said.get("homepage"),
        "version": created,
        "author": publisher.get("title"),
        "maintainer": contact.get("title"),
        "maintainer_email": contact.get("email"),
        "license_id": _licence(said.get("licenses") or (), licences),
        "tags": [{"name": name} for name in _tags(said.get("keywords") or ())],
    }
    stated = [{"key": key, "value": str(value)} for key, value in extras.items() if value]
    return {key: value for key, value in fields.items() if value} | {"extras": stated}


def resource_fields(bundle: Bundle, path: str) -> dict[str, str]:
    """The fields of a file's resource, which is named by its path in the bundle."""
    size, digest = bundle.files[path]
    suffix = PurePosixPath(path).suffix
    return {
        "name": path,
        "format": _FORMATS.get(suffix, suffix.removeprefix(".").upper()),
        "mimetype": media_type(path).partition(";")[0],
        "hash": f"sha256:{digest}",
        "size": str(size),
    }


def extra(dataset: Mapping[str, Any], key: str) -> str | None:
    """What a dataset says under an extra key."""
    found = (each["value"] for each in dataset.get("extras") or () if each["key"] == key)
    return next(found, None)


def _tags(keywords: Iterable[str]) -> list[str]:
    """Keywords as CKAN takes them: 2 to 100 letters, digits, spaces, hyphens, points."""
    found = (re.sub(r"\s+", " ", re.sub(r"[^\w \-.]", " ", each)).strip() for each in keywords)
    return list(dict.fromkeys(each[:_LONGEST] for each in found if len(each) > 1))


def _licence(stated: Iterable[Mapping[str, Any]], known: Iterable[Mapping[str, Any]]) -> str | None:
    """The portal's own name of the licence, else the one that the bundle states."""
    for licence in stated:
        name, url = str(licence.get("name") or ""), _plain(licence.get("path"))
        for each in known:
            names = {str(each.get("id")), *map(str, each.get("legacy_ids") or ())}
            same = name.lower() in {one.lower() for one in names} or _spdx(each) == name.lower()
            if same or (url and _plain(each.get("url")) == url):
                return str(each["id"])
        return name or None
    return None


def _spdx(licence: Mapping[str, Any]) -> str:
    """The SPDX identifier that a Creative Commons address stands for, in lower case."""
    found = re.search(
        r"creativecommons\.org/licenses/([a-z-]+)/([0-9.]+)", _plain(licence.get("url"))
    )
    return f"cc-{found[1]}-{found[2]}" if found else ""


def _plain(url: Any) -> str:
    return re.sub(r"^https?://(www\.)?", "", str(url or "")).rstrip("/")
