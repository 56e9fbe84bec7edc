"""Noisy tables through the whole flow: files, columns, statement, charge."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from statpress.configs.loading import load
from statpress.mechanisms.errors import ConfigError, InfeasibleBudgetError
from statpress.mechanisms.registry import REGISTRY
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.release.ledger_check import verify_ledger

TABLES = """\
products:
  people: {accept: mostly_noise,
    kind: table, mechanism: laplace, columns: [region, age], share: 0.5}
  births: {accept: mostly_noise, kind: table, mechanism: gaussian, columns: [born], share: 0.25}
  pays: {accept: mostly_noise, kind: table, mechanism: bootstrap, columns: [pay], share: 0.25}
"""


def opened(agency: Any) -> Any:
    """The agency with a config of tables alone."""
    agency.replace_products(TABLES)
    return agency


@pytest.fixture
def tables(agency: Any) -> Any:
    return opened(agency)


def test_every_mechanism_serves_its_table(pressed: Any) -> None:
    plan = load(pressed.config).plan()
    bundle = pressed.bundle
    verify_bundle(bundle)
    stated = json.loads((bundle / "privacy.json").read_text())["products"]
    for product in plan.products:
        name = product.request.name
        table = pq.read_table(bundle / "data" / f"{name}.parquet")
        figures = ["raw", "estimate", "standard_error", "projected"]
        assert table.column_names == [*product.domain.names, *figures]
        csv = pyarrow.csv.read_csv(bundle / "data" / f"{name}.csv")
        assert csv["projected"].to_pylist() == table["projected"].to_pylist()
        projected = np.array(table["projected"])
        assert projected.min() >= 0
        assert projected.sum() == pytest.approx(400)
        noise = name != "pays"
        if noise:
            assert table.num_rows == product.domain.n_cells
            assert table["raw"].to_pylist() == table["estimate"].to_pylist()
            assert set(table["standard_error"].to_pylist()) == {product.mechanism.sd}
        mechanism = REGISTRY[stated[name]["mechanism"]].from_description(stated[name])
        assert mechanism == product.mechanism
        loss = mechanism.loss(n_records=400, n_cells=product.domain.n_cells)
        part = float(Decimal(stated[name]["delta"]))
        assert loss.delta(float(Decimal(stated[name]["epsilon"]))).upper <= part
    assert {path.name for path in (bundle / "data").iterdir()} == {
        f"{name}.{suffix}" for name in stated for suffix in ("parquet", "csv")
    }
    package = json.loads((bundle / "datapackage.json").read_text())
    fields = {f["name"]: f for f in package["resources"][0]["schema"]["fields"]}
    assert fields["raw"]["type"] == "integer"
    assert "intervals" in fields["projected"]["description"]
    assert verify_ledger(pressed.home).entries == 5


def test_the_true_counts_are_within_the_noise(pressed: Any) -> None:
    bundle = pressed.bundle
    rows = pq.read_table(bundle / "data" / "births.parquet").to_pylist()
    source = pq.read_table(pressed.source)["born"].to_pylist()
    for row in rows:
        truth = source.count(row["born"])
        assert abs(row["estimate"] - truth) < 8 * row["standard_error"]
    spread = np.std([row["estimate"] - source.count(row["born"]) for row in rows])
    assert 0.5 < spread / rows[0]["standard_error"] < 1.6


@pytest.mark.nightly
def test_a_seed_gives_the_same_tables_and_marks_the_bundle(tables: Any) -> None:
    tables.replace("epsilon: 1.0", "epsilon: 0.5")
    first = tables.run(insecure_seed=7).bundle
    kept = {p.name: p.read_bytes() for p in (first / "data").iterdir() if p.suffix == ".csv"}
    tables.replace("name: first", "name: second")
    second = tables.run(insecure_seed=7).bundle
    assert kept == {
        p.name: p.read_bytes() for p in (second / "data").iterdir() if p.suffix == ".csv"
    }
    assert not verify_bundle(second)["publishable"]


def test_a_mechanism_that_cannot_serve_a_kind_is_refused(tables: Any) -> None:
    tables.replace("kind: table, mechanism: laplace", "kind: estimate, mechanism: laplace")
    with pytest.raises(ConfigError, match="table"):
        tables.run()
    assert [entry.kind for entry in tables.entries()] == ["register"]


def test_pure_gaussian_tables_do_not_exist(tables: Any) -> None:
    tables.replace("delta: 1.0e-6", "delta: 0")
    with pytest.raises(InfeasibleBudgetError, match="births: No scale"):
        tables.run()


def test_a_scale_may_be_given(tables: Any) -> None:
    tables.replace("mechanism: laplace,", "mechanism: laplace, scale: 17/2,")
    assert load(tables.config).plan().products[0].mechanism.scale == Fraction(17, 2)
    tables.replace("scale: 17/2", "scale: 0.5")
    with pytest.raises(InfeasibleBudgetError, match="too little for the budget"):
        tables.run()
