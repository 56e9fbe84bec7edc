"""Object stores and lakes, which Arrow reads for DuckDB: it has no package of extensions for them.

Only the reading is here; what runs is DuckDB (``tasks.source.duckdb``).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from statpress.configs.sources import SourceConfig
from statpress.mechanisms.errors import (
    SourceChangedError,
    SourceNotFoundError,
    SourceUnreadableError,
    StatpressError,
)
from statpress.tasks.source import lakes
from statpress.tasks.source import lakes as object_store
from statpress.tasks.source.engine import (
    Limits,
    OpenTable,
    check_source_columns,
    connect,
    out_of_memory,
    shared_columns,
    unique,
)
from statpress.tasks.source.guarding import PRIVATE, guarded
from statpress.tasks.source.lakes import Lake, Records

_Result = TypeVar("_Result")


def source_of(
    declared: SourceConfig,
    located: Callable[[str], Path],
    *,
    columns: tuple[str, ...],
    unit: str | None,
    limits: Limits,
) -> Lake:
    """The objects or the table that a config declares."""
    del columns
    path = declared.path if "://" in declared.path else str(located(declared.path))
    store = object_store.ObjectStore(declared.endpoint, declared.region)
    return Lake(path, declared.form, store, declared.version, unit, limits=limits)


def check_place(source: Lake) -> None:
    """Whether it is there only a connection tells."""


def is_there(source: Lake) -> bool:
    """Whether the store has an object that matches, or the folder a table."""
    try:
        with held(source, Path()):
            return True
    except SourceNotFoundError:
        return False


def parts_of(source: Lake) -> Iterator[Lake]:
    """None: files of a lake have no order."""
    del source
    return iter(())


@contextmanager
def held(source: Lake, scratch: Path) -> Iterator[Lake]:
    """One version, or objects that must not change while they are held."""
    del scratch
    keeping = lakes.held(source)
    kept = _guarded(source, keeping.__enter__)
    yield kept
    _guarded(source, lambda: keeping.__exit__(None, None, None))


@contextmanager
def opened(
    source: Lake, scratch: Path, wanted: Sequence[str], **settings: Any
) -> Iterator[OpenTable]:
    """A DuckDB of its own, with the wanted columns as a table."""
    with contextlib.ExitStack() as stack:
        if not source.states and source.version is None:
            source = stack.enter_context(held(source, scratch))
        connection = _guarded(source, lambda: connect(scratch, source.limits, **settings))
        stack.callback(connection.disconnect)
        named = () if source.unit is None else (source.unit,)
        names = tuple(dict.fromkeys((*wanted, *named)))
        yield _guarded(source, lambda: _opened(connection, source, names))


def _opened(connection: Any, source: Lake, wanted: tuple[str, ...]) -> OpenTable:
    schemas, read = lakes.opened(source)
    usable = shared_columns(schemas) if len(schemas) > 1 else unique([n for n, _ in schemas[0]])
    check_source_columns(wanted, usable, schemas)
    names = wanted or tuple(usable)
    connection.con.register("records", Records(names, read))
    connection.raw_sql("CREATE TEMP VIEW source AS SELECT * FROM records")
    view = connection.table("source")
    chosen = view.select(**{name: view[f"c{i}"] for i, name in enumerate(names)})
    return OpenTable(chosen, functools.partial(_guarded, source))


def _guarded(source: Lake, run: Callable[[], _Result]) -> _Result:
    return guarded(source.where, run, lambda error: _failure_of(error, source))


def _failure_of(error: Exception, source: Lake) -> StatpressError | None:
    """The public error that stands for one of the engine, of Arrow or of a lake."""
    found = out_of_memory(error, source.where) or object_store.failure_of(error, source.where)
    if found is not None:
        return found
    if isinstance(error, FileNotFoundError) or type(error).__name__ == "TableNotFoundError":
        return SourceNotFoundError(f"There is no {source.format} table there.", where=source.where)
    try:
        source.store.check_unchanged(source.states, source.where)
    except SourceChangedError as other:
        return other  # what is wrong may be only that somebody writes
    except Exception:
        PRIVATE.exception("looking whether the source changed")
    return SourceUnreadableError(
        f"The source cannot be read as {source.format}.", where=source.where
    )
