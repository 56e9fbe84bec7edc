"""Keys, bars and progress of what is shown on a server."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from statpress.configs.loading import load
from statpress.flows.cli.ledger_commands import account_report
from statpress.flows.facts import account_facts
from statpress.mechanisms.domain.domain import Adjacency, Privacy, Unit
from statpress.tasks.ledger.accounts import Account
from statpress.tasks.ledger.entries import MEASURES, Loss
from statpress.tasks.ledger.home_ledger import register_dataset
from statpress.tasks.orchestration import monitoring
from statpress.tasks.orchestration.monitoring import DrawingProgress, budget_text, plan_row
from statpress.tasks.orchestration.server import key_of
from statpress.tasks.pages.rendering import escaped
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.private_zone.guards import CuratorLog
from statpress.tasks.private_zone.run_context import RunContext
from statpress.tasks.release.ledger_check import read_account


def context_in(folder: Path) -> RunContext:
    return RunContext(home=Home(folder), log=CuratorLog(folder, "run"))


def test_keys_are_fit_for_prefect_and_never_shared() -> None:
    from prefect.client.schemas.actions import ArtifactCreate

    names = [
        "census2000",
        "census-2000",
        "Census2000",
        "census_2000",
        "Löhne",
        "löhne",
        "日本",
        "-",
    ]
    names += ["x" * 200, "x" * 199, "census--2000", " census2000"]
    keys = [key_of(name) for name in names]
    assert len(set(keys)) == len(names)
    assert keys[:2] == names[:2]
    for key in keys:
        assert ArtifactCreate(key=f"{key}-plan").key == f"{key}-plan"


@pytest.mark.parametrize(
    ("limits", "spent", "left"),
    [
        ({"epsilon": "2", "delta": "1e-6"}, {"epsilon": "0.5", "delta": "0"}, "0.75"),
        ({"epsilon": "2", "delta": "1e-6"}, {"epsilon": "0.5", "delta": "9e-7"}, "0.1"),
        ({"epsilon": "2", "delta": "0"}, {"epsilon": "0.5", "delta": "0"}, "0.75"),
        ({"epsilon": "2", "delta": "0"}, {"epsilon": "2.5", "delta": "0"}, "0"),
    ],
)
def test_the_measure_with_the_least_left_counts(
    tmp_path: Any, limits: dict[str, str], spent: dict[str, str], left: str
) -> None:
    frame = Privacy(adjacency=Adjacency.REPLACE_ONE, unit=Unit.RECORD, n_records=10)
    opened = register_dataset(Home(tmp_path), "x", frame, **limits)
    loss = type(opened.limit)
    total = loss({**opened.spent.amounts, **{m: Decimal(a) for m, a in spent.items()}})
    account = Account(opened.registration, opened.policy, opened.limit, total)
    assert account.remaining_share == Decimal(left)
    bar = budget_text(account, account.remaining_share)
    assert f"**{float(left) * 100:.1f} % left**" in bar
    assert bar.count("█") == int(Decimal(left) * 30)


def test_a_panel_s_budget_is_that_of_the_next_period(tmp_path: Path) -> None:
    frame = Privacy(adjacency=Adjacency.REPLACE_ONE, unit=Unit.RECORD, n_records=10)
    limits = {"epsilon": "2", "delta": "0", "design": "any 4"}
    opened = register_dataset(Home(tmp_path), "x", frame, **limits)
    sums = opened.by_period
    for period, epsilon in (("2026-01", "0.5"), ("2026-02", "0.25"), ("2026-03", "1")):
        loss = {**dict.fromkeys(MEASURES, "0"), "epsilon": epsilon}
        sums = sums.plus(period, Loss.of(loss))
    account = replace(opened, spent=sums.total, by_period=sums)
    assert account.remaining_share == Decimal("0.5")  # of .5 for each of four
    text = budget_text(account, account.remaining_share)
    assert "| epsilon | 2 | 1.75 | 0 | 0.25 |" in text
    assert "at most 4 of the periods" in text
    assert "3 periods were charged, 2026-01 to 2026-03. Left is for 2026-04." in text
    shown = [str(each) for each in account_report(account, read_account(account))]
    assert any("3 periods were charged" in each for each in shown)
    assert any("One person, at most: epsilon 1.75" in each for each in shown)
    facts = account_facts(account, period="2026-03")
    assert facts["remaining"] == {"epsilon": "0.25", "delta": "0"}
    assert facts["remaining_for"] == "2026-03"
    assert facts["periods"]["2026-02"] == {"epsilon": "0.25", "delta": "0"}


CONFIG = """\
title: Test
dataset: x
source: {path: x.parquet}
privacy: {adjacency: replace_one, unit: record, n_records: 400}
budget: {epsilon: 1.0, delta: 1.0e-6}
domain: {age: {type: integer, lower: 0, upper: 99, width: 10}}
products:
  people: {kind: microdata, mechanism: bootstrap, columns: [age], share: 0.4}
  ages: {kind: table, mechanism: gaussian, columns: [age], share: 0.3}
  mean: {kind: estimate, columns: [age], statistic: mean, confidence: 0.9, share: 0.2}
  line: {kind: function, target: kde, columns: [age], degree: 4, order: 1, share: 0.1}
