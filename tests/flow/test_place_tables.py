"""Tables of places through the whole flow: files, questions, and nothing charged for bad input."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from bad_input import N
from people import RECORD, count_persons, put, put_people
from prepared import OFFICER
from requirements import needed

import statpress
from statpress.configs.loading import PlannedOrder
from statpress.configs.order import Order
from statpress.flows.cli.rehearse_command import run_rehearsal
from statpress.mechanisms.errors import ConfigError, OutputNotWritableError, QueryError
from statpress.mechanisms.places.placed_records import PlacesOfRecords
from statpress.mechanisms.registry import REGISTRY
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.catalogues import sdmx
from statpress.tasks.catalogues.metadata_files import changed_metadata
from statpress.tasks.ledger.entries import public_text
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.run_context import Silent
from statpress.tasks.products import place_product
from statpress.tasks.products.explorer import read_codes
from statpress.tasks.products.noisy_tables import published_marginals, published_places
from statpress.tasks.products.product_kind import kind_of
from statpress.tasks.release.audit import audit
from statpress.tasks.release.ledger_check import verify_ledger
from statpress.tasks.release.opened import open_release
from statpress.tasks.release.query import Question, ask
from statpress.tasks.release.reprint import check_reprint, reprint

FAR = 6.5
"""Standard errors: of eight estimates one is further off with a chance below 1e-9."""

LEAVES = ["A1", "A2", "B1", "B2", "B3", "C"]
PLACES = "state,tract\nA,A1\nA,A2\nB,B1\nB,B2\nB,B3\nC,\nD,D1\n"
GEOGRAPHY = """\
geography:
  place: {levels: [state, tract], file: places.csv, names: names.csv}
"""
PRODUCTS = """\
products:
  people:
    kind: table
    at: {nation: [[age, pay]], state: [[age], [pay]], tract: [[age]]}
    share: 0.6
    accept: mostly_noise
  totals: {kind: table, columns: [age], at: [state], share: 0.2, accept: mostly_noise}
  regions: {kind: table, mechanism: gaussian, columns: [region], share: 0.2, accept: mostly_noise}
"""


def located(agency: Any) -> Any:
    """The agency with places: a state that is its only tract, and a state without records."""
    agency.replace_products(GEOGRAPHY + PRODUCTS)
    column = f"  place: {{type: categorical, categories: [{', '.join(LEAVES)}]}}\n"
    agency.replace("geography:", f"{column}geography:")
    put(agency, "place", [LEAVES[i * i % 6] for i in range(N)])
    (agency.folder / "places.csv").write_text(PLACES)
    (agency.folder / "names.csv").write_text("place,name\nA,Alpha & Co\nB,Beta\n")
    return agency


@pytest.fixture
def places(agency: Any) -> Any:
    return located(agency)


@pytest.fixture(scope="module")
def pressed(founded: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An agency with places and a release, as ``bundle``, which tests only read."""
    agency = located(founded(tmp_path_factory.mktemp("pressed")))
    agency.bundle = agency.run().bundle
    return agency


def counts_of(agency: Any) -> dict[str, int]:
    """The number of records of each place; places without any are left out."""
    counted = pq.read_table(agency.source).column("place").to_pandas().value_counts()
    return {str(place): int(count) for place, count in counted.items()}


def read(bundle: Path, stem: str) -> Any:
    one = pq.read_table(bundle / "data" / f"{stem}.parquet").to_pandas()
    other = pyarrow.csv.read_csv(bundle / "data" / f"{stem}.csv").to_pandas()
    assert np.allclose(one["estimate"], other["estimate"])
    return one


