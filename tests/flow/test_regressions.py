"""A regression on several predictors, from the config to the bundle and back to the ledger."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow.parquet as pq
import pytest
from bad_input import N
from ruamel.yaml import YAML

from statpress.configs.loading import load
from statpress.flows.cli import app
from statpress.mechanisms.errors import StatpressError
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.pages.numbers import measured
from statpress.tasks.release.ledger_check import check_bundle, verify_ledger

PRODUCT = """\
  model: {kind: estimate, statistic: {regression: {of: pay, on: [age, region]}}}
"""
RECORDS = np.random.default_rng(11)
AGE = RECORDS.integers(0, 100, N)
REGION = RECORDS.integers(0, 3, N)
PAY = np.clip(20 + 0.4 * AGE + 10 * (REGION == 1) + RECORDS.normal(0, 10, N), 0, 99)


def opened(agency: Any) -> Any:
    first, _, rest = agency.text.partition("  people:")
    publish = "curator: {report: true}\npublish:" + rest.partition("publish:")[2]
    agency.replace(agency.text, first + PRODUCT + publish)
    agency.replace("width: 10}", "width: 1}")
    agency.replace("bins: 5,", "bins: 100,")
    agency.replace("other: true, missing: true", "missing: true")
    agency.replace("dataset: testdata", "dataset: models")
    agency.replace("epsilon: 1.0", "epsilon: 60")
    agency.register(dataset="models", epsilon="1000")
    table = pq.read_table(agency.source)
    names = ["north", "south", None]
    columns = {"age": AGE, "pay": PAY, "region": [names[code] for code in REGION]}
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, [list(values)])
    agency.write_source(table)
    return agency


@pytest.fixture
def regressing(agency: Any) -> Any:
    return opened(agency)


@pytest.fixture(scope="module")
def pressed(founded: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An agency with a release, as ``bundle``, whose report has pictures; tests only read it."""
    agency = opened(founded(tmp_path_factory.mktemp("pressed")))
    agency.replace("plots: false", "plots: true")
    agency.bundle = agency.run().bundle
    return agency


def least_squares() -> np.ndarray:
    """Of the records that have a region, by the middles of cells of pay."""
    there = REGION < 2
    x = np.column_stack([np.ones(N), AGE, REGION == 1]).astype(float)
    return np.linalg.lstsq(x[there], np.floor(PAY[there]) + 0.5, rcond=None)[0]


def test_a_release_has_the_coefficients(pressed: Any) -> None:
    bundle = pressed.bundle
    check_bundle(pressed.home, bundle, verify_bundle(bundle))
    verify_ledger(pressed.home)
    rows = pq.read_table(bundle / "data" / "model.parquet").to_pylist()
    assert [row["quantity"].split(" in the ")[0] for row in rows] == [
        "intercept of the regression of pay on age and region",
        "coefficient of age",
        "coefficient of region south against north",
    ]
    true = least_squares()
    for row, value in zip(rows, true, strict=True):
        assert abs(row["estimate"] - value) < 5 * row["standard_error"]
        assert row["lower"] < value < row["upper"]
        assert (row["method"], row["inference"]) == ("regression_moments", "one variance")
    report = (bundle / "report.html").read_text()
    assert "if residuals have one variance" in " ".join(report.split())
    assert "one variance" in (bundle / "README.md").read_text()
    (page,) = (pressed.home.root / "curator").glob("*.html")
    curator = " ".join(page.read_text().split())
    for value in true:
        assert measured(value) in curator
    stated = json.loads((bundle / "privacy.json").read_text())["products"]["model"]
    assert stated["columns"] == ["pay", "age", "region"]


def test_it_means_the_same_with_a_key_for_the_columns(regressing: Any) -> None:
    plan = load(regressing.config).plan()
    regressing.replace("{regression: {of: pay, on: [age, region]}}",
                       "regression, columns: [pay, age, region]")  # fmt: skip
    assert load(regressing.config).plan().describe() == plan.describe()


