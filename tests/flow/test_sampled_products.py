"""Products of the exponential mechanism and of density estimates through the whole flow."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from statpress.configs.loading import load
from statpress.flows.cli.plan_command import plan_facts, plan_report
from statpress.mechanisms.errors import (
    AmountError,
    ConfigError,
    InfeasibleBudgetError,
    RecordsError,
    RefinementError,
)
from statpress.mechanisms.planning.charges import recompute_charge
from statpress.mechanisms.registry import REGISTRY
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.release.ledger_check import verify_ledger
from statpress.tasks.release.refine import Options, refine

PRODUCTS = """\
products:
  ages: {kind: microdata, mechanism: exponential_ks, columns: [age], share: 0.2}
  regions: {kind: table, mechanism: sample_resample, columns: [region, pay], candidates: 50,
            share: 0.2}
  births: {accept: mostly_noise,
    kind: microdata, mechanism: density, estimator: kde, columns: [born], share: 0.2}
  pays: {accept: mostly_noise, kind: table, mechanism: density, bins: 3, columns: [pay], share: 0.2}
  people: {accept: mostly_noise,
    kind: microdata, mechanism: smoothed_histogram, columns: [region, age], share: 0.2}
"""
ESTIMATES = ["estimate", "standard_error", "projected"]


def opened(agency: Any) -> Any:
    """The agency with a config of these products alone."""
    agency.replace_products(PRODUCTS)
    agency.replace("delta: 1.0e-6", "delta: 0")
    return agency


@pytest.fixture
def sampled(agency: Any) -> Any:
    return opened(agency)


def test_every_mechanism_serves_its_product(pressed: Any) -> None:
    plan = load(pressed.config).plan()
    bundle = pressed.bundle
    verify_bundle(bundle)
    stated = json.loads((bundle / "privacy.json").read_text())
    assert stated["delta"] == "0"
    assert Decimal(stated["epsilon"]) == plan.epsilon <= 1
    files = {"regions": ["raw", *ESTIMATES], "pays": ["raw", *ESTIMATES]}
    for name, beside in (("ages", "estimates"), ("births", "estimates"), ("people", "debiased")):
        files |= {name: [], f"{name}_{beside}": ESTIMATES}
    assert {path.name for path in (bundle / "data").iterdir()} == {
        f"{name}.{suffix}" for name in files for suffix in ("parquet", "csv")
    }
    for stem, figures in files.items():
        product = next(p for p in plan.products if p.request.name == stem.split("_")[0])
        table = pq.read_table(bundle / "data" / f"{stem}.parquet")
        assert table.column_names == [*product.domain.names, *figures]
        records = product.mechanism.records
        if figures:
            assert sum(table["projected"].to_pylist()) <= 400 * (1 + 1e-9)
        if "raw" in figures:
            assert sum(table["raw"].to_pylist()) == records
        if not figures:
            assert table.num_rows == records
    for product in plan.products:
        described = stated["products"][product.request.name]
        mechanism = REGISTRY[described["mechanism"]].from_description(described)
        assert mechanism == product.mechanism
        loss = mechanism.loss(n_records=400, n_cells=product.domain.n_cells)
        assert loss.delta(float(Decimal(described["epsilon"]))).upper == 0
        assert Decimal(described["epsilon"]) <= Decimal("0.2")
        assert described["unbiased"] is (product.request.name == "people")
    assert verify_ledger(pressed.home).entries == 5


def test_a_bias_is_said_wherever_the_estimates_are(pressed: Any) -> None:
    bundle = pressed.bundle
    lines = (bundle / "README.md").read_text().splitlines()
    advice = {line.split("`")[1]: line for line in lines if line.startswith("- `")}
    resources = json.loads((bundle / "datapackage.json").read_text())["resources"]
    for resource in resources:
        name = resource["name"].split("-")[0]
        texts = {f["name"]: f.get("description", "") for f in resource["schema"]["fields"]}
        if "estimate" in texts:
            biased = name != "people_debiased"
            assert texts["estimate"].startswith("Estimate of" if biased else "Unbiased")
            assert ("bias" in texts["standard_error"]) is biased
            assert (" bias " in advice[name.split("_")[0]]) is biased
    assert "estimate is 0." in advice["ages"]
    product = next(p for p in load(pressed.config).plan().products if p.request.name == "people")
    absent = float(product.mechanism.pseudocount)
    assert f"estimate is minus {absent:,.4g}." in advice["people"]


def test_the_plan_prints_every_parameter(sampled: Any) -> None:
    from rich.console import Console

    sampled.replace("candidates: 50", "candidates: 50, distance: cramer_von_mises")
    release = load(sampled.config)
    facts = plan_facts(release, release.plan(), None)["products"]
    assert facts["regions"]["distance"] == "cramer_von_mises"
    console = Console(width=200, record=True)
    for part in plan_report(release, release.plan(), None):
        console.print(part)
    text = console.export_text()
    assert text.count("bias of the estimates") == 4
    for word in (
        "cramer_von_mises",
        "bandwidth",
        "epsilon for each record",
        "records that are uniform",
    ):
        assert word in text


@pytest.mark.parametrize(
    ("old", "new", "error", "words"),
    [
        ("exponential_ks, columns: [age]", "exponential_ks, columns: [age, pay]",
         ConfigError, "ages.*1 column.*sample_resample"),
        ("exponential_ks,", "exponential_ks, records: 100001,", RecordsError, "ages.*at most"),
        ("candidates: 50", "candidates: 0", ConfigError, "candidates"),
        ("candidates: 50", "candidates: 1000000", ConfigError, "regions.*counts"),
        ("candidates: 50", "distance: series", ConfigError, "regions.*1 column"),
        ("candidates: 50", "smoothness: 2", ConfigError, "series"),
        ("estimator: kde", "estimator: kde, bandwidth: 0", ConfigError, "bandwidth"),
        ("bins: 3", "bins: 7", ConfigError, "pays.*more than the 6 cells"),
        ("bins: 3", "bins: 3, uniform: 0.001", InfeasibleBudgetError, "pays.*share of 0"),
        ("bins: 3", "records: 100000000", InfeasibleBudgetError, "pays.*fewer records"),
        ("smoothed_histogram,", "smoothed_histogram, uniform: 1,", ConfigError, "below 1"),
        ("kind: table, mechanism: density", "kind: table, mechanism: densities",
         ConfigError, "exponential_ks, sample_resample"),
    ],
)  # fmt: skip
def test_what_cannot_serve_is_refused_before_a_charge(
    sampled: Any, old: str, new: str, error: type[Exception], words: str
) -> None:
    sampled.replace(old, new)
    with pytest.raises(error, match=f"(?s){words}"):
        load(sampled.config).plan()


def test_shares_and_bandwidths_are_exact(sampled: Any) -> None:
    sampled.replace("estimator: kde", "estimator: kde, bandwidth: 17/4, uniform: 0.9")
    mechanism = load(sampled.config).plan().products[2].mechanism
    assert mechanism.bandwidth == Fraction(17, 4)
    assert mechanism.uniform == Fraction(9, 10)


@pytest.mark.parametrize(
    ("product", "parameter", "other"),
    [
        (0, "epsilon_per_record", "0.3"),
        (1, "epsilon_per_record", "0.3"),
        (2, "uniform", "1/100"),
        (2, "bandwidth", "1"),
        (3, "bins", 6),
        (3, "records", 9),
        (4, "pseudocount", "1"),
    ],
)
def test_another_parameter_is_another_charge(
    sampled: Any, product: int, parameter: str, other: str | int
) -> None:
    plan = load(sampled.config).plan()
    described, charged = plan.describe(), {"epsilon": plan.epsilon, "delta": plan.delta}
    assert recompute_charge(described, **charged)["epsilon"] == plan.epsilon
    assert parameter in described[product]
    described[product][parameter] = other
    with pytest.raises(AmountError, match="below"):
        recompute_charge(described, **charged)
    described[product]["epsilon"] = "99"  # as if that were stated too
    assert recompute_charge(described, **charged)["epsilon"] > plan.epsilon


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("delta: 0", "delta: 1.0e-6"),
        ("epsilon: 1.0, delta: 0", "rho: 0.1, delta: 1.0e-6"),
    ],
)
def test_other_budgets_are_divided_too(sampled: Any, old: str, new: str) -> None:
    """By composing with a delta, and of zero-concentrated privacy."""
    alone = load(sampled.config).plan()
    sampled.replace(old, new)
    plan = load(sampled.config).plan()
    described = recompute_charge(plan.describe(), epsilon=plan.epsilon, delta=plan.delta)
    assert described["epsilon"] <= plan.epsilon
    if "rho" in new:
        assert Decimal("0.05") < plan.rho <= Decimal("0.1") + Decimal("1e-9")
    else:
        assert plan.epsilon <= 1
        assert plan.added >= alone.added * Decimal("0.99")  # composing never takes away


def test_what_is_refined_is_not_called_better_than_it_is(pressed: Any, tmp_path: Path) -> None:
    bundle = pressed.bundle
    facts = refine(bundle, tmp_path / "alone", Options())
    assert facts["without_counts"] == []
    for name in ("ages", "regions", "births", "pays", "people"):
        beside = {"ages": "_estimates", "births": "_estimates", "people": "_debiased"}
        published = pq.read_table(bundle / "data" / f"{name}{beside.get(name, '')}.parquet")
        derived = pq.read_table(tmp_path / "alone" / "data" / f"{name}.parquet")
        assert derived.select(published.column_names) == published
    package = json.loads((tmp_path / "alone" / "datapackage.json").read_text())
    for resource in package["resources"]:
        texts = {f["name"]: f.get("description", "") for f in resource["schema"]["fields"]}
        assert texts["estimate"].startswith("Unbiased") is resource["name"].startswith("people")
    with pytest.raises(RefinementError, match="'ages' are biased"):
        refine(bundle, tmp_path / "agreed", Options(consistent=True))
    refine(bundle, tmp_path / "agreed", Options(consistent=True, products=("people",)))


def test_auto_never_takes_a_biased_mechanism(sampled: Any) -> None:
    start, end = sampled.text.index("exponential_ks"), sampled.text.index(", columns: [age]")
    sampled.replace(sampled.text[start:end], "auto")
    choice = load(sampled.config).plan().products[0].choice
    assert choice.mechanism not in ("exponential_ks", "sample_resample")
    reasons = {candidate.name: candidate.reason for candidate in choice.candidates}
    assert "biased" in reasons["exponential_ks"] and "biased" in reasons["sample_resample"]
    for name in ("density", "smoothed_histogram"):  # they are not, and draw few
        assert "fewer records than there are" in reasons[name]
    assert reasons["bootstrap"] == reasons["laplace"] == ""


def test_draws_from_a_histogram_agree_with_other_tables(sampled: Any, tmp_path: Path) -> None:
    """A density estimate with a bin for each cell is unbiased, and pooled by its draws' errors."""
    sampled.replace("bins: 3, columns: [pay]", "columns: [age]")
    bundle = sampled.run().bundle
    refine(bundle, tmp_path / "agreed", Options(consistent=True, products=("pays", "people")))
    pays, people = (
        pq.read_table(tmp_path / "agreed" / "data" / f"{name}.parquet").to_pylist()
        for name in ("pays", "people")
    )
    for row in pays:
        parts = [cell["estimate"] for cell in people if cell["age"] == row["age"]]
        assert sum(parts) == pytest.approx(row["estimate"], abs=1e-6)
