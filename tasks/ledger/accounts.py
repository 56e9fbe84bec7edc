"""The state of a ledger after some of its entries: policies, accounts, charges, head of the chain.

``tasks.ledger.chain`` computes the state from the entries. Everyone else reads it and never
changes it.

The policy that an account is kept under is a filter for adaptive composition: it refuses a charge
that would carry the sum of all charges past a limit. Both policies stay valid when each config
depends on what earlier releases showed:

* ``basic``: epsilons add up and deltas add up (Rogers, Roth, Ullman and Vadhan 2016, arXiv
  1605.08294, "Privacy odometers and filters");
* ``zcdp``: the rho of zero-concentrated differential privacy adds up, and so does the delta but
  for which it holds, of those mechanisms that have no rho, or a larger one, without (Feldman and
  Zrnic 2021, arXiv 2008.11193, "Individual privacy accounting via a Renyi filter"; for the
  approximate form Whitehouse, Ramdas, Rogers and Wu 2023, arXiv 2203.05481, "Fully adaptive
  composition in differential privacy", Theorem 1).

An account with a *design* (``mechanisms.accounting.panel_design``, which has the proof) is of a
panel: the filter keeps the charges of every set of periods in which a person may take part within
the limit, and those that name no period count in every set.

They hold for a limit that is fixed beforehand. A limit that is raised, or a policy that is changed,
after looking at releases is a new promise; the chain keeps its reason.

Every charge states its loss in the measures of every policy, so that an account can be moved from
one to the other and nothing has to be guessed.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any

from statpress.mechanisms.accounting.panel_design import LIFETIME, Panel
from statpress.mechanisms.errors import LedgerError, UnregisteredDatasetError
from statpress.mechanisms.periods import Frequency, SeriesPeriod
from statpress.tasks.ledger.entries import MEASURES, ZERO_HASH, Body, Entry, Loss

POLICIES = {"basic": ("epsilon", "delta"), "zcdp": ("rho", "rho_delta")}


def measures_of(policy: object) -> tuple[str, ...]:
    """The measures that a policy limits."""
    measures = POLICIES.get(policy) if isinstance(policy, str) else None
    if measures is None:
        raise LedgerError(
            f"The policy {str(policy)[:60]!r} is not known.",
            where="policy",
            next_step="Give 'basic' (epsilons and deltas add up) or 'zcdp' (rhos add up).",
        )
    return measures


def limit_of(body: Mapping[str, Any]) -> Loss:
    """The limit that a registration or an amendment sets."""
    return Loss.of(body, measures_of(body["policy"]))


_OF_NAMES = " ._-,:()+&'"
"""What a name may have besides letters and digits: no path, no markup."""
_TOGETHER = {"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"}
"""Scripts that one word may have."""


def check_new_name(name: str) -> None:
    """Raise if a dataset should not be registered by a name that could be taken for another's.

    Accounts that an earlier version registered keep their names.

    Raises:
        LedgerError: It is no line of at most 200 letters, digits and a few marks, begins with a
            mark, has blanks that do not show, or letters of several scripts, of which some look
            alike.
    """
    plain = all(unicodedata.category(each)[0] in "LMN" or each in _OF_NAMES for each in name)
    scripts = {unicodedata.name(each, "?").split()[0] for each in name if each.isalpha()}
    if not plain or not 0 < len(name) <= 200:
        flaw = f"It is not a line of at most 200 letters, digits and {_OF_NAMES.strip()}"
    elif not name[0].isalnum() or name != " ".join(name.split()):
        flaw = "It does not begin with a letter or digit, or has blanks that do not show"
    elif (
        unicodedata.normalize("NFKC", name) != name
        or len(scripts - _TOGETHER) + bool(scripts & _TOGETHER) > 1
    ):
        flaw = "It has letters of several scripts, or such as look like others"
    else:
        return
    raise LedgerError(
        f"A dataset cannot be registered by this name. {flaw}.",
        where=f"dataset {name[:60]!a}",
        next_step="Choose a plain name; 'dataset' in the configs is the same.",
    )


DEFAULT_MAX_REFUSALS, DEFAULT_MAX_LOOKS = 20, 60
"""Of datasets that are registered without other numbers."""


class Status(StrEnum):
    """How far a charged run has come."""

    RESERVED = "reserved"
    """Charged, and provably nothing drawn: it may still be voided."""

    DRAWN = "drawn"
    """Drawing began: spent for good."""

    STOPPED = "stopped"
    """Noisy checks of the input stopped it: spent, and nothing is published."""

    PREPARED = "prepared"
    """A sealed bundle of the run waits for its approval."""

    APPROVED = "approved"
    """The bundle may be published."""

    REJECTED = "rejected"
    """The bundle will never be published."""

    PUBLISHED = "published"
    """A bundle of the run was published."""

    VOID = "void"
    """Given back before anything was drawn."""


NOISY_CHECKS = "noisy_checks"
"""The mechanism of noisy checks, as a charge describes it."""


def gates_of(charge: Mapping[str, Any]) -> str:
    """``noisy`` if the noise of a run's checks is among what it is charged for, else ``exact``."""
    charged = (described.get("mechanism") for described in charge["mechanisms"])
    return "noisy" if NOISY_CHECKS in charged else "exact"


