"""Estimates with intervals, from the config to the bundle."""

from __future__ import annotations

import json
import math
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from statpress.configs.loading import load
from statpress.flows.cli import plan_command as plan_report
from statpress.mechanisms.errors import StatpressError
from statpress.mechanisms.planning.charges import recompute_charge
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.products.estimate_product import COLUMNS
from statpress.tasks.release.ledger_check import check_bundle, verify_ledger

PRODUCTS = """\
  ages: {kind: estimate, columns: [age], statistic: mean, confidence: 0.9, share: 0.1,
    inference: guaranteed}
  middle: {accept: mostly_noise, kind: estimate, columns: [age], statistic: median, share: 0.1}
  pay: {accept: mostly_noise, kind: estimate, columns: [pay], statistic: mean, share: 0.1}
  line: {accept: mostly_noise,
    kind: estimate, columns: [age, wage], statistic: regression, share: 0.1}
  spread: {kind: estimate, mechanism: dp_bootstrap, columns: [age], statistic: variance, share: 0.3}
  own: {kind: estimate, mechanism: subsample_split, function: "own_statistics:second_moment",
    columns: [wage], share: 0.2}
  regions: {kind: table, mechanism: gaussian, columns: [region], share: 0.1}
"""
METHODS = {
    "ages": "joint_moments",
    "middle": "noisy_quantile",
    "pay": "pair_moments",
    "line": "pair_moments",
    "spread": "dp_bootstrap",
    "own": "subsample_split",
}
INFERENCE = {
    "joint_moments": "guaranteed",
    "noisy_quantile": "guaranteed",
    "pair_moments": "asymptotic",
    "dp_bootstrap": "approximate",
    "subsample_split": "approximate",
}


@pytest.fixture
def estimating(agency: Any) -> Any:
    first, _, rest = agency.text.partition("  people:")
    publish = "publish:" + rest.partition("publish:")[2]
    agency.replace(agency.text, first + PRODUCTS + publish)
    agency.replace("  born:", "  wage: {type: numeric, lower: 0, upper: 100, bins: 20}\n  born:")
    table = pq.read_table(agency.source)
    agency.write_source(table.append_column("wage", table["pay"]))
    return agency


@pytest.fixture
def single(estimating: Any) -> Any:
    one = "  ages: {kind: estimate, columns: [age], statistic: mean, confidence: 0.9}\n"
    estimating.replace(PRODUCTS, one)
    return estimating


def test_estimates_of_all_methods_in_one_release(estimating: Any) -> None:
    with Ledger.open(estimating.home.ledger) as ledger:
        ledger.amend(dataset="testdata", policy="zcdp", rho="9", rho_delta="1e-5", reason="new")
    outcome = estimating.run()
    check_bundle(estimating.home, outcome.bundle, verify_bundle(outcome.bundle))
    verify_ledger(estimating.home)
    privacy = json.loads((outcome.bundle / "privacy.json").read_text())
    assert 0.9 < float(privacy["epsilon"]) <= 1
    for name, method in METHODS.items():
        rows = pq.read_table(outcome.bundle / "data" / f"{name}.parquet").to_pylist()
        assert rows == pyarrow.csv.read_csv(outcome.bundle / "data" / f"{name}.csv").to_pylist()
        expected = privacy["products"][name]["expected_error"]
        assert expected["width"] == [row["expected_width"] for row in rows]
        for row in rows:
            assert list(row) == list(COLUMNS)
            assert row["method"] == method
            assert row["inference"] == INFERENCE[method]
            unbounded = row["lower"] is None or row["upper"] is None
            assert (row["shape"] in ("half line", "whole line")) <= unbounded
            low, high = (
                row[end] if row[end] is not None else sign * math.inf
                for end, sign in (("lower", -1), ("upper", 1))
            )
            assert low < high
        raw = json.loads((outcome.bundle / "data" / f"{name}_raw.json").read_text())
        assert raw["n_records"] == 400 and all(raw["numbers"].values())
        if method == "noisy_quantile":
            assert [10 * r["cells"] for r in rows] == [r["upper"] - r["lower"] + 1 for r in rows]
        else:
            assert {row["cells"] for row in rows} == {None}
    (row,) = pq.read_table(outcome.bundle / "data" / "ages.parquet").to_pylist()
    assert row["quantity"] == "mean of age"
    assert row["lower"] >= 0 and row["upper"] <= 99


