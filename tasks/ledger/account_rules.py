"""What a rule of the ledger is, and those of entries that open an account or change its terms.

An account is opened once, and its limit, policy, design, sources and approvers may change. Once
approvers sign its terms, one of them signs every change. ``tasks.ledger.rules`` has the rules of
runs, and the table of all.

**What an account is about** is said by patterns of sources. A source has a name: the absolute path
of a file with its links resolved, the URL of objects in a store, ``postgres:schema.table`` or
``spark:table``. A path may be a pattern itself, as configs name several files. In patterns ``*``,
``?`` and ``[]`` stand for characters, ``*`` for slashes too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import KW_ONLY, dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

from statpress.mechanisms.accounting.panel_design import Design, Panel
from statpress.mechanisms.errors import (
    AlreadyRegisteredError,
    AmountError,
    ApprovalError,
    LedgerError,
    PolicyMismatchError,
)
from statpress.tasks.ledger.accounts import Account, Balance, State, limit_of, measures_of
from statpress.tasks.ledger.entries import Body, Entry, check_field, statement_signed

OF_DATASET = frozenset({"dataset", "created"})
"""Fields of every entry about a dataset."""


OF_DESIGN = frozenset({"apart", "design", "last_period"})
"""Fields of an amendment that changes the design: the new one, the last period charged, and whether
nobody takes part both under an earlier design and under the new one. Amendments of earlier versions
lack the last, and mean that nobody does."""


BY_KEY = frozenset({"public_key", "signature"})
"""Fields of an entry that someone signed."""


TERMS = ("adjacency", "unit", "unit_records", "n_records")
"""What a registration states about its dataset, and every charge repeats."""


def registration_fields(body: Body) -> frozenset[str]:
    """The fields of a registration, which depend on its policy and what else it states."""
    stated = {"design", "max_looks", "max_refusals", "n_records", "noisy_gates"} & body.keys()
    terms = {*TERMS} - {"n_records"}  # an account may be bound to no size
    return OF_DATASET | {"policy", *measures_of(body.get("policy")), *terms, *stated}


def check_register(state: State, body: Body) -> None:
    """Raise unless the body registers a new dataset with a limit above 0."""
    measure = measures_of(body["policy"])[0]
    if limit_of(body)[measure] == 0:
        raise AmountError("The limit must be above 0.", where=measure)
    account = state.accounts.get(body["dataset"])
    if account:
        was = account.registration.body
        terms = ", ".join(f"{name} {was[name]}" for name in TERMS if name in was)
        raise AlreadyRegisteredError(
            f"Registered at {was['created']}; now policy {account.policy} with"
            f" {account.limit}, {terms}.",
            where=f"dataset {account.dataset!r}",
        )


def open_account(draft: State, entry: Entry) -> None:
    """The effect of a registration."""
    body = entry.body
    account = Account(entry, body["policy"], limit_of(body), panel=panel_after(Panel(), body))
    draft.accounts[body["dataset"]] = account


def signed_fields(fields: frozenset[str], body: Body) -> frozenset[str]:
    """Some fields, with those of a signature if the body has one."""
    return fields | BY_KEY if "signature" in body else fields


def amendment_fields(body: Body) -> frozenset[str]:
    """The fields of an amendment, which depend on its policy; with a design, those of that."""
    fields = OF_DATASET | {"policy", "reason", *measures_of(body.get("policy"))}
    if "design" in body:
        fields |= OF_DESIGN - ({"apart"} - body.keys())
    return signed_fields(fields, body)


def amendment_statement(account: Account, body: Body) -> list[object]:
    """What an approver signs to change limit, policy or design; it holds once, after the last."""
    before = (account.amendments or (account.registration,))[-1].hash
    names = ["dataset", "policy", *measures_of(body["policy"]), "reason", "created"]
    names += sorted(OF_DESIGN & body.keys())
    return ["statpress amendment", *(body[name] for name in names), before]


def panel_after(panel: Panel, body: Body) -> Panel:
    """The panel of an account once a registration or an amendment is in force."""
    if "design" not in body:
        return panel
    design, last_period = Design.parse(body["design"]), body.get("last_period")
    return panel.followed_by(design, last_period, apart=body.get("apart", True))


def check_signer(account: Account, body: Body, statement: list[object], where: str = "") -> None:
    """Raise unless an approver in force signs what changes the terms of an account, if one must.

    Approvers that an earlier version put in force sign decisions alone.
    """
    place = where or f"dataset {account.dataset!r}"
    if "signature" not in body:
        if account.terms_signed:
            raise ApprovalError(
                "Only an approver in force changes the terms of this account.",
                where=place,
                next_step="Sign with --key of one of the keys that 'statpress ledger show' lists.",
            )
        return
    if body["public_key"] not in account.approvers:
        raise ApprovalError(
            "This key is not one of the dataset's approvers.",
            where=place,
            next_step="'statpress ledger show' lists who approves.",
        )
    check_signature(body, statement)


def check_amend(state: State, body: Body) -> None:
    """Raise unless the body changes policy, limit or design, with a reason if it allows more."""
    account, limit = state.account_of(body["dataset"]), limit_of(body)
    after = replace(account, panel=panel_after(account.panel, body))
    spent = after.spent_by_one(measures=limit.amounts)
    same = body["policy"] == account.policy and after.design == account.design
    flaw, step = "", ""
    if same and limit == account.limit:
        flaw, step = "This is in force already.", "Give another limit, policy or design."
    elif not limit.covers(spent):
        flaw = f"Spent is {spent} already."
        step = "Give a limit of at least what is spent."
        if after.panel.besides > account.panel.besides:
            flaw = (
                "Under the designs before and this one together a person may take part in"
                f" {after.panel.most} periods, which were charged {spent} already."
            )
            step += " If nobody takes part under both, say so with --apart."
    elif body["reason"] is None and not (same and account.limit.covers(limit)):
        flaw = "Raising a limit, or changing the policy or the design, needs a reason."
        step = "Give the reason, which stays in the ledger, with --reason."
    elif after.has_design and len(account.lengths) > 1:
        flaw = "It was charged for periods of several lengths, which no design can count."
        step = "Leave the design as it is."
    elif after.panel.design.by and account.lengths - {after.panel.design.by}:
        flaw = f"It was charged by the {min(account.lengths)}, such as {account.last_period}."
        step = f"Give the design in {min(account.lengths)}s, or leave it as it is."
    elif body.get("last_period") != (account.last_period if "design" in body else None):
        flaw, step = "It states another last period.", "Amend the account anew."
    if flaw:
        raise LedgerError(flaw, where=f"dataset {account.dataset!r}", next_step=step)
    check_signer(account, body, amendment_statement(account, body))


def binding_fields(body: Body) -> frozenset[str]:
    """The fields of what binds an account to its sources, with those of its signature."""
    return signed_fields(OF_DATASET | {"sources", "also_in", "reason"}, body)


def binding_statement(account: Account, body: Body) -> list[object]:
    """What an approver signs to bind an account to sources; it holds once."""
    before = (account.binding or account.registration).hash
    names = ("dataset", "sources", "also_in", "reason", "created")
    return ["statpress sources", *(body[name] for name in names), before]


def sharing(state: State, dataset: str, sources: Collection[str]) -> set[str]:
    """The other accounts that are about some of these sources."""
    return {
        name
        for name, other in state.accounts.items()
        if name != dataset and any(overlap(own, its) for own in sources for its in other.sources)
    }


def check_bind(state: State, body: Body) -> None:
    """Raise unless the body says what an account is about, with a reason if that changes."""
    account = state.account_of(body["dataset"])
    flaw = ""
    if account.sources == tuple(body["sources"]):
        flaw = "These are the sources of the account."
    elif account.binding and body["reason"] is None:
        flaw = "Changing the sources of an account needs a reason."
    elif body["also_in"] and body["reason"] is None:
        flaw = "A source that is another account's too needs a reason."
    elif left := sharing(state, account.dataset, body["sources"]) - set(body["also_in"]):
        flaw = f"Some of these sources are those of {', '.join(map(repr, sorted(left)))} too."
    if flaw:
        step = "Leave things as they are, or give the reason with --reason."
        raise LedgerError(flaw, where=f"dataset {account.dataset!r}", next_step=step)
    check_signer(account, body, binding_statement(account, body))


def bind_account(draft: State, entry: Entry) -> None:
    """The effect of a binding: other sources are the account's."""
    draft.change_account(entry.body["dataset"], binding=entry)


