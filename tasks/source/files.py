"""The files of a private source as a table of the counting engine.

No word of the engine leaves this module, since its messages quote values
(``tasks.source.guarding``): a failure says nothing but the public path and column.
"""

from __future__ import annotations

import contextlib
import csv
import glob
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from statpress.configs.formats import SourceFormat, is_stat
from statpress.mechanisms.errors import (
    SourceChangedError,
    SourceError,
    SourceNotFoundError,
    SourceUnreadableError,
    StatpressError,
)
from statpress.tasks.source.csv_files import (
    CsvFaultError,
    CsvFiles,
    cannot_be_read,
    likely_keys,
)
from statpress.tasks.source.engine import (
    CsvOptions,
    Limits,
    Schema,
    check_source_columns,
    connect,
    out_of_memory,
    shared_columns,
    unique,
)
from statpress.tasks.source.guarding import PRIVATE, guarded
from statpress.tasks.source.stat_files import copied

if TYPE_CHECKING:
    import ibis.expr.types as ir


@dataclass(frozen=True)
class FileState:
    """A file at one moment: another one, or another content, has another state.

    Attributes:
        path: Where it lies.
        mark: Device, inode, size and times of the last change of its content and of itself, in
            nanoseconds; None if it is not there. Of an object in a store what that says of it.
    """

    path: str
    mark: tuple[object, ...] | None


def states_of(paths: Sequence[str]) -> tuple[FileState, ...]:
    """The states of files, as they are now."""
    return tuple(FileState(path, _mark(path)) for path in paths)


def check_unchanged(states: Sequence[FileState], where: str) -> None:
    """Raise if a file is another, or has another content.

    Raises:
        SourceChangedError: One is.
    """
    if any(_mark(state.path) != state.mark for state in states):
        raise changed(where)


def changed(where: str) -> SourceChangedError:
    """The error of a source that did not stay as it was."""
    return SourceChangedError("The source changed while it was read.", where=where)


