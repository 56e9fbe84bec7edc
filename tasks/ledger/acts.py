"""What a curator, a run or an officer does to a ledger, each act one entry.

The budget of a dataset: an account opened for it, and what is left there.

What a curator or a run does to a ledger, each act one entry.

These functions compose the entry; whether it may follow, the ledger decides when it
appends it. ``Ledger`` has them as methods.

The acts of review: set who approves, prepare a bundle, decide about it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from statpress.mechanisms.domain.domain import Privacy
from statpress.mechanisms.errors import LedgerError, UnregisteredDatasetError
from statpress.tasks.ledger.accounts import Charge, State, measures_of
from statpress.tasks.ledger.entries import (
    Body,
    Entry,
    canonical,
    checkpoint_statement,
    exact,
    signature_fields,
)
from statpress.tasks.ledger.rules import (
    approvers_statement,
    decision_statement,
    reopening_statement,
)
from statpress.tasks.private_zone.folders import Home

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from statpress.tasks.ledger.accounts import Account
    from statpress.tasks.ledger.entries import Loss
    from statpress.tasks.ledger.ledger import Ledger


def register_dataset(
    home: Home, dataset: str, privacy: Privacy, *, policy: str = "basic", **terms: Any
) -> Account:
    """Open a dataset's account in the home's ledger, which is made if need be.

    Args:
        home: Where the ledger lies.
        dataset: Name of the account.
        privacy: What is protected.
        policy: ``basic``, or ``zcdp``.
        terms: The limits, and perhaps ``max_refusals``, as ``Ledger.register`` takes them.
    """
    from statpress.tasks.ledger.export import check_head, keep_head
    from statpress.tasks.ledger.ledger import Ledger

    home.folder("")
    with Ledger.open(home.ledger) as ledger:
        check_head(home, ledger)
        ledger.register(
            dataset=dataset,
            policy=policy,
            adjacency=str(privacy.adjacency),
            unit=str(privacy.unit),
            unit_records=privacy.unit_records,
            n_records=privacy.n_records,
            **terms,
        )
        keep_head(home, ledger)
        return ledger.account(dataset)


def remaining_budget(home: Home, dataset: str) -> Loss | None:
    """What the ledger still grants a dataset; None without a ledger or an account."""
    account = _found(home, lambda ledger: ledger.accounts().get(dataset))
    return account.remaining if account else None


def account_terms(home: Home, dataset: str) -> Account | None:
    """A dataset's account without its charges, so that the chain is not replayed.

    None without a ledger or an account.
    """
    try:
        return _found(home, lambda ledger: ledger.account_terms(dataset))
    except UnregisteredDatasetError:
        return None


def _found(home: Home, ask: Callable[[Ledger], Account | None]) -> Account | None:
    """What the home's ledger answers; None if there is none."""
    if isinstance(home.ledger, Path) and not home.ledger.exists():
        return None  # before the database's library is imported
    from statpress.tasks.ledger.ledger import Ledger

    if not Ledger.exists(home.ledger):
        return None
    with Ledger.open(home.ledger, create=False) as ledger:
        return ask(ledger)


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


def set_approvers(
    ledger: Appender,
    *,
    dataset: str,
    approvers: Collection[str],
    unsigned: bool = False,
    reason: str | None = None,
    key: Ed25519PrivateKey | None = None,
) -> Entry:
    """Put the set of those who approve in force; runs charged from then on are reviewed.

    Args:
        ledger: The ledger.
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
    }

    def compose(state: State) -> Body:
        if key is None:
            return {}
        return signature_fields(key, approvers_statement(state.account_of(dataset), given))

    return ledger.append("set-approvers", given, compose)


def prepare(
    ledger: Appender, *, run_id: str, dataset: str, bundle: str, manifest_sha256: str
) -> Entry:
    """Record that a sealed bundle waits for its approval; may be repeated.

    Args:
        ledger: The ledger.
        run_id: The run, which has drawn.
        dataset: Name of the account.
        bundle: The place it is to be published at.
        manifest_sha256: Its seal.

    Raises:
        LedgerError: The run is not drawn, not under review, or was prepared otherwise.
    """
    body = {"run_id": run_id, "dataset": dataset, "bundle": bundle}
    return ledger.append("prepare", body | {"manifest_sha256": manifest_sha256})


def decide(
    ledger: Appender,
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
        ledger: The ledger.
        charge: Of the run.
        manifest_sha256: Seal of the bundle that the officer has seen.
        decision: ``approve`` or ``reject``.
        reason: Needed to reject.
        key: The officer's.
        by: In place of a key the name of whoever decides, which nobody vouches for.

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
        "created": now(),
    }
    body |= {"by": by} if key is None else signature_fields(key, decision_statement(body))
    return ledger.append("decide", body)
