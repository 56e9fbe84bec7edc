"""The files of a private source as a table of the counting engine.

No word of the engine leaves this module or ``counting``, since its messages quote values: each
failure is one of the errors below, raised outside the ``except`` block so that it carries no
context, and says nothing but the public path and column.
"""

from __future__ import annotations

import contextlib
import csv
import glob
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from configs.models.source_formats import SourceFormat, is_stat
from mechanisms.errors import (
    InternalError,
    SourceError,
    SourceNotFoundError,
    SourceUnreadableError,
    StatpressError,
)
from tasks.source.column_faults import Schema, check_columns
from tasks.source.csv_files import CsvFiles
from tasks.source.csv_options import CsvOptions
from tasks.source.engine import connect
from tasks.source.faults import CsvFaultError, cannot_be_read
from tasks.source.stat_files import copied

if TYPE_CHECKING:
    import ibis.expr.types as ir

_Result = TypeVar("_Result")
_PRIVATE = logging.getLogger("statpress.private")  # heard only by a run's curator log
_PRIVATE.propagate = False
_PRIVATE.addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Source:
    """Where the records are.

    Attributes:
        pattern: Absolute path of a file, or a glob of files of one schema.
        format: ``parquet``, ``csv``, or that of a statistical package.
        csv: How a CSV is written.
        columns: Those that are wanted of a file of Stata, SPSS or SAS.
        unit: A further one of those, which names the units.
    """

    pattern: str
    format: SourceFormat
    csv: CsvOptions = field(default_factory=CsvOptions)
    columns: tuple[str, ...] = ()
    unit: str | None = None


@dataclass(frozen=True)
class OpenSource:
    """A source that is open.

    Attributes:
        source: Which.
        table: Its records, lazily; of a CSV as text.
        csv: The files of a CSV.
        scratch: Private directory.
    """

    source: Source
    table: ir.Table
    csv: CsvFiles | None
    scratch: Path

    @property
    def text(self) -> CsvOptions | None:
        """How the columns are written as text, if they are."""
        return None if self.csv is None else self.csv.options

    def read(self, run: Callable[[], _Result]) -> _Result:
        """Run a step that reads the source.

        Raises:
            SourceError: As ``guarded``; of a CSV it names the fault.
        """
        return guarded(self.source, run, self._fault)

    def _fault(self) -> CsvFaultError | None:
        return None if self.csv is None else self.csv.first_fault(self.scratch)


@contextlib.contextmanager
def open_source(
    source: Source,
    *,
    scratch: Path,
    wanted: Sequence[str] = (),
    **settings: Any,
) -> Iterator[OpenSource]:
    """The source as a lazy Ibis table, on an engine of its own.

    The engine is in memory, spills only to ``scratch``, installs nothing, and
    takes all times as UTC. Column names are the source's, letter for letter; one
    that occurs twice is left out. Columns of a CSV are text, fields without a value null.

    Args:
        source: Which.
        scratch: Private directory, for what the engine spills and for copies in UTF-8.
        wanted: Columns that are declared; the one that names the units is wanted as well.
        settings: More of the engine's settings.

    Yields:
        The open source; it ends with the context.

    Raises:
        SourceNotFoundError: No file matches the pattern.
        SourceUnreadableError: A file is a directory, closed to the reader,
            corrupt, or a CSV that is not of the declared form.
        ColumnNotFoundError: A wanted column is missing, double or of several types.
        OutputNotWritableError: The disk has no room for a copy in UTF-8.
    """
    paths = files_of(source)
    if is_stat(source.format):
        paths = copied(
            source.format,
            paths,
            source.columns,
            scratch,
            pattern=source.pattern,
            unit=source.unit,
        )
    connection = guarded(source, lambda: connect(scratch, **settings))
    copies = scratch / "text"
    named = wanted if source.unit is None else dict.fromkeys((*wanted, source.unit))

    def opened() -> OpenSource:
        if source.format != "csv":
            schemas = [_parquet_schema(path) for path in paths]
            positions = _shared_columns(schemas)
            check_columns(named, positions, schemas)
            table = _parquet_table(connection, paths, len(schemas[0]), positions)
            return OpenSource(source, table, None, scratch)
        copies.mkdir(mode=0o700)
        files = CsvFiles.of(paths, source.csv, copies)
        files.check_delimiter(wanted)
        positions = _unique(files.header)
        check_columns(named, positions, [[(name, "text") for name in files.header]])
        table = _named(connection, files.select(), positions)
        return OpenSource(source, table, files, scratch)

    try:
        yield guarded(source, opened)
    finally:
        connection.disconnect()
        shutil.rmtree(copies, ignore_errors=True)


