"""Columns of a PostgreSQL table in types whose comparisons are exact, and constants of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ibis.expr.datatypes as dt
    import psycopg

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
