"""The ledger's one table, and the statements that read and extend it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from functools import cache

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Integer,
    Row,
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
from tasks.ledger_rules.positions import Positions
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
_LARGEST = 2**31 - 1  # sequence that the column can hold
_IN_ORDER = select(ENTRIES).order_by(_E.sequence)
_COUNT = select(func.count()).select_from(ENTRIES)
_NO_INDEX = (
    "SET LOCAL enable_indexscan TO off; SET LOCAL enable_indexonlyscan TO off;"
    " SET LOCAL enable_bitmapscan TO off"
)
_INDEX_AGAIN = _NO_INDEX.replace("TO off", "TO on")
_INSERT = insert(ENTRIES).returning(_E.hash)


def stored(connection: Connection) -> Generator[Entry, None, None]:
    """The entries in order, read a thousand at a time."""
    with closing(_rows(connection)) as rows:
        for row in rows:
            yield _entry(row)


def survey(connection: Connection) -> Positions:
    """Where every entry stands.

    Raises:
        LedgerIntegrityError: The first entry that does not hold as it is stored.
    """
    positions = Positions()
    with closing(_rows(connection)) as rows:
        positions.extend(rows)
    return positions


def _rows(connection: Connection) -> Generator[Row[_Columns], None, None]:
    """The rows in order, without an index.

    Raises:
        LedgerIntegrityError: After the last one, if the database knows of another number.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(_NO_INDEX)
    number = 0
    with connection.execute(_IN_ORDER, execution_options={"yield_per": 1000}) as rows:
        for row in rows:
            yield row
            number += 1
    if connection.scalar(_COUNT) != number:  # SQLite counts the smallest index
        raise _not_agreeing(number + 1)
    if connection.dialect.name == "postgresql":
        # A trigger of this transaction would keep its plan for as long as the connection lasts.
        connection.exec_driver_sql(_INDEX_AGAIN)


def relevant(
    connection: Connection, positions: Positions, *, dataset: str | None, run_id: str | None
) -> list[Entry]:
    """The entries that ``chain.resume`` needs, in order.

    What was written since the positions were taken is read in order, and counted as read. Of
    what is older the indexes must find what is known to be there, no more and no less.

    Raises:
        LedgerIntegrityError: They do not; an entry does not hold as it is stored; or the last
            one that was read before is no longer there.
    """
    lasting = tuple(kind for kind, rule in RULES.items() if rule.lasting)
    moving = tuple(kind for kind, rule in RULES.items() if rule.balance)
    anchor, head = positions.length, positions.head
    of = {"dataset": dataset, "run_id": run_id, "anchor": anchor}
    found = {row.sequence: row for row in connection.execute(_relevant(lasting, moving), of)}
    rows = [found[sequence] for sequence in sorted(found)]
    if anchor and not any(row.sequence == anchor and row.hash == head for row in rows):
        raise LedgerIntegrityError(
            "The entry is no longer the one that was here before.",
            sequence=anchor,
            where=f"entry {anchor}",
        )
    positions.extend(row for row in rows if row.sequence > anchor)
    wanted = positions.relevant(dataset, run_id)
    odd = {row.sequence for row in rows if row.sequence < anchor}
    odd ^= {sequence for sequence in wanted if sequence < anchor}
    if odd:
        raise _not_agreeing(min(odd))
    return [_entry(row) for row in rows if row.sequence in wanted]


def _not_agreeing(sequence: int) -> LedgerIntegrityError:
    return LedgerIntegrityError(
        "An index of the database does not agree with the entries.",
        sequence=sequence,
        where=f"entry {sequence}",
    )


@cache
def _relevant(lasting: tuple[str, ...], moving: tuple[str, ...]) -> CompoundSelect[_Columns]:
    """The statement of ``relevant``, built once: it is sent while all other writers wait.

    Args:
        lasting: Kinds of entries on which every later act on an account depends.
        moving: Kinds of entries that state a balance.
    """
    of_the_act = or_(
        *(_last(_DATASET, _E.kind == kind) for kind in moving),
        _DATASET & _E.kind.in_(lasting),
        _RUN,
    )
    # With an upper end too, PostgreSQL expects few rows before it has statistics, and no scan.
    since = select(ENTRIES).where(_E.sequence.between(bindparam("anchor"), _LARGEST))
    return since.union_all(select(ENTRIES).where(of_the_act))  # planned apart: no scan for an OR


def hash_at(connection: Connection, sequence: int) -> str | None:
    """The hash of an entry as it is stored, or None if there is none."""
    found: str | None = connection.scalar(select(_E.hash).where(_E.sequence == sequence))
    return found


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
