"""The folder of refined tables: its files, and its appearance in one step."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.columns import Codes
from mechanisms.domain.domain import Domain
from mechanisms.errors import BundleExistsError, OutputNotWritableError
from mechanisms.postprocessing.consistency import Floats
from tasks.bundle.manifest import NAME as MANIFEST
from tasks.execution.folders import sync
from tasks.formats.writing import write_cells
from tasks.products.counts.figures import figures_of, not_in_it
from tasks.products.counts.published import PublishedProduct

PROVENANCE = "refinement.json"
ROUNDED = (
    "integer",
    "The projected counts rounded to integers that add up to the public number of records; each "
    "differs from the projected one by less than 1.",
)
ROUNDED_LISTED = (
    "integer",
    "The projected counts rounded to integers that add up to the one nearest to their sum; each "
    "differs from the projected one by less than 1.",
)
CONSISTENT = {
    "estimate": (
        "number",
        "Unbiased estimate of the count, pooled with the other tables of this folder so that all "
        "agree on every marginal they share; may be negative.",
    ),
    "projected": (
        "number",
        "The nearest counts to the estimates that are not negative, agree with the other tables "
        "and add up to the public number of records; for use as a table, not for intervals.",
    ),
}


@dataclass(frozen=True)
class RefinedTable:
    """A refined table: a row per listed cell.

    Attributes:
        product: What it was made of.
        cells: int64[K], ascending.
        figures: Per column beside the domain's its values, array[K].
        rounding: What the rounded figures keep, if there are any.
    """

    product: PublishedProduct
    cells: Codes
    figures: dict[str, NDArray[Any]]
    rounding: str | None = None

    @property
    def domain(self) -> Domain:
        """The product's columns."""
        return self.product.domain

    def dense(self, name: str) -> Floats:
        """A figure on all axes; only of tables that list every cell."""
        return self.figures[name].astype(np.float64).reshape([c.size for c in self.domain.columns])


def write_refined(
    building: Path, tables: Sequence[RefinedTable], facts: Mapping[str, Any], form: str
) -> None:
    """Write data files, their data package and the statement of what was done.

    Args:
        building: An empty folder.
        tables: At least one.
        facts: The statement.
        form: Suffix of the data files.
    """
    (building / "data").mkdir()
    resources = []
    for table in tables:
        rounded = ROUNDED_LISTED if table.domain.absent else ROUNDED
        described = figures_of(table.product.mechanism) | {"rounded": rounded}
        if facts["options"]["consistent"]:
            described |= CONSISTENT
        relative = f"data/{table.product.name}.{form}"
        path = building / relative
        write_cells(table.domain, table.cells, table.figures, path)
        figures = [
            {"name": name, "type": described[name][0], "description": described[name][1]}
            for name in table.figures
        ]
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        resources.append(
            {
                "name": f"{table.product.name}-{form}".lower(),
                "path": relative,
                "format": form,
                **({"description": words} if (words := not_in_it(table.domain)) else {}),
                "bytes": path.stat().st_size,
                "hash": f"sha256:{digest}",
                "schema": {"fields": [*table.product.fields, *figures]},
            }
        )
    package = {
        "profile": "data-package",
        "name": f"refined-{facts['source']['seal'][:12]}",
        "title": f"Refined tables of: {facts['source']['title']}",
        "resources": resources,
    }
    for name, value in ((PROVENANCE, facts), ("datapackage.json", package)):
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
        (building / name).write_text(text + "\n", encoding="utf-8")


def check_place(output: Path, option: str = "--output") -> None:
    """Refuse a place that is taken, or inside a bundle, which would no longer verify."""
    if os.path.lexists(output):
        raise BundleExistsError(
            "There is something at this place.",
            where=str(output),
            next_step=f"Choose another {option}; nothing is ever overwritten.",
        )
    real = output.resolve()
    if any((part / MANIFEST).exists() for part in real.parents):
        raise OutputNotWritableError(
            "The output lies inside a bundle, which would no longer verify.",
            where=str(output),
            next_step=f"Choose an {option} beside the bundle.",
        )


@contextmanager
def appearing(output: Path, option: str = "--output") -> Iterator[Path]:
    """A hidden folder beside the output that takes its place once it is whole."""
    next_step = f"Choose another {option}, or mend its permissions or free space."
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=".refining-", dir=output.parent))
        try:
            yield building
            for path in (*building.rglob("*"), building):
                path.chmod(0o755 if path.is_dir() else 0o644)
                sync(path)
            check_place(output, option)
            building.rename(output)
            sync(output.parent)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    except OSError as error:
        raise OutputNotWritableError(
            f"The output cannot be written ({error.strerror}).",
            where=str(output),
            next_step=next_step,
        ) from None
