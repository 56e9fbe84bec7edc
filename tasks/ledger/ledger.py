"""The privacy-loss ledger in a database: append-only, hash-chained, one writer at a time.

The rules are in ``tasks.ledger_rules.rules``; here they meet SQLite or PostgreSQL. Every act is
checked and written in one transaction that waits for all writers before it, so that
runs at the same moment cannot overspend together. It reads the few entries it
depends on, whatever the length of the history; ``state`` and ``verify`` read all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from mechanisms.errors import LedgerError, LedgerIntegrityError, UnregisteredDatasetError
from tasks.ledger.access import replayed
from tasks.ledger.review import LedgerReview
from tasks.ledger_rules.accounts import State
from tasks.ledger_rules.amounts import canonical, exact
from tasks.ledger_rules.chain import next_entry, repeated, replay, resume
from tasks.ledger_rules.entries import Body, Entry, canonical_json, check_name
from tasks.ledger_rules.policies import measures_of
from tasks.ledger_rules.signing import public_text, sign
from tasks.ledger_store.store import Store
from tasks.ledger_store.tables import append, append_all, relevant, stored

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_Compose = Callable[[State], Body]


class Ledger(LedgerReview):
    """A ledger opened with ``Ledger.open``; each process opens its own."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._seen: tuple[int, str] = (0, "")  # the last entry this object knows of

    def register(
        self,
        *,
        dataset: str,
        adjacency: str,
        unit: str,
        unit_records: int,
        n_records: int,
        policy: str = "basic",
        **limits: object,
    ) -> Entry:
        """Open an account with limits that no sum of charges may pass.

        Args:
            dataset: Name of the account.
            adjacency: The neighbouring relation.
            unit: The privacy unit.
            unit_records: Records of one unit.
            n_records: Public number of records.
            policy: ``basic``, or ``zcdp``.
            limits: ``epsilon`` and ``delta``, or ``rho`` and ``rho_delta``.

        Raises:
            AlreadyRegisteredError: The dataset has an account.
            LedgerError: A value is not usable, or the ledger is not.
        """
        terms = {"adjacency": adjacency, "unit": unit}
        records = {"unit_records": unit_records, "n_records": n_records}
        body = {"dataset": dataset, "policy": policy, **terms, **records}
        return self._append("register", body | _limits(policy, limits))

    def amend(
        self,
        *,
        dataset: str,
        policy: str | None = None,
        reason: str | None = None,
        **limits: object,
    ) -> Entry:
        """Put another policy or limit in force; the old one stays in the chain.

        Args:
            dataset: Name of the account.
            policy: ``basic`` or ``zcdp``; by default the one in force.
            reason: Needed to raise a limit or to change the policy.
            limits: As in ``register``; under the policy in force, what is not given
                stays as it is at that moment.

        Raises:
            UnregisteredDatasetError: There is no such account.
            LedgerError: The rules forbid it, or a value is not usable.
        """

        def compose(state: State) -> Body:
            account = state.accounts.get(dataset)
            if account is None:
                raise UnregisteredDatasetError(
                    "The ledger has no account of this name.", where=f"dataset {dataset!r}"
                )
            chosen = policy or account.policy
            kept = account.limit.texts() if chosen == account.policy else {}
            return {"policy": chosen, **_limits(chosen, kept | limits)}

        return self._append("amend-policy", {"dataset": dataset, "reason": reason}, compose)

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
    ) -> Entry:
        """Reserve and spend budget for a run; once this returns, it is on disk for good.

        The same call again returns the entry that is there, so that a caller who
        does not know whether the first attempt came through may repeat it.

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
        }
        return self._append("charge", body)

    def draw(self, *, run_id: str, dataset: str) -> Entry:
        """Record that a charged run begins to draw; it can never be voided after.

        Raises:
            LedgerError: The run is not charged, is void, or began before: then it may
                have drawn, and must not draw again.
        """
        return self._append("draw", {"run_id": run_id, "dataset": dataset})

    def void(self, *, run_id: str, dataset: str, reason: str) -> Entry:
        """Give a charge back whose run never began to draw; may be repeated.

        Raises:
            LedgerError: The run is not charged, or may have drawn.
        """
        return self._append("void", {"run_id": run_id, "dataset": dataset, "reason": reason})

    def publish(self, *, run_id: str, dataset: str, bundle: str, manifest_sha256: str) -> Entry:
        """Record that the bundle of a drawn run was published; may be repeated.

        Raises:
            LedgerError: The run never drew, or was published otherwise.
        """
        body = {"run_id": run_id, "dataset": dataset, "bundle": bundle}
        return self._append("publish", body | {"manifest_sha256": manifest_sha256})

    def checkpoint(self, key: Ed25519PrivateKey) -> Entry:
        """Sign the head of the chain.

        Raises:
            LedgerError: The ledger is not usable.
        """

        def compose(state: State) -> Body:
            signature = sign(key, state.next_sequence, state.head)
            return {"public_key": public_text(key), "signature": signature}

        return self._append("checkpoint", {}, compose)

    def restore(self, entries: Iterator[Entry]) -> State:
        """Write the entries of an export into this ledger, which must be empty.

        Raises:
            LedgerIntegrityError: The first entry that does not hold; nothing was written.
            LedgerError: The ledger holds entries already.
        """

        def work(connection: Connection) -> State:
            if next(stored(connection), None) is not None:
                raise LedgerError(
                    "The ledger holds entries already.",
                    where=self.where,
                    next_step="Import into an empty ledger.",
                )
            batch = list(entries)
            state = replay(batch)
            append_all(connection, batch)
            return state

        return self._within(self.store.writer, work)

    def _append(self, kind: str, body: Body, compose: _Compose | None = None) -> Entry:
        """Check and write one entry in one serialised transaction."""
        created = datetime.now(UTC).isoformat(timespec="seconds")
        given = json.loads(canonical_json({"created": created, **body}))
        names = {name: given.get(name) for name in ("dataset", "run_id")}
        for name, value in names.items():
            if name in given:
                check_name(name, value)

        def work(connection: Connection) -> Entry:
            state = self._standing(connection, names["dataset"], names["run_id"])
            entry = repeated(state, kind, given)
            if entry is None:
                entry = next_entry(state, kind, given | (compose(state) if compose else {}))
                append(connection, entry)
            return entry

        entry = self._within(self.store.writer, work)
        self._seen = max(self._seen, (entry.sequence, entry.hash))
        return entry

    def _standing(self, connection: Connection, dataset: str | None, run_id: str | None) -> State:
        """The state as far as an act on this dataset and run can depend on it."""
        anchor, _ = self._seen
        rows = relevant(connection, dataset=dataset, run_id=run_id, anchor=anchor)
        if anchor and all((row.sequence, row.hash) != self._seen for row in rows):
            raise LedgerIntegrityError(
                "The entry is no longer the one that was here before.",
                sequence=anchor,
                where=f"entry {anchor}",
            )
        state = resume(rows, dataset=dataset, run_id=run_id)
        return replayed(connection) if state is None else state


def _limits(policy: str, limits: dict[str, object]) -> dict[str, str]:
    """The limits of a policy in their canonical text."""
    measures = measures_of(policy)
    missing, surplus = set(measures) - limits.keys(), limits.keys() - set(measures)
    if missing or surplus:
        said = [f"missing is {', '.join(sorted(missing))}"] if missing else []
        said += [f"not one of them is {', '.join(sorted(surplus))}"] if surplus else []
        raise LedgerError(
            f"The policy {policy!r} limits {' and '.join(measures)}; {'; '.join(said)}.",
            where="limit",
            next_step="Give --epsilon and --delta for 'basic', --rho and --delta for 'zcdp'.",
        )
    return {name: canonical(exact(limits[name], where=name)) for name in measures}
