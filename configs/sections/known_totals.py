"""Public totals that a config keeps in files of their own, read in.

They are published with the config. So a file must be a table of totals by its form: a CSV file
of that very name below the config's folder, a row for each combination of values at most, and
never the source.
"""

from __future__ import annotations

import csv
import glob
import io
import math
from collections.abc import Mapping
from pathlib import Path

from configs.file_text import read_text
from mechanisms.domain.column import Column
from mechanisms.domain.domain import Domain
from mechanisms.domain.labels import labels
from mechanisms.errors import ConfigError
from mechanisms.records.known_totals import KnownTotal

COUNT = "count"
"""Name of the column of totals."""
_NEXT = "Write a CSV file with a header: the columns' names, then 'count'; a row for each cell."


def with_counts(
    known: Mapping[str, KnownTotal],
    domain: Domain,
    folder: Path,
    source: str | None,
) -> dict[str, KnownTotal]:
    """The totals of a product with the counts of their files, by cells.

    Args:
        known: As the config has them.
        domain: The product's columns.
        folder: Of the config.
        source: Path of the private source, as the config has it; None if it is not a file.

    Raises:
        ConfigError: A file is missing, not of that form, or the source.
    """
    found = {}
    for name, total in known.items():
        columns = total.columns or (name,)
        for column in columns:
            if column not in domain.names:
                raise ConfigError(f"The product has no column '{column}'.", where="known")
        counts = total.counts
        if counts is None:
            assert total.file is not None
            path = _checked_path(total.file, folder, source)
            text = read_text(path, total.file)
            counts = _counts(text, [domain[column] for column in columns], total.file)
        found[name] = KnownTotal(columns=columns, counts=counts)
    return found


def _checked_path(relative: str, folder: Path, source: str | None) -> Path:
    path = None if "\0" in relative else (folder / relative).resolve()
    if path is None or path.suffix != ".csv" or folder.resolve() not in path.parents:
        raise ConfigError(
            f"'{relative}' is not a .csv file in or below the config's folder.",
            where="known",
            next_step="Keep public totals in a .csv file in the config's folder.",
        )
    files = () if source is None else (folder / source, *_globbed(folder, source))
    if any(_same(path, each) for each in files):
        raise ConfigError(
            f"'{relative}' is the private source, whose records would be published as totals.",
            where="known",
            next_step="Name a file of public totals.",
        )
    return path


def _globbed(folder: Path, source: str) -> list[Path]:
    """The files of a source that is a pattern, relative or absolute; names are looked at only."""
    try:
        found = glob.glob(str(Path(glob.escape(str(folder))) / source), recursive=True)
    except (ValueError, OSError):
        return []
    return list(map(Path, found))


def _same(path: Path, other: Path) -> bool:
    """Whether two paths name one file, by whatever links."""
    try:
        return path == other.resolve() or path.samefile(other)
    except (ValueError, OSError):
        return False


def _counts(text: str, columns: list[Column], name: str) -> tuple[int, ...]:
    """Counts of all combinations of the columns' cells, the last column's running fastest."""
    try:
        rows = list(csv.reader(io.StringIO(text)))
    except csv.Error:
        raise _problem("The file is not CSV", name, None) from None
    header = [*(column.name for column in columns), COUNT]
    if not rows or rows[0] != header:
        raise _problem(f"The file must begin with the line '{','.join(header)}'", name, 1)
    cells = math.prod(column.size for column in columns)
    if len(rows) - 1 > cells:
        raise _problem(f"The file has more rows than there are cells ({cells:,})", name, None)
    places = [
        {label or "": code for code, label in enumerate(labels(column))} for column in columns
    ]
    found: dict[int, int] = {}
    for line, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise _problem("A row does not have as many values as the header", name, line)
        cell = 0
        for column, place, value in zip(columns, places, row, strict=False):
            if value not in place:
                raise _problem(f"The column '{column.name}' has no such cell", name, line)
            cell = cell * column.size + place[value]
        if cell in found:
            raise _problem("A cell is listed twice, which no table of totals does", name, line)
        if not (row[-1].isascii() and row[-1].isdigit()) or len(row[-1]) > 15:
            raise _problem("A count is not a whole number of at least 0", name, line)
        found[cell] = int(row[-1])
    return tuple(found.get(cell, 0) for cell in range(cells))


def _problem(what: str, name: str, line: int | None) -> ConfigError:
    place = f"'{name}'" if line is None else f"'{name}', line {line}"
    return ConfigError(f"{what} ({place}).", where="known", next_step=_NEXT)