def _mark(path: str) -> tuple[object, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def parquet_schema(path: str) -> Schema:
    """Names and types of a Parquet file's top-level columns."""
    import pyarrow.parquet as pq

    schema = pq.read_metadata(path).schema.to_arrow_schema()
    return [(column.name, str(column.type)) for column in schema]


_Result = TypeVar("_Result")


@dataclass(frozen=True)
class FileSource:
    """Where the records are.

    Attributes:
        pattern: Absolute path of a file, or a glob of files of one schema.
        format: ``parquet``, ``csv``, or that of a statistical package.
        csv: How a CSV is written.
        columns: Those that are wanted of a file of Stata, SPSS or SAS.
        unit: A further one of those, which names the units.
        states: Of its files, which are then these, and stay as they are.
        limits: Of the engine that reads it.
    """

    engine: ClassVar[str] = "duckdb"

    pattern: str
    format: SourceFormat
    csv: CsvOptions = field(default_factory=CsvOptions)
    columns: tuple[str, ...] = ()
    unit: str | None = None
    states: tuple[FileState, ...] = ()
    limits: Limits = field(default_factory=Limits)

    @property
    def where(self) -> str:
        """Its public name."""
        return self.pattern


@dataclass(frozen=True)
class OpenFiles:
    """A source that is open.

    Attributes:
        source: Which.
        table: Its records, lazily; of a CSV as text.
        csv: The files of a CSV.
        scratch: Private directory.
    """

    source: FileSource
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
            SourceError: In public words; of a CSV it names the fault.
        """
        return _guarded(self.source, run, self._fault)

    def place_of(self, record: int, column: str, unreadable_as: str = "") -> str:
        """Where a record of a single file lies, in words; of a CSV with the field as it stands.

        Of an unreadable one the keys follow with which it would be read, if that can be told.
        """
        found = self.csv.place_of(record, column) if self.csv is not None else None
        if found is None:
            return f"record {record} of {self.source.pattern}"
        line, field = found
        place = f"record {record}, line {line} of {self.source.pattern}: {field[:100]!a}"
        keys = unreadable_as and likely_keys(field[:100], unreadable_as, self.source.csv)
        return f"{place}, which is read with source: {{{keys}}}" if keys else place

    def _fault(self) -> CsvFaultError | None:
        return None if self.csv is None else self.csv.first_fault(self.scratch)


@contextlib.contextmanager
def open_source(
    source: FileSource,
    *,
    scratch: Path,
    wanted: Sequence[str] = (),
    beside: ir.Table | None = None,
    **settings: Any,
) -> Iterator[OpenFiles]:
    """The source as a lazy Ibis table, on an engine of its own or on that of a table.

    The engine is in memory, spills only to ``scratch``, installs nothing, and
    takes all times as UTC. Column names are the source's, letter for letter; one
    that occurs twice is left out. Columns of a CSV are text, fields without a value null.

    Yields:
        The open source; it ends with the context.

    Raises:
        SourceNotFoundError: No file matches the pattern.
        SourceUnreadableError: A file is a directory, closed to the reader,
            corrupt, or a CSV that is not of the declared form.
        ColumnNotFoundError: A wanted column is missing, double or of several types.
        OutputNotWritableError: The disk has no room for a copy in UTF-8.
        SourceChangedError: A file was changed since the source was opened, or since it is held.
    """
    states = source.states or states_of(files_of(source))
    check_unchanged(states, source.where)
    failure = None
    try:
        paths = [state.path for state in states]
        with _opened(paths, source, scratch, wanted, beside, settings) as opened:
            yield opened
    except SourceError as error:
        failure = error
    check_unchanged(states, source.where)  # what is wrong may be only that somebody writes
    if failure is not None:
        raise failure


@contextlib.contextmanager
def _opened(
    paths: list[str],
    source: FileSource,
    scratch: Path,
    wanted: Sequence[str],
    beside: ir.Table | None,
    settings: dict[str, Any],
) -> Iterator[OpenFiles]:
    """The files as a table, whatever happens to them."""
    if is_stat(source.format):
        paths = copied(
            source.format,
            paths,
            source.columns,
            scratch,
            pattern=source.pattern,
            unit=source.unit,
        )
    connection: Any = (
        _guarded(source, lambda: connect(scratch, source.limits, **settings))
        if beside is None
        else beside.get_backend()
    )
    view = "source" if beside is None else "source_beside"
    copies = scratch / "text"
    named = wanted if source.unit is None else dict.fromkeys((*wanted, source.unit))

    def opened() -> OpenFiles:
        if source.format != "csv":
            schemas = [parquet_schema(path) for path in paths]
            positions = shared_columns(schemas)
            check_source_columns(named, positions, schemas)
            table = _parquet_table(connection, paths, len(schemas[0]), positions, view)
            return OpenFiles(source, table, None, scratch)
        copies.mkdir(mode=0o700)
        files = CsvFiles.of(paths, source.csv, copies)
        files.check_delimiter(wanted)
        positions = unique(files.header)
        check_source_columns(named, positions, [[(name, "text") for name in files.header]])
        table = _named(connection, files.select(), positions, view)
        return OpenFiles(source, table, files, scratch)

    try:
        yield _guarded(source, opened)
    finally:
        if beside is None:
            connection.disconnect()
        shutil.rmtree(copies, ignore_errors=True)


def files_of(source: FileSource) -> list[str]:
    """Paths of the source's files, in order.

    Raises:
        SourceNotFoundError: No file matches the pattern.
        SourceUnreadableError: The pattern is the path of something else.
    """
    if source.states:
        return [state.path for state in source.states]
    return _guarded(source, lambda: _matches(source))


def _matches(source: FileSource) -> list[str]:
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
    connection: Any, paths: list[str], width: int, positions: dict[str, int], view: str
) -> ir.Table:
    """The files as a table with exact column names.

    The engine folds the case of names, so it is given positions instead.
    """
    options = "hive_partitioning=false, union_by_name=false, can_have_nan=true"
    quoted = ", ".join("'" + glob.escape(path).replace("'", "''") + "'" for path in paths)
    aliases = ", ".join(f"c{position}" for position in range(width))
    query = f"SELECT * FROM read_parquet([{quoted}], {options}) AS file({aliases})"  # noqa: S608
    return _named(connection, query, positions, view)


def _named(connection: Any, query: str, positions: dict[str, int], name: str) -> ir.Table:
    """The columns ``c0``, ``c1``, ... of a query under their names."""
    connection.raw_sql(f"CREATE TEMP VIEW {name} AS {query}")
    view = connection.table(name)
    return view.select(**{column: view[f"c{place}"] for column, place in positions.items()})


def _guarded(
    source: FileSource,
    run: Callable[[], _Result],
    fault: Callable[[], CsvFaultError | None] = lambda: None,
) -> _Result:
    """Run a step that may touch the source, silencing whatever the engine says."""

    def failure_of(error: Exception) -> StatpressError | None:
        found = error if isinstance(error, CsvFaultError) else None
        short = out_of_memory(error, source.where)
        if short is not None:
            return short
        if isinstance(error, duckdb.Error):
            found = _guarded(source, fault)
        if found is None:
            return _unreadable(error, source)
        PRIVATE.error("fault of the source: %s", found)
        return cannot_be_read(source.pattern, found.fault, *found.details)

    import duckdb

    return guarded(source.where, run, failure_of)


def _unreadable(error: Exception, source: FileSource) -> SourceUnreadableError | None:
    """The public error for what the engine or a file says; None for another failure."""
    import duckdb
    import pyarrow as pa

    kinds = (duckdb.Error, pa.ArrowException, OSError, EOFError, UnicodeError, csv.Error)
    if not isinstance(error, kinds):
        return None
    what = f"The source cannot be read as {source.format}."
    return SourceUnreadableError(what, where=source.pattern)
