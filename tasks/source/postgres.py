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

import numpy as np
from numpy.typing import NDArray

from statpress.configs.sources import PostgresSourceConfig
from statpress.mechanisms.errors import (
    DependencyError,
    SourceAccessError,
    SourceError,
    SourceNotFoundError,
    SourceUnavailableError,
    SourceUnreadableError,
    StatpressError,
)
from statpress.tasks.source.engine import (
    ArrayFunction,
    Constants,
    Credentials,
    Limits,
    OpenTable,
    check_source_columns,
)
from statpress.tasks.source.guarding import guarded

if TYPE_CHECKING:
    import ibis.expr.datatypes as dt
    import ibis.expr.types as ir
    import psycopg
    import pyarrow as pa


PATIENCE: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 6,
    "client_encoding": "utf8",
    "application_name": "statpress",
    "prepare_threshold": None,  # poolers between us and the server drop prepared ones
}
"""How a connection is made: one that was cut is noticed in a minute and a half."""
_OPTIONS = frozenset(
    {"host", "hostaddr", "port", "user", "password", "dbname", "passfile", "service", "sslmode",
     "sslcert", "sslkey", "sslrootcert", "sslcrl", "gssencmode", "krbsrvname", "channel_binding",
     "target_session_attrs"}
)  # fmt: skip
_UNREACHED = "The server cannot be reached, does not accept this user or database, or takes no more"
_LOST = "The connection to the server broke, or the server ended what it was asked for."
_RIGHTS = "The role may not read the table, all of its wanted columns, or all of its rows."
_FAULTS: dict[str, tuple[type[SourceError], str]] = {
    "42P01": (SourceNotFoundError, "The database has no such table."),
    "3F": (SourceNotFoundError, "The database has no such table."),
    "3D": (SourceNotFoundError, "The server has no such database."),
    "42501": (SourceAccessError, _RIGHTS),
    "28": (SourceAccessError, "The server does not accept this user or password."),
    "0A": (SourceUnreadableError, "The server cannot count this table."),
    "08": (SourceUnavailableError, _LOST),
    "57": (SourceUnavailableError, _LOST),
    "40": (SourceUnavailableError, "The server undid the reading."),
    "53": (SourceUnavailableError, "The server is out of memory, disk space or connections."),
    "55": (SourceUnavailableError, "The table is locked."),
    "58": (SourceUnavailableError, "The server failed to read or write its files."),
    "72": (SourceUnavailableError, "The server no longer keeps the state that was read."),
}
"""By SQLSTATE, or its class."""
_TABLE = "Check source.table, which is schema.table letter for letter, and the database's URL."
_ROLE = "GRANT the role USAGE on the schema and SELECT on the table, or show it a view."


def address(url: str, credentials: Credentials) -> dict[str, Any]:
    """The parts of a database's URL.

    Raises:
        DependencyError: The driver is not installed.
        SourceAccessError: It is not a URL of PostgreSQL; nothing of it is repeated.
    """
    try:
        from psycopg import Error
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        installed = False
    else:
        installed = True
    if not installed:
        raise DependencyError(
            "The driver of PostgreSQL is not installed.",
            where=str(credentials.env or credentials.file),
            next_step="Install it with: pip install 'statpress[postgres]'",
        )
    found: dict[str, Any] = {}
    try:
        if url.startswith(("postgresql://", "postgres://")):
            found = {k: v for k, v in conninfo_to_dict(url).items() if v is not None}
    except Error:
        found = {}
    unknown = found.keys() - _OPTIONS
    if not found or unknown:
        raise SourceAccessError(
            "What is found there is not the URL of a PostgreSQL database, or has an option that is "
            "not known here.",
            where=str(credentials.env or credentials.file),
            next_step="It begins with postgresql://; write '@', '/' and ':' of a password as %40, "
            f"%2F and %3A; options may be {', '.join(sorted(_OPTIONS))}.",
        )
    return found


