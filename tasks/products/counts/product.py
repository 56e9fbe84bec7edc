"""What microdata and tables have in common in a bundle."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.columns import Codes
from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.domain.domain import Domain
from mechanisms.errors import ConfigError
from mechanisms.planning.plan import Plan, PlannedProduct
from mechanisms.tables.mechanism import RawTable, TableMechanism, drawn_records
from tasks.formats.profile import profile_file
from tasks.formats.writing import Progress, write_cells, write_records
from tasks.products.counts.fields import LISTED_CELLS, column_field
from tasks.products.counts.figures import (
    cell_figures,
    figure_fields,
    n_listed,
    not_in_it,
    raw_digest,
    unlisted,
    unlisted_in_words,
)
from tasks.products.counts.published import PublishedProduct, published_product
from tasks.products.counts.true_errors import counts_errors
from tasks.products.kind import ProductKind, TableForm
from tasks.products.true_errors import TrueErrors
from tasks.products.working_memory import WorkingMemory, of_cells

if TYPE_CHECKING:
    from configs.models.release import PublishConfig

Counted = PlannedProduct[TableMechanism] | PublishedProduct
"""A product of counts, planned or read back from a bundle."""

_READ_UNLISTED = (
    "Each product in `privacy.json` states what no file holds. `structural_zeros`: of each "
    "pattern the codes of every column that it names, from first to last; a value's code is its "
    "place, from 0, among the column's declared cells, then `other`, then null. `absent`: how "
    "many absent records the mechanism gave, with its noise if it adds any."
)


@dataclass(frozen=True)
class DerivedCounts:
    """What was released, with the figures that follow from it.

    Attributes:
        raw: As released.
        figures: Columns array[K] of the listed cells, by name.
        records: int64, how many records microdata have in each cell of ``raw``.
        bands: By stem of a file the columns array[n_possible] of a confidence band.
    """

    raw: RawTable
    figures: Mapping[str, NDArray[Any]]
    records: Codes | None = None
    bands: Mapping[str, Mapping[str, NDArray[Any]]] = field(default_factory=dict)

    @property
    def listed(self) -> int:
        """K, the number of cells that a table lists."""
        return n_listed(self.raw)


class CountsProduct(ProductKind[TableMechanism, RawTable, DerivedCounts]):
    """Counts of cells: records to be expanded, or rows of a table."""

    @property
    def family(self) -> str:
        return "counts"

    @abstractmethod
    def figures(self, name: str, mechanism: TableMechanism) -> dict[str, tuple[str, ...]]:
        """By the stem of each file its columns besides those of the domain; none for records."""

    def records(
        self, mechanism: TableMechanism, figures: Mapping[str, NDArray[Any]], n_records: int
    ) -> Codes | None:
        """How many records microdata have in each cell, int64[K], of the columns of all cells."""
        del mechanism, figures, n_records
        return None

    def stem_of_raw(self, name: str, mechanism: TableMechanism) -> str:
        """Stem of the file from which what was released is read back."""
        del mechanism
        return name

    @abstractmethod
    def most_rows(self, product: PlannedProduct[TableMechanism]) -> int:
        """Rows of the main file, at most."""

    @abstractmethod
    def recognised(self, name: str, suffix: str, resources: Mapping[str, Any]) -> bool:
        """Whether the files of a bundle have what a product of this kind and name is read from."""

    @abstractmethod
    def read(self, path: Path, product: PublishedProduct) -> tuple[Codes, dict[str, Codes]]:
        """Read back from the main file what was released.

        Returns:
            Cells int64[K], ascending, and the raw columns int64[K] by name.

        Raises:
            ValueError: The file does not hold it.
        """

    def postprocess(self, product: Counted, raw: RawTable, n_records: int) -> DerivedCounts:
        figures, listed = cell_figures(product.mechanism, raw, n_records=n_records), n_listed(raw)
        return DerivedCounts(
            raw,
            {name: values[:listed] for name, values in figures.items()},
            self.records(product.mechanism, figures, n_records),
        )

    def forms(self, product: Counted) -> list[TableForm]:
        columns = [column_field(column) for column in product.domain.columns]
        words = not_in_it(product.domain)
        mechanism = product.mechanism
        return [
            TableForm(
                stem,
                columns + figure_fields(mechanism, names),
                words,
                "estimated counts with standard errors" if names else "synthetic records",
            )
            for stem, names in self.figures(product.name, mechanism).items()
        ]

    def write_table(
        self,
        form: TableForm,
        product: Counted,
        derived: DerivedCounts,
        path: Path,
        advance: Progress,
    ) -> None:
        names = self.figures(product.name, product.mechanism)[form.stem]
        raw, listed = derived.raw, derived.listed
        if names:
            figures = {name: derived.figures[name] for name in names}
            write_cells(product.domain, raw.cells[:listed], figures, path, form.fields)
        else:
            assert derived.records is not None
            there = np.flatnonzero(derived.records[:listed])
            records = ContingencyTable(product.domain, raw.cells[there], derived.records[there])
            write_records(records, path, advance, form.fields)

    def rows(
        self, form: TableForm, product: PlannedProduct[TableMechanism], derived: DerivedCounts
    ) -> int:
        if self.figures(product.name, product.mechanism)[form.stem]:
            return derived.listed
        assert derived.records is not None
        return self.most_rows(product) - int(derived.records[derived.listed :].sum())

    def profile_table(
        self,
        form: TableForm,
        product: PlannedProduct[TableMechanism],
        derived: DerivedCounts,
        path: Path,
    ) -> dict[str, int]:
        names = self.figures(product.name, product.mechanism)[form.stem]
        return profile_file(path, product.domain, names)

    def size(self, product: PlannedProduct[TableMechanism]) -> int:
        return self.most_rows(product) * (len(product.domain.columns) + 4)

    def working_memory(self, product: PlannedProduct[TableMechanism]) -> WorkingMemory:
        """By the cells that are occupied or listed, and the rows that are written."""
        domain, n_records = product.domain, product.target.n_records
        listed = product.mechanism.rows(n_cells=domain.n_possible)
        cells = max(min(domain.n_possible, n_records), listed)
        bands = product.further is not None
        rows = max(self.most_rows(product), cells)
        step = "Use fewer columns or cells in the product."
        return of_cells(cells * (1 + bands), domain.columns, rows, step)

    def rehearse(
        self, folder: Path, product: PlannedProduct[TableMechanism], publish: PublishConfig
    ) -> None:
        """Write and read back a table with every declared value.

        Raises:
            ConfigError: A value does not come back as it was written.
        """
        domain = Domain(product.domain.columns)  # every value, in whatever combination
        rows = np.arange(min(max(column.size for column in domain.columns), LISTED_CELLS))
        codes = {column.name: rows % column.size for column in domain.columns}
        cells, counts = np.unique(domain.encode(codes), return_counts=True)
        table = ContingencyTable(domain, cells, counts)
        fields = self.forms(product)[0].fields
        for suffix in publish.formats:
            path = folder / f"rehearsal.{suffix}"
            write_records(table, path, fields=fields)
            found = profile_file(path, domain)
            path.unlink()
            if found.pop("rows") != len(rows) or any(found.values()):
                raise ConfigError(
                    f"A declared value cannot be written to {suffix} and read back.",
                    where=f"products.{product.name}",
                )

    def stated(self, product: PlannedProduct[TableMechanism], raw: RawTable) -> dict[str, Any]:
        """Whether estimates are right on average, what no file holds, and what was drawn."""
        return {
            "unbiased": product.mechanism.unbiased,
            **unlisted(raw),
            "raw_sha256": raw_digest(raw),
        }

    def published(
        self, folder: Path, name: str, stated: Mapping[str, Any], resources: Mapping[str, Any]
    ) -> PublishedProduct | None:
        return published_product(self, folder, name, stated, resources)

    def typical_error(self, product: PlannedProduct[TableMechanism], plan: Plan) -> str:
        """How far off an estimate is, in a sentence or two."""
        error = product.expected_error
        uniform = error.uniform_share
        typical = f"typical standard error {error.cell_sd_average:,.1f} records."
        if not product.mechanism.unbiased:
            typical += " Its estimates have a bias besides, which depends on the data."
        if drawn_records(product.mechanism) is not None:  # it lists the cells that it drew
            absent = plan.privacy.n_records * uniform / (1 - uniform) / product.domain.n_possible
            estimate = f"minus {absent:,.4g}" if uniform else "0"
            typical += f" A cell not listed was not drawn: its estimate is {estimate}."
        return typical

    def cells_in_words(self, domain: Domain) -> str:
        """How many cells there are."""
        return f"{domain.n_listed:,} {'possible ' * bool(domain.zeros)}cells"

    def true_errors(
        self, product: PlannedProduct[TableMechanism], derived: DerivedCounts, private: Any
    ) -> TrueErrors:
        """Of columns, pairs and cells."""
        return counts_errors(product, derived, private)

    def notes(self, products: Sequence[PlannedProduct[TableMechanism]]) -> list[str]:
        """What no file holds."""
        words = max((unlisted_in_words(product.domain) for product in products), key=len)
        return [f"**Not in any file.** {words} {_READ_UNLISTED}"] if words else []
