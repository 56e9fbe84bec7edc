"""What is mostly noise stops before the charge unless accepted, and is then said everywhere."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from monthly import Heard

from statpress.configs.loading import load
from statpress.configs.order import Order
from statpress.flows.cli import app, plan_command
from statpress.flows.cli import release_commands as commands
from statpress.flows.cli.rerelease_command import proposal_report
from statpress.flows.runner import run_release
from statpress.mechanisms.errors import (
    BundleExistsError,
    ConfigError,
    LedgerUnavailableError,
    MostlyIndependentError,
    MostlyNoiseError,
    SourceNotFoundError,
    StatpressError,
)
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.private_zone.guards import CuratorLog, new_run_id
from statpress.tasks.release.succession import propose

ACCEPT = "accept: mostly_noise"


@pytest.mark.usefixtures("judged_here")
def test_a_wrong_place_is_found_before_a_run_starts(
    agency: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: object, **__: object) -> None:
        pytest.fail("the run was started")

    def refused(kind: type[StatpressError], home: Path = agency.home.root) -> None:
        with pytest.raises(kind):
            app(["run", str(agency.config), "--home", str(home)], exit_on_error=False)

    monkeypatch.setattr("statpress.flows.runner.run_release", started)
    (agency.releases / "first").mkdir(parents=True)
    refused(BundleExistsError)
    agency.source.rename(agency.folder / "elsewhere")
    refused(SourceNotFoundError)
    refused(LedgerUnavailableError, agency.folder / "none")


def refusing(agency: Any) -> None:
    """Take away what the config accepts."""
    for _ in range(2):
        agency.replace(f"{ACCEPT},", "")


def kinds_of(agency: Any) -> list[str]:
    return [entry.kind for entry in agency.entries()]


def test_a_run_stops_before_the_charge_and_says_why(agency: Any) -> None:
    refusing(agency)
    with pytest.raises(MostlyNoiseError) as caught:
        agency.run()
    places = [each.where.split(": ")[-1] for each in (caught.value, *caught.value.also)]
    assert places == ["products.people", "products.births"]
    assert "share of records that are uniform 0.867, above 0.5" in caught.value.what
    assert ACCEPT in caught.value.next_step
    assert kinds_of(agency) == ["register"]
    assert agency.bundles() == []


def test_what_is_accepted_is_said_in_the_bundle_and_to_people(
    agency: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    agency.inspector.log = CuratorLog(agency.home.folder("curator"), new_run_id())
    context = agency.context()
    context.listener = heard = Heard()
    bundle = run_release(context, Order(agency.config)).bundle
    assert sum("The config accepts that" in text for text in heard.texts) == 2
    verify_bundle(bundle)
    stated = json.loads((bundle / "privacy.json").read_text())
    for product in stated["products"].values():
        verdict = product["verdict"]
        assert verdict["name"] == "mostly_noise" and verdict["accepted"]
        assert verdict["value"] > verdict["threshold"] == 0.5
        assert verdict["value"] == product["expected_error"]["uniform_share"]
    assert stated["warnings"] == []
    page = (bundle / "report.html").read_text()
    assert page.count("Mostly noise: people, births.") == 1
    assert page.count('<p class="warning">This is mostly noise: share of records') == 2
    assert "**`births` is mostly noise" in (bundle / "README.md").read_text()

    # A re-release stops as a run does: before anybody is asked.
    revised = agency.folder / "revised.yaml"
    revised.write_text(agency.text.replace(f"{ACCEPT},", "").replace("name: first", "name: next"))
    proposal = propose(bundle, revised, (), None, agency.home)
    rows = [
        row
        for part in proposal_report(proposal)
        if not isinstance(part, str)
        for row in part.columns[0]._cells
    ]
    assert rows
    with pytest.raises(MostlyNoiseError):
        proposal.check(agency.home)
    assert kinds_of(agency).count("charge") == 1

    # A renewal finds its data where its config lay, from wherever it is started.
    elsewhere = agency.folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    renewed = propose(bundle, None, (), None, agency.home)
    assert renewed.release.folder == agency.folder
    renewed.check(agency.home)
    agency.source.rename(agency.folder / "gone.parquet")
    lost = propose(bundle, None, (), None, agency.home)
    with pytest.raises(SourceNotFoundError) as caught:
        lost.check(agency.home)
    assert str(elsewhere) in caught.value.what and str(agency.folder) in caught.value.what
    assert "--folder" in caught.value.next_step

    # And what can be known without data is found: the name is taken now.
    with pytest.raises(BundleExistsError) as taken:
        commands.validate(agency.config)
    assert re.match(r"release\.yaml:\d+:\d+: publish\.name: .*releases/first$", taken.value.where)
    planned = plan_command.plan(agency.config, home=agency.home.root)
    assert planned.facts()["would_stop"] == [str(taken.value)]
    assert any(
        isinstance(part, str) and part.startswith("A run would stop: ") for part in planned.report()
    )


def test_a_config_with_several_faults_names_each_of_them(agency: Any) -> None:
    agency.replace("bins: 5", "bins: 0")
    agency.replace("columns: [born]", "columns: [bron]")
    agency.replace("epsilon: 1.0", "epsilon: -1")
    agency.replace(
        "publish:",
        "  other: {kind: table, mechanism: lapalce, columns: [age]}\n"
        "  median: {kind: estimate, statistic: median, columns: [age], q: 0.5}\n"
        "checks: {bron: {missing_at_most: 0}}\npublish:",
    )
    with pytest.raises(ConfigError) as caught:
        load(agency.config)
    found = (caught.value, *caught.value.also)
    assert [each.where.split(": ")[-1] for each in found] == [
        "budget.epsilon",
        "domain.pay.bins",
        "products.births.columns.0",
        "products.other.mechanism",
        "products.median.q",
        "checks.bron",
    ]  # the column at fault is not called undeclared, nor are shares of what is left added up
    assert len(str(caught.value).splitlines()) == len(found)


def test_faults_of_domain_shares_and_products_come_together(agency: Any) -> None:
    agency.replace("width: 10}", "width: 7}")
    agency.replace("columns: [born]", "columns: [born, bron]")
    agency.replace("share: 0.5", "share: 0.7")
    agency.replace(
        "publish:",
        "  mean: {kind: estimate, statistic: mean, columns: [born],\n"
        "    group: {column: region, values: [north]}, share: 0.1}\npublish:",
    )
    with pytest.raises(StatpressError) as caught:
        load(agency.config)
    said = {each.where.split(": ")[-1]: each.what for each in (caught.value, *caught.value.also)}
    assert set(said) == {
        "domain.age",
        "products.births.columns.1",
        "products",
        "products.mean.group",
    }
    assert "add up to 1.3, not 1" in said["products"]
    assert said["products.mean.group"] == (
        "'group' does not go with the mean, but with the difference."
    )
    group = next(e for e in (caught.value, *caught.value.also) if "group" in e.where)
    assert "'where'" in group.next_step and "difference" in group.next_step


def test_products_that_no_budget_serves_are_named_together(agency: Any) -> None:
    start, end = agency.text.index("products:"), agency.text.index("publish:")
    agency.replace(
        agency.text[start:end],
        "products:\n"
        "  a: {kind: table, mechanism: exponential_ks, columns: [age, born]}\n"
        "  b: {kind: table, mechanism: laplace, columns: [age]}\n"
        "  c: {kind: table, mechanism: density, estimator: kde, columns: [age, pay]}\n",
    )
    with pytest.raises(StatpressError) as caught:
        load(agency.config).plan()
    found = (caught.value, *caught.value.also)
    assert [each.where.split(": ")[-1] for each in found] == ["products.a", "products.c"]


def test_every_error_has_a_line_of_its_own(agency: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from statpress.flows.terminal import show_error

    refusing(agency)
    with pytest.raises(MostlyNoiseError) as caught:
        agency.run()
    show_error(caught.value, as_json=False)
    lines = capsys.readouterr().err.splitlines()
    assert [line[:7] for line in lines] == ["error: ", "error: ", "       "]  # one next step
    show_error(caught.value, as_json=True)
    facts = json.loads(capsys.readouterr().out)["error"]
    assert facts["kind"] == "MostlyNoise" and len(facts["also"]) == 1


@pytest.mark.nightly
def test_a_release_of_earlier_versions_goes_on_for_one_version(
    agency: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was charged before relations were judged is warned of; what is new stops."""
    product = "{kind: microdata, mechanism: marginals, columns: [region, age, pay]}"
    agency.replace_products(f"products:\n  wide: {product}\n")
    with monkeypatch.context() as earlier:
        earlier.setattr("statpress.mechanisms.planning.plan.TYPICAL_ASSOCIATION", 2.0)
        bundle = agency.run().bundle
    propose(bundle, None, (), None, agency.home).check(agency.home)
    agency.replace("name: first", "name: second")
    agency.run()
    assert kinds_of(agency).count("charge") == 2
    stated = json.loads((agency.releases / "second" / "privacy.json").read_text())
    verdict = stated["products"]["wide"]["verdict"]
    assert verdict["name"] == "mostly_independent" and not verdict["accepted"]
    readme = (agency.releases / "second" / "README.md").read_text()
    assert "Therefore: do not take columns for unrelated" in readme
    assert "Its config accepts that" not in readme
    agency.replace("wide:", "fresh:")
    agency.replace("name: second", "name: third")
    with pytest.raises(MostlyIndependentError) as caught:
        agency.run()
    assert "accept: mostly_independent" in caught.value.next_step
    assert kinds_of(agency).count("charge") == 2


def test_a_plan_says_that_the_account_is_for_another_unit(agency: Any) -> None:
    """Nothing is found of it in a plan for an account of the same unit: the twin."""
    same = plan_command.plan(agency.config, home=agency.home.root)
    assert same.facts()["would_stop"] == []
    agency.replace("n_records: 400", "n_records: 399")
    other = plan_command.plan(agency.config, home=agency.home.root)
    (told,) = other.facts()["would_stop"]
    assert "n_records 399 is not 400" in told and "ledger show" in told
    assert "another name" not in told
