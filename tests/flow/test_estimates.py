"""Estimates with intervals, from the config to the bundle."""

from __future__ import annotations

import json
from typing import Any

import pyarrow.parquet as pq
import pytest

from mechanisms.errors import StatpressError
from tasks.estimate_files import COLUMNS, raw_from
from tasks.manifest import verify_bundle

PRODUCTS = """\
  pay_mean: {kind: estimate, columns: [age], statistic: mean, confidence: 0.9, share: 0.5}
  births:"""


@pytest.fixture
def estimating(agency: Any) -> Any:
    first, _, rest = agency.text.partition("  people:")
    agency.replace(agency.text, f"{first}{PRODUCTS}{rest.partition('  births:')[2]}")
    return agency


def test_an_estimate_is_released_with_its_interval(estimating: Any) -> None:
    outcome = estimating.run()
    verify_bundle(outcome.bundle)
    (row,) = pq.read_table(outcome.bundle / "data" / "pay_mean.parquet").to_pylist()
    assert list(row) == list(COLUMNS)
    assert row["quantity"] == "mean of age" and row["method"] == "joint_moments"
    assert row["lower"] < row["estimate"] < row["upper"]
    assert row["lower"] >= 0 and row["upper"] <= 99
    stated = json.loads((outcome.bundle / "privacy.json").read_text())["products"]["pay_mean"]
    assert stated["expected_error"]["width"] == [row["expected_width"]]
    raw = raw_from(json.loads((outcome.bundle / "data" / "pay_mean_raw.json").read_text()))
    assert set(raw.numbers) == {"sum", "sum_of_squares"}
    assert (outcome.bundle / "plots" / "pay_mean.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("statistic: mean", "statistic: median", "No mechanism"),
        ("columns: [age]", "columns: [region]", "no numbers"),
        ("columns: [age]", "columns: [age, pay]", "takes 1 column"),
        ("confidence: 0.9", "confidence: 1.0", "confidence level"),
        ("statistic: mean", "values: [3]", "either a statistic"),
        ("statistic: mean", "statistic: mean, mechanism: bernoulli", "no mechanism"),
        ("statistic: mean", "statistic: mean, mechanism: laplace", "serves table"),
    ],
)
def test_bad_declarations_cost_nothing(estimating: Any, old: str, new: str, what: str) -> None:
    estimating.replace(old, new)
    with pytest.raises(StatpressError, match=what):
        estimating.run()
    assert [entry.kind for entry in estimating.entries()] == ["register"]


def test_the_report_is_one_page_that_asks_nobody(estimating: Any) -> None:
    estimating.replace("title: Test release", 'title: "Pay & <script>births"')
    page = (estimating.run().bundle / "report.html").read_text()
    assert "Pay &amp; &lt;script&gt;births" in page and "<script" not in page
    assert "http:" not in page and "https:" not in page
    assert page.count("<h2>") == 3  # the guarantee and both products
    assert page.count("data:image/png;base64,") == 1
