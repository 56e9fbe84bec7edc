"""The rules of refusals: a gate stopped a run because of what the data hold.

Whether a run is stopped is an exact answer to a question about the data, which no noise hides and
no budget pays for. Whoever may change a config could ask such questions without end; so
each is an entry, and after so many the dataset is closed until someone has looked into them.
"""

from __future__ import annotations

from dataclasses import replace

from mechanisms.errors import ApprovalError, LedgerError, RefusalLimitError
from tasks.ledger_rules.accounts import Account, State, Status, refusal
from tasks.ledger_rules.entries import Body, Entry
from tasks.ledger_rules.fields import BY_KEY, OF_DATASET, OF_RUN
from tasks.ledger_rules.review_rules import check_signature

REFUSAL_FIELDS = OF_RUN | {"config_sha256"}


def check_open(account: Account) -> None:
    """Raise if as many runs were refused as may be without a look into them.

    Raises:
        RefusalLimitError: So it is.
    """
    if account.closed:
        raise RefusalLimitError(
            f"Gates stopped {account.open_refusals} runs, which is the limit; no run looks at the"
            " data any more.",
            where=f"dataset {account.dataset!r}",
            next_step=f"Look into them ('statpress ledger show {account.dataset}'), then: statpress"
            f" ledger amend {account.dataset} --reopen --reason …",
        )


def check_refuse(state: State, body: Body) -> None:
    """Raise unless the run is of an account, and not past its gates.

    Raises:
        UnregisteredDatasetError: There is no account of this dataset.
        LedgerError: The run was refused already, or is charged and void or may have drawn.
    """
    state.account_of(body["dataset"])
    check_not_refused(state, body)
    if body["run_id"] in state.charges and state.charge_of(body).status is not Status.RESERVED:
        raise refusal(body, "The gates of this run are behind it.", "Start a new run.")


def check_not_refused(state: State, body: Body) -> None:
    """Raise if the run was refused: it has asked its question.

    Raises:
        LedgerError: It was.
    """
    if body["run_id"] in state.refused:
        raise refusal(body, "A gate refused this run; it does not go on.", "Start a new run.")


def keep_refusal(draft: State, entry: Entry) -> None:
    """The effect of a refusal: one more of the account's."""
    account = draft.account_of(entry.body["dataset"])
    draft.accounts[account.dataset] = replace(account, refusals=(*account.refusals, entry))
    draft.refused[entry.body["run_id"]] = entry


def reopening_fields(body: Body) -> frozenset[str]:
    """The fields of a reopening, with those of its signature if it has one."""
    fields = OF_DATASET | {"reason"}
    return fields | BY_KEY if "signature" in body else fields


def reopening_statement(account: Account, body: Body) -> list[object]:
    """What an approver signs to reopen a dataset; it holds once, after its last refusal."""
    last = account.refusals[-1].hash if account.refusals else None
    return ["statpress reopening", *(body[name] for name in ("dataset", "reason", "created")), last]


def check_reopen(state: State, body: Body) -> None:
    """Raise unless there are refusals to answer for, with a reason or by an approver.

    Raises:
        UnregisteredDatasetError: There is no account of this dataset.
        ApprovalError: It is signed, and not by an approver in force.
        LedgerError: There were no refusals, or the reason is missing.
    """
    account = state.account_of(body["dataset"])
    place = f"dataset {account.dataset!r}"
    if not account.open_refusals:
        raise LedgerError(
            "No gate has stopped a run since the last reopening.",
            where=place,
            next_step="There is nothing left to do.",
        )
    if "signature" not in body:
        if body["reason"] is None:
            raise LedgerError(
                "Reopening needs a reason, or the signature of an approver.",
                where=place,
                next_step="Give --reason, which stays in the ledger, or --key.",
            )
        return
    if body["public_key"] not in account.approvers:
        raise ApprovalError(
            "This key is not one of the dataset's approvers.",
            where=place,
            next_step="'statpress ledger show' lists who approves; or give a --reason only.",
        )
    check_signature(body, reopening_statement(account, body))


def reopen_account(draft: State, entry: Entry) -> None:
    """The effect of a reopening: refusals are counted from here."""
    account = draft.account_of(entry.body["dataset"])
    draft.accounts[account.dataset] = replace(account, reopenings=(*account.reopenings, entry))
