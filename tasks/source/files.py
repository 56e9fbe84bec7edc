"""The files of a private source as a table of the counting engine.

No word of the engine leaves this module or ``counting``, since its messages quote values: each
failure is one of the errors below, raised outside the ``except`` block so that it carries no
context, and says nothing but the public path and column.
"""

from __future__ import annotations

import contextlib
import csv
import glob
import gzip
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from configs.source_formats import SourceFormat, is_stat
from mechanisms.errors import (
    InternalError,
    SourceError,
    SourceNotFoundError,
    SourceUnreadableError,
    StatpressError,
)
from tasks.source.stat_files import copied

if TYPE_CHECKING:
    import ibis.expr.types as ir

MEMORY_LIMIT = "300MB"
_LONGEST_HEADER_LINE = 2**20
_Result = TypeVar("_Result")
_PRIVATE = logging.getLogger("statpress.private")  # heard only by a run's curator log
_PRIVATE.propagate = False
_PRIVATE.addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Source:
    """Where the records are.

    Attributes:
        pattern: Absolute path of a file, or a glob of files of one schema.
        format: ``parquet``, ``csv`` (comma, double quotes, UTF-8, a header), or a package's.
        columns: Those that are wanted of a file of Stata, SPSS or SAS.
        unit: A further one of those, which names the units.
    """

    pattern: str
    format: SourceFormat
    columns: tuple[str, ...] = ()
    unit: str | None = None


@contextlib.contextmanager
def open_source(
    source: Source, *, scratch: Path, memory_limit: str = MEMORY_LIMIT
) -> Iterator[ir.Table]:
    """The source as a lazy Ibis table, on an engine of its own.

    The engine is in memory, spills only to ``scratch``, installs nothing, and
    takes all times as UTC. Column names are the source's, letter for letter; one
    that occurs twice is left out. Columns of a CSV are text, empty fields null.

    Yields:
        The table; it ends with the context.

    Raises:
        SourceNotFoundError: No file matches the pattern.
        SourceUnreadableError: A file is a directory, closed to the reader,
            corrupt, or a CSV whose header is not that of the first.
    """
    paths = guarded(source, lambda: _matches(source))
    if is_stat(source.format):
        paths = copied(
            source.format,
            paths,
            source.columns,
            scratch,
            pattern=source.pattern,
            unit=source.unit,
        )
        source = replace(source, format="parquet")
    connection = guarded(source, lambda: _connect(scratch, memory_limit))
    try:
        yield guarded(source, lambda: _table(connection, source, paths))
    finally:
        connection.disconnect()


def _matches(source: Source) -> list[str]:
    """Paths of the source's files: the pattern itself, or what it matches."""
    if os.path.lexists(source.pattern):
        paths = [source.pattern]
        if not os.path.isfile(source.pattern):
            raise SourceUnreadableError("The source is not a file.", where=source.pattern)
    else:
        paths = sorted(filter(os.path.isfile, glob.iglob(source.pattern, recursive=True)))
    if not paths:
        raise SourceNotFoundError("No file matches the source's path.", where=source.pattern)
    return paths


def _connect(scratch: Path, memory_limit: str) -> Any:
    """An in-memory engine whose only trace on disk is in ``scratch``."""
    import ibis

    connection = ibis.duckdb.connect(
        ":memory:",
        temp_directory=str(scratch),
        memory_limit=memory_limit,
        autoinstall_known_extensions=False,
        autoload_known_extensions=False,
        preserve_insertion_order=False,
    )
    connection.raw_sql("SET enable_progress_bar = false")  # it goes to standard output
    return connection