def files_of(source: Source) -> list[str]:
    """Paths of the source's files, in order.

    Raises:
        SourceNotFoundError: No file matches the pattern.
        SourceUnreadableError: The pattern is the path of something else.
    """
    return guarded(source, lambda: _matches(source))


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


def _parquet_table(
    connection: Any, paths: list[str], width: int, positions: dict[str, int]
) -> ir.Table:
    """The files as a table with exact column names.

    The engine folds the case of names, so it is given positions instead.
    """
    options = "hive_partitioning=false, union_by_name=false, can_have_nan=true"
    quoted = ", ".join("'" + glob.escape(path).replace("'", "''") + "'" for path in paths)
    aliases = ", ".join(f"c{position}" for position in range(width))
    query = f"SELECT * FROM read_parquet([{quoted}], {options}) AS file({aliases})"  # noqa: S608
    return _named(connection, query, positions)


def _named(connection: Any, query: str, positions: dict[str, int]) -> ir.Table:
    """The columns ``c0``, ``c1``, ... of a query under their names."""
    connection.raw_sql(f"CREATE TEMP VIEW source AS {query}")
    view = connection.table("source")
    return view.select(**{name: view[f"c{position}"] for name, position in positions.items()})


def _parquet_schema(path: str) -> Schema:
    """Names and types of a Parquet file's top-level columns."""
    import pyarrow.parquet as pq

    schema = pq.read_metadata(path).schema.to_arrow_schema()
    return [(column.name, str(column.type)) for column in schema]


def _shared_columns(schemas: Sequence[Schema]) -> dict[str, int]:
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


def _unique(names: Sequence[str]) -> dict[str, int]:
    """Positions of the names that occur once."""
    return {name: index for index, name in enumerate(names) if names.count(name) == 1}


def guarded(
    source: Source,
    run: Callable[[], _Result],
    fault: Callable[[], CsvFaultError | None] = lambda: None,
) -> _Result:
    """Run a step that may touch the source, silencing whatever the engine says.

    Args:
        source: Which.
        run: The step.
        fault: Finds the fault of a CSV that the engine refused.

    Raises:
        SourceError: What is wrong, in public words.
        InternalError: Something else.
    """
    import duckdb
    import pyarrow as pa

    failure: StatpressError
    refused, found = False, None
    try:
        return run()
    except StatpressError:
        raise
    except CsvFaultError as error:
        found = error
    except duckdb.OutOfMemoryException:
        _PRIVATE.exception("counting")
        failure = SourceError(
            "Counting needs more memory, or more room to spill, than it may use.",
            where=source.pattern,
            next_step="Raise the memory limit, or free space in the work directory.",
        )
    except (duckdb.Error, pa.ArrowException, OSError, EOFError, UnicodeError, csv.Error) as error:
        _PRIVATE.exception("counting")
        refused = isinstance(error, duckdb.Error)
        failure = SourceUnreadableError(
            f"The source cannot be read as {source.format}.", where=source.pattern
        )
    except Exception:
        _PRIVATE.exception("counting")
        failure = InternalError("Counting failed.", where=source.pattern)
    # Outside the except block: no __context__.
    if refused:
        found = guarded(source, fault)
    if found is not None:
        _PRIVATE.error("fault of the source: %s", found)
        failure = cannot_be_read(source.pattern, found.fault, *found.details)
    raise failure
