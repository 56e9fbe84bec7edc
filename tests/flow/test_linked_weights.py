"""Weights of households, which their persons inherit, through the whole flow."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from households import CONFIG, made_up, write
from requirements import needed

import statpress
from statpress.configs.order import Order
from statpress.mechanisms import errors

DATASET = "households"
WEIGHT = """\
weight:
  column: households.wgt
  edges: [0, 10, 20, 50]
  calibrate: {tenure: [9000, 5000, 0], n_persons: [2000, 4000, 3000, 5000]}
  design: {strata: tenure}
rules:
"""


# Every place's tables for weighted questions of several columns.
GROUPS = """\
kind: linked, groups: [{columns: [relation, age, wgt]}, {columns: [relation, tenure, wgt]},
      {columns: [relation_1, relation_2, relation_3]}],"""


def opened(agency: Any) -> Any:
    """An agency with 400 households, each with its weight."""
    text = CONFIG.replace("testdata", DATASET).replace("rules:\n", WEIGHT)
    text = text.replace("columns: [tenure,", "columns: [tenure, wgt,")
    text = text.replace("upper: 90,", "upper: 89, width: 5,")
    formats = "formats: [parquet, csv]"
    agency.text = text.replace(
        "{directory: releases}", f"{{directory: releases, plots: false, {formats}}}"
    )
    agency.config.write_text(agency.text, encoding="utf-8")
    agency.register(dataset=DATASET, unit="household", n_records=400, epsilon="100")
    write(agency.config.parent, *made_up(400))
    path = agency.config.parent / "households.parquet"
    weights = pa.array([5.0 + 3 * (i % 11) for i in range(400)])
    pq.write_table(pq.read_table(path).append_column("wgt", weights), path)
    return agency


@pytest.fixture
def office(agency: Any) -> Any:
    return opened(agency)


@pytest.fixture(scope="module")
def pressed(founded: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An agency with a release of little noise, as ``bundle``: a month of a series.

    Tests only read it.
    """
    agency = opened(founded(tmp_path_factory.mktemp("pressed")))
    agency.replace("kind: linked,", GROUPS)
    agency.replace("epsilon: 3,", "epsilon: 90,")
    for name in ("households", "persons"):
        path = agency.config.parent / f"{name}.parquet"
        shutil.copy(path, path.with_name(f"{name}-2026-01.parquet"))
        agency.replace(f"{name}.parquet", f'"{name}-{{period}}.parquet"')
    agency.replace(
        "privacy:", "series: {name: monthly, period: {by: month, first: 2026-01}}\nprivacy:"
    )
    agency.bundle = agency.run(Order(agency.config).at_period("2026-01")).bundle
    return agency


def test_persons_have_the_raked_weight_of_their_household(pressed: Any) -> None:
    bundle = pressed.bundle
    release = statpress.open(bundle)
    households, persons = release.households(), release.persons()
    merged = persons.merge(households, on="household_id", suffixes=("", "_of_household"))
    assert len(merged) == len(persons)
    assert merged["weight"].tolist() == merged["weight_of_household"].tolist()
    by_size = households.groupby("n_persons")["weight"].sum()
    assert by_size.tolist() == pytest.approx([2000, 4000, 3000, 5000])
    assert persons["weight"].sum() == pytest.approx(4000 + 2 * 3000 + 3 * 5000)
    rows = pq.read_table(bundle / "data" / "survey_calibration.parquet").to_pylist()
    assert [row["total"] for row in rows] == [9000, 5000, 0, 2000, 4000, 3000, 5000]
    stated = json.loads((bundle / "privacy.json").read_text())
    drawn = [each["columns"] for each in stated["products"]["survey"]["tables"]]
    assert all(["wgt", name] in drawn for name in ("n_persons", "relation_1", "age_3"))
    assert any("taken as given" in sentence for sentence in stated["not_covered"])
    assert "Persons have that of their household" in (bundle / "README.md").read_text()
    assert "wgt" in (bundle / "config.yaml").read_text()


def test_persons_are_not_scaled_to_the_public_number_of_households(pressed: Any) -> None:
    release = statpress.open(pressed.bundle)
    found = release.table("relation", of="persons", weight=True)
    assert "scaled_to" not in found.facts
    persons = pq.read_table(pressed.config.parent / "persons.parquet").to_pandas()
    weights = pq.read_table(pressed.config.parent / "households.parquet").to_pandas()["wgt"]
    classes = np.array([5.0, 15.0, 35.0])[np.digitize(weights, [10, 20])]
    there = np.minimum(persons.groupby("hid").size(), 3).reindex(range(400), fill_value=0)
    assert found.frame()["estimate"].sum() == pytest.approx(classes @ there, rel=0.05)
    assert release.table("tenure", weight=True).facts["scaled_to"] == 14000


