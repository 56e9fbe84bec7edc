"""Plans through the whole flow: composed charges, open mechanisms, budgets of rho."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from bad_input import N
from rich.console import Console

from statpress.configs.loading import PlannedOrder, load
from statpress.configs.order import Order
from statpress.flows.cli import plan_command as plan_report
from statpress.mechanisms.accounting.balls import Bounds
from statpress.mechanisms.errors import (
    BudgetValueError,
    ConfigError,
    InfeasibleBudgetError,
    InternalError,
    StatpressError,
)
from statpress.mechanisms.planning.plan import Plan
from statpress.mechanisms.registry import serving
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.release.ledger_check import verify_ledger

OPEN = """\
products:
  people: {kind: table, mechanism: auto, columns: [region, age], share: 0.5}
  births: {accept: mostly_noise,
    kind: table, mechanism: auto, minimise: cell_sd, columns: [born], share: 0.25}
  pays: {kind: table, mechanism: gaussian, columns: [pay], share: 0.25}
"""


@pytest.fixture
def opened(agency: Any) -> Any:
    """The agency with products whose mechanism is left open."""
    agency.replace_products(OPEN)
    return agency


def text_of(parts: Any) -> str:
    console = Console(record=True, width=160, file=io.StringIO())
    for part in parts:
        console.print(part)
    return console.export_text()


def test_a_composed_release_is_charged_what_its_losses_compose_to(opened: Any) -> None:
    plan = load(opened.config).plan()
    assert plan.added > Decimal("1.3") > plan.epsilon > Decimal("0.98")
    bundle = opened.run().bundle
    charge = next(entry for entry in opened.entries() if entry.kind == "charge").body
    assert Decimal(charge["epsilon"]) == plan.epsilon
    assert verify_ledger(opened.home).entries == 5
    stated = json.loads((bundle / "privacy.json").read_text())
    assert Decimal(stated["epsilon"]) == plan.epsilon
    assert stated["epsilon_lower"] <= stated["epsilon_upper"] <= float(plan.epsilon)
    at_budget = next(p for p in stated["curve"] if p["epsilon"] == float(plan.epsilon))
    assert at_budget["delta_upper"] <= 1e-6
    alone = max(product["attack_advantage"] for product in stated["products"].values())
    added = sum(product["attack_advantage"] for product in stated["products"].values())
    assert alone < stated["attack_advantage"] < added
    # The choice is recorded, and not left to the reader.
    products = stated["products"]
    assert products["people"]["mechanism"] in ("laplace", "gaussian", "bootstrap")
    assert "least expected total variation" in products["people"]["chosen"]
    assert "least expected cell sd" in products["births"]["chosen"]
    assert "chosen" not in products["pays"]
    assert "auto" in (bundle / "config.yaml").read_text()


def test_a_plan_says_shares_choices_savings_and_what_others_would_do(opened: Any) -> None:
    release = load(opened.config)
    plan = release.plan()
    said = text_of(plan_report.plan_report(release, plan, None))
    for words in ("chosen", "least expected", "share", "saved by composing", "proven"):
        assert words in said
    compared = text_of(plan_report.comparison_report(plan))
    assert len(list(plan_report.comparison_report(plan))) == len(plan.products)  # a table each
    for mechanism in ("bootstrap", "laplace", "gaussian"):
        assert mechanism in compared
    assert f"{plan.products[2].request.mechanism} *" in compared
    facts = plan_report.comparison_facts(plan)
    assert set(facts) == {"people", "births", "pays"}
    best = min(
        (c["expected_error"]["projected_total_variation"], name)
        for name, c in facts["people"].items()
        if "expected_error" in c
    )
    assert best[1] == plan.products[0].mechanism.name
    json.dumps(facts)


def test_a_release_within_a_budget_of_rho(opened: Any) -> None:
    opened.replace("epsilon: 1.0, delta: 1.0e-6", "rho: 0.05, delta: 1.0e-6")
    opened.home.ledger.unlink()
    with Ledger.open(opened.home.ledger) as ledger:
        ledger.register(
            dataset="testdata",
            policy="zcdp",
            rho="0.05",
            rho_delta="0",
            adjacency="replace_one",
            unit="record",
            unit_records=1,
            n_records=N,
        )
    opened.run()
    with Ledger.open(opened.home.ledger) as ledger:
        account = ledger.account("testdata")
    assert Decimal("0.0495") < account.spent["rho"] <= Decimal("0.05")
    assert verify_ledger(opened.home).entries == 5
    opened.replace("name: first", "name: second")
    with pytest.raises(StatpressError, match="rho"):
        opened.run()


@pytest.mark.parametrize(
    ("old", "new", "error", "said"),
    [
        ("share: 0.5", "share: 0.6", BudgetValueError, "add up to 1.1"),
        ("epsilon: 1.0, ", "", BudgetValueError, "either epsilon, or rho"),
        ("epsilon: 1.0, ", "epsilon: 1, rho: 1, ", BudgetValueError, "either epsilon, or rho"),
        ("epsilon: 1.0, delta: 1.0e-6", "rho: 1, delta: 0", BudgetValueError, "above 0"),
        ("minimise: cell_sd", "minimise: regret", ConfigError, "total_variation"),
        ("kind: table, mechanism: auto", "kind: film, mechanism: auto", ConfigError, "no kind of"),
        (
            "mechanism: gaussian, columns: [pay]",
            "mechanism: bootstrap, pseudocount: 1, columns: [pay]",
            InfeasibleBudgetError,
            "The smallest epsilon that would do is about",
        ),
        (
            "mechanism: gaussian, columns: [pay]",
            "mechanism: bootstrap, pseudocount: 0, columns: [pay]",
            ConfigError,
            "pseudocount must be between",
        ),
        pytest.param(
            "mechanism: gaussian, columns: [pay]",
            "mechanism: bootstrap, pseudocount: 40, records: 100000, columns: [pay]",
            InfeasibleBudgetError,
            "100000 records at pseudocount 40 pass the budget",
            marks=pytest.mark.nightly,
        ),
        (
            "pay: {type: numeric, lower: 0, upper: 100, bins: 5, missing: true}",
            "pay: {type: numeric, lower: 0, upper: 100, bins: 1}",
            ConfigError,
            "single cell",
        ),
    ],
)
def test_bad_plans_say_what_is_wrong_and_charge_nothing(
    opened: Any, old: str, new: str, error: type[StatpressError], said: str
) -> None:
    opened.replace(old, new)
    with pytest.raises(error, match=said) as caught:
        opened.run()
    assert caught.value.where.startswith("release.yaml:")
    assert [entry.kind for entry in opened.entries()] == ["register"]


class Unstatable(Plan):
    """A plan whose epsilon is not known."""

    @property
    def epsilon_bounds(self) -> Bounds:
        return Bounds(0.0, float("inf"))


def test_a_guarantee_that_cannot_be_stated_fails_before_the_charge(opened: Any) -> None:
    planned = PlannedOrder.of(Order(opened.config))
    with pytest.raises(InternalError):
        opened.run(replace(planned, plan=Unstatable(**vars(planned.plan))))
    assert [entry.kind for entry in opened.entries()] == ["register"]
    assert opened.bundles() == []


def test_wide_microdata_is_compared_in_one_table(agency: Any) -> None:
    """With whatever cannot serve it, and no error that its own mechanism does not state."""
    columns = "".join(f"  w{i}: {{type: integer, lower: 0, upper: 9}}\n" for i in range(12))
    names = ", ".join(f"w{i}" for i in range(12))
    product = f"products:\n  wide: {{kind: microdata, columns: [{names}]}}\n"
    agency.replace_products(columns + product)
    plan = load(agency.config).plan()
    (only,) = plan_report.comparison_report(plan)
    text = text_of([only])
    served = [each.name for each in serving(plan.products[0].kind)]
    assert "marginals *" in text and all(name in text for name in served)
    assert "A noisy table has a row per cell; 1,000,000,000,000 are too many." in text
    assert "KS distance" not in text and "not stated" not in text
