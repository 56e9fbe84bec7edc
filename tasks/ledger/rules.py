"""One row for each kind of ledger entry: its fields, when it may follow, what it changes.

A new kind of entry is one row of ``RULES`` and the functions that the row names. The same rule
that refuses a new entry to its author finds a broken one when the chain is verified, so the two
can never disagree.

Two properties are guarded by the database as well, so a kind that differs in them needs a new form
of the schema: every entry but a checkpoint is about a dataset, and a run has at most one entry of
each kind.

Those that open an account or change its terms are in ``tasks.ledger.account_rules``; here are those
of runs. A run is charged, then voided, or drawn and published.

Between those, a review may stand. A decision is signed over the run, its charge, the seal of its
bundle and the officer's words. So whoever holds the entry and the officer's public key can check
it, with or without the ledger.

Whether gates let a run pass is an exact answer to a question about the data, which no noise hides
and no budget pays for. Whoever may change a config could ask such questions without end. So a look
is an entry before the source is opened, whatever becomes of the run, and a refusal is one more if a
gate stopped it. After so many of either the dataset is closed until someone has looked into them. A
run may look more than once, since it may be started again, so a look names it in a field of its
own. A run whose gates are noisy is charged before it looks, since their noise is the first that it
draws. Its look counts until it has ended inside the guarantee: until its gates
stopped it, or all is counted. What ends otherwise, as by a file that cannot be read or for lack of
memory, goes on to count.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from statpress.mechanisms.errors import (
    ApprovalError,
    InsufficientBudgetError,
    LedgerError,
    PolicyMismatchError,
    RefusalLimitError,
)
from statpress.mechanisms.periods import SeriesPeriod
from statpress.tasks.ledger.account_rules import (
    ACCOUNT_RULES,
    BY_KEY,
    OF_DATASET,
    TERMS,
    Rule,
    check_about,
    check_fields,
    check_signature,
    check_signer,
    signed_fields,
)
from statpress.tasks.ledger.accounts import (
    Account,
    Balance,
    Charge,
    State,
    Status,
    gates_of,
    refusal,
)
from statpress.tasks.ledger.entries import (
    MEASURES,
    Body,
    Entry,
    Loss,
    canonical_json,
    checkpoint_statement,
    statement_signed,
)

OF_RUN = OF_DATASET | {"run_id"}
"""Fields of every entry about a run."""


def decision_body(
    charge: Charge, manifest_sha256: str, decision: str, reason: str | None, created: str
) -> Body:
    """A decision about the bundle of a run, without whoever makes it."""
    run = charge.entry.body
    return {
        "dataset": run["dataset"],
        "run_id": run["run_id"],
        "charge": charge.entry.hash,
        "manifest_sha256": manifest_sha256,
        "decision": decision,
        "reason": reason,
        "created": created,
    }


def decision_statement(body: Body) -> list[object]:
    """What an approver signs to decide about a bundle."""
    names = ("dataset", "run_id", "charge", "manifest_sha256", "decision", "reason", "created")
    return ["statpress release decision", *(body[name] for name in names)]


@dataclass(frozen=True, kw_only=True)
class SignedElsewhere:
    """A signature that was made where the private key is, and not here.

    Attributes:
        created: The time in the statement.
        signature: In hexadecimal.
    """

    created: str
    signature: str

    def signer(self, keys: Collection[str], statement: list[object]) -> str:
        """The key of those in force that signed a statement.

        Raises:
            ApprovalError: None of them did.
        """
        for key in keys:
            if statement_signed(key, self.signature, statement):
                return key
        raise ApprovalError(
            "This is not the signature of an approver in force over this statement.",
            where="signature",
            next_step="Sign the file as it was written: 'openssl pkeyutl -sign -rawin -inkey KEY"
            " -in STATEMENT -out SIGNATURE'; 'statpress ledger show' lists who approves.",
        )


def decision_fields(body: Body) -> frozenset[str]:
    """The fields of a decision, which is signed or states by whom it is made."""
    fields = OF_RUN | {"charge", "decision", "manifest_sha256", "reason"}
    return fields | ({"by"} if "by" in body else BY_KEY)


def check_prepare(state: State, body: Body) -> None:
    """Raise unless the body puts the bundle of a drawn run before its approvers, once."""
    charge = state.charge_of(body)
    if charge.status is not Status.DRAWN:
        flaw = f"The run is {charge.status}; only what was drawn is prepared, and once."
        raise refusal(body, flaw, "'statpress review' lists what is prepared.")
    if not charge.reviewed:
        flaw = "The run was charged when releases of its dataset needed no approval."
        raise refusal(body, flaw, "Publish it without.")


def check_decide(state: State, body: Body) -> None:
    """Raise unless one who may approves or rejects a prepared bundle, once."""
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
    """Raise unless the account lets the decider that the body names decide."""
    check_decision(body)
    account = state.account_of(body["dataset"])
    if "by" in body and not account.unsigned:
        flaw = "Releases of this dataset are decided by signature only."
        raise _no_approval(body, flaw, "Sign with --key.")
    if "by" not in body and body["public_key"] not in account.approvers:
        flaw = "This key is not one of the dataset's approvers."
        raise _no_approval(body, flaw, "'statpress ledger show' lists who approves.")


def check_decision(body: Body) -> None:
    """Raise unless a decision is whole by itself: its fields, its reason, its signature."""
    check_fields(body, decision_fields(body))
    if body["decision"] == "reject" and body["reason"] is None:
        raise refusal(body, "A rejection needs its reason.", "Give --reason.")
    if "by" not in body:
        check_signature(body, decision_statement(body))


def check_approved(state: State, body: Body) -> None:
    """Raise unless a run may be published as far as its review goes."""
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


def same_decision(state: State, entry: Entry, body: Body) -> bool:
    """Whether a decision repeats the first one, by whomever and for whatever reason."""
    check_decider(state, body)
    return bool(entry.body["decision"] == body["decision"])


def _same_seal(preparation: Entry, body: Body) -> bool:
    return bool(preparation.body["manifest_sha256"] == body["manifest_sha256"])


def _no_approval(body: Body, flaw: str, next_step: str) -> ApprovalError:
    return ApprovalError(flaw, where=f"run {body['run_id']!r}", next_step=next_step)


def check_open(account: Account) -> None:
    """Raise if runs looked, or were refused, as often as may be without somebody looking into it.

    How often that is the account was registered with; else ``accounts.DEFAULT_MAX_LOOKS`` and
    ``accounts.DEFAULT_MAX_REFUSALS``.
    """
    if account.closed:
        flaw = f"Runs looked at the data {account.open_looks} times"
        if account.open_refusals >= account.max_refusals:
            flaw = f"Gates stopped {account.open_refusals} runs"
        raise RefusalLimitError(
            f"{flaw}, which is the limit; no run looks at the data any more.",
            where=f"dataset {account.dataset!r}",
            next_step=f"Look into them ('statpress ledger show {account.dataset}'), then: statpress"
            f" ledger amend {account.dataset} --reopen --reason …",
        )


def look_fields(body: Body) -> frozenset[str]:
    """The fields of a look; of an account that is bound to sources, with its own."""
    fields = OF_DATASET | {"config_sha256", "gates", "open_looks", "run"} | {"source"} & body.keys()
    if body.get("gates") == "noisy":
        return fields | {"form", "forms", "new_form"}
    return fields | {"forms"} & body.keys()


def check_look(state: State, body: Body) -> None:
    """Raise unless the run may look at the data, and the entry counts its look."""
    account = state.account_of(body["dataset"])
    run = body | {"run_id": body["run"]}
    check_not_refused(state, run)
    check_gates(state, account, run)
    check_about(account, body.get("source"))
    check_form(account, body)
    check_open(account)
    if body["open_looks"] != (counted := account.open_looks + 1):
        raise refusal(
            run, f"It says {body['open_looks']} looks where {counted} are.", "Count them anew."
        )


def check_gates(state: State, account: Account, run: Body) -> None:
    """Raise unless the gates of a look are those that the run was charged for, and it is one."""
    charge = state.charges.get(run["run"])
    charged_for = "exact" if charge is None else charge.gates
    if run["gates"] != charged_for:
        flaw = f"Its gates are {run['gates']}; what was charged is for {charged_for} ones."
        raise refusal(run, flaw, "Start a new run.")
    if charge is not None and state.charge_of(run).status is not Status.RESERVED:
        raise refusal(run, "This run has looked at the data already.", "Start a new run.")
    if account.noisy_gates and run["gates"] == "exact":
        raise only_noisy(account)


def check_form(account: Account, body: Body) -> None:
    """Raise unless a look with noisy gates says whether its form of reading is a new one."""
    if body["gates"] != "noisy":
        return
    known = account.forms
    if (body["new_form"], body["forms"]) != (
        body["form"] not in known,
        sorted({*known, body["form"]}),
    ):
        raise refusal(body | {"run_id": body["run"]}, "It has other forms.", "Count them anew.")


def only_noisy(account: Account) -> PolicyMismatchError:
    """The error of a run with exact gates where the account wants noisy ones."""
    return PolicyMismatchError(
        "Only releases whose checks are noisy look at this dataset.",
        where=f"dataset {account.dataset!r}",
        next_step="Write 'gate: {noise: true}' into the config.",
    )


def check_settle(state: State, body: Body) -> None:
    """Raise unless a run with noisy gates was the last that looked, and its look need not count.

    If another run has looked since, the look of this one goes on to count, and so does the first
    look with a form of reading, since that all could be read so is an exact answer.
    """
    charge, account = state.charge_of(body), state.account_of(body["dataset"])
    check_not_refused(state, body)
    look, settled = account.last_look, account.last_settled
    open_look = look if look and not (settled and settled.sequence > look.sequence) else None
    own = open_look is not None and open_look.body["run"] == body["run_id"]
    noisy = open_look is not None and open_look.body["gates"] == charge.gates == "noisy"
    if not (own and noisy) or charge.status is not Status.DRAWN:
        raise refusal(body, "The last look was not this run's.", "There is nothing left to do.")
    if body["open_looks"] != (counted := settled_looks(account)):
        raise refusal(
            body, f"It says {body['open_looks']} looks where {counted} are.", "Count them anew."
        )


def settled_looks(account: Account) -> int:
    """How many looks count once the last one has ended inside its guarantee."""
    new = account.last_look is not None and account.last_look.body.get("new_form")
    return account.open_looks if new else max(0, account.open_looks - 1)


def settle_look(draft: State, entry: Entry) -> None:
    """The effect of a look that ended inside its guarantee: it does not count."""
    if entry.body["run_id"] in draft.charges:
        keep_with_charge(draft, entry)
    draft.change_account(entry.body["dataset"], last_settled=entry)


def keep_look(draft: State, entry: Entry) -> None:
    """The effect of a look: it is the account's last."""
    draft.change_account(entry.body["dataset"], last_look=entry)


