"""What a curator or a run does to a ledger, each act one entry.

These functions compose the entry; whether it may follow, the ledger decides when it
appends it. ``Ledger`` has them as methods.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from mechanisms.errors import LedgerError
from tasks.ledger_rules.accounts import State
from tasks.ledger_rules.amounts import canonical, exact
from tasks.ledger_rules.entries import Body, Entry
from tasks.ledger_rules.policies import measures_of
from tasks.ledger_rules.refusal_rules import reopening_statement
from tasks.ledger_rules.signing import checkpoint_statement, signature_fields

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

Compose = Callable[[State], Body]


class Appender(Protocol):
    """What an act needs of a ledger."""

    def append(self, kind: str, body: Body, compose: Compose | None = None) -> Entry:
        """Check and write one entry."""
        ...


def now() -> str:
    """The time that an entry states."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def register(
    ledger: Appender,
    *,
    dataset: str,
    adjacency: str,
    unit: str,
    unit_records: int,
    n_records: int,
    policy: str = "basic",
    max_refusals: int | None = None,
    **limits: object,
) -> Entry:
    """Open an account with limits that no sum of charges may pass.

    Args:
        ledger: The ledger.
        dataset: Name of the account.
        adjacency: The neighbouring relation.
        unit: The privacy unit.
        unit_records: Records of one unit.
        n_records: Public number of records.
        policy: ``basic``, or ``zcdp``.
        max_refusals: How many runs gates may stop before the account has to be reopened;
            by default 20.
        limits: ``epsilon`` and ``delta``, or ``rho`` and ``rho_delta``.

    Raises:
        AlreadyRegisteredError: The dataset has an account.
        LedgerError: A value is not usable, or the ledger is not.
    """
    terms = {"adjacency": adjacency, "unit": unit}
    records = {"unit_records": unit_records, "n_records": n_records}
    body = {"dataset": dataset, "policy": policy, **terms, **records}
    body |= {} if max_refusals is None else {"max_refusals": max_refusals}
    return ledger.append("register", body | _limits(policy, limits))


def amend(
    ledger: Appender,
    *,
    dataset: str,
    policy: str | None = None,
    reason: str | None = None,
    **limits: object,
) -> Entry:
    """Put another policy or limit in force; the old one stays in the chain.

    Args:
        ledger: The ledger.
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
        account = state.account_of(dataset)
        chosen = policy or account.policy
        kept = account.limit.texts() if chosen == account.policy else {}
        return {"policy": chosen, **_limits(chosen, kept | limits)}

    return ledger.append("amend-policy", {"dataset": dataset, "reason": reason}, compose)


def charge(
    ledger: Appender,
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
    return ledger.append("charge", body)


def draw(ledger: Appender, *, run_id: str, dataset: str) -> Entry:
    """Record that a charged run begins to draw; it can never be voided after.

    Raises:
        LedgerError: The run is not charged, is void, or began before: then it may
            have drawn, and must not draw again.
    """
    return ledger.append("draw", {"run_id": run_id, "dataset": dataset})


def void(ledger: Appender, *, run_id: str, dataset: str, reason: str) -> Entry:
    """Give a charge back whose run never began to draw; may be repeated.

    Raises:
        LedgerError: The run is not charged, or may have drawn.
    """
    return ledger.append("void", {"run_id": run_id, "dataset": dataset, "reason": reason})


def publish(
    ledger: Appender, *, run_id: str, dataset: str, bundle: str, manifest_sha256: str
) -> Entry:
    """Record that the bundle of a drawn run was published; may be repeated.

    Raises:
        LedgerError: The run never drew, or was published otherwise.
    """
    body = {"run_id": run_id, "dataset": dataset, "bundle": bundle}
    return ledger.append("publish", body | {"manifest_sha256": manifest_sha256})


def refuse(ledger: Appender, *, run_id: str, dataset: str, config_sha256: str) -> Entry:
    """Record that a gate stopped a run because of what the data hold; may be repeated.

    Raises:
        LedgerError: The run is past its gates, or was refused with another config.
    """
    body = {"run_id": run_id, "dataset": dataset, "config_sha256": config_sha256}
    return ledger.append("refuse", body)


def reopen(
    ledger: Appender,
    *,
    dataset: str,
    reason: str | None = None,
    key: Ed25519PrivateKey | None = None,
) -> Entry:
    """Count a dataset's refusals anew, for a reason or by an approver.

    Args:
        ledger: The ledger.
        dataset: Name of the account.
        reason: Why the runs were refused; needed without a key.
        key: Of an approver in force.

    Raises:
        ApprovalError: The key is not that of an approver in force.
        LedgerError: There is nothing to reopen, or the reason is missing.
    """
    given: Body = {"dataset": dataset, "reason": reason, "created": now()}

    def compose(state: State) -> Body:
        if key is None:
            return {}
        return signature_fields(key, reopening_statement(state.account_of(dataset), given))

    return ledger.append("reopen", given, compose)


def checkpoint(ledger: Appender, key: Ed25519PrivateKey) -> Entry:
    """Sign the head of the chain.

    Raises:
        LedgerError: The ledger is not usable.
    """

    def compose(state: State) -> Body:
        return signature_fields(key, checkpoint_statement(state.next_sequence, state.head))

    return ledger.append("checkpoint", {}, compose)


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
