"""A published bundle read back, with neither data nor ledger at hand.

A bundle says all that its post-processed figures follow from: the declared columns, the
mechanisms at their parameters, the public number of records, and what was drawn. So
``rederive`` gives the very figures that the bundle holds, bit for bit.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs import formats
from mechanisms.domain.columns import Categorical, Codes, Column, Date, Integer, Numeric, Ordinal
from mechanisms.domain.domain import Domain
from mechanisms.domain.structural_zeros import ZeroPattern
from mechanisms.errors import BundleVerificationError, ConfigError
from mechanisms.planning.registry import REGISTRY
from mechanisms.tables.mechanism import TableMechanism, table_mechanism
from tasks.bundle.manifest import verify_bundle
from tasks.bundle.table_files import cell_figures
from tasks.formats.reading import read_counts, read_records

_COLUMNS = MappingProxyType(
    {kind.kind: kind for kind in (Categorical, Ordinal, Integer, Numeric, Date)}
)
_LARGEST = 2**62
_DATES = ("first", "last")


@dataclass(frozen=True, eq=False)
class PublishedCounts:
    """What a mechanism gave, as published.

    Attributes:
        domain: The product's columns.
        cells: int64[K], ascending: the listed cells, and the absent one if it was drawn.
        raw: The columns int64[K] that the mechanism gave (``Mechanism.raw``).
    """

    domain: Domain
    cells: Codes
    raw: Mapping[str, Codes]

    @property
    def counts(self) -> Codes:
        """int64[K], drawn or noisy."""
        return self.raw["raw"]

    def figures(self) -> Mapping[str, Codes]:
        """The columns, as they are."""
        return self.raw

    @property
    def n_records(self) -> int:
        """Sum of the counts."""
        return int(self.counts.sum())


@dataclass(frozen=True)
class PublishedProduct:
    """A product whose counts are published.

    Attributes:
        name: As in the config.
        kind: ``microdata`` or ``table``.
        domain: Its columns.
        mechanism: At the parameters that were charged.
        path: The file with records or raw counts.
        fields: The columns as the bundle's data package describes them.
        absent: Raw columns of the absent cell, which no file lists; None without one.
    """

    name: str
    kind: str
    domain: Domain
    mechanism: TableMechanism
    path: Path
    fields: tuple[Mapping[str, Any], ...]
    absent: Mapping[str, int] | None

    def counts(self) -> PublishedCounts:
        """The counts that were drawn, out of the published file.

        Raises:
            BundleVerificationError: The file is not what the bundle says of it.
        """
        with _understood(self.path):
            raw = {}
            if self.kind == "microdata":
                cells, raw["raw"] = read_records(self.path, self.domain)
            else:
                for name in self.mechanism.raw:
                    cells, raw[name] = read_counts(self.path, self.domain, name)
            records = self.mechanism.describe().get("records")  # of those that draw
            if self.absent is not None and (self.absent["raw"] or records is None):
                cells = np.append(cells, self.domain.n_cells - 1)
                raw = {name: np.append(each, self.absent[name]) for name, each in raw.items()}
            found = PublishedCounts(self.domain, cells, raw)
            if not self.domain.is_possible(cells).all():
                raise ValueError("it has a row in a structural zero")
            if records is None:
                if len(cells) != self.domain.n_possible:
                    raise ValueError("it does not list every cell")
            elif found.n_records != records:
                raise ValueError(f"it holds {found.n_records} records, not {records}")
            elif np.any(found.counts < 1):
                raise ValueError("it lists a cell that was not drawn")
        return found


@dataclass(frozen=True)
class PublishedBundle:
    """A verified bundle.

    Attributes:
        folder: Where it lies.
        manifest: As verified.
        n_records: The public number of records.
        products: By name, those whose counts are published.
        without_counts: Names of the others.
    """

    folder: Path
    manifest: Mapping[str, Any]
    n_records: int
    products: Mapping[str, PublishedProduct]
    without_counts: tuple[str, ...]


def open_bundle(folder: Path) -> PublishedBundle:
    """Verify a bundle and rebuild its domain and mechanisms; reads no data file but to hash it.

    Raises:
        BundleVerificationError: The bundle is not whole, or not as this version writes it.
    """
    manifest = verify_bundle(folder)
    with _understood(folder):
        stated = json.loads((folder / "privacy.json").read_text(encoding="utf-8"))
        package = json.loads((folder / "datapackage.json").read_text(encoding="utf-8"))
        resources = {resource["path"]: resource for resource in package["resources"]}
        n_records = stated["n_records"]
        if type(n_records) is not int or n_records < 1:
            raise ValueError("its number of records is no positive integer")
        products, without = {}, []
        for name, description in stated["products"].items():
            for frame in ("n_records", "unit_records"):
                if description[frame] != stated[frame]:
                    raise ValueError(f"its {frame} is stated in two ways")
            product = _product(folder, name, description, resources)
            if product is None:
                without.append(name)
            else:
                products[name] = product
    return PublishedBundle(folder, manifest, n_records, products, tuple(without))


def rederive(product: PublishedProduct, *, n_records: int) -> dict[str, NDArray[Any]]:
    """The columns of the product's table of counts, of its listed cells, from what was drawn.

    Free post-processing: the same code on the same numbers as when the bundle was made.

    Raises:
        BundleVerificationError: The product's file is not what the bundle says of it.
    """
    return cell_figures(product.mechanism, product.counts(), n_records=n_records)


def column_from(description: Mapping[str, Any]) -> Column:
    """Rebuild a column from ``configs.loading.describe_column``.

    Raises:
        ValueError: It is of a kind that this version does not know.
        ConfigError: It is no valid declaration.
    """
    fields = dict(description)
    kind = fields.pop("kind")
    if kind not in _COLUMNS:
        raise ValueError(f"there is no kind of column '{kind}' in this version")
    for name, value in fields.items():
        if isinstance(value, list):
            fields[name] = tuple(value)
        elif name in _DATES:
            fields[name] = datetime.date.fromisoformat(value)
    return _COLUMNS[kind](**fields)


def _product(
    folder: Path, name: str, description: Mapping[str, Any], resources: Mapping[str, Any]
) -> PublishedProduct | None:
    """A product, or None if the bundle has no counts of it."""
    found = None
    for suffix in formats.FORMATS:
        found = found or resources.get(f"data/{name}.{suffix}")
    if found is None or Path(name).name != name:
        raise ValueError(f"there is no file of the product '{name}'")
    fields = found["schema"]["fields"]
    described = [field["name"] for field in fields]
    stem, suffix = f"data/{name}", found["format"]
    if suffix not in formats.FORMATS:
        raise ValueError(f"the file of the product '{name}' has an unknown format")
    if "raw" in described[len(description["columns"]) :]:
        kind = "table"
    elif {f"{stem}_{part}.{suffix}" for part in ("debiased", "estimates")} & resources.keys():
        kind = "microdata"
    else:
        return None
    columns = fields[: len(description["columns"])]
    if [field["name"] for field in columns] != description["columns"]:
        raise ValueError(f"the columns of the product '{name}' are described in two ways")
    zeros = tuple(_zero(sets) for sets in description.get("structural_zeros", ()))
    absent = description.get("absent")
    if (absent is None) != (description["unit_records"] == 1):
        raise ValueError(f"it is unclear whether the product '{name}' has absent records")
    declared = tuple(column_from(field["declared"]) for field in columns)
    domain = Domain(declared, zeros, absent is not None)
    if str(domain.n_possible) != description["n_cells"]:
        raise ValueError(f"the domain of the product '{name}' is not wholly described")
    mechanism = table_mechanism(REGISTRY[description["mechanism"]].from_description(description))
    path = folder / f"{stem}.{suffix}"
    if not path.is_file():
        raise ValueError(f"there is no file {stem}.{suffix}")
    if absent is not None:
        absent = {each: _whole(absent[each]) for each in mechanism.raw}
    return PublishedProduct(name, kind, domain, mechanism, path, tuple(columns), absent)


def _zero(sets: Mapping[str, Any]) -> ZeroPattern:
    """A structural zero from its runs of codes by column."""
    runs = {
        name: tuple((_whole(first), _whole(last)) for first, last in runs)
        for name, runs in sets.items()
    }
    if any(last < first for pairs in runs.values() for first, last in pairs):
        raise ValueError("a structural zero has a run of codes that ends before it begins")
    return ZeroPattern(tuple(runs.items()))


def _whole(number: object) -> int:
    if type(number) is not int or not -_LARGEST < number < _LARGEST:
        raise ValueError("a count or a code is no integer, or too large")
    return number


@contextmanager
def _understood(place: Path) -> Iterator[None]:
    """Say of a whole bundle that its files do not fit each other, or this version."""
    try:
        yield
        return
    except BundleVerificationError:
        raise
    except (ConfigError, ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        problem = (error.what if isinstance(error, ConfigError) else str(error)).rstrip(".")
    raise BundleVerificationError(
        f"The bundle is as its manifest says, and this version cannot read it: {problem}.",
        where=str(place),
        next_step="Use the version of statpress that the manifest names.",
    )
