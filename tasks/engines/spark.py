"""Spark: files or a table, counted on this machine or on a cluster.

Files of a source have to stay as they are while it is read: Spark says which they are, how long and
when they were written, before the first reading and after the last.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from configs.models.server_sources import SparkSourceConfig
from mechanisms.errors import SourceNotFoundError, SourceUnreadableError
from tasks.engines.engine import ArrayFunction, Constants, OpenTable
from tasks.engines.spark_faults import failure_of
from tasks.engines.spark_session import session_in
from tasks.source.column_faults import Schema, check_columns
from tasks.source.engine import Limits
from tasks.source.file_states import changed
from tasks.source.guarding import guarded
from tasks.source.parquet_columns import shared_columns

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_Result = TypeVar("_Result")
_States = tuple[tuple[Any, ...], ...]
_FILE = ("_metadata.file_path", "_metadata.file_size", "_metadata.file_modification_time")


@dataclass(frozen=True)
class Source:
    """Where the records are.

    Attributes:
        path: Files of Parquet or ORC, as Spark names them; None for a table.
        table: Name of a table in the session's catalogue.
        format: Of files.
        master: Of a cluster, or ``local[2]``; None for all cores of this machine.
        remote: Address of a server of Spark Connect, if it is not a master.
        unit: A column that names the units.
        limits: Of the Java process of our own.
        session: If one is held.
        states: Of the files that were there when the source was first read.
    """

    path: str | None
    table: str | None = None
    format: str = "parquet"
    master: str | None = None
    remote: str | None = None
    unit: str | None = None
    limits: Limits = field(default_factory=Limits)
    session: SparkSession | None = field(default=None, compare=False, repr=False)
    states: _States = field(default=(), repr=False)
    engine: ClassVar[str] = "spark"

    @property
    def where(self) -> str:
        """Its public name."""
        return self.path or f"table {self.table}"

    def frame(self) -> DataFrame:
        """Its records, of a session."""
        assert self.session is not None
        if self.table is not None:
            return self.session.table(self.table)
        reader = self.session.read.format(self.format)
        return reader.load([state[0] for state in self.states] or self.path)


def source_of(
    declared: SparkSourceConfig,
    located: Callable[[str], Path],
    *,
    columns: tuple[str, ...],
    unit: str | None,
    limits: Limits,
) -> Source:
    """The files or the table that a config declares."""
    del columns
    path = declared.path
    if path is not None and "://" not in path:
        path = str(located(path))
    return Source(
        path, declared.table, declared.format, declared.master, declared.remote, unit, limits
    )


def check_place(source: Source) -> None:
    """Whether it is there only a session tells."""


def parts_of(source: Source) -> Iterator[Source]:
    """None: records of a cluster have no order."""
    del source
    return iter(())


@contextmanager
def held(source: Source, scratch: Path) -> Iterator[Source]:
    """A session, and the files that were there at first, which must not change."""
    with contextlib.ExitStack() as stack:
        made = session_in(scratch, source.master, source.remote, source.limits)
        session = _guarded(source, lambda: stack.enter_context(made))
        kept = replace(source, session=session)
        kept = replace(kept, states=_guarded(source, lambda: _states(kept)))
        yield kept
        check_unchanged(kept)


def check_unchanged(source: Source) -> None:
    """Raise if the files of a held source are not what they were.

    Raises:
        SourceChangedError: They are others.
    """
    found: _States | None = None
    with contextlib.suppress(SourceNotFoundError, SourceUnreadableError):
        found = _guarded(source, lambda: _states(source))
    if found != source.states:
        raise changed(source.where)


@contextmanager
def opened(
    source: Source, scratch: Path, wanted: Sequence[str], **settings: Any
) -> Iterator[OpenTable]:
    """The wanted columns, by default all, of a session."""
    del settings  # a cluster has its own
    with contextlib.ExitStack() as stack:
        if source.session is None:
            source = stack.enter_context(held(source, scratch))
        check_unchanged(source)
        named = () if source.unit is None else (source.unit,)
        yield _guarded(source, lambda: _opened(source, tuple(dict.fromkeys((*wanted, *named)))))


def _opened(source: Source, wanted: tuple[str, ...]) -> OpenTable:
    import ibis

    assert source.session is not None
    schemas = _schemas(source)
    usable = shared_columns(schemas)
    check_columns(wanted, usable, schemas)
    names = wanted or tuple(usable)
    name = f"records_{secrets.token_hex(8)}"
    frame = source.frame()
    frame.toDF(*(f"c{i}" for i in range(len(frame.columns)))).createOrReplaceTempView(name)
    backend = ibis.pyspark.connect(source.session)
    view = backend.table(name)
    chosen = view.select(**{each: view[f"c{usable[each]}"] for each in names})
    return OpenTable(chosen, functools.partial(_guarded, source))


def _schemas(source: Source) -> list[Schema]:
    """Names and types of the columns of each file; Spark itself looks at one."""
    assert source.session is not None
    frame = source.frame()
    if source.table is not None:
        return [[(each.name, each.dataType.simpleString()) for each in frame.schema]]
    reader = source.session.read.format(source.format)
    frames = [frame, *(reader.load(state[0]) for state in source.states[1:])]
    return [[(c.name, c.dataType.simpleString()) for c in each.schema] for each in frames]


def _states(source: Source) -> _States:
    """Path, length and time of each file that has records."""
    found = source.frame().selectExpr(*_FILE).distinct().collect()
    return tuple(sorted(tuple(row) for row in found))


def constants(like: ir.Table, columns: Constants) -> ir.Table:
    """A local relation, which Spark sends to where it is joined."""
    import pyarrow as pa

    backend: Any = like.get_backend()
    arrays = {
        name: pa.array(values, type=dtype.to_pyarrow()) for name, (dtype, values) in columns.items()
    }
    name = f"constants_{secrets.token_hex(8)}"
    backend._session.createDataFrame(pa.table(arrays)).createOrReplaceTempView(name)
    table: ir.Table = backend.table(name)
    return table


def mapped(value: Any, function: Callable[[], ArrayFunction]) -> None:
    """Nothing: the values stay where they are."""


def floor(number: Any) -> Any:
    """Spark's own, which gives an int64 and the nearest for what is none."""
    return _builtin("floor", ("float64",), "int64")(number).cast("float64")


