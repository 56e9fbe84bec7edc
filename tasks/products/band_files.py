"""The files of a table's confidence bands, and their part of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.planning.plan import PlannedProduct
from statpress.mechanisms.tables.bands import LIMITS, BandKnobs
from statpress.mechanisms.tables.count_tables import TableMechanism
from statpress.tasks.bundle.file_formats import read_batches, written_file
from statpress.tasks.bundle.rows import cell_rows, read_figures
from statpress.tasks.pages.blocks import Block, Chart, Gallery, Grid, Intervals, Prose
from statpress.tasks.pages.numbers import interval, measured, share
from statpress.tasks.products.distributions import cell_names
from statpress.tasks.products.publication import DataTable, column_field, column_from, described
from statpress.tasks.products.published_counts import PublishedProduct, n_records_of

_ROWS = 20
_OF = {"cells": "", "cumulative": ", this one and those before it together"}
_WORDS = {
    "count_lower": ("integer", "Least number of the records that were counted{}."),
    "count_upper": ("integer", "Largest number of them{}."),
    "share_lower": ("number", "Least share in the law that the records are draws of{}."),
    "share_upper": ("number", "Largest share{}."),
}
_TITLES = {
    "cells": "Band of the cells",
    "cumulative": "Band of the distribution function: each cell with those before it",
}
_EXPLAINED = (
    "A band limits all rows at once. With probability {} not one of its limits is wrong, while of "
    "the 95 % whiskers of single cells about one in twenty is.",
    "It says two different things. The limits in records are about the confidential records that "
    "were counted: use them for statements about the file. The shares are about the population of "
    "which these records are a sample (the files call it the law of the records): use them for "
    "statements about the population. They are wider, since a sample errs too.",
)


def stem_of(name: str, band: str) -> str:
    """Stem of the files of a product's band."""
    return f"{name}_{band}_band"


def band_tables(
    product: PlannedProduct[TableMechanism] | PublishedProduct,
    knobs: BandKnobs | None,
    bands: Mapping[str, Mapping[str, NDArray[Any]]],
) -> list[DataTable]:
    """The tables of a product's bands, of each a row for every possible cell, in order."""
    domain, tables = product.domain, []
    if knobs is None:
        return []
    for band in knobs.bands:
        figures = {name: (kind, words.format(_OF[band])) for name, (kind, words) in _WORDS.items()}
        table = DataTable(
            stem=stem_of(product.name, band),
            fields=[*map(column_field, domain.columns), *described(figures)],
            title=_TITLES[band].partition(",")[0].partition(":")[0].lower(),
            description=(
                "Confidence band: the limits of counts hold for all rows at once with "
                f"probability {knobs.confidence:g} or more, and so do those of shares, whatever "
                "the records are."
            ),
            most_rows=domain.n_possible,
            domain=domain,
            check=partial(_limits_out_of_order, product),
        )
        if band in bands:
            rows = cell_rows(domain, domain.possible_cells(), bands[band])
            table = replace(table, expected=domain.n_possible, rows=rows)
        tables.append(table)
    return tables


def _limits_out_of_order(
    product: PlannedProduct[TableMechanism] | PublishedProduct, path: Path
) -> dict[str, int]:
    """Limits of a written band that cannot be."""
    n_records, wrong = n_records_of(product), 0
    for batch in read_batches(path, None):
        limits = [batch.column(name).to_numpy(zero_copy_only=False) for name in LIMITS]
        for (low, high), most in ((limits[:2], n_records), (limits[2:], 1)):
            in_order = (low >= 0) & (low <= high) & (high <= most)
            wrong += int(np.count_nonzero(~in_order))
    return {"limits out of order": wrong}


def band_blocks(
    folder: Path, name: str, stated: Mapping[str, Any], resources: Sequence[Mapping[str, Any]]
) -> list[Block]:
    """The bands of a product as charts with their limits; none where there are none."""
    charts = []
    for band, title in _TITLES.items():
        path = written_file(folder, stem_of(name, band))
        if path is None:
            continue
        own = next(each for each in resources if each["path"] == f"data/{path.name}")
        fields = [each for each in own["schema"]["fields"] if "declared" in each]
        domain = Domain(tuple(column_from(each["declared"]) for each in fields))
        cells, limits = read_figures(path, domain, LIMITS)
        rows = np.arange(len(cells))
        if len(rows) > _ROWS:
            rows = np.linspace(0, len(cells) - 1, _ROWS).round().astype(np.int64)
            if band == "cells":
                rows = np.argsort(-limits[2], kind="stable")[:_ROWS]
        charts.append(_chart(title, domain, fields, cells[rows], [each[rows] for each in limits]))
        if len(rows) < len(cells):
            note = f"{len(rows)} of {len(cells):,} rows; all are in data/{stem_of(name, band)}."
            charts[-1] = replace(charts[-1], note=note)
    if not charts:
        return []
    said = [text.format(measured(stated["confidence"])) for text in _EXPLAINED]
    return [Prose(said), Gallery(charts)]


def _chart(
    title: str, domain: Domain, fields: Sequence[Mapping[str, Any]], cells: Codes,
    limits: Sequence[NDArray[np.float64]],
) -> Chart:  # fmt: skip
    """A band as intervals of the records that were counted, with all limits as figures."""
    named = [
        [cell_names(column, field)[code] for code in domain.codes(cells, column.name)]
        for column, field in zip(domain.columns, fields, strict=True)
    ]
    labels = [list(row) for row in zip(*named, strict=True)]
    low, high, least, most = limits
    figures = zip(labels, low, high, least, most, strict=True)
    return Chart(
        title,
        Intervals(
            [" · ".join(row) for row in labels], [None] * len(cells), low.tolist(), high.tolist(),
            "records",
        ),
        f"{title}: limits of the number of records.",
        Grid(
            (*domain.names, "records", "share in the population"),
            [
                [*row, interval(a, b, whole=True), f"{share(c)} to {share(d)}"]
                for row, a, b, c, d in figures
            ],
            title="Limits",
            folded=True,
        ),
    )  # fmt: skip
