"""The rules of a run: it is charged, then voided, or drawn and published."""

from __future__ import annotations

from collections.abc import Mapping

from mechanisms.errors import InsufficientBudgetError, PolicyMismatchError
from tasks.ledger_rules.account_rules import TERMS
from tasks.ledger_rules.accounts import Charge, State, Status, refusal
from tasks.ledger_rules.amounts import MEASURES, Loss
from tasks.ledger_rules.entries import Body, Entry, canonical_json
from tasks.ledger_rules.fields import OF_RUN
from tasks.ledger_rules.refusal_rules import check_not_refused
from tasks.ledger_rules.review_rules import check_approved

CHARGE_FIELDS = OF_RUN | {*MEASURES, *TERMS}
CHARGE_FIELDS |= {"mechanisms", "config_sha256", "insecure_seed", "version"}
_SET_WHEN_WRITTEN = {"created", "spent"}  # these do not distinguish an act from its repetition


def check_charge(state: State, body: Body) -> None:
    """Raise unless the account covers the charge, exactly to the last digit.

    Raises:
        UnregisteredDatasetError: There is no account of this dataset.
        PolicyMismatchError: Adjacency, unit or size differ from the registration.
        InsufficientBudgetError: Too little remains of a measure that the policy limits.
        LedgerError: The run was charged already, or a gate refused it.
    """
    account = state.account_of(body["dataset"])
    if body["run_id"] in state.charges:
        raise refusal(body, "This run was charged already.", "Start a new run.")
    check_not_refused(state, body)
    was = account.registration.body
    other = [f"{name} {body[name]} is not {was[name]}" for name in TERMS if body[name] != was[name]]
    place = f"dataset {account.dataset!r}"
    if other:
        raise PolicyMismatchError(
            f"The charge differs from the registration: {', '.join(other)}.",
            where=place,
            next_step="Make the config agree with 'statpress ledger show'; a registration never "
            "changes, so where that is wrong register the dataset under another name.",
        )
    remaining = account.remaining
    requested = Loss.of(body).within(account.limit.amounts)
    if not remaining.covers(requested):
        raise InsufficientBudgetError(
            f"The charge asks for {requested}; what remains is {remaining}.",
            remaining=remaining,
            requested=requested,
            where=place,
        )


def balance_of_charge(state: State, body: Body) -> Loss:
    """What the account has spent after the charge."""
    return state.account_of(body["dataset"]).spent + Loss.of(body)


def open_charge(draft: State, entry: Entry) -> None:
    """The effect of a charge; whether its run is reviewed is settled here."""
    draft.keep(Charge(entry, draft.account_of(entry.body["dataset"]).reviewed))


def check_draw(state: State, body: Body) -> None:
    """Raise unless the run is charged, was not refused and never began to draw.

    Raises:
        LedgerError: The run is unknown, void, refused, of another dataset, or began before.
    """
    status = state.charge_of(body).status
    check_not_refused(state, body)
    if status is Status.VOID:
        raise refusal(body, "The charge of this run is void.", "Start a new run.")
    if status is not Status.RESERVED:
        flaw = "This run was charged before and may have drawn."
        raise refusal(body, flaw, "Start a new run.")


def check_void(state: State, body: Body) -> None:
    """Raise unless the charge is there and provably nothing was drawn.

    Raises:
        LedgerError: The run is unknown, void, of another dataset, or may have drawn.
    """
    if body["reason"] is None:
        raise refusal(body, "A charge is not given back without a reason.", "Give --reason.")
    status = state.charge_of(body).status
    if status is Status.VOID:
        raise refusal(body, "The charge of this run is void.", "There is nothing left to do.")
    if status is not Status.RESERVED:
        raise refusal(
            body, "Drawing may have begun; what was charged stays spent.", "Start a new run."
        )


def balance_of_void(state: State, body: Body) -> Loss:
    """What the account has spent once the charge is given back."""
    return state.account_of(body["dataset"]).spent - state.charge_of(body).loss


def check_publish(state: State, body: Body) -> None:
    """Raise unless the body publishes a drawn run of the same dataset, once.

    Raises:
        ApprovalError: The run is under review, and is not approved with this seal.
        LedgerError: The run is unknown, not drawn, of another dataset, or published.
    """
    check_approved(state, body)
    status = state.charge_of(body).status
    if status in {Status.DRAWN, Status.APPROVED}:
        return
    flaw = {
        Status.PUBLISHED: "This run was published already.",
        Status.VOID: "The charge of this run is void.",
    }.get(status, "This run never began to draw.")
    raise refusal(body, flaw, "Publish what 'statpress ledger charge-history' lists as drawn.")


def same_body(state: State, entry: Entry, body: Body) -> bool:
    """Whether an act repeats an entry of its run; the time of writing makes no difference.

    Raises:
        LedgerError: The run has an entry of this kind that says something else.
    """
    known = entry.body
    names = (body.keys() | known.keys()) - _SET_WHEN_WRITTEN
    different = [name for name in names if _text(body, name) != _text(known, name)]
    if different:
        raise refusal(
            body,
            f"The ledger has a {entry.kind} of this run that differs in"
            f" {', '.join(sorted(different))}.",
            "Repeat the run with what it was charged for, or start a new run.",
        )
    return True


def same_charge(state: State, entry: Entry, body: Body) -> bool:
    """As ``same_body``, for a charge, which is repeated only as long as it counts.

    Raises:
        LedgerError: The run was charged otherwise, or its charge is void.
    """
    same = same_body(state, entry, body)
    if state.charge_of(body).status is Status.VOID:
        raise refusal(body, "The charge of this run is void.", "Start a new run.")
    return same


def _text(body: Mapping[str, object], name: str) -> str:
    """The canonical text of a field that may be missing."""
    return canonical_json([body[name]] if name in body else [])
