"""Published counts: their columns and sums, and how they are read back.

A bundle says all that its post-processed figures follow from: the declared columns, the
mechanisms at their parameters, the public number of records, and what was released. So
``ProductKind.postprocess`` gives the very figures that the bundle holds, bit for bit, with neither
data nor ledger at hand. A published table of estimates has sums over all columns but one or two,
with errors.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from statpress.configs import formats
from statpress.mechanisms.domain.columns import Codes, Column
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.planning.plan import PlannedProduct
from statpress.mechanisms.postprocessing.covariance import Covariance
from statpress.mechanisms.registry import REGISTRY
from statpress.mechanisms.tables.bands import BandKnobs
from statpress.mechanisms.tables.count_tables import RawTable, TableMechanism
from statpress.tasks.bundle.manifest import understood
from statpress.tasks.bundle.rows import read_counts, read_figures
from statpress.tasks.products.distributions import Distribution
from statpress.tasks.products.publication import (
    Field,
    column_field,
    column_from,
    size_stated,
    whole,
    zero_from,
    zeros_by_codes,
)

if TYPE_CHECKING:
    from statpress.tasks.products.count_product import CountsProduct


FIGURES = {
    "raw": ("integer", "Count as the mechanism gave it, drawn or noisy; may be negative."),
    "raw_block": (
        "integer",
        "Noisy count of the block of neighbouring cells that the cell lies in, the same in every "
        "row of the block.",
    ),
    "estimate": ("number", "Unbiased estimate of the count; may be negative."),
    "standard_error": ("number", "Of the estimate."),
    "projected": (
        "number",
        "The nearest counts to the estimates that are not negative and, with those of the cells "
        "that are not listed, add up to the public number of records; for use as a table, not "
        "for intervals.",
    ),
}
"""Columns that a table has beside those of the domain: type and description."""

BIASED = {
    "estimate": (
        "number",
        "Estimate of the count; biased, by an amount that depends on the data and is not known.",
    ),
    "standard_error": ("number", "Sampling error of the estimate, in which its bias is not."),
}
"""The same of a mechanism whose estimates are biased, where they differ."""

ESTIMATES = ("estimate", "standard_error", "projected")


def figures_of(mechanism: TableMechanism) -> dict[str, tuple[str, str]]:
    """Type and description of the columns that a table has besides those of the domain."""
    return FIGURES if mechanism.unbiased else FIGURES | BIASED


def raw_digest(drawn: RawTable) -> str:
    """SHA-256 of what a mechanism gave: cells, then raw columns, as little-endian int64.

    Whoever reads the counts back out of the files, in whatever format, gets the same.
    """
    digest = hashlib.sha256(drawn.cells.astype("<i8").tobytes())
    for values in drawn.figures().values():
        digest.update(values.astype("<i8").tobytes())
    return digest.hexdigest()


def n_listed(drawn: RawTable) -> int:
    """Number of its cells that are published with their columns: all but the absent one."""
    return len(drawn.cells) - int(drawn.domain.is_absent(drawn.cells[-1:]).sum())


def unlisted(drawn: RawTable) -> dict[str, Any]:
    """What a product's files do not hold, and whoever reads them back needs to know.

    Returns:
        ``structural_zeros``: of each pattern the runs of codes by column, first and last
        code of each; ``absent``: the raw columns of the absent cell, None where there is none.
        Drawn or noisy, its counts are as public as the others.
    """
    domain, listed = drawn.domain, n_listed(drawn)
    absent = {name: int(values[listed:].sum()) for name, values in drawn.figures().items()}
    return {
        "structural_zeros": zeros_by_codes(domain),
        "absent": absent if domain.absent else None,
    }


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
        n_records: The public number of records.
        further: What is published besides; None if that is nothing.
    """

    name: str
    kind: CountsProduct
    domain: Domain
    mechanism: TableMechanism
    path: Path
    fields: tuple[Mapping[str, Any], ...]
    absent: Mapping[str, int] | None
    n_records: int
    further: Any = None

    @classmethod
    def read(
        cls,
        kind: CountsProduct,
        folder: Path,
        name: str,
        stated: Mapping[str, Any],
        resources: Mapping[str, Any],
    ) -> Self | None:
        """A product of counts, see ``ProductKind.published``; None where no file has its counts."""
        found = next((r for s in formats.FORMATS if (r := resources.get(f"data/{name}.{s}"))), None)
        if found is None or Path(name).name != name:
            raise ValueError(f"there is no file of the product '{name}'")
        suffix = found["format"]
        if suffix not in formats.FORMATS:
            raise ValueError(f"the file of the product '{name}' has an unknown format")
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
        names = {field["name"] for field in resources[f"data/{stem}.{suffix}"]["schema"]["fields"]}
        if {*mechanism.raw} & {*kind.figures(name, mechanism)[stem]} - names:
            return None  # a version that did not publish what was drawn
        if absent is not None:
            absent = {each: whole(absent[each]) for each in mechanism.raw}
        fields = tuple(map(_plain_field, columns, declared))
        return cls(
            name,
            kind,
            domain,
            mechanism,
            path,
            fields,
            absent,
            size_stated(stated),
            BandKnobs.from_facts(stated),
        )  # fmt: skip

    def counts(self) -> PublishedCounts:
        """The counts that were released, out of the published file.

        Raises:
            BundleVerificationError: The file is not what the bundle says of it.
        """
        with understood(self.path):
            cells, raw = self.kind.read(self.path, self)
            records = self.mechanism.drawn_records
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

    def raw_columns(self, path: Path) -> tuple[Codes, dict[str, Codes]]:
        """The cells int64[K] of a table, and the raw columns int64[K] of its mechanism.

        Raises:
            ValueError: The file does not hold them.
        """
        raw = {}
        for name in self.mechanism.raw:
            cells, raw[name] = read_counts(path, self.domain, name)
        return cells, raw


