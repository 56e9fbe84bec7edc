"""The engine of a source or of a table. A new engine is a module of this room and a line here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from tasks.engines.engine import Engine, OpenSource, Reader, Source

if TYPE_CHECKING:
    import ibis.expr.types as ir

_MODULE_OF_BACKEND = MappingProxyType(
    {"duckdb": "duckdb", "postgres": "postgres", "pyspark": "spark"}
)
"""By Ibis's name of the backend, that of the module, which is the key in a config."""


def reader_named(key: str) -> Reader:
    """What opens the sources of an engine."""
    return cast("Reader", import_module(f"{__package__}.{key}"))


def engine_of(expression: ir.Expr) -> Engine:
    """The engine that a table, or a column of it, runs on."""
    name = _MODULE_OF_BACKEND[expression.get_backend().name]
    return cast("Engine", import_module(f"{__package__}.{name}"))


@contextmanager
def open_source(
    source: Source, *, scratch: Path, wanted: tuple[str, ...] = (), **settings: Any
) -> Iterator[OpenSource]:
    """The source as a lazy Ibis table; takes and raises what ``Engine.opened`` says."""
    with reader_named(source.engine).opened(source, scratch, wanted, **settings) as opened:
        yield opened