def digest(text: Any) -> Any:
    """Hexadecimal digits."""
    return _builtin("sha2", ("string", "int32"), "string")(text, 256)


@functools.cache
def _builtin(name: str, takes: tuple[str, ...], gives: str) -> Any:
    import ibis

    one, two = (lambda a: a), (lambda a, b: a)
    function: Any = one if len(takes) == 1 else two
    return ibis.udf.scalar.builtin(function, name=name, signature=(takes, gives))


def stored(records: ir.Table) -> ir.Table:
    """The same: Spark sorts on its own disks."""
    return records


def fetched(result: ir.Table) -> pa.Table:
    """In one piece."""
    return _whole(_frame(result).toArrow())


def batches(records: ir.Table, size: int) -> Iterator[pa.RecordBatch]:
    """One partition after the other."""
    import pyarrow as pa

    names = records.columns
    rows = _frame(records).toLocalIterator()
    while chunk := list(itertools.islice(rows, size)):
        columns = [pa.array(values, pa.int64()) for values in zip(*chunk, strict=True)]
        yield pa.record_batch(columns, names=list(names))


def by_sets(records: ir.Table, sets: Sequence[tuple[str, ...]]) -> pa.Table:
    """Grouping sets of Spark."""
    backend: Any = records.get_backend()
    listed = ", ".join(f"({', '.join(names)})" for names in sets)
    query = (
        f"SELECT {', '.join(records.columns)}, count(*) AS records FROM "  # noqa: S608
        f"({backend.compile(records)}) AS coded_records GROUP BY GROUPING SETS ({listed})"
    )
    return _whole(backend._session.sql(query).toArrow())


def _frame(table: ir.Table) -> DataFrame:
    backend: Any = table.get_backend()
    frame: DataFrame = backend._session.sql(backend.compile(table))
    return frame


def _whole(table: pa.Table) -> pa.Table:
    """A table of numbers and flags as int64."""
    import pyarrow as pa

    return table.cast(pa.schema([(name, pa.int64()) for name in table.column_names]))


def _guarded(source: Source, run: Callable[[], _Result]) -> _Result:
    return guarded(source.where, run, lambda error: failure_of(error, source.where))
