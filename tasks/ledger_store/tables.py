"""The ledger's one table, and the statements that read and extend it."""

from __future__ import annotations

from collections.abc import Generator
from functools import cache

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Row,
    Select,
    Text,
    bindparam,
    column,
    func,
    insert,
    or_,
    select,
    table,
)

from mechanisms.errors import LedgerIntegrityError
from tasks.ledger_rules.entries import Entry, canonical_json, parse_entry
from tasks.ledger_rules.rules import RULES

_Columns = tuple[int, str, str, str, str, str | None, str | None]

ENTRIES = table(
    "entries",
    column("sequence", Integer),
    *(column(name, Text) for name in ("kind", "body", "previous", "hash")),
    *(column(name, Text) for name in ("dataset", "run_id")),  # of the body, to search by
)
_E = ENTRIES.c


def _last(*of: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether a row is the last of those that meet the conditions."""
    return _E.sequence == select(func.max(_E.sequence)).where(*of).scalar_subquery()


# Nothing equals a parameter of NULL.
_DATASET, _RUN = _E.dataset == bindparam("dataset"), _E.run_id == bindparam("run_id")
_INSERT = insert(ENTRIES).returning(_E.hash)


def stored(connection: Connection) -> Generator[Entry, None, None]:
    """The entries in order, read a thousand at a time."""
    query = select(ENTRIES).order_by(_E.sequence)
    with connection.execute(query, execution_options={"yield_per": 1000}) as rows:
        for row in rows:
            yield _entry(row)


def relevant(
    connection: Connection, *, dataset: str | None, run_id: str | None, anchor: int
) -> list[Entry]:
    """The entries that ``chain.resume`` needs, and the one at the anchor, in order."""
    lasting = tuple(kind for kind, rule in RULES.items() if rule.lasting)
    moving = tuple(kind for kind, rule in RULES.items() if rule.balance)
    of = {"dataset": dataset, "run_id": run_id, "anchor": anchor}
    return [_entry(row) for row in connection.execute(_relevant(lasting, moving), of)]


@cache
def _relevant(lasting: tuple[str, ...], moving: tuple[str, ...]) -> Select[_Columns]:
    """The statement of ``relevant``, built once: it is sent while all other writers wait.

    Args:
        lasting: Kinds of entries on which every later act on an account depends.
        moving: Kinds of entries that state a balance.
    """
    return (
        select(ENTRIES)
        .where(
            or_(
                _last(),
                _E.sequence == bindparam("anchor"),
                *(_last(_DATASET, _E.kind == kind) for kind in moving),
                _DATASET & _E.kind.in_(lasting),
                _RUN,
            )
        )
        .order_by(_E.sequence)
    )


def append(connection: Connection, entry: Entry) -> None:
    """Write an entry at the end, and check that it is there.

    Raises:
        LedgerIntegrityError: The database did not keep it.
    """
    if connection.scalar(_INSERT, _row(entry)) != entry.hash:
        raise LedgerIntegrityError(
            "The database did not keep the entry.",
            sequence=entry.sequence,
            where=f"entry {entry.sequence}",
        )


def append_all(connection: Connection, entries: list[Entry]) -> None:
    """Write entries at the end, in order."""
    if entries:
        connection.execute(insert(ENTRIES), [_row(entry) for entry in entries])


def _row(entry: Entry) -> dict[str, object]:
    """The row that holds an entry."""
    return {
        "sequence": entry.sequence,
        "kind": entry.kind,
        "body": canonical_json(entry.body),
        "previous": entry.previous,
        "hash": entry.hash,
        "dataset": entry.body.get("dataset"),
        "run_id": entry.body.get("run_id"),
    }


def _entry(row: Row[_Columns]) -> Entry:
    """The entry of a row, whose two search columns must agree with its body.

    Raises:
        LedgerIntegrityError: They do not, or the row is not in the form it was written in.
    """
    entry = parse_entry(row.sequence, row.kind, row.body, row.previous, row.hash)
    for name, value in (("dataset", row.dataset), ("run_id", row.run_id)):
        if entry.body.get(name) != value:
            raise LedgerIntegrityError(
                f"The column {name} does not agree with the entry.",
                sequence=entry.sequence,
                where=f"entry {entry.sequence}",
            )
    return entry
