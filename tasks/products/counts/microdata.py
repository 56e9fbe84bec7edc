"""Microdata in a bundle: synthetic records, with a table of estimated counts.

A mechanism that draws records publishes them as they were drawn. From noisy counts of every cell
the records follow: the projected counts are rounded to as many whole records as the source has,
and what was released is read back from the table, which has the noisy counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from mechanisms.domain.columns import Codes
from mechanisms.planning.plan import Plan, PlannedProduct
from mechanisms.postprocessing.rounding import round_systematically
from mechanisms.tables.kind import MICRODATA
from mechanisms.tables.mechanism import TableMechanism, drawn_records
from tasks.formats.reading import read_records
from tasks.pages.blocks import Prose, Section
from tasks.products.counts.figures import ESTIMATES
from tasks.products.counts.part import microdata_parts, table_of
from tasks.products.counts.product import CountsProduct
from tasks.products.counts.published import PublishedProduct, read_raw
from tasks.products.kind import ReportPart

_UNBIASED, _BIASED, _NOISY = "debiased", "estimates", "table"
_FROM_NOISE = ", rounded from counts with noise by the mechanism `{}`"


class Microdata(CountsProduct):
    """A row for each record, and a table of the cells that were drawn or have noise."""

    core = MICRODATA

    def figures(self, name: str, mechanism: TableMechanism) -> dict[str, tuple[str, ...]]:
        if drawn_records(mechanism) is None:
            return {name: (), f"{name}_{_NOISY}": (*mechanism.raw, *ESTIMATES)}
        table = _UNBIASED if mechanism.unbiased else _BIASED
        return {name: (), f"{name}_{table}": ESTIMATES}

    def records(
        self, mechanism: TableMechanism, figures: Mapping[str, NDArray[Any]], n_records: int
    ) -> Codes:
        drawn: Codes = figures["raw"]
        if drawn_records(mechanism) is not None:
            return drawn
        return round_systematically(figures["projected"], n_records)

    def stem_of_raw(self, name: str, mechanism: TableMechanism) -> str:
        return name if drawn_records(mechanism) is not None else f"{name}_{_NOISY}"

    def most_rows(self, product: PlannedProduct[TableMechanism]) -> int:
        drawn = drawn_records(product.mechanism)
        return product.target.n_records if drawn is None else drawn

    def size(self, product: PlannedProduct[TableMechanism]) -> int:
        columns = len(product.domain.columns)
        if drawn_records(product.mechanism) is not None:
            return super().size(product)
        table = product.domain.n_listed * (columns + len(product.mechanism.raw) + len(ESTIMATES))
        return self.most_rows(product) * columns + table

    def read(self, path: Path, product: PublishedProduct) -> tuple[Codes, dict[str, Codes]]:
        if drawn_records(product.mechanism) is None:
            return read_raw(path, product)
        cells, counts = read_records(path, product.domain)
        return cells, {"raw": counts}

    def recognised(self, name: str, suffix: str, resources: Mapping[str, Any]) -> bool:
        """Whether the bundle has the table of estimates that goes with microdata."""
        parts = (_UNBIASED, _BIASED, _NOISY)
        tables = {f"data/{name}_{part}.{suffix}" for part in parts}
        return bool(tables & resources.keys())

    def advice(self, product: PlannedProduct[TableMechanism], plan: Plan) -> str:
        _, table = self.figures(product.name, product.mechanism)
        noisy = drawn_records(product.mechanism) is None
        uniform = product.expected_error.uniform_share
        part = f"; {uniform:.0%} of them are uniform over the cells" if uniform else ""
        without = ", which removes those" if uniform else ""
        padded = ""
        if product.domain.absent:
            padded = (
                "Those that stand for records which a unit does not have are left out, so the "
                "file has fewer rows. "
            )
        return (
            f"- `{product.name}`: {self.most_rows(product):,} synthetic records over "
            f"{self.cells_in_words(product.domain)}{part}"
            f"{_FROM_NOISE.format(product.mechanism.name) if noisy else ''}. {padded}For counts "
            f"use `{table}`{without}: {self.typical_error(product, plan)}"
        )

    def part(
        self, folder: Path, name: str, stated: Mapping[str, Any],
        resources: Sequence[Mapping[str, Any]],
    ) -> ReportPart:  # fmt: skip
        """The columns and the pairs, from the table of estimates."""
        stems = (f"{name}_{each}" for each in (_UNBIASED, _BIASED, _NOISY))
        found = (table_of(folder, stem, stated, resources) for stem in stems)
        table = next((each for each in found if each is not None), None)
        anchor = f"product-{name}"
        lead = Prose(
            [
                "Records of no real person: a new sample, drawn from the confidential table with "
                "noise. Use them as you would use microdata; take figures that have to be sure, "
                "with their errors, from the table of estimates beside them."
            ]
        )
        if table is None:
            return ReportPart("synthetic records", Section(anchor, name, [lead]))
        parts, figure = microdata_parts(anchor, table)
        return ReportPart("synthetic records", Section(anchor, name, [lead], parts), figure)
