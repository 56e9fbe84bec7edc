"""What changed between two releases: the difference of every figure, with an interval.

The noise of two releases is independent given what their records are, so its variances add. So do
those of sampling if the two samples are independent. Where people are in both, as in a panel, their
answers are alike, the true variance of a change is smaller, and by how much nobody can tell without
linking them: the intervals are then too wide.

Sets that no standard error makes are subtracted end by end (Zou and Donner 2008, "Construction of
confidence limits about effect measures", Statistics in Medicine 27): of two estimates with limits l
and u the lower limit of their difference is t2 - t1 - sqrt((t2 - l2)^2 + (u1 - t1)^2). For normal
intervals that is the sum of the variances.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import Any

from statpress.mechanisms.domain.column import Ranges
from statpress.mechanisms.errors import QueryError
from statpress.tasks.release.query import Measured

_SAME = ("statistic", "statistic_of", "where", "of", "confidence")
"""What both answers have to be about."""


def change_of(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """The later answer less the earlier one, to the same question.

    Args:
        earlier: As ``statpress.tasks.release.query.answer`` gives it.
        later: The same of the other release.

    Returns:
        An answer like theirs, whose cells have besides ``earlier`` and ``later``, the estimates;
        ``p_value`` of no change; and ``changed``: whether there is one, at the confidence that is
        stated for *all* cells together (Holm 1979, "A simple sequentially rejective multiple test
        procedure").

    Raises:
        QueryError: The questions differ, or no cell is in both answers.
    """
    apart = [name for name in _SAME if earlier[name] != later[name]]
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
    z = NormalDist().inv_cdf((1 + later["confidence"]) / 2)
    cells = [_change(before[_key(cell)], cell, z) for cell in shared]
    rejected = _holm([cell["p_value"] for cell in cells], 1 - later["confidence"])
    for cell, changed in zip(cells, rejected, strict=True):
        cell["changed"] = changed
    only = len(before) + len(later["cells"]) - 2 * len(shared)
    notes = [f"{only} cells are in one of the releases only."] if only else []
    if later["of"].endswith("population"):
        notes.append(
            "The samples are taken as independent. Where people are in both, changes are known "
            "better than their intervals say."
        )
    notes.append(
        f"'changed' is right for all cells together with a probability of {later['confidence']:g} "
        "where nothing changed; of intervals by themselves "
        f"{1 - later['confidence']:.0%} leave out 0 then."
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


def _change(earlier: Mapping[str, Any], later: Mapping[str, Any], z: float) -> dict[str, Any]:
    """One cell's change, with its set at the confidence of z standard errors."""
    change = later["estimate"] - earlier["estimate"]
    lower = change - math.hypot(
        later["estimate"] - later["lower"], earlier["upper"] - earlier["estimate"]
    )
    upper = change + math.hypot(
        later["upper"] - later["estimate"], earlier["estimate"] - earlier["lower"]
    )
    error = math.hypot(later["standard_error"], earlier["standard_error"])
    if not math.isfinite(error):  # of a set that no standard error makes: its reach towards 0
        error = (change - lower if change > 0 else upper - change) / z
    p = math.erfc(abs(change) / error / math.sqrt(2)) if error else float(change == 0)
    return {
        "values": later["values"],
        "earlier": earlier["estimate"],
        "later": later["estimate"],
        "estimate": change,
        "standard_error": math.hypot(later["standard_error"], earlier["standard_error"]),
        "lower": lower,
        "upper": upper,
        "p_value": p,
    }


def _holm(p_values: Sequence[float], level: float) -> list[bool]:
    """Which hypotheses are rejected, so that the level holds for all of them together."""
    rejected = [False] * len(p_values)
    for step, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[place] > level / (len(p_values) - step):
            break
        rejected[place] = True
    return rejected