def check_about(account: Account, source: str | None) -> None:
    """Raise unless a source is one that the account is about, if it is bound to any.

    Raises:
        PolicyMismatchError: It is another.
    """
    if account.sources and not (source and is_about(source, account.sources)):
        raise PolicyMismatchError(
            "The source of this config is not one of those that its account is about.",
            where=f"dataset {account.dataset!r}",
            next_step="'statpress ledger show' lists them. Name the right account in the config,"
            " or bind this one with 'statpress ledger amend --source'.",
        )


def check_source(state: State, dataset: str, source: str) -> None:
    """Raise unless a source is the account's own or, if it is bound to none, nobody's.

    Raises:
        PolicyMismatchError: It is another's.
    """
    account = state.account_of(dataset)
    check_about(account, source)
    if not account.sources and sharing(state, dataset, [source]):
        raise PolicyMismatchError(
            "The source of this config is that of another account, and this account is bound to"
            " none: the same people would be charged apart.",
            where=f"dataset {dataset!r}",
            next_step="Name the account that is about it in the config.",
        )


def amend_account(draft: State, entry: Entry) -> None:
    """The effect of an amendment: another policy, limit or design is in force."""
    body = entry.body
    account = draft.account_of(body["dataset"])
    draft.change_account(
        body["dataset"],
        policy=body["policy"],
        limit=limit_of(body),
        panel=panel_after(account.panel, body),
        amendments=(*account.amendments, entry),
    )


