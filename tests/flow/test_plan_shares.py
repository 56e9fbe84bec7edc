"""Plans say how open shares were found, and what a tenth more of the budget would do."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from statpress.configs.loading import load
from statpress.flows.cli import app
from statpress.flows.cli import plan_command as plan_report
from statpress.tasks.release.plan_page import offers_of

PRODUCTS = """
products:
  people: {kind: table, mechanism: gaussian, columns: [region, age]}
  births: {kind: table, mechanism: gaussian, columns: [age]}
  mean: {kind: estimate, statistic: mean, columns: [age]}
  middle: {kind: estimate, statistic: median, columns: [age], accept: mostly_noise}
"""
CONFIG = """
title: Open shares
dataset: testdata
source: {path: data/source.parquet}
privacy: {adjacency: replace_one, unit: record, n_records: 400}
budget: {epsilon: 2, delta: 1.0e-6}
domain:
  region: {type: categorical, categories: [north, south], other: true, missing: true}
  age: {type: integer, lower: 0, upper: 99, width: 20}
publish: {directory: releases, plots: false}
"""


@pytest.fixture(scope="module")
def opened(founded: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An agency with its ``release`` and ``plan``, whose config nobody changes."""
    agency = founded(tmp_path_factory.mktemp("opened"))
    agency.text = CONFIG + PRODUCTS
    agency.config.write_text(agency.text, encoding="utf-8")
    agency.release = load(agency.config)
    agency.plan = agency.release.plan()
    return agency


def test_a_plan_says_what_it_did_with_shares(opened: Any, capsys: Any) -> None:
    app(["plan", str(opened.config), "--home", str(opened.home.root)], exit_on_error=False)
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "shares. Open shares are found so that the mean expected error" in said
    assert said.count(", found") == 4
    assert said.count("a tenth more of the budget") == 4
    release, plan = opened.release, opened.plan
    facts = json.loads(json.dumps(plan_report.plan_facts(release, plan, None)))
    assert facts["open_shares"]["names"] == ["people", "births", "mean", "middle"]
    assert 0.005 <= facts["open_shares"]["gain"] < 1
    products = facts["products"]
    assert sum(Decimal(each["share"]) for each in products.values()) == 1
    more = products["people"]["with_a_tenth_more"]
    assert more["criterion"] in ("total_variation", "cell_sd")
    assert 0.5 < more["then"] / more["expected_error"] < 1


@pytest.mark.nightly
def test_other_budgets_keep_the_shares_of_the_plan(opened: Any) -> None:
    release, plan = opened.release, opened.plan
    shares = [product.request.share for product in plan.products]
    assert len(set(shares)) > 1
    for offer in offers_of(opened.home, release, plan, lambda text: None):
        if offer.plan is not None:
            assert [product.request.share for product in offer.plan.products] == shares


def test_what_is_charged_follows_from_the_shares_that_were_found(opened: Any) -> None:
    """A bundle states parameters, so it is verified and released again without shares."""
    plan = opened.plan
    outcome = opened.run()
    stated = json.loads((outcome.bundle / "privacy.json").read_text())
    assert Decimal(stated["epsilon"]) == plan.epsilon <= 2
    for product in plan.products:
        described = product.describe(plan.privacy)
        own = stated["products"][product.name]
        assert {key: own[key] for key in described if key != "product"} == {
            key: value for key, value in described.items() if key != "product"
        }


def test_shares_that_are_written_out_give_the_same_plan(opened: Any, agency: Any) -> None:
    plan, agency.text = opened.plan, opened.text
    for product in plan.products:
        name, share = product.name, product.request.share
        agency.replace(f"  {name}: {{", f"  {name}: {{share: {share}, ")
    again = load(agency.config).plan()
    assert again.division is None
    assert again.describe() == plan.describe()
    assert again.epsilon == plan.epsilon
