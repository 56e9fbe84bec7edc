"""Whether a source has the columns that are declared: names and types, in each of its files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from statpress.mechanisms.errors import ColumnNotFoundError, together

Schema = Sequence[tuple[str, str]]
"""Name and type of every column of a file."""


def check_source_columns(
    wanted: Iterable[str], usable: Iterable[str], schemas: Sequence[Schema]
) -> None:
    """Raise if a column is not among the usable ones.

    Args:
        wanted: Names of columns that are declared.
        usable: Those that all files have, once and of one type.
        schemas: Of each file.

    Raises:
        ColumnNotFoundError: With all such columns, each with its fault.
    """
    known = set(usable)
    faults = [_fault(name, schemas) for name in wanted if name not in known]
    if faults:
        raise together(faults)


def _fault(name: str, schemas: Sequence[Schema]) -> ColumnNotFoundError:
    """What is wrong with a column."""
    files = "the source" if len(schemas) == 1 else "a file of the source"
    kinds = [[kind for other, kind in schema if other == name] for schema in schemas]
    if not any(kinds):
        return missing_column(name)
    if not all(kinds):
        fault = f"Not all files of the source have a column '{name}' (names are compared exactly)."
    elif any(len(each) > 1 for each in kinds):
        fault = f"The column '{name}' is more than once in {files}."
    elif len({each[0] for each in kinds}) > 1:
        fault = f"The column '{name}' is not of one type in all files of the source."
    else:
        fault = f"Another column of {files} differs from '{name}' in upper and lower case only."
    return ColumnNotFoundError(fault, where=name)


def shared_columns(schemas: Sequence[Schema]) -> dict[str, int]:
    """Positions, in the first file, of columns that all files have with one type.

    The engine matches the columns of several files by folded name and casts
    them to the first file's type, so a name or a type that is not the same
    throughout is left out.
    """
    first = schemas[0]
    positions = unique([name for name, _ in first])
    for schema in schemas if len(schemas) > 1 else []:
        folded = unique([name.lower() for name, _ in schema])
        types = dict(schema)
        positions = {
            name: position
            for name, position in positions.items()
            if name.lower() in folded and types.get(name) == first[position][1]
        }
    return positions


def unique(names: Sequence[str]) -> dict[str, int]:
    """Positions of the names that occur once."""
    return {name: index for index, name in enumerate(names) if names.count(name) == 1}


def missing_column(name: str) -> ColumnNotFoundError:
    """The public error for a column that the source does not have."""
    flaw = f"The source has no column '{name}' (names are compared exactly)."
    return ColumnNotFoundError(flaw, where=name)
