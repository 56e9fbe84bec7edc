"""The columns of a release: what they mean, their units, ranges and values."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.package.column_facts import ColumnFacts, column_facts
from tasks.pages.blocks import Grid, Prose, Section, Text
from tasks.report.marked import marked
from tasks.report.public_words import PublicWords

_MOST_VALUES = 12
_NOTE = (
    "What the columns of the source mean that this release was made of. Which values and cells "
    "there are was declared without looking at the data. `codebook.md` says it in full, with every "
    "column of every file."
)


def columns_section(words: PublicWords) -> Section | None:
    """A row for each column that is described; None where none is."""
    found = column_facts(words.package)
    if not found:
        return None
    rows = [_row(column) for column in found]
    kept = [place for place in range(4) if any(row[place] for row in rows)]
    grid = Grid(
        [("column", "meaning", "unit", "values")[place] for place in kept],
        [[row[place] for place in kept] for row in rows],
    )
    return Section("columns", "What the columns mean", [Prose([marked(_NOTE)]), grid])


def _row(column: ColumnFacts) -> Sequence[Text]:
    said = [text.rstrip(".") for text in (column.title, column.description) if text]
    return column.name, ". ".join(said), column.unit, _values(column)


def _values(column: ColumnFacts) -> str:
    """A range with its cells, or the categories with their labels."""
    listed = [f"{value} = {label}" if label else value for value, label in column.categories]
    if listed:
        said = "; ".join(listed[:_MOST_VALUES])
        more = len(listed) - _MOST_VALUES
        said += f"; and {more:,} more" if more > 0 else ""
        said += "; or other" if "for all others" in column.cells else ""
    else:
        said = "; ".join(each for each in (column.range, column.cells.partition(";")[0]) if each)
    return said + ("; or missing" if "cell of their own" in column.missing else "")