@dataclass(frozen=True, slots=True)
class Charge:
    """A charge, with the entries that followed for its run.

    Attributes:
        entry: The charge itself.
        reviewed: Whether its dataset had approvers when it was charged.
        later: The entries that followed for its run, by kind; a run has one of each.
    """

    entry: Entry
    reviewed: bool = False
    later: Mapping[str, Entry] = field(default_factory=dict)

    @property
    def preparation(self) -> Entry | None:
        """The entry that put a sealed bundle before its approvers."""
        return self.later.get("prepare")

    @property
    def decision(self) -> Entry | None:
        """The entry that approved or rejected the bundle."""
        return self.later.get("decide")

    @property
    def publication(self) -> Entry | None:
        """The entry that noted the publication."""
        return self.later.get("publish")

    @property
    def loss(self) -> Loss:
        """What the run spends, in every measure."""
        return Loss.of(self.entry.body)

    @property
    def period(self) -> str | None:
        """The period that its data are of; None if they are of none, or of several."""
        return self.entry.body.get("period")

    @property
    def status(self) -> Status:
        """How far the run has come."""
        if "publish" in self.later:
            return Status.PUBLISHED
        if "void" in self.later:
            return Status.VOID
        if "decide" in self.later:
            approved = self.later["decide"].body["decision"] == "approve"
            return Status.APPROVED if approved else Status.REJECTED
        if "prepare" in self.later:
            return Status.PREPARED
        if "settle" in self.later and not self.later["settle"].body["passed"]:
            return Status.STOPPED
        return Status.DRAWN if "draw" in self.later else Status.RESERVED

    @property
    def gates(self) -> str:
        """``noisy`` if the noise of its checks is among what was charged, else ``exact``."""
        return gates_of(self.entry.body)

    @property
    def stands(self) -> bool:
        """Whether it was charged for good, of secret randomness, and nobody rejected it."""
        undone = (Status.VOID, Status.REJECTED)
        return self.status not in undone and not self.entry.body["insecure_seed"]

    @property
    def published(self) -> bool:
        """Whether a bundle of this run was published."""
        return self.publication is not None