def test_each_unit_counts_one_where_the_config_says_so(regressing: Any) -> None:
    persons = [i // 2 for i in range(N)]
    table = pq.read_table(regressing.source)
    regressing.write_source(table.append_column("person", [persons]))
    regressing.replace("unit: record, n_records: 400",
                       f"unit: {{column: person, max_records: 2}}, n_units: {N // 2}")  # fmt: skip
    regressing.replace("dataset: models", "dataset: persons")
    regressing.replace("epsilon: 60", "epsilon: 250")  # half as many units: less noise of each
    regressing.register(dataset="persons", epsilon="1000", unit="column person", unit_records=2,
                        n_records=N)  # fmt: skip
    with pytest.raises(StatpressError, match="nothing says what counts one"):
        load(regressing.config).plan()
    regressing.replace("[age, region]}}", "[age, region]}}, per: unit")
    outcome = regressing.run()
    verify_bundle(outcome.bundle)
    verify_ledger(regressing.home)
    rows = pq.read_table(outcome.bundle / "data" / "model.parquet").to_pylist()
    for row, value in zip(rows, least_squares(), strict=True):
        assert row["quantity"].endswith("each unit counting one")
        assert row["lower"] < value < row["upper"]
    regressing.replace("per: unit", "per: record")
    with pytest.raises(StatpressError, match="'per: unit'"):
        load(regressing.config).plan()


def test_it_is_rehearsed_and_released_again(
    pressed: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = pressed.bundle
    app(["rerelease", str(bundle), "--reprint", "--home", str(pressed.home.root)],
        result_action="return_value")  # fmt: skip
    capsys.readouterr()
    again = [path for path in pressed.releases.iterdir() if path != bundle]
    rows = [pq.read_table(path / "data" / "model.parquet") for path in (bundle, *again)]
    assert len(rows) == 2 and rows[0].equals(rows[1])


def test_the_example_of_the_page_can_be_planned(agency: Any) -> None:
    text = (Path(__file__).parents[2] / "configs" / "README.md").read_text()
    (example,) = re.findall(r"^ {4}(model: .*regression.*)$", text, re.M)
    columns = """domain:
  prestige: {type: numeric, lower: 0, upper: 100, bins: 50}
  educ: {type: integer, lower: 0, upper: 20}
  age: {type: integer, lower: 18, upper: 89, missing: true}
  region: {type: categorical, categories: [east, north, west]}
"""
    first, last = agency.text.partition("domain:")[0], agency.text.partition("publish:")[2]
    agency.replace(agency.text, f"{first}{columns}products:\n  {example}\npublish:{last}")
    agency.replace("model: {", "model: {accept: mostly_noise, ")
    (product,) = load(agency.config).plan().products
    assert product.mechanism.name == "regression_moments"


def test_many_coefficients_are_listed_one_by_one(regressing: Any) -> None:
    regressing.replace("on: [age, region]", "on: [age, region, born]")
    regressing.replace("by: year", "by: year, missing: true")
    with pytest.raises(StatpressError, match="51 categories"):
        load(regressing.config).plan()
    regressing.replace("region, born]", "region]")
    regressing.replace("{type: integer, lower: 0, upper: 99, width: 1}",
                       "{type: integer, lower: 0, upper: 99, width: 20}")  # fmt: skip
    regressing.replace("region]}}}", "region]}}, categories: [age]}")
    readme = (regressing.run().bundle / "README.md").read_text()
    listed = re.findall(r"^  - (coefficient of .*), expected width", readme, re.M)
    assert len(listed) == 5
    assert listed[0].startswith("coefficient of age 29.5 against 9.5 in the regression of pay")


def test_the_schema_takes_either_form(regressing: Any) -> None:
    schema = jsonschema.Draft202012Validator(
        json.loads((Path(__file__).parents[2] / "configs" / "release.schema.json").read_text())
    )
    said = YAML(typ="safe").load(regressing.text)
    for product, valid in (
        ({"statistic": {"regression": {"of": "pay", "on": ["age"]}}}, True),
        ({"statistic": {"regression": {"of": "pay", "on": "age"}}}, True),
        ({"statistic": "regression", "columns": ["pay", "age", "region"]}, True),
        ({"statistic": "regression"}, False),
        ({"statistic": {"regression": {"of": "pay"}}}, False),
        ({"statistic": {"regression": {"of": "pay", "on": []}}}, False),
        ({"statistic": {"regression": {"of": "pay", "on": "age"}}, "columns": ["pay"]}, False),
    ):
        said["products"] = {"model": {"kind": "estimate", **product}}
        assert schema.is_valid(json.loads(json.dumps(said, default=str))) == valid, product


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("on: [age, region]", "on: [age, age]", "'age' is named twice"),
        ("on: [age, region]", "on: [pay]", "'pay' is named twice"),
        ("on: [age, region]", "on: [agee]", "no column 'agee'"),
        ("of: pay", "off: pay", "no key 'off'"),
        ("]}}}", "]}}, columns: [pay]}", "leave out 'columns'"),
        ("]}}}", "]}}, categories: [born]}", "not a predictor"),
        ("of: pay, on: [age, region]", "of: region, on: [age]", "'region' has no numbers"),
    ],
)
def test_a_fault_is_named_by_its_place(regressing: Any, old: str, new: str, what: str) -> None:
    regressing.replace(old, new)
    line = 1 + regressing.text[: regressing.text.index("model:")].count("\n")
    with pytest.raises((StatpressError, ExceptionGroup)) as caught:
        load(regressing.config).plan()
    message = "\n".join(map(str, getattr(caught.value, "exceptions", [caught.value])))
    assert what in message and f"release.yaml:{line}:" in message