def not_connected(error: Exception, where: str) -> SourceError | None:
    """The error that stands for a failure to connect."""
    import psycopg

    if not isinstance(error, psycopg.OperationalError) or error.sqlstate:
        return public_failure(error, where)
    asked = error.pgconn is not None and (error.pgconn.used_password or error.pgconn.needs_password)
    if asked:
        kind, what = _FAULTS["28"]
        return kind(what, where=where)
    return SourceUnavailableError(f"{_UNREACHED} connections.", where=where)


def public_failure(error: Exception, where: str) -> SourceError | None:
    """The error that stands for one of the driver; None for one of something else."""
    import psycopg

    if not isinstance(error, psycopg.Error):
        return None
    state = error.sqlstate or ""
    if not state and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return SourceUnavailableError(_LOST, where=where)
    kind, what = _FAULTS.get(state) or _FAULTS.get(state[:2]) or (
        SourceUnreadableError, "The server cannot count what the table holds."
    )  # fmt: skip
    steps = {SourceNotFoundError: _TABLE, SourceUnreadableError: "The curator log has the detail."}
    return kind(what, where=where, next_step=_ROLE if state == "42501" else steps.get(kind, ""))


_MOST_DIGITS = 38
"""Of a decimal that other engines have too; numbers of more are compared as they stand."""
_COLUMNS = """
WITH RECURSIVE declared AS (
    SELECT a.attnum, a.attname, a.atttypid AS type, a.atttypmod AS modifier
    FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = CAST(%s AS regclass) AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
    SELECT d.attnum, d.attname, t.typbasetype, t.typtypmod
    FROM declared d JOIN pg_catalog.pg_type t ON t.oid = d.type AND t.typtype = 'd'
)
SELECT d.attname, CASE t.typtype WHEN 'e' THEN 'enum' ELSE t.typname END, d.modifier
FROM declared d JOIN pg_catalog.pg_type t ON t.oid = d.type AND t.typtype <> 'd'
ORDER BY d.attnum
"""
_PLAIN = {
    "bool": "boolean", "int2": "int16", "int4": "int32", "int8": "int64", "float4": "float32",
    "float8": "float64", "date": "date", "timestamp": "timestamp",
    "timestamptz": "timestamp('UTC')", "uuid": "uuid",
}  # fmt: skip
_TEXT = frozenset({"text", "varchar", "bpchar", "name", "citext", "enum"})


def identifier(name: str) -> str:
    """A name, quoted."""
    return '"' + name.replace('"', '""') + '"'


def column_types(
    connection: psycopg.Connection[Any], schema: str, name: str
) -> list[tuple[str, str, int]]:
    """Name, type and type modifier of each column of a table; of a domain those of its base."""
    table = f"{identifier(schema)}.{identifier(name)}"
    return [tuple(row) for row in connection.execute(_COLUMNS, [table]).fetchall()]


def selected(name: str, kind: str, modifier: int) -> tuple[str, dt.DataType]:
    """A column as SQL, and the type that it then has.

    Text is compared byte by byte. NaN among decimals is null, as nulls are what NaN counts as.
    """
    import ibis.expr.datatypes as dt

    column = identifier(name)
    if kind in _PLAIN:
        return column, dt.dtype(_PLAIN[kind])
    if kind in _TEXT:
        return f'CAST({column} AS text) COLLATE "C"', dt.string
    if kind == "numeric":
        number = f"NULLIF({column}, CAST('NaN' AS numeric))"
        precision, scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
        if modifier >= 0 and precision <= _MOST_DIGITS and scale <= precision:
            return number, dt.Decimal(precision, scale)
        return number, dt.Decimal()
    return "CAST(NULL AS text)", dt.unknown  # no column of a domain can be of such a type


