"""Counts of a published product read back, with neither data nor ledger at hand.

A bundle says all that its post-processed figures follow from: the declared columns, the
mechanisms at their parameters, the public number of records, and what was released. So
``ProductKind.postprocess`` gives the very figures that the bundle holds, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from configs.models import formats
from mechanisms.domain.columns import Codes
from mechanisms.domain.domain import Domain
from mechanisms.domain.structural_zeros import ZeroPattern
from mechanisms.planning.registry import REGISTRY
from mechanisms.tables.mechanism import TableMechanism, drawn_records
from tasks.formats.reading import read_counts
from tasks.products.counts.fields import column_from, plain_field
from tasks.products.understanding import understood

if TYPE_CHECKING:
    from tasks.products.counts.product import CountsProduct

_LARGEST = 2**62


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
        kind: Of the product.
        domain: Its columns.
        mechanism: At the parameters that were charged.
        path: The file with records or raw counts.
        fields: The columns as the bundle's data package describes them.
        absent: Raw columns of the absent cell, which no file lists; None without one.
        further: What is published besides; None if that is nothing.
    """

    name: str
    kind: CountsProduct
    domain: Domain
    mechanism: TableMechanism
    path: Path
    fields: tuple[Mapping[str, Any], ...]
    absent: Mapping[str, int] | None
    further: Any = None

    def counts(self) -> PublishedCounts:
        """The counts that were released, out of the published file.

        Raises:
            BundleVerificationError: The file is not what the bundle says of it.
        """
        with understood(self.path):
            cells, raw = self.kind.read(self.path, self)
            records = drawn_records(self.mechanism)
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


def read_raw(path: Path, product: PublishedProduct) -> tuple[Codes, dict[str, Codes]]:
    """The cells int64[K] of a table, and the raw columns int64[K] of its mechanism.

    Raises:
        ValueError: The file does not hold them.
    """
    raw = {}
    for name in product.mechanism.raw:
        cells, raw[name] = read_counts(path, product.domain, name)
    return cells, raw


def published_product(
    kind: CountsProduct,
    folder: Path,
    name: str,
    stated: Mapping[str, Any],
    resources: Mapping[str, Any],
) -> PublishedProduct | None:
    """A product of counts, see ``ProductKind.published``."""
    if stated.get("kind", kind.core.name) != kind.core.name:
        return None
    found = next((r for s in formats.FORMATS if (r := resources.get(f"data/{name}.{s}"))), None)
    if found is None or Path(name).name != name:
        raise ValueError(f"there is no file of the product '{name}'")
    suffix = found["format"]
    if suffix not in formats.FORMATS:
        raise ValueError(f"the file of the product '{name}' has an unknown format")
    if not kind.recognised(name, suffix, resources):
        return None
    columns = found["schema"]["fields"][: len(stated["columns"])]
    if [field["name"] for field in columns] != stated["columns"]:
        raise ValueError(f"the columns of the product '{name}' are described in two ways")
    zeros = tuple(zero_from(sets) for sets in stated.get("structural_zeros", ()))
    absent = stated.get("absent")
    if (absent is None) != (stated["unit_records"] == 1):
        raise ValueError(f"it is unclear whether the product '{name}' has absent records")
    declared = tuple(column_from(field["declared"]) for field in columns)
    domain = Domain(declared, zeros, absent is not None)
    if str(domain.n_possible) != stated["n_cells"]:
        raise ValueError(f"the domain of the product '{name}' is not wholly described")
    mechanism: Any = REGISTRY[stated["mechanism"]].from_description(stated)
    stem = kind.stem_of_raw(name, mechanism)
    path = folder / f"data/{stem}.{suffix}"
    if not path.is_file():
        raise ValueError(f"there is no file data/{stem}.{suffix}")
    if absent is not None:
        absent = {each: _whole(absent[each]) for each in mechanism.raw}
    fields = tuple(map(plain_field, columns, declared))
    return PublishedProduct(name, kind, domain, mechanism, path, fields, absent)


def zero_from(sets: Mapping[str, Any]) -> ZeroPattern:
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
