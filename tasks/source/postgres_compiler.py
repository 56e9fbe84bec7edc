"""Ibis's compiler for PostgreSQL, with the one cast that the server does not know.

Import it where it is used: Ibis's backend imports the driver.
"""

from __future__ import annotations

from typing import Any

import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
from ibis.backends.postgres import Backend
from ibis.backends.sql.compilers.postgres import PostgresCompiler


class _Compiler(PostgresCompiler):  # type: ignore[misc]  # Ibis has no types
    """A boolean becomes a number by way of an integer of four bytes, as the server wants it."""

    __slots__ = ()

    def visit_Cast(self, op: ops.Cast, *, arg: Any, to: dt.DataType) -> Any:  # noqa: N802
        if op.arg.dtype.is_boolean() and to.is_numeric():
            arg = self.cast(arg, dt.int32)
        return super().visit_Cast(op, arg=arg, to=to)


class TableBackend(Backend):  # type: ignore[misc]
    """A backend that only writes statements; its connection is given."""

    compiler = _Compiler()