def array_literal(dtype: dt.DataType, values: Sequence[Any]) -> str:
    """Constants of a type as an array of the server."""
    kind = {
        "boolean": "boolean", "string": "text", "float64": "double precision", "int16": "smallint",
        "int32": "integer", "int64": "bigint", "float32": "real",
    }.get(str(dtype.copy(nullable=True)), "numeric")  # fmt: skip
    elements = ",".join(map(_element, values))
    return "CAST('{" + elements.replace("'", "''") + f"}}' AS {kind}[])"


def _element(value: Any) -> str:
    """A value as an element of an array's text."""
    text = repr(float(value)) if isinstance(value, float) else str(value)
    if "\0" in text:  # no text of the server holds it, so none is equal
        return "NULL"
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


_HEADER = 19  # bytes: signature, flags, and the length of no extension
_NULL = -1


def chunks(
    connection: psycopg.Connection[Any], query: str, columns: Sequence[str], size: int
) -> Iterator[NDArray[np.int64]]:
    """The rows of a query, never all at once.

    Yields:
        int64[rows, columns]; -1 stands for null.
    """
    # One length for every row, which a null would not have.
    listed = ", ".join(f"COALESCE(CAST({identifier(name)} AS int8), {_NULL})" for name in columns)
    number = [("bytes", ">i4"), ("value", ">i8")]
    row = np.dtype([("fields", ">i2"), *((f"{i}", number) for i in range(len(columns)))])
    statement = f"COPY (SELECT {listed} FROM ({query}) AS found) TO STDOUT (FORMAT binary)"  # noqa: S608
    pieces: list[bytes] = []
    held, skipped = 0, False
    with connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        for piece in copy:
            data = bytes(piece)
            if not skipped:
                data, skipped = data[_HEADER:], True
            pieces.append(data)
            held += len(data)
            if held >= size * row.itemsize:
                whole, rest = _split(b"".join(pieces), row)
                yield whole
                pieces, held = [rest], len(rest)
    last, _ = _split(b"".join(pieces), row)  # what is over says that it is the end
    if len(last):
        yield last


def _split(data: bytes, row: np.dtype[Any]) -> tuple[NDArray[np.int64], bytes]:
    """The whole rows of some bytes, and what is over."""
    n = len(data) // row.itemsize
    rows = np.frombuffer(data, row, n)
    names = row.names[1:] if row.names else ()
    values = [rows[name]["value"].astype(np.int64) for name in names]
    return np.stack(values, axis=1), data[n * row.itemsize :]


_Result = TypeVar("_Result")
_SESSION = """SET LOCAL timezone TO 'UTC'; SET LOCAL search_path TO pg_catalog;
SET LOCAL row_security TO off; SET LOCAL idle_in_transaction_session_timeout TO 0"""
_FETCHED = 1 << 16  # rows in a piece of a small table


@dataclass(frozen=True)
class PostgresSource:
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
) -> PostgresSource:
    """The table that a config declares; the server has limits of its own."""
    del columns, limits
    said = declared.credentials
    schema, name = declared.table.split(".")
    file = None if said.file is None else located(said.file)
    return PostgresSource(schema, name, Credentials(said.env, file), unit)


def check_place(source: PostgresSource) -> None:
    """See that there is a URL; the server is not asked."""
    address(source.credentials.read(), source.credentials)


def is_there(source: PostgresSource) -> bool:
    """Whether the database has a table or view of the name."""
    named = f"{identifier(source.schema)}.{identifier(source.name)}"

    def found(connection: psycopg.Connection[Any]) -> bool:
        row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [named]).fetchone()
        return row is not None and bool(row[0])

    with held(source, Path()) as kept:
        assert kept.connection is not None
        return _guarded(source, functools.partial(found, kept.connection))


def parts_of(source: PostgresSource) -> Iterator[PostgresSource]:
    """Records of a table have no order."""
    return iter(())


