"""What the report says of counts: microdata by their columns, tables by their cells."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mechanisms.postprocessing.pair_strength import strength
from tasks.formats.registry import written_file
from tasks.pages.blocks import Block, Chart, Fact, Gallery, Grid, Prose, Section
from tasks.pages.numbers import count, share
from tasks.products.cell_names import cell_names
from tasks.products.counts.sums import EstimatedTable, Floats, read_table
from tasks.products.distributions import (
    CERTAIN,
    CHOSEN,
    LARGEST,
    WHISKERS,
    Distribution,
    bars,
    distribution_chart,
    joint_chart,
    reach_95,
    typical_figure,
)
from tasks.products.relations import matrix_chart

MOST_ROWS = 200
_STRONGEST = 4
_UNKNOWN = "There are no whiskers: {}"
_BIASED = (
    "The estimates are biased, by an amount that depends on the data and is not known: no "
    "whiskers are drawn."
)


def table_of(
    folder: Path, stem: str, stated: Mapping[str, Any], resources: Sequence[Mapping[str, Any]]
) -> EstimatedTable | None:
    """The estimates of a product out of its file; None before anything is drawn."""
    path = written_file(folder, stem)
    if path is None:
        return None
    own = next(each for each in resources if each["path"] == f"data/{path.name}")
    return read_table(path, stated, own)


def microdata_parts(anchor: str, table: EstimatedTable) -> tuple[list[Section], Fact | None]:
    """The distributions of single columns and of pairs, and a typical figure."""
    found = {name: table.distribution(name) for name in table.domain.names}
    known = {name: each for name, each in found.items() if each is not None}
    charts = [distribution_chart(each, table.n_records) for each in known.values()]
    said = [f"Estimated numbers of records, summed from the table of estimates. {_errors(table)}"]
    if len(known) < len(found):
        rest = ", ".join(name for name in found if name not in known)
        said.append(f"Not drawn for their many cells: {rest}.")
    columns = Section(f"{anchor}-columns", "Column by column", [Prose(said), Gallery(charts)])
    parts = [columns, *_pairs(anchor, table, known)]
    name = min(known, key=lambda each: known[each].column.size, default=None)
    figure = None if name is None else typical_figure(known[name], name)
    return parts, None if figure is None else Fact("A count, for example", *figure)


def table_blocks(table: EstimatedTable) -> tuple[list[Block], Fact | None]:
    """A table as a chart with its cells, and one of its counts."""
    errors = table.reaches if table.unbiased else None
    names = table.domain.names
    chart: Chart | None = None
    if len(names) == 1:
        codes = table.domain.codes(table.cells, names[0])
        counts = np.full(table.domain[names[0]].size, table.unlisted)
        spread = np.full(len(counts), np.nan)
        counts[codes], spread[codes] = table.estimates, table.reaches
        found = Distribution(
            table.domain[names[0]], table.fields[0], counts, None if errors is None else spread
        )
        chart = distribution_chart(found, table.n_records)
    elif len(names) == 2 and (sums := table.sums(names)) is not None:
        sides = [
            Distribution(table.domain[name], field, np.zeros(0), None)
            for name, field in zip(names, table.fields, strict=True)
        ]
        chart = joint_chart(sides[0], sides[1], sums[0])
    order = np.argsort(-table.estimates, kind="stable")
    if chart is None:
        largest = order[:LARGEST]
        labels = [" · ".join(row) for row in _rows(table, largest)]
        drawing = bars(
            labels, table.estimates[largest], None if errors is None else errors[largest]
        )
        cells = f"The {len(largest)} largest of {len(order):,} cells"
        words = f"{cells}, by their estimated records."
        note = "" if errors is None or len(largest) == len(order) else CHOSEN
        chart = Chart(cells, drawing, words, Grid((), ()), note, wide=True)
    words = f"Estimated numbers of records in each cell. {WHISKERS if table.unbiased else _BIASED}"
    chart = replace(chart, data=_listing(table, order, errors))
    return [Prose([words]), chart], _example(table) if table.unbiased else None


def _example(table: EstimatedTable) -> Fact | None:
    """A count that is not chosen for its estimate, which its interval would hold less often.

    The first cell of a table that lists all; of one that was drawn, which lists what was drawn,
    the first value of its smallest column.
    """
    names = table.domain.names
    if len(table.cells) == table.domain.n_listed:
        (cell,) = _rows(table, np.arange(1))
        figure = f"{count(table.estimates[0])} {reach_95(table.reaches[0])}"
        where = ", ".join(map(" = ".join, zip(names, cell, strict=True)))
        return Fact("A count, for example", figure, f"records with {where}. {CERTAIN}")
    name = min(names, key=lambda each: table.domain[each].size)
    found = table.distribution(name)
    said = None if found is None else typical_figure(found, name)
    return None if said is None else Fact("A count, for example", *said)


def _errors(table: EstimatedTable) -> str:
    """What whiskers mean, or why there are none."""
    if not table.unbiased:
        return _BIASED
    objection = table.covariance.objection
    return _UNKNOWN.format(objection) if objection else WHISKERS


def _pairs(anchor: str, table: EstimatedTable, known: Mapping[str, Distribution]) -> list[Section]:
    """The pairs of columns: how strongly they are related, and the strongest."""
    strengths: dict[tuple[str, str], float] = {}
    charts: list[Chart] = []
    pairs = itertools.combinations(known, 2)
    sums = {pair: found for pair in pairs if (found := table.sums(pair)) is not None}
    for pair, (counts, errors) in sums.items():
        if errors is not None:
            strengths[pair] = strength(counts, errors**2)
    for pair in sorted(sums, key=lambda pair: -strengths.get(pair, 0.0)):
        chart = joint_chart(known[pair[0]], known[pair[1]], sums[pair][0])
        if chart is not None and len(charts) < _STRONGEST:
            charts.append(chart)
    blocks: list[Block] = []
    if len(strengths) > 1:
        blocks.append(matrix_chart(list(known), strengths, ""))
    if charts:
        blocks.append(Gallery(charts))
    return [Section(f"{anchor}-pairs", "Pairs of columns", blocks)] if blocks else []


def _rows(table: EstimatedTable, chosen: Any) -> list[list[str]]:
    """The names of the cells at some places, by column."""
    sides = []
    for column, field in zip(table.domain.columns, table.fields, strict=True):
        codes = table.domain.codes(table.cells[chosen], column.name)
        names = cell_names(column, field)
        sides.append([names[code] for code in codes])
    return [list(row) for row in zip(*sides, strict=True)]


def _listing(table: EstimatedTable, order: Any, errors: Floats | None) -> Grid:
    """The cells with their figures: all as they are listed, or the largest first."""
    whole = len(order) <= MOST_ROWS
    chosen = np.arange(len(order)) if whole else order[:MOST_ROWS]
    rows = []
    for place, row in zip(chosen, _rows(table, chosen), strict=True):
        known = [] if errors is None else [reach_95(errors[place])]
        estimate = table.estimates[place]
        rows.append([*row, count(estimate), *known, share(estimate / table.n_records)])
    headings = [*table.domain.names, "records", *(("± 95 %",) * (errors is not None)), "share"]
    words = f"all {len(order)} cells" if whole else f"the {MOST_ROWS} largest of {len(order):,}"
    return Grid(headings, rows, title=f"Figures, {words}", folded=True)
