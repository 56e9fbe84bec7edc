"""Units of several records and structural zeros through the whole flow."""

from __future__ import annotations

import csv
import json
import traceback
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from bad_input import CANARY, N
from people import RECORD, UNITS, ZEROS, count_persons, persons, put, put_people

from statpress.configs.loading import load
from statpress.mechanisms.errors import (
    ColumnNotFoundError,
    ColumnTypeError,
    ConfigError,
    PolicyMismatchError,
    QualityGateError,
    StatpressError,
)
from statpress.mechanisms.registry import REGISTRY
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.release.ledger_check import verify_ledger

PRODUCTS = """\
products:
  people: {accept: mostly_noise,
    kind: microdata, mechanism: bootstrap, columns: [region, age, pay], share: 0.5}
  ages: {accept: mostly_noise, kind: table, mechanism: laplace, columns: [age, pay], share: 0.25}
  regions: {kind: table, mechanism: gaussian, columns: [region], share: 0.25}
"""


def opened(agency: Any) -> Any:
    """The agency with a unit column, structural zeros that hold, and every mechanism.

    Little enough noise that what is absent, 200 of 480 records, is seen in every product.
    """
    agency.replace_products(ZEROS + PRODUCTS)
    agency.replace("epsilon: 1.0", "epsilon: 3.0")
    count_persons(agency)
    put_people(agency)
    return agency


@pytest.fixture
def units(agency: Any) -> Any:
    return opened(agency)


def test_a_release_of_units(pressed: Any) -> None:
    bundle = pressed.bundle
    plan = load(pressed.config).plan()
    verify_bundle(bundle)
    assert verify_ledger(pressed.home).entries == 6  # two registered, look, charge, draw, publish
    stated = json.loads((bundle / "privacy.json").read_text())
    assert stated["unit"] == "column person"
    assert "all records of one `person`, of which at most 3" in stated["unit_in_words"]
    assert (stated["n_units"], stated["unit_records"], stated["n_records"]) == (160, 3, 480)
    assert "structural zero" in stated["outside_the_guarantee"]
    readme = (bundle / "README.md").read_text()
    assert stated["unit_in_words"] in readme
    assert "fewer rows" in readme
    # region 4 codes, age 10, pay 6: less 2 x 2 ages and pays, and 8 ages of 'other'.
    possible = {"people": 240 - 4 * 4 - 8 * 6 + 1, "ages": 60 - 4 + 1, "regions": 4 + 1}
    for product in plan.products:
        name = product.request.name
        said = stated["products"][name]
        assert int(said["n_cells"]) == product.domain.n_possible == possible[name]
        mechanism = REGISTRY[said["mechanism"]].from_description(said)
        frame = {"n_records": 480, "n_cells": possible[name], "unit_records": 3}
        epsilon, delta = float(said["epsilon"]), float(said["delta"])
        assert mechanism.loss(**frame).delta(epsilon).upper <= delta
        assert mechanism.loss(**(frame | {"unit_records": 4})).delta(epsilon).upper > delta


def test_what_is_published_is_possible_and_not_padded(pressed: Any) -> None:
    bundle = pressed.bundle
    for form in ("parquet", "csv"):
        path = bundle / "data" / f"people.{form}"
        people = pq.read_table(path) if form == "parquet" else pyarrow.csv.read_csv(path)
        assert 100 < people.num_rows < 480  # the padding is not there
        for row in people.to_pylist():
            assert not (row["age"] < 20 and (row["pay"] or 0) > 60)
            assert not (row["region"] == "other" and row["age"] > 20)
    with (bundle / "data" / "ages.csv").open() as file:
        ages = list(csv.DictReader(file))
    assert len(ages) == 56
    assert all(not (float(r["age"]) < 20 and r["pay"] and float(r["pay"]) > 60) for r in ages)
    # 160 persons keep 60 x 3 + 100 records; the absent cell holds the rest of the 480.
    projected = sum(float(row["projected"]) for row in ages)
    mechanism = load(pressed.config).plan().products[1].mechanism
    assert abs(projected - 280) < 12 * mechanism.sd * np.sqrt(57)
    assert projected < 479
    sums = [sum(float(r["projected"]) for r in pq.read_table(f).to_pylist())
            for f in (bundle / "data" / "people_debiased.parquet",
                      bundle / "data" / "regions.parquet")]  # fmt: skip
    assert all(0 < total < 479 for total in sums)


@pytest.mark.nightly
def test_a_seed_repeats_the_choice_of_records_too(units: Any) -> None:
    units.replace("epsilon: 3.0", "epsilon: 0.5")
    first = units.run(insecure_seed=3).bundle
    units.replace("name: first", "name: second")
    second = units.run(insecure_seed=3).bundle
    one, two = ((path / "data" / "people.csv").read_text() for path in (first, second))
    assert one == two


def test_units_of_one_record_need_no_absent_cell(units: Any) -> None:
    units.replace("max_records: 3", "max_records: 1")
    release = load(units.config)
    assert not release.domain.absent
    assert release.privacy.n_records == 160


