"""A published bundle opened for deriving something from it, without data or ledger."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statpress.mechanisms.marginals.marginals import Marginals
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.products.product_kind import KINDS, kind_named
from statpress.tasks.products.published_counts import PublishedProduct, understood


@dataclass(frozen=True)
class PublishedBundle:
    """A verified bundle.

    Attributes:
        folder: Where it lies.
        manifest: As verified.
        n_records: The public number of records.
        products: By name, those whose counts are published.
        without_counts: Names of the others.
        by_marginals: Names of those of them that are microdata by marginals.
    """

    folder: Path
    manifest: Mapping[str, Any]
    n_records: int
    products: Mapping[str, PublishedProduct]
    without_counts: tuple[str, ...]
    by_marginals: tuple[str, ...]


def open_bundle(folder: Path) -> PublishedBundle:
    """Verify a bundle and rebuild its domain and mechanisms; reads no data file but to hash it.

    Raises:
        BundleVerificationError: The bundle is not whole, or not as this version writes it.
    """
    manifest = verify_bundle(folder)
    with understood(folder):
        stated = json.loads((folder / "privacy.json").read_text(encoding="utf-8"))
        package = json.loads((folder / "datapackage.json").read_text(encoding="utf-8"))
        resources = {resource["path"]: resource for resource in package["resources"]}
        n_records = stated["n_records"]
        if type(n_records) is not int or n_records < 1:
            raise ValueError("its number of records is not a positive integer")
        products, without = {}, []
        for name, description in stated["products"].items():
            for frame in ("n_records", "unit_records"):
                if description[frame] != stated[frame]:
                    raise ValueError(f"its {frame} is stated in two ways")
            product = None
            stated_kind = description.get("kind") or _kind_by_files(name, resources)
            if stated_kind in KINDS:
                kind = kind_named(stated_kind, description["mechanism"])
                product = kind.published(folder, name, description, resources)
            if product is None:
                without.append(name)
            else:
                products[name] = product
        wide = [n for n in without if stated["products"][n].get("mechanism") == Marginals.name]
    return PublishedBundle(
        folder, manifest, n_records, products, tuple(without), by_marginals=tuple(wide)
    )


def _kind_by_files(name: str, resources: Mapping[str, Any]) -> str:
    """The kind of a product of a version that did not state kinds: a table has a column ``raw``."""
    files = [file for path, file in resources.items() if path.startswith(f"data/{name}.")]
    raw = any(field["name"] == "raw" for file in files for field in file["schema"]["fields"])
    return "table" if raw else "microdata"
