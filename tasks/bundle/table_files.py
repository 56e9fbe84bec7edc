"""The files of tables and microdata: what they hold, and how they are written."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs.loading import describe_column
from configs.release import PublishConfig
from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.domain.domain import Domain
from mechanisms.errors import ConfigError
from mechanisms.planning.plan import Plan, PlannedProduct
from mechanisms.postprocessing.simplex import project_to_simplex
from mechanisms.tables.mechanism import RawTable, TableMechanism, table_mechanism
from tasks.formats.profile import profile_file
from tasks.formats.writing import Progress, write_cells, write_records

LISTED_CELLS = 10_000
"""Cells of a column up to which they are listed in full."""

_READ_UNLISTED = (
    "Each product in `privacy.json` states what no file holds. `structural_zeros`: of each "
    "pattern the codes of every column that it names, from first to last; a value's code is its "
    "place, from 0, among the column's declared cells, then `other`, then null. `absent`: how "
    "many absent records the mechanism gave, with its noise if it adds any."
)

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

_ESTIMATES = ("estimate", "standard_error", "projected")


@dataclass(frozen=True)
class ProductFile:
    """One file of a product, in every declared format.

    Attributes:
        stem: Its name without suffix.
        rows: Number of rows it will have.
        write: Writes it to a path.
        figures: Names of the columns beside the domain's.
    """

    stem: str
    rows: int
    write: Callable[[Path, Progress], None] = field(repr=False)
    figures: tuple[str, ...] = ()


def file_forms(product: PlannedProduct) -> dict[str, tuple[str, ...]]:
    """The stems of a product's files, and the columns of each beside the domain's."""
    mechanism = table_mechanism(product.mechanism)
    return forms_of(product.request.name, product.request.kind, mechanism)


def forms_of(name: str, kind: str, mechanism: TableMechanism) -> dict[str, tuple[str, ...]]:
    """The same of a product of this name and kind."""
    if kind == "microdata":
        beside = "debiased" if mechanism.unbiased else "estimates"
        return {name: (), f"{name}_{beside}": _ESTIMATES}
    return {name: (*mechanism.raw, *_ESTIMATES)}


def figures_of(mechanism: TableMechanism) -> dict[str, tuple[str, str]]:
    """Type and description of the columns beside the domain's."""
    return FIGURES if mechanism.unbiased else FIGURES | BIASED


def product_files(product: PlannedProduct, drawn: RawTable, plan: Plan) -> list[ProductFile]:
    """The files of a drawn product; everything in them is post-processing of the draw."""
    files = []
    # Computed when the first file is written, once; whoever only checks the files needs none.
    values = functools.cache(
        lambda: cell_figures(
            table_mechanism(product.mechanism), drawn, n_records=plan.privacy.n_records
        )
    )
    listed = n_listed(drawn)
    for stem, figures in file_forms(product).items():
        if figures:
            write = _cells(drawn, listed, values, figures)
            files.append(ProductFile(stem, listed, write, figures))
        else:
            left_out = int(drawn.counts[listed:].sum())
            files.append(ProductFile(stem, product.rows - left_out, _records(drawn)))
    return files


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
        "structural_zeros": [
            {name: [list(run) for run in runs] for name, runs in zero.sets} for zero in domain.zeros
        ],
        "absent": absent if domain.absent else None,
    }


def unlisted_in_words(domain: Domain) -> str:
    """Which records and combinations of values a domain's files do not hold; may be empty."""
    words = []
    if domain.zeros:
        words.append("Combinations of values that no record can have (structural zeros).")
    if domain.absent:
        words.append(
            "Absent records, which units do not have: every unit counts for the same number of "
            "records, and one with fewer is filled up with absent ones, which have no values. "
            "What is listed adds up to the public number of records only together with these."
        )
    return " ".join(words)


def not_in_it(domain: Domain) -> dict[str, str]:
    """The same as the description of a file in a data package."""
    words = unlisted_in_words(domain)
    return {"description": f"Not in it: {words}"} if words else {}


def reading_advice(product: PlannedProduct, plan: Plan) -> str:
    """What a reader of the bundle has to know of a product, in one list item."""
    name, error = product.request.name, product.expected_error
    cells = f"{product.domain.n_listed:,} {'possible ' * bool(product.domain.zeros)}cells"
    uniform = error.uniform_share
    typical = f"typical standard error {error.cell_sd_average:,.1f} records."
    if not table_mechanism(product.mechanism).unbiased:
        typical += " Its estimates have a bias besides, which depends on the data."
    if "records" in product.mechanism.describe():  # it lists the cells that it drew
        absent = plan.privacy.n_records * uniform / (1 - uniform) / product.domain.n_possible
        estimate = f"minus {absent:,.4g}" if uniform else "0"
        typical += f" A cell not listed was not drawn: its estimate is {estimate}."
    if product.request.kind == "microdata":
        _, table = file_forms(product)
        part = f"; {uniform:.0%} of them are uniform over the cells" if uniform else ""
        without = ", which removes those" if uniform else ""
        return (
            f"- `{name}`: {product.rows:,} synthetic records over {cells}{part}. "
            f"{_padded(product)}For counts use `{table}`{without}: {typical}"
        )
    return (
        f"- `{name}`: a table of {cells} by the mechanism `{product.mechanism.name}`; {typical} "
        "Use `estimate` with its standard error, or `projected` as a table of counts."
    )


def _padded(product: PlannedProduct) -> str:
    if not product.domain.absent:
        return ""
    return (
        "Those that stand for records which a unit does not have are left out, so the file has "
        "fewer rows. "
    )


