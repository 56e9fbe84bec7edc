"""PostgreSQL: a table or view, counted in the server by a role that may only read it.

All that a run reads is one ``REPEATABLE READ READ ONLY`` transaction, and so of one moment. Nothing
is written there, not even a temporary table. Text is compared byte by byte whatever the database's
collation; row-level security that hides rows from the role is an error, not a smaller count.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from configs.models.server_sources import PostgresSourceConfig
from mechanisms.errors import StatpressError
from tasks.engines import postgres_faults
from tasks.engines.credentials import Credentials
from tasks.engines.engine import ArrayFunction, Constants, OpenTable
from tasks.engines.postgres_copy import chunks
from tasks.engines.postgres_types import array_literal, column_types, identifier, selected
from tasks.source.column_faults import check_columns
from tasks.source.engine import Limits
from tasks.source.guarding import guarded

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import psycopg
    import pyarrow as pa

_Result = TypeVar("_Result")
_SESSION = """SET LOCAL timezone TO 'UTC'; SET LOCAL search_path TO pg_catalog;
SET LOCAL row_security TO off; SET LOCAL idle_in_transaction_session_timeout TO 0"""
_FETCHED = 1 << 16  # rows in a piece of a small table


@dataclass(frozen=True)
class Source:
    """A table of a database.

    Attributes:
        schema: Of the table.
        name: Its name.
        credentials: Where the URL of the database is.
        unit: A column that names the units.
        connection: In a transaction of this source, if one is held.
    """

    schema: str
    name: str
    credentials: Credentials
    unit: str | None = None
    connection: psycopg.Connection[Any] | None = field(default=None, compare=False, repr=False)
    engine: ClassVar[str] = "postgres"

    @property
    def where(self) -> str:
        """Its public name."""
        return f"table {self.schema}.{self.name}"


def source_of(
    declared: PostgresSourceConfig,
    located: Callable[[str], Path],
    *,
    columns: tuple[str, ...],
    unit: str | None,
    limits: Limits,
) -> Source:
    """The table that a config declares; the server has limits of its own."""
    del columns, limits
    said = declared.credentials
    schema, name = declared.table.split(".")
    file = None if said.file is None else located(said.file)
    return Source(schema, name, Credentials(said.env, file), unit)


def check_place(source: Source) -> None:
    """See that there is a URL; the server is not asked."""
    postgres_faults.address(source.credentials.read(), source.credentials)


def parts_of(source: Source) -> Iterator[Source]:
    """Records of a table have no order."""
    return iter(())


@contextmanager
def held(source: Source, scratch: Path) -> Iterator[Source]:
    """The table as one transaction sees it."""
    connection = _connected(source)
    try:
        yield replace(source, connection=connection)
    finally:
        with contextlib.suppress(Exception):  # nothing is lost with it
            connection.close()


@contextmanager
def opened(
    source: Source, scratch: Path, wanted: Sequence[str], **settings: Any
) -> Iterator[OpenTable]:
    """The table's wanted columns, by default all, in a transaction."""
    del settings  # the server has its own
    with contextlib.ExitStack() as stack:
        if source.connection is None:
            source = stack.enter_context(held(source, scratch))
        named = () if source.unit is None else (source.unit,)
        yield _guarded(source, lambda: _opened(source, tuple(dict.fromkeys((*wanted, *named)))))


def _opened(source: Source, wanted: tuple[str, ...]) -> OpenTable:
    import ibis

    from tasks.engines.postgres_compiler import TableBackend

    assert source.connection is not None
    found = column_types(source.connection, source.schema, source.name)
    names = [name for name, *_ in found]
    check_columns(wanted, names, [[(name, kind) for name, kind, _ in found]])
    columns = {
        name: selected(name, kind, modifier)
        for name, kind, modifier in found
        if name in (wanted or names)
    }
    listed = ", ".join(f"{sql} AS {identifier(name)}" for name, (sql, _) in columns.items())
    # As part of the one statement that counts; nothing of it is fetched.
    query = f"SELECT {listed} FROM {identifier(source.schema)}.{identifier(source.name)}"  # noqa: S608
    backend = TableBackend()
    backend.con = source.connection
    schema = ibis.schema({name: dtype for name, (_, dtype) in columns.items()})
    return OpenTable(backend.sql(query, schema=schema), functools.partial(_guarded, source))


