"""The ledger's rules of review: who approves, what waits, what was decided.

A decision is signed over the run, its charge, the seal of its bundle and the officer's
words. So whoever holds the entry and the officer's public key can check it, with or
without the ledger.
"""

from __future__ import annotations

from dataclasses import replace

from mechanisms.errors import ApprovalError, LedgerError
from tasks.ledger_rules.accounts import Account, State, Status, refusal
from tasks.ledger_rules.entries import Body, Entry
from tasks.ledger_rules.fields import BY_KEY, OF_DATASET, OF_RUN, check_fields
from tasks.ledger_rules.signing import statement_signed


def approvers_statement(account: Account, body: Body) -> list[object]:
    """What an approver signs to change who approves; it holds once, after the entry in force."""
    before = account.review.hash if account.review else None
    names = ("dataset", "approvers", "unsigned", "reason", "created")
    return ["statpress approvers", *(body[name] for name in names), before]


def decision_statement(body: Body) -> list[object]:
    """What an approver signs to decide about a bundle."""
    names = ("dataset", "run_id", "charge", "manifest_sha256", "decision", "reason", "created")
    return ["statpress release decision", *(body[name] for name in names)]


def approvers_fields(body: Body) -> frozenset[str]:
    """The fields of a change of approvers, with those of its signature if it has one."""
    fields = OF_DATASET | {"approvers", "unsigned", "reason"}
    return fields | BY_KEY if "signature" in body else fields


def decision_fields(body: Body) -> frozenset[str]:
    """The fields of a decision, which is signed or states by whom it is made."""
    fields = OF_RUN | {"charge", "decision", "manifest_sha256", "reason"}
    return fields | ({"by"} if "by" in body else BY_KEY)


def check_set_approvers(state: State, body: Body) -> None:
    """Raise unless the body changes who approves, in the name of one who does already.

    The first approvers need no signature; as long as there are keys in force, one of
    them signs every change, also the one that ends the review.

    Raises:
        UnregisteredDatasetError: There is no account of this dataset.
        ApprovalError: No approver in force signed the change.
        LedgerError: It changes nothing, or lacks its reason.
    """
    signed = "signature" in body
    account = state.account_of(body["dataset"])
    place = f"dataset {account.dataset!r}"
    if (tuple(body["approvers"]), body["unsigned"]) == (account.approvers, account.unsigned):
        raise LedgerError(
            "These are the approvers in force.",
            where=place,
            next_step="Name others with --public-key, or allow unsigned decisions.",
        )
    if account.reviewed and body["reason"] is None:
        raise LedgerError(
            "Changing who approves needs a reason.", where=place, next_step="Give --reason."
        )
    if account.approvers:
        if not signed or body["public_key"] not in account.approvers:
            raise ApprovalError(
                "Only an approver in force changes who approves.",
                where=place,
                next_step="Sign with --key of one of the keys that 'statpress ledger show' lists.",
            )
        check_signature(body, approvers_statement(account, body))
    elif signed:
        raise LedgerError(
            "Nobody is an approver yet, so nobody signs.", where=place, next_step="Leave out --key."
        )


def check_prepare(state: State, body: Body) -> None:
    """Raise unless the body puts the bundle of a drawn run before its approvers, once.

    Raises:
        LedgerError: The run is unknown, not drawn, of another dataset, prepared before, or
            was charged when its dataset had no approvers.
    """
    charge = state.charge_of(body)
    if charge.status is not Status.DRAWN:
        flaw = f"The run is {charge.status}; only what was drawn is prepared, and once."
        raise refusal(body, flaw, "'statpress review' lists what is prepared.")
    if not charge.reviewed:
        flaw = "The run was charged when releases of its dataset needed no approval."
        raise refusal(body, flaw, "Publish it without.")