def approvers_statement(account: Account, body: Body) -> list[object]:
    """What an approver signs to change who approves; it holds once, after the entry in force."""
    before = account.review.hash if account.review else None
    names = ("dataset", "approvers", "unsigned", "reason", "created")
    terms = [body["sign_terms"]] if "sign_terms" in body else []
    return ["statpress approvers", *(body[name] for name in names), before, *terms]


def approvers_fields(body: Body) -> frozenset[str]:
    """The fields of a change of approvers, with those of its signature if it has one."""
    fields = OF_DATASET | {"approvers", "unsigned", "reason"} | {"sign_terms"} & body.keys()
    return signed_fields(fields, body)


def check_set_approvers(state: State, body: Body) -> None:
    """Raise unless the body changes who approves, in the name of one who does already.

    The first approvers need no signature; as long as there are keys in force, one of
    them signs every change, also the one that ends the review.
    """
    signed = "signature" in body
    account = state.account_of(body["dataset"])
    place = f"dataset {account.dataset!r}"
    sign_terms = body.get("sign_terms")
    if sign_terms not in (None, True) or (account.terms_signed and sign_terms is None):
        raise LedgerError(
            "Approvers who sign the terms of an account go on to do so.",
            where=place,
            next_step="State 'sign_terms' as before.",
        )
    given = (tuple(body["approvers"]), body["unsigned"], bool(sign_terms and body["approvers"]))
    if given == (account.approvers, account.unsigned, account.terms_signed):
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


def replace_approvers(draft: State, entry: Entry) -> None:
    """The effect of a change of approvers: others are in force."""
    draft.change_account(entry.body["dataset"], review=entry)


def check_signature(body: Body, statement: list[object]) -> None:
    """Raise unless the body's key signed the statement."""
    if not statement_signed(body["public_key"], body["signature"], statement):
        raise ApprovalError(
            "The signature is not this key's over what the entry says.",
            where=f"dataset {body['dataset']!r}",
            next_step="Sign it again with the approver's key.",
        )


def reopening_fields(body: Body) -> frozenset[str]:
    """The fields of a reopening, with those of its signature if it has one."""
    return signed_fields(OF_DATASET | {"reason"}, body)


def reopening_statement(account: Account, body: Body) -> list[object]:
    """What an approver signs to reopen a dataset; it holds once, after the last look."""
    after = [account.refusals[-1].hash if account.refusals else None]
    after += [account.last_look.hash] if account.last_look else []
    named = (body[name] for name in ("dataset", "reason", "created"))
    return ["statpress reopening", *named, *after]


def check_reopen(state: State, body: Body) -> None:
    """Raise unless there are refusals or looks to answer for, with a reason or by an approver."""
    account = state.account_of(body["dataset"])
    place = f"dataset {account.dataset!r}"
    if not account.open_refusals and not account.open_looks:
        raise LedgerError(
            "No run has looked at the data since the last reopening.",
            where=place,
            next_step="There is nothing left to do.",
        )
    check_signer(account, body, reopening_statement(account, body))
    if "signature" not in body and body["reason"] is None:
        raise LedgerError(
            "Reopening needs a reason, or the signature of an approver.",
            where=place,
            next_step="Give --reason, which stays in the ledger, or --key.",
        )


def reopen_account(draft: State, entry: Entry) -> None:
    """The effect of a reopening: refusals and looks are counted from here."""
    dataset = entry.body["dataset"]
    draft.change_account(dataset, reopenings=(*draft.account_of(dataset).reopenings, entry))


@dataclass(frozen=True, slots=True)
class Rule:
    """Fields, condition and effect of one kind of entry.

    Attributes:
        fields: The fields of its body, or what computes them from a body that may lack some.
        condition: Raises unless a body with these fields may follow the entries so far.
        effect: Changes a draft of the state.
        balance: For kinds that move the account's balance, the balance after the entry,
            which the entry states in additional fields (``BALANCE_FIELDS``).
        repeats: For kinds of which a run that has one may ask again: whether the body
            repeats that entry; raises if it contradicts it.
        lasting: Whether later acts on the account depend on every entry of this kind, or on the
            last one alone, as with ``balance``.
    """

    fields: frozenset[str] | Callable[[Body], frozenset[str]]
    condition: Callable[[State, Body], None]
    effect: Callable[[State, Entry], None]
    _: KW_ONLY
    balance: Callable[[State, Body], Balance] | None = None
    repeats: Callable[[State, Entry, Body], bool] | None = None
    lasting: Literal["", "last", "every"] = ""

    def check(self, state: State, body: Body) -> None:
        """Raise unless the body, without its balance, may follow the entries so far."""
        check_fields(body, self.fields(body) if callable(self.fields) else self.fields)
        self.condition(state, body)

    def record(self, draft: State, entry: Entry) -> None:
        """Write the entry, which was checked, into a draft of the state."""
        balance = self.balance(draft, entry.body) if self.balance else None
        self.effect(draft, entry)
        if balance is not None:
            sums = {"spent": balance.spent, "by_period": balance.by_period}
            draft.change_account(entry.body["dataset"], **sums)


