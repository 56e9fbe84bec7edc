"""Random histories on a real ledger, against a model that shares no code with it.

The model is a dictionary of accounts and one of runs, with fractions for amounts. It
says of every act whether it is written, is a repetition, or is refused and how. Two ledger objects
take turns on one file, as two processes would, and each reads on from where it stood. Now and then
somebody tampers with a copy of the file, which verification and the next act have to find, or puts
a backup back, with which the history goes on.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from census_ledger import TERMS, new_ledger
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from statpress.mechanisms.errors import (
    AlreadyRegisteredError,
    AmountError,
    ApprovalError,
    InsufficientBudgetError,
    LedgerError,
    LedgerIntegrityError,
    PolicyMismatchError,
    RefusalLimitError,
    StatpressError,
    UnregisteredDatasetError,
)
from statpress.tasks.ledger import ledger_table
from statpress.tasks.ledger.entries import Entry, public_text
from statpress.tasks.ledger.ledger import Ledger

LIMITED = {"basic": ["epsilon", "delta"], "zcdp": ["rho", "rho_delta"]}
MEASURES = [*LIMITED["basic"], *LIMITED["zcdp"]]
KEYS = [Ed25519PrivateKey.from_private_bytes(bytes([n] * 32)) for n in (1, 2)]

MAX_LOOKS, MAX_REFUSALS, LOOKING = 5, 4, {"config_sha256": "a" * 64}
SPENT = ("reserved", "drawn", "stopped", "prepared", "approved", "rejected", "published")

Amounts = dict[str, Any]
Outcome = int | type[StatpressError]


def gates_of(run: str) -> str:
    """Of what the run is charged for, by its name."""
    return "noisy" if run[-1] in "0258" else "exact"


QUARTERS = ["2026-Q1", "2026-Q2", "2026-Q3", "2026-Q4"]
PERIODS = [None, *QUARTERS]
DESIGNS = {
    "once": (1, 4), "any 2": (2, 4), "any 3": (3, 4), "2 consecutive": (2, 2), "2 within 3": (2, 3)
}  # fmt: skip
"""In how many quarters a person takes part at most, and within how many in a row."""
Sets = frozenset[frozenset[str]]


def period_of(run: str) -> str | None:
    """Of its data, by its name."""
    return PERIODS[int(run[-1]) % 5] if run[-1].isdigit() else None


def family(most: int, within: int = 4) -> Sets:
    """Every set of quarters in which a person may take part."""
    return frozenset(
        frozenset(QUARTERS[number] for number in chosen)
        for size in range(1, min(most, 4) + 1)
        for chosen in itertools.combinations(range(4), size)
        if chosen[-1] - chosen[0] < within
    )


LIFETIME: Sets = frozenset({frozenset(QUARTERS)})


def number(amount: Any) -> Fraction:
    """What an amount stands for: a float for its shortest text."""
    return Fraction(repr(amount) if isinstance(amount, float) else str(amount))


def numbers(amounts: Amounts) -> dict[str, Fraction]:
    return {name: number(amount) for name, amount in amounts.items()}


@dataclass
class Run:
    """A charged run, in the model."""

    dataset: str
    said: tuple[Any, ...]
    loss: dict[str, Fraction]
    sequence: int
    status: str = "reserved"
    ending: tuple[str, int] = ("", 0)  # what the void or the publication said, its sequence
    reviewed: bool = False
    prepared: tuple[str, int] = ("", 0)  # for which place, its sequence
    decided: tuple[str, int] = ("", 0)
    settled: tuple[bool, int] | None = None


@dataclass
class Account:
    """An account, in the model."""

    policy: str
    limit: dict[str, Fraction]
    sets: Sets = LIFETIME  # of quarters in which a person may take part
    design: str = ""
    only_noisy: bool = False
    sources: tuple[str, ...] = ()
    bound: bool = False
    approvers: frozenset[int] = frozenset()
    unsigned: bool = False
    refused: int = 0  # runs, since it was reopened
    looks: int = 0  # that count, since it was reopened
    last_look: tuple[str, str, bool] = ("", "", False)  # run, gates, form new; until it is settled
    forms: set[str] = field(default_factory=set)

    @property
    def reviewed(self) -> bool:
        return bool(self.approvers) or self.unsigned


@dataclass
class Model:
    """What a ledger has to do, said in another way."""

    accounts: dict[str, Account] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    refused: dict[str, tuple[tuple[str, str], int]] = field(default_factory=dict)
    length: int = 0

    def spent(self, dataset: str, *statuses: str) -> dict[str, Fraction]:
        """The sum over the dataset's runs in these statuses."""
        counted = [r for r in self.runs.values() if r.dataset == dataset and r.status in statuses]
        return {m: sum((r.loss[m] for r in counted), Fraction(0)) for m in MEASURES}

    def on_one(self, dataset: str, period: str | None = None) -> dict[str, Fraction]:
        """The largest sum over the runs of one person, who takes part in the period."""
        counted = [
            (period_of(name), run.loss)
            for name, run in self.runs.items()
            if run.dataset == dataset and run.status in SPENT
        ]
        sets = self.accounts[dataset].sets
        theirs = [{None, *chosen} for chosen in sets if period in (None, *chosen)]
        return {
            m: max(sum((x[m] for p, x in counted if p in own), Fraction(0)) for own in theirs)
            for m in MEASURES
        }

    def remaining(self, dataset: str, period: str | None = None) -> dict[str, Fraction]:
        spent = self.on_one(dataset, period)
        return {m: limit - spent[m] for m, limit in self.accounts[dataset].limit.items()}

    def written(self) -> int:
        self.length += 1
        return self.length

    def register(self, dataset: str, policy: str, limits: Amounts) -> Outcome:
        limit = numbers(limits)
        if limit[LIMITED[policy][0]] == 0:
            return AmountError
        if dataset in self.accounts:
            return AlreadyRegisteredError
        self.accounts[dataset] = account = Account(policy, limit, only_noisy=dataset == "c")
        if dataset == "b":
            account.design, account.sets = "any 2", family(*DESIGNS["any 2"])
        return self.written()

    def redesign(
        self, dataset: str, design: str, apart: bool, reason: str | None, by: int | None
    ) -> Outcome:
        """Carry the charges over to another design, under which nobody may have lost too much."""
        if dataset not in self.accounts:
            return UnregisteredDatasetError
        now = self.accounts[dataset]
        if design == now.design:
            return LedgerError
        charged = [
            period_of(name) or ""
            for name, run in self.runs.items()
            if run.dataset == dataset and run.status != "void" and any(run.loss.values())
        ]
        before, last, after = now.sets, max(charged, default=""), family(*DESIGNS[design])
        if last and apart:
            after |= {chosen for chosen in before if any(quarter <= last for quarter in chosen)}
        elif last:
            after = family(max(map(len, before)) + max(map(len, after)))
        now.sets = after
        spent = self.on_one(dataset)
        now.sets = before
        if reason is None or any(spent[m] > now.limit[m] for m in now.limit):
            return LedgerError
        if by not in now.approvers and (by is not None or now.approvers):
            return ApprovalError
        now.design, now.sets = design, after
        return self.written()

    def bind(
        self,
        dataset: str,
        sources: tuple[str, ...],
        also_in: tuple[str, ...],
        reason: str | None,
        by: int | None,
    ) -> Outcome:
        shared = {
            name
            for name, other in self.accounts.items()
            if name != dataset and set(other.sources) & set(sources)
        }
        if shared - set(also_in) or (also_in and reason is None):
            return LedgerError
        if dataset not in self.accounts:
            return UnregisteredDatasetError
        now = self.accounts[dataset]
        if (now.bound and reason is None) or sources == now.sources:
            return LedgerError
        if by not in now.approvers and (by is not None or now.approvers):
            return ApprovalError
        now.sources, now.bound = sources, True
        return self.written()

    def amend(
        self, dataset: str, policy: str, limits: Amounts, reason: str | None, by: int | None
    ) -> Outcome:
        if dataset not in self.accounts:
            return UnregisteredDatasetError
        now, limit = self.accounts[dataset], numbers(limits)
        spent = self.on_one(dataset)
        same = policy == now.policy
        if same and limit == now.limit:
            return LedgerError
        if any(spent[m] > limit[m] for m in limit):
            return LedgerError
        if reason is None and not (same and all(limit[m] <= now.limit[m] for m in limit)):
            return LedgerError
        if by not in now.approvers and (by is not None or now.approvers):
            return ApprovalError
        now.policy, now.limit = policy, limit
        return self.written()

    def set_approvers(
        self, dataset: str, keys: frozenset[int], unsigned: bool, reason: str | None, by: int | None
    ) -> Outcome:
        if dataset not in self.accounts:
            return UnregisteredDatasetError
        now = self.accounts[dataset]
        if (keys, unsigned) == (now.approvers, now.unsigned):
            return LedgerError
        if now.reviewed and reason is None:
            return LedgerError
        if now.approvers and by not in now.approvers:
            return ApprovalError
        if not now.approvers and by is not None:
            return LedgerError
        now.approvers, now.unsigned = keys, unsigned
        return self.written()

    def charge(self, dataset: str, run: str, losses: Amounts, n_records: int) -> Outcome:
        said = (dataset, numbers(losses), n_records)
        if run in self.runs:
            known = self.runs[run]
            repeats = known.said == said and known.status != "void"
            return known.sequence if repeats else LedgerError
        if dataset not in self.accounts:
            return UnregisteredDatasetError
        if run in self.refused:
            return LedgerError
        if n_records != TERMS["n_records"]:
            return PolicyMismatchError
        if self.accounts[dataset].only_noisy and gates_of(run) == "exact":
            return PolicyMismatchError
        loss = numbers(losses)
        if any(loss[m] > left for m, left in self.remaining(dataset, period_of(run)).items()):
            return InsufficientBudgetError
        self.runs[run] = Run(dataset, said, loss, self.written())
        self.runs[run].reviewed = self.accounts[dataset].reviewed
        return self.length

    def end(self, dataset: str, run: str, before: str, after: str, said: str = "") -> Outcome:
        """Draw, void or publish: from one status to the next, and the last two once more."""
        known = self.runs.get(run)
        if known is None or known.dataset != dataset:
            return LedgerError
        if known.status == after and after != "drawn" and known.ending[0] == said:
            return known.ending[1]
        if known.status != before or (after == "drawn" and run in self.refused):
            return LedgerError
        known.status, known.ending = after, (said, self.written())
        return self.length

    def publish(self, dataset: str, run: str, said: str) -> Outcome:
        known = self.runs.get(run)
        if known is not None and known.dataset == dataset and known.reviewed:
            if known.status in ("drawn", "prepared", "rejected"):
                return ApprovalError
            return self.end(dataset, run, "approved", "published", said)
        return self.end(dataset, run, "drawn", "published", said)

    def prepare(self, dataset: str, run: str, said: str) -> Outcome:
        known = self.runs.get(run)
        if known is None or known.dataset != dataset:
            return LedgerError
        if known.prepared[1]:
            return known.prepared[1] if known.prepared[0] == said else LedgerError
        if known.status != "drawn" or not known.reviewed:
            return LedgerError
        known.status, known.prepared = "prepared", (said, self.written())
        return self.length

    def decide(self, run: str, decision: str, by: int | None) -> Outcome:
        known = self.runs[run]
        account = self.accounts[known.dataset]
        if not (account.unsigned if by is None else by in account.approvers):
            return ApprovalError
        if known.decided[1]:
            return known.decided[1] if known.decided[0] == decision else ApprovalError
        if known.status != "prepared":
            return ApprovalError
        known.status = {"approve": "approved", "reject": "rejected"}[decision]
        known.decided = decision, self.written()
        return self.length

    def refuse(self, dataset: str, run: str, said: str) -> Outcome:
        if run in self.refused:
            known, sequence = self.refused[run]
            return sequence if known == (dataset, said) else LedgerError
        if dataset not in self.accounts:
            return UnregisteredDatasetError
        charged = self.runs.get(run)
        noisy = charged is not None and gates_of(run) == "noisy"
        before = ("reserved", "drawn") if noisy else ("reserved",)
        if charged and (charged.dataset != dataset or charged.status not in before):
            return LedgerError
        if charged and charged.settled:
            return LedgerError
        self.refused[run] = (dataset, said), self.written()
        self.accounts[dataset].refused += 1
        return self.length

    def look(self, dataset: str, run: str, gates: str, form: str, source: str) -> Outcome:
        if dataset not in self.accounts:
            return UnregisteredDatasetError
        charged = self.runs.get(run)
        if charged and (charged.dataset != dataset or charged.status != "reserved"):
            return LedgerError
        if run in self.refused or gates != (gates_of(run) if charged else "exact"):
            return LedgerError
        now = self.accounts[dataset]
        if (now.only_noisy and gates == "exact") or (now.sources and source not in now.sources):
            return PolicyMismatchError
        if now.looks >= MAX_LOOKS or now.refused >= MAX_REFUSALS:
            return RefusalLimitError
        now.looks, now.last_look = now.looks + 1, (run, gates, form not in now.forms)
        now.forms |= {form} - {""}
        return self.written()

    def settle(self, dataset: str, run: str, passed: bool) -> Outcome:
        if dataset not in self.accounts:
            return UnregisteredDatasetError
        known = self.runs.get(run)
        if known is None or known.dataset != dataset:
            return LedgerError
        if known.settled:
            return known.settled[1] if known.settled[0] == passed else LedgerError
        now = self.accounts[dataset]
        if run in self.refused or known.status != "drawn" or now.last_look[:2] != (run, "noisy"):
            return LedgerError
        now.looks = now.looks if now.last_look[2] else max(0, now.looks - 1)
        now.last_look = ("", "", False)
        known.settled = passed, self.written()
        known.status = "drawn" if passed else "stopped"
        return self.length

    def reopen(self, dataset: str, reason: str | None, by: int | None) -> Outcome:
        if dataset not in self.accounts:
            return UnregisteredDatasetError
        now = self.accounts[dataset]
        if not (now.refused or now.looks):
            return LedgerError
        if by not in now.approvers and (by is not None or now.approvers):
            return ApprovalError
        if by is None and reason is None:
            return LedgerError
        now.refused = now.looks = 0
        return self.written()


