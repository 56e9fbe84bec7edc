"""How strongly pairs of columns are related, by their noisy joint tables, and charts of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tasks.pages.blocks import Chart, Grid
from tasks.pages.drawings import HeatMap

Pair = tuple[str, str]

EXPLAINED = (
    "Strength is Cramér's V: 0 where the two columns have nothing to do with each other, 1 where "
    "one tells the other. What noise alone would show has been taken off, so that 0 also stands "
    "for a relation too weak to be told from noise."
)


def matrix_chart(names: Sequence[str], strengths: Mapping[Pair, float], marked: str) -> Chart:
    """A matrix of all pairs, shaded by strength; pairs without one are marked.

    Args:
        names: Of the columns, in order.
        strengths: By pair in that order.
        marked: What a pair without one is; may be empty.
    """
    rows, columns = list(names[1:]), list(names[:-1])
    values: list[list[float | None]] = [
        [strengths.get((column, row)) if j <= i else np.nan for j, column in enumerate(columns)]
        for i, row in enumerate(rows)
    ]
    ordered = sorted(strengths.items(), key=lambda each: -each[1])
    cells = [(a, b, f"{value:.2f}") for (a, b), value in ordered[:60]]
    part = f", the {len(cells)} strongest of {len(ordered)}" if len(cells) < len(ordered) else ""
    said = f"strongest are {cells[0][0]} and {cells[0][1]}, {cells[0][2]}" if cells else "none"
    return Chart(
        "How strongly each pair of columns is related",
        HeatMap(rows, columns, values, marked=marked, scale="Cramér's V"),
        f"Matrix of pairs of columns; {said}.",
        Grid(("column", "column", "strength"), cells, title=f"Strengths{part}", folded=True),
        EXPLAINED,
    )
