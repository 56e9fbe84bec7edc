"""The true errors of marginals of one, two or more columns, whatever they were made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.columns import Column
from mechanisms.inference.realised_errors import Coverage, total_variation
from tasks.pages.blocks import Block, Chart, Gallery, Grid
from tasks.pages.drawings import Bars, HeatMap
from tasks.pages.numbers import measured, share
from tasks.products.cell_names import cell_names
from tasks.products.true_errors import (
    LARGEST,
    Compared,
    Missed,
    compared,
    covered,
    largest_grid,
)

MOST_DRAWN = 40
EXPLAINED = (
    "Total variation is half the sum of the absolute differences of the shares: the part of the "
    "records that would have to move."
)


@dataclass(frozen=True, repr=False)
class MarginalErrors:
    """The errors of a marginal; private.

    Attributes:
        names: Of its columns.
        distance: Total variation of what is published.
        coverage: Of the intervals of its cells; None where there are none.
        missed: The cells of the largest errors.
        note: What else is known of it, such as that it was not measured; may be empty.
    """

    names: tuple[str, ...]
    distance: float
    coverage: Coverage | None
    missed: tuple[Missed, ...]
    note: str = ""

    @classmethod
    def of(
        cls,
        columns: Sequence[Column],
        published: NDArray[np.float64],
        true: NDArray[np.float64],
        held: Coverage | None,
        note: str = "",
    ) -> Self:
        """Of counts float64 of the columns' sizes, published and true.

        Those published are compared as shares, at the true number of records.
        """
        total = float(published.sum())
        scaled = published * (float(true.sum()) / total) if total > 0 else published
        gaps = np.abs(scaled - true).ravel()
        most = np.argpartition(-gaps, min(LARGEST, gaps.size) - 1)[:LARGEST]
        names = [cell_names(column, {}) for column in columns]
        missed = []
        for k in most.tolist():
            codes = np.unravel_index(k, true.shape)
            where = " · ".join(
                f"{column.name} {cells[code]}"
                for column, cells, code in zip(columns, names, codes, strict=True)
            )
            missed.append(Missed(where, float(scaled.flat[k]), float(true.flat[k])))
        distance = total_variation(np.maximum(published, 0), true)
        return cls(tuple(c.name for c in columns), distance, held, tuple(missed), note)


def marginal_rows(
    found: Sequence[MarginalErrors],
    *,
    columns: float | None,
    pairs: float | None,
    intervals: bool = True,
) -> list[Compared]:
    """Rows for the summary.

    Args:
        found: Of columns, of pairs, and perhaps of larger groups.
        columns: Mean total variation of single columns that the plan promises.
        pairs: Of pairs.
        intervals: Whether intervals are stated at all.
    """
    rows = []
    for words, size, promised in (("pairs of columns", 2, pairs), ("single columns", 1, columns)):
        own = [each for each in found if len(each.names) == size]
        if own:
            distance = float(np.mean([each.distance for each in own]))
            rows.append(compared(f"{words}, total variation, mean", promised, distance))
    for words, least, most in (
        ("single columns", 1, 1), ("pairs of columns", 2, 2), ("larger groups", 3, 1000)
    ):  # fmt: skip
        known = [
            each.coverage
            for each in found
            if least <= len(each.names) <= most and each.coverage is not None and each.coverage.of
        ]
        if known and intervals:
            total = sum(known[1:], start=known[0])
            rows.append(covered(f"{words}, cells whose 95 % interval holds the count", total))
    return rows


def marginal_blocks(found: Sequence[MarginalErrors]) -> list[Block]:
    """Charts, tables with a row for each marginal, and the largest errors."""
    blocks: list[Block] = []
    columns = [each for each in found if len(each.names) == 1]
    more = [each for each in found if len(each.names) > 1]
    charts = [_bars(columns[:MOST_DRAWN])] if len(columns) > 1 else []
    names = [each.names[0] for each in columns[:MOST_DRAWN]]
    pairs = {(each.names[0], each.names[1]): each.distance for each in more if len(each.names) == 2}
    if len(names) > 3 and pairs:
        charts.append(_matrix(names, pairs))
    if charts:
        blocks.append(Gallery(charts))
    if more:
        blocks.append(_grid(more, f"Pairs and larger groups, {len(more):,}"))
    for words, own in (("single columns", columns), ("pairs and larger groups", more)):
        if own:
            missed = [miss for each in own for miss in each.missed]
            blocks.append(largest_grid(missed, f"Largest errors, {words}", "records"))
    return blocks


def _bars(columns: Sequence[MarginalErrors]) -> Chart:
    """Total variation of every column."""
    labels, values = [each.names[0] for each in columns], [each.distance for each in columns]
    worst = max(columns, key=lambda each: each.distance)
    return Chart(
        "True error of each column",
        Bars(labels, values, axis="total variation"),
        f"Bars of the total variation of each column; most has {worst.names[0]}, "
        f"{measured(worst.distance, 3)}.",
        _grid(columns, f"Single columns, {len(columns)}"),
    )


def _matrix(names: Sequence[str], pairs: Mapping[tuple[str, str], float]) -> Chart:
    """Total variation of every pair."""
    rows, across = list(names[1:]), list(names[:-1])
    values = [
        [pairs.get((column, row)) if j <= i else float("nan") for j, column in enumerate(across)]
        for i, row in enumerate(rows)
    ]
    order = sorted(pairs.items(), key=lambda each: -each[1])
    cells = [(a, b, measured(value, 3)) for (a, b), value in order[:LARGEST]]
    return Chart(
        "True error of each pair of columns",
        HeatMap(
            rows,
            across,
            values,
            marked="" if len(pairs) == len(names) * (len(names) - 1) // 2 else "not compared",
            scale="total variation",
        ),
        f"Matrix of pairs of columns; most have {cells[0][0]} and {cells[0][1]}, {cells[0][2]}.",
        Grid(("column", "column", "total variation"), cells, title="The worst pairs", folded=True),
    )


def _grid(found: Sequence[MarginalErrors], title: str) -> Grid:
    """A row for each marginal, the worst first, folded."""
    noted = any(each.note for each in found)
    rows = [
        [
            " · ".join(each.names),
            measured(each.distance, 3),
            share(each.coverage.share) if each.coverage and each.coverage.of else "",
            *([each.note] if noted else []),
        ]
        for each in sorted(found, key=lambda each: -each.distance)
    ]
    headings = (
        "columns",
        "total variation",
        "cells within 95 %",
        *(("known by",) if noted else ()),
    )
    return Grid(headings, rows, title=title, folded=True)
