"""The ledger's acts of review: set who approves, prepare, decide."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from mechanisms.errors import LedgerError
from tasks.ledger.access import LedgerAccess
from tasks.ledger_rules.account_lookup import account_of
from tasks.ledger_rules.accounts import Charge, State
from tasks.ledger_rules.entries import Body, Entry
from tasks.ledger_rules.review_rules import approvers_statement, decision_statement
from tasks.ledger_rules.signing import public_text, sign_statement

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class LedgerReview(LedgerAccess, ABC):
    """The part of a ledger that keeps releases back until an officer approves them."""

    @abstractmethod
    def _append(
        self, kind: str, body: Body, compose: Callable[[State], Body] | None = None
    ) -> Entry:
        """Check and write one entry in one serialised transaction."""

    @abstractmethod
    def _standing(self, connection: Connection, dataset: str | None, run_id: str | None) -> State:
        """The state as far as an act on this dataset and run can depend on it."""

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
            approvers: Public keys in hexadecimal; none, and no unsigned decisions, end
                the review for runs that are charged later.
            unsigned: Whether decisions without a signature count.
            reason: Needed where there is a review already.
            key: Of an approver in force, where there are any.

        Raises:
            ApprovalError: The key is none of an approver in force.
            LedgerError: The rules forbid it, or a value is not usable.
        """
        said: Body = {"approvers": sorted(set(approvers)), "unsigned": unsigned, "reason": reason}
        given = {"dataset": dataset, **said, "created": _now()}

        def compose(state: State) -> Body:
            if key is None:
                return {}
            statement = approvers_statement(account_of(state, given), given)
            return {"public_key": public_text(key), "signature": sign_statement(key, statement)}

        return self._append("set-approvers", given, compose)

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
        return self._append("prepare", body | {"manifest_sha256": manifest_sha256})

    def decide(
        self,
        *,
        charge: Charge,
        manifest_sha256: str,
        decision: str,
        reason: str | None = None,
        key: Ed25519PrivateKey | None = None,
        by: str | None = None,
    ) -> Entry:
        """Record an approval or a rejection; the same decision again returns the first.

        Args:
            charge: Of the run.
            manifest_sha256: Seal of the bundle that the officer has seen.
            decision: ``approve`` or ``reject``.
            reason: Needed to reject.
            key: The officer's.
            by: In place of a key the name of who says so, which nobody vouches for.

        Raises:
            ApprovalError: Whoever decides may not, or it was decided otherwise before.
            LedgerError: A value is not usable.
        """
        run = charge.entry.body
        body: Body = {
            "dataset": run["dataset"],
            "run_id": run["run_id"],
            "charge": charge.entry.hash,
            "manifest_sha256": manifest_sha256,
            "decision": decision,
            "reason": reason,
            "created": _now(),
        }
        if key is None:
            body["by"] = by
        else:
            body["public_key"] = public_text(key)
            body["signature"] = sign_statement(key, decision_statement(body))
        return self._append("decide", body)

    def charged(self, *, run_id: str, dataset: str) -> Charge:
        """The charge of a run, and what followed it.

        Raises:
            LedgerError: The ledger has none.
        """

        def work(connection: Connection) -> Charge:
            found = self._standing(connection, dataset, run_id).charges.get(run_id)
            if found is None:
                raise LedgerError(
                    "The ledger has no charge of this run.",
                    where=f"run {run_id!r}",
                    next_step="'statpress ledger charge-history' lists the runs.",
                )
            return found

        return self._within(self.store.reader, work)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
