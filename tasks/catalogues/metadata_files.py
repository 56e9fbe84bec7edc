"""The metadata files of a bundle's folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from statpress.tasks.catalogues import linked_data, sdmx
from statpress.tasks.catalogues.csvw import CSVW_NAME, csvw_tables
from statpress.tasks.catalogues.linked_data import Publication
from statpress.tasks.catalogues.usage import CITATION_NAME, citation_file

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
    if (tables := csvw_tables(publication)) is not None:
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