def _null(agency: Any) -> None:
    put(agency, "person", [None, *persons()[1:]])


def _one_more(agency: Any) -> None:
    put(agency, "person", [*persons()[:-1], "a new one"])


def _gone(agency: Any) -> None:
    agency.write_source(pq.read_table(agency.source).drop_columns(["person"]))


def _real(agency: Any) -> None:
    put(agency, "person", [float(i % UNITS) for i in range(N)])


def _impossible(agency: Any) -> None:
    put(agency, "pay", [99.0] * N)  # of them some below 20 years


def _other_size(agency: Any) -> None:
    agency.replace("max_records: 3", "max_records: 4")


def _other_unit(agency: Any) -> None:
    put(agency, "household", persons())
    agency.replace("column: person", "column: household")


@pytest.mark.parametrize(
    ("breaks", "expected"),
    [
        (_null, QualityGateError), (_one_more, QualityGateError), (_gone, ColumnNotFoundError),
        (_real, ColumnTypeError), (_impossible, QualityGateError),
        (_other_size, PolicyMismatchError), (_other_unit, PolicyMismatchError),
    ],
)  # fmt: skip
def test_a_source_that_is_not_as_declared_stops_the_run_before_the_charge(
    units: Any, breaks: Callable[[Any], None], expected: type[StatpressError]
) -> None:
    breaks(units)
    before = units.entries()
    with pytest.raises(StatpressError) as caught:
        units.run()
    assert type(caught.value) is expected
    entries = units.entries()
    assert entries[: len(before)] == before
    written = ["look"] * (expected is not PolicyMismatchError)
    written += ["refuse"] * (expected in (QualityGateError, ColumnTypeError))
    assert [entry.kind for entry in entries[len(before) :]] == written
    told = "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value))
    assert CANARY not in told
    assert caught.value.__context__ is None


def test_the_charge_holds_what_recomputes_it(pressed: Any) -> None:
    charge = next(entry for entry in pressed.entries() if entry.kind == "charge")
    for described in charge.body["mechanisms"]:
        assert described["unit_records"] == charge.body["unit_records"] == 3
        assert described["n_records"] == charge.body["n_records"] == 480
    scales = [d["scale"] for d in charge.body["mechanisms"] if d["mechanism"] == "laplace"]
    assert Fraction(scales[0]) >= 2 * 3 / Fraction(3, 4)


def test_a_product_of_one_possible_cell_is_refused(agency: Any) -> None:
    """Every source of this size has the same table."""
    zeros = "structural_zeros:\n  - {region: [south, other, null]}\n"
    product = "  only: {kind: table, mechanism: laplace, columns: [region]}\n"
    agency.replace_products(f"{zeros}products:\n{product}")
    put(agency, "region", ["north"] * N)
    with pytest.raises(ConfigError, match=r"products\.only: This product has a single cell"):
        agency.run()
    assert [entry.kind for entry in agency.entries()] == ["register"]


ZERO_ERRORS = {
    "{age: {upper: 14}, region: [north]}": "whole cells",
    "{years: {upper: 19}}": "no column 'years'",
    "{region: [east]}": "does not declare 'east'",
    "{age: {}}": "leave 0 of",
    "{age: {upto: 19}}": "no key 'upto'",
    "{age: 3}": "a list of values, or a range",
    "{age: {upper: yes}}": "a number or a date",
    "{}": "at least 1 item",
}


@pytest.mark.parametrize("pattern", ZERO_ERRORS)
def test_a_pattern_that_says_nothing_is_refused_at_its_place(agency: Any, pattern: str) -> None:
    agency.replace("products:", f"structural_zeros:\n  - {pattern}\nproducts:")
    with pytest.raises(
        ConfigError, match=r"release\.yaml:1[0-9]:[0-9]+: structural_zeros"
    ) as caught:
        load(agency.config)
    assert ZERO_ERRORS[pattern] in caught.value.what


@pytest.mark.parametrize(
    ("unit", "said"),
    [
        ("unit: {column: person, max_records: 0}, n_units: 9", "whole number, 1 or more"),
        ("unit: {column: person, max_records: 2}, n_units: 0", "whole number, 1 or more"),
        ("unit: {column: person}, n_units: 9", "'max_records' is missing"),
        ("unit: {column: person, max_records: 2}, n_records: 9", "Leave out n_records"),
        ("unit: record, n_units: 9", "Leave out n_units"),
        ("unit: person, n_records: 9", "should be 'record'"),
        ("unit: {column: p, max_records: 4611686018427387904}, n_units: 1", "below 2**62"),
    ],
)
def test_a_unit_that_is_not_stated_is_refused_at_its_place(
    agency: Any, unit: str, said: str
) -> None:
    agency.replace(RECORD, unit)
    with pytest.raises(ConfigError, match=r"release\.yaml:4:[0-9]+: privacy") as caught:
        load(agency.config)
    assert said in caught.value.what