@dataclass(frozen=True, slots=True)
class PeriodSums:
    """The charges that name a period and are not void, added up.

    Attributes:
        total: Of all periods.
        amounts: By measure and period; a period whose charges are all void is left out.
    """

    total: Loss = field(default_factory=Loss.nothing)
    amounts: Mapping[str, Mapping[str, Decimal]] = field(
        default_factory=lambda: {measure: {} for measure in MEASURES}
    )
    _largest: dict[tuple[Panel, str | None, str], Decimal] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def plus(self, period: str, loss: Loss) -> PeriodSums:
        """These sums with one more loss of a period, which is below 0 where one is given back."""
        total = (
            Loss({m: by[period] for m, by in self.amounts.items()})
            if period in self.periods
            else None
        )
        changed = (total or Loss.nothing()) + loss
        amounts = {m: {**by, period: changed[m]} for m, by in self.amounts.items()}
        if not any(changed.amounts.values()):
            for by in amounts.values():
                del by[period]
        return PeriodSums(self.total + loss, amounts)

    def largest(self, panel: Panel, period: str | None, measure: str) -> Decimal:
        """As of ``Panel.largest``, computed once."""
        key = panel, period, measure
        if key not in self._largest:
            self._largest[key] = panel.largest(self.amounts[measure], period)
        return self._largest[key]

    @property
    def periods(self) -> Collection[str]:
        """The periods, in any order."""
        return self.amounts[MEASURES[0]].keys()