def test_a_release_and_its_files(pressed: Any) -> None:
    bundle = pressed.bundle
    verify_bundle(bundle)
    assert verify_ledger(pressed.home).entries == 5  # registered, look, charge, draw, publish
    stems = {path.stem for path in (bundle / "data").iterdir()}
    assert stems == {
        "people_nation", "people_state", "people_state_2", "people_tract", "people_places",
        "totals_state", "totals_places", "regions",
    }  # fmt: skip
    nation, state, tract = (
        read(bundle, f"people_{level}") for level in ("nation", "state", "tract")
    )
    assert list(tract.columns) == [
        "tract", "age", "raw", "estimate", "standard_error", "lower", "upper", "projected",
    ]  # fmt: skip
    assert sorted(set(tract["tract"])) == ["A1", "A2", "B1", "B2", "B3", "C", "D1"]
    for one, other in ((nation, state), (state, tract)):
        sums = [each.groupby("age")[["estimate", "projected"]].sum() for each in (one, other)]
        assert np.allclose(*(each["estimate"] for each in sums))
        assert (sums[0]["projected"] == sums[1]["projected"]).all()
        assert other["projected"].min() >= 0
    assert nation["projected"].sum() == N
    assert nation["estimate"].sum() == pytest.approx(N)
    assert ((tract["estimate"] - tract["lower"]) / tract["standard_error"]).round(6).eq(1.96).all()
    first, same = (each[each.iloc[:, 0] == "C"].reset_index(drop=True) for each in (state, tract))
    assert (first["raw"] == same["raw"]).all() and np.allclose(first["estimate"], same["estimate"])
    stated = json.loads((bundle / "privacy.json").read_text())["products"]["people"]
    mechanism = REGISTRY["place_tables"].from_description(stated)
    loss = mechanism.loss(n_records=N, n_cells=2, unit_records=1)
    assert loss.delta(float(stated["epsilon"])).upper <= float(stated["delta"])
    files = [each["file"] for each in stated["tables"]]
    assert files == ["people_nation", "people_state", "people_state_2", "people_tract"]
    assert "A1" in (bundle / "config.yaml").read_text()
    assert "`people_state_2`" in (bundle / "README.md").read_text()
    report = (bundle / "report.html").read_text()
    assert "Alpha &amp; Co" in report and "None" not in report
    tables = json.loads((bundle / "csvw.json").read_text())["tables"]
    columns = {each["url"]: each["tableSchema"]["columns"] for each in tables}
    keys = {each["url"]: each["tableSchema"].get("primaryKey") for each in tables}
    tracts = {"base": "string", "format": "^(A1|A2|B1|B2|B3|C|D1)$"}
    assert (found := columns["data/people_tract.csv"][0])["name"] == "tract"
    assert found["datatype"] == tracts
    assert keys["data/people_places.csv"] == ["level", "place"]
    spatial = json.loads((bundle / "dcat.jsonld").read_text())["dct:spatial"]
    found = [(each["dct:type"], each["dct:identifier"]) for each in spatial]
    tracts = ["A1", "A2", "B1", "B2", "B3", "C", "D1"]
    assert found == [*(("state", each) for each in "ABCD"), *(("tract", each) for each in tracts)]
    again = reprint(bundle)
    assert check_reprint(again.bundle)


def test_questions_to_places(places: Any) -> None:
    """Any place and union, by the terminal's question and in Python, with the error of the sum."""
    places.replace("epsilon: 1.0", "epsilon: 20.0")
    places.register(dataset="testdata2", epsilon="50")
    places.replace("dataset: testdata", "dataset: testdata2")
    bundle, exact = places.run().bundle, counts_of(places)

    def asked(*columns: str, **where: str) -> list[dict[str, Any]]:
        conditions = {name: tuple(values.split()) for name, values in where.items()}
        question = Question(columns=columns, conditions=conditions, product="people")
        found: list[dict[str, Any]] = ask(bundle, question)["cells"]
        return found

    for cell in asked("tract"):
        apart = cell["estimate"] - exact.get(cell["values"]["tract"], 0)
        assert abs(apart) < FAR * cell["standard_error"]
    (union,) = asked("nation", tract="A1 B3 C")
    true = sum(exact.get(place, 0) for place in ("A1", "B3", "C"))
    assert abs(union["estimate"] - true) < FAR * union["standard_error"]
    (whole,) = asked("nation", state="B")
    parts = asked("tract", state="B")
    assert [cell["values"]["tract"] for cell in parts] == ["B1", "B2", "B3"]
    assert whole["estimate"] == pytest.approx(sum(cell["estimate"] for cell in parts))
    apart = sum(cell["standard_error"] ** 2 for cell in parts) ** 0.5
    assert whole["standard_error"] < 0.999 * apart  # twin: errors added up as if independent
    release = statpress.open(bundle, product="people")
    assert release.columns["state"] == ["A", "B", "C", "D"]
    means = release.mean("age", by="state").frame()
    assert means["standard_error"].iloc[0] > 0
    with pytest.raises(QueryError, match="level of places"):
        release.share("state")
    assert not release.changes(release).frame()["changed"].any()
    assert (release.change(release).table("state").frame()["estimate"] == 0).all()
    with pytest.raises(QueryError, match="between places"):
        release.difference("age", by="state")
    with pytest.raises(QueryError, match="counted only"):
        release.table("state", of="population")
    with pytest.raises(Exception, match="No measured table holds") as refused:
        asked("tract", "pay")
    assert "state: pay" in refused.value.next_step
    with pytest.raises(QueryError, match="not clear which product"):
        ask(bundle, Question(columns=("state",), conditions={}))


