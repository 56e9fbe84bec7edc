"""Tables of counts in a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mechanisms.domain.columns import Codes
from mechanisms.planning.plan import Plan, PlannedProduct
from mechanisms.tables.kind import TABLE
from mechanisms.tables.mechanism import TableMechanism
from tasks.products.counts.figures import ESTIMATES
from tasks.products.counts.product import CountsProduct
from tasks.products.counts.published import PublishedProduct, read_raw


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
        )
