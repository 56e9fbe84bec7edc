"""A whole run: what is in the bundle, what is in the ledger, what is left behind."""

import csv
import json
import os
import re
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from acting import DRAWING, run_acting

from statpress.configs.loading import PlannedOrder, load
from statpress.configs.order import Order
from statpress.flows.release import press
from statpress.mechanisms.errors import (
    BundleVerificationError,
    InsufficientBudgetError,
    InternalError,
    ReleaseGateError,
)
from statpress.mechanisms.planning.plan import Plan
from statpress.mechanisms.tables.bootstrap import Bootstrap
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.release.ledger_check import check_bundle, verify_ledger


def opened(agency: Any) -> Any:
    """The agency as it is."""
    return agency


def test_bundle_holds_what_was_planned(pressed) -> None:
    plan = load(pressed.config).plan()
    bundle = pressed.bundle
    assert bundle == pressed.releases / "first"
    manifest = verify_bundle(bundle)
    assert manifest["publishable"] is True
    assert {path.name for path in (bundle / "data").iterdir()} == {
        f"{product}{part}.{suffix}"
        for product in ("people", "births")
        for part in ("", "_debiased")
        for suffix in ("parquet", "csv")
    }
    people = pq.read_table(bundle / "data" / "people.parquet")
    assert people.num_rows == 400
    assert people.schema.names == ["region", "age", "pay"]
    assert set(people["region"].to_pylist()) <= {"north", "south", "other", None}
    assert set(people["age"].to_pylist()) <= {4.5 + 10 * i for i in range(10)}
    assert set(people["pay"].to_pylist()) <= {10.0, 30.0, 50.0, 70.0, 90.0, None}
    with (bundle / "data" / "people.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["age"] for row in rows] == [
        str(v).removesuffix(".0") for v in people["age"].to_pylist()
    ]
    assert (bundle / "config.yaml").read_text() == pressed.config.read_text()
    privacy = json.loads((bundle / "privacy.json").read_text())
    assert Decimal(privacy["epsilon"]) == plan.epsilon <= 1
    assert Decimal(privacy["delta"]) == plan.delta == Decimal("1e-6")
    for name, stated in privacy["products"].items():
        mechanism = Bootstrap(stated["pseudocount"], stated["records"])
        frame = {"n_records": 400, "n_cells": int(stated["n_cells"])}
        assert mechanism.loss(**frame).epsilon(float(stated["delta"])).upper <= float(
            stated["epsilon"]
        ), name
        for point in stated["curve"]:
            assert point["delta_lower"] <= point["delta_upper"]
            assert mechanism.loss(**frame).delta(point["epsilon"]).upper == point["delta_upper"]
    package = json.loads((bundle / "datapackage.json").read_text())
    assert {r["path"] for r in package["resources"]} == {
        f"data/{path.name}" for path in (bundle / "data").iterdir()
    }


def test_debiased_table_is_the_counts_without_the_pseudocount(pressed) -> None:
    bundle = pressed.bundle
    stated = json.loads((bundle / "privacy.json").read_text())["products"]["births"]
    kappa = float(Fraction(stated["pseudocount"]))
    births = pq.read_table(bundle / "data" / "births.parquet")["born"].to_pylist()
    debiased = pq.read_table(bundle / "data" / "births_debiased.parquet").to_pylist()
    total = 400 + kappa * 51
    for row in debiased:
        drawn = births.count(row["born"])
        assert row["estimate"] == pytest.approx(total * drawn / 400 - kappa)
        p = max(drawn / 400, kappa / total)
        assert row["standard_error"] == pytest.approx(total * np.sqrt(p * (1 - p) / 400))
    assert {row["born"] for row in debiased} == set(births)


def test_ledger_holds_the_charge_and_the_publication(agency) -> None:
    outcome = agency.run()
    kinds = [entry.kind for entry in agency.entries()]
    assert kinds == ["register", "look", "charge", "draw", "publish"]
    charge = agency.entries()[2]
    assert charge.hash == outcome.ledger_entry
    assert charge.body["config_sha256"] == load(agency.config).sha256
    manifest = verify_bundle(outcome.bundle)
    assert manifest["ledger_entry"] == {"sequence": 3, "hash": charge.hash}
    assert agency.entries()[4].body["manifest_sha256"] == manifest["seal"] == outcome.seal
    assert verify_ledger(agency.home).entries == 5
    check_bundle(agency.home, outcome.bundle, manifest)


def test_runs_add_up_until_the_budget_is_spent(agency) -> None:
    agency.amend(epsilon="2")
    agency.replace(", name: first", "")
    first, second = agency.run(), agency.run()
    assert first.bundle != second.bundle
    with Ledger.open(agency.home.ledger, create=False) as ledger:
        spent = ledger.account("testdata").spent
    assert spent["epsilon"] == 2 * Decimal(first.epsilon)
    before = agency.entries()
    with pytest.raises(InsufficientBudgetError):
        agency.run()
    assert agency.entries() == before
    assert len(agency.bundles()) == 2


def test_nothing_is_left_behind_and_what_is_kept_is_private(pressed) -> None:
    home = pressed.home
    assert list((home.root / "work").iterdir()) == []
    assert [path.name for path in pressed.bundles()] == ["first"]
    for folder in (home.root, *(home.root / n for n in ("work", "curator"))):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in (home.root / "curator").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.ledger.stat().st_mode) == 0o600