def check_refuse(state: State, body: Body) -> None:
    """Raise unless the run is of an account, and not past its gates."""
    state.account_of(body["dataset"])
    check_not_refused(state, body)
    if body["run_id"] not in state.charges:
        return
    charge = state.charge_of(body)
    before = {Status.RESERVED, Status.DRAWN} if charge.gates == "noisy" else {Status.RESERVED}
    if charge.status not in before or "settle" in charge.later:
        raise refusal(body, "The gates of this run are behind it.", "Start a new run.")


def check_not_refused(state: State, body: Body) -> None:
    """Raise if the run was refused: it has asked its question."""
    if body["run_id"] in state.refused:
        raise refusal(body, "A gate refused this run; it does not go on.", "Start a new run.")


def keep_refusal(draft: State, entry: Entry) -> None:
    """The effect of a refusal: one more of the account's."""
    dataset = entry.body["dataset"]
    draft.change_account(dataset, refusals=(*draft.account_of(dataset).refusals, entry))
    draft.refused[entry.body["run_id"]] = entry


CHARGE_FIELDS = OF_RUN | {*MEASURES, *TERMS}
CHARGE_FIELDS |= {"mechanisms", "config_sha256", "insecure_seed", "version"}
BALANCE_FIELDS = frozenset({"spent", "design", "spent_by_one"})
"""What an entry that moves a balance states of it; the last two where a design is in force."""

