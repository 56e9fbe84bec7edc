"""Estimates and functions of units with several records, through the whole flow."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from bad_input import N
from people import RECORD, UNIT, UNITS, persons, put

from statpress.configs.loading import load
from statpress.mechanisms.errors import AmountError, ConfigError
from statpress.mechanisms.planning.charges import described_loss
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.pages.numbers import measured
from statpress.tasks.release.ledger_check import verify_ledger

PRODUCTS = """\
products:
  ages: {kind: table, share: 0.1, mechanism: gaussian, columns: [age]}
  mean_unit: {kind: estimate, share: 0.1, statistic: mean, columns: [age], per: unit,
    mechanism: joint_moments}
  mean_record: {kind: estimate, share: 0.1, statistic: mean, columns: [age], per: record}
  count_unit:
    {kind: estimate, share: 0.1, statistic: count, values: [south], columns: [region], per: unit,
     mechanism: joint_moments}
  count_record: {kind: estimate, share: 0.1, statistic: count, values: [south],
    columns: [region], per: record, mechanism: joint_moments}
  sum_record: {kind: estimate, share: 0.1, statistic: sum, columns: [age], per: record}
  sum_unit: {kind: estimate, share: 0.1, statistic: sum, columns: [pay], per: unit,
    mechanism: joint_moments, total: {lower: 20, upper: 150}}
  middle: {kind: estimate, share: 0.1, statistic: median, columns: [age], per: unit}
  spread_unit: {kind: estimate, share: 0.1, statistic: variance, columns: [age], per: unit,
    mechanism: pair_moments}
  curve: {kind: function, share: 0.1, target: kde, columns: [age], per: unit, degree: 5}
"""


@pytest.fixture
def units(agency: Any) -> Any:
    """Persons of one or five records, who are older and more often southern if they have five."""
    agency.replace(RECORD, UNIT.replace("max_records: 3", "max_records: 5"))
    agency.replace_products(PRODUCTS)
    agency.replace("dataset: testdata", "dataset: people")
    agency.replace("epsilon: 1.0", "epsilon: 60")
    agency.replace("publish:", "curator: {report: true}\npublish:")
    agency.register(
        dataset="people", unit="column person", unit_records=5, n_records=800, epsilon="1000"
    )
    several = [i < 60 or i >= UNITS for i in range(N)]
    put(agency, "person", persons())
    put(agency, "age", [60 + i % 40 if more else i % 60 for i, more in enumerate(several)])
    put(agency, "region", ["south" if more or i % 9 == 0 else "north"
                           for i, more in enumerate(several)])  # fmt: skip
    put(agency, "pay", [None if i % 5 == 0 else float(i % 97) for i in range(N)])
    return agency


def exact(agency: Any) -> dict[str, float]:
    """What the estimates are of, of the records themselves: a cell's age is its middle."""
    of_unit, totals = defaultdict(list), defaultdict(float)
    for row in pq.read_table(agency.source).to_pylist():
        of_unit[row["person"]].append(
            (row["age"] // 10 * 10 + 4.5, float(row["region"] == "south"))
        )
        totals[row["person"]] += 0 if row["pay"] is None else row["pay"] // 20 * 20 + 10
    records = np.array([record for own in of_unit.values() for record in own])
    shares = np.array([1 / len(own) for own in of_unit.values() for _ in own])
    ages, south = records.T
    mean = shares @ ages / UNITS
    return {
        "mean_unit": mean,
        "mean_record": ages.mean(),
        "count_unit": shares @ south,
        "count_record": south.sum(),
        "sum_record": ages.sum(),
        "sum_unit": np.clip(list(totals.values()), 20, 150).sum(),
        "spread_unit": shares @ (ages - mean) ** 2 / (UNITS - 1),
    }


def test_a_release_counts_records_or_units_as_it_says(units: Any) -> None:
    bundle = units.run().bundle
    verify_bundle(bundle)
    verify_ledger(units.home)
    stated = json.loads((bundle / "privacy.json").read_text())["products"]
    true = exact(units)
    for name, value in true.items():
        (row,) = pq.read_table(bundle / "data" / f"{name}.parquet").to_pylist()
        per = name.rsplit("_")[-1]
        assert f", each {per} counting one" in row["quantity"]
        assert stated[name]["per"] == per
        assert abs(row["estimate"] - value) < 6 * row["noise_sd"]
        assert row["lower"] < value < row["upper"]
        twin = true.get(name.replace("unit", "record") if per == "unit" else
                        name.replace("record", "unit"))  # fmt: skip
        assert twin is None or abs(row["estimate"] - twin) > 6 * row["noise_sd"]
    assert stated["ages"].get("per") is None
    (page,) = (units.folder / "home" / "curator").glob("*.html")
    curator = " ".join(page.read_text().split())
    for value in true.values():  # the curator is shown the same exact values
        assert measured(value) in curator
    report = (bundle / "report.html").read_text()
    for words in (
        "each unit counting one", "each record counting one", "as if all records of a unit",
        "one of its records was drawn",
    ):  # fmt: skip
        assert words in report, words


def test_the_ledger_recomputes_each_loss_for_what_counts_one(units: Any) -> None:
    plan = load(units.config).plan()
    described = {each["product"]: each for each in plan.describe()}
    for product in plan.products:
        found = described_loss(described[product.name])
        assert found.delta(1.0) == product.loss.delta(1.0)
    # Twins: a unit that counts once charged as five records, five records as one.
    losses = {name: described_loss(each).delta(2.0).upper for name, each in described.items()}
    unit, record = described["mean_unit"], described["mean_record"]
    assert described_loss({**unit, "per": "record"}).delta(2.0).lower > losses["mean_unit"]
    assert described_loss({**record, "per": "unit"}).delta(2.0).upper < losses["mean_record"]
    with pytest.raises(AmountError, match="as counting units"):
        described_loss({**described["ages"], "per": "unit"})


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("lower: 20, upper: 150}", "lower: 20, upper: 10}", "below 'upper'"),
        ("sum, columns: [age], per: record", "sum, columns: [age], per: unit", "not given"),
        ("columns: [age], per: unit}", "columns: [age]}", "nothing says what counts one"),
        ("median, columns: [age], per: unit", "median, columns: [age], per: record", "independent"),
        ("variance, columns: [age], per: unit", "variance, columns: [age], per: record", "private"),
        ("columns: [age], per: unit, degree", "columns: [age], per: record, degree", "once"),
        ("sum, columns: [age], per: record", "sum, columns: [age], per: record, inference: "
         "guaranteed", "independent"),
        ("mean, columns: [age], per: record", "mean, columns: [age], per: record, mechanism: "
         "dp_bootstrap", "once"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_names_what_serves(units: Any, old: str, new: str, what: str) -> None:
    units.replace(old, new)
    with pytest.raises(ConfigError, match=what) as refused:
        load(units.config).plan()
    assert any(words in f"{refused.value}" for words in ("'per: unit'", "'per: record'", "finite"))
