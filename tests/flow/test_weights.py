"""Survey weights through the whole flow: measured, raked, published and asked, or refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from bad_input import N
from people import put
from requirements import needed

import statpress
from statpress.configs.loading import load
from statpress.mechanisms import errors

WEIGHTED = """\
weight:
  column: wgt
  edges: [0, 5, 10, 20, 50]
  calibrate: {region: totals/region.csv, visits: visits.csv}
  design: {strata: region}
products:
  wide:
    kind: microdata
    accept: [mostly_independent, mostly_noise]
    copies: 3
    groups: [{columns: [wgt, visits, region]}]
    columns: [region, pay, visits, wgt]
"""
REGION = "region,count\nnorth,2000\nsouth,1500\nother,100\n,400\n"
VISITS = "visits,count\n0,1000\n1,1000\n2,1500\n3,500\n"


def opened(agency: Any) -> Any:
    """The agency with weights and public totals, in files, at a budget that leaves every cell."""
    column = "  visits: {type: integer, lower: 0, upper: 3}\n"
    agency.replace_products(column + WEIGHTED)
    agency.replace("epsilon: 1.0, delta: 1.0e-6", "epsilon: 20, delta: 1.0e-6")
    agency.amend(epsilon="100", delta="1e-4")
    put(agency, "visits", [i % 4 for i in range(N)])
    put(agency, "wgt", [float(3 + 7 * (i % 3) + i % 5) for i in range(N)])
    put(agency, "region", [("north", "south", None, "east")[i // 5 % 4] for i in range(N)])
    (agency.folder / "totals").mkdir()
    (agency.folder / "totals" / "region.csv").write_text(REGION)
    (agency.folder / "visits.csv").write_text(VISITS)
    return agency


@pytest.fixture
def weighted(agency: Any) -> Any:
    return opened(agency)


def test_records_have_weights_that_add_up_to_public_totals(pressed: Any) -> None:
    bundle = pressed.bundle
    release = statpress.open(bundle)
    for frame in (release.microdata(), *(own for _, own in release.copies().groupby("copy"))):
        regions = frame.assign(region=frame["region"].astype(object).fillna(""))
        by_region = regions.groupby("region")["weight"].sum()
        assert by_region.to_dict() == pytest.approx(
            {"north": 2000, "south": 1500, "other": 100, "": 400}
        )
        by_visits = frame.groupby("visits")["weight"].sum()
        assert by_visits.tolist() == pytest.approx([1000, 1000, 1500, 500])
    rows = pq.read_table(bundle / "data" / "wide_calibration.parquet").to_pylist()
    assert [row["total"] for row in rows] == [2000, 1500, 100, 400, 1000, 1000, 1500, 500]
    assert [row["weighted_records"] for row in rows] == pytest.approx(
        [row["total"] for row in rows]
    )
    stated = json.loads((bundle / "privacy.json").read_text())
    assert stated["products"]["wide"]["weight"] == {
        "column": "wgt",
        "values": [2.5, 7.5, 15.0, 35.0],
        "records": "weight",
        "calibrated": {"region": [2000, 1500, 100, 400], "visits": [1000, 1000, 1500, 500]},
        "strata": "region",
        "cluster": None,
    }
    drawn = [each["columns"] for each in stated["products"]["wide"]["tables"]]
    assert all([name, "wgt"] in drawn for name in ("region", "pay", "visits"))
    assert any("taken as given" in sentence for sentence in stated["not_covered"])
    for page in ("PRIVACY.md", "README.md"):
        assert "taken as given" in (bundle / page).read_text()


def test_the_bundles_config_has_the_totals(pressed: Any, tmp_path: Path) -> None:
    bundle = pressed.bundle
    alone = tmp_path / "alone" / "config.yaml"
    alone.parent.mkdir()
    alone.write_text((bundle / "config.yaml").read_text())
    written, inline = load(pressed.config), load(alone)
    assert ".csv" not in inline.text.split("publish:")[0]
    assert inline.text == written.text
    weights = [each.plan().products[0].mechanism.weight for each in (written, inline)]
    assert weights[0] == weights[1] is not None


def test_an_analyst_asks_for_weighted_figures(pressed: Any) -> None:
    bundle = pressed.bundle
    release = statpress.open(bundle)
    table = pq.read_table(pressed.source).to_pandas()
    classes = np.array([2.5, 7.5, 15.0, 35.0])[np.digitize(table["wgt"], [5, 10, 20])]
    found = release.mean("visits", weight=True, confidence=1 - 1e-9)  # the noise has no seed
    assert found.frame()["lower"][0] < np.average(table["visits"], weights=classes)
    assert found.frame()["upper"][0] > np.average(table["visits"], weights=classes)
    assert any("of each class by its middle" in note for note in found.notes)
    assert release.table("visits", weight=True).frame()["estimate"].sum() == pytest.approx(4000)
    of_all = release.mean("visits", weight=True, of="population").frame()
    assert of_all["sampling"].tolist() == ["strata"]
    by_region = release.mean("visits", by="region", weight=True, of="population").frame()
    assert len(by_region) == 4
    with pytest.raises(errors.NotMeasuredError) as raised:
        release.regress("visits ~ pay", weight=True)
    assert "{columns: [visits, pay, wgt]}" in str(raised.value)
    copied = release.on_copies.regress("visits ~ pay", weight=True, of="population")
    assert copied.frame()["standard_error"].gt(0).all()
    assert copied.frame()["sampling"].tolist() == ["strata", "strata"]
    assert copied.frame()["estimate"].tolist() != pytest.approx(
        release.on_copies.regress("visits ~ pay", of="population").frame()["estimate"].tolist()
    )


def test_unweighted_releases_have_no_weighted_figures(agency: Any) -> None:
    agency.replace("mechanism: bootstrap, columns: [region, age, pay]", "columns: [region, pay]")
    agency.replace("accept: mostly_noise,", "accept: mostly_independent, mechanism: marginals,")
    release = statpress.open(agency.run().bundle)
    with pytest.raises(errors.QueryError, match="no survey weight"):
        release.mean("pay", weight=True)


@pytest.mark.system
def test_stata_and_spss_have_the_weight(weighted: Any) -> None:
    pyreadstat = needed("pyreadstat")
    weighted.replace("formats: [parquet, csv]", "formats: [csv, dta, sav]")
    bundle = weighted.run().bundle
    csv = statpress.open(bundle).microdata()
    for suffix, read in (("dta", pyreadstat.read_dta), ("sav", pyreadstat.read_sav)):
        frame, meta = read(bundle / "data" / f"wide.{suffix}")
        assert frame["weight"].tolist() == pytest.approx(csv["weight"].tolist())
        assert meta.column_names_to_labels["weight"].startswith("The record's weight, raked")
        assert len(meta.column_names_to_labels["weight"]) <= 80
        copies, _ = read(bundle / "data" / f"wide_copies.{suffix}")
        number = {"dta": "copy", "sav": "Imputation_"}[suffix]
        sums = copies[copies[number] > 0].groupby(number)["weight"].sum()
        assert sums.tolist() == pytest.approx([4000.0] * 3)


Change = Callable[[Any], None]


def file(name: str, text: str) -> Change:
    return lambda agency: (agency.folder / name).write_text(text)


def text(old: str, new: str) -> Change:
    return lambda agency: agency.replace(old, new)


FAULTS: dict[str, tuple[Change, str, str]] = {
    "of another population": (
        file("visits.csv", VISITS.replace("500\n3,500", "500\n3,501")),
        "The totals of 'visits' ('visits.csv') add up to 4,001, and the totals of 'region' "
        "('totals/region.csv') add up to 4,000",
        "visits",
    ),
    "an unknown code": (
        file("visits.csv", VISITS.replace("3,", "7,")),
        "has no such cell ('visits.csv', line 5)",
        "visits",
    ),
    "a blank": (
        file("visits.csv", VISITS.replace("1,1000", "1,")),
        "not a whole number of at least 0 ('visits.csv', line 3)",
        "visits",
    ),
    "a cell left out": (
        file("totals/region.csv", REGION.replace(",400\n", "")),
        "no row for region = missing ('totals/region.csv')",
        "region",
    ),
    "nobody": (
        text("visits.csv}", "[0, 0, 0, 0]}"),
        "The totals of 'visits' add up to 0",
        "visits",
    ),
    "too few": (text("visits.csv}", "[4000]}"), "1 totals for the 4 cells of 'visits'", "visits"),
    "a column that is not there": (
        text("region: totals/region.csv", "regoin: totals/region.csv"),
        "The domain declares no column 'regoin'",
        "regoin",
    ),
    "the weight itself": (
        text("strata: region", "strata: wgt"),
        "no column 'wgt' besides that of the weight",
        "strata",
    ),
    "clusters that are strata": (
        text("strata: region", "strata: region, cluster: region"),
        "The clusters are those of the strata",
        "cluster",
    ),
    "no product": (
        text("columns: [region, pay, visits, wgt]", "columns: [region, pay, visits]"),
        "none lists 'wgt'",
        "column",
    ),
    "a product without the design": (
        text("columns: [region, pay, visits, wgt]", "columns: [pay, visits, wgt]"),
        "has no column 'region', which 'weight' names",
        "columns",
    ),
    "another mechanism": (
        text("copies: 3\n    groups: [{columns: [wgt, visits, region]}]", "mechanism: bootstrap"),
        "Microdata by 'bootstrap' have no weight",
        "mechanism",
    ),
    "a weight below 0": (
        text("edges: [0,", "edges: [-1,"),
        "must not be negative",
        "edges",
    ),
    "declared twice": (
        text("  visits: {type", "  wgt: {type: integer, lower: 0, upper: 9}\n  visits: {type"),
        "'wgt' is a column of 'domain' as well",
        "column",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_config_at_fault_is_refused_by_file_and_line(weighted: Any, fault: str) -> None:
    change, words, key = FAULTS[fault]
    change(weighted)
    with pytest.raises(errors.ConfigError) as raised:
        weighted.run()
    assert words in str(raised.value)
    line = int(raised.value.where.split(":")[1])
    assert key in weighted.text.splitlines()[line - 1]
    assert not weighted.bundles()
    assert not any(each.kind == "charge" for each in weighted.entries())


@pytest.mark.parametrize(
    "weight", [50.5, *(pytest.param(each, marks=pytest.mark.nightly) for each in (-0.5, None))]
)
def test_a_weight_out_of_its_range_is_refused_before_the_charge(
    weighted: Any, weight: float | None
) -> None:
    weights = pq.read_table(weighted.source)["wgt"].to_pylist()
    put(weighted, "wgt", [weight, *weights[1:]])
    with pytest.raises(errors.QualityGateError):
        weighted.run()
    assert not weighted.bundles()
    assert not any(each.kind == "charge" for each in weighted.entries())


def test_the_ends_of_the_range_are_weights(weighted: Any) -> None:
    weights = pq.read_table(weighted.source)["wgt"].to_pylist()
    put(weighted, "wgt", [0.0, 50.0, *weights[2:]])
    assert weighted.run().bundle.is_dir()
