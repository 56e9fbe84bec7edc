"""Opening the database of a ledger, which is made or upgraded only when asked for."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection

from mechanisms.errors import LedgerUnavailableError
from tasks.ledger.transactions import Transactions
from tasks.ledger_rules.chain import replay
from tasks.ledger_store import schema
from tasks.ledger_store.schema import check_schema
from tasks.ledger_store.store import open_store
from tasks.ledger_store.tables import stored


def open_transactions(location: str | Path, *, create: bool) -> Transactions:
    """Open the ledger of a path or an address; the arguments and errors of ``Ledger.open``."""
    transactions = Transactions(open_store(location))
    store, ready = transactions.store, False
    try:
        if create:
            store.make()
        elif not store.present():
            raise LedgerUnavailableError(
                "There is no ledger here.",
                where=store.where,
                next_step="Check the place, or name it with --home; a second ledger would be a"
                " second budget. Only for a first dataset: 'statpress ledger register', as"
                " 'statpress plan CONFIG' prints it.",
            )
        if not transactions.read(check_schema):
            if not create:
                raise LedgerUnavailableError("The database is empty.", where=store.where)
            transactions.change_schema(schema.upgrade)
            transactions.read(check_schema)
        ready = True
    finally:
        if not ready:
            transactions.close()
    return transactions


def exists(location: str | Path) -> bool:
    """Whether there is a ledger to open, or something in its place.

    Raises:
        LedgerUnavailableError: The address is not one of a ledger, or the server
            cannot be asked.
    """
    with closing(Transactions(open_store(location))) as transactions:
        return transactions.store.present()


def upgrade(location: str | Path) -> str:
    """Bring the ledger of an older version to the present form; entries stay as they are.

    Returns:
        The form it had, which may be the present one.

    Raises:
        LedgerUnavailableError: There is no ledger, or it cannot be written.
        LedgerSchemaError: It is of a newer form than this version's.
        LedgerIntegrityError: Its entries do not hold; then nothing was changed.
    """

    def work(connection: Connection) -> str:
        form = schema.upgrade(connection)
        if not form:
            raise LedgerUnavailableError("The database is empty.", where=where)
        with closing(stored(connection)) as entries:
            replay(entries)
        return form

    with closing(Transactions(open_store(location))) as transactions:
        where = transactions.store.where
        if not transactions.store.present():
            raise LedgerUnavailableError("There is no ledger here.", where=where)
        return transactions.change_schema(work)
