"""DCAT-AP 3 and Croissant 1.1, as JSON-LD made of a bundle's public files.

DCAT-AP is for data portals: one dataset with a distribution for each file. Source: DCAT-AP 3.0,
https://semiceu.github.io/DCAT-AP/releases/3.0.0/ (SEMIC, 2024), which profiles W3C's DCAT 3,
https://www.w3.org/TR/vocab-dcat-3/. Paths of files are relative to the document, so they hold
wherever the bundle is put; where it has a landing page, that is how one gets access.

Croissant is for machine learning: files, and tables as sets of records. Source: Croissant Format
Specification 1.1, http://mlcommons.org/croissant/1.1, and Croissant RAI 1.0 (MLCommons). A table's
records are those of its Parquet file, or of its CSV file where the release has no other; files of
Stata and SPSS are listed as files only.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from statpress.tasks.catalogues.usage import citation, contributor

PACKAGE = "datapackage.json"
STATEMENT = "privacy.json"
MEDIA_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "parquet": "application/vnd.apache.parquet",
        "csv": "text/csv",
        "dta": "application/x-stata-dta",
        "sav": "application/x-spss-sav",
        "json": "application/json",
        "png": "image/png",
    }
)
"""By suffix; IANA's registry has all but those of Stata and SPSS."""


@dataclass(frozen=True)
class File:
    """A file that the data package lists; its hash in hexadecimal digits."""

    path: str
    resource: Mapping[str, Any]
    bytes: int
    sha256: str

    @property
    def suffix(self) -> str:
        """Of its name, without the dot."""
        return Path(self.path).suffix.removeprefix(".")

    @property
    def stem(self) -> str:
        """Its name without suffix."""
        return Path(self.path).stem

    @property
    def media_type(self) -> str:
        """As a MIME type."""
        known = MEDIA_TYPES.get(self.suffix, "application/octet-stream")
        return str(self.resource.get("mediatype", known))

    @property
    def title(self) -> str:
        """For people."""
        return str(self.resource.get("title", self.resource["name"]))