Row = tuple[int, str, str, str, str, str | None, str | None]


def with_hash(row: Row) -> Row:
    """The row with the hash of what it says."""
    text = f'[{row[0]},"{row[1]}",{row[2]},"{row[3]}"]'
    return (*row[:4], hashlib.sha256(text.encode()).hexdigest(), *row[5:])


def change_body(rows: tuple[Row, ...], index: int, data: st.DataObject) -> Row:
    """A row with another value in one field of its body, or without it, or with one more."""
    body = json.loads(rows[index][2])
    name = data.draw(st.sampled_from([*body, "surplus"]))
    value = body.pop(name, None)
    how = data.draw(st.sampled_from(["another", "gone"])) if value is not None else "another"
    if how == "another":
        body[name] = data.draw(st.sampled_from(OTHER).filter(lambda other: other != value))
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return (*rows[index][:2], text, *rows[index][3:])


OTHER = ["0", "1", "0.1", "a" * 64, "", None, True, False, 0, 1, [], {}, {"epsilon": "0"}]


def tampered_body(rows: tuple[Row, ...], index: int, data: st.DataObject) -> Tampered:
    changed = change_body(rows, index, data)
    return index + 1, [*rows[:index], changed, *rows[index + 1 :]]


def tampered_column(rows: tuple[Row, ...], index: int, data: st.DataObject) -> Tampered:
    column = data.draw(st.sampled_from([1, 3, 4, 5, 6]))
    others = {1: ["draw", "look", "refund"], 3: ["f" * 64], 4: ["f" * 64], 5: ["z"], 6: ["run-z"]}
    value = data.draw(st.sampled_from(others[column]).filter(lambda v: v != rows[index][column]))
    changed = (*rows[index][:column], value, *rows[index][column + 1 :])
    return index + 1, [*rows[:index], changed, *rows[index + 1 :]]