def test_the_bundle_gives_back_what_was_drawn(pressed: Any) -> None:
    bundle = pressed.bundle
    stated = json.loads((bundle / "privacy.json").read_text())["products"]["people"]
    resources = json.loads((bundle / "datapackage.json").read_text())["resources"]
    release = published_places(bundle, "people", stated, resources)
    assert release.digest() == stated["raw_sha256"]
    estimates = release.estimates()
    for table, each in zip(release.tables, stated["tables"], strict=True):
        written = read(bundle, each["file"])["estimate"]
        assert np.allclose(estimates.table(table.level, table.group).ravel(), written)


@pytest.mark.nightly
def test_the_curator_sees_true_errors_and_an_audit_holds(places: Any) -> None:
    places.replace("publish:", "curator: {report: true}\npublish:")
    places.replace("epsilon: 1.0", "epsilon: 3.0")
    outcome = places.run()
    (page,) = (places.home.root / "curator").glob("*.html")
    text = page.read_text()
    assert "tract: age, root mean square error" in text
    assert "cells whose 95 % interval holds the count" in text
    assert outcome.bundle is not None
    places.replace_products(PRODUCTS.partition("  totals:")[0].replace("0.6", "1"))
    order = PlannedOrder.of(Order(places.config))
    found = audit(order.release, order.plan, runs=400, announce=lambda text: None, insecure_seed=8)
    (people,) = found
    assert people.caught and not people.contradicted  # the twin has half the noise
    assert people.blind is None


@pytest.mark.nightly
def test_units_of_several_records_and_a_private_size(places: Any) -> None:
    """Absent records are in no place; nothing tells how many there are."""
    count_persons(places)
    put_people(places)
    bundle = places.run().bundle
    verify_bundle(bundle)
    nation = read(bundle, "people_nation")
    assert nation["estimate"].sum() != pytest.approx(480, abs=1e-6)
    (cell,) = ask(bundle, Question(columns=("nation",), conditions={}, product="people"))["cells"]
    assert abs(cell["estimate"] - N) < 6 * cell["standard_error"] + 80
    assert cell["standard_error"] > 0


def test_add_remove(places: Any) -> None:
    places.replace(f"replace_one, {RECORD}", "add_remove, unit: record, n_records: {about: 300}")
    places.replace("dataset: testdata", "dataset: panel")
    places.register(dataset="panel", adjacency="add_remove", n_records=None)
    bundle = places.run().bundle
    verify_bundle(bundle)
    stated = json.loads((bundle / "privacy.json").read_text())
    assert abs(stated["estimated_records"] - N) < 6 * stated["estimated_records_sd"]
    assert stated["products"]["people"]["adjacency"] == "add_remove"


