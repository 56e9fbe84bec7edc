"""The metadata files of a bundle's folder.

DCAT and Croissant are in ``linked_data``, SDMX is in ``sdmx``. Here are CSV on the Web, which says
what the columns of CSV files hold (Metadata Vocabulary for Tabular Data, W3C Recommendation 2015,
https://www.w3.org/TR/tabular-metadata/), and the citation file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from statpress.tasks.catalogues import linked_data, sdmx
from statpress.tasks.catalogues.linked_data import File, Publication, without_blanks
from statpress.tasks.catalogues.usage import CITATION_NAME, contributor

CSVW_NAME = "csvw.json"
NAMES = frozenset({linked_data.DCAT_NAME, linked_data.CROISSANT_NAME, CITATION_NAME, CSVW_NAME})
"""Of the files that every bundle has; the last only one with CSV files."""
SDMX = "sdmx"
"""The folder of the tables in SDMX, which only a config that asks for them has."""


def metadata_files(folder: Path, *, with_sdmx: bool = False) -> Iterator[tuple[str, bytes]]:
    """Paths and contents; the same public files give the same bytes."""
    publication = Publication(folder)
    yield linked_data.DCAT_NAME, _text(linked_data.dcat_dataset(publication))
    yield linked_data.CROISSANT_NAME, _text(linked_data.croissant_dataset(publication))
    yield CITATION_NAME, citation_file(publication.package).encode()
    if (tables := _csvw_tables(publication)) is not None:
        yield CSVW_NAME, _text(tables)
    for table in sdmx.tables(publication) if with_sdmx else ():
        yield sdmx_paths(table.stem)[0], sdmx.observations(table)


def sdmx_paths(stem: str) -> tuple[str, str]:
    """Where the table of a file is in SDMX, if it is: its values, and their structure."""
    return f"{SDMX}/{stem}.csv", f"{SDMX}/{stem}_structure.xml"


def structure_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The structures of the tables in SDMX; needs the extra ``sdmx``."""
    from statpress.tasks.catalogues.sdmx import structure

    for table in sdmx.tables(Publication(folder)):
        yield sdmx_paths(table.stem)[1], structure(table)


def write_metadata(folder: Path, *, with_sdmx: bool) -> None:
    """Write all of them."""
    if with_sdmx:
        (folder / SDMX).mkdir()
        for path, content in structure_files(folder):
            (folder / path).write_bytes(content)
    for path, content in metadata_files(folder):
        (folder / path).write_bytes(content)
    for table in sdmx.tables(Publication(folder)) if with_sdmx else ():
        with (folder / sdmx_paths(table.stem)[0]).open("wb") as file:
            sdmx.write_observations(table, file)


def changed_metadata(folder: Path) -> list[str]:
    """Paths of the metadata of a bundle, if it has any, that do not follow from its other files.

    Structures in SDMX are not looked at: another version of the library may write them otherwise.
    """
    if not any((folder / name).exists() for name in NAMES):
        return []  # of an earlier version
    later = {CITATION_NAME, CSVW_NAME, *_of_places(folder)}
    return [
        path
        for path, content in metadata_files(folder, with_sdmx=(folder / SDMX).is_dir())
        if path not in later or (folder / path).exists()  # not of an earlier version
        if not (folder / path).is_file() or (folder / path).read_bytes() != content
    ]


def _of_places(folder: Path) -> list[str]:
    """The tables of places in SDMX, which earlier versions did not write."""
    found = sdmx.tables(Publication(folder))
    return [sdmx_paths(each.stem)[0] for each in found if each.stem != each.product]


def rehearse_metadata(folder: Path, *, with_sdmx: bool) -> None:
    """Make what can be made before anything is drawn, and keep nothing."""
    for _ in metadata_files(folder):
        pass
    for _ in structure_files(folder) if with_sdmx else ():
        pass


def _text(document: dict[str, Any]) -> bytes:
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


_TYPES = {"integer": "integer", "number": "double", "boolean": "boolean", "date": "date"}


