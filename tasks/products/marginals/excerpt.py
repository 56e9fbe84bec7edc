"""What the page of a bundle shows of microdata by marginals: its columns, then its pairs.

All of it is read from the bundle's public files.
"""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

from mechanisms.marginals.measurement import GRID
from tasks.formats.registry import read_batches, read_rows, written_file
from tasks.products.kind import Excerpt

_SHOWN = 40
_CELLS = 4
_NOISE = 1.96


def excerpt_of(folder: Path, name: str) -> Excerpt | None:
    """The largest cells of every column with their intervals, and the pairs; of many the first.

    Returns:
        None where nothing is drawn yet.
    """
    tables, pairs = (written_file(folder, f"{name}_{part}") for part in ("tables", "pairs"))
    if tables is None or pairs is None:
        return None
    columns = _columns(tables)
    if not (found := read_rows(pairs)):
        return columns
    stated = json.loads((folder / "privacy.json").read_text(encoding="utf-8"))["products"][name]
    return Excerpt(
        columns.headings, columns.rows, title=columns.title, following=(_pairs(found, stated),)
    )


def _columns(path: Path) -> Excerpt:
    """A row for each column that was measured."""
    cells: dict[str, list[tuple[float, str, float]]] = {}
    for batch in read_batches(path, None):
        second = batch.schema.get_field_index("column_2")
        alone = batch if second < 0 else batch.filter(batch.column(second).is_null())
        if not len(alone):
            break  # tables of one column stand first
        for row in alone.to_pylist():
            value = "missing" if row["value_1"] is None else row["value_1"]
            cells.setdefault(row["column_1"], []).append(
                (row["estimate"], value, row["standard_error"])
            )
    rows = []
    for column, counts in list(cells.items())[:_SHOWN]:
        largest = sorted(counts, key=lambda cell: -cell[0])[:_CELLS]
        more = f"; and {len(counts) - _CELLS} more" if len(counts) > _CELLS else ""
        said = "; ".join(f"{value}: {estimate:,.0f}" for estimate, value, _ in largest)
        rows.append([column, said + more, f"± {_NOISE * largest[0][2]:,.0f}"])
    return Excerpt(
        ("column", "its largest cells, estimated counts", "each, at 95 %"),
        rows,
        title="Columns, with the noise of the release",
    )


def _pairs(rows: list[dict[str, Any]], stated: dict[str, Any]) -> Excerpt:
    """The pairs, those farthest from independence first where they were scored."""
    counted = Counter(row["relation"] for row in rows)
    total = ", ".join(f"{number} {relation}" for relation, number in counted.most_common())
    records = 2 * GRID * stated["n_records"]  # the score is an L1 distance in grid steps
    scored = stated["score_scale"] is not None
    headings = ["column", "column", "relation", "standard error of a count"]
    title = "Pairs of columns"
    if scored:
        rows = sorted(rows, key=lambda row: -(row["score_raw"] or 0))
        noise = float(Fraction(stated["score_scale"])) / records
        headings.append("noisy distance from independence")
        title += (
            f"; their distance from independence (total variation) has noise of sd {noise:.3f}, "
            "and is above 0 in any sample"
        )
    shown = []
    for row in rows[:_SHOWN]:
        error, score = row["standard_error"], row["score_raw"]
        shown.append([row["column_1"], row["column_2"], row["relation"]])
        shown[-1].append("" if error is None else f"{error:,.1f}")
        shown[-1] += [f"{score / records:.3f}" if score is not None else ""] * scored
    shown.append([f"all {len(rows)} pairs", "", total, *[""] * (len(headings) - 3)])
    return Excerpt(headings, shown, title=title)