def rewritten(rows: tuple[Row, ...], index: int, data: st.DataObject) -> Tampered:
    """The hash fits again, and the next entry continues another; of the last the head tells."""
    index = min(index, len(rows) - 2)
    body = json.loads(rows[index][2]) | {"created": "2020-01-01T00:00:00+00:00"}
    signed = "signature" in body and rows[index][1] != "checkpoint"  # which it does not sign
    moved = (*rows[index][:2], json.dumps(body, sort_keys=True, separators=(",", ":")))
    changed = with_hash((*moved, *rows[index][3:]))  # type: ignore[arg-type]
    return index + (1 if signed else 2), [*rows[:index], changed, *rows[index + 1 :]]


def last_rewritten(rows: tuple[Row, ...], index: int, data: st.DataObject) -> Tampered:
    body = json.loads(rows[-1][2]) | {"created": "2020-01-01T00:00:00+00:00"}
    signed = "signature" in body and rows[-1][1] != "checkpoint"
    moved = (*rows[-1][:2], json.dumps(body, sort_keys=True, separators=(",", ":")))
    changed = with_hash((*moved, *rows[-1][3:]))  # type: ignore[arg-type]
    return len(rows) + (0 if signed else 1), [*rows[:-1], changed]


def truncated(rows: tuple[Row, ...], index: int, data: st.DataObject) -> Tampered:
    return index + 1, list(rows[:index])