@dataclass(frozen=True)
class Publication:
    """A bundle's folder, sealed or under construction."""

    folder: Path

    @cached_property
    def package(self) -> Mapping[str, Any]:
        """The data package."""
        return self._json(PACKAGE)

    @cached_property
    def privacy(self) -> Mapping[str, Any]:
        """The privacy statement."""
        return self._json(STATEMENT)

    @cached_property
    def files(self) -> tuple[File, ...]:
        """All files that the data package lists and that are there, in its order."""
        return tuple(self._files())

    @property
    def title(self) -> str:
        """Of the release."""
        return str(self.package["title"])

    @property
    def description(self) -> str:
        """The publisher's words if there are any, and what kind of release it is."""
        privacy = self.privacy
        kind = (
            f"Released with ({privacy['epsilon']}, {privacy['delta']})-differential privacy under "
            f"{privacy['adjacency']}, unit: {privacy['unit_in_words']}."
        )
        said = self.package.get("description")
        return f"{said} {kind}" if said else f"{self.title}. {kind}"

    @property
    def created(self) -> str | None:
        """When the release was made, ISO 8601; None if the data package does not say."""
        return self.package.get("created")

    @property
    def identifier(self) -> str | None:
        """Of the release as the data package has it."""
        return self.package.get("id")

    @property
    def uri(self) -> str | None:
        """The identifier, if it is a URI."""
        said = self.identifier or ""
        return said if re.match(r"(https?://|urn:)\S+$", said) else None

    @property
    def homepage(self) -> str | None:
        """The page from which the release can be had."""
        return self.package.get("homepage")

    @property
    def licence(self) -> str | None:
        """The URL of the licence; None if there is none."""
        return next((each["path"] for each in self.package.get("licenses", ())), None)

    def contributor(self, role: str) -> Mapping[str, Any] | None:
        """The ``publisher`` or the ``contact``; None if none is named."""
        return contributor(self.package, role)

    def tables(self) -> Iterator[File]:
        """The files with rows, in every format."""
        return (each for each in self.files if "schema" in each.resource)

    def _json(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads((self.folder / name).read_text(encoding="utf-8"))
        return found

    def _files(self) -> Iterator[File]:
        for resource in self.package["resources"]:
            path = self.folder / resource["path"]
            if not path.is_file():  # a rehearsal, before anything is drawn
                continue
            size, known = resource.get("bytes"), str(resource.get("hash", ""))
            digest = known.removeprefix("sha256:") if known.startswith("sha256:") else None
            if digest is None:
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = path.stat().st_size if size is None else int(size)
            yield File(resource["path"], resource, size, digest)


DCAT_NAME = "dcat.jsonld"
_DCAT_CONTEXT: dict[str, Any] = {
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


def dcat_dataset(publication: Publication) -> dict[str, Any]:
    """The dataset, as a JSON-LD document."""
    package = publication.package
    found: dict[str, Any] = {
        "@context": _DCAT_CONTEXT,
        **({"@id": publication.uri} if publication.uri else {}),
        "@type": "dcat:Dataset",
        "dct:title": publication.title,
        "dct:description": publication.description,
        "dct:identifier": publication.identifier,
        "dct:issued": _typed(publication.created, "xsd:dateTime"),
        "dcat:keyword": package.get("keywords"),
        "dct:publisher": _dcat_publisher(publication),
        "dcat:contactPoint": _contact(publication),
        "dct:temporal": _period(package.get("temporal")),
        "dct:spatial": _locations(publication),
        "dcat:landingPage": _node(publication.homepage, "foaf:Document"),
        "dct:conformsTo": _node(_DATA_PACKAGE, "dct:Standard"),
        "dct:provenance": {
            "@type": "dct:ProvenanceStatement",
            "rdfs:label": publication.privacy["meaning"],
        },
        "foaf:page": [_node(page, "foaf:Document") for page in _PAGES],
        "dcat:distribution": [_distribution(publication, file) for file in publication.files],
    }
    return without_blanks(found)


def _distribution(publication: Publication, file: File) -> dict[str, Any]:
    """One file."""
    known = _KNOWN.get(file.suffix)
    return without_blanks(
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


def _dcat_publisher(publication: Publication) -> dict[str, Any] | None:
    said = publication.contributor("publisher")
    if said is None:
        return None
    return without_blanks(
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
    return without_blanks(
        {
            "@type": ["vcard:Kind", "vcard:Organization"],
            "vcard:fn": said.get("title") or email,
            "vcard:hasEmail": {"@id": f"mailto:{email}"} if email else None,
            "vcard:hasURL": {"@id": said["path"]} if "path" in said else None,
        }
    )


def _period(said: dict[str, Any] | None) -> dict[str, Any] | None:
    return said and without_blanks(
        {
            "@type": "dct:PeriodOfTime",
            "dcat:startDate": _time(said.get("start")),
            "dcat:endDate": _time(said.get("end")),
        }
    )


def _location(said: dict[str, Any] | None) -> dict[str, Any] | None:
    return said and without_blanks(
        {
            **({"@id": said["path"]} if "path" in said else {}),
            "@type": "dct:Location",
            "skos:prefLabel": said.get("title"),
        }
    )


_MOST_PLACES = 1000


def _locations(publication: Publication) -> Any:
    """What area the records are of, then every place of the tables of places: level and code.

    Levels are listed from the largest places down, as long as all have at most 1,000 places.
    """
    about = _location(publication.package.get("spatial"))
    places: list[dict[str, Any]] = []
    for stated in publication.privacy["products"].values():
        geography = stated.get("geography", {"levels": []})
        files = {
            each["level"]: each["file"] for each in stated.get("tables", ()) if "level" in each
        }
        for level in geography["levels"][1:]:
            codes = _codes(publication, files[level]) if level in files else []
            if len(places) + len(codes) > _MOST_PLACES:
                break
            places += [
                {
                    "@type": "dct:Location",
                    "dct:type": level,
                    "dct:identifier": code,
                    "skos:prefLabel": f"{level} {code}",
                }
                for code in codes
            ]
    distinct = [each for at, each in enumerate(places) if each not in places[:at]]
    return [*([about] if about else []), *distinct] if distinct else about


def _codes(publication: Publication, stem: str) -> list[str]:
    """The codes of the places of a file, as far as the data package lists them."""
    for resource in publication.package["resources"]:
        if resource["path"].rpartition(".")[0] == f"data/{stem}":
            first = resource["schema"]["fields"][0]
            return [str(code) for code in first.get("constraints", {}).get("enum", ())]
    return []


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


def without_blanks(values: dict[str, Any]) -> dict[str, Any]:
    """What has a value."""
    return {key: value for key, value in values.items() if value not in (None, [], {}, "")}


CROISSANT_NAME = "croissant.json"
_READ = ("parquet", "csv")
"""Formats that Croissant's reader knows, the preferred one first."""
_OURS = (
    "arrayShape", "citeAs", "column", "conformsTo", "containedIn", "equivalentProperty", "extract",
    "field", "fileProperty", "fileObject", "fileSet", "format", "includes", "isArray",
    "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references",
    "regex", "repeated", "replace", "samplingRate", "separator", "source", "subField", "transform",
)  # fmt: skip
_CROISSANT_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    **{name: f"cr:{name}" for name in _OURS},
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
}
_VERSIONS = ("http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0")
_TYPES = {"integer": "cr:Int64", "number": "cr:Float64", "boolean": "sc:Boolean"}


def croissant_dataset(publication: Publication) -> dict[str, Any]:
    """The dataset, as a JSON-LD document."""
    package = publication.package
    found = {
        "@context": _CROISSANT_CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": list(_VERSIONS),
        "name": publication.title,
        "description": publication.description,
        "url": publication.homepage or publication.uri,
        "identifier": publication.identifier,
        "license": publication.licence,
        "version": "1.0.0",
        "datePublished": publication.created,
        "keywords": package.get("keywords"),
        "creator": _croissant_publisher(publication),
        "publisher": _croissant_publisher(publication),
        "citeAs": citation(package),
        **_responsible(publication),
        "distribution": [_file(file) for file in publication.files],
        "recordSet": list(_record_sets(publication)),
    }
    return {key: value for key, value in found.items() if value not in (None, [], "")}


def _croissant_publisher(publication: Publication) -> dict[str, Any] | None:
    said = publication.contributor("publisher")
    if said is None:
        return None
    url = {"url": said["path"]} if "path" in said else {}
    return {"@type": "sc:Organization", "name": said["title"], **url}


def _responsible(publication: Publication) -> dict[str, Any]:
    """What the vocabulary for responsible AI has for data with a privacy guarantee."""
    privacy = publication.privacy
    products: Mapping[str, Any] = privacy["products"]
    made = "; ".join(f"{name}: {each['mechanism']}" for name, each in products.items())
    found: dict[str, Any] = {
        "rai:dataManipulationProtocol": "Everything published was drawn by randomised mechanisms, "
        f"or has noise on it ({made}); synthetic records are not records of the source.",
        "rai:personalSensitiveInformation": privacy["meaning"],
        "rai:dataLimitations": [str(each) for each in privacy.get("warnings", ())]
        + [str(each) for each in privacy.get("not_covered", ())],
        "rai:dataBiases": [
            f"{name}: its estimates are biased, by an amount that depends on the data."
            for name, each in products.items()
            if each.get("unbiased") is False
        ],
    }
    return {key: value for key, value in found.items() if value}


def _file(file: File) -> dict[str, Any]:
    words = {"description": file.resource["description"]} if "description" in file.resource else {}
    return {
        "@type": "cr:FileObject",
        "@id": file.path,
        "name": file.path.rpartition("/")[2],
        **words,
        "contentUrl": file.path,
        "contentSize": f"{file.bytes} B",
        "encodingFormat": _encoding(file),
        "sha256": file.sha256,
    }


def _encoding(file: File) -> str:
    """Croissant's reader tells Parquet by this name alone."""
    return "application/x-parquet" if file.suffix == "parquet" else file.media_type


def _record_sets(publication: Publication) -> Iterator[dict[str, Any]]:
    """The tables, each from one of its files."""
    by_stem: dict[str, dict[str, File]] = {}
    for file in publication.tables():
        by_stem.setdefault(file.stem, {})[file.suffix] = file
    for stem, files in by_stem.items():
        suffix = next((each for each in _READ if each in files), None)
        if suffix is None:
            continue
        file = files[suffix]
        words = file.resource.get("description")
        yield {
            "@type": "cr:RecordSet",
            "@id": stem,
            "name": stem,
            **({"description": words} if words else {}),
            **_keys(stem, file.resource["schema"]),
            "field": [_field(stem, file, each) for each in file.resource["schema"]["fields"]],
        }


def _keys(stem: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that tell rows of a table apart."""
    keys = [{"@id": f"{stem}/{name}"} for name in schema.get("primaryKey", ())]
    return {"key": keys[0] if len(keys) == 1 else keys} if keys else {}


def _field(stem: str, file: File, field: Mapping[str, Any]) -> dict[str, Any]:
    parts = [field.get("title"), field.get("description")]
    unit = field.get("unit")
    words = " ".join([str(part) for part in parts if part] + ([f"Unit: {unit}."] if unit else []))
    return {
        "@type": "cr:Field",
        "@id": f"{stem}/{field['name']}",
        "name": field["name"],
        **({"description": words} if words else {}),
        "dataType": _data_type(field),
        **_references(file, field["name"]),
        "source": {
            "fileObject": {"@id": file.path},
            "extract": {"column": field["name"]},
        },
    }


def _references(file: File, name: str) -> dict[str, Any]:
    """The key of another table that a column holds."""
    for each in file.resource["schema"].get("foreignKeys", ()):
        if each["fields"] == [name]:
            to = each["reference"]
            stem = to["resource"].removesuffix(f"-{file.suffix}")
            return {"references": {"field": {"@id": f"{stem}/{to['fields'][0]}"}}}
    return {}


def _data_type(field: Mapping[str, Any]) -> str:
    """An integer that may be null is read as a floating-point number, and so called one."""
    kind = str(field["type"])
    required = field.get("constraints", {}).get("required", True)
    if kind in ("integer", "boolean") and not required:
        return "cr:Float64" if kind == "integer" else "sc:Text"
    return _TYPES.get(kind, "sc:Text")
