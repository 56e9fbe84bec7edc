"""Microdata in a bundle: synthetic records, with a table of estimated counts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mechanisms.domain.columns import Codes
from mechanisms.planning.plan import Plan, PlannedProduct
from mechanisms.tables.kind import MICRODATA
from mechanisms.tables.mechanism import TableMechanism
from tasks.formats.reading import read_records
from tasks.products.counts.figures import ESTIMATES
from tasks.products.counts.product import CountsProduct
from tasks.products.counts.published import PublishedProduct

_UNBIASED, _BIASED = "debiased", "estimates"


class Microdata(CountsProduct):
    """A row for each record, and a table of the cells that were drawn."""

    core = MICRODATA

    def figures(self, name: str, mechanism: TableMechanism) -> dict[str, tuple[str, ...]]:
        table = _UNBIASED if mechanism.unbiased else _BIASED
        return {name: (), f"{name}_{table}": ESTIMATES}

    def most_rows(self, product: PlannedProduct[TableMechanism]) -> int:
        return int(product.mechanism.describe()["records"])

    def read(self, path: Path, product: PublishedProduct) -> tuple[Codes, dict[str, Codes]]:
        cells, counts = read_records(path, product.domain)
        return cells, {"raw": counts}

    def recognised(self, name: str, suffix: str, resources: Mapping[str, Any]) -> bool:
        """Whether the bundle has the table of estimates that goes with microdata."""
        tables = {f"data/{name}_{part}.{suffix}" for part in (_UNBIASED, _BIASED)}
        return bool(tables & resources.keys())

    def advice(self, product: PlannedProduct[TableMechanism], plan: Plan) -> str:
        _, table = self.figures(product.name, product.mechanism)
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
            f"{self.cells_in_words(product.domain)}{part}. {padded}For counts use "
            f"`{table}`{without}: {self.typical_error(product, plan)}"
        )
