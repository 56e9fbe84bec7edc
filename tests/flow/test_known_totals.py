"""Public totals of columns and pairs through the whole flow: met, published, or refused."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from bad_input import CANARY, N
from people import RECORD, UNIT, ZEROS, put

from statpress.configs.loading import load
from statpress.mechanisms import errors
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.release.query import Question, ask

PRODUCTS = """\
products:
  wide:
    kind: microdata
    mechanism: marginals
    accept: mostly_independent
    columns: [region, age, pay, visits]
    known: {visits: {file: totals/visits.csv}, both: {columns: [pay, region], file: both.csv}}
"""
VISITS = "visits,count\n0,100\n1,150\n2,150\n"


def opened(agency: Any) -> Any:
    """The agency with totals of one column and of a pair, in files."""
    column = "  visits: {type: integer, lower: 0, upper: 3}\n"
    agency.replace_products(column + PRODUCTS)
    put(agency, "visits", [i % 3 for i in range(N)])
    (agency.folder / "totals").mkdir()
    (agency.folder / "totals" / "visits.csv").write_text(VISITS)
    both = ["pay,region,count", "10,north,200", "90,south,150", ",,50"]
    (agency.folder / "both.csv").write_text("\n".join(both) + "\n")
    return agency


@pytest.fixture
def known(agency: Any) -> Any:
    return opened(agency)


def test_known_totals_are_met_and_published_and_not_drawn(pressed: Any) -> None:
    bundle = pressed.bundle
    verify_bundle(bundle)
    rows = pq.read_table(bundle / "data" / "wide.parquet").to_pylist()
    assert Counter(row["visits"] for row in rows) == {0: 100, 1: 150, 2: 150}
    assert Counter((row["pay"], row["region"]) for row in rows) == {
        (10.0, "north"): 200, (90.0, "south"): 150, (None, None): 50,
    }  # fmt: skip
    assert len({row["age"] for row in rows}) > 5
    stated = json.loads((bundle / "privacy.json").read_text())["products"]["wide"]
    assert [each["columns"] for each in stated["known"]] == [["region", "pay"], ["visits"]]
    drawn = [each["columns"] for each in stated["tables"]]
    assert ["age"] in drawn
    assert not any(each in drawn for each in (["visits"], ["region", "pay"], ["pay"], ["region"]))
    pairs = pq.read_table(bundle / "data" / "wide_pairs.parquet").to_pylist()
    relations = {(row["column_1"], row["column_2"]): row for row in pairs}
    assert relations["region", "pay"]["relation"] == "known"
    assert relations["region", "pay"]["standard_error"] == 0
    question = Question(columns=("visits",), conditions={})
    cells = ask(bundle, question)["cells"]
    assert [cell["estimate"] for cell in cells] == pytest.approx([100, 150, 150, 0])
    assert [cell["standard_error"] for cell in cells] == pytest.approx([0] * 4, abs=1e-6)


def test_the_bundles_config_is_complete_without_the_files(pressed: Any, tmp_path: Path) -> None:
    bundle = pressed.bundle
    alone = tmp_path / "alone" / "config.yaml"
    alone.parent.mkdir()
    alone.write_text((bundle / "config.yaml").read_text())
    assert ".csv" not in alone.read_text().split("publish:")[0]
    written, inline = load(pressed.config), load(alone)
    assert inline.text == alone.read_text() == written.text
    assert inline.sha256 == verify_bundle(bundle)["config_sha256"]
    mechanisms = [each.plan().products[0].mechanism for each in (written, inline)]
    totals = [
        {group: table.tolist() for group, table in mechanism.known.items()}
        for mechanism in mechanisms
    ]
    assert totals[0] == totals[1]
    assert totals[0][3,] == [100, 150, 150, 0]


def test_counts_may_stand_in_the_config(known: Any) -> None:
    known.replace("{file: totals/visits.csv}", "{counts: [400, 0, 0, 0]}")
    rows = pq.read_table(known.run().bundle / "data" / "wide.parquet").to_pylist()
    assert {row["visits"] for row in rows} == {0}


def test_a_release_of_known_totals_alone_answers_by_them(known: Any) -> None:
    known.replace("columns: [region, age, pay, visits]", "columns: [region, pay]")
    known.replace("visits: {file: totals/visits.csv}, both", "both")
    found = ask(known.run().bundle, Question(columns=("region",), conditions={"pay": ("missing",)}))
    assert sum(cell["estimate"] for cell in found["cells"]) == pytest.approx(50)


FILES = {
    "": "must begin with the line 'visits,count' ('totals/visits.csv', line 1)",
    "visits,n\n0,400\n": "must begin with the line 'visits,count' ('totals/visits.csv', line 1)",
    "visits,count\n0,400\n1\n": "as many values as the header ('totals/visits.csv', line 3)",
    f"visits,count\n0,399\n{CANARY},1\n": "has no such cell ('totals/visits.csv', line 3)",
    "visits,count\n0,200\n0,200\n": "listed twice, which no table of totals does ("
    "'totals/visits.csv', line 3)",
    "visits,count\n0,400\n1,-1\n": "not a whole number of at least 0 ('totals/visits.csv', line 3)",
    "visits,count\n0,400.5\n": "not a whole number of at least 0 ('totals/visits.csv', line 2)",
    "visits,count\n0,1e2\n": "not a whole number of at least 0 ('totals/visits.csv', line 2)",
    'visits,count\n"' + "0" * 2**18 + '",1\n': "The file is not CSV ('totals/visits.csv')",
    "visits,count\n" + "0,1\n" * 5: "more rows than there are cells (4) ('totals/visits.csv')",
    "visits,count\n0,399\n": "The known totals of 'visits' do not add up to the number of records",
}


@pytest.mark.parametrize("text", FILES)
def test_a_file_of_another_form_is_refused_with_its_line(known: Any, text: str) -> None:
    csv.field_size_limit(131_072)  # frictionless raises it for the whole process
    (known.folder / "totals" / "visits.csv").write_text(text)
    _refused(known, FILES[text])


NAMES = {
    "totals/none.csv": "There is no such file",
    "release.yaml": "'release.yaml' is not a .csv file in or below the config's folder",
    "'\"a\\0.csv\"'"[1:-1]: "is not a .csv file in or below the config's folder",
    "../visits.csv": "'../visits.csv' is not a .csv file in or below the config's folder",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_another_place_is_refused(known: Any, name: str) -> None:
    (known.folder.parent / "visits.csv").write_text(VISITS)
    known.replace("file: totals/visits.csv", f"file: {name}")
    _refused(known, NAMES[name])


@pytest.mark.parametrize("source", ["data/people.csv", "data/*.csv"])
def test_the_source_is_not_taken_for_totals(known: Any, source: str) -> None:
    (known.folder / "data" / "people.csv").write_text(VISITS)
    known.replace("data/source.parquet", source)
    known.replace("file: totals/visits.csv", "file: data/people.csv")
    _refused(known, "'data/people.csv' is the private source")


def test_the_source_is_known_by_any_name(known: Any) -> None:
    source = known.folder / "data" / "people.csv"
    source.write_text(VISITS)
    link = known.folder / "linked.csv"
    link.hardlink_to(source)
    known.replace("file: totals/visits.csv", "file: linked.csv")
    before = "data/source.parquet"
    for name in ("data/people.csv", f"{known.folder}/data/*.csv", f"{known.folder}/**/*.csv"):
        known.replace(before, name)
        _refused(known, "'linked.csv' is the private source")
        before = name


def test_a_source_that_is_no_pattern_hides_no_totals(known: Any) -> None:
    known.replace("data/source.parquet", ".")
    with pytest.raises(errors.StatpressError):
        known.run()


OTHERS = {
    "counts: [400, 0, 0]": "have 3 counts for 4 cells",
    "counts: [100000000000000000000, 0, 0, 0]": "no table of records has",
    "counts: [401, -1, 0, 0]": "have a negative count",
    "columns: [visit], counts: [400]": "no column 'visit'",
    "columns: [region], counts: [400, 0, 0, 0]": "column 'region' differ between tables",
    "columns: [pay, age], counts: [" + "40, " * 10 + "0, " * 49 + "0]": "'pay' differ",
    "columns: [pay, region, age], counts: [" + "400, " + "0, " * 238 + "0]": "one column or of two",
    "file: totals/visits.csv, counts: [400, 0, 0, 0]": "either a file of known totals, or counts",
    "columns: [visits]": "either a file of known totals, or counts",
}


@pytest.mark.parametrize("text", OTHERS)
def test_totals_that_cannot_be_are_refused(known: Any, text: str) -> None:
    known.replace("file: totals/visits.csv", text)
    _refused(known, OTHERS[text])


def test_a_cycle_of_pairs_is_refused(known: Any) -> None:
    pay = "200, 0, 0, 0, 0, 0, 0, 0, 0, 0, "  # all of an age
    counts = f"counts: [{pay}{'0, ' * 30}150, {'0, ' * 9}50, {'0, ' * 8}0]"
    region = f"counts: [200, {'0, ' * 9}150, {'0, ' * 19}50, {'0, ' * 8}0]"
    one, other = f"columns: [pay, age], {counts}", f"columns: [region, age], {region}"
    known.replace("{visits: {file: totals/visits.csv}", f"{{one: {{{one}}}, other: {{{other}}}")
    _refused(known, "close a cycle of pairs")


def test_totals_in_a_structural_zero_are_refused(known: Any) -> None:
    known.replace("products:", "structural_zeros:\n  - {visits: {lower: 2}}\nproducts:")
    _refused(known, "count records in cells that are declared impossible")


def test_totals_where_records_may_be_absent_are_refused(known: Any) -> None:
    known.replace("products:", ZEROS + "products:")
    known.replace(RECORD, UNIT)
    _refused(known, "where the number of records is private")


def test_another_number_of_records_is_refused(known: Any) -> None:
    known.replace("mechanism: marginals", "mechanism: marginals\n    records: 300")
    _refused(known, "only by as many records as there are")


def _refused(agency: Any, words: str) -> None:
    """The run stops before the charge, with these words and the place in the config."""
    with pytest.raises(errors.ConfigError) as caught:
        agency.run()
    assert words in str(caught.value.what)
    assert "release.yaml" in caught.value.where
    assert caught.value.next_step
    assert CANARY not in str(caught.value)
    assert [entry.kind for entry in agency.entries()] == ["register"]
