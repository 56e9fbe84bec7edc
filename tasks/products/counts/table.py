"""Tables of counts in a bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mechanisms.domain.columns import Codes
from mechanisms.planning.plan import Plan, PlannedProduct
from mechanisms.tables.band_laws import LIMITS, bands_of
from mechanisms.tables.bands import BandKnobs, facts, knobs_from
from mechanisms.tables.kind import TABLE
from mechanisms.tables.mechanism import RawTable, TableMechanism
from tasks.formats.writing import Progress
from tasks.pages.blocks import Prose, Section
from tasks.products.counts.bands import (
    band_advice,
    band_blocks,
    band_forms,
    band_note,
    profile_band,
    stem_of,
    write_band,
)
from tasks.products.counts.figures import ESTIMATES
from tasks.products.counts.part import table_blocks, table_of
from tasks.products.counts.product import Counted, CountsProduct, DerivedCounts
from tasks.products.counts.published import PublishedProduct, read_raw
from tasks.products.counts.true_errors import with_bands
from tasks.products.kind import ReportPart, TableForm
from tasks.products.true_errors import TrueErrors


class Table(CountsProduct):
    """A row for each listed cell: what was released, and its estimates."""

    core = TABLE

    def figures(self, name: str, mechanism: TableMechanism) -> dict[str, tuple[str, ...]]:
        return {name: (*mechanism.raw, *ESTIMATES)}

    def most_rows(self, product: PlannedProduct[TableMechanism]) -> int:
        most = product.mechanism.rows(n_cells=product.domain.n_possible)
        return min(most, product.domain.n_listed)

    def read(self, path: Path, product: PublishedProduct) -> tuple[Codes, dict[str, Codes]]:
        return read_raw(path, product)

    def recognised(self, name: str, suffix: str, resources: Mapping[str, Any]) -> bool:
        """Whether the bundle has a file with raw counts."""
        fields = resources[f"data/{name}.{suffix}"]["schema"]["fields"]
        return "raw" in [field["name"] for field in fields if "declared" not in field]

    def advice(self, product: PlannedProduct[TableMechanism], plan: Plan) -> str:
        return (
            f"- `{product.name}`: a table of {self.cells_in_words(product.domain)} by the "
            f"mechanism `{product.mechanism.name}`; {self.typical_error(product, plan)} Use "
            "`estimate` with its standard error, or `projected` as a table of counts."
            f"{band_advice(product.name, product.further)}"
        )

    def postprocess(self, product: Counted, raw: RawTable, n_records: int) -> DerivedCounts:
        derived = super().postprocess(product, raw, n_records)
        if product.further is None:
            return derived
        asked: BandKnobs = product.further
        found = bands_of(product.mechanism, raw, asked.bands, asked.confidence, n_records=n_records)
        named = {stem_of(product.name, band): columns for band, columns in found.items()}
        return replace(derived, bands=named)

    def forms(self, product: Counted) -> list[TableForm]:
        bands = band_forms(product.name, product.domain, product.further)
        return [*super().forms(product), *bands]

    def write_table(
        self, form: TableForm, product: Counted, derived: DerivedCounts, path: Path,
        advance: Progress,
    ) -> None:  # fmt: skip
        if form.stem in derived.bands:
            write_band(product.domain, derived.bands[form.stem], path, form.fields)
        else:
            super().write_table(form, product, derived, path, advance)

    def rows(
        self, form: TableForm, product: PlannedProduct[TableMechanism], derived: DerivedCounts
    ) -> int:
        if form.stem in derived.bands:
            return product.domain.n_possible
        return super().rows(form, product, derived)

    def profile_table(
        self,
        form: TableForm,
        product: PlannedProduct[TableMechanism],
        derived: DerivedCounts,
        path: Path,
    ) -> dict[str, int]:
        if form.stem in derived.bands:
            return profile_band(path, product.domain, product.target.n_records)
        return super().profile_table(form, product, derived, path)

    def size(self, product: PlannedProduct[TableMechanism]) -> int:
        bands = len(product.further.bands) if product.further else 0
        columns = len(product.domain.columns) + len(LIMITS)
        return super().size(product) + bands * product.domain.n_possible * columns

    def declared(self, product: PlannedProduct[TableMechanism]) -> dict[str, Any]:
        """Which bands there are."""
        return dict(facts(product.further)) if product.further else {}

    def stated(self, product: PlannedProduct[TableMechanism], raw: RawTable) -> dict[str, Any]:
        """The same as of any counts, and which bands there are."""
        return {**super().stated(product, raw), **self.declared(product)}

    def published(
        self, folder: Path, name: str, stated: Mapping[str, Any], resources: Mapping[str, Any]
    ) -> PublishedProduct | None:
        found = super().published(folder, name, stated, resources)
        return found and replace(found, further=knobs_from(stated))

    def true_errors(
        self, product: PlannedProduct[TableMechanism], derived: DerivedCounts, private: Any
    ) -> TrueErrors:
        """The same as of any counts, and whether the bands hold."""
        found = super().true_errors(product, derived, private)
        return with_bands(found, derived.bands, private, product.further)

    def notes(self, products: Sequence[PlannedProduct[TableMechanism]]) -> list[str]:
        """What no file holds, and what bands are."""
        wanted = any(product.further and product.further.bands for product in products)
        return super().notes(products) + band_note(wanted)

    def part(
        self, folder: Path, name: str, stated: Mapping[str, Any],
        resources: Sequence[Mapping[str, Any]],
    ) -> ReportPart:  # fmt: skip
        """The cells, and the bands if there are any."""
        table = table_of(folder, name, stated, resources)
        anchor, words = f"product-{name}", "table of counts"
        lead = Prose(
            [
                "Use the column estimate, with its standard error, for what you say of a cell; "
                "the column projected, where no count is negative and all add up to the number of "
                "records, where a whole table is needed."
            ]
        )
        if table is None:
            return ReportPart(words, Section(anchor, name, [lead]))
        blocks, figure = table_blocks(table)
        bands = band_blocks(folder, name, stated, resources)
        parts = [Section(f"{anchor}-bands", "Bands", bands)] if bands else []
        return ReportPart(words, Section(anchor, name, [lead, *blocks], parts), figure)
