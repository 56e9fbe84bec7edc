"""What changed between two releases: the difference of every figure, with an interval.

The noise of two releases is independent given what their records are, so its variances add. So do
those of sampling if the two samples are independent. Where people are in both, as in a panel, their
answers are alike, the true variance of a change is smaller, and by how much nobody can tell without
linking them: the intervals are then too wide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from statpress.mechanisms.domain.column import Ranges
from statpress.mechanisms.errors import QueryError
from statpress.mechanisms.marginals.linear_moments import Interval, change, rejected
from statpress.tasks.release.query import Measured, stated_interval

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