def check_decide(state: State, body: Body) -> None:
    """Raise unless one who may approves or rejects a prepared bundle, once.

    Raises:
        ApprovalError: The signature does not hold, or whoever decides is not an approver, or
            nothing of this charge and seal waits for a decision.
        LedgerError: The run is unknown or of another dataset, or a field is not usable.
    """
    check_decider(state, body)
    charge = state.charge_of(body)
    flaw, step = {
        Status.APPROVED: (
            "This run is approved already.",
            f"A decision is final. Publish it with 'statpress publish {body['run_id']}'.",
        ),
        Status.PUBLISHED: ("This run was published already.", "A decision is final."),
        Status.REJECTED: (
            "This run is rejected already.",
            "A decision is final. Its budget stays spent; its folder may be deleted.",
        ),
    }.get(
        charge.status,
        (
            "The ledger knows of no prepared bundle of this run.",
            "'statpress review' lists what waits for a decision.",
        ),
    )
    if charge.status is Status.PREPARED:
        assert charge.preparation is not None
        if body["charge"] == charge.entry.hash and _same_seal(charge.preparation, body):
            return
        flaw = "The decision is about another charge or seal than the prepared bundle's."
    raise _no_approval(body, flaw, step)


def check_decider(state: State, body: Body) -> None:
    """Raise unless the account lets the decider that the body names decide.

    Raises:
        ApprovalError: It does not, or the signature does not hold.
        LedgerError: A field is not usable, or there is no such account.
    """
    check_decision(body)
    account = state.account_of(body["dataset"])
    if "by" in body and not account.unsigned:
        flaw = "Releases of this dataset are decided by signature only."
        raise _no_approval(body, flaw, "Sign with --key.")
    if "by" not in body and body["public_key"] not in account.approvers:
        flaw = "This key is not one of the dataset's approvers."
        raise _no_approval(body, flaw, "'statpress ledger show' lists who approves.")


def check_decision(body: Body) -> None:
    """Raise unless a decision is whole by itself: its fields, its reason, its signature.

    Raises:
        ApprovalError: The signature is not the key's over this decision.
        LedgerError: A field is not usable, or a rejection has no reason.
    """
    check_fields(body, decision_fields(body))
    if body["decision"] == "reject" and body["reason"] is None:
        raise refusal(body, "A rejection needs its reason.", "Give --reason.")
    if "by" not in body:
        check_signature(body, decision_statement(body))


def check_approved(state: State, body: Body) -> None:
    """Raise unless a run may be published as far as its review goes.

    Args:
        state: As the rules get it.
        body: Of a publication.

    Raises:
        ApprovalError: The run was charged under review, and is not approved with this seal.
    """
    charge = state.charge_of(body)
    if not charge.reviewed or charge.status in {Status.RESERVED, Status.VOID, Status.PUBLISHED}:
        return  # the rule of publication says what is wrong with those
    if charge.status is not Status.APPROVED:
        flaw = {
            Status.PREPARED: "The bundle waits for its approval.",
            Status.REJECTED: "The bundle was rejected.",
        }.get(charge.status, "Releases of this dataset are reviewed; this one was never prepared.")
        raise _no_approval(body, flaw, "'statpress review' lists what waits for a decision.")
    assert charge.preparation is not None
    if not _same_seal(charge.preparation, body):
        flaw = "What was approved has another seal than this bundle."
        raise _no_approval(body, flaw, "Find out who changed it; nothing else may be published.")


def replace_approvers(draft: State, entry: Entry) -> None:
    """The effect of a change of approvers: others are in force."""
    account = draft.account_of(entry.body["dataset"])
    draft.accounts[account.dataset] = replace(account, review=entry)


def same_decision(state: State, entry: Entry, body: Body) -> bool:
    """Whether a decision repeats the first one, by whomever and for whatever reason.

    Raises:
        ApprovalError: Whoever decides may not.
        LedgerError: A field is not usable.
    """
    check_decider(state, body)
    return bool(entry.body["decision"] == body["decision"])


def _same_seal(preparation: Entry, body: Body) -> bool:
    return bool(preparation.body["manifest_sha256"] == body["manifest_sha256"])


def check_signature(body: Body, statement: list[object]) -> None:
    """Raise unless the body's key signed the statement."""
    if not statement_signed(body["public_key"], body["signature"], statement):
        raise ApprovalError(
            "The signature is not this key's over what the entry says.",
            where=f"dataset {body['dataset']!r}",
            next_step="Sign it again with the approver's key.",
        )


def _no_approval(body: Body, flaw: str, next_step: str) -> ApprovalError:
    return ApprovalError(flaw, where=f"run {body['run_id']!r}", next_step=next_step)