def missing(rows: tuple[Row, ...], index: int, data: st.DataObject) -> Tampered:
    index = min(index, len(rows) - 2)
    return index + 1, [*rows[:index], *rows[index + 1 :]]


def swapped(rows: tuple[Row, ...], index: int, data: st.DataObject) -> Tampered:
    index = min(index, len(rows) - 2)
    first, second = rows[index : index + 2]
    pair = [(first[0], *second[1:]), (second[0], *first[1:])]
    return index + 1, [*rows[:index], *pair, *rows[index + 2 :]]


def doubled(rows: tuple[Row, ...], index: int, data: st.DataObject) -> Tampered:
    """A copy of an entry at the end, with a hash of its own."""
    last = rows[-1]
    return len(rows) + 1, [
        *rows,
        with_hash((last[0] + 1, *rows[index][1:3], last[4], "", None, None)),
    ]


Tampered = tuple[int, list[Row]]
TAMPERS: dict[str, Callable[[tuple[Row, ...], int, st.DataObject], Tampered]] = {
    "body": tampered_body,
    "column": tampered_column,
    "one rewritten": rewritten,
    "last one rewritten": last_rewritten,
    "truncated": truncated,
    "missing": missing,
    "swapped": swapped,
    "doubled": doubled,
}


small = st.sampled_from(["0", "1e-9", "2e-9", "3e-10", "1e-300", 1e-9, "5e-9"])
large = st.one_of(
    st.sampled_from(["0", "0.1", 0.1, "0.30", "1", "1e-300", 0.30000000000000004, "0.7", "3"]),
    st.decimals(min_value=0, max_value=1, places=2),
    st.floats(min_value=0, max_value=0.5),
)
losses = st.fixed_dictionaries({"epsilon": large, "delta": small, "rho": large, "rho_delta": small})
limits = st.sampled_from(["basic", "zcdp"]).flatmap(
    lambda policy: st.tuples(
        st.just(policy),
        st.fixed_dictionaries(dict(zip(LIMITED[policy], (large, small), strict=True))),
    )
)
datasets = st.sampled_from(["a", "a", "a", "b", "b", "c"])
runs = st.sampled_from([f"run-{number}" for number in range(6)])
texts = st.sampled_from(["one", "one", "one", "two"])
places = st.integers(0, 9)
acts = st.lists(
    st.tuples(st.sampled_from(["draw", "void", "prepare", "approve", "reject", "publish"]), texts),
    min_size=1,
    max_size=5,
)
Quarter = tuple[int, Fraction, str]
quarters: st.SearchStrategy[list[Quarter]] = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from([Fraction(1, 2), Fraction(1, 2), Fraction(1, 5), Fraction(1), Fraction(0)]),
        st.sampled_from(["", "", "void", "draw"]),
    ),
    min_size=1,
    max_size=4,
)
deciders = st.sampled_from([0, 0, 0, 1, None])
strays = st.sampled_from([None] * 5 + ["b"])