publish: {directory: releases, formats: [csv]}
"""


def test_rows_of_a_plan_say_what_each_kind_of_product_errs_by(tmp_path: Path) -> None:
    (tmp_path / "release.yaml").write_text(CONFIG)
    release = load(tmp_path / "release.yaml")
    plan = release.plan()
    people, ages, mean, line = (plan_row(product)["expected error"] for product in plan.products)
    for row, product in ((people, plan.products[0]), (ages, plan.products[1])):
        sd = product.expected_error.cell_sd_average
        assert row.startswith(f"sd of a cell {sd:,.1f} records on average, total variation 0.")
    (width,) = plan.products[2].expected_error.width
    assert mean.startswith(f"expected width: mean of age {width:.5g} (sd of its noise ")
    assert line.startswith(
        f"expected largest error {plan.products[3].expected_error.sup_error:.5g} ("
    )
    verdicts = [plan_row(product)["verdict"] for product in plan.products]
    assert [words.split(":")[0] for words in verdicts[:3]] == ["mostly noise", "usable", "usable"]
    drawn = DrawingProgress.of(context_in(tmp_path), release, plan)
    assert drawn.total == int(plan.products[0].mechanism.describe()["records"]) + 10


def test_markup_in_names_is_shown_as_text() -> None:
    assert escaped("a|b_<i>[x](y)") == r"a\|b\_\<i\>\[x\]\(y\)"


def test_progress_speaks_up_only_when_drawing_takes_long(tmp_path: Path) -> None:
    told: list[float] = []
    clock = [0.0]

    def show(context: RunContext, progress: DrawingProgress) -> None:
        progress.artifact = progress.artifact or "made"
        told.append(progress.done / progress.total)

    for pace, expected in ((0.1, []), (1.0, [0.6, 1.0])):
        progress = DrawingProgress(context_in(tmp_path), "x", 10, clock=lambda: clock[0], show=show)
        told.clear()
        for _ in range(10):
            progress(1)
            clock[0] += pace
        assert told == expected


@pytest.mark.parametrize(
    ("temporal", "period"),
    [
        ({"start": 2000, "end": "2000-12"}, "2000 to 2000-12"),
        ({"start": 2000, "end": 2000}, "2000"),
        ({"end": "2001-06-30"}, "2001-06-30"),
        (None, r"20\d\d-\d\d-\d\d"),
    ],
)
def test_a_run_is_called_after_dataset_period_and_run(
    agency: Any, temporal: dict[str, Any] | None, period: str
) -> None:
    if temporal:
        agency.replace("products:", f"about: {{temporal: {json.dumps(temporal)}}}\nproducts:")
    name = monitoring.run_name(load(agency.config).config, "abcdef0123" * 3)
    assert re.fullmatch(f"testdata, {period}, abcdef01", name)