@dataclass(frozen=True, slots=True)
class Account:
    """The budget of one dataset and its charges by run, in order.

    Attributes:
        registration: The entry that opened it.
        policy: The policy in force.
        limit: The limit in force, in the policy's measures.
        spent: Sum of all charges that are not void, in every measure.
        panel: The design in force, with those before.
        by_period: The part of ``spent`` that names a period.
        charges: By run, in order.
        amendments: Entries that changed policy or limit, in order.
        review: The last entry that set who approves its releases.
        refusals: Entries that say that a gate stopped a run, in order.
        reopenings: Entries that answered for refusals and looks, in order.
        last_look: The last entry that says that a run was about to open the source.
        binding: The entry that says what it is about, if one does.
        last_settled: The last entry that says that a run's look ended inside its guarantee.
    """

    registration: Entry
    policy: str
    limit: Loss
    spent: Loss = field(default_factory=Loss.nothing)
    panel: Panel = field(default_factory=Panel)
    by_period: PeriodSums = field(default_factory=PeriodSums)
    charges: dict[str, Charge] = field(default_factory=dict)
    amendments: tuple[Entry, ...] = ()
    review: Entry | None = None
    refusals: tuple[Entry, ...] = ()
    reopenings: tuple[Entry, ...] = ()
    last_look: Entry | None = None
    last_settled: Entry | None = None
    binding: Entry | None = None

    @property
    def approvers(self) -> tuple[str, ...]:
        """Public keys in force that approve its releases."""
        return tuple(self.review.body["approvers"]) if self.review else ()

    @property
    def terms_signed(self) -> bool:
        """Whether one of them has to sign what changes limit, policy or sources, or reopens it."""
        return bool(self.review and self.approvers and self.review.body.get("sign_terms"))

    @property
    def sources(self) -> tuple[str, ...]:
        """Patterns of the sources that it is about; empty if it is not said."""
        return tuple(self.binding.body["sources"]) if self.binding else ()

    @property
    def unsigned(self) -> bool:
        """Whether decisions without a signature count."""
        return bool(self.review and self.review.body["unsigned"])

    @property
    def reviewed(self) -> bool:
        """Whether its releases need an approval, because there is someone to give it."""
        return bool(self.approvers) or self.unsigned

    @property
    def max_refusals(self) -> int:
        """How many runs gates may stop before someone has to look into them."""
        return int(self.registration.body.get("max_refusals", DEFAULT_MAX_REFUSALS))

    @property
    def open_refusals(self) -> int:
        """How many runs gates stopped since the last reopening."""
        since = self.reopenings[-1].sequence if self.reopenings else 0
        return sum(entry.sequence > since for entry in self.refusals)

    @property
    def max_looks(self) -> int:
        """How many looks may count before someone has to reopen the account."""
        return int(self.registration.body.get("max_looks", DEFAULT_MAX_LOOKS))

    @property
    def open_looks(self) -> int:
        """How many looks since the last reopening no noise hides.

        Those of runs with exact gates, and those with noisy gates that did not end inside their
        guarantee.
        """
        since = self.reopenings[-1].sequence if self.reopenings else 0
        counting = (entry for entry in (self.last_look, self.last_settled) if entry is not None)
        last = max(counting, key=lambda entry: entry.sequence, default=None)
        return int(last.body["open_looks"]) if last and last.sequence > since else 0

    @property
    def forms(self) -> tuple[str, ...]:
        """Forms in which runs with noisy gates have read sources."""
        return tuple(self.last_look.body.get("forms", ())) if self.last_look else ()

    @property
    def noisy_gates(self) -> bool:
        """Whether only runs with noisy gates may look at the data."""
        return bool(self.registration.body.get("noisy_gates", False))

    @property
    def looks_left(self) -> int:
        """How many looks may still count; 0 if gates closed the account."""
        return 0 if self.closed else self.max_looks - self.open_looks

    @property
    def closed(self) -> bool:
        """Whether no run may look at the data until the account is reopened."""
        return self.open_refusals >= self.max_refusals or self.open_looks >= self.max_looks

    @property
    def dataset(self) -> str:
        """The name it is registered under."""
        return str(self.registration.body["dataset"])

    @property
    def design(self) -> str:
        """The design in force, as it is registered."""
        return str(self.panel.design)

    @property
    def has_design(self) -> bool:
        """Whether not all of its charges add up, because nobody takes part in every period."""
        return self.panel.design != LIFETIME

    @property
    def lengths(self) -> set[Frequency]:
        """How long the periods are that were charged."""
        return {SeriesPeriod.read(period).by for period in self.by_period.periods}

    @property
    def last_period(self) -> str | None:
        """The last period that was charged; None if none was."""
        return max(self.by_period.periods, default=None)

    @property
    def next_period(self) -> str | None:
        """The period after the last that was charged; None if none was."""
        if self.last_period is None:
            return None
        return str(SeriesPeriod.read(self.last_period).following)

    def spent_by_one(
        self, period: str | None = None, measures: Iterable[str] | None = None
    ) -> Loss:
        """The largest loss of one person, of all charges or of those who take part in a period.

        Args:
            period: One in which the person takes part.
            measures: By default the policy's. Each has its largest loss by itself.
        """
        spent = self.spent.within(measures or self.limit.amounts)
        if not self.has_design:
            return spent
        sums, every = self.by_period, spent - self.by_period.total
        return every + Loss({m: sums.largest(self.panel, period, m) for m in spent.amounts})

    def remaining_for(self, period: str | None) -> Loss:
        """What a charge may spend that is for a period, or that names none."""
        return self.limit - self.spent_by_one(period)

    @property
    def remaining(self) -> Loss:
        """What later charges may still spend, in the policy's measures.

        Of an account with a design, for the period after the last that was charged.
        """
        return self.remaining_for(self.next_period)

    def lasts(self, loss: Loss, first: str, periods: int) -> int:
        """How many periods, one after the other, may each be charged a loss.

        Args:
            loss: Of each, in every measure.
            first: The first of them.
            periods: So many are looked at.
        """
        account, asked, period = self, loss.within(self.limit.amounts), SeriesPeriod.read(first)
        for number in range(periods):
            if not account.remaining_for(str(period)).covers(asked):
                return number
            sums = account.by_period.plus(str(period), loss)
            account = replace(account, spent=account.spent + loss, by_period=sums)
            period = period.following
        return periods

    @property
    def last_of_a_period(self) -> Charge | None:
        """The last charge that names a period and is not void; None if none does."""
        charges = (c for c in self.charges.values() if c.period and c.status is not Status.VOID)
        return max(charges, key=lambda charge: charge.entry.sequence, default=None)

    @property
    def remaining_share(self) -> Decimal:
        """What is left of the limit, between 0 and 1, in the measure that has the least left.

        Of an account with a design, what the next period may spend of an even part of the limit.
        """
        parts = self.panel.most if self.has_design else 1
        remaining = self.remaining
        return min(
            (
                min(Decimal(1), max(Decimal(0), remaining[measure] * parts / limit))
                for measure, limit in self.limit.amounts.items()
                if limit
            ),
            default=Decimal(0),
        )

    @property
    def reserved(self) -> Loss:
        """The part of ``spent`` whose runs have not begun to draw."""
        total = Loss.nothing()
        for charge in self.charges.values():
            if charge.status is Status.RESERVED:
                total += charge.loss
        return total