def cell_figures(
    mechanism: TableMechanism, drawn: RawTable, *, n_records: int
) -> dict[str, NDArray[Any]]:
    """All columns of a table of the listed cells, post-processed from what was drawn alone."""
    table = mechanism.postprocess(drawn, n_records=n_records)
    projected = table.projected
    if projected is None:
        projected = project_to_simplex(
            table.estimates,
            float(n_records),
            n_cells=drawn.domain.n_possible,
            absent=table.undrawn_estimate,
        ).values
    figures = {
        **drawn.figures(),
        "estimate": table.estimates,
        "standard_error": table.standard_errors,
        "projected": projected,
    }
    return {name: values[: n_listed(drawn)] for name, values in figures.items()}


def _records(drawn: Any) -> Callable[[Path, Progress], None]:
    return lambda path, progress: write_records(drawn.without_absent(), path, progress)


def _cells(
    drawn: RawTable,
    listed: int,
    values: Callable[[], Mapping[str, NDArray[Any]]],
    figures: tuple[str, ...],
) -> Callable[[Path, Progress], None]:
    def write(path: Path, progress: Progress) -> None:
        chosen = {name: values()[name] for name in figures}
        write_cells(drawn.domain, drawn.cells[:listed], chosen, path)

    return write


class TableFiles:
    """Tables and microdata in the folder of a bundle."""

    def values(self, product: PlannedProduct) -> int:
        """Rows times columns, those of the estimates included."""
        return product.rows * (len(product.domain.columns) + 4)

    def rehearse(self, folder: Path, product: PlannedProduct, publish: PublishConfig) -> None:
        """Write and read back a table with every declared value.

        Raises:
            ConfigError: A value does not come back as it was written.
        """
        domain = Domain(product.domain.columns)  # every value, in whatever combination
        rows = np.arange(min(max(column.size for column in domain.columns), LISTED_CELLS))
        codes = {column.name: rows % column.size for column in domain.columns}
        cells, counts = np.unique(domain.encode(codes), return_counts=True)
        table = ContingencyTable(domain, cells, counts)
        for suffix in publish.formats:
            path = folder / f"rehearsal.{suffix}"
            write_records(table, path)
            found = profile_file(path, domain)
            path.unlink()
            if found.pop("rows") != len(rows) or any(found.values()):
                raise ConfigError(
                    f"A declared value cannot be written to {suffix} and read back.",
                    where=f"products.{product.request.name}",
                )

    def write(
        self,
        folder: Path,
        product: PlannedProduct,
        drawn: Any,
        plan: Plan,
        publish: PublishConfig,
        advance: Progress,
    ) -> None:
        """Records or counts, with the estimates."""
        for file in product_files(product, drawn, plan):
            for suffix in publish.formats:
                file.write(folder / "data" / f"{file.stem}.{suffix}", advance)

    def profile(
        self,
        folder: Path,
        product: PlannedProduct,
        drawn: Any,
        plan: Plan,
        publish: PublishConfig,
    ) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
        """Names, types, rows, and values outside the domain, as written."""
        profiles, rows = {}, {}
        for file in product_files(product, drawn, plan):
            for suffix in publish.formats:
                path = folder / "data" / f"{file.stem}.{suffix}"
                profiles[path.name] = profile_file(path, product.domain, file.figures)
                rows[path.name] = file.rows
        return profiles, rows

    def resources(self, product: PlannedProduct, publish: PublishConfig) -> list[dict[str, Any]]:
        """A resource per file, with schema and codebook."""
        fields = [_field(product, name) for name in product.domain.names]
        described = figures_of(table_mechanism(product.mechanism))
        found = []
        for suffix in publish.formats:
            for stem, figures in file_forms(product).items():
                extra = [
                    {"name": name, "type": described[name][0], "description": described[name][1]}
                    for name in figures
                ]
                found.append(
                    {
                        "name": f"{stem}-{suffix}".lower(),
                        "path": f"data/{stem}.{suffix}",
                        "format": suffix,
                        **not_in_it(product.domain),
                        "schema": {"fields": fields + extra},
                    }
                )
        return found

    def stated(self, product: PlannedProduct, drawn: Any) -> dict[str, Any]:
        """Whether estimates are right on average, what no file holds, and what was drawn."""
        return {
            "unbiased": table_mechanism(product.mechanism).unbiased,
            **unlisted(drawn),
            "raw_sha256": raw_digest(drawn),
        }

    def advice(self, product: PlannedProduct, plan: Plan) -> str:
        """What the files are for, and how far off they are."""
        return reading_advice(product, plan)

    def notes(self, products: Sequence[PlannedProduct]) -> list[str]:
        """What no file holds."""
        words = max((unlisted_in_words(product.domain) for product in products), key=len)
        return [f"**Not in any file.** {words} {_READ_UNLISTED}"] if words else []


def _field(product: PlannedProduct, name: str) -> dict[str, Any]:
    """A column with its declaration and, if short enough, its codebook."""
    column = product.domain[name]
    values = column.decode(np.arange(min(column.size, LISTED_CELLS) - column.missing))
    types = {"i": "integer", "f": "number", "b": "boolean"}
    kind = types.get(np.asarray(values.tolist()).dtype.kind, "string")
    field: dict[str, Any] = {"name": name, "type": kind, "declared": describe_column(column)}
    if column.size <= LISTED_CELLS:
        field["constraints"] = {"enum": values.tolist(), "required": not column.missing}
    return field