@pytest.mark.parametrize(
    "fixture", [pytest.param("places", marks=pytest.mark.nightly), "with_records"]
)
@pytest.mark.usefixtures("judged_here")
def test_a_rehearsal_needs_no_source(fixture: str, request: pytest.FixtureRequest) -> None:
    agency = request.getfixturevalue(fixture)
    agency.source.unlink()
    order = PlannedOrder.of(Order(agency.config))
    folder = run_rehearsal(order, agency.folder / "rehearsals", Silent()).bundle
    assert (folder / "data" / "people_tract.csv").is_file()
    assert fixture == "places" or "place" in (folder / "data" / "records.csv").read_text()


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (PLACES + "B,A1\n", "line 9: The place 'A1' lies in 'B' here and in 'A' on line 2"),
        (PLACES.replace("B3", "B4"), "'B3' of the column 'place' is not in the file"),
        (PLACES + ",X\n", "line 9: A code is blank"),
        (PLACES + "A,A1\n", "line 9: The place 'A1' is listed twice"),
        ("place,within\nA,B\nB,A\n", "line 2: The place 'A' lies in itself"),
    ],
)
def test_bad_places_are_named_and_nothing_is_charged(places: Any, lines: str, problem: str) -> None:
    (places.folder / "places.csv").write_text(lines)
    with pytest.raises(ConfigError) as refused:
        places.run()
    assert problem in str(refused.value)
    assert [entry.kind for entry in places.entries()] == ["register"]
    assert places.bundles() == []


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[Path, int]:
    """Bytes that are free in some folders and below them, the innermost first; else plenty."""
    said: dict[Path, int] = {}

    def usage(path: Path) -> SimpleNamespace:
        own = next((said[each] for each in (path, *path.parents) if each in said), 2**40)
        return SimpleNamespace(free=own)

    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(Path(path)))
    return said


