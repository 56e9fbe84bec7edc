"""A series of monthly releases: in order, each once, waiting for what is late, kept apart."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acting import Acting, raising, refuse_publications
from bad_input import N
from monthly import Office

from statpress.configs.loading import load
from statpress.configs.order import Order, from_options
from statpress.configs.yaml_text import parse
from statpress.flows.cli.plan_command import plan
from statpress.flows.cli.release_commands import run, validate
from statpress.flows.cli.rerelease_command import rerelease
from statpress.flows.runner import run_publication, run_release
from statpress.mechanisms.errors import (
    ConfigError,
    InsufficientBudgetError,
    PeriodError,
    PolicyMismatchError,
    RereleaseError,
    SourceError,
    SourceNotFoundError,
    StatpressError,
)
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.ledger.accounts import Status
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.orchestration.monitoring import series_text
from statpress.tasks.private_zone.guards import new_run_id
from statpress.tasks.release.ledger_check import check_bundle, verify_ledger
from statpress.tasks.release.review import decide, note_bundle
from statpress.tasks.release.series_periods import calendar_of
from statpress.tasks.release.succession import propose

MONTHS = [f"2026-{month:02}" for month in range(1, 13)]


@pytest.fixture
def office(agency: Any, monkeypatch: pytest.MonkeyPatch) -> Office:
    """An office whose months have one column, which is counted in less time than four."""
    made = Office(agency, monkeypatch).on("2026-05-11")
    start, end = agency.text.index("  age:"), agency.text.index("products:")
    agency.replace(agency.text[start:end], "")
    made.table = made.table.select(["region"])
    return made


def test_due_periods_are_released_in_order_each_in_its_place(office: Office) -> None:
    office.on("2026-03-11").deliver(*MONTHS[:4])
    released, why, _ = office.release_due()
    assert released == MONTHS[:2]  # March has not ended, and is not due
    assert why == "nothing else is due before 2026-04-11, when 2026-03 is"
    found = office.bundles()
    assert list(found) == MONTHS[:2] and all(len(each) == 1 for each in found.values())
    for month, (bundle,) in found.items():
        manifest = verify_bundle(bundle)
        assert manifest["title"] == f"Labour force, {month}"
        check_bundle(office.agency.home, bundle, manifest)
        package = json.loads((bundle / "datapackage.json").read_text())
        assert package["temporal"] == {"start": month, "end": month}
        config = parse((bundle / "config.yaml").read_text(), "config").value
        assert config["series"]["current"] == month
        assert config["source"]["path"] == "data/{period}.parquet"
    assert office.latest == Path(MONTHS[1]) / found[MONTHS[1]][0].name
    spent = [e.body["config_sha256"] for e in office.agency.entries() if e.kind == "charge"]
    assert len(set(spent)) == 2
    verify_ledger(office.agency.home)
    assert office.release_due()[0] == []  # never twice
    assert office.on("2026-04-11").release_due()[0] == ["2026-03"]


def test_a_late_source_is_waited_for_without_look_or_charge(office: Office) -> None:
    office.on("2026-04-11").deliver("2026-01", "2026-03")
    released, why, said = office.release_due()
    assert released == ["2026-01"]
    assert why == "2026-02 waits for its source, which is not there yet"
    assert said[-1] == f"{why}: data/2026-02.parquet."
    before = office.kinds()
    assert before == ["register", "look", "charge", "draw", "publish"]
    assert office.release_due()[0] == [] and office.kinds() == before
    with pytest.raises(SourceNotFoundError, match="2026-02 is not there"):
        office.release("2026-02")
    assert office.kinds() == before
    office.deliver("2026-02")
    assert office.release_due()[0] == ["2026-02", "2026-03"]


def test_noisy_checks_are_not_charged_for_a_source_that_is_not_there(office: Office) -> None:
    office.agency.replace("delta: 0", "delta: 1.0e-6")
    office.agency.replace("publish:", "gate: {noise: true}\npublish:")
    with pytest.raises(SourceNotFoundError, match="Nothing was looked at or charged"):
        office.release("2026-01")
    assert office.kinds() == ["register"]


def test_a_period_that_is_skipped_has_no_release(office: Office) -> None:
    office.on("2026-04-11").deliver("2026-01", "2026-03")
    office.agency.replace("lag: 10 days", "lag: 10 days, skip: [2026-02, 2026-04]")
    released, why, _ = office.release_due()
    assert released == ["2026-01", "2026-03"]
    assert why.endswith("before 2026-06-11, when 2026-05 is")
    with pytest.raises(ConfigError, match="among the periods that are skipped"):
        office.release("2026-02")


def test_a_period_is_never_released_ahead_nor_without_a_name(office: Office) -> None:
    office.deliver(*MONTHS)
    with pytest.raises(PeriodError, match="2026-05 is not due before 2026-06-11"):
        office.release("2026-05")
    with pytest.raises(PeriodError, match="no period is named"):
        run_release(office.context(), Order(office.agency.config))
    assert office.kinds() == ["register"]


def test_a_period_that_is_released_is_not_released_again(office: Office) -> None:
    office.deliver("2026-01")
    first = office.release("2026-01")
    before = office.kinds()
    (office.agency.folder / "data" / "2026-01.parquet").unlink()  # no matter any more
    assert office.release("2026-01") == first
    office.agency.replace("epsilon: 0.1", "epsilon: 0.2")
    assert office.release("2026-01", again=True) == first  # that is what re-releases are for
    assert office.kinds() == before and len(office.bundles()["2026-01"]) == 1


def cut_off(office: Office, step: str, act: Callable[[], object] | None = None) -> None:
    """Release the first month until a step, at which the run breaks, or the act breaks it."""
    order = Order(office.agency.config).at_period("2026-01")
    listener = Acting({step: act or raising(ArithmeticError())})
    with pytest.raises(StatpressError):
        run_release(office.context(listener), order)


def test_a_cut_before_the_draw_goes_on_with_its_charge(office: Office) -> None:
    office.deliver("2026-01", "2026-02")
    cut_off(office, "draw records")
    released, _, _ = office.release_due()
    assert released == ["2026-01", "2026-02"]
    assert office.kinds().count("charge") == 2


def test_a_cut_after_the_draw_leaves_the_next_period_unharmed(office: Office) -> None:
    office.deliver("2026-01", "2026-02")
    cut_off(office, "write bundle")
    released, _, said = office.release_due()
    assert released == ["2026-02"]
    assert "2026-01 was charged and not published" in said[0]
    with pytest.raises(PeriodError, match="--again"):
        office.release("2026-01")
    assert office.kinds().count("charge") == 2
    office.release("2026-01", again=True)
    assert office.kinds().count("charge") == 3
    assert {month: len(each) for month, each in office.bundles().items()} == dict.fromkeys(
        MONTHS[:2], 1
    )
    assert office.latest.parts[0] == "2026-02"  # an older period never takes its place
    office.release("2026-01", again=True)
    assert office.kinds().count("charge") == 3
    verify_ledger(office.agency.home)


def test_a_bundle_that_the_ledger_missed_is_not_made_again(office: Office) -> None:
    office.deliver("2026-01")
    cut_off(office, "publish", lambda: refuse_publications(office.agency.home))
    refuse_publications(office.agency.home, refuse=False)
    (bundle,) = office.bundles()["2026-01"]
    with pytest.raises(PeriodError, match="did not note it"):
        office.release("2026-01", again=True)
    note_bundle(office.agency.home, bundle)
    assert office.latest == Path("2026-01") / bundle.name
    assert office.release("2026-01").bundle == bundle


def test_a_charge_that_is_given_back_is_made_anew(office: Office) -> None:
    office.deliver("2026-01")
    cut_off(office, "draw records")
    (charge,) = (entry for entry in office.agency.entries() if entry.kind == "charge")
    with Ledger.open(office.agency.home.ledger) as ledger:
        ledger.void(run_id=charge.body["run_id"], dataset="testdata", reason="another config")
    office.agency.replace("epsilon: 0.1", "epsilon: 0.2")
    assert office.release_due()[0] == ["2026-01"]


def test_a_source_that_a_gate_refuses_is_left_to_a_person(office: Office) -> None:
    office.deliver("2026-01", "2026-02")
    whole = office.table
    office.table = whole.slice(0, N - 1)
    office.deliver("2026-01")
    with pytest.raises(SourceError):
        office.release_due()
    assert office.kinds() == ["register", "look", "refuse"]
    released, _, said = office.release_due()
    assert released == ["2026-02"]  # no further look at what was refused
    assert "2026-01 was stopped by its checks" in said[0]
    office.table = whole
    office.deliver("2026-01")
    office.release("2026-01")
    assert list(office.bundles()) == ["2026-01", "2026-02"]
    assert office.latest.parts[0] == "2026-02"


def test_what_was_released_before_a_period_stopped_is_said(office: Office) -> None:
    office.deliver("2026-01", "2026-02", "2026-03")
    office.table = office.table.slice(0, N - 1)
    office.deliver("2026-03")
    with pytest.raises(SourceError):
        office.release_due()
    words = "Before 2026-03 stopped, 2026-01 and 2026-02 were released, which stands."
    assert office.heard.texts[-1] == words
    assert [period for period, made in office.bundles().items() if made] == ["2026-01", "2026-02"]


def test_without_the_runs_of_periods_one_would_be_released_twice(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    office.deliver("2026-01")
    monkeypatch.setattr("statpress.tasks.release.series_periods._run_of", lambda *_: new_run_id())
    office.release("2026-01")
    office.release("2026-01")
    assert len(office.bundles()["2026-01"]) == office.kinds().count("charge") == 2


def test_another_series_of_the_dataset_has_periods_of_its_own(office: Office) -> None:
    office.deliver("2026-01")
    one = office.release("2026-01")
    office.agency.replace("name: lfs", "name: other")
    assert office.release("2026-01").run_id != one.run_id


def test_months_of_different_sizes_need_no_edit_and_one_account(office: Office) -> None:
    office.agency.replace("n_records: 400", "n_records: from_source")
    office.agency.replace("dataset: testdata", "dataset: sized")
    office.agency.register(dataset="sized", n_records=None)
    whole = office.table
    sizes = {month: N - 7 * number for number, month in enumerate(MONTHS[:2])}
    for month, size in sizes.items():
        office.table = whole.slice(0, size)
        office.deliver(month)
    assert office.release_due()[0] == MONTHS[:2]
    for month, (bundle,) in office.bundles().items():
        stated = json.loads((bundle / "privacy.json").read_text())
        assert stated["n_records"] == sizes[month]
    charged = {
        entry.body["period"]: entry.body["n_records"]
        for entry in office.agency.entries()
        if entry.kind == "charge"
    }
    assert charged == sizes
    verify_ledger(office.agency.home)


def test_a_panel_is_charged_by_the_periods_of_its_series(office: Office) -> None:
    office.agency.replace("dataset: testdata", "dataset: panel")
    office.agency.register(dataset="panel", epsilon="0.25", design="any 2 months")
    office.deliver(*MONTHS[:3])
    assert office.release_due()[0] == MONTHS[:3]  # any 2 of them cost less than the limit
    with Ledger.open(office.agency.home.ledger) as ledger:
        periods = ledger.account("panel").by_period.periods
    assert sorted(periods) == MONTHS[:3]
    (bundle,) = office.bundles()["2026-03"]
    proposal = propose(bundle, None, (), None, office.agency.home)
    with pytest.raises(InsufficientBudgetError, match="for 2026-03"):  # .1 twice, and .1
        run_release(office.context(), proposal.planned)


def test_a_series_of_another_length_than_the_design_is_refused_before_anything(
    office: Office,
) -> None:
    """The plan says so, too."""
    office.agency.replace("dataset: testdata", "dataset: panel")
    office.agency.register(dataset="panel", epsilon="0.25", design="2 consecutive quarters")
    office.deliver(*MONTHS[:1])
    before = office.kinds()
    with pytest.raises(PolicyMismatchError, match="of quarters, and 2026-01 is a month") as caught:
        office.release_due()
    assert "'by: quarter'" in caught.value.next_step
    assert office.kinds() == before
    planned = plan(office.agency.config, period="2026-01", home=office.agency.home.root).facts()
    assert any("2026-01 is a month" in each for each in planned["would_stop"])


def test_a_plan_says_how_long_the_budget_lasts_and_how_to_register_a_series(
    office: Office,
) -> None:
    def planned() -> str:
        result = plan(office.agency.config, home=office.agency.home.root)
        return " ".join(str(each) for each in result.report())

    office.agency.replace("dataset: testdata", "dataset: panel")
    said = planned()
    source = office.agency.folder / "data" / "*.parquet"
    assert f"--source '{source}'" in said and "--design '8 consecutive months'" in said
    office.agency.register(dataset="panel", epsilon="0.35")
    assert "The budget lasts to 2026-03 and no longer, if every period is charged" in planned()
    office.deliver(*MONTHS[:2])
    office.release_due()
    assert "The budget lasts to 2026-03 and no longer" in planned()
    with Ledger.open(office.agency.home.ledger) as ledger:
        account = ledger.account("panel")
    calendar = calendar_of(office.agency.home, load(office.agency.config))
    shown = series_text(calendar, account)
    epsilon = account.charges[[*account.charges][1]].loss["epsilon"]
    assert f"| 2026-02 | released | {epsilon} | 0 |" in shown
    left = account.limit["epsilon"] - 2 * epsilon
    assert f"For 2026-03 is left: epsilon {left} and delta" in shown
    assert "The budget lasts to 2026-03 and no longer" in shown
    office.agency.dataset = "panel"
    office.agency.amend(design="any 2 months")
    assert "The budget does not run out, if every period is charged" in planned()


def test_a_revision_supersedes_is_of_its_period_and_keeps_both(office: Office) -> None:
    office.deliver("2026-01", "2026-02")
    office.release_due()
    (bundle,) = office.bundles()["2026-02"]
    revised = office.agency.folder / "revised.yaml"
    revised.write_text(office.agency.text.replace("epsilon: 0.1", "epsilon: 0.2"))
    proposal = propose(bundle, revised, (), None, office.agency.home)
    assert proposal.difference["config"]["budget.epsilon"] == {"was": "0.1", "now": "0.2"}
    outcome = run_release(office.context(), proposal.planned)
    both = office.bundles()["2026-02"]
    assert len(both) == 2 and outcome.bundle in both and bundle in both
    assert verify_bundle(outcome.bundle)["supersedes"] == verify_bundle(bundle)["seal"]
    assert office.latest == Path("2026-02") / outcome.bundle.name
    assert run_release(office.context(), proposal.planned) == outcome  # a bundle is followed once
    older = propose(office.bundles()["2026-01"][0], None, (), None, office.agency.home)
    first = run_release(office.context(), older.planned)
    assert first.bundle.parent.name == "2026-01"
    assert office.latest.parts[0] == "2026-02"
    verify_ledger(office.agency.home)
    for text in (
        office.agency.text.replace("name: lfs", "name: other"),
        office.agency.text.replace("first: 2026-01", "first: 2026-01").replace(
            "name: lfs,", "name: lfs, current: 2026-01,"
        ),
    ):
        revised.write_text(text)
        with pytest.raises(RereleaseError, match="one of its own series and period"):
            propose(bundle, revised, (), None, office.agency.home)


@pytest.mark.nightly
def test_a_renewal_may_name_revised_data_and_no_other_period(office: Office) -> None:
    office.deliver("2026-01", "2026-01b")
    bundle = office.release("2026-01").bundle
    options = from_options(["source.path=data/2026-01b.parquet"])
    proposal = propose(bundle, None, options, None, office.agency.home)
    proposal.check(office.agency.home)  # finds the data beside the config
    renewed = run_release(office.context(), proposal.planned).bundle
    assert renewed.parent == bundle.parent
    stated = parse((renewed / "config.yaml").read_text(), "config").value
    assert stated["source"]["path"] == "data/2026-01b.parquet"
    again = propose(renewed, None, (), None, office.agency.home)
    assert run_release(office.context(), again.planned).bundle.parent == bundle.parent
    with pytest.raises(RereleaseError, match="no matter of the data's vintage"):
        propose(bundle, None, from_options(["series.current=2026-02"]), None, office.agency.home)


def test_the_next_period_is_released_once_one_waits_for_its_approval(office: Office) -> None:
    with Ledger.open(office.agency.home.ledger) as ledger:
        ledger.set_approvers(dataset="testdata", approvers=[], unsigned=True)
    office.deliver("2026-01", "2026-02")
    assert office.release_due()[0] == ["2026-01", "2026-02"]
    with Ledger.open(office.agency.home.ledger) as ledger:
        statuses = [charge.status for charge in ledger.state().charges.values()]
        runs = list(ledger.state().charges)
    assert statuses == [Status.PREPARED] * 2
    assert not (office.agency.releases / "lfs" / "latest").exists()
    decide(office.agency.home, runs[0], "reject", reason="wrong", by="officer")
    decide(office.agency.home, runs[1], "approve", reason="right", by="officer")
    place = run_publication(office.context(), runs[1]).bundle
    assert place.parent.name == "2026-02" and office.latest == Path("2026-02") / place.name
    released, _, said = office.release_due()
    assert released == [] and "2026-01 was charged and not published" in said[0]


def test_a_test_with_a_known_seed_releases_no_period(office: Office) -> None:
    office.deliver("2026-01")
    bundle = office.release("2026-01", insecure_seed=1).bundle
    assert bundle.parent.name == "2026-01"
    assert not (office.agency.releases / "lfs" / "latest").exists()
    assert office.release_due()[0] == ["2026-01"]


def test_the_commands(
    office: Office, judged_here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    office.deliver("2026-01", "2026-03")
    config, home = office.agency.config, office.agency.home.root
    assert validate(config).facts()["valid"]
    assert validate(config, period="2026-03").facts()["valid"]
    with pytest.raises(ConfigError, match=r"--period .*must be a month, written as 2026-10"):
        validate(config, period="October")
    done = run(config, home=home, no_orchestrator=True)
    assert [Path(each["bundle"]).parent.name for each in done.facts()["released"]] == ["2026-01"]
    assert done.facts()["waits"] is True
    published, waits = done.report()
    assert published.startswith(f"Published {done.facts()['released'][0]['bundle']}\n")
    assert waits == "2026-02 waits for its source, which is not there yet."
    with pytest.raises(PeriodError, match="2026-06 is not due before 2026-07-11"):
        run(config, period="2026-06", home=home, no_orchestrator=True)
    one = run(config, period="2026-03", home=home, no_orchestrator=True)
    assert Path(one.facts()["bundle"]).parent.name == "2026-03"
    planned = plan(config, period="2026-04", home=home)
    assert planned.facts()["series"] == {
        "name": "lfs",
        "due": {"2026-01": "released", "2026-02": "open", "2026-03": "released", "2026-04": "open"},
        "next": {"period": "2026-05", "due": "2026-06-11"},
        "planned": "2026-04",
    }
    assert "Series lfs, open: 2026-02, 2026-04." in list(planned.report())
    first_open = plan(config, home=home)  # without a period
    assert first_open.facts()["series"]["planned"] == "2026-02"
    assert "Series lfs, planned here: 2026-02." in list(first_open.report())
    again = rerelease(Path(one.facts()["bundle"]), renew=True, yes=True, home=home,
                      no_orchestrator=True, json=True)  # fmt: skip
    assert Path(again.facts()["bundle"]).parent.name == "2026-03"
    office.agency.replace("formats: [csv]", "formats: [csv], name: one")
    (office.agency.folder / "data" / "2026-01.parquet").unlink()
    again = run(config, period="2026-01", home=home, no_orchestrator=True)
    assert again.facts()["bundle"] == done.facts()["released"][0]["bundle"]
