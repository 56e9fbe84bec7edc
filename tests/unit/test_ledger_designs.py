"""Accounts with a design: the filter against every set of periods, and what ledgers keep."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from census_ledger import KEY, TERMS, apply, charge, new_ledger, register, void

from statpress.mechanisms.accounting.panel_design import LIFETIME, Design, Panel
from statpress.mechanisms.errors import (
    ApprovalError,
    InsufficientBudgetError,
    LedgerError,
    LedgerIntegrityError,
    PolicyMismatchError,
    StatpressError,
)
from statpress.mechanisms.periods import SeriesPeriod
from statpress.tasks.ledger.accounts import State
from statpress.tasks.ledger.chain import next_entry, replay
from statpress.tasks.ledger.entries import MEASURES, Entry, Loss, entry_hash, public_text
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.ledger.rules import RULES
from statpress.tasks.release.runs import left_in_words

MONTHS = [
    str(SeriesPeriod.at(24_311 + number, "month")) for number in range(6)
]  # 2025-12 to 2026-05
DESIGNS = ["once", "any 2", "any 3", "2 consecutive", "3 consecutive", "2 within 3", "lifetime"]
NOW = "2026-01-01T00:00:00+00:00"
LIMITS = {
    "basic": {"epsilon": "1", "delta": "0.000001"},
    "zcdp": {"rho": "1", "rho_delta": "0.000001"},
}


def family(design: str) -> set[frozenset[str]]:
    """Every set of months in which a person may take part, by the words of the design."""
    parsed = Design.parse(design)
    found = set()
    for size in range(min(parsed.most, len(MONTHS)) + 1):
        for chosen in itertools.combinations(range(len(MONTHS)), size):
            span = chosen[-1] - chosen[0] + 1 if chosen else 0
            if parsed.within is None or span <= parsed.within:
                found.add(frozenset(MONTHS[number] for number in chosen))
    return found


FAMILIES = {design: family(design) for design in DESIGNS}


# --- filters: the ledger's rules, and broken twins of them ------------------------------------


@dataclass
class Rules:
    """The filter of the ledger, on a state that nobody stores."""

    design: str
    policy: str = "basic"
    state: State = field(default_factory=State)

    def __post_init__(self) -> None:
        stated = {"design": self.design, "policy": self.policy, **LIMITS[self.policy]}
        self.write("register", {"dataset": "lfs", **TERMS, **stated})

    def write(self, kind: str, body: dict[str, Any]) -> Entry:
        """Write an entry, which raises where the rules refuse it."""
        entry = next_entry(self.state, kind, body | {"created": NOW})
        RULES[kind].record(self.state, entry)
        self.state = replace(self.state, head=entry.hash, next_sequence=entry.sequence + 1)
        return entry

    def allows(self, run: str, period: str | None, loss: dict[str, str]) -> bool:
        """Charge, if that is within the limit."""
        try:
            self.write("charge", charged(run, period, loss))
        except InsufficientBudgetError:
            return False
        return True


@dataclass
class Twin:
    """A filter by keys that stand for the period of a charge; sums the largest keys."""

    most: int
    last_only: bool
    by_release: bool
    sums: dict[str, Decimal] = field(default_factory=dict)

    def allows(self, run: str, period: str | None, loss: dict[str, str]) -> bool:
        key = run if self.by_release else str(period)
        after = {**self.sums, key: self.sums.get(key, Decimal(0)) + Decimal(loss["epsilon"])}
        if self.last_only:
            after = {name: after[name] for name in sorted(after)[-self.most :]}
        if sum(sorted(after.values())[-self.most :]) > 1:
            return False
        self.sums = after
        return True


def charged(run: str, period: str | None, loss: dict[str, str]) -> dict[str, Any]:
    body = {"dataset": "lfs", "run_id": run, **dict.fromkeys(MEASURES, "0"), **loss, **TERMS}
    body |= {"mechanisms": [], "config_sha256": "a" * 64, "insecure_seed": False, "version": "1"}
    return body | ({} if period is None else {"period": period})


def worst(charges: list[tuple[str | None, Decimal]], sets: set[frozenset[str]]) -> Decimal:
    """The largest loss of a person, over all sets of periods."""
    return max(
        sum((loss for period, loss in charges if period is None or period in chosen), Decimal(0))
        for chosen in sets
    )


def attack(filter_: Any, choose: random.Random, acts: int) -> list[tuple[str | None, Decimal]]:
    """What a filter lets pass of charges for any periods, in any order, large ones and rests."""
    passed: list[tuple[str | None, Decimal]] = []
    for number in range(acts):
        period = choose.choice(MONTHS)
        loss = choose.choice(["1", "0.5", "0.5", "0.25", "0.05"])
        if filter_.allows(f"run-{number}", period, {"epsilon": loss}):
            passed.append((period, Decimal(loss)))
    return passed


@pytest.mark.parametrize("twin", [{"last_only": True}, {"by_release": True}])
def test_a_filter_that_forgets_periods_or_goes_by_release_lets_a_person_lose_more(
    twin: dict[str, bool],
) -> None:
    broken = sum(
        worst(
            attack(
                Twin(2, **{"last_only": False, "by_release": False, **twin}),
                random.Random(seed),
                12,
            ),
            FAMILIES["any 2"],
        )
        > 1
        for seed in range(100)
    )
    assert broken > 50
    whole = Twin(2, last_only=False, by_release=False)
    assert worst(attack(whole, random.Random(1), 12), FAMILIES["any 2"]) <= 1


@pytest.mark.parametrize("design", DESIGNS)
def test_nobody_loses_more_than_the_limit_in_any_of_many_adaptive_histories(
    design: str, full: bool
) -> None:
    """Every answer of the filter is that of a sum over every set, of a model without its code."""
    histories = 1_500 if full else 10
    refused = 0
    for seed in range(histories):
        choose = random.Random(f"{design} {seed}")
        policy = choose.choice(["basic", "zcdp"])
        first, second = LIMITS[policy]
        filter_, sets = Rules(design, policy), set(FAMILIES[design])
        charges: dict[str, tuple[str | None, dict[str, Decimal]]] = {}
        for number in range(9):
            period = choose.choice([None, *MONTHS, *MONTHS])
            loss = {first: choose.choice(["0.6", "0.3", "0.2", "0.05"]), second: "0"}
            loss[second] = choose.choice(["0", "0", "4e-7"])
            if charges and choose.random() < 0.1:  # the reading of an output may lead to this
                run = choose.choice([*charges])
                filter_.write("void", {"dataset": "lfs", "run_id": run, "reason": "late"})
                del charges[run]
                continue
            amounts = {name: Decimal(text) for name, text in loss.items()}
            if filter_.state.accounts["lfs"].next_period and choose.random() < 0.3:
                rest = filter_.state.accounts["lfs"].remaining_for(period)
                amounts, loss = dict(rest.amounts), rest.texts()  # to the last digit
            after = [*charges.values(), (period, amounts)]
            fits = all(
                worst([(p, each[name]) for p, each in after], sets) <= Decimal(limit)
                for name, limit in LIMITS[policy].items()
            )
            assert filter_.allows(f"run-{number}", period, loss) == fits
            if fits:
                charges[f"run-{number}"] = (period, amounts)
            refused += not fits
        account = filter_.state.accounts["lfs"]
        for name in LIMITS[policy]:
            losses = [(p, each[name]) for p, each in charges.values()]
            assert account.spent_by_one()[name] == worst(losses, sets)
            assert account.spent_by_one()[name] <= Decimal(LIMITS[policy][name])
    assert refused > histories // 3


@pytest.mark.parametrize("design", DESIGNS)
def test_an_adversary_that_asks_for_what_is_left_attains_the_limit(design: str, full: bool) -> None:
    histories = 50 if full else 4
    for seed in range(histories):
        choose, filter_ = random.Random(seed), Rules(design)
        charges: list[tuple[str | None, Decimal]] = []
        for number in range(6):
            period = choose.choice(MONTHS)
            left = filter_.state.accounts["lfs"].remaining_for(period)["epsilon"]
            part = left if number == 5 else left * Decimal(choose.choice(["0.5", "0.25"]))
            assert filter_.allows(f"run-{number}", period, {"epsilon": str(part.normalize())})
            charges.append((period, part))
            assert not filter_.allows("run-more", charges[-1][0], {"epsilon": "1.0001"})
        assert Decimal("0.99") <= worst(charges, FAMILIES[design]) <= 1


# --- distributions of outputs, exactly ------------------------------------------------------------


@dataclass
class World:
    """Releases of one bit, by randomised response, of a person whose bits differ between worlds.

    The adversary chooses each charge by the outputs before it, and the person whether to take
    part, as the design lets them; the same in both worlds for the same outputs.
    """

    design: str
    make: Callable[[], Any]
    seed: int
    most: float = 0.0

    def play(
        self,
        outputs: str = "",
        charges: tuple[tuple[str, str, str], ...] = (),
        part: tuple[tuple[str, bool], ...] = (),
        ratio: float = 0.0,
    ) -> None:
        """Follow every output, and keep the largest logarithm of a ratio of likelihoods."""
        self.most = max(self.most, abs(ratio))
        if len(charges) == 7:
            return
        choose = random.Random(f"{self.seed} {outputs} {len(charges)}")
        period = choose.choice(MONTHS[:4])
        loss = choose.choice(["1", "0.5", "0.5", "0.25"])
        filter_ = self.make()
        for made in charges:
            filter_.allows(made[0], made[1], {"epsilon": made[2]})
        run = f"run-{len(charges)}"
        allowed = filter_.allows(run, period, {"epsilon": loss})
        charges = (*charges, (run, period, loss))
        if not allowed:
            self.play(outputs, charges, part, ratio)
            return
        decided = dict(part)
        if period not in decided:
            mine = {name for name, there in part if there} | {period}
            decided[period] = mine in FAMILIES[self.design] and choose.random() < 0.8
        step = float(loss) if decided[period] else 0.0
        for output in "01":
            toward = step if output == "1" else -step  # log of e^ε/(1+e^ε) over 1/(1+e^ε)
            self.play(outputs + output, charges, tuple(decided.items()), ratio + toward)


def largest_ratio(design: str, make: Callable[[], Any], seeds: int) -> float:
    worlds = [World(design, make, seed) for seed in range(seeds)]
    for world in worlds:
        world.play()
    return max(world.most for world in worlds)


@pytest.mark.parametrize("design", ["once", "any 2", "2 consecutive", "2 within 3"])
def test_what_adaptive_histories_output_is_as_likely_for_both_within_the_limit(
    design: str,
) -> None:
    """Every sequence of outputs of a tiny panel, for histories that differ in one person."""
    found = largest_ratio(design, lambda: Rules(design), 3)
    assert 0.99 <= found <= 1 + 1e-12
    assert math.exp(found) <= math.e + 1e-9


@pytest.mark.parametrize("twin", [{"last_only": True}, {"by_release": True}])
def test_the_same_enumeration_catches_a_broken_filter(twin: dict[str, bool]) -> None:
    broken = {"last_only": False, "by_release": False, **twin}
    assert largest_ratio("any 2", lambda: Twin(2, **broken), 12) > 1.2


# --- changes of the design ------------------------------------------------------------------------


def changed_family(
    old: str, new: str, last: str, before: set[frozenset[str]]
) -> set[frozenset[str]]:
    """The sets of the new design, and of those before the ones that began by the last month."""
    began = {chosen for chosen in before if any(month <= last for month in chosen)}
    return FAMILIES[new] | (before if old == new else began)


def test_a_changed_design_carries_every_charge_over(full: bool) -> None:
    histories = 400 if full else 25
    assert sum(changes_of(seed)[0] for seed in range(histories)) > histories


def test_whoever_takes_part_under_both_designs_loses_more_if_it_was_said_that_nobody_does() -> None:
    """The broken twin: what is right of people apart, of people who are not."""
    assert max(changes_of(seed, said=True)[1] for seed in range(12)) > Decimal("1.3")
    assert max(changes_of(seed, said=False)[1] for seed in range(12)) <= 1


def changes_of(seed: int, said: bool | None = None) -> tuple[int, Decimal]:
    """A random history, in whose changes it is said that people are apart, or that they are not.

    Returns:
        How often its design was changed, and the largest loss of a person who took part under all
        designs, which is no more than the limit unless it was said that there are none.
    """
    choose = random.Random(seed)
    design, policy = choose.choice(DESIGNS[:-1]), "basic"
    filter_, sets = Rules(design, policy), set(FAMILIES[design])
    under_all = sets
    charges: list[tuple[str | None, Decimal]] = []
    changes, covered = 0, True
    for number in range(14):
        account = filter_.state.accounts["lfs"]
        if choose.random() < 0.3:
            new = choose.choice([each for each in DESIGNS[:-1] if each != account.design])
            last = account.last_period
            apart = choose.random() < 0.5 if said is None else said
            body = {"design": new, "last_period": last, "reason": "redesign", "policy": policy}
            body |= {"apart": apart} if not apart or choose.random() < 0.5 else {}
            after, both = FAMILIES[new], FAMILIES[new]
            if last:
                both = {a | b for a in under_all for b in after}
                most = max(map(len, sets)) + max(map(len, after))
                after = changed_family(account.design, new, last, sets) if apart else any_of(most)
            fits = worst(charges, after) <= 1
            try:
                filter_.write("amend-policy", {"dataset": "lfs", **body, **LIMITS[policy]})
            except LedgerError:
                assert not fits
                continue
            assert fits
            sets, under_all, changes = after, both, changes + 1
            covered = both <= sets if not (apart and last) else False
            continue
        period = choose.choice([None, *MONTHS, *MONTHS, *MONTHS])
        loss = choose.choice(["0.4", "0.2", "0.1"])
        fits = worst([*charges, (period, Decimal(loss))], sets) <= 1
        assert filter_.allows(f"run-{number}", period, {"epsilon": loss}) == fits
        charges += [(period, Decimal(loss))] * fits
        assert filter_.state.accounts["lfs"].spent_by_one()["epsilon"] == worst(charges, sets)
    lost = worst(charges, under_all)
    assert lost <= 1 or not covered
    return changes, lost


def any_of(most: int) -> set[frozenset[str]]:
    """All sets of at most so many months."""
    sizes = range(min(most, len(MONTHS)) + 1)
    return {frozenset(each) for size in sizes for each in itertools.combinations(MONTHS, size)}


# --- in the ledger --------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A ledger with a panel of any two months registered, whose limit is 1."""
    with new_ledger(tmp_path / "ledger.db") as opened:
        register(opened, design="any 2")
        yield opened