_SET_WHEN_WRITTEN = BY_KEY | BALANCE_FIELDS | {"created", "open_looks"}
"""No part of what a repetition repeats."""


def fields_of_charge(body: Body) -> frozenset[str]:
    """The fields of a charge, with the period that its data are of, if they are of one."""
    return CHARGE_FIELDS | {"period"} & body.keys()


def check_charge(state: State, body: Body) -> None:
    """Raise unless the account covers the charge, exactly to the last digit."""
    account = state.account_of(body["dataset"])
    if body["run_id"] in state.charges:
        raise refusal(body, "This run was charged already.", "Start a new run.")
    check_not_refused(state, body)
    check_terms(account, body)
    place = f"dataset {account.dataset!r}"
    if account.noisy_gates and gates_of(body) == "exact":
        raise only_noisy(account)
    check_period(account, body.get("period"))
    remaining = account.remaining_for(body.get("period"))
    requested = Loss.of(body).within(account.limit.amounts)
    if not remaining.covers(requested):
        of_period = f" for {body['period']}" if account.has_design and "period" in body else ""
        raise InsufficientBudgetError(
            f"The charge asks for {requested}; what remains{of_period} is {remaining}.",
            remaining=remaining,
            requested=requested,
            where=place,
        )


def check_terms(account: Account, body: Body) -> None:
    """Raise unless adjacency, unit and size are those of the registration, as far as it has them.

    Raises:
        PolicyMismatchError: One of them is not.
    """
    was = account.registration.body
    both = [name for name in TERMS if name in was and name in body]
    other = [f"{name} {body[name]} is not {was[name]}" for name in both if body[name] != was[name]]
    if other:
        raise PolicyMismatchError(
            f"The charge differs from the registration: {', '.join(other)}.",
            where=f"dataset {account.dataset!r}",
            next_step="Make the config agree with 'statpress ledger show'. A registration never "
            "changes, since what was spent under it would be told in other terms.",
        )


