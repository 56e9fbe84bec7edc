"""What the report says of estimates: their intervals in words, and as charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mechanisms.inference.fieller import INTERVAL
from tasks.formats.registry import read_rows, written_file
from tasks.pages.blocks import Block, Chart, Fact, Gallery, Grid, Prose, Section
from tasks.pages.drawings import Curves, Intervals, Line, Span
from tasks.pages.numbers import interval, measured, plain, share
from tasks.products.kind import ReportPart

_WORDS = "estimates with intervals"
_KNOWN = {
    "guaranteed": "guaranteed for every population within the declared bounds",
    "asymptotic": "by normal approximation; at most 1.5 points less for rare values",
    "approximate": "approximate: less where rare values decide",
}
_MOST_CHARTS = 12
_MOST_POINTS = 400
_ALIKE = 20.0
"""How many times wider one interval may be than another on the same axis."""

Row = Mapping[str, Any]


def part_of(
    folder: Path, name: str, stated: Mapping[str, Any], resources: Sequence[Mapping[str, Any]]
) -> ReportPart:
    """The estimates as a table, on one axis where they fit, and their distributions."""
    del stated, resources
    anchor = f"product-{name}"
    lead = Prose(
        [
            "Each interval is about the population of which the records are a sample. It allows "
            "for two errors at once: that only a sample was asked, and the noise of this release. "
            "Of 100 such releases, about as many intervals hold the true value as the level says."
        ]
    )
    path = written_file(folder, name)
    if path is None:  # before anything is drawn
        return ReportPart(_WORDS, Section(anchor, name, [lead]))
    rows = read_rows(path)
    blocks: list[Block] = [lead, _table(rows)]
    charts = [*_together(rows), *_distributions(folder, name, rows)]
    if charts:
        blocks.append(Gallery(charts[:_MOST_CHARTS]))
    if len(charts) > _MOST_CHARTS:
        left = len(charts) - _MOST_CHARTS
        blocks.append(
            Prose([f"{left} more distributions are in data/{name}_distribution."], "note")
        )
    return ReportPart(_WORDS, Section(anchor, name, blocks), _typical(rows))


def _table(rows: Sequence[Row]) -> Grid:
    cells = [
        [
            row["quantity"],
            measured(row["estimate"]),
            _set_in_words(row),
            share(row["confidence"]),
            trust(row),
        ]
        for row in rows
    ]
    headings = ("quantity", "estimate", "interval", "level", "how the level is known")
    return Grid(headings, cells)


def _set_in_words(row: Row) -> str:
    """The confidence set: an interval as a rule."""
    words = interval(row["lower"], row["upper"])
    if row.get("gap_lower") is not None:
        words += f", but for {measured(row['gap_lower'])} to {measured(row['gap_upper'])}"
    if row.get("shape") not in (None, INTERVAL):
        words += f" ({row['shape']})"
    return words


def trust(row: Row) -> str:
    """How the level of an interval is known, in words.

    >>> trust({"valid": True, "inference": "guaranteed", "cells": 1})
    'guaranteed for every population within the declared bounds; the interval is one cell of the \
column, and only narrower cells could tell more'
    """
    if not row["valid"]:
        return "not valid: too little was released for an approximation; it is as wide as it can be"
    words = _KNOWN.get(row.get("inference") or "asymptotic", str(row.get("inference")))
    if row.get("cells") == 1:
        words += "; the interval is one cell of the column, and only narrower cells could tell more"
    return words


def _together(rows: Sequence[Row]) -> list[Chart]:
    """All estimates on one axis, where there are several of about the same width and size."""
    ends = [(row["lower"], row["upper"]) for row in rows]
    if len(rows) < 2 or any(end is None for pair in ends for end in pair):
        return []
    widths = [high - low for low, high in ends]
    reach = max(high for _, high in ends) - min(low for low, _ in ends)
    narrow = min(widths)
    if narrow <= 0 or max(widths) > _ALIKE * narrow or reach > 3 * _ALIKE * narrow:
        return []
    drawing = Intervals(
        [row["quantity"] for row in rows],
        [row["estimate"] for row in rows],
        [low for low, _ in ends],
        [high for _, high in ends],
    )
    words = "; ".join(
        f"{row['quantity']}: {interval(*end)}" for row, end in zip(rows, ends, strict=True)
    )
    figures = [[row["quantity"], measured(row["estimate"]), _set_in_words(row)] for row in rows]
    data = Grid(("quantity", "estimate", "interval"), figures, title="Figures", folded=True)
    return [Chart("All estimates with their intervals", drawing, words, data)]


def _distributions(folder: Path, name: str, rows: Sequence[Row]) -> list[Chart]:
    """Of each estimate how it would vary, with its interval shaded."""
    path = written_file(folder, f"{name}_distribution")
    found: dict[str, list[tuple[float, float]]] = {}
    for each in read_rows(path) if path is not None else ():
        found.setdefault(each["quantity"], []).append((each["point"], each["mass"]))
    charts = []
    for row in rows:
        if len(points := found.get(row["quantity"], [])) < 3:
            continue
        x, mass = np.array(sorted(points)).T
        density = mass / np.gradient(x)
        kept = np.unique(np.linspace(0, len(x) - 1, min(len(x), _MOST_POINTS)).astype(np.int64))
        at = row["estimate"]
        marks = [] if at is None else [(float(at), float(np.interp(at, x, density)))]
        line = Line("", x[kept].tolist(), density[kept].tolist())
        span = Span("", row["lower"], row["upper"])
        few = np.unique(np.linspace(0, len(x) - 1, 15).astype(np.int64))
        figures = [[measured(x[k]), measured(mass[:k].sum(), 3)] for k in few]
        data = Grid(
            ("value", "share of surveys below it"), figures,
            title="Figures", note=f"All points are in data/{name}_distribution.", folded=True,
        )  # fmt: skip
        words = f"Distribution of {row['quantity']} around {measured(at)}; {_set_in_words(row)}."
        charts.append(
            Chart(
                row["quantity"],
                Curves([line], "", "how often, were the survey taken again", [span], marks),
                words,
                data,
                f"Shaded: the interval at {plain(100 * row['confidence'])} %.",
            )
        )
    return charts


def _typical(rows: Sequence[Row]) -> Fact | None:
    """The first estimate with its interval."""
    row = next((each for each in rows if each["valid"] and each["estimate"] is not None), None)
    if row is None:
        return None
    level = share(row["confidence"])
    return Fact(
        "An estimate, for example",
        measured(row["estimate"]),
        f"{row['quantity']}; {level} interval {interval(row['lower'], row['upper'])}",
    )