def test_declared_groups_answer_weighted_questions_of_several_columns(pressed: Any) -> None:
    """A weighted cross table and regression of persons, by the tables of every place."""
    release = statpress.open(pressed.bundle)
    persons, households = (
        pq.read_table(pressed.config.parent / f"{each}.parquet").to_pandas()
        for each in ("persons", "households")
    )
    true = persons[persons["pid"] < 3].merge(households, on="hid")
    true["age"] = true["age"] // 5 * 5 + 2  # the middle of its cell
    true["class"] = np.array([5.0, 15.0, 35.0])[np.digitize(true["wgt"], [10, 20])]
    cells = release.table("relation", "tenure", of="persons", weight=True).facts["cells"]
    sums = true.groupby(["relation", "tenure"])["class"].sum()
    assert len(cells) >= len(sums) == 6
    for cell in cells:
        wanted = sums.get((cell["values"]["relation"], cell["values"]["tenure"]), 0.0)
        assert abs(cell["estimate"] - wanted) < 6 * cell["standard_error"]
    is_child = true["relation"] == "child"
    means = [
        np.average(part["age"], weights=part["class"])
        for part in (true[is_child], true[true["relation"] == "reference"])
    ]
    (child,) = (
        cell
        for cell in release.mean("age", by="relation", of="persons", weight=True).facts["cells"]
        if cell["values"]["relation"] == "child"
    )
    assert abs(child["estimate"] - means[0]) < 6 * child["standard_error"]
    terms = release.regress("age ~ relation", of="persons", weight=True).frame().set_index("term")
    slope = terms.loc["relation[T.child]"]
    assert abs(slope["estimate"] - (means[0] - means[1])) < 6 * slope["standard_error"]
    three = release.table("relation_1", "relation_2", "relation_3").facts["cells"]
    everybody = [c for c in three if [*c["values"].values()] == ["reference", "spouse", "child"]]
    households_of_three = (persons["pid"] == 2).sum()
    off = abs(everybody[0]["estimate"] - households_of_three)
    assert off < 6 * everybody[0]["standard_error"]
    with pytest.raises(errors.NotMeasuredError) as refused:
        release.table("tenure", "n_persons", weight=True)
    assert "weight: name {columns: [tenure, n_persons, wgt]} under 'groups'" in str(refused.value)


def test_a_series_of_households_has_a_page(pressed: Any) -> None:
    listed = (pressed.releases / "monthly" / "series.csv").read_text()
    assert "tenure" in listed and "n_persons" in listed


@pytest.mark.system
def test_the_files_of_stata_and_spss_merge_with_weights(office: Any) -> None:
    """A weighted cross table of persons, as an analyst makes it of either file."""
    pyreadstat = needed("pyreadstat")
    office.replace("formats: [parquet, csv]", "formats: [parquet, dta, sav]")
    office.replace("epsilon: 3,", "epsilon: 90,")
    bundle = office.run().bundle
    release = statpress.open(bundle)
    merged = release.persons().merge(release.households()[["household_id", "tenure"]])
    wanted = merged.pivot_table(
        "weight", "relation", "tenure", aggfunc="sum", observed=True, fill_value=0
    )
    assert wanted.to_numpy().sum() == pytest.approx(4000 + 2 * 3000 + 3 * 5000)
    for suffix, read in (("dta", pyreadstat.read_dta), ("sav", pyreadstat.read_sav)):
        tables = {}
        for stem in ("households", "persons"):
            path = bundle / "data" / f"survey_{stem}.{suffix}"
            tables[stem], meta = read(path, apply_value_formats=True)
            assert "weight" in meta.column_names_to_labels["weight"]
        own = tables["persons"].merge(tables["households"][["household_id", "tenure"]])
        found = own.pivot_table(
            "weight", "relation", "tenure", aggfunc="sum", observed=True, fill_value=0
        )
        assert sorted(found.to_numpy().ravel()) == pytest.approx(sorted(wanted.to_numpy().ravel()))


def test_weighted_figures_of_households_have_intervals(pressed: Any) -> None:
    release = statpress.open(pressed.bundle)
    path: Path = pressed.config.parent / "households.parquet"
    table = pq.read_table(path).to_pandas()
    classes = np.array([5.0, 15.0, 35.0])[np.digitize(table["wgt"], [10, 20])]
    found = release.share("tenure", weight=True, confidence=1 - 1e-9).frame()
    owners = found[found["tenure"] == "own"]
    true = classes[table["tenure"] == "own"].sum() / classes.sum()
    assert owners["lower"].item() < true < owners["upper"].item()
    of_all = release.mean("n_persons", weight=True, of="population").frame()
    assert of_all["sampling"].tolist() == ["strata"]
    with pytest.raises(errors.QueryError, match="weighted figures of them have no intervals"):
        release.mean("n_persons", weight=True, of="persons of a population")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("households.wgt", "wgt", "write 'column: households.NAME'"),
        ("households.wgt", "persons.wgt", "which their persons have"),
        ("households.wgt", "households.tenure", "declared by the edges of 'weight'"),
        ("strata: tenure", "strata: relation", "no column 'relation'"),
        ("strata: tenure", "cluster: age_1", "no column 'age_1'"),
        ("[tenure, wgt,", "[tenure,", "none lists 'wgt'"),
    ],
)
def test_a_weight_that_is_not_of_households_is_refused(
    office: Any, old: str, new: str, words: str
) -> None:
    office.replace(old, new)
    with pytest.raises(errors.ConfigError, match=r"\.yaml") as raised:
        office.run()
    assert words in str(raised.value)
    assert not any(each.kind == "charge" for each in office.entries())


def test_a_weight_out_of_its_range_is_refused_before_the_charge(office: Any) -> None:
    office.replace("edges: [0, 10, 20, 50]", "edges: [6, 10, 20, 50]")
    with pytest.raises(errors.QualityGateError):
        office.run()
    assert not any(each.kind == "charge" for each in office.entries())