def test_the_products_on_the_page_of_the_config_can_be_planned(agency: Any) -> None:
    text = (Path(__file__).parents[2] / "configs" / "README.md").read_text()
    block = text.split("### Estimates\n")[1].split("```yaml\n")[1].split("```")[0]
    columns = """domain:
  sex: {type: categorical, categories: [f, m]}
  pay: {type: numeric, lower: 0, upper: 100, bins: 50}
  age: {type: integer, lower: 0, upper: 99}
"""
    first, last = agency.text.partition("domain:")[0], agency.text.partition("publish:")[2]
    agency.replace(agency.text, f"{first}{columns}{block}publish:{last}")
    plan = load(agency.config).plan()
    assert [product.mechanism.name for product in plan.products] == [
        "joint_moments", "noisy_quantile", "pair_moments", "dp_bootstrap"
    ]  # fmt: skip
    assert plan.epsilon <= 1
    assert (
        recompute_charge(plan.describe(), epsilon=plan.epsilon, delta=plan.delta)["epsilon"]
        == plan.epsilon
    )


def test_a_comparison_says_what_every_mechanism_would_do(single: Any) -> None:
    single.replace("statistic: mean", "statistic: median")
    plan = load(single.config).plan()
    facts = plan_report.comparison_facts(plan)["ages"]
    assert "does not serve the median" in facts["joint_moments"]["reason"]
    assert facts["noisy_quantile"]["expected_error"]["noise_sd"] == (None,)
    written = StringIO()
    console = Console(width=200, file=written)
    for part in plan_report.comparison_report(plan):
        console.print(part)
    said = written.getvalue()
    for words in ("noisy_quantile *", "width of the", "why it is not compared"):
        assert words in said
    (reason,) = [line for line in said.splitlines() if "'dp_bootstrap'" in line]
    assert reason.startswith("│ dp_bootstrap") and "does not serve the median" in reason
    json.dumps(facts, allow_nan=False)


@pytest.mark.nightly
def test_the_shipped_example_can_be_planned() -> None:
    plan = load(Path(__file__).parents[2] / "configs" / "census2000_estimates.yaml").plan()
    found = {product.request.name: product for product in plan.products}
    assert found["median_pay"].mechanism.name == "noisy_quantile"
    assert found["returns"].expected_error.quantities[1].startswith("slope of the regression")
    assert found["graduates"].expected_error.quantities == (
        "difference of lweekinc between educ 16 and the rest",
    )
    assert found["pay"].expected_error.width[0] < 0.05
    assert 0.99 < plan.epsilon <= 1


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("statistic: mean", "statistic: mean, mechanism: noisy_quantile", "does not serve"),
        ("columns: [age]", "columns: [region]", "no numbers"),
        ("columns: [age]", "columns: [age, pay]", "takes 1 column"),
        ("columns: [age], statistic: mean", "columns: [pay], statistic: variance", "can lack"),
        ("confidence: 0.9", "confidence: 1.0", "confidence level"),
        ("statistic: mean", "values: [3]", "either a statistic"),
        ("statistic: mean", "statistic: mean, mechanism: bernoulli", "no mechanism"),
        ("statistic: mean", "statistic: mean, mechanism: laplace", "serves microdata and table"),
        ("statistic: mean", "function: 'own_statistics:largest'", "as far as it declares"),
        ("statistic: mean", "function: 'own_statistics:flat'", "declared dimension"),
        (
            "statistic: mean",
            "statistic: mean, mechanism: dp_bootstrap, inference: percentile, replicates: 10",
            "at least 20",
        ),
        ("budget: {epsilon: 1.0", "budget: {rho: 0.1", "Nothing else"),
    ],
)
def test_bad_declarations_cost_nothing(single: Any, old: str, new: str, what: str) -> None:
    if what == "Nothing else":
        single.replace("statistic: mean", "statistic: mean, mechanism: subsample_split")
        what = "No zero-concentrated"
    single.replace(old, new)
    with pytest.raises(StatpressError, match=what):
        single.run()
    assert [entry.kind for entry in single.entries()] == ["register"]


@pytest.mark.nightly
def test_the_report_is_one_page_that_asks_nobody(single: Any) -> None:
    single.replace("title: Test release", 'title: "Pay & <script>births"')
    single.replace("plots: false, ", "")
    page = (single.run().bundle / "report.html").read_text()
    assert "Pay &amp; &lt;script&gt;births" in page and "<script" not in page
    assert not re.findall(r"(?:src|action|@import|url\()[^>]{0,3}https?:", page)
    assert re.findall(r'<h2 id="([^"]*)"', page) == [
        "summary", "product-ages", "columns", "privacy", "provenance",
    ]  # fmt: skip
    assert '<th scope="col">quantity</th>' in page and '<th scope="row">mean of ' in page
    assert page.count("<svg ") == 4  # the estimate's distribution, and three of its protection