def check_period(account: Account, period: str | None) -> None:
    """Raise unless a period is as long as the design says, or those that were charged are.

    Raises:
        PolicyMismatchError: It is not; one of a month and one of its year would count apart.
    """
    if not account.has_design or not period:
        return
    by, own = account.panel.design.by, SeriesPeriod.read(period).by
    charged = next(iter(account.by_period.periods), None)  # all are as long
    if by is None and charged is not None:
        by = SeriesPeriod.read(charged).by
    if by and own != by:
        says = f"The account is charged by the {by}, such as {account.last_period}"
        if account.panel.design.by:
            says = f"The account's design '{account.design}' is of {by}s"
        raise PolicyMismatchError(
            f"{says}, and {period} is a {own}.",
            where=f"dataset {account.dataset!r}",
            next_step=f"Write 'by: {by}' in the section 'series' of the config, or name the account"
            f" whose design is of {own}s.",
        )


def balance_of_charge(state: State, body: Body) -> Balance:
    """What the account has spent after the charge."""
    return Balance(state.account_of(body["dataset"]), Loss.of(body), body.get("period"))


def open_charge(draft: State, entry: Entry) -> None:
    """The effect of a charge; whether its run is reviewed is settled here."""
    draft.keep(Charge(entry, draft.account_of(entry.body["dataset"]).reviewed))


def keep_with_charge(draft: State, entry: Entry) -> None:
    """The effect of an entry that follows a charge: it is kept with that charge."""
    charge = draft.charges[entry.body["run_id"]]
    draft.keep(replace(charge, later={**charge.later, entry.kind: entry}))


def check_draw(state: State, body: Body) -> None:
    """Raise unless the run is charged, was not refused and never began to draw."""
    status = state.charge_of(body).status
    check_not_refused(state, body)
    if status is Status.VOID:
        raise refusal(body, "The charge of this run is void.", "Start a new run.")
    if status is not Status.RESERVED:
        flaw = "This run was charged before and may have drawn."
        raise refusal(body, flaw, "Start a new run.")


def void_fields(body: Body) -> frozenset[str]:
    """The fields of what gives a charge back, with those of its signature if it has one."""
    return signed_fields(OF_RUN | {"reason"}, body)


def void_statement(charge: Charge, body: Body) -> list[object]:
    """What an approver signs to give back a charge that another home made."""
    names = ("dataset", "run_id", "reason", "created")
    return ["statpress void", *(body[name] for name in names), charge.entry.hash]


def check_elsewhere(account: Account, body: Body, answered: bool) -> None:
    """Raise unless somebody answers for a charge of another home; with approvers, one of them."""
    if account.approvers:
        raise ApprovalError(
            "This home did not charge the run, so it cannot know that nothing was drawn.",
            where=f"run {body['run_id']!r}",
            next_step="Give the charge back in the home that made it, or with --key of an"
            " approver, who answers for it.",
        )
    if not answered:
        flaw = "This home did not charge the run, so it cannot know that nothing was drawn."
        step = "Give the charge back in the home that made it. Only if that is lost, and provably"
        raise refusal(body, flaw, f"{step} drew nothing, add --elsewhere.")


