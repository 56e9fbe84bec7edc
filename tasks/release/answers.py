"""An answer to an analyst: its estimates, their chart, and what changed between two releases.

**A chart** has a point for each estimate and a line for its interval. A distribution, a cross
table, a figure by groups and the coefficients of a regression are drawn alike: the rows are the
cells in their order, and a second column has colours.

**A change** is the difference of a figure of two releases, with an interval. The noise of two
releases is independent given what their records are, so its variances add. So do those of sampling
if the two samples are independent. Where people are in both, as in a panel, their answers are
alike, the true variance of a change is smaller, and by how much nobody can tell without linking
them: the intervals are then too wide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from statpress.mechanisms.domain.column import Ranges
from statpress.mechanisms.errors import QueryError
from statpress.mechanisms.marginals.linear_moments import Interval, change, rejected
from statpress.tasks.products.answer_words import caveats
from statpress.tasks.release.query import TESTED, Measured, stated_interval

if TYPE_CHECKING:
    from os import PathLike

    import pandas as pd
    from matplotlib.figure import Figure

SUFFIXES = ("pdf", "png", "svg")
_ROW, _WIDTH = 0.26, 7.0  # inches
_MOST = 300


@dataclass(frozen=True, eq=False)
class Estimates:
    """Estimates with confidence sets, a row for each cell or coefficient.

    Attributes:
        facts: As ``statpress query --json`` prints them: ``cells``, each with its ``values``,
            ``estimate``, ``standard_error`` (NaN where the set is not made by one), ``lower`` and
            ``upper`` (infinite where the data do not bound the figure), a ``p_value`` of the
            hypothesis that the figure is 0, and the ``method``; ``confidence``; whether they are
            ``of`` the records or a population; and ``notes``.
    """

    facts: Mapping[str, Any]

    def frame(self) -> pd.DataFrame:
        """A row for each cell: its values, then its figures."""
        import pandas as pd

        return pd.DataFrame(
            cell["values"] | {name: figure for name, figure in cell.items() if name != "values"}
            for cell in self.facts["cells"]
        )

    @property
    def notes(self) -> list[str]:
        """What to know before using the figures."""
        return [*self.facts["notes"], *caveats(self.facts)]

    @property
    def value(self) -> float:
        """The estimate, if there is one only.

        Raises:
            QueryError: There are several.
        """
        if len(self.facts["cells"]) != 1:
            raise QueryError("There is not one estimate.", next_step="Use .frame().")
        return float(self.facts["cells"][0]["estimate"])

    def plot(self, path: str | PathLike[str] | None = None) -> Figure:
        """A chart of the estimates with their intervals, by Matplotlib.

        Args:
            path: A file ``.png``, ``.svg`` or ``.pdf`` to write it to as well.

        Raises:
            QueryError: There are more than 300 estimates, or the file has another suffix.
        """
        form = written_as(str(path)) if path is not None else ""
        figure = chart(self.facts)
        if path is not None:
            figure.savefig(path, format=form, dpi=150)
        return figure

    def __repr__(self) -> str:
        text = self.frame().to_string(index=False, float_format=lambda figure: f"{figure:,.4g}")
        return "\n".join([text, *self.notes])

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{note}</p>" for note in self.notes)
        return str(self.frame().to_html(index=False, float_format=lambda f: f"{f:,.4g}")) + notes


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
    below = facts.get("share_below", 0.5)
    quantile = "median" if below == 0.5 else f"{below:g} quantile"
    names = {
        "count": "records", "combined": f"{of} on copies", "quantile": f"{quantile} of {of}",
    }  # fmt: skip
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


_SAME = ("statistic", "statistic_of", "where", "of", "confidence", "weighted_by")
"""What both answers have to be about."""


def change_of(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """The later answer less the earlier one, to the same question.

    Args:
        earlier: As ``statpress.tasks.release.query.answer`` gives it.
        later: The same of the other release.

    Returns:
        An answer like theirs, whose cells have besides ``earlier`` and ``later``, the estimates;
        ``p_value`` of no change; and ``changed``: whether there is one, at the confidence that is
        stated for *all* cells together.

    Raises:
        QueryError: The questions differ, or no cell is in both answers.
    """
    apart = [name for name in _SAME if earlier.get(name) != later.get(name)]
    if ("scaled_to" in earlier) != ("scaled_to" in later):
        apart.append("scaled_to")
    if apart:
        raise QueryError("These answers are to two questions.", where=", ".join(apart))
    before = {_key(cell): cell for cell in earlier["cells"]}
    shared = [cell for cell in later["cells"] if _key(cell) in before]
    if not shared:
        raise QueryError(
            "The releases have no cell in common.",
            where=", ".join(later["columns"]),
            next_step="Compare columns whose values are the same in both.",
        )
    confidence = later["confidence"]
    pairs = [(before[_key(cell)], cell) for cell in shared]
    changes = [change(_interval(one), _interval(other), confidence) for one, other in pairs]
    marks = rejected([each.p_value for each in changes], 1 - confidence)
    cells = [
        {
            "values": other["values"],
            "earlier": one["estimate"],
            "later": other["estimate"],
            **stated_interval(each, "difference"),
            "changed": changed,
        }
        for (one, other), each, changed in zip(pairs, changes, marks, strict=True)
    ]
    only = len(before) + len(later["cells"]) - 2 * len(shared)
    notes = [f"{only} cells are in one of the releases only."] if only else []
    if later["of"].endswith("population"):
        notes.append(
            "The samples are taken as independent. Where people are in both, changes are known "
            "better than their intervals say."
        )
    notes.append(
        f"'changed' is right for all cells together with a probability of {confidence:g} "
        "where nothing changed; of intervals by themselves "
        f"{1 - confidence:.0%} leave out 0 then."
    )
    return {**later, "notes": [*dict.fromkeys((*later["notes"], *notes))], "cells": cells}


def check_definitions(earlier: Measured, later: Measured, names: Iterable[str]) -> None:
    """Raise unless ranges of numbers and dates are declared alike in both releases.

    Categories are told apart by their values, so that one may have come or gone.

    Raises:
        QueryError: A column is not in both, or has other ranges: the series of it is broken.
    """
    for name in names:
        one, other = earlier.column(name), later.column(name)
        if one != other and (isinstance(one, Ranges) or isinstance(other, Ranges)):
            raise QueryError(
                f"The column '{name}' is declared otherwise in the two releases.",
                where=str(later.folder),
                next_step="Compare columns whose ranges are the same in both.",
            )


def shares_of_all(answers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The shares of several columns as one answer.

    Args:
        answers: By column, as of the statistic ``share`` without ``by``.
    """
    first = next(iter(answers.values()))
    cells = [
        {**cell, "values": {"column": name, "value": cell["values"][name]}}
        for name, each in answers.items()
        for cell in each["cells"]
    ]
    columns = ["column", "value"]
    return {**first, "columns": columns, "statistic_of": sorted(answers), "cells": cells}


def _key(cell: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in cell["values"].items()))


def _interval(cell: Mapping[str, Any]) -> Interval:
    return Interval(*(cell[part] for part in ("estimate", "standard_error", "lower", "upper")))
