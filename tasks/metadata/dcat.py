"""DCAT-AP 3 for data portals, as JSON-LD: one dataset with a distribution for each file.

Source: DCAT-AP 3.0, https://semiceu.github.io/DCAT-AP/releases/3.0.0/ (SEMIC, 2024), which profiles
W3C's DCAT 3, https://www.w3.org/TR/vocab-dcat-3/. Paths of files are relative to the document, so
they hold wherever the bundle is put; where it has a landing page, that is how one gets access.
"""

from __future__ import annotations

import re
from typing import Any

from tasks.metadata.publication import File, Publication

NAME = "dcat.jsonld"
_CONTEXT: dict[str, Any] = {
    "dcat": "http://www.w3.org/ns/dcat#",
    "dct": "http://purl.org/dc/terms/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "skos": "http://www.w3.org/2004/02/skos/core#",
    "spdx": "http://spdx.org/rdf/terms#",
    "vcard": "http://www.w3.org/2006/vcard/ns#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
_MEDIA = "https://www.iana.org/assignments/media-types/"
_FILE_TYPES = "http://publications.europa.eu/resource/authority/file-type/"
_KNOWN = {"csv": "CSV", "json": "JSON", "parquet": "PARQUET", "png": "PNG"}
_DATA_PACKAGE = "https://specs.frictionlessdata.io/data-package/"
_TABLE_SCHEMA = "https://specs.frictionlessdata.io/table-schema/"
_TIMES = (
    (r"\d{4}-\d{2}-\d{2}", "xsd:date"),
    (r"\d{4}-\d{2}", "xsd:gYearMonth"),
    (r"\d{4}", "xsd:gYear"),
)
_PAGES = ("report.html", "README.md", "privacy.json")


def dataset(publication: Publication) -> dict[str, Any]:
    """The dataset, as a JSON-LD document."""
    package = publication.package
    found: dict[str, Any] = {
        "@context": _CONTEXT,
        **({"@id": publication.uri} if publication.uri else {}),
        "@type": "dcat:Dataset",
        "dct:title": publication.title,
        "dct:description": publication.description,
        "dct:identifier": publication.identifier,
        "dct:issued": _typed(publication.created, "xsd:dateTime"),
        "dcat:keyword": package.get("keywords"),
        "dct:publisher": _publisher(publication),
        "dcat:contactPoint": _contact(publication),
        "dct:temporal": _period(package.get("temporal")),
        "dct:spatial": _location(package.get("spatial")),
        "dcat:landingPage": _node(publication.homepage, "foaf:Document"),
        "dct:conformsTo": _node(_DATA_PACKAGE, "dct:Standard"),
        "dct:provenance": {
            "@type": "dct:ProvenanceStatement",
            "rdfs:label": publication.privacy["meaning"],
        },
        "foaf:page": [_node(page, "foaf:Document") for page in _PAGES],
        "dcat:distribution": [_distribution(publication, file) for file in publication.files],
    }
    return _without_blanks(found)


def _distribution(publication: Publication, file: File) -> dict[str, Any]:
    """One file."""
    known = _KNOWN.get(file.suffix)
    return _without_blanks(
        {
            "@id": f"#{file.resource['name']}",
            "@type": "dcat:Distribution",
            "dct:title": file.title,
            "dct:description": file.resource.get("description"),
            "dcat:accessURL": {"@id": publication.homepage or _path(file.path)},
            "dcat:downloadURL": {"@id": _path(file.path)},
            "dcat:byteSize": _typed(str(file.bytes), "xsd:nonNegativeInteger"),
            "dcat:mediaType": _node(_MEDIA + file.media_type, "dct:MediaType"),
            "dct:format": known and _node(_FILE_TYPES + known, "dct:MediaTypeOrExtent"),
            "dct:issued": _typed(publication.created, "xsd:dateTime"),
            "dct:license": _node(publication.licence, "dct:LicenseDocument"),
            "dct:conformsTo": _node(_TABLE_SCHEMA, "dct:Standard")
            if "schema" in file.resource
            else None,
            "spdx:checksum": {
                "@type": "spdx:Checksum",
                "spdx:algorithm": _node(
                    "http://spdx.org/rdf/terms#checksumAlgorithm_sha256", "spdx:ChecksumAlgorithm"
                ),
                "spdx:checksumValue": _typed(file.sha256, "xsd:hexBinary"),
            },
        }
    )


def _publisher(publication: Publication) -> dict[str, Any] | None:
    said = publication.contributor("publisher")
    if said is None:
        return None
    return _without_blanks(
        {
            "@type": "foaf:Agent",
            "foaf:name": said["title"],
            "foaf:homepage": _node(said.get("path"), "foaf:Document"),
        }
    )


def _contact(publication: Publication) -> dict[str, Any] | None:
    said = publication.contributor("contact")
    if said is None:
        return None
    email = said.get("email")
    return _without_blanks(
        {
            "@type": ["vcard:Kind", "vcard:Organization"],
            "vcard:fn": said.get("title") or email,
            "vcard:hasEmail": {"@id": f"mailto:{email}"} if email else None,
            "vcard:hasURL": {"@id": said["path"]} if "path" in said else None,
        }
    )


def _period(said: dict[str, Any] | None) -> dict[str, Any] | None:
    return said and _without_blanks(
        {
            "@type": "dct:PeriodOfTime",
            "dcat:startDate": _time(said.get("start")),
            "dcat:endDate": _time(said.get("end")),
        }
    )


def _location(said: dict[str, Any] | None) -> dict[str, Any] | None:
    return said and _without_blanks(
        {
            **({"@id": said["path"]} if "path" in said else {}),
            "@type": "dct:Location",
            "skos:prefLabel": said.get("title"),
        }
    )


def _time(text: str | None) -> dict[str, str] | None:
    kinds = (kind for pattern, kind in _TIMES if re.fullmatch(pattern, text or ""))
    return _typed(text, next(kinds, "xsd:dateTime"))


def _typed(text: str | None, kind: str) -> dict[str, str] | None:
    return None if text is None else {"@value": text, "@type": kind}


def _node(uri: str | None, kind: str) -> dict[str, str] | None:
    return {"@id": uri, "@type": kind} if uri else None


def _path(path: str) -> str:
    """A relative path as an IRI reference."""
    from urllib.parse import quote

    return quote(path)


def _without_blanks(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, [], {}, "")}