def _csvw_tables(publication: Publication) -> dict[str, Any] | None:
    """The group of tables, as a JSON document; None if no table is a CSV file."""
    files = [each for each in publication.tables() if each.suffix == "csv"]
    if not files:
        return None
    package = publication.package
    paths = {each.resource["name"]: each.path for each in files}
    publisher = publication.contributor("publisher")
    return without_blanks(
        {
            "@context": ["http://www.w3.org/ns/csvw", {"@language": "en"}],
            "@id": publication.uri,
            "dc:title": publication.title,
            "dc:description": publication.description,
            "dc:license": publication.licence and {"@id": publication.licence},
            "dc:publisher": publisher and publisher["title"],
            "dcat:keyword": package.get("keywords"),
            "dc:issued": publication.created,
            "tables": [_table(each, paths) for each in files],
        }
    )


def _table(file: File, paths: Mapping[str, str]) -> dict[str, Any]:
    """One file; of others that it refers to, the paths by their names."""
    schema = file.resource["schema"]
    keys = [(each["fields"], each["reference"]) for each in schema.get("foreignKeys", ())]
    found = {
        "columns": [_column(each) for each in schema["fields"]],
        "primaryKey": schema.get("primaryKey"),
        "foreignKeys": [
            {
                "columnReference": columns,
                "reference": {"resource": paths[to["resource"]], "columnReference": to["fields"]},
            }
            for columns, to in keys
        ],
    }
    return without_blanks(
        {
            "url": file.path,
            "dc:title": file.title,
            "dc:description": file.resource.get("description"),
            "tableSchema": without_blanks(found),
        }
    )


def _column(field: Mapping[str, Any]) -> dict[str, Any]:
    """A column: its datatype with its bounds or listed values, and what labelled values mean."""
    limits = field.get("constraints", {})
    base = _TYPES.get(field["type"], "string")
    listed = "|".join(re.escape(str(each)) for each in limits.get("enum", ()))
    rules = {
        "base": base,
        "minimum": limits.get("minimum"),
        "maximum": limits.get("maximum"),
        "format": f"^({listed})$" if listed and base == "string" else None,
    }
    return without_blanks(
        {
            "name": field["name"],
            "titles": field.get("title"),
            "dc:description": field.get("description"),
            "schema:unitText": field.get("unit"),
            "datatype": without_blanks(rules),
            "required": True if limits.get("required") else None,
            "skos:member": [
                {
                    "@type": "skos:Concept",
                    "skos:notation": str(each["value"]),
                    "skos:prefLabel": each["label"],
                }
                for each in (*field.get("categories", ()), *field.get("special", ()))
            ],
        }
    )


_DOI = r"https://doi\.org/(10\.[0-9]{4,9}(?:\.[0-9]+)?/[A-Za-z0-9:/_;.()\[\]\\-]+)"  # as CFF takes


def citation_file(package: Mapping[str, Any]) -> str:
    """How to cite the release, for programs; every line is JSON, and so YAML.

    Source: Druskat and others 2021, Citation File Format 1.2.0, doi:10.5281/zenodo.5171937. It asks
    for an author, who is the publisher.
    """
    publisher = contributor(package, "publisher") or {"title": "Publisher not named"}
    author = {"name": publisher["title"], "website": publisher.get("path")}
    identifier = str(package.get("id", ""))
    doi = re.fullmatch(_DOI, identifier)
    licence: Mapping[str, str] = next(iter(package.get("licenses", ())), {})
    facts = {
        "cff-version": "1.2.0",
        "message": "If you use these data, please cite them as below.",
        "type": "dataset",
        "title": package["title"],
        "abstract": package.get("description"),
        "authors": [{key: text for key, text in author.items() if text}],
        "date-released": package.get("created", "")[:10],
        "doi": doi and doi[1],
        "identifiers": [] if doi else [{"type": "other", "value": identifier}],
        "url": package.get("homepage"),
        "license": licence.get("name"),
        "license-url": None if licence.get("name") else licence.get("path"),
        "keywords": list(dict.fromkeys(package.get("keywords", ()))),
    }
    lines = (
        f"{key}: {json.dumps(said, ensure_ascii=False)}" for key, said in facts.items() if said
    )
    return "\n".join([*lines, ""])
