"""The privacy-loss ledger in a database: append-only, hash-chained, one writer at a time.

The rules of ``tasks.ledger.rules`` meet SQLite or PostgreSQL here. Every act is checked and written
in one transaction that waits for all writers before it, so that simultaneous runs cannot overspend
together. It reads the few entries that it depends on, however long the history; ``state`` and
``verify`` read all.

An act composes one entry; whether that may follow, ``append`` decides by the rules.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import Connection

from statpress.mechanisms.accounting.panel_design import FORMS, Design
from statpress.mechanisms.errors import LedgerError, LedgerUnavailableError
from statpress.tasks.ledger import ledger_table
from statpress.tasks.ledger.account_rules import (
    amendment_statement,
    approvers_statement,
    binding_statement,
    reopening_statement,
    sharing,
)
from statpress.tasks.ledger.accounts import (
    Account,
    Charge,
    State,
    Status,
    check_new_name,
    drawn_before,
    measures_of,
)
from statpress.tasks.ledger.chain import (
    Positions,
    Recompute,
    Verification,
    inspect,
    next_entry,
    repeated,
    replay,
    resume,
)
from statpress.tasks.ledger.entries import (
    Body,
    Entry,
    canonical,
    canonical_json,
    check_field,
    checkpoint_statement,
    exact,
    public_text,
    sign_statement,
)
from statpress.tasks.ledger.ledger_table import check_database, check_schema
from statpress.tasks.ledger.rules import (
    SignedElsewhere,
    check_elsewhere,
    decision_body,
    decision_statement,
    settled_looks,
    void_statement,
)
from statpress.tasks.ledger.store import BUSY_SECONDS, Store, open_store

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from statpress.tasks.ledger.home_ledger import Memory


Compose = Callable[[State], Body]


def now() -> str:
    """The time that an entry states."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Ledger(AbstractContextManager["Ledger"]):
    """A ledger opened with ``Ledger.open``; each process opens its own.

    Attributes:
        store: Its database.
        memory: What a home remembers of it, which acts respect and extend; None without a home.
    """

    def __init__(self, store: Store, known: Positions | None = None) -> None:
        self.store = store
        self.memory: Memory | None = None
        self._known = known  # None until the entries were read

    @classmethod
    def open(
        cls,
        location: str | Path,
        *,
        create: bool = True,
        known: Positions | None = None,
        patience: float = BUSY_SECONDS,
    ) -> Self:
        """Open the ledger of a path, an ``sqlite:///`` or a ``postgresql://`` address.

        Args:
            location: Path of a file, or a database address.
            create: Make the ledger, for its owner only, when there is none.
            known: ``positions`` of the same ledger opened before, which spares reading it
                all again.
            patience: Seconds for which its acts wait for other writers.

        Raises:
            LedgerUnavailableError: There is no ledger, or it cannot be opened.
            LedgerSchemaError: It is of an older or newer form than this version's.
            LedgerIntegrityError: The database holds something else, or its guards
                were altered.
        """
        with ExitStack() as unless_opened:
            store = unless_opened.enter_context(closing(open_store(location, patience)))
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
            if not store.read(check_schema):
                if not create:
                    raise LedgerUnavailableError("The database is empty.", where=store.where)
                store.change_schema(ledger_table.upgrade)
                store.read(check_schema)
            unless_opened.pop_all()
            return cls(store, known)

    @staticmethod
    def exists(location: str | Path) -> bool:
        """Whether there is a ledger to open, or something in its place.

        Raises:
            LedgerUnavailableError: The address is not one of a ledger, or the server
                cannot be asked.
        """
        with closing(open_store(location)) as store:
            return store.present()

    @staticmethod
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
            form = ledger_table.upgrade(connection)
            if not form:
                raise LedgerUnavailableError("The database is empty.", where=store.where)
            with closing(ledger_table.stored(connection)) as entries:
                replay(entries)
            return form

        with closing(open_store(location)) as store:
            if not store.present():
                raise LedgerUnavailableError("There is no ledger here.", where=store.where)
            return store.change_schema(work)

    @property
    def where(self) -> str:
        """The place of the ledger, without any password."""
        return self.store.where

    def close(self) -> None:
        """Close the database."""
        self.store.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def entries(self) -> Iterator[Entry]:
        """All entries in order, as stored; ``verify`` is what checks them."""
        return self.store.stream(ledger_table.stored)

    @property
    def positions(self) -> Positions:
        """Where every entry stands; the first act reads all entries for it, later acts read on."""
        if self._known is None:
            self._known = self.store.read(ledger_table.survey)
        return self._known

    def hash_at(self, sequence: int) -> str | None:
        """The hash of an entry as it is stored; None if there is none."""
        return self.store.read(lambda connection: ledger_table.hash_at(connection, sequence))

    def state(self) -> State:
        """All accounts, charges and the head, from a replay of every entry."""

        def work(connection: Connection) -> tuple[State, Positions]:
            positions = Positions()
            # An error that someone keeps would otherwise keep the reading open, and
            # with it the database at its moment.
            with closing(ledger_table.stored(connection)) as entries:
                return replay(positions.watch(entries)), positions

        state, positions = self.store.read(work)
        self._known = self._known or positions
        return state

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
        return self._part(dataset, None).account_of(dataset)

    def charged(self, *, run_id: str, dataset: str) -> Charge:
        """The charge of a run, and what followed it.

        Raises:
            LedgerError: The ledger has none.
        """
        charge = self._part(dataset, run_id).charges.get(run_id)
        if charge is None:
            raise LedgerError(
                "The ledger has no charge of this run.",
                where=f"run {run_id!r}",
                next_step="'statpress ledger charge-history' lists the runs.",
            )
        return charge

    def _part(self, dataset: str, run_id: str | None) -> State:
        """What ``state_for`` gives, in a transaction of its own."""
        return self.store.read(lambda connection: self.state_for(connection, dataset, run_id))

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
            with closing(ledger_table.stored(connection)) as entries:
                read = positions.watch(entries)
                verification = inspect(read, recompute, head=head, trusted=frozenset(trusted))
            checked = check_database(connection)
            return replace(verification, database_checked=checked), positions

        verified, positions = self.store.read(work)
        self._known = self._known or positions
        return verified

    def check_database(self) -> bool:
        """Let the database check itself; False if this one cannot, or does not let this role.

        Raises:
            LedgerIntegrityError: It found damage.
        """
        return self.store.read(check_database)

    def append(self, kind: str, body: Body, compose: Compose | None = None) -> Entry:
        """Check and write one entry in one serialised transaction.

        Args:
            kind: One of ``tasks.ledger.rules.RULES``.
            body: The fields; the time of writing and the balance are added.
            compose: Gives further fields, which depend on the state that the entry follows.

        Returns:
            The entry; or the one that is there, if the kind may be repeated and this is
            a repetition.

        Raises:
            BudgetError: The budget forbids it; nothing was written.
            LedgerError: The entry may not follow, or the ledger is not usable.
        """
        given = json.loads(canonical_json({"created": now(), **body}))
        names = {name: given.get(name) for name in ("dataset", "run_id")}
        for name, value in names.items():
            if name in given:
                check_field(name, value)

        def work(connection: Connection) -> Entry:
            if self.memory:
                self.memory.check(lambda sequence: ledger_table.hash_at(connection, sequence))
            run_id = names["run_id"] or given.get("run")
            state = self.state_for(connection, names["dataset"], run_id)
            entry = repeated(state, kind, given)
            if entry is None:
                entry = next_entry(state, kind, given | (compose(state) if compose else {}))
                ledger_table.append(connection, entry)
            return entry

        positions = self.positions  # before the other writers have to wait for it
        entry = self.store.write(work)
        positions.note(entry)
        if self.memory:
            self.memory.keep(positions, kind, names["run_id"] or "")
        return entry

    def restore(self, entries: Iterator[Entry], *, complete: bool = True) -> State:
        """Write the entries of an export into this ledger, which must be empty.

        Args:
            entries: Those of the export.
            complete: Whether they are known to be all. Else a charge at whose run the export
                ends may have drawn since, so each is followed by an entry that says so.

        Raises:
            LedgerIntegrityError: The first entry that does not hold; nothing was written.
            LedgerError: The ledger holds entries already.
        """

        def work(connection: Connection) -> State:
            if next(ledger_table.stored(connection), None) is not None:
                raise LedgerError(
                    "The ledger holds entries already.",
                    where=self.where,
                    next_step="Import into an empty ledger.",
                )
            batch = list(entries)
            state = replay(batch)
            reserved = [run for run, c in state.charges.items() if c.status is Status.RESERVED]
            open_runs = [run for run in reserved if run not in state.refused]  # those never draw
            for run in () if complete else open_runs:
                dataset = state.charges[run].entry.body["dataset"]
                body = {"run_id": run, "dataset": dataset, "created": now()}
                batch.append(next_entry(state, "draw", body))
                state = replay(batch[-1:], state)
            ledger_table.append_all(connection, batch)
            return state

        state = self.store.write(work)
        if self.memory:
            self.memory.keep(self.positions)
        return state

    def state_for(self, connection: Connection, dataset: str | None, run_id: str | None) -> State:
        """The part of the state that an act on this dataset and run can depend on.

        Raises:
            LedgerIntegrityError: The last entry that this object knows of is not there
                any more, an entry does not hold, or an index hides one.
        """
        rows = ledger_table.relevant(connection, self.positions, dataset=dataset, run_id=run_id)
        by_period = self.positions.by_period(dataset)
        return resume(rows, dataset=dataset, run_id=run_id, by_period=by_period)

    def register(
        self,
        *,
        dataset: str,
        adjacency: str,
        unit: str,
        unit_records: int,
        n_records: int | None = None,
        policy: str = "basic",
        max_refusals: int | None = None,
        max_looks: int | None = None,
        noisy_gates: bool = False,
        design: str | None = None,
        **limits: object,
    ) -> Entry:
        """Open an account with limits that no sum of charges may pass.

        Args:
            dataset: Name of the account.
            adjacency: The neighbouring relation.
            unit: The privacy unit.
            unit_records: Records of one unit.
            n_records: Public number of records; by default charges may be for any.
            policy: ``basic``, or ``zcdp``.
            max_refusals: How many runs gates may stop before the account has to be reopened;
                by default 20.
            max_looks: How many looks may count before that; by default 60.
            noisy_gates: Whether only runs with noisy gates may look at the data.
            design: In which periods a person takes part at most
                (``mechanisms.accounting.panel_design``); by default all charges add up.
            limits: ``epsilon`` and ``delta``, or ``rho`` and ``rho_delta``.

        Raises:
            AlreadyRegisteredError: The dataset has an account.
            LedgerError: A name or value is not usable, or the ledger is not.
        """
        check_new_name(dataset)
        terms = {"adjacency": adjacency, "unit": unit}
        body = {"dataset": dataset, "policy": policy, **terms, "unit_records": unit_records}
        counts = {"n_records": n_records, "max_refusals": max_refusals, "max_looks": max_looks}
        body |= {name: number for name, number in counts.items() if number is not None}
        body |= {"noisy_gates": True} if noisy_gates else {}
        body |= {"design": design_text(design)} if design is not None else {}
        return self.append("register", body | _limits(policy, limits))

    def amend(
        self,
        *,
        dataset: str,
        policy: str | None = None,
        design: str | None = None,
        apart: bool = False,
        reason: str | None = None,
        key: Ed25519PrivateKey | None = None,
        **limits: object,
    ) -> Entry:
        """Put another policy, limit or design in force; the old one stays in the chain.

        Args:
            dataset: Name of the account.
            policy: ``basic`` or ``zcdp``; by default the one in force.
            design: As in ``register``; by default the one in force. It carries every charge over.
            apart: Whether nobody takes part both under an earlier design and under the new one;
                by default their periods add up.
            reason: Needed to raise a limit or to change the policy or the design.
            key: Of an approver in force, where there are any.
            limits: As in ``register``; under the policy in force, what is not given
                stays as it is at that moment.

        Raises:
            UnregisteredDatasetError: There is no such account.
            LedgerError: The rules forbid it, or a value is not usable.
        """

        def compose(state: State) -> Body:
            account = state.account_of(dataset)
            chosen = policy or account.policy
            kept = account.limit.texts() if chosen == account.policy else {}
            terms: Body = {"policy": chosen, **_limits(chosen, kept | limits)}
            if design is not None:
                terms |= {"design": design_text(design), "last_period": account.last_period}
                terms |= {"apart": apart}
            return terms | _signed(key, amendment_statement(account, given | terms))

        given: Body = {"dataset": dataset, "reason": reason, "created": now()}
        return self.append("amend-policy", given, compose)

    def bind(
        self,
        *,
        dataset: str,
        sources: Collection[str],
        also_in: Collection[str] = (),
        reason: str | None = None,
        key: Ed25519PrivateKey | None = None,
    ) -> Entry:
        """Say which sources an account is about; looks at others are refused from then on.

        Args:
            dataset: Name of the account.
            sources: Their patterns (``tasks.ledger.account_rules``), which replace those before.
            also_in: Accounts that are about some of them too.
            reason: Needed if there are such accounts, or other sources before.
            key: Of an approver in force, where there are any.

        Raises:
            ApprovalError: The key is not that of an approver in force.
            LedgerError: A source is another account's too, and that is not said; or the reason
                is missing.
        """
        given: Body = {
            "dataset": dataset,
            "sources": sorted(set(sources)),
            "also_in": sorted(set(also_in)),
            "reason": reason,
            "created": now(),
        }

        def compose(state: State) -> Body:
            self.check_apart(dataset, sources, also_in, reason)
            return _signed(key, binding_statement(state.account_of(dataset), given))

        return self.append("bind", given, compose)

    def check_apart(
        self, dataset: str, sources: Collection[str], also_in: Collection[str], reason: str | None
    ) -> None:
        """Raise if some sources are another account's too, and that is not said with a reason."""
        shared = sharing(self.state(), dataset, sources) if sources else set()
        if shared - set(also_in) or (also_in and reason is None):
            others = ", ".join(map(repr, sorted(shared | set(also_in))))
            raise LedgerError(
                f"Some of these sources are those of {others} too, where people would be charged"
                " apart.",
                where=f"dataset {dataset!r}",
                next_step="Use that account, in which nobody is charged apart.",
            )

    def charge(
        self,
        *,
        dataset: str,
        run_id: str,
        epsilon: object,
        delta: object,
        rho: object,
        rho_delta: object,
        mechanisms: list[dict[str, Any]],
        config_sha256: str,
        adjacency: str,
        unit: str,
        unit_records: int,
        n_records: int,
        insecure_seed: bool,
        version: str,
        period: str | None = None,
    ) -> Entry:
        """Reserve and spend budget for a run; once this returns, it is on disk for good.

        The same call again returns the entry that is there, so that a caller who
        does not know whether the first attempt came through may repeat it. ``period`` is the one
        that the data are of; under a design, a charge without one counts for everybody.

        Raises:
            BudgetError: The budget forbids it; nothing was written.
            LedgerError: The run was charged otherwise before or is void, a value is
                not usable, or the ledger is not.
        """
        losses = {"epsilon": epsilon, "delta": delta, "rho": rho, "rho_delta": rho_delta}
        body: Body = {
            "dataset": dataset,
            "run_id": run_id,
            **{name: canonical(exact(value, where=name)) for name, value in losses.items()},
            "mechanisms": mechanisms,
            "config_sha256": config_sha256,
            "adjacency": adjacency,
            "unit": unit,
            "unit_records": unit_records,
            "n_records": n_records,
            "insecure_seed": insecure_seed,
            "version": version,
            **({} if period is None else {"period": period}),
        }
        return self.append("charge", body)

    def draw(self, *, run_id: str, dataset: str) -> Entry:
        """Record that a charged run begins to draw; it can never be voided after.

        Raises:
            LedgerError: The run is not charged, is void, or began before: then it may
                have drawn, and must not draw again.
            OutputNotWritableError: The home cannot remember it; then nothing may be drawn.
        """
        entry = self.append("draw", {"run_id": run_id, "dataset": dataset})
        if self.memory:
            self.memory.begin(run_id, entry.hash)
        return entry

    def void(
        self,
        *,
        run_id: str,
        dataset: str,
        reason: str,
        key: Ed25519PrivateKey | None = None,
        elsewhere: bool = False,
    ) -> Entry:
        """Give a charge back whose run never began to draw; may be repeated.

        Only the home that charged a run knows that it did not draw there, whatever became of the
        ledger since. Another needs the word of an approver; where there are none, of its operator.

        Args:
            run_id: The run.
            dataset: Name of the account.
            reason: Stays in the ledger.
            key: Of an approver in force.
            elsewhere: Whether the operator answers for it that no other home drew.

        Raises:
            ApprovalError: Another home charged it, and no approver in force signs.
            LedgerError: The run is not charged, or may have drawn.
        """
        if self.memory and self.memory.drew(run_id):
            raise drawn_before(run_id)
        given: Body = {"run_id": run_id, "dataset": dataset, "reason": reason, "created": now()}
        here = key is not None or self.memory is None or self.memory.charged(run_id)

        def compose(state: State) -> Body:
            charge = state.charge_of(given)
            if charge.status is Status.RESERVED and not here:
                check_elsewhere(state.account_of(dataset), given, elsewhere)
            return _signed(key, void_statement(charge, given))

        return self.append("void", given, compose)

    def publish(self, *, run_id: str, dataset: str, bundle: str, manifest_sha256: str) -> Entry:
        """Record that the bundle of a drawn run was published; may be repeated.

        Raises:
            LedgerError: The run never drew, or was published otherwise.
        """
        body = {"run_id": run_id, "dataset": dataset, "bundle": bundle}
        return self.append("publish", body | {"manifest_sha256": manifest_sha256})

    def look(
        self,
        *,
        run: str,
        dataset: str,
        config_sha256: str,
        gates: str = "exact",
        source: str | None = None,
        form: str = "",
    ) -> Entry:
        """Record that a run is about to open the source; nothing is opened before this is written.

        Args:
            run: The run; one that is started again looks again.
            dataset: Name of the account.
            config_sha256: Hash of the config that asks.
            gates: ``exact`` if its gates compare exact figures. ``noisy`` if the run was charged
                for their noise; such a look counts until it is settled.
            source: Name of what will be opened, which accounts that are bound to sources want.
            form: Of noisy gates: a hash of how records are read, 16 hexadecimal digits. The first
                look with a form goes on to count.

        Raises:
            RefusalLimitError: Too many looks or refusals since the account was opened last.
            LedgerError: The run was refused, or has drawn.
        """
        given = {"run": run, "dataset": dataset, "config_sha256": config_sha256, "gates": gates}

        def compose(state: State) -> Body:
            account = state.account_of(dataset)
            more: Body = {"source": source} if account.sources else {}
            forms = sorted({*account.forms, form} - {""})
            more |= {"forms": forms} if forms else {}
            if gates == "noisy":
                more |= {"form": form, "new_form": form not in account.forms}
            return {"open_looks": account.open_looks + 1} | more

        return self.append("look", given, compose)

    def settle(self, *, run_id: str, dataset: str, passed: bool) -> Entry:
        """Record that a run with noisy gates has ended its look inside its guarantee.

        Args:
            run_id: The run, whose look counts no more.
            dataset: Name of the account.
            passed: Whether its gates let it pass, which their noise makes public.

        Raises:
            LedgerError: No look of the run is open.
        """

        def compose(state: State) -> Body:
            return {"open_looks": settled_looks(state.account_of(dataset))}

        return self.append(
            "settle", {"run_id": run_id, "dataset": dataset, "passed": passed}, compose
        )

    def refuse(self, *, run_id: str, dataset: str, config_sha256: str) -> Entry:
        """Record that a gate stopped a run because of what the data hold; may be repeated.

        Raises:
            LedgerError: The run is past its gates, or was refused with another config.
        """
        body = {"run_id": run_id, "dataset": dataset, "config_sha256": config_sha256}
        return self.append("refuse", body)

    def reopen(
        self,
        *,
        dataset: str,
        reason: str | None = None,
        key: Ed25519PrivateKey | None = None,
    ) -> Entry:
        """Count a dataset's refusals and looks anew, for a reason or by an approver.

        Args:
            dataset: Name of the account.
            reason: Why the runs were refused; needed without a key.
            key: Of an approver in force.

        Raises:
            ApprovalError: The key is not that of an approver in force.
            LedgerError: There is nothing to reopen, or the reason is missing.
        """
        given: Body = {"dataset": dataset, "reason": reason, "created": now()}

        def compose(state: State) -> Body:
            return _signed(key, reopening_statement(state.account_of(dataset), given))

        return self.append("reopen", given, compose)

    def checkpoint(self, key: Ed25519PrivateKey) -> Entry:
        """Sign the head of the chain.

        Raises:
            LedgerError: The ledger is not usable.
        """

        def compose(state: State) -> Body:
            return _signed(key, checkpoint_statement(state.next_sequence, state.head))

        return self.append("checkpoint", {}, compose)

    def set_approvers(
        self,
        *,
        dataset: str,
        approvers: Collection[str],
        unsigned: bool = False,
        reason: str | None = None,
        key: Ed25519PrivateKey | None = None,
    ) -> Entry:
        """Put the set of those who approve in force; runs charged from then on are reviewed.

        Args:
            dataset: Name of the account.
            approvers: Public keys in hexadecimal. Without any, and without unsigned
                decisions, runs that are charged later are not reviewed.
            unsigned: Whether decisions without a signature count.
            reason: Needed where there is a review already.
            key: Of an approver in force, where there are any.

        Raises:
            ApprovalError: The key is not that of an approver in force.
            LedgerError: The rules forbid it, or a value is not usable.
        """
        given: Body = {
            "dataset": dataset,
            "approvers": sorted(set(approvers)),
            "unsigned": unsigned,
            "reason": reason,
            "created": now(),
            "sign_terms": True,
        }

        def compose(state: State) -> Body:
            return _signed(key, approvers_statement(state.account_of(dataset), given))

        return self.append("set-approvers", given, compose)

    def prepare(self, *, run_id: str, dataset: str, bundle: str, manifest_sha256: str) -> Entry:
        """Record that a sealed bundle waits for its approval; may be repeated.

        Args:
            run_id: The run, which has drawn.
            dataset: Name of the account.
            bundle: The place it is to be published at.
            manifest_sha256: Its seal.

        Raises:
            LedgerError: The run is not drawn, not under review, or was prepared otherwise.
        """
        body = {"run_id": run_id, "dataset": dataset, "bundle": bundle}
        return self.append("prepare", body | {"manifest_sha256": manifest_sha256})

    def decide(
        self,
        *,
        charge: Charge,
        manifest_sha256: str,
        decision: str,
        reason: str | None = None,
        key: Ed25519PrivateKey | None = None,
        by: str | None = None,
        signed: SignedElsewhere | None = None,
    ) -> Entry:
        """Record an approval or a rejection; the same decision again returns the first.

        Args:
            charge: Of the run.
            manifest_sha256: Seal of the bundle that the officer has seen.
            decision: ``approve`` or ``reject``.
            reason: Needed to reject.
            key: The officer's.
            by: In place of a key the name of whoever decides, which nobody vouches for.
            signed: In place of a key the signature of ``decision_statement``, made elsewhere.

        Raises:
            ApprovalError: Whoever decides may not, or it was decided otherwise before.
            LedgerError: A value is not usable.
        """
        created = now() if signed is None else signed.created
        body = decision_body(charge, manifest_sha256, decision, reason, created)
        if signed is not None:
            keys = self.account_terms(body["dataset"]).approvers
            body |= {
                "public_key": signed.signer(keys, decision_statement(body)),
                "signature": signed.signature,
            }
        elif key is not None:
            body |= _signed(key, decision_statement(body))
        else:
            body |= {"by": by}
        return self.append("decide", body)