def _connected(source: Source) -> psycopg.Connection[Any]:
    """A connection in a transaction that sees one moment and writes nothing."""
    import psycopg

    options = postgres_faults.address(source.credentials.read(), source.credentials)

    def connect() -> psycopg.Connection[Any]:
        # Settings, not parts of the address: poolers refuse what they do not know.
        connection = psycopg.connect(**options, **postgres_faults.PATIENCE)
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        connection.execute(_SESSION)
        connection.execute("SELECT 1")  # here the snapshot is taken
        return connection

    return guarded(
        source.where, connect, lambda error: postgres_faults.not_connected(error, source.where)
    )


def _guarded(source: Source, run: Callable[[], _Result]) -> _Result:
    def failure_of(error: Exception) -> StatpressError | None:
        return postgres_faults.failure_of(error, source.where)

    return guarded(source.where, run, failure_of)


def constants(like: ir.Table, columns: Constants) -> ir.Table:
    """Arrays in the statement, since a transaction that only reads makes no table."""
    import ibis

    names = ", ".join(map(identifier, columns))
    arrays = ", ".join(array_literal(*column) for column in columns.values())
    backend: Any = like.get_backend()
    schema = ibis.schema({name: dtype for name, (dtype, _) in columns.items()})
    query = f"SELECT {names} FROM unnest({arrays}) AS constants({names})"  # noqa: S608  (quoted)
    table: ir.Table = backend.sql(query, schema=schema)
    return table


def mapped(value: Any, function: Callable[[], ArrayFunction]) -> None:
    """Nothing: the values stay where they are."""


def floor(number: Any) -> Any:
    """The server's own, which gives a double."""
    return _builtin("floor", "float64", "float64")(number)


def digest(text: Any) -> Any:
    """Bytes."""
    return _builtin("sha256", "binary", "binary")(_encoded()(text, "UTF8"))


@functools.cache
def _builtin(name: str, takes: str, gives: str) -> Any:
    import ibis

    signature = ((takes,), gives)
    return ibis.udf.scalar.builtin(lambda value: value, name=name, signature=signature)


@functools.cache
def _encoded() -> Any:
    """Text in an encoding, as bytes."""
    import ibis

    signature = (("string", "string"), "binary")
    return ibis.udf.scalar.builtin(
        lambda text, encoding: text, name="convert_to", signature=signature
    )


def stored(records: ir.Table) -> ir.Table:
    """The same: nothing is written, and the server sorts on its own disk."""
    return records


def fetched(result: ir.Table) -> pa.Table:
    """In one piece, from binary COPY."""
    import pyarrow as pa

    schema = pa.schema([(name, pa.int64()) for name in result.columns])
    return pa.Table.from_batches(_rows(result, _sql(result), result.columns, _FETCHED), schema)


def batches(records: ir.Table, size: int) -> Iterator[pa.RecordBatch]:
    """As the server sends them."""
    return _rows(records, _sql(records), records.columns, size)


def by_sets(records: ir.Table, sets: Sequence[tuple[str, ...]]) -> pa.Table:
    """Grouping sets of the server."""
    import pyarrow as pa

    listed = ", ".join(f"({', '.join(map(identifier, names))})" for names in sets)
    names = ", ".join(map(identifier, records.columns))
    query = (
        f"SELECT {names}, count(*) AS records FROM ({_sql(records)}) AS coded_records "  # noqa: S608
        f"GROUP BY GROUPING SETS ({listed})"
    )
    columns = (*records.columns, "records")
    schema = pa.schema([(name, pa.int64()) for name in columns])
    return pa.Table.from_batches(_rows(records, query, columns, _FETCHED), schema)


def _sql(table: ir.Table) -> str:
    """The statement of a table, with booleans as numbers."""
    flags = [name for name in table.columns if table[name].type().is_boolean()]
    numbers = {name: table[name].cast("int32") for name in flags}
    backend: Any = table.get_backend()
    return str(backend.compile(table.mutate(**numbers) if numbers else table))


def _rows(
    table: ir.Table, query: str, columns: Sequence[str], size: int
) -> Iterator[pa.RecordBatch]:
    """Rows of whole numbers of at least 0, in batches of about a size."""
    import pyarrow as pa

    backend: Any = table.get_backend()
    for rows in chunks(backend.con, query, columns, size):
        yield pa.record_batch(
            [pa.array(rows[:, i], mask=rows[:, i] < 0) for i in range(len(columns))],
            names=list(columns),
        )