def spend(ledger: Ledger, run: str, epsilon: str, period: str | None = None) -> Entry:
    return charge(ledger, run, epsilon=epsilon, period=period)


def test_a_month_may_spend_what_the_heaviest_others_leave(ledger: Ledger) -> None:
    first = spend(ledger, "run-1", "0.5", "2026-01")
    assert (first.body["period"], first.body["design"]) == ("2026-01", "any 2")
    assert first.body["spent_by_one"] == {"epsilon": "0.5", "delta": "0"}
    for number in range(2, 8):
        entry = spend(ledger, f"run-{number}", "0.5", f"2026-0{number}")
        assert entry.body["spent_by_one"]["epsilon"] == "1"
        assert entry.body["spent"]["epsilon"] == str(Decimal("0.5") * number).removesuffix(".0")
    with pytest.raises(InsufficientBudgetError, match="what remains for 2026-03 is epsilon 0 and"):
        spend(ledger, "run-more", "1e-9", "2026-03")
    with pytest.raises(InsufficientBudgetError, match="what remains is epsilon 0 and"):
        spend(ledger, "run-more", "1e-9")
    account = ledger.account("census")
    assert account.next_period == "2026-08"
    assert account.remaining["epsilon"] == Decimal("0.5")
    assert account.remaining_share == 1  # of an even part for one period
    assert ledger.verify().entries == 8


