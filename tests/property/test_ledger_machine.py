"""Random histories on a real ledger, against a model that shares no code with it.

The model is a dictionary of accounts and one of runs, with fractions for amounts. It
says of every act whether it is written, is a repetition, or is refused and how.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from census_ledger import TERMS
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from statpress.mechanisms.errors import (
    AlreadyRegisteredError,
    AmountError,
    ApprovalError,
    InsufficientBudgetError,
    LedgerError,
    PolicyMismatchError,
    RefusalLimitError,
    StatpressError,
    UnregisteredDatasetError,
)
from statpress.tasks.ledger.entries import public_text
from statpress.tasks.ledger.ledger import Ledger

LIMITED = {"basic": ["epsilon", "delta"], "zcdp": ["rho", "rho_delta"]}
MEASURES = [*LIMITED["basic"], *LIMITED["zcdp"]]
KEYS = [Ed25519PrivateKey.from_private_bytes(bytes([n] * 32)) for n in (1, 2)]

MAX_LOOKS, LOOKING = 5, {"config_sha256": "a" * 64}
SPENT = ("reserved", "drawn", "stopped", "prepared", "approved", "rejected", "published")

Amounts = dict[str, Any]
Outcome = int | type[StatpressError]


def gates_of(run: str) -> str:
    """Of what the run is charged for, by its name."""
    return "noisy" if run[-1] in "0258" else "exact"


PERIODS = [None, "2026-Q1", "2026-Q2", "2026-Q3"]


def period_of(run: str) -> str | None:
    """Of its data, by its name."""
    return PERIODS[int(run[-1]) % 4] if run[-1].isdigit() else None


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
    panel: bool  # of any two periods
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
        sets = itertools.combinations(PERIODS[1:], 2 if self.accounts[dataset].panel else 3)
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
        self.accounts[dataset] = Account(policy, limit, panel=dataset == "b")
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

    def look(self, dataset: str, run: str, gates: str, form: str) -> Outcome:
        if dataset not in self.accounts:
            return UnregisteredDatasetError
        charged = self.runs.get(run)
        if charged and (charged.dataset != dataset or charged.status != "reserved"):
            return LedgerError
        if run in self.refused or gates != (gates_of(run) if charged else "exact"):
            return LedgerError
        now = self.accounts[dataset]
        if now.looks == MAX_LOOKS or now.refused >= 20:
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
deciders = st.sampled_from([0, 0, 0, 1, None])
strays = st.sampled_from([None] * 5 + ["b"])


class LedgerMachine(RuleBasedStateMachine):
    """Every act on the ledger and on the model; both have to answer alike."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.ledger = Ledger.open(self.folder / "ledger.db")
        self.model = Model()
        self.checkpoints: list[int] = []

    def teardown(self) -> None:
        try:
            self.assert_verified()
        finally:
            self.ledger.close()
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
                design="any 2" if dataset == "b" else None,
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

    @rule(dataset=datasets, run=runs, gates=st.sampled_from(["exact"] * 3 + ["noisy"]))
    def look(self, dataset: str, run: str, gates: str) -> None:
        """A run is about to open the source, charged or not, and again."""
        for _ in range(2):
            form = "" if gates == "exact" else {"1": "a", "2": "b"}.get(run[-1], "c") * 16
            expected = self.model.look(dataset, run, gates, form)
            names = {"run": run, "dataset": dataset, "gates": gates, "form": form}
            self.agree(expected, lambda names=names: self.ledger.look(**names, **LOOKING))

    @rule(dataset=datasets, place=places, passed=st.booleans(), between=st.sampled_from("ldrx"))
    def look_with_noise(self, dataset: str, place: int, passed: bool, between: str) -> None:
        """A noisy look from charge to end, with something in between, or its end alone."""
        run = self.charged(place)
        if run in self.model.runs and place % 2:
            dataset = self.model.runs[run].dataset
            self.look(dataset, run, gates_of(run))
            self.act("draw", run, dataset, "", None)
            if between == "l":
                self.look(dataset, "run-another", "exact")
            elif between == "r":
                self.refuse(dataset, run, "one", place, False)
            elif between == "x":
                self.reopen_account(dataset, "agreed", None)
        for again in (passed, passed, not passed):
            expected = self.model.settle(dataset, run, again)
            names = {"run_id": run, "dataset": dataset, "passed": again}
            self.agree(expected, lambda names=names: self.ledger.settle(**names))

    @rule(dataset=datasets, reason=st.sampled_from([None, "agreed"]), by=deciders)
    def reopen_account(self, dataset: str, reason: str | None, by: int | None) -> None:
        expected = self.model.reopen(dataset, reason, by)
        key = None if by is None else KEYS[by]
        self.agree(expected, lambda: self.ledger.reopen(dataset=dataset, reason=reason, key=key))

    @rule()
    def open_again(self) -> None:
        self.ledger.close()
        self.ledger = Ledger.open(self.folder / "ledger.db", create=False)

    @rule()
    def restore_an_export(self) -> None:
        """A ledger made of the exported entries has the same state."""
        with Ledger.open(self.folder / "copy.db") as copy:
            assert copy.restore(self.ledger.entries()) == self.ledger.state()
        (self.folder / "copy.db").unlink()

    def charged(self, place: int) -> str:
        """One of the runs that were charged, or one that was not."""
        return [*self.model.runs, "run-unknown"][place % (len(self.model.runs) + 1)]

    @invariant()
    def ledger_and_model_hold_the_same(self) -> None:
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
TestLedgerMachine.settings = settings(max_examples=5, stateful_step_count=40, deadline=None)


@pytest.mark.nightly
class TestLedgerMachineAtLength(LedgerMachine.TestCase):  # type: ignore[misc, name-defined]
    """The same with more examples."""

    settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