def _table(connection: Any, source: Source, paths: list[str]) -> ir.Table:
    """The files as a table with exact column names.

    The engine folds the case of names, so it is given positions instead.
    """
    if source.format == "parquet":
        schemas = [_parquet_schema(path) for path in paths]
        positions, width = _shared_columns(schemas), len(schemas[0])
        options, selected = "hive_partitioning=false, union_by_name=false, can_have_nan=true", "*"
    else:
        headers = [_csv_header(path) for path in paths]
        if not headers[0] or any(header != headers[0] for header in headers):
            raise SourceUnreadableError(
                "The files lack a header, or have different headers.", where=source.pattern
            )
        positions, width = _unique(headers[0]), len(headers[0])
        names = ", ".join(f"c{position}: 'VARCHAR'" for position in range(width))
        # Not the bare columns: DuckDB 2.0 moves a TRY_CAST of those into its CSV
        # reader, where it fails instead of giving null (duckdb issue 23818).
        selected = ", ".join(f"nullif(c{position}, '') AS c{position}" for position in range(width))
        options = (
            f"columns={{{names}}}, auto_detect=false, header=true, delim=',', quote='\"', "
            "escape='\"', comment='', nullstr='', strict_mode=true, ignore_errors=false, "
            "null_padding=false, hive_partitioning=false"
        )
    quoted = ", ".join("'" + glob.escape(path).replace("'", "''") + "'" for path in paths)
    aliases = ", ".join(f"c{position}" for position in range(width))
    files = f"read_{source.format}([{quoted}], {options}) AS file({aliases})"
    query = f"SELECT {selected} FROM {files}"  # noqa: S608  (names are ours, paths quoted)
    connection.raw_sql(f"CREATE TEMP VIEW source AS {query}")
    view = connection.table("source")
    return view.select(**{name: view[f"c{position}"] for name, position in positions.items()})


def _parquet_schema(path: str) -> list[tuple[str, str]]:
    """Names and types of a Parquet file's top-level columns."""
    import pyarrow.parquet as pq

    schema = pq.read_metadata(path).schema.to_arrow_schema()
    return [(column.name, str(column.type)) for column in schema]


def _shared_columns(schemas: list[list[tuple[str, str]]]) -> dict[str, int]:
    """Positions, in the first file, of columns that all files have with one type.

    The engine matches the columns of several files by folded name and casts
    them to the first file's type, so a name or a type that is not the same
    throughout is left out.
    """
    first = schemas[0]
    positions = _unique([name for name, _ in first])
    for schema in schemas if len(schemas) > 1 else []:
        folded = _unique([name.lower() for name, _ in schema])
        types = dict(schema)
        positions = {
            name: position
            for name, position in positions.items()
            if name.lower() in folded and types.get(name) == first[position][1]
        }
    return positions


def _csv_header(path: str) -> list[str]:
    """The column names in the first record of a CSV file."""
    opened = gzip.open if path.endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8-sig", newline="") as text:
        lines = iter(lambda: text.readline(_LONGEST_HEADER_LINE), "")
        return next(csv.reader(lines, strict=True), [])


def _unique(names: list[str]) -> dict[str, int]:
    """Positions of the names that occur once."""
    return {name: index for index, name in enumerate(names) if names.count(name) == 1}


def guarded(source: Source, run: Callable[[], _Result]) -> _Result:
    """Run a step that may touch the source, silencing whatever the engine says."""
    import duckdb
    import pyarrow as pa

    failure: StatpressError
    try:
        return run()
    except StatpressError:
        raise
    except duckdb.OutOfMemoryException:
        _PRIVATE.exception("counting")
        failure = SourceError(
            "Counting needs more memory, or more room to spill, than it may use.",
            where=source.pattern,
            next_step="Raise the memory limit, or free space in the work directory.",
        )
    except (duckdb.Error, pa.ArrowException, OSError, UnicodeError, csv.Error):
        _PRIVATE.exception("counting")
        failure = SourceUnreadableError(
            f"The source cannot be read as {source.format}.", where=source.pattern
        )
    except Exception:
        _PRIVATE.exception("counting")
        failure = InternalError("Counting failed.", where=source.pattern)
    raise failure  # outside the except block: no __context__
