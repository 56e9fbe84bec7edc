"""Charts of an analyst's answers: a point for each estimate and a line for its interval.

A distribution, a cross table, a figure by groups and the coefficients of a regression are drawn
alike: the rows are the cells in their order, and a second column has colours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from statpress.mechanisms.errors import QueryError
from statpress.tasks.release.query import TESTED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = ("pdf", "png", "svg")
_ROW, _WIDTH = 0.26, 7.0  # inches
_MOST = 300


def chart(facts: Mapping[str, Any]) -> Figure:
    """The figure of an answer.

    Args:
        facts: As ``Estimates.facts``. An end that is infinite is drawn to the edge.

    Raises:
        QueryError: There are too many cells for a chart.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    cells = facts["cells"]
    if len(cells) > _MOST:
        raise QueryError(
            f"A chart has at most {_MOST} estimates, and these are {len(cells):,}.",
            next_step="Use fewer columns, or conditions on them.",
        )
    values = [list(map(str, cell["values"].values())) for cell in cells]
    series = list(dict.fromkeys(each[-1] for each in values)) if len(values[0]) > 1 else [""]
    rows = list(dict.fromkeys(tuple(each[: max(1, len(each) - 1)]) for each in values))
    finite = [
        cell[part]
        for cell in cells
        for part in ("estimate", "lower", "upper")
        if math.isfinite(cell[part])
    ]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    edge = 0.05 * (high - low or 1.0)
    with rc_context({"text.parse_math": False}):
        height = 1.2 + _ROW * max(len(rows), len(cells) * 0.6)
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        axes = figure.add_subplot()
        for place, name in enumerate(series):
            own = [
                (cell, rows.index(tuple(each[: max(1, len(each) - 1)])))
                for cell, each in zip(cells, values, strict=True)
                if name in ("", each[-1])
            ]
            shift = (place + 0.5) / len(series) - 0.5
            heights = [row + 0.7 * shift for _, row in own]
            lower = [max(cell["lower"], low - edge) for cell, _ in own]
            upper = [min(cell["upper"], high + edge) for cell, _ in own]
            axes.hlines(heights, lower, upper, color=f"C{place % 10}", linewidth=1.5)
            axes.plot(
                [cell["estimate"] for cell, _ in own],
                heights, "o", color=f"C{place % 10}", markersize=4, label=name,
            )  # fmt: skip
        axes.set_yticks(range(len(rows)), [", ".join(row) for row in rows])
        axes.invert_yaxis()
        if facts["statistic"] in TESTED:
            axes.axvline(0, color="0.6", linewidth=0.8)
        if len(series) > 1:
            axes.legend(title=list(cells[0]["values"])[-1], frameon=False, loc="best")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.grid(axis="x", color="0.9")
        axes.set_axisbelow(True)
        axes.set_xlabel(f"{title_of(facts)}, intervals of {facts['confidence']:.4g}")
    return figure


def title_of(facts: Mapping[str, Any]) -> str:
    """What an answer is of."""
    of = ", ".join(facts["statistic_of"])
    names = {"count": "records", "combined": f"{of} on copies"}
    return names.get(facts["statistic"], f"{facts['statistic']} of {of}")


def written_as(path: str) -> str:
    """The format of a picture that is to be written.

    Raises:
        QueryError: The name has another suffix.
    """
    suffix = path.rpartition(".")[2].lower()
    if suffix not in SUFFIXES:
        raise QueryError(
            f"A plot cannot be written as '{path}'.",
            where="plot",
            next_step=f"Give it one of the suffixes {', '.join(f'.{each}' for each in SUFFIXES)}.",
        )
    return suffix