class LedgerMachine(RuleBasedStateMachine):
    """Every act on the ledger and on the model; both have to answer alike."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.ledger = new_ledger(self.folder / "ledger.db")
        self.other = Ledger.open(self.folder / "ledger.db")
        self.model = Model()
        self.backup: tuple[list[Entry], Model, list[int]] = [], Model(), []
        self.checkpoints: list[int] = []
        self.steps = itertools.count()

    def teardown(self) -> None:
        try:
            self.assert_verified()
            self.assert_same()
        finally:
            self.ledger.close()
            self.other.close()
            shutil.rmtree(self.folder)

    def agree(self, expected: Outcome, act: Any) -> None:
        """The act's entry, or the class of its refusal, is the expected one."""
        try:
            found: Outcome = act().sequence
        except StatpressError as error:
            found = type(error)
        assert found == expected

    @initialize()
    def two_accounts(self) -> None:
        self.register("a", ("basic", {"epsilon": "1", "delta": "1e-8"}))
        self.register("b", ("zcdp", {"rho": "0.5", "rho_delta": "1e-9"}))

    @rule(dataset=datasets, limit=limits)
    def register(self, dataset: str, limit: tuple[str, Amounts]) -> None:
        policy, amounts = limit
        expected = self.model.register(dataset, policy, amounts)
        self.agree(
            expected,
            lambda: self.ledger.register(
                dataset=dataset,
                policy=policy,
                max_looks=MAX_LOOKS,
                max_refusals=MAX_REFUSALS,
                design="any 2" if dataset == "b" else None,
                noisy_gates=dataset == "c",
                **amounts,
                **TERMS,
            ),
        )

    @rule(dataset=datasets, limit=limits, reason=st.sampled_from([None, "agreed"]), by=deciders)
    def amend(
        self, dataset: str, limit: tuple[str, Amounts], reason: str | None, by: int | None
    ) -> None:
        policy, amounts = limit
        expected = self.model.amend(dataset, policy, amounts, reason, by)
        signed = {} if by is None else {"key": KEYS[by]}
        self.agree(
            expected,
            lambda: self.ledger.amend(
                dataset=dataset, policy=policy, reason=reason, **signed, **amounts
            ),
        )

    @rule(
        dataset=st.sampled_from(["a", "b", "c"]),
        keys=st.frozensets(st.sampled_from([0, 1])),
        unsigned=st.booleans(),
        reason=st.sampled_from(["agreed", "agreed", None]),
        by=deciders,
    )
    def set_approvers(
        self, dataset: str, keys: frozenset[int], unsigned: bool, reason: str | None, by: int | None
    ) -> None:
        expected = self.model.set_approvers(dataset, keys, unsigned, reason, by)
        names = [public_text(KEYS[number]) for number in keys]
        key = None if by is None else KEYS[by]
        self.agree(
            expected,
            lambda: self.ledger.set_approvers(
                dataset=dataset, approvers=names, unsigned=unsigned, reason=reason, key=key
            ),
        )

    @rule(dataset=datasets, part=st.sampled_from(["all", "half", "twice"]))
    def amend_to_what_is_spent(self, dataset: str, part: str) -> None:
        """Exactly what is spent, or half or twice of it, under the policy in force."""
        account = self.model.accounts.get(dataset)
        if account is None:
            return
        spent = self.model.on_one(dataset)
        factor = {"all": Fraction(1), "half": Fraction(1, 2), "twice": Fraction(2)}[part]
        amounts = {m: exact_text(spent[m] * factor) for m in account.limit}
        if number(amounts[LIMITED[account.policy][1]]) < 1:
            by = min(account.approvers, default=None)
            self.amend(dataset, (account.policy, amounts), "agreed", by)

    @rule(dataset=datasets, run=runs, loss=losses, n_records=st.sampled_from([1000] * 9 + [9]))
    def charge(self, dataset: str, run: str, loss: Amounts, n_records: int) -> None:
        expected = self.model.charge(dataset, run, loss, n_records)
        mechanism = {"exact": {"kind": "x"}, "noisy": {"mechanism": "noisy_checks"}}[gates_of(run)]
        described = {"mechanisms": [mechanism], "config_sha256": "a" * 64, "version": "1"}
        terms = {**TERMS, "n_records": n_records, "period": period_of(run)}
        self.agree(
            expected,
            lambda: self.ledger.charge(
                dataset=dataset, run_id=run, **loss, **described, **terms, insecure_seed=False
            ),
        )

    @rule(place=places)
    def charge_again(self, place: int) -> None:
        """The same as before, its amounts written in another way."""
        run = self.charged(place)
        if run in self.model.runs:
            known = self.model.runs[run]
            again = {m: exact_text(amount) for m, amount in known.loss.items()}
            self.charge(known.dataset, run, again, 1000)

    @rule(dataset=datasets, run=runs)
    def charge_what_remains(self, dataset: str, run: str) -> None:
        """To the last digit, so that nothing more fits after it."""
        if dataset in self.model.accounts and run not in self.model.runs:
            rest = self.model.remaining(dataset, period_of(run))
            loss = {m: exact_text(rest.get(m, Fraction(0))) for m in MEASURES}
            self.charge(dataset, run, loss, 1000)
            policy = self.model.accounts[dataset].policy
            more = {**dict.fromkeys(MEASURES, "0"), LIMITED[policy][0]: "1e-400"}
            self.charge(dataset, "run-never", more, 1000)

    @rule(acts=acts, place=places, stray=strays, by=deciders)
    def act_on_a_run(
        self, acts: list[tuple[str, str]], place: int, stray: str | None, by: int | None
    ) -> None:
        """Acts on a run of any status, now and then under a wrong dataset."""
        run = self.charged(place)
        known = self.model.runs.get(run)
        for kind, said in acts:
            self.act(kind, run, stray or (known.dataset if known else "a"), said, by)

    @rule(dataset=st.sampled_from(["a", "b"]), acts=acts, by=deciders)
    def live_a_whole_life(self, dataset: str, acts: list[tuple[str, str]], by: int | None) -> None:
        """Charge a run of its own, then do these acts to it, in their order or out of it."""
        run = f"life-{self.model.length}"
        little = dict.fromkeys(MEASURES, "1e-10")
        self.charge(dataset, run, little, 1000)
        for kind, said in acts:
            self.act(kind, run, dataset, said, by)
        self.charge(dataset, run, little, 1000)

    @rule(dataset=st.sampled_from(["a", "b"]), decision=st.sampled_from(["approve", "reject"]))
    def live_under_review(self, dataset: str, decision: str) -> None:
        """A whole life in order, under both keys if there was no review."""
        account = self.model.accounts[dataset]
        if not account.approvers:
            self.set_approvers(dataset, frozenset([0, 1]), False, "agreed", None)
        by = min(account.approvers)
        run = f"life-{self.model.length}"
        self.charge(dataset, run, dict.fromkeys(MEASURES, "1e-10"), 1000)
        for kind in ("draw", "publish", "prepare", "publish", decision, "approve", "publish"):
            self.act(kind, run, dataset, "one", by)

    def act(self, kind: str, run: str, dataset: str, said: str, by: int | None) -> None:
        names = {"run_id": run, "dataset": dataset}
        if kind == "draw":
            expected = self.model.end(dataset, run, "reserved", "drawn")
            self.agree(expected, lambda: self.ledger.draw(**names))
        elif kind == "void":
            expected = self.model.end(dataset, run, "reserved", "void", said)
            self.agree(expected, lambda: self.ledger.void(**names, reason=said))
        elif kind in ("approve", "reject"):
            if run in self.model.runs:
                own = {"run_id": run, "dataset": self.model.runs[run].dataset}
                words = {"decision": kind, "reason": said, "manifest_sha256": "b" * 64}
                who = {"by": "me"} if by is None else {"key": KEYS[by]}
                charge = self.ledger.charged(**own)
                expected = self.model.decide(run, kind, by)
                self.agree(expected, lambda: self.ledger.decide(charge=charge, **words, **who))
        else:
            digest = {"manifest_sha256": "b" * 64}
            act = {"prepare": self.ledger.prepare, "publish": self.ledger.publish}[kind]
            model = {"prepare": self.model.prepare, "publish": self.model.publish}[kind]
            expected = model(dataset, run, said)
            self.agree(expected, lambda: act(**names, bundle=said, **digest))

    @rule(key=st.sampled_from([0, 1]))
    def checkpoint(self, key: int) -> None:
        expected = self.model.written()
        self.agree(expected, lambda: self.ledger.checkpoint(KEYS[key]))
        self.checkpoints.append(expected)

    @rule(dataset=datasets, run=runs, said=texts, place=places, known=st.booleans())
    def refuse(self, dataset: str, run: str, said: str, place: int, known: bool) -> None:
        """A gate stops a run, charged or not, of its own dataset or another."""
        run = self.charged(place) if known else run
        config = {"one": "a", "two": "b"}[said] * 64
        expected = self.model.refuse(dataset, run, said)
        names = {"run_id": run, "dataset": dataset}
        self.agree(expected, lambda: self.ledger.refuse(**names, config_sha256=config))
        if run in self.model.runs:
            self.act("draw", run, self.model.runs[run].dataset, said, None)

    @rule(
        dataset=datasets,
        run=runs,
        gates=st.sampled_from(["exact"] * 3 + ["noisy"]),
        source=st.sampled_from(["/d/one", "/d/one", "/d/two"]),
    )
    def look(self, dataset: str, run: str, gates: str, source: str) -> None:
        """A run is about to open the source, charged or not, and again."""
        for _ in range(2):
            form = "" if gates == "exact" else {"1": "a", "2": "b"}.get(run[-1], "c") * 16
            expected = self.model.look(dataset, run, gates, form, source)
            names = {"run": run, "dataset": dataset, "gates": gates, "form": form, "source": source}
            self.agree(expected, lambda names=names: self.ledger.look(**names, **LOOKING))

    @rule(
        dataset=datasets,
        digit=st.sampled_from("0258"),
        source=st.sampled_from(["/d/one", "/d/two"]),
        passed=st.booleans(),
        between=st.sampled_from("----ldrx"),
    )
    def look_with_noise(
        self, dataset: str, digit: str, source: str, passed: bool, between: str
    ) -> None:
        """A noisy look from charge to end, with something in between."""
        run = f"noisy-{self.model.length}-{digit}"
        self.charge(dataset, run, dict.fromkeys(MEASURES, "1e-10"), 1000)
        self.look(dataset, run, "noisy", source)
        self.act("draw", run, dataset, "", None)
        if between == "l":
            self.look(dataset, "run-another", "exact", source)
        elif between == "r":
            self.refuse(dataset, run, "one", 0, False)
        elif between == "x":
            self.reopen_account(dataset, "agreed", None)
        for again in (passed, passed, not passed):
            self.settle(dataset, run, again)

    @rule(dataset=datasets, place=places, passed=st.booleans())
    def settle_any(self, dataset: str, place: int, passed: bool) -> None:
        self.settle(dataset, self.charged(place), passed)

    def settle(self, dataset: str, run: str, passed: bool) -> None:
        expected = self.model.settle(dataset, run, passed)
        names = {"run_id": run, "dataset": dataset, "passed": passed}
        self.agree(expected, lambda: self.ledger.settle(**names))

    @rule(dataset=datasets, reason=st.sampled_from([None, "agreed"]), by=deciders)
    def reopen_account(self, dataset: str, reason: str | None, by: int | None) -> None:
        expected = self.model.reopen(dataset, reason, by)
        key = None if by is None else KEYS[by]
        self.agree(expected, lambda: self.ledger.reopen(dataset=dataset, reason=reason, key=key))

    @rule(
        dataset=st.sampled_from(["b", "b", "b", "c"]),
        design=st.sampled_from([*DESIGNS]),
        apart=st.booleans(),
        reason=st.sampled_from(["agreed"] * 4 + [None]),
        by=deciders,
        signs=st.integers(0, 4),
    )
    def change_the_design(
        self, dataset: str, design: str, apart: bool, reason: str | None, by: int | None, signs: int
    ) -> None:
        """Mostly by whoever may."""
        if signs and dataset in self.model.accounts:
            by = min(self.model.accounts[dataset].approvers, default=None)
        expected = self.model.redesign(dataset, design, apart, reason, by)
        signed = {} if by is None else {"key": KEYS[by]}
        words = {"dataset": dataset, "design": design, "apart": apart, "reason": reason}
        self.agree(expected, lambda: self.ledger.amend(**words, **signed))

    @rule(before=quarters, design=st.sampled_from([*DESIGNS]), apart=st.booleans(), after=quarters)
    def live_under_two_designs(
        self, before: list[Quarter], design: str, apart: bool, after: list[Quarter]
    ) -> None:
        """Charges for quarters in any order, then another design, then more of them."""
        account = self.model.accounts["b"]
        self.charge_quarters(before)
        by = min(account.approvers, default=None)
        self.change_the_design("b", design, apart, "agreed", by, 0)
        self.charge_quarters(after)

    def charge_quarters(self, charges: list[Quarter]) -> None:
        for digit, part, ends in charges:
            run, limit = f"panel-{self.model.length}-{digit}", self.model.accounts["b"].limit
            shares = {m: exact_text(limit.get(m, Fraction(0)) * part) for m in MEASURES}
            if any(number(amount) >= 1 for m, amount in shares.items() if "delta" in m):
                continue
            self.charge("b", run, shares, 1000)
            if ends:
                self.act(ends, run, "b", "one", None)

    @rule(
        dataset=datasets,
        sources=st.sampled_from([("/d/one",), ("/d/one", "/d/two"), ("/d/two",), ()]),
        also_in=st.sampled_from([(), (), ("a",), ("a", "b", "c")]),
        reason=st.sampled_from(["agreed", None]),
        by=deciders,
    )
    def bind(
        self,
        dataset: str,
        sources: tuple[str, ...],
        also_in: tuple[str, ...],
        reason: str | None,
        by: int | None,
    ) -> None:
        also_in = tuple(name for name in also_in if name != dataset)
        expected = self.model.bind(dataset, sources, also_in, reason, by)
        words = {"dataset": dataset, "sources": sources, "also_in": also_in, "reason": reason}
        key = None if by is None else KEYS[by]
        self.agree(expected, lambda: self.ledger.bind(**words, key=key))

    @rule()
    def open_again(self) -> None:
        self.ledger.close()
        self.ledger = Ledger.open(self.folder / "ledger.db", create=False)

    @rule()
    def let_another_process_act(self) -> None:
        """It reads on from the entry that it knew last."""
        self.ledger, self.other = self.other, self.ledger

    @rule(place=st.integers(0, 400), how=st.sampled_from([*TAMPERS]), data=st.data())
    def tamper_with_a_copy(self, place: int, how: str, data: st.DataObject) -> None:
        """Verification names the entry, and nothing is written after it."""
        rows = tuple(self.rows())
        index = place % len(rows)
        found, changed = TAMPERS[how](rows, index, data)
        copy = self.folder / "tampered.db"
        with Ledger.open(copy) as ledger, closing(sqlite3.connect(copy)) as raw:
            raw.executemany(f"INSERT INTO entries VALUES ({','.join('?' * 7)})", rows)
            raw.commit()
            assert ledger.verify(head=rows[-1][4]).entries == len(rows)
            for name in ledger_table._SQLITE:
                raw.execute(f"DROP TRIGGER {name}")
            raw.execute("DELETE FROM entries")
            raw.executemany(f"INSERT INTO entries VALUES ({','.join('?' * 7)})", changed)
            for trigger in ledger_table._SQLITE.values():
                raw.execute(trigger)
            raw.commit()
        with Ledger.open(copy) as ledger:
            with pytest.raises(LedgerIntegrityError) as caught:
                ledger.verify(head=rows[-1][4])
            assert caught.value.sequence == found
            if how not in ("truncated", "last one rewritten"):  # which only the head tells
                with pytest.raises(LedgerIntegrityError):
                    ledger.checkpoint(KEYS[0])
        for suffix in ("", "-wal", "-shm", "-queue"):
            copy.with_name(copy.name + suffix).unlink(missing_ok=True)

    def rows(self) -> Iterator[Row]:
        with closing(sqlite3.connect(self.folder / "ledger.db")) as raw:
            yield from raw.execute("SELECT * FROM entries ORDER BY sequence").fetchall()

    @rule()
    def back_up(self) -> None:
        entries = list(self.ledger.entries())
        self.backup = entries, deepcopy(self.model), list(self.checkpoints)

    @rule(newest=st.booleans())
    def restore_the_backup(self, newest: bool) -> None:
        """What followed it is forgotten; unless it is the newest, open charges count as drawn.

        Those of runs that a gate refused do not: such a run never draws.
        """
        entries, model, checkpoints = self.backup
        if not entries:
            return
        self.ledger.close()
        self.other.close()
        for path in self.folder.iterdir():
            path.unlink()
        self.model, self.checkpoints = deepcopy(model), list(checkpoints)
        self.ledger = new_ledger(self.folder / "ledger.db")
        self.ledger.restore(iter(entries), complete=newest)
        self.other = Ledger.open(self.folder / "ledger.db")
        for name, run in () if newest else self.model.runs.items():
            if run.status == "reserved" and name not in self.model.refused:
                run.status = "drawn"
                self.model.written()

    @rule()
    def restore_an_export(self) -> None:
        """A ledger made of the exported entries has the same state."""
        with new_ledger(self.folder / "copy.db") as copy:
            assert copy.restore(self.ledger.entries()) == self.ledger.state()
        (self.folder / "copy.db").unlink()

    def charged(self, place: int) -> str:
        """One of the runs that were charged, or one that was not."""
        return [*self.model.runs, "run-unknown"][place % (len(self.model.runs) + 1)]

    @invariant()
    def ledger_and_model_hold_the_same(self) -> None:
        """Looked at after every third step and the last, which takes longer than the steps."""
        if next(self.steps) % 3 == 0:
            self.assert_same()

    def assert_same(self) -> None:
        state = self.ledger.state()
        model = self.model
        assert state.next_sequence - 1 == model.length
        assert {r: c.status.value for r, c in state.charges.items()} == {
            r: run.status for r, run in model.runs.items()
        }
        assert list(state.accounts) == list(model.accounts)
        for name, account in state.accounts.items():
            assert account.policy == model.accounts[name].policy
            keys = {public_text(KEYS[number]) for number in model.accounts[name].approvers}
            assert set(account.approvers) == keys
            assert account.unsigned == model.accounts[name].unsigned
            assert account.open_refusals == model.accounts[name].refused
            assert account.open_looks == model.accounts[name].looks
            assert fractions(account.limit) == model.accounts[name].limit
            assert fractions(account.spent) == model.spent(name, *SPENT)
            assert fractions(account.reserved) == model.spent(name, "reserved")
            part = self.ledger.account_terms(name)  # from the few entries that an act reads
            assert (part.spent, part.by_period) == (account.spent, account.by_period)
            assert fractions(part.spent_by_one(measures=MEASURES)) == model.on_one(name)
            for period in PERIODS:
                assert fractions(account.remaining_for(period)) == model.remaining(name, period)
            assert min(fractions(account.remaining_for(None)).values()) >= 0

    def assert_verified(self) -> None:
        entries = list(self.ledger.entries())
        found = self.ledger.verify(head=entries[-1].hash if entries else None)
        assert (found.entries, list(found.checkpoints)) == (self.model.length, self.checkpoints)
        for entry in entries:
            if entry.kind == "charge":
                assert entry.sequence == self.model.runs[entry.body["run_id"]].sequence


def fractions(loss: Any) -> dict[str, Fraction]:
    return {m: Fraction(amount) for m, amount in loss.amounts.items()}


def exact_text(amount: Fraction) -> str:
    """The decimal text of a fraction that has one, with idle zeros at its end."""
    places = 0
    while amount.denominator != 1:
        amount, places = amount * 10, places + 1
    return str(Decimal((0, tuple(map(int, str(amount.numerator))), -places))) + (
        "00" if 0 < places < 6 else ""
    )


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(
    settings(),
    max_examples=max(12, settings().max_examples // 2),
    stateful_step_count=40,
    phases=[Phase.explicit, Phase.generate],  # to shrink a history takes minutes
)
