"""The public files of a bundle's folder, as far as its metadata speak of them."""

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

from tasks.package.citation import contributor

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
    """A file that the data package lists.

    Attributes:
        path: Relative to the folder.
        resource: As the data package describes it.
        bytes: Its size.
        sha256: Of its content, in hexadecimal digits.
    """

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
    """A bundle's folder, sealed or under construction.

    Attributes:
        folder: Where it lies.
    """

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