def test_a_killed_runs_folders_are_removed_and_a_live_ones_are_not(agency) -> None:
    import fcntl

    work, live = (agency.home.folder("work") / (32 * letter) for letter in "ab")
    building, strange = agency.releases / f".building-{32 * 'c'}", agency.releases / ".building-x"
    for folder in (work, live, building, strange):
        folder.mkdir(parents=True)
        (folder / "spill").write_text("x")
    held = os.open(live, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    agency.run()
    assert not work.exists()
    assert not building.exists()
    assert live.exists()
    assert strange.exists()  # not one of ours
    os.close(held)


def test_insecure_seed_repeats_and_is_marked(agency, pressed) -> None:
    first = agency.run(insecure_seed=5)
    assert first.bundle.name == "first-NOT-PUBLISHABLE"
    assert not first.publishable
    assert verify_bundle(first.bundle)["publishable"] is False
    assert "NOT PUBLISHABLE" in (first.bundle / "README.md").read_text()
    agency.replace("name: first", "name: second")
    second = agency.run(insecure_seed=5)
    runs = (first, second, pressed)  # the last one without a seed
    data = [(o.bundle / "data" / "people.csv").read_text() for o in runs]
    assert data[0] == data[1] != data[2]


def rewrite_people(agency, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change a file of the bundle before the release gate looks at it."""
    (path,) = agency.releases.glob(".building-*/data/people.parquet")
    pq.write_table(change(pq.read_table(path)), path)


def test_release_gate_stops_a_file_that_is_not_as_planned(agency) -> None:
    def broken() -> None:
        rewrite_people(agency, lambda table: table.slice(1))

    with pytest.raises(ReleaseGateError, match=r"people\.parquet"):
        run_acting(agency, {"check release": broken})
    assert agency.bundles() == []
    assert [entry.kind for entry in agency.entries()] == ["register", "look", "charge", "draw"]


def test_an_unforeseen_error_after_the_charge_says_that_it_stays_spent(agency) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    with pytest.raises(InternalError) as caught:
        run_acting(agency, {DRAWING: broken})
    charge = agency.entries()[2].body
    spent = f"charged epsilon {charge['epsilon']}, delta {charge['delta']}, which stays spent"
    assert spent in caught.value.what and caught.value.what.endswith("; nothing was published.")
    assert "ZeroDivision" not in str(caught.value) and agency.bundles() == []


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("region", "Zyx-canary-7719"),
        pytest.param("age", 4.0, marks=pytest.mark.nightly),
        pytest.param("pay", 48_151_623.42, marks=pytest.mark.nightly),
    ],
)
def test_release_gate_finds_a_value_outside_the_domain(agency, column: str, value: object) -> None:
    def broken(table: pa.Table) -> pa.Table:
        values = [value, *table[column].to_pylist()[1:]]
        field = table.schema.field(column)
        index = table.schema.get_field_index(column)
        return table.set_column(index, field, pa.array(values, field.type))

    with pytest.raises(ReleaseGateError, match=r"people\.parquet"):
        run_acting(agency, {"check release": partial(rewrite_people, agency, broken)})
    assert agency.bundles() == []


def test_a_name_taken_during_the_run_loses_nothing(agency) -> None:
    def take() -> None:
        (agency.releases / "first").mkdir()
        (agency.releases / "first" / "theirs").write_text("x")

    outcome = run_acting(agency, {"publish": take})
    assert outcome.bundle.name == f"first-{outcome.run_id[:8]}"
    verify_bundle(outcome.bundle)
    assert (agency.releases / "first" / "theirs").read_text() == "x"


def test_verify_against_the_ledger_finds_a_resealed_bundle(pressed, tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(pressed.bundle, tmp_path / "first"))
    manifest = verify_bundle(bundle)
    from statpress.tasks.bundle.manifest import seal

    (bundle / "README.md").write_text("rewritten")
    facts = {k: v for k, v in manifest.items() if k not in ("format", "files", "seal")}
    seal(bundle, facts)
    resealed = verify_bundle(bundle)
    with pytest.raises(BundleVerificationError, match="another seal"):
        check_bundle(pressed.home, bundle, resealed)


@pytest.mark.nightly
def test_verify_against_the_ledger_finds_a_charge_for_another_size(agency) -> None:
    """The same mechanism on more cells would cost less."""

    class Larger(Plan):
        def describe(self) -> list[dict[str, str | int]]:
            return [described | {"n_cells": str(2**40)} for described in super().describe()]

    planned = PlannedOrder.of(Order(agency.config))
    outcome = agency.run(replace(planned, plan=Larger(**vars(planned.plan))))
    assert verify_ledger(agency.home).entries == 5
    with pytest.raises(BundleVerificationError, match="a table of another size"):
        check_bundle(agency.home, outcome.bundle, verify_bundle(outcome.bundle))


def test_flow_reads_like_its_picture() -> None:
    import inspect

    body = inspect.getsource(press)
    order = [
        "read_config", "fix_plan", "check_budget", "rehearse", "check_input", "count_once",
        "check_counts",
        "draw_records", "write_products", "check_products", "publish_bundle",
    ]  # fmt: skip
    places = [body.index(f"{name}(") for name in order]
    assert places == sorted(places)
    charging = [found.start() for found in re.finditer(r"charge_ledger\(", body)]
    assert places[3] < charging[0] < places[4]  # with noisy gates
    assert places[6] < charging[1] < places[7]
    assert "try" not in body