def test_plain_accounts_keep_their_entries(tmp_path: Path) -> None:
    with new_ledger(tmp_path / "plain.db") as plain:
        assert "design" not in register(plain).body
        body = charge(plain).body
        assert not {"period", "design", "spent_by_one"} & body.keys()
        body = charge(plain, "run-2", period="2026-01").body
        assert "period" in body
        assert not {"design", "spent_by_one"} & body.keys()
        assert plain.account("census").remaining["epsilon"] == Decimal("0.8")


@pytest.mark.parametrize("period", ["2026-13", "2026-1", "October", "", "2026-10-05", 2026])
def test_other_texts_are_no_period(ledger: Ledger, period: Any) -> None:
    with pytest.raises(LedgerError) as caught:
        spend(ledger, "run-1", "0.1", period)
    assert caught.value.where == "period"
    assert "2026-W05" in caught.value.next_step


def test_an_account_has_periods_of_one_length(ledger: Ledger) -> None:
    spend(ledger, "run-1", "0.1", "2026-01")
    with pytest.raises(PolicyMismatchError, match="by the month, such as 2026-01, and 2026-Q1 is"):
        spend(ledger, "run-2", "0.1", "2026-Q1")
    void(ledger, "run-1")
    assert spend(ledger, "run-2", "0.1", "2026-Q1").body["period"] == "2026-Q1"