def test_a_disk_without_room_for_the_tables_is_told_before_the_charge(
    places: Any, free: dict[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drawn and whole numbers lie in files of the run's folder, eight bytes each."""
    monkeypatch.setattr(place_product, "bytes_on_disk", lambda numbers: 8 * numbers)
    plan = PlannedOrder.of(Order(places.config)).plan
    (tables,) = (each for each in plan.products if each.name == "people")
    files = sum(kind_of(each).working_memory(each).files for each in plan.products)
    assert files >= 16 * tables.mechanism.rows(n_cells=0)
    values = sum(kind_of(each).publication(each).most_values for each in plan.products)
    bundle = 4 * values * 2 + 2**20
    work, everywhere = places.home.root / "work", Path("/")
    for little, where in (
        ({work: files - 1}, "private folder may need"),
        ({work: 2**40, everywhere: bundle + files - 1}, "together"),
    ):
        free.update(little)
        with pytest.raises(OutputNotWritableError, match=f"{where}.*Nothing was charged"):
            places.run()
        assert verify_ledger(places.home).entries == 1
    free.clear()
    places.run()


def test_a_home_without_room_for_a_bundle_under_review_is_told_before_the_charge(
    places: Any, free: dict[Path, int]
) -> None:
    """It waits for its approval in the home, whatever the publishing directory has free."""
    with Ledger.open(places.home.ledger) as ledger:
        ledger.set_approvers(dataset="testdata", approvers=[public_text(OFFICER)])
    places.replace("name: first", "name: first, review: required")
    free[places.home.root] = 2**20
    with pytest.raises(OutputNotWritableError, match=r"bundle may need.*Nothing was charged"):
        places.run()
    assert verify_ledger(places.home).entries == 2  # the data set and its approvers


@pytest.mark.system
@pytest.mark.nightly
def test_tables_of_places_in_sdmx_have_a_reference_area(
    places: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed("pysdmx")
    from pysdmx.io import get_datasets, read_sdmx

    cycle = "{state: [[age, pay], [pay, region], [age, region]]}"  # the last is not read
    places.replace("columns: [age], at: [state]", f"at: {cycle}")
    places.replace("domain:", "about:\n  publisher: {name: Office}\ndomain:")
    places.replace("publish: {", "publish: {sdmx: true, ")
    with monkeypatch.context() as patched:  # a table may have ten million rows
        patched.setattr(sdmx, "observations", None)
        bundle = places.run().bundle
    stems = [*(f"people_{each}" for each in ("nation", "state", "state_2", "tract")),
             *(f"totals_state{each}" for each in ("", "_2", "_3"))]  # fmt: skip
    made = {path.stem for path in (bundle / "sdmx").glob("*.csv")}
    assert made == {*stems, "regions"}
    for stem in stems:
        structure = bundle / "sdmx" / f"{stem}_structure.xml"
        read_sdmx(structure, validate=True)
        (found,) = get_datasets(bundle / "sdmx" / f"{stem}.csv", structure)
        table = pq.read_table(bundle / "data" / f"{stem}.parquet").to_pandas()
        assert (found.data["REF_AREA"] == table.iloc[:, 0]).all()
        assert (found.data["OBS_VALUE"] == table["estimate"]).all()
        names = {each.id: each for each in found.structure.components}
        assert {each.id for each in names["REF_AREA"].enumeration} == set(table.iloc[:, 0])
        assert ("PROJECTED" in names) == ("projected" in table) == (stem != "totals_state_3")
        assert f"sdmx/{stem}.csv" in (bundle / "report.html").read_text()
    verify_bundle(bundle)
    own = bundle / "sdmx" / "people_state.csv"
    own.write_text(own.read_text().replace("A", "B", 1))
    assert changed_metadata(bundle) == ["sdmx/people_state.csv"]
    own.unlink()  # as in a bundle of an earlier version
    assert changed_metadata(bundle) == []


@pytest.mark.nightly
def test_known_totals_are_met_by_estimates_and_whole_numbers(places: Any) -> None:
    """Twin: the same sizes as mere proportions are not met."""
    exact = counts_of(places)
    lines = "".join(f"{place},{exact.get(place, 0)}\n" for place in [*LEAVES, "D1"])
    (places.folder / "sizes.csv").write_text(f"place,size\n{lines}")
    places.replace("names: names.csv", "sizes: sizes.csv, known_totals: true")
    found = read(places.run().bundle, "people_tract").groupby("tract")[["estimate", "projected"]]
    for place, sums in found.sum().iterrows():
        assert sums["projected"] == exact.get(str(place), 0)
        assert sums["estimate"] == pytest.approx(exact.get(str(place), 0), abs=1e-6)
    places.replace(", known_totals: true", "")
    places.replace(", name: first}", ", name: second}")
    twin = read(places.run().bundle, "people_tract").groupby("tract")["estimate"].sum()
    assert any(abs(found - exact.get(str(place), 0)) > 1e-3 for place, found in twin.items())


RECORDS = """\
  records:
    {kind: microdata, columns: [age, pay], places: people, copies: 2, share: 0.5,
     accept: [mostly_noise, mostly_independent]}
"""


@pytest.fixture
def with_records(places: Any) -> Any:
    """The agency with records that get places by the tables of ``people``."""
    start, end = places.text.index("  totals:"), places.text.index("publish:")
    places.replace(places.text[start:end], RECORDS)
    places.replace("share: 0.6", "share: 0.5")
    places.replace("epsilon: 1.0", "epsilon: 3.0")
    return places


def test_records_have_the_places_of_the_tables(with_records: Any) -> None:
    bundle = with_records.run().bundle
    verify_bundle(bundle)
    records, copies = (
        pq.read_table(bundle / "data" / f"{stem}.parquet").to_pandas()
        for stem in ("records", "records_copies")
    )
    assert list(records.columns) == ["age", "pay", "place"] and len(records) == N
    assert list(copies.columns) == ["age", "pay", "copy"]
    assert list(open_release(bundle).copies("records").columns) == ["age", "pay", "copy"]
    assert len(open_release(bundle, product="records").on_copies.table("age").frame())
    assert list(records["place"]) == places_again(bundle)
    again = reprint(bundle)
    assert check_reprint(again.bundle)
    stated = json.loads((bundle / "privacy.json").read_text())["products"]
    assert stated["records"]["places"] == "people"
    assert stated["records"]["columns"] == ["age", "pay"]
    text = (bundle / "README.md").read_text()
    assert "`place` is the place of a record" in text and "**Places of records**" in text
    # What was measured answers as ever, of the nation and of places.
    of_nation = ask(bundle, Question(columns=("age",), conditions={}, product="records"))
    assert sum(cell["estimate"] for cell in of_nation["cells"]) == pytest.approx(N)
    with pytest.raises(QueryError, match="no column 'place'"):
        ask(bundle, Question(columns=("place",), conditions={}, product="records"))
    of_places = ask(bundle, Question(columns=("state",), conditions={}, product="people"))
    assert sum(cell["estimate"] for cell in of_places["cells"]) == pytest.approx(N)
    opened = statpress.open(bundle, product="records")
    assert opened.columns.keys() == {"age", "pay"}


@pytest.mark.parametrize("frame", ["add_remove", pytest.param("units", marks=pytest.mark.nightly)])
def test_records_have_places_where_the_size_is_private(with_records: Any, frame: str) -> None:
    """There are as many as estimated, and each has a place; absent ones have neither."""
    if frame == "units":
        count_persons(with_records)
        put_people(with_records)
    else:
        about = "add_remove, unit: record, n_records: {about: 300}"
        with_records.replace(f"replace_one, {RECORD}", about)
        with_records.replace("dataset: testdata", "dataset: people")
        with_records.register(dataset="people", adjacency="add_remove", n_records=None)
    bundle = with_records.run().bundle
    verify_bundle(bundle)
    records = pq.read_table(bundle / "data" / "records.parquet").to_pandas()
    assert list(records["place"]) == places_again(bundle)
    assert "`people`, without another look" in (bundle / "PRIVACY.md").read_text()


def places_again(bundle: Path) -> list[str]:
    """The places of the records, as anybody finds them from the files of the bundle."""
    stated = json.loads((bundle / "privacy.json").read_text())["products"]
    resources = json.loads((bundle / "datapackage.json").read_text())["resources"]
    tables = published_places(bundle, "people", stated["people"], resources)
    domain = published_marginals(bundle, "records", stated["records"], resources).domain
    codes = read_codes(bundle / "data" / "records.parquet", domain, spread=False)
    found = PlacesOfRecords(tables).codes(domain, codes)
    return [tables.geography.tree.codes[-1][place] for place in found]


@pytest.mark.parametrize(
    "formats", ["[csv]", pytest.param("[csv, dta, sav]", marks=pytest.mark.system)]
)
def test_records_with_places_and_values_within_cells_in_every_format(
    with_records: Any, formats: str
) -> None:
    with_records.replace("copies: 2", "copies: 1, within_cells: slope, records: 100")
    with_records.replace("formats: [parquet, csv]", f"formats: {formats}")
    bundle = with_records.run().bundle
    verify_bundle(bundle)
    table = pyarrow.csv.read_csv(bundle / "data" / "records.csv").to_pandas()
    assert list(table.columns) == ["age", "pay", "place"] and len(table) == 100


def test_the_plan_says_by_which_tables_records_get_places(with_records: Any) -> None:
    order = PlannedOrder.of(Order(with_records.config))
    rows = {
        product.name: dict(product.kind.error_rows(product.mechanism, product.expected_error))
        for product in order.plan.products
    }
    assert rows["records"]["place of a record"].startswith("by the tables of 'people'")
    assert rows["people"]["lowest level to use by itself"].startswith("state:")
    with_records.replace("epsilon: 3.0", "epsilon: 60.0")
    order = PlannedOrder.of(Order(with_records.config))
    people = next(each for each in order.plan.products if each.name == "people")
    assert people.expected_error.usable == "tract"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("places: people", "places: nobody", "'nobody' is not a product of tables of places"),
        ("places: people", "places: records", "Name one of people"),
        ("[age, pay], places", "[age, place], places", "Leave 'place' out of the columns"),
        (", tract: [[age]]", "", "no table of the level 'tract'"),
        (
            "geography:",
            "structural_zeros: [{place: [C], age: {upper: 19}}]\ngeography:",
            "A structural zero names 'place' and columns of the records",
        ),
    ],
)
def test_places_that_no_table_tells_are_refused(
    with_records: Any, old: str, new: str, problem: str
) -> None:
    with_records.replace(old, new)
    with pytest.raises(ConfigError) as refused:
        PlannedOrder.of(Order(with_records.config))
    assert problem in str(refused.value)
    assert "release.yaml:" in str(refused.value)