def check_fields(body: Body, names: frozenset[str]) -> None:
    """Raise unless the body has exactly these fields, each of a usable form."""
    if body.keys() != names:
        odd = ", ".join(sorted(body.keys() ^ names))
        raise LedgerError(
            f"Fields missing or not known: {odd}.",
            where="ledger entry",
            next_step="Give exactly the fields of this kind of entry.",
        )
    for name in sorted(names):
        check_field(name, body[name])


ACCOUNT_RULES: dict[str, Rule] = {
    "register": Rule(registration_fields, check_register, open_account, lasting="every"),
    "amend-policy": Rule(amendment_fields, check_amend, amend_account, lasting="every"),
    "set-approvers": Rule(
        approvers_fields, check_set_approvers, replace_approvers, lasting="every"
    ),
    "reopen": Rule(reopening_fields, check_reopen, reopen_account, lasting="every"),
    "bind": Rule(binding_fields, check_bind, bind_account, lasting="last"),
}


_WILD = re.compile(r"[*?\[{]")  # braces are wildcards to Spark
_TABLE = re.compile(r"(postgres|spark):[^/]+")
_STORES = {"s3a": "s3", "s3n": "s3"}


def literal_of(pattern: str) -> str:
    """The part before the first wildcard."""
    return _WILD.split(pattern, maxsplit=1)[0]


def of_table(engine: str, table: str) -> str:
    """The name of a server's table; Spark knows no case, and names its own database or not."""
    if engine == "spark":
        table = table.casefold().removeprefix("spark_catalog.").removeprefix("default.")
    return f"{engine}:{table}"


def of_path(path: str, folder: str = "") -> str:
    """The name of a path, pattern or URL: absolute, links resolved as far as names are known."""
    scheme, _, rest = path.partition("://")
    if rest and scheme != "file":
        return f"{_STORES.get(scheme, scheme)}://{rest}"
    absolute = os.path.join(os.path.abspath(folder or os.curdir), rest or path)
    known = literal_of(absolute)
    if known == absolute or os.path.lexists(absolute):
        return os.path.realpath(absolute)
    directory = os.path.dirname(known)
    return os.path.realpath(directory).rstrip("/") + absolute[len(directory.rstrip("/")) :]


def named(given: str) -> str:
    """The name of what a person gives: of a table if it has that form, else of a path."""
    if _TABLE.fullmatch(given):
        return of_table(*given.split(":", maxsplit=1))
    return of_path(given)


def is_about(source: str, patterns: Iterable[str]) -> bool:
    """Whether every file that a source can stand for lies in one of the patterns.

    A source that is a pattern itself has to be one of them, or to begin as one that ends with its
    only wildcard, ``*``; and nothing in it may lead upwards.
    """
    if ".." in source.split("/"):
        return False
    if not _WILD.search(source):
        return any(fnmatchcase(source, pattern) for pattern in patterns)
    return any(
        source == pattern
        or (f"{literal_of(pattern)}*" == pattern and literal_of(source).startswith(pattern[:-1]))
        for pattern in patterns
    )


def overlap(one: str, other: str) -> bool:
    """Whether some source may lie in both patterns; where that is not known, it may.

    A folder is a table, so that what lies in it is the same source.
    """
    if any(_inside(*pair) for pair in ((one, other), (other, one))):
        return True
    if "{" in one + other:
        return literal_of(one).startswith(literal_of(other)) or literal_of(other).startswith(
            literal_of(one)
        )
    if not _WILD.search(one):
        return fnmatchcase(one, other)
    if not _WILD.search(other):
        return fnmatchcase(other, one)
    begins = sorted((literal_of(one), literal_of(other)), key=len)
    ends = sorted((_WILD.split(each)[-1] for each in (one, other)), key=len)
    if any("]" in end for end in ends):
        ends = ["", ""]
    return begins[1].startswith(begins[0]) and ends[1].endswith(ends[0])


def _inside(folder: str, other: str) -> bool:
    return not _WILD.search(folder) and literal_of(other).startswith(folder.rstrip("/") + "/")
