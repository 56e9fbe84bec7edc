"""What a bundle needs of each kind of product; a new kind is one module and one line here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from configs.release import PublishConfig
from mechanisms.planning.plan import Plan, PlannedProduct
from tasks.bundle.estimate_files import EstimateFiles
from tasks.bundle.function_files import FunctionFiles
from tasks.bundle.table_files import TableFiles
from tasks.formats.writing import Progress

Profile = tuple[dict[str, dict[str, int]], dict[str, int]]
"""Per written file its profile, see ``tasks.formats.profile``, and the rows it should have."""


class KindFiles(Protocol):
    """The files of one kind of product, in the folder of a bundle."""

    def values(self, product: PlannedProduct) -> int:
        """About how many values the files will hold, at most."""

    def rehearse(self, folder: Path, product: PlannedProduct, publish: PublishConfig) -> None:
        """Write, read back and remove what can be without a draw.

        Raises:
            ConfigError: What the config declares cannot be written.
        """

    def write(
        self,
        folder: Path,
        product: PlannedProduct,
        drawn: Any,
        plan: Plan,
        publish: PublishConfig,
        advance: Progress,
    ) -> None:
        """Write the files of a drawn product; all in them is post-processing of the draw."""

    def profile(
        self,
        folder: Path,
        product: PlannedProduct,
        drawn: Any,
        plan: Plan,
        publish: PublishConfig,
    ) -> Profile:
        """What was written, and the rows that should have been."""

    def resources(self, product: PlannedProduct, publish: PublishConfig) -> list[dict[str, Any]]:
        """The files as resources of a Frictionless data package."""

    def stated(self, product: PlannedProduct, drawn: Any) -> dict[str, Any]:
        """What ``privacy.json`` says of the product beside its loss."""

    def advice(self, product: PlannedProduct, plan: Plan) -> str:
        """What a reader of the bundle has to know, in one list item."""

    def notes(self, products: Sequence[PlannedProduct]) -> list[str]:
        """What a reader has to know of all products of the kind, as paragraphs."""


_TABLES: KindFiles = TableFiles()
FILES: Mapping[str, KindFiles] = MappingProxyType(
    {
        "microdata": _TABLES,
        "table": _TABLES,
        "estimate": EstimateFiles(),
        "function": FunctionFiles(),
    }
)


def files_of(product: PlannedProduct) -> KindFiles:
    """The files of a product's kind."""
    return FILES[product.request.kind]


def by_kind(products: Sequence[PlannedProduct]) -> list[tuple[KindFiles, list[PlannedProduct]]]:
    """The products that share a kind of files, in order."""
    found: dict[int, tuple[KindFiles, list[PlannedProduct]]] = {}
    for product in products:
        kind = files_of(product)
        found.setdefault(id(kind), (kind, []))[1].append(product)
    return list(found.values())
