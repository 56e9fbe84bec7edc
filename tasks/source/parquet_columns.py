"""Columns that all files of a source have, by name and type."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.source.column_faults import Schema


def parquet_schema(path: str) -> Schema:
    """Names and types of a Parquet file's top-level columns."""
    import pyarrow.parquet as pq

    schema = pq.read_metadata(path).schema.to_arrow_schema()
    return [(column.name, str(column.type)) for column in schema]


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
