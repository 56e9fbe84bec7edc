"""The columns of published counts, and what no file of them holds."""

from __future__ import annotations

import hashlib
from typing import Any

from numpy.typing import NDArray

from mechanisms.domain.domain import Domain
from mechanisms.postprocessing.simplex import project_to_simplex
from mechanisms.tables.mechanism import RawTable, TableMechanism
from tasks.products.kind import Field, described

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


def figure_fields(mechanism: TableMechanism, names: tuple[str, ...]) -> list[Field]:
    """Some of these columns, as a table schema describes them."""
    known = figures_of(mechanism)
    return described({name: known[name] for name in names})


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


def zeros_by_codes(domain: Domain) -> list[dict[str, list[list[int]]]]:
    """Of each structural zero the runs of codes by column, first and last code of each."""
    return [
        {name: [list(run) for run in runs] for name, runs in zero.sets} for zero in domain.zeros
    ]


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


def not_in_it(domain: Domain) -> str:
    """The same as the description of a file in a data package; may be empty."""
    words = unlisted_in_words(domain)
    return f"Not in it: {words}" if words else ""


def cell_figures(
    mechanism: TableMechanism, drawn: RawTable, *, n_records: int
) -> dict[str, NDArray[Any]]:
    """All columns of a table, post-processed from what was drawn alone.

    Returns:
        By name array[K], of every cell that was drawn or has noise, the absent one included.
    """
    table = mechanism.postprocess(drawn, n_records=n_records)
    projected = table.projected
    if projected is None:
        projected = project_to_simplex(
            table.estimates,
            float(n_records),
            n_cells=drawn.domain.n_possible,
            absent=table.undrawn_estimate,
        ).values
    return {
        **drawn.figures(),
        "estimate": table.estimates,
        "standard_error": table.standard_errors,
        "projected": projected,
    }
