"""The exponential mechanism on ordered cells: one is chosen by the counts before and after it.

Cells that follow each other and have the same score are drawn together, so that what a choice costs
grows with the occupied cells and not with all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from flint import arb

from mechanisms.domain.columns import Codes
from mechanisms.sampling.real_weights import choose_real, decay


class Run(NamedTuple):
    """Neighbouring cells with one score: an occupied cell, or a gap.

    Attributes:
        first: The first of the cells.
        size: How many there are.
        before: Records before them.
        after: Records up to their end.
        weight: Base weight of each of the cells.
    """

    first: int
    size: int
    before: float
    after: float
    weight: int = 1


def choose_cell(
    runs: Sequence[Run],
    wanted: int,
    rng: np.random.Generator,
    *,
    above: Fraction,
    below: Fraction,
) -> int:
    """A cell with probability exactly proportional to its base weight times exp(-u).

    Args:
        runs: Of all cells that may be chosen; infinite counts are never exceeded.
        wanted: The count r.
        rng: Source of bits.
        above: What each record before the cell costs beyond r.
        below: What each record costs that is missing to r at the cell's end.
    """
    costs = [
        above * int(run.before - wanted)
        if run.before > wanted
        else below * int(wanted - run.after)
        if run.after < wanted
        else Fraction(0)
        for run in runs
    ]
    least = min(costs)

    def weights() -> Sequence[arb]:
        return [
            run.size * run.weight * decay(cost - least, 1)
            for run, cost in zip(runs, costs, strict=True)
        ]

    chosen = runs[choose_real(weights, rng)]
    return chosen.first + int(rng.integers(chosen.size))


def runs_of(cells: Codes, counts: Codes, n_cells: int) -> list[Run]:
    """Each occupied cell and each gap.

    Args:
        cells: int64[k], ascending codes of occupied cells.
        counts: int64[k], their private counts.
        n_cells: Number of cells.
    """
    runs: list[Run] = []
    at = total = 0
    for cell, count in zip(cells.tolist(), counts.tolist(), strict=True):
        if cell > at:
            runs.append(Run(at, cell - at, total, total))
        runs.append(Run(cell, 1, total, total + count))
        at, total = cell + 1, total + count
    if at < n_cells:
        runs.append(Run(at, n_cells - at, total, total))
    return runs


def between(runs: Sequence[Run], first: int, last: int) -> list[Run]:
    """The runs cut to the cells from a first to a last."""
    found = []
    for run in runs:
        start, stop = max(run.first, first), min(run.first + run.size, last + 1)
        if start < stop:
            found.append(run._replace(first=start, size=stop - start))
    return found


def without_end(runs: Sequence[Run]) -> list[Run]:
    """The runs; the first cell reaches down without end, and the last one up."""
    last = runs[-1].first + runs[-1].size - 1
    inner = between(runs, 1, last - 1)
    first = [run._replace(before=-math.inf) for run in between(runs, 0, 0)]
    if not last:
        return [run._replace(after=math.inf) for run in first]
    return [*first, *inner, *(run._replace(after=math.inf) for run in between(runs, last, last))]