@pytest.mark.parametrize("design", DESIGNS)
def test_a_budget_lasts_for_as_many_periods_as_can_be_charged(
    tmp_path: Path, design: str, full: bool
) -> None:
    """However it was spent before; by charging them, until the ledger refuses."""
    accounts = 12 if full else 6
    choose, short = random.Random(design), 0
    for number in range(accounts):
        with new_ledger(tmp_path / f"{number}.db") as ledger:
            register(ledger, design=design)
            for month in MONTHS[: choose.randint(1, 3)]:
                with contextlib.suppress(InsufficientBudgetError):
                    spend(ledger, f"run-{month}", choose.choice(["0.6", "0.4", "0.3"]), month)
            account = ledger.account("census")
            last = account.last_of_a_period
            assert last is not None
            lasts = account.lasts(last.loss, str(account.next_period), 8)
            for step in range(8):
                period = ledger.account("census").next_period
                text = str(last.loss["epsilon"])
                if step == lasts:
                    with pytest.raises(InsufficientBudgetError):
                        spend(ledger, f"more-{step}", text, period)
                    short += 1
                    break
                spend(ledger, f"more-{step}", text, period)
            said = left_in_words(account)
            assert ("does not last for" in said) == (lasts == 0)
    assert short or design == "once"


def test_a_design_may_say_how_long_its_periods_are(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        register(ledger, design="2 consecutive quarters")
        with pytest.raises(PolicyMismatchError, match="'2 consecutive quarters' is of quarters,"):
            spend(ledger, "run-1", "0.1", "2026-01")
        entry = spend(ledger, "run-1", "0.1", "2026-Q1")
        assert entry.body["design"] == "2 consecutive quarters"
        with pytest.raises(PolicyMismatchError) as caught:
            spend(ledger, "run-2", "0.1", "2026-01")
        assert "'by: quarter'" in caught.value.next_step
        with pytest.raises(LedgerError, match="charged by the quarter, such as 2026-Q1") as refused:
            ledger.amend(dataset="census", design="2 consecutive months", reason="months")
        assert "in quarters" in refused.value.next_step
        assert ledger.verify().entries == 2


def test_an_account_that_never_said_so_may_be_told_how_long_its_periods_are(
    ledger: Ledger,
) -> None:
    """Which carries nothing over: it is the same design."""
    spend(ledger, "run-1", "0.6", "2026-01")
    ledger.amend(dataset="census", design="any 2 months", reason="they are months")
    assert ledger.account("census").spent_by_one()["epsilon"] == Decimal("0.6")
    assert spend(ledger, "run-2", "0.4", "2026-02").body["design"] == "any 2 months"
    assert ledger.account("census").remaining["epsilon"] == Decimal("0.4")


def test_a_person_may_take_part_under_both_designs_unless_it_is_said_that_none_does(
    ledger: Ledger,
) -> None:
    for number in (1, 2, 3):
        spend(ledger, f"run-{number}", "0.4", f"2026-0{number}")
    step = "If nobody takes part under both, say so with --apart"
    with pytest.raises(LedgerError, match="a person may take part in 3 periods, which") as caught:
        ledger.amend(dataset="census", design="once", reason="new sample")
    assert step in caught.value.next_step
    ledger.amend(dataset="census", design="once", reason="new sample", epsilon="1.4")
    assert ledger.account("census").spent_by_one()["epsilon"] == Decimal("1.2")
    assert ledger.account("census").remaining["epsilon"] == Decimal("0.6")
    assert "under earlier designs in at most 2 besides" in ledger.account("census").panel.words
    assert ledger.verify().entries == 5


def test_amendments_of_earlier_versions_go_on_as_they_were_meant(ledger: Ledger) -> None:
    """They did not say who takes part under both designs, and meant that nobody does."""
    spend(ledger, "run-1", "0.5", "2026-01")
    entry = ledger.amend(dataset="census", design="once", reason="new sample", apart=True)
    entries = list(ledger.entries())[:-1]
    body = {name: value for name, value in entry.body.items() if name != "apart"}
    old = replace(entry, body=body, hash=entry_hash(3, entry.kind, body, entry.previous))
    account = replay([*entries, old]).accounts["census"]
    assert account.panel == ledger.account("census").panel
    assert account.panel.besides == 0


@pytest.mark.parametrize("design", ["once", "any 3", "4 consecutive", "2 within 5"])
@pytest.mark.parametrize("before", [[], ["3"], ["1", "5", "2", "4"]])
def test_after_its_reach_a_design_charges_no_person_more(design: str, before: list[str]) -> None:
    panel, amounts, most = Panel(Design.parse(design), besides=1), {}, []
    for number, charged in enumerate([*before, *["1"] * 20], 600):
        period = str(SeriesPeriod.at(number, "month"))
        amounts[period] = Decimal(charged)
        most.append(panel.largest(amounts, period))
    alone = most[len(before) :]
    assert len(set(alone[panel.reach - 1 :])) == 1
    assert before or panel.most == 1 or alone[panel.most - 2] < alone[-1]


@pytest.mark.parametrize("design", ["8", "any", "8 within 2", "", "any 8 days"])
def test_other_texts_are_no_design(ledger: Ledger, design: str) -> None:
    for act in (
        lambda: register(ledger, "other", design=design),
        lambda: ledger.amend(dataset="census", design=design, reason="x"),
    ):
        with pytest.raises(LedgerError, match="The design") as caught:
            act()
        assert "'8 consecutive months'" in caught.value.next_step
    assert len(list(ledger.entries())) == 1


def test_a_design_is_changed_with_a_reason_and_only_if_the_limit_covers_it(
    ledger: Ledger,
) -> None:
    for number in range(1, 5):
        spend(ledger, f"run-{number}", "0.3", f"2026-0{number}")
    with pytest.raises(LedgerError, match="needs a reason"):
        ledger.amend(dataset="census", design="any 3", apart=True)
    with pytest.raises(LedgerError, match=r"Spent is epsilon 1\.2 and delta 0 already"):
        ledger.amend(dataset="census", design="any 4", reason="longer", apart=True)
    with pytest.raises(LedgerError, match="in force already"):
        ledger.amend(dataset="census", design="any 2", reason="as it is")
    entry = ledger.amend(dataset="census", design="at most 3 within 9", reason="longer", apart=True)
    assert (entry.body["design"], entry.body["last_period"]) == ("3 within 9", "2026-04")
    assert spend(ledger, "run-5", "0.1", "2026-05").body["design"] == "3 within 9"
    assert ledger.account("census").spent_by_one()["epsilon"] == Decimal("0.9")
    ledger.amend(dataset="census", design="lifetime", epsilon=2, reason="not known any more")
    plain = spend(ledger, "run-6", "0.1", "2026-06").body
    assert not {"design", "spent_by_one"} & plain.keys()
    assert ledger.account("census").remaining["epsilon"] == Decimal("0.6")
    assert ledger.verify().entries == 9


def test_approvers_sign_a_changed_design(ledger: Ledger) -> None:
    ledger.set_approvers(dataset="census", approvers=[public_text(KEY)])
    with pytest.raises(ApprovalError):
        ledger.amend(dataset="census", design="any 3", reason="longer")
    entry = ledger.amend(dataset="census", design="any 3", reason="longer", key=KEY)
    entries = list(ledger.entries())[:-1]
    for forged in ({**entry.body, "design": "once"}, {**entry.body, "apart": True}):
        hash_ = entry_hash(entry.sequence, entry.kind, forged, entry.previous)
        with pytest.raises(LedgerIntegrityError, match="signature"):
            replay([*entries, replace(entry, body=forged, hash=hash_)])


@pytest.mark.parametrize(
    "changes",
    [
        {"period": "2026-02"},
        {"period": None},
        {"design": "once"},
        {"spent_by_one": {"epsilon": "0.5", "delta": "0"}},
        {"spent_by_one": None},
        {"design": None},
    ],
)
def test_verification_finds_what_a_charge_misstates(
    ledger: Ledger, changes: dict[str, Any]
) -> None:
    spend(ledger, "run-1", "0.5", "2026-02")
    spend(ledger, "run-2", "0.3", "2026-03")
    spend(ledger, "run-3", "0.1", "2026-01")
    *before, last = ledger.entries()
    body = {k: v for k, v in {**last.body, **changes}.items() if v is not None}
    forged = replace(last, body=body, hash=entry_hash(4, "charge", body, last.previous))
    with pytest.raises(LedgerIntegrityError) as caught:
        replay([*before, forged])
    assert caught.value.sequence == 4
    assert apply(replay(before), last).accounts["census"].by_period.periods


def test_damaged_sums_are_found_before_the_next_charge(ledger: Ledger, tmp_path: Path) -> None:
    """A whole chain whose charge has amounts that are none is no ledger to build on."""
    spend(ledger, "run-1", "0.5", "2026-01")
    first, last = ledger.entries()
    body = {**last.body, "epsilon": "much"}
    forged = replace(last, body=body, hash=entry_hash(2, "charge", body, last.previous))
    from statpress.tasks.ledger import ledger_table

    with Ledger.open(tmp_path / "forged.db") as other:
        other.store.write(lambda connection: ledger_table.append_all(connection, [first, forged]))
    with Ledger.open(tmp_path / "forged.db") as other, pytest.raises(StatpressError) as caught:
        spend(other, "run-2", "0.1", "2026-01")
    assert isinstance(caught.value, LedgerIntegrityError)
    assert caught.value.sequence == 2


def test_lifetime_is_what_a_plain_account_has(ledger: Ledger) -> None:
    assert register(ledger, "other", design="lifetime").body["design"] == "lifetime"
    account = ledger.account("other")
    assert account.panel.design == LIFETIME
    assert not account.has_design
    assert account.remaining == Loss.of({"epsilon": "1", "delta": "1e-8"}, ("epsilon", "delta"))


def test_without_a_design_all_periods_add_up_whatever_their_length(tmp_path: Path) -> None:
    """And none can be put in force over them."""
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        register(ledger)
        for number, period in enumerate(("2026-01", "2026-Q1", "2026")):
            spend(ledger, f"run-{number}", "0.1", period)
        assert ledger.account("census").spent_by_one()["epsilon"] == Decimal("0.3")
        with pytest.raises(LedgerError, match="periods of several lengths"):
            ledger.amend(dataset="census", design="any 2", reason="a panel now")
