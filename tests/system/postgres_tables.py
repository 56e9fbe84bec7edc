"""Arrow tables as tables of PostgreSQL."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import psycopg
import pyarrow as pa

TYPES = {
    pa.int8(): "smallint", pa.int16(): "smallint", pa.int32(): "integer", pa.int64(): "bigint",
    pa.uint8(): "smallint", pa.uint16(): "integer", pa.uint32(): "bigint",
    pa.uint64(): "numeric(20,0)", pa.float32(): "real", pa.float64(): "double precision",
    pa.string(): "text", pa.bool_(): "boolean", pa.date32(): "date",
    pa.timestamp("us"): "timestamp", pa.timestamp("ms"): "timestamp",
    pa.timestamp("us", "UTC"): "timestamptz",
}  # fmt: skip


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def type_of(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    return TYPES[kind]


def write_table(
    url: str,
    name: str,
    table: pa.Table,
    types: dict[str, str] | None = None,
    schema: str = "public",
) -> None:
    """Make a table anew with the rows of another."""
    kinds = {f.name: type_of(f.type) for f in table.schema} | (types or {})
    listed = ", ".join(f"{quoted(n)} {kind}" for n, kind in kinds.items())
    place = f"{quoted(schema)}.{quoted(name)}"
    with psycopg.connect(url) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {place}".encode())
        connection.execute(f"CREATE TABLE {place} ({listed})".encode())
        with connection.cursor().copy(f"COPY {place} FROM STDIN".encode()) as copy:
            for row in zip(*(table[n].to_pylist() for n in table.column_names), strict=True):
                copy.write_row([_value(v) for v in row])


def _value(value: Any) -> Any:
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    return value