def _signed(key: Ed25519PrivateKey | None, statement: list[object]) -> dict[str, str]:
    """The fields of a body that say who signed a statement, and how; none without a key."""
    if key is None:
        return {}
    return {"public_key": public_text(key), "signature": sign_statement(key, statement)}


def design_text(text: str) -> str:
    """The text that a design is registered by.

    Raises:
        LedgerError: It names none.
    """
    try:
        return str(Design.parse(text))
    except ValueError as error:
        flaw = str(error)
    raise LedgerError(
        f"The design {text[:60]!r} {flaw}.",
        where="design",
        next_step="Say in how many periods a person takes part at most, by public design, and how"
        f" long they are: {FORMS}.",
    )


def _limits(policy: str, limits: dict[str, object]) -> dict[str, str]:
    """The limits of a policy in their canonical text."""
    measures = measures_of(policy)
    missing, surplus = set(measures) - limits.keys(), limits.keys() - set(measures)
    if missing or surplus:
        flaws = [f"missing is {', '.join(sorted(missing))}"] if missing else []
        flaws += [f"not one of them is {', '.join(sorted(surplus))}"] if surplus else []
        raise LedgerError(
            f"The policy {policy!r} limits {' and '.join(measures)}; {'; '.join(flaws)}.",
            where="limit",
            next_step="Give --epsilon and --delta for 'basic', --rho and --delta for 'zcdp'.",
        )
    return {name: canonical(exact(limits[name], where=name)) for name in measures}
