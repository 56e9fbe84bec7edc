"""Croissant 1.1 for machine learning, as JSON-LD: files, and tables as sets of records.

Source: Croissant Format Specification 1.1, http://mlcommons.org/croissant/1.1, and Croissant RAI
1.0 (MLCommons). A table's records are those of its Parquet file, or of its CSV file where the
release has no other; files of Stata and SPSS are listed as files only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tasks.metadata.publication import File, Publication
from tasks.package.citation import citation

NAME = "croissant.json"
_READ = ("parquet", "csv")
"""Formats that Croissant's reader knows, the preferred one first."""
_OURS = (
    "arrayShape", "citeAs", "column", "conformsTo", "containedIn", "equivalentProperty", "extract",
    "field", "fileProperty", "fileObject", "fileSet", "format", "includes", "isArray",
    "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references",
    "regex", "repeated", "replace", "samplingRate", "separator", "source", "subField", "transform",
)  # fmt: skip
_CONTEXT: dict[str, Any] = {
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


def dataset(publication: Publication) -> dict[str, Any]:
    """The dataset, as a JSON-LD document."""
    package = publication.package
    found = {
        "@context": _CONTEXT,
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
        "creator": _publisher(publication),
        "publisher": _publisher(publication),
        "citeAs": citation(package),
        **_responsible(publication),
        "distribution": [_file(file) for file in publication.files],
        "recordSet": list(_record_sets(publication)),
    }
    return {key: value for key, value in found.items() if value not in (None, [], "")}


def _publisher(publication: Publication) -> dict[str, Any] | None:
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
            "field": [_field(stem, file, each) for each in file.resource["schema"]["fields"]],
        }


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
        "source": {
            "fileObject": {"@id": file.path},
            "extract": {"column": field["name"]},
        },
    }


def _data_type(field: Mapping[str, Any]) -> str:
    """An integer that may be null is read as a floating-point number, and so called one."""
    kind = str(field["type"])
    required = field.get("constraints", {}).get("required", True)
    if kind in ("integer", "boolean") and not required:
        return "cr:Float64" if kind == "integer" else "sc:Text"
    return _TYPES.get(kind, "sc:Text")
