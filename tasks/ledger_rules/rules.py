"""One row for each kind of ledger entry: its fields, when it may follow, what it changes.

A new kind of entry is one row here and the functions that the row names. The same rule
that refuses a new entry to its author finds a broken one when the chain is verified, so
the two can never disagree.

Two properties are guarded by the database as well, so a kind that differs in them needs
a new form of the schema: every entry but a checkpoint is about a dataset, and a run has
at most one entry of each kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace

from mechanisms.errors import LedgerError
from tasks.ledger_rules import account_rules, refusal_rules, review_rules, run_rules
from tasks.ledger_rules.accounts import State, keep_with_charge
from tasks.ledger_rules.amounts import Loss
from tasks.ledger_rules.entries import Body, Entry
from tasks.ledger_rules.fields import BY_KEY, OF_RUN, check_fields
from tasks.ledger_rules.run_rules import same_body, same_charge
from tasks.ledger_rules.signing import checkpoint_statement, statement_signed


@dataclass(frozen=True, slots=True)
class Rule:
    """Fields, condition and effect of one kind of entry.

    Attributes:
        fields: The fields of its body, or what computes them from a body that may lack some.
        condition: Raises unless a body with these fields may follow the entries so far.
        effect: Changes a draft of the state.
        balance: For kinds that move the account's balance, the balance after the entry,
            which the entry states in the additional field ``spent``.
        repeats: For kinds of which a run that has one may ask again: whether the body
            repeats that entry; raises if it contradicts it.
        lasting: Whether every later act on the account depends on the entry.
    """

    fields: frozenset[str] | Callable[[Body], frozenset[str]]
    condition: Callable[[State, Body], None]
    effect: Callable[[State, Entry], None]
    _: KW_ONLY
    balance: Callable[[State, Body], Loss] | None = None
    repeats: Callable[[State, Entry, Body], bool] | None = None
    lasting: bool = False

    def check(self, state: State, body: Body) -> None:
        """Raise unless the body, without its balance, may follow the entries so far.

        Raises:
            AmountError: An amount or a number of records is not usable.
            LedgerError: Another field is missing, unknown or not usable, or the
                condition does not hold; then the error is the condition's.
        """
        check_fields(body, self.fields(body) if callable(self.fields) else self.fields)
        self.condition(state, body)

    def record(self, draft: State, entry: Entry) -> None:
        """Write the entry, which was checked, into a draft of the state."""
        balance = self.balance(draft, entry.body) if self.balance else None
        self.effect(draft, entry)
        if balance is not None:
            account = draft.account_of(entry.body["dataset"])
            draft.accounts[account.dataset] = replace(account, spent=balance)


def check_checkpoint(state: State, body: Body) -> None:
    """Raise unless the signature is the key's, over the head at this place.

    Raises:
        LedgerError: It is not.
    """
    statement = checkpoint_statement(state.next_sequence, state.head)
    if not statement_signed(body["public_key"], body["signature"], statement):
        raise LedgerError(
            "The signature is not this key's over the head of the ledger.", where="checkpoint"
        )


def no_effect(draft: State, entry: Entry) -> None:
    """The effect of an entry that changes no account."""


_SEALED = OF_RUN | {"bundle", "manifest_sha256"}
RULES: dict[str, Rule] = {
    "register": Rule(
        account_rules.registration_fields,
        account_rules.check_register,
        account_rules.open_account,
        lasting=True,
    ),
    "amend-policy": Rule(
        account_rules.amendment_fields,
        account_rules.check_amend,
        account_rules.amend_account,
        lasting=True,
    ),
    "set-approvers": Rule(
        review_rules.approvers_fields,
        review_rules.check_set_approvers,
        review_rules.replace_approvers,
        lasting=True,
    ),
    "charge": Rule(
        run_rules.CHARGE_FIELDS,
        run_rules.check_charge,
        run_rules.open_charge,
        balance=run_rules.balance_of_charge,
        repeats=same_charge,
    ),
    "draw": Rule(OF_RUN, run_rules.check_draw, keep_with_charge),
    "void": Rule(
        OF_RUN | {"reason"},
        run_rules.check_void,
        keep_with_charge,
        balance=run_rules.balance_of_void,
        repeats=same_body,
    ),
    "prepare": Rule(_SEALED, review_rules.check_prepare, keep_with_charge, repeats=same_body),
    "decide": Rule(
        review_rules.decision_fields,
        review_rules.check_decide,
        keep_with_charge,
        repeats=review_rules.same_decision,
    ),
    "publish": Rule(_SEALED, run_rules.check_publish, keep_with_charge, repeats=same_body),
    "refuse": Rule(
        refusal_rules.REFUSAL_FIELDS,
        refusal_rules.check_refuse,
        refusal_rules.keep_refusal,
        repeats=same_body,
        lasting=True,
    ),
    "reopen": Rule(
        refusal_rules.reopening_fields,
        refusal_rules.check_reopen,
        refusal_rules.reopen_account,
        lasting=True,
    ),
    "checkpoint": Rule(BY_KEY | {"created"}, check_checkpoint, no_effect),
}
