"""A bundle's public statements, read for its report."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from configs.models.server_sources import AnySourceConfig
from configs.yaml_text import parse
from mechanisms.errors import ConfigError


@dataclass(frozen=True)
class PublicWords:
    """What a report is made of besides the data files.

    Attributes:
        folder: Of the bundle.
        stated: ``privacy.json``.
        package: ``datapackage.json``.
        manifest: The facts that the manifest will have: run, time, versions, what it follows.
    """

    folder: Path
    stated: Mapping[str, Any]
    package: Mapping[str, Any]
    manifest: Mapping[str, Any]

    @classmethod
    def of(cls, folder: Path, manifest: Mapping[str, Any]) -> PublicWords:
        """Read them out of the folder of a bundle."""
        stated, package = (
            json.loads((folder / name).read_text(encoding="utf-8"))
            for name in ("privacy.json", "datapackage.json")
        )
        return cls(folder, stated, package, manifest)

    def resources(self, product: str) -> Sequence[Mapping[str, Any]]:
        """The files of a product; those of a bundle that does not say go by their names."""
        return [
            each
            for each in self.package["resources"]
            if each.get("product", self._owner(each["path"])) == product
        ]

    def words(self, product: str) -> Mapping[str, str]:
        """What the config says of a product: ``title`` and ``description``, if it does."""
        own = (each for each in self.package.get("products", ()) if each["name"] == product)
        return next(own, {})

    def title_of(self, product: str) -> str:
        """A product's title, or its name."""
        return self.words(product).get("title", product)

    def source_kind(self) -> str | None:
        """What the records were counted from, in words without its place; None if unknown."""
        path = self.folder / "config.yaml"
        if not path.is_file():
            return None
        try:
            stated = parse(path.read_text(encoding="utf-8"), path.name).value["source"]
            kind: str = TypeAdapter(AnySourceConfig).validate_python(stated).kind
        except (ConfigError, ValidationError, KeyError, TypeError):
            return None  # of another version
        return kind

    @property
    def created(self) -> str:
        """When it was made, such as ``23 November 2026``."""
        day = datetime.datetime.fromisoformat(self.manifest["created"])
        return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"

    def contributors(self, role: str) -> Sequence[Mapping[str, str]]:
        """Publisher or contact, as far as they are named."""
        return [e for e in self.package.get("contributors", ()) if e.get("role") == role]

    def _owner(self, path: str) -> str | None:
        """The product of a file: the longest name that its own begins with."""
        stem = Path(path).stem
        owners = [n for n in self.stated["products"] if stem == n or stem.startswith(f"{n}_")]
        return max(owners, key=len, default=None)


_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
"""In English whatever the machine's language."""
