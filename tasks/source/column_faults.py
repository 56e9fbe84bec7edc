"""Why a declared column cannot be taken from a source: from names and types, and no value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mechanisms.errors import ColumnNotFoundError, together

Schema = Sequence[tuple[str, str]]
"""Name and type of every column of a file."""


def check_columns(wanted: Iterable[str], usable: Iterable[str], schemas: Sequence[Schema]) -> None:
    """Raise if a column is not among the usable ones.

    Args:
        wanted: Names of columns that are declared.
        usable: Those that all files have, once and of one type.
        schemas: Of each file.

    Raises:
        ColumnNotFoundError: With all such columns, each with its fault.
    """
    known = set(usable)
    faults = [
        ColumnNotFoundError(_fault(name, schemas), where=name)
        for name in wanted
        if name not in known
    ]
    if faults:
        raise together(faults)


def _fault(name: str, schemas: Sequence[Schema]) -> str:
    """What is wrong with a column."""
    files = "the source" if len(schemas) == 1 else "a file of the source"
    kinds = [[kind for other, kind in schema if other == name] for schema in schemas]
    if not any(kinds):
        return f"The source has no column '{name}' (names are compared exactly)."
    if not all(kinds):
        return f"Not all files of the source have a column '{name}' (names are compared exactly)."
    if any(len(each) > 1 for each in kinds):
        return f"The column '{name}' is more than once in {files}."
    if len({each[0] for each in kinds}) > 1:
        return f"The column '{name}' is not of one type in all files of the source."
    return f"Another column of {files} differs from '{name}' in upper and lower case only."