def check_void(state: State, body: Body) -> None:
    """Raise unless the charge is there and provably nothing was drawn."""
    if "signature" in body:
        account, statement = (
            state.account_of(body["dataset"]),
            void_statement(state.charge_of(body), body),
        )
        check_signer(account, body, statement, f"run {body['run_id']!r}")
    if body["reason"] is None:
        raise refusal(body, "A charge is not given back without a reason.", "Give --reason.")
    status = state.charge_of(body).status
    if status is Status.VOID:
        raise refusal(body, "The charge of this run is void.", "There is nothing left to do.")
    if status is not Status.RESERVED:
        raise refusal(
            body, "Drawing may have begun; what was charged stays spent.", "Start a new run."
        )


def balance_of_void(state: State, body: Body) -> Balance:
    """What the account has spent once the charge is given back."""
    charge = state.charge_of(body)
    account = state.account_of(body["dataset"])
    return Balance(account, Loss.nothing() - charge.loss, charge.period)


def check_publish(state: State, body: Body) -> None:
    """Raise unless the body publishes a drawn run of the same dataset, once."""
    check_approved(state, body)
    status = state.charge_of(body).status
    if status in {Status.DRAWN, Status.APPROVED}:
        return
    flaw = {
        Status.PUBLISHED: "This run was published already.",
        Status.VOID: "The charge of this run is void.",
        Status.STOPPED: "The checks of the input stopped this run.",
    }.get(status, "This run never began to draw.")
    raise refusal(body, flaw, "Publish what 'statpress ledger charge-history' lists as drawn.")


def same_body(state: State, entry: Entry, body: Body) -> bool:
    """Whether an act repeats an entry of its run; the time of writing makes no difference."""
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
    """As ``same_body``, for a charge, which is repeated only as long as it counts."""
    same = same_body(state, entry, body)
    if state.charge_of(body).status is Status.VOID:
        raise refusal(body, "The charge of this run is void.", "Start a new run.")
    return same


def _text(body: Mapping[str, object], name: str) -> str:
    """The canonical text of a field that may be missing."""
    return canonical_json([body[name]] if name in body else [])


def check_checkpoint(state: State, body: Body) -> None:
    """Raise unless the signature is the key's, over the head at this place."""
    statement = checkpoint_statement(state.next_sequence, state.head)
    if not statement_signed(body["public_key"], body["signature"], statement):
        raise LedgerError(
            "The signature is not this key's over the head of the ledger.", where="checkpoint"
        )


def no_effect(draft: State, entry: Entry) -> None:
    """The effect of an entry that changes no account."""


_SEALED = OF_RUN | {"bundle", "manifest_sha256"}
RULES: dict[str, Rule] = {
    **ACCOUNT_RULES,
    "charge": Rule(
        fields_of_charge,
        check_charge,
        open_charge,
        lasting="last",
        balance=balance_of_charge,
        repeats=same_charge,
    ),
    "draw": Rule(OF_RUN, check_draw, keep_with_charge),
    "void": Rule(
        void_fields,
        check_void,
        keep_with_charge,
        lasting="last",
        balance=balance_of_void,
        repeats=same_body,
    ),
    "prepare": Rule(_SEALED, check_prepare, keep_with_charge, repeats=same_body),
    "decide": Rule(
        decision_fields,
        check_decide,
        keep_with_charge,
        repeats=same_decision,
    ),
    "publish": Rule(_SEALED, check_publish, keep_with_charge, repeats=same_body),
    "refuse": Rule(
        OF_RUN | {"config_sha256"},
        check_refuse,
        keep_refusal,
        repeats=same_body,
        lasting="every",
    ),
    "look": Rule(
        look_fields,
        check_look,
        keep_look,
        lasting="last",
    ),
    "settle": Rule(
        OF_RUN | {"open_looks", "passed"},
        check_settle,
        settle_look,
        repeats=same_body,
        lasting="last",
    ),
    "checkpoint": Rule(BY_KEY | {"created"}, check_checkpoint, no_effect),
}