def _plain_field(field: Mapping[str, Any], column: Column) -> Field:
    """A described column with its values as they are, and not as the format of a file has them."""
    values: Field = {k: v for k, v in column_field(column).items() if k in field}
    labelled = field.get("categories")
    if labelled is not None:
        own = column.decode(np.arange(len(labelled))).tolist()
        values["categories"] = [
            dict(each) | {"value": value} for each, value in zip(labelled, own, strict=True)
        ]
    return {**field, **values}


def n_records_of(product: PlannedProduct[TableMechanism] | PublishedProduct) -> int:
    """The public number of records of a product, planned or read back."""
    if isinstance(product, PublishedProduct):
        return product.n_records
    return product.target.n_records


MOST_ENUMERATED = 1 << 22
"""Cells of a domain with structural zeros up to which the possible ones are counted."""

MOST_SUMS = 1 << 20

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class EstimatedTable:
    """The estimates of a product's cells as its bundle has them.

    Attributes:
        domain: Its columns.
        fields: The same as the data package describes them.
        cells: int64[K], as listed.
        estimates: float64[K].
        errors: float64[K], their standard errors.
        unlisted: The estimate of every possible cell that is not listed.
        n_records: Public number of records.
        covariance: How the errors vary together.
        unbiased: Whether the estimates are right on average.
        size_is_public: Whether all possible cells add up to ``n_records`` exactly.
    """

    domain: Domain
    fields: Sequence[Mapping[str, Any]]
    cells: Codes
    estimates: Floats
    errors: Floats
    unlisted: float
    n_records: int
    covariance: Covariance
    unbiased: bool
    size_is_public: bool = True

    @classmethod
    def read(cls, path: Path, stated: Mapping[str, Any], resource: Mapping[str, Any]) -> Self:
        """The table of a bundle's product.

        Raises:
            ValueError: The file does not hold it.
        """
        fields = [each for each in resource["schema"]["fields"] if "declared" in each]
        zeros = tuple(zero_from(sets) for sets in stated["structural_zeros"])
        columns = tuple(column_from(each["declared"]) for each in fields)
        domain = Domain(columns, zeros, stated["absent"] is not None)
        mechanism: Any = REGISTRY[stated["mechanism"]].from_description(stated)
        n_records, n_cells = size_stated(stated), domain.n_possible
        uniform = stated["expected_error"].get("uniform_share") or 0.0
        cells, (estimates, errors) = read_figures(path, domain, ("estimate", "standard_error"))
        return cls(
            domain, fields, cells, estimates, errors,
            unlisted=-n_records * uniform / (1 - uniform) / n_cells,
            n_records=n_records,
            covariance=mechanism.covariance(n_records=n_records, n_cells=n_cells),
            unbiased=stated["unbiased"],
            size_is_public="estimated_records" not in stated and not domain.absent,
        )  # fmt: skip

    def sums(
        self, names: Sequence[str], *, reaching: bool = False
    ) -> tuple[Floats, Floats | None] | None:
        """Sums over all other columns, and their standard errors where these are known.

        Args:
            names: Of the columns that stay.
            reaching: Errors for normal intervals instead (``Covariance.errors_of_sums``), which
                are larger where few records were drawn.

        Returns:
            float64 of the sizes of the columns; None where they are too many to be counted.
        """
        sizes = [self.domain[name].size for name in names]
        if (tally := self._tally(names)) is None:
            return None
        if self.covariance.objection:
            return tally[0].reshape(sizes), None
        spread = self._errors(tally, reaching=reaching)
        return tally[0].reshape(sizes), spread.reshape(sizes)

    def shares(self, names: Sequence[str]) -> tuple[Floats, Floats, Floats] | None:
        """The shares of the cells of some columns, of the records that are missing in none.

        With c the records of a cell, S those not missing, and p = c / S, the error of p is that
        of (c - p S) / S to first order. S is known but for the missing ones, m, where the number
        n of all records is public: c - p (n - m) varies as (1 - p) V(c) - p (1 - p) V(m) +
        p V(c + m). Else S is the sum of its cells, of which c - p S varies as
        (1 - p) V(c) + p V(S - c) - p (1 - p) V(S).

        Returns:
            Shares, standard errors and errors for normal intervals, float64 of the sizes of the
            columns; the errors are NaN where they are not known, and all is NaN in cells where a
            value is missing. None where the cells are too many to be counted.
        """
        sizes = [self.domain[name].size for name in names]
        if (tally := self._tally(names)) is None:
            return None
        kept = np.ones(sizes, dtype=np.bool_)
        for axis, name in enumerate(names):
            if (code := self.domain[name].missing_code) is not None:
                np.moveaxis(kept, axis, 0)[code] = False
        kept = kept.ravel()
        total = tally[:, kept].sum(axis=1, keepdims=True)
        outside = tally[:, ~kept].sum(axis=1, keepdims=True)
        base = self.n_records - outside[0] if self.size_is_public else total[0]
        with np.errstate(all="ignore"):
            shares = np.where(kept & (base > 0), tally[0] / base, np.nan)
        unknown = np.full(len(shares), np.nan)
        if self.covariance.objection or not self.unbiased:
            return shares.reshape(sizes), unknown.reshape(sizes), unknown.reshape(sizes)
        p, own = shares, self._variances(tally)
        if not self.size_is_public:
            rest, whole = self._variances(total - tally), self._variances(total)
            variances = (1 - p) * own + p * rest - p * (1 - p) * whole
        elif kept.all():
            variances = own
        else:
            with_outside, apart = self._variances(tally + outside), self._variances(outside)
            variances = (1 - p) * own - p * (1 - p) * apart + p * with_outside
        errors = np.sqrt(np.maximum(variances, 0.0))
        reaches = errors + self._errors(tally, reaching=True) - np.sqrt(own)
        errors, reaches = errors / base, reaches / base
        return shares.reshape(sizes), errors.reshape(sizes), reaches.reshape(sizes)

    def _tally(self, names: Sequence[str]) -> Floats | None:
        """Of each combination of values its estimate, sum of squared errors and possible cells.

        float64[3, product of sizes]; None where they are too many to be counted.
        """
        length = math.prod(self.domain[name].size for name in names)
        if length > MOST_SUMS or (possible := self._possible(names)) is None:
            return None
        groups = _groups(self.domain, self.cells, names)
        listed, estimates, variances = (
            np.bincount(groups, weights, minlength=length).astype(np.float64)
            for weights in (None, self.estimates, self.errors**2)
        )
        return np.stack([estimates + (possible - listed) * self.unlisted, variances, possible])

    def _variances(self, tally: Floats) -> Floats:
        return self.covariance.variances_of_sums(*tally)

    def _errors(self, tally: Floats, *, reaching: bool) -> Floats:
        if reaching:
            return self.covariance.errors_of_sums(*tally)
        return np.asarray(np.sqrt(self._variances(tally)))

    @property
    def reaches(self) -> Floats:
        """Of each listed cell the error for normal intervals: float64[K]."""
        if self.covariance.objection:
            return self.errors
        cells = np.ones(len(self.cells))
        return self.covariance.errors_of_sums(self.estimates, self.errors**2, cells)

    def distribution(self, name: str) -> Distribution | None:
        """The sums of one column, with errors for whiskers."""
        found = self.sums((name,), reaching=True)
        if found is None:
            return None
        field = self.fields[self.domain.names.index(name)]
        return Distribution(self.domain[name], field, *found)

    def _possible(self, names: Sequence[str]) -> Floats | None:
        """How many possible cells there are of each combination, as float64[product of sizes]."""
        length = math.prod(self.domain[name].size for name in names)
        if not self.domain.zeros:
            return np.full(length, (self.domain.n_cells - self.domain.absent) / length)
        if self.domain.n_cells > MOST_ENUMERATED:
            return None
        cells = self.domain.possible_cells()
        groups = _groups(self.domain, cells[~self.domain.is_absent(cells)], names)
        return np.bincount(groups, minlength=length).astype(np.float64)


def _groups(domain: Domain, cells: Codes, names: Sequence[str]) -> Codes:
    """Which combination of some columns each cell has, the last column fastest: int64[K]."""
    found = np.zeros(len(cells), dtype=np.int64)
    for name in names:
        found = found * domain[name].size + domain.codes(cells, name)
    return found
