"""DuckDB: files on this machine, read where they lie."""

from __future__ import annotations

import functools
import glob
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statpress.configs.sources import SourceConfig
from statpress.tasks.private_zone.workers import usable_processors
from statpress.tasks.source import files
from statpress.tasks.source.engine import (
    MEMORY_LIMIT,
    ArrayFunction,
    Constants,
    CsvOptions,
    Limits,
    csv_memory,
)
from statpress.tasks.source.files import FileSource, OpenFiles

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa


_NUMBERS = itertools.count()
"""Of functions, so that none takes the name of another."""


def source_of(
    declared: SourceConfig,
    located: Callable[[str], Path],
    *,
    columns: tuple[str, ...],
    unit: str | None,
    limits: Limits,
) -> FileSource:
    """The files that a config declares; of a CSV a wide one is read in more memory by default."""
    if declared.form == "csv" and limits.memory is None:
        needed = csv_memory(len(columns), limits.threads or usable_processors())
        limits = replace(limits, memory=max(MEMORY_LIMIT, 2 * needed))
    return FileSource(
        pattern=str(located(declared.path)),
        format=declared.form,
        csv=CsvOptions(
            delimiter=declared.delimiter,
            encoding=declared.encoding,
            decimal=declared.decimal,
            thousands=declared.thousands,
            date_format=declared.date_format,
            null_values=tuple(declared.null_values),
            unit=unit,
        ),
        columns=columns,
        unit=unit,
        limits=limits,
    )


def check_place(source: FileSource) -> None:
    """See that a named file is there; which files a pattern finds is for a look to tell."""
    if not glob.has_magic(source.pattern):
        files.files_of(source)


def is_there(source: FileSource) -> bool:
    """Whether a file matches."""
    return bool(glob.glob(source.pattern, recursive=True))


def parts_of(source: FileSource) -> Iterator[FileSource]:
    """A file each."""
    for path in files.files_of(source):
        states = tuple(state for state in source.states if state.path == path)
        yield replace(source, pattern=path, states=states)


@contextmanager
def held(source: FileSource, scratch: Path) -> Iterator[FileSource]:
    """The files of a source, which must not change while they are held."""
    states = files.states_of(files.files_of(source))
    yield replace(source, states=states)
    files.check_unchanged(states, source.where)


def opened(
    source: FileSource, scratch: Path, wanted: Sequence[str], **settings: Any
) -> AbstractContextManager[OpenFiles]:
    """An engine of its own, in memory, with the files as a table."""
    return files.open_source(source, scratch=scratch, wanted=wanted, **settings)


def constants(like: ir.Table, columns: Constants) -> ir.Table:
    """A table in memory, joined by name."""
    import ibis
    import pyarrow as pa

    return ibis.memtable(
        pa.table(
            {
                name: pa.array(values, type=dtype.to_pyarrow())
                for name, (dtype, values) in columns.items()
            }
        )
    )


def mapped(value: Any, function: Callable[[], ArrayFunction]) -> Any:
    """A function of vectors, which the engine calls with what is not null."""
    import pyarrow as pa

    engine: Any = value.get_backend()
    name, mapping, stopped = f"mapped_{next(_NUMBERS)}", function(), _stopped(engine)

    def of_vector(values: Any) -> Any:
        try:
            return pa.array(mapping(values.to_numpy(zero_copy_only=False)))
        except BaseException as error:
            stopped.append(error)
            raise

    # Threads that wait for Python's lock take longer than one alone, by half with two of them.
    engine.con.execute("SET threads = 1")
    # Ibis would register it for queries, but not for views.
    engine.con.create_function(name, of_vector, ["DOUBLE"], "DOUBLE", type="arrow")
    return _builtin(name, "float64")(value.cast("float64"))


def floor(number: Any) -> Any:
    """The engine's own, which gives a double."""
    return _builtin("floor", "float64")(number)


def digest(text: Any) -> Any:
    """Hexadecimal digits."""
    return _builtin("sha256", "string")(text)


@functools.lru_cache(maxsize=16)
def _builtin(name: str, dtype: str) -> Any:
    """A function of the engine of one argument, of the type that it gives.

    FLOOR without the cast to int64 that Ibis adds, a tenth of the time of a count.
    """
    import ibis

    return ibis.udf.scalar.builtin(lambda value: value, name=name, signature=((dtype,), dtype))


def _stopped(engine: Any) -> list[BaseException]:
    """What a signal raised in a function of an engine, which makes an error of its own of it."""
    stopped: list[BaseException] = vars(engine).setdefault("_stopped_by", [])
    return stopped


@contextmanager
def _stoppable(engine: Any) -> Iterator[None]:
    """Raise what a signal raised, and not what the engine makes of it."""
    stopped = _stopped(engine)
    stopped.clear()
    try:
        yield
    except Exception:
        if not stopped:
            raise
    if stopped:
        raise stopped.pop()


def stored(records: ir.Table) -> ir.Table:
    """A temporary table, which spills: codes and windows at once would need too much memory."""
    engine: Any = records.get_backend()
    with _stoppable(engine):
        table: ir.Table = engine.create_table("stored_records", records, temp=True)
    return table


def fetched(result: ir.Table) -> pa.Table:
    """In one piece."""
    with _stoppable(result.get_backend()):
        return result.to_pyarrow()


def batches(records: ir.Table, size: int) -> Iterator[pa.RecordBatch]:
    """As they come."""
    engine: Any = records.get_backend()
    engine.create_view("packed_codes", records)
    # Ibis's own reader of batches calls a method that DuckDB 2 has no more, and a result of
    # "execute" would be held in memory.
    with _stoppable(engine):
        yield from engine.con.sql("SELECT * FROM packed_codes").to_arrow_reader(size)


def by_sets(records: ir.Table, sets: Sequence[tuple[str, ...]]) -> pa.Table:
    """Grouping sets, which Ibis has no word for."""
    engine: Any = records.get_backend()
    engine.create_view("coded_records", records)
    listed = ", ".join(f"({', '.join(names)})" for names in sets)
    query = (
        f"SELECT {', '.join(records.columns)}, count(*) AS records FROM coded_records "  # noqa: S608
        f"GROUP BY GROUPING SETS ({listed})"
    )
    with _stoppable(engine):
        return engine.con.sql(query).to_arrow_table()