@contextmanager
def held(source: PostgresSource, scratch: Path) -> Iterator[PostgresSource]:
    """The table as one transaction sees it: its own, or one that it has already."""
    if source.connection is not None:
        yield source
        return
    connection = _connected(source)
    try:
        yield replace(source, connection=connection)
    finally:
        with contextlib.suppress(Exception):  # nothing is lost with it
            connection.close()


@contextmanager
def opened(
    source: PostgresSource,
    scratch: Path,
    wanted: Sequence[str],
    beside: ir.Table | None = None,
    **settings: Any,
) -> Iterator[OpenTable]:
    """The table's wanted columns, by default all, in a transaction, or in that of a table."""
    del settings  # the server has its own
    if beside is not None:
        backend: Any = beside.get_backend()
        source = replace(source, connection=backend.con)
    with contextlib.ExitStack() as stack:
        if source.connection is None:
            source = stack.enter_context(held(source, scratch))
        named = () if source.unit is None else (source.unit,)
        names = tuple(dict.fromkeys((*wanted, *named)))
        yield _guarded(source, lambda: _opened(source, names, beside))


@functools.cache
def _table_backend() -> Any:
    """Ibis's backend for PostgreSQL, which only writes statements; its connection is given.

    Its compiler has the one cast that the server does not know: a boolean becomes a number by way
    of an integer of four bytes. Made when it is used, since Ibis's backend imports the driver.
    """
    import ibis.expr.datatypes as dt
    import ibis.expr.operations as ops
    from ibis.backends.postgres import Backend
    from ibis.backends.sql.compilers.postgres import PostgresCompiler

    class Compiler(PostgresCompiler):  # type: ignore[misc]  # Ibis has no types
        __slots__ = ()

        def visit_Cast(self, op: ops.Cast, *, arg: Any, to: dt.DataType) -> Any:  # noqa: N802
            if op.arg.dtype.is_boolean() and to.is_numeric():
                arg = self.cast(arg, dt.int32)
            return super().visit_Cast(op, arg=arg, to=to)

    class TableBackend(Backend):  # type: ignore[misc]
        compiler = Compiler()

    return TableBackend


def _opened(source: PostgresSource, wanted: tuple[str, ...], beside: ir.Table | None) -> OpenTable:
    import ibis

    assert source.connection is not None
    found = column_types(source.connection, source.schema, source.name)
    names = [name for name, *_ in found]
    check_source_columns(wanted, names, [[(name, kind) for name, kind, _ in found]])
    columns = {
        name: selected(name, kind, modifier)
        for name, kind, modifier in found
        if name in (wanted or names)
    }
    listed = ", ".join(f"{sql} AS {identifier(name)}" for name, (sql, _) in columns.items())
    # As part of the one statement that counts; nothing of it is fetched.
    query = f"SELECT {listed} FROM {identifier(source.schema)}.{identifier(source.name)}"  # noqa: S608
    backend: Any = beside.get_backend() if beside is not None else _table_backend()()
    backend.con = source.connection
    schema = ibis.schema({name: dtype for name, (_, dtype) in columns.items()})
    return OpenTable(backend.sql(query, schema=schema), functools.partial(_guarded, source))


def _connected(source: PostgresSource) -> psycopg.Connection[Any]:
    """A connection in a transaction that sees one moment and writes nothing."""
    import psycopg

    options = address(source.credentials.read(), source.credentials)

    def connect() -> psycopg.Connection[Any]:
        # Settings, not parts of the address: poolers refuse what they do not know.
        connection = psycopg.connect(**options, **PATIENCE)
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        connection.execute(_SESSION)
        connection.execute("SELECT 1")  # here the snapshot is taken
        return connection

    return guarded(source.where, connect, lambda error: not_connected(error, source.where))


def _guarded(source: PostgresSource, run: Callable[[], _Result]) -> _Result:
    def failure_of(error: Exception) -> StatpressError | None:
        return public_failure(error, source.where)

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
    """The records as they are: nothing is written, and the server sorts on its own disk."""
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
