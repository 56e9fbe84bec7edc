"""The privacy-loss ledger in a database: append-only, hash-chained, one writer at a time.

The rules are in ``tasks.ledger_rules``; here they meet SQLite or PostgreSQL. Every act is
checked and written in one transaction that waits for all writers before it, so that
simultaneous runs cannot overspend together. It reads the few entries it depends on,
however long the history; ``state`` and ``verify`` read all.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import Connection

from mechanisms.errors import LedgerError
from tasks.ledger import acts, opening, review
from tasks.ledger.transactions import Transactions
from tasks.ledger_rules.accounts import Account, Charge, State
from tasks.ledger_rules.chain import Recompute, next_entry, repeated, replay, resume
from tasks.ledger_rules.entries import Body, Entry, canonical_json
from tasks.ledger_rules.fields import check_name
from tasks.ledger_rules.positions import Positions
from tasks.ledger_rules.verification import Verification, inspect
from tasks.ledger_store import tables
from tasks.ledger_store.integrity import check_database


class Ledger:
    """A ledger opened with ``Ledger.open``; each process opens its own.

    Attributes:
        transactions: On its database.
    """

    def __init__(self, transactions: Transactions, known: Positions | None = None) -> None:
        self.transactions = transactions
        self._known = known  # None until the entries were read

    @classmethod
    def open(
        cls, location: str | Path, *, create: bool = True, known: Positions | None = None
    ) -> Self:
        """Open the ledger of a path, an ``sqlite:///`` or a ``postgresql://`` address.

        Args:
            location: Path of a file, or a database address.
            create: Make the ledger, for its owner only, when there is none.
            known: ``positions`` of the same ledger opened before, which spares reading it
                all again.

        Raises:
            LedgerUnavailableError: There is no ledger, or it cannot be opened.
            LedgerSchemaError: It is of an older or newer form than this version's.
            LedgerIntegrityError: The database holds something else, or its guards
                were altered.
        """
        return cls(opening.open_transactions(location, create=create), known)

    exists = staticmethod(opening.exists)
    upgrade = staticmethod(opening.upgrade)

    register = acts.register
    amend = acts.amend
    charge = acts.charge
    draw = acts.draw
    void = acts.void
    publish = acts.publish
    refuse = acts.refuse
    reopen = acts.reopen
    checkpoint = acts.checkpoint

    set_approvers = review.set_approvers
    prepare = review.prepare
    decide = review.decide

    @property
    def where(self) -> str:
        """The place of the ledger, without any password."""
        return self.transactions.store.where

    def close(self) -> None:
        """Close the database."""
        self.transactions.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def entries(self) -> Iterator[Entry]:
        """All entries in order, as stored; ``verify`` is what checks them."""
        return self.transactions.stream(tables.stored)

    @property
    def positions(self) -> Positions:
        """Where every entry stands; the first act reads all entries for it, later acts read on."""
        if self._known is None:
            self._known = self.transactions.read(tables.survey)
        return self._known

    def hash_at(self, sequence: int) -> str | None:
        """The hash of an entry as it is stored; None if there is none."""
        return self.transactions.read(lambda connection: tables.hash_at(connection, sequence))

    def state(self) -> State:
        """All accounts, charges and the head, from a replay of every entry."""

        def work(connection: Connection) -> tuple[State, Positions]:
            positions = Positions()
            # An error that someone keeps would otherwise keep the reading open, and
            # with it the database at its moment.
            with closing(tables.stored(connection)) as entries:
                return replay(positions.watch(entries)), positions

        state, positions = self.transactions.read(work)
        self._known = self._known or positions
        return state

    def accounts(self) -> dict[str, Account]:
        """The accounts by dataset, in the order they were registered."""
        return self.state().accounts

    def account(self, dataset: str) -> Account:
        """Limit, spent, remaining and charges of one dataset.

        Raises:
            UnregisteredDatasetError: The ledger has no account of this name.
        """
        return self.state().account_of(dataset)

    def account_terms(self, dataset: str) -> Account:
        """One account without its charges, from the few entries that make it.

        Raises:
            UnregisteredDatasetError: The ledger has no account of this name.
        """

        def work(connection: Connection) -> Account:
            return self.state_for(connection, dataset, None).account_of(dataset)

        return self.transactions.read(work)

    def charged(self, *, run_id: str, dataset: str) -> Charge:
        """The charge of a run, and what followed it.

        Raises:
            LedgerError: The ledger has none.
        """

        def work(connection: Connection) -> Charge:
            charge = self.state_for(connection, dataset, run_id).charges.get(run_id)
            if charge is None:
                raise LedgerError(
                    "The ledger has no charge of this run.",
                    where=f"run {run_id!r}",
                    next_step="'statpress ledger charge-history' lists the runs.",
                )
            return charge

        return self.transactions.read(work)

    def verify(
        self,
        recompute: Recompute | None = None,
        *,
        head: str | None = None,
        trusted: Collection[str] = (),
    ) -> Verification:
        """Recompute the chain and every sum from the entries only; let the database check itself.

        Args:
            recompute: Gives the least that a charge's mechanisms spend; it must not
                be above what was charged.
            head: A hash kept elsewhere that the chain must hold.
            trusted: Public keys; with any, every checkpoint must be by one of them.

        Raises:
            LedgerIntegrityError: The first broken entry, with its sequence; or the database
                found damage.
        """

        def work(connection: Connection) -> tuple[Verification, Positions]:
            positions = Positions()
            with closing(tables.stored(connection)) as entries:
                read = positions.watch(entries)
                found = inspect(read, recompute, head=head, trusted=frozenset(trusted))
            checked = check_database(connection)
            return replace(found, database_checked=checked), positions

        verified, positions = self.transactions.read(work)
        self._known = self._known or positions
        return verified

    def append(self, kind: str, body: Body, compose: acts.Compose | None = None) -> Entry:
        """Check and write one entry in one serialised transaction.

        Args:
            kind: One of ``tasks.ledger_rules.rules.RULES``.
            body: Its fields; the time of writing and the balance are added.
            compose: Gives further fields, which depend on the state it follows.

        Returns:
            The entry; or the one that is there, if the kind may be repeated and this is
            a repetition.

        Raises:
            BudgetError: The budget forbids it; nothing was written.
            LedgerError: The entry may not follow, or the ledger is not usable.
        """
        given = json.loads(canonical_json({"created": acts.now(), **body}))
        names = {name: given.get(name) for name in ("dataset", "run_id")}
        for name, value in names.items():
            if name in given:
                check_name(name, value)

        def work(connection: Connection) -> Entry:
            state = self.state_for(connection, names["dataset"], names["run_id"])
            entry = repeated(state, kind, given)
            if entry is None:
                entry = next_entry(state, kind, given | (compose(state) if compose else {}))
                tables.append(connection, entry)
            return entry

        positions = self.positions  # before the other writers have to wait for it
        entry = self.transactions.write(work)
        positions.note(entry)
        return entry

    def restore(self, entries: Iterator[Entry]) -> State:
        """Write the entries of an export into this ledger, which must be empty.

        Raises:
            LedgerIntegrityError: The first entry that does not hold; nothing was written.
            LedgerError: The ledger holds entries already.
        """

        def work(connection: Connection) -> State:
            if next(tables.stored(connection), None) is not None:
                raise LedgerError(
                    "The ledger holds entries already.",
                    where=self.where,
                    next_step="Import into an empty ledger.",
                )
            batch = list(entries)
            state = replay(batch)
            tables.append_all(connection, batch)
            return state

        return self.transactions.write(work)

    def state_for(self, connection: Connection, dataset: str | None, run_id: str | None) -> State:
        """The part of the state that an act on this dataset and run can depend on.

        Raises:
            LedgerIntegrityError: The last entry that this object knows of is not there
                any more, an entry does not hold, or an index hides one.
        """
        rows = tables.relevant(connection, self.positions, dataset=dataset, run_id=run_id)
        return resume(rows, dataset=dataset, run_id=run_id)
