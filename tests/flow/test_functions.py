"""Whole functions, from the config to evaluating them out of the bundle with NumPy alone."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from statpress.configs.loading import load
from statpress.flows.cli import plan_command as plan_report
from statpress.mechanisms.errors import BundleVerificationError, StatpressError
from statpress.mechanisms.registry import REGISTRY
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.products import evaluate
from statpress.tasks.products.function_product import columns_of
from statpress.tasks.release.ledger_check import check_bundle, verify_ledger
from statpress.tasks.release.refine import open_bundle

PRODUCTS = """\
  age_density: {kind: function, target: kde, columns: [age], bandwidth: 0.1, normalise: true,
                degree: 16, order: 4, share: 0.4}
  age_pay: {kind: function, target: kde, columns: [age, pay], bandwidth: [0.2, 0.3],
            kernel: epanechnikov, degree: 6, order: 2, share: 0.2}
  pay_by_age: {accept: mostly_noise,
    kind: function, mechanism: bernstein, target: regression, columns: [age],
               response: pay, degree: 8, order: 2, monotone: increasing, share: 0.2}
  where: {accept: mostly_noise,
    kind: function, target: svm, columns: [age, pay], label: region, degree: 4, order: 2,
          share: 0.2}
"""
QUERY = """\
import json, sys
import numpy
from evaluate import load
f, g = load("data/age_density.json"), load("data/age_pay.json")
found = {"line": f([0, 33.3, 99]).tolist(), "plane": g([[50, 20], [99, 0.5]]).tolist()}
found["others"] = sorted({name.split(".")[0] for name in sys.modules} & %r)
print(json.dumps(found))
"""


@pytest.fixture
def publishing(agency: Any) -> Any:
    first, _, rest = agency.text.partition("  people:")
    agency.replace(agency.text, f"{first}{PRODUCTS}publish:{rest.partition('publish:')[2]}")
    return agency


def text_of(parts: Any) -> str:
    console = Console(record=True, width=160, file=io.StringIO())
    for part in parts:
        console.print(part)
    return console.export_text()


def test_functions_are_released_and_evaluated_anywhere(publishing: Any) -> None:
    outcome = publishing.run()
    bundle = outcome.bundle
    check_bundle(publishing.home, bundle, verify_bundle(bundle))
    assert verify_ledger(publishing.home).entries == 5
    ours = {"mechanisms", "tasks", "configs", "flows", "scipy", "pyarrow"}
    alone = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, '.')\n{QUERY % ours}"],
        cwd=bundle, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(alone.stdout)
    assert found["others"] == []
    with pytest.raises(BundleVerificationError) as caught:
        verify_bundle(bundle)  # what Python compiled is no part of it, and this is said
    assert "from a copy" in caught.value.next_step
    shutil.rmtree(bundle / "__pycache__")

    stated = json.loads((bundle / "privacy.json").read_text())["products"]
    for name in ("age_density", "age_pay", "pay_by_age", "where"):
        mechanism = REGISTRY["bernstein"].from_description(stated[name])
        assert mechanism.describe().items() <= stated[name].items()
        rows = pq.read_table(bundle / "data" / f"{name}.parquet").to_pylist()
        assert list(rows[0]) == list(columns_of(mechanism))
        assert len(rows) == (mechanism.degree + 1) ** len(mechanism.variables)
        facts = json.loads((bundle / "data" / f"{name}.json").read_text())
        assert facts["steps"] == [row["steps"] for row in rows]
        assert stated[name]["expected_error"]["sup_error"] > 0

    line = evaluate.load(bundle / "data" / "age_density.json")
    assert found["line"] == line([0, 33.3, 99]).tolist()
    ages = np.linspace(0, 99, 1001)
    assert np.trapezoid(line(ages), ages) == pytest.approx(1)
    assert line(ages).min() >= 0
    curve = evaluate.load(bundle / "data" / "pay_by_age.json")
    assert np.diff(curve(ages)).min() >= 0
    assert open_bundle(bundle).without_counts == tuple(stated)
    page = (bundle / "report.html").read_text()
    assert "support vector machine" in page and "it speaks for region = south" in page
    assert "load(" in (bundle / "README.md").read_text()


def test_a_plan_says_what_to_expect_and_compares_kinds_of_noise(publishing: Any) -> None:
    release = load(publishing.config)
    plan = release.plan()
    said = text_of(plan_report.plan_report(release, plan, None))
    for words in ("function by bernstein", "expected largest error", "sd of the noise"):
        assert words in said
    json.dumps(plan_report.plan_facts(release, plan, None), allow_nan=False)
    compared = text_of(plan_report.comparison_report(plan))
    planned = plan.products[0].mechanism.describe()["noise"]
    assert f"bernstein, {planned} noise *" in compared
    assert set(plan_report.comparison_facts(plan)["where"]) == {
        "bernstein, laplace noise",
        "bernstein, gaussian noise",
    }


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("bandwidth: 0.1", "bandwidth: 0", r"age_density.bandwidth: A bandwidth must be above 0"),
        ("degree: 16", "degree: 0", r"age_density.degree: The degree k must be"),
        ("degree: 6, order", "degree: 300, order", "more than 20,000 points"),
        ("columns: [age], b", "columns: [region], b", "does not hold numbers"),
        ("columns: [age, pay], label", "columns: [age, born], label", "does not hold numbers"),
        ("label: region", "label: born", "two classes"),
        ("label: region", "label: nowhere", "nowhere"),
        ("response: pay, ", "", "needs a 'response'"),
        ("target: svm, ", "function: 'statistics:mean', magnitude: 1, ", "no sensitivity"),
        ("target: svm", "target: svn", "kde"),
        ("target: svm", "mechanism: laplace, target: svm", "serves microdata and table"),
    ],
)
def test_bad_declarations_cost_nothing(publishing: Any, old: str, new: str, what: str) -> None:
    publishing.replace(old, new)
    with pytest.raises(StatpressError, match=what):
        publishing.run()
    assert [entry.kind for entry in publishing.entries()] == ["register"]


def test_a_range_that_no_file_could_hold_is_refused_before_the_charge(publishing: Any) -> None:
    publishing.replace("pay: {type: numeric, lower: 0, upper: 100, bins: 5", "pay: {type: numeric, "
                       "lower: 0, upper: 1.0e-200, bins: 5")  # fmt: skip
    kinds = [entry.body for entry in publishing.entries()]
    with pytest.raises(StatpressError) as failed:
        publishing.run()
    assert "too narrow or too wide" in str(failed.value)
    assert "products.age_pay" in str(failed.value)
    assert [entry.body for entry in publishing.entries()] == kinds