@dataclass(frozen=True, slots=True)
class State:
    """The accounts and charges after some entries, and the end of the chain.

    Attributes:
        accounts: By dataset, in order of registration.
        charges: By run, in order.
        refused: The refusals by run.
        head: Hash of the last entry.
        next_sequence: Sequence of the entry that would follow.
    """

    accounts: dict[str, Account] = field(default_factory=dict)
    charges: dict[str, Charge] = field(default_factory=dict)
    refused: dict[str, Entry] = field(default_factory=dict)
    head: str = ZERO_HASH
    next_sequence: int = 1

    def account_of(self, dataset: str) -> Account:
        """The account of a dataset."""
        account = self.accounts.get(dataset)
        if account is None:
            raise UnregisteredDatasetError(
                "The ledger has no account of this name.", where=f"dataset {dataset!r}"
            )
        return account

    def charge_of(self, body: Body) -> Charge:
        """The charge of the run that a body names."""
        charge = self.charges.get(body["run_id"])
        if charge is None:
            raise refusal(body, "The ledger has no charge of this run.", "Charge it first.")
        if charge.entry.body["dataset"] != body["dataset"]:
            raise refusal(body, "This run was charged to another dataset.", "Name that dataset.")
        return charge

    def keep(self, charge: Charge) -> None:
        """File a charge by run, here and in its account; only for a draft of a state."""
        body = charge.entry.body
        self.charges[body["run_id"]] = charge
        self.accounts[body["dataset"]].charges[body["run_id"]] = charge

    def change_account(self, dataset: str, **changes: Any) -> None:
        """Put other values into an account; only for a draft of a state."""
        self.accounts[dataset] = replace(self.account_of(dataset), **changes)


def refusal(body: Body, flaw: str, next_step: str) -> LedgerError:
    """The error that says why an entry about a run may not follow."""
    return LedgerError(flaw, where=f"run {body['run_id']!r}", next_step=next_step)


def drawn_before(run_id: str) -> LedgerError:
    """The error of a run that drew in this home, whatever the ledger says of it."""
    return LedgerError(
        "This home has begun to draw for this run; that is never undone and never repeated.",
        where=f"run {run_id!r}",
        next_step="If the ledger says otherwise it was cut back: stop releasing, and run"
        " 'statpress ledger verify --head' with a head kept elsewhere. Else start a new run.",
    )


@dataclass(frozen=True, slots=True)
class Balance:
    """What an entry moves a balance by, and to.

    Attributes:
        account: Before the entry.
        loss: What is charged; below 0 where it is given back.
        period: Of the charge; None if it names none, which counts for everybody.
    """

    account: Account
    loss: Loss
    period: str | None = None

    @property
    def spent(self) -> Loss:
        """Of the account after the entry."""
        return self.account.spent + self.loss

    @property
    def by_period(self) -> PeriodSums:
        """Of the account after the entry."""
        sums = self.account.by_period
        return sums if self.period is None else sums.plus(self.period, self.loss)

    @property
    def stated(self) -> Body:
        """What the entry states of it."""
        if not self.account.has_design:
            return {"spent": self.spent.texts()}
        # Every set that has the period, or every set, has this loss more.
        by_one = self.account.spent_by_one(self.period) + self.loss
        return {
            "spent": self.spent.texts(),
            "design": self.account.design,
            "spent_by_one": by_one.texts(),
        }
