"""Households and persons through the whole flow: two files that go together, and refusals."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from households import CONFIG, config_in, made_up, write
from requirements import needed

import statpress
from statpress.configs.loading import PlannedOrder, load
from statpress.configs.order import Order
from statpress.flows.cli import app, print_outcome
from statpress.flows.cli.rehearse_command import run_rehearsal
from statpress.mechanisms import errors
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.ledger.account_rules import of_path
from statpress.tasks.private_zone.run_context import Silent
from statpress.tasks.products.product_kind import kind_of
from statpress.tasks.release.ledger_check import check_bundle
from statpress.tasks.release.made_up import make_up
from statpress.tasks.release.query import Question, ask
from statpress.tasks.release.steps import source_names

DATASET = "households"


def opened(agency: Any) -> Any:
    """An agency with an account for 400 households, and their files."""
    agency.text = CONFIG.replace("testdata", DATASET).replace(
        "directory: releases", "directory: releases, plots: false"
    )
    # Without a cell for other tenures, which no household has, no draw can have one.
    agency.text = agency.text.replace("rent], other: true}", "rent]}")
    agency.text = agency.text.replace("upper: 90,", "upper: 89, width: 5,")
    agency.config.write_text(agency.text, encoding="utf-8")
    agency.register(dataset=DATASET, unit="household", n_records=400, epsilon="100")
    write(agency.config.parent, *made_up(400))
    return agency


@pytest.fixture
def office(agency: Any) -> Any:
    return opened(agency)


def precise(agency: Any) -> Any:
    """The same with little noise, and two copies."""
    opened(agency).replace("epsilon: 3,", "epsilon: 50,")
    agency.replace("kind: linked,", "kind: linked, copies: 2,")
    return agency


@pytest.fixture(scope="module")
def pressed(shared: Callable[..., Any]) -> Any:
    """An agency with a release of little noise, as ``bundle``, which tests only read."""
    return shared("linked", precise, insecure_seed=4)


def charges(office: Any) -> int:
    return [entry.kind for entry in office.entries()].count("charge")


def rows(bundle: Path, stem: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(bundle / "data" / f"{stem}.parquet").to_pylist()
    return found


def test_a_bundle_has_households_and_persons_that_go_together(pressed: Any) -> None:
    bundle = pressed.bundle
    check_bundle(pressed.home, bundle, verify_bundle(bundle))
    households, persons = rows(bundle, "survey_households"), rows(bundle, "survey_persons")
    assert [*households[0]] == ["tenure", "n_persons", "household_id"]
    assert [*persons[0]] == ["relation", "age", "household_id", "person_id"]
    assert [each["household_id"] for each in households] == list(range(1, 401))
    assert [each["person_id"] for each in persons] == list(range(1, len(persons) + 1))
    present = Counter(each["household_id"] for each in persons)
    assert all(present[each["household_id"]] == each["n_persons"] for each in households)
    members: dict[int, list[dict[str, Any]]] = {}
    for each in persons:
        members.setdefault(each["household_id"], []).append(each)
    for those in members.values():
        relations = [each["relation"] for each in those]
        assert relations[0] == "reference" and relations.count("reference") == 1
        assert relations.count("spouse") <= 1
    written = pyarrow.csv.read_csv(bundle / "data" / "survey_persons.csv")
    assert written["household_id"].to_pylist() == [each["household_id"] for each in persons]


def test_files_that_do_not_go_together_are_no_release(pressed: Any, tmp_path: Path) -> None:
    """What the gate asks of written files: a person elsewhere, or a key twice, is found."""
    (product,) = PlannedOrder.of(Order(pressed.config)).plan.products
    files = kind_of(product).publication(product, None).tables[:2]
    written = [pq.read_table(pressed.bundle / "data" / f"{each.stem}.parquet") for each in files]
    moved, twice = [table["household_id"].to_numpy().copy() for table in reversed(written)]
    moved[0], twice[1] = 400 if moved[0] < 400 else 1, twice[0]
    persons = written[1]["person_id"].to_numpy().copy()
    persons[1] = persons[0]
    for table, column, values, found in (
        (1, "household_id", written[1]["household_id"].to_numpy(), (0, 0)),
        (1, "household_id", moved, (0, 2)),
        (1, "person_id", persons, (1, 0)),
        (0, "household_id", twice, (1, 2)),
    ):
        other = [*written]
        at = written[table].column_names.index(column)
        other[table] = written[table].set_column(at, column, pa.array(values))
        for file, rows_of in zip(files, other, strict=True):
            pq.write_table(rows_of, tmp_path / f"{file.stem}.parquet")
        checked = files[1].check(tmp_path / f"{files[1].stem}.parquet")
        assert tuple(checked.values()) == found, column


def test_its_metadata_say_how_files_are_merged(pressed: Any) -> None:
    bundle = pressed.bundle
    package = json.loads((bundle / "datapackage.json").read_text())
    schemas = {each["name"]: each["schema"] for each in package["resources"] if "schema" in each}
    assert schemas["survey_households-csv"]["primaryKey"] == ["household_id"]
    assert schemas["survey_persons-csv"]["foreignKeys"] == [
        {
            "fields": ["household_id"],
            "reference": {"resource": "survey_households-csv", "fields": ["household_id"]},
        }
    ]
    sets = {
        each["@id"]: each
        for each in json.loads((bundle / "croissant.json").read_text())["recordSet"]
    }
    assert sets["survey_persons"]["key"] == {"@id": "survey_persons/person_id"}
    (joined,) = [each for each in sets["survey_persons"]["field"] if "references" in each]
    assert joined["references"] == {"field": {"@id": "survey_households/household_id"}}
    stated = json.loads((bundle / "privacy.json").read_text())
    assert stated["unit_in_words"] == "one household with all its persons"
    asked = stated["products"]["survey"]["workload"]
    assert {"of": "a person", "pairs_of": ["relation", "age"], "weight": 4.0} in asked
    assert (
        "of a person: all pairs of relation, age, weight 4" in (bundle / "report.html").read_text()
    )
    assert "one household with all its persons" in (bundle / "PRIVACY.md").read_text()
    assert "merged by `household_id`" in (bundle / "README.md").read_text()


def test_its_noisy_tables_answer_questions(pressed: Any) -> None:
    bundle = pressed.bundle
    true = Counter(len([p for p in made_up(400)[1] if p["hid"] == hid][:3]) for hid in range(400))
    answer = ask(bundle, Question(columns=("n_persons",), conditions={}))
    for cell in answer["cells"]:
        wanted = true[int(cell["values"]["n_persons"])]
        assert abs(cell["estimate"] - wanted) < 6 * cell["standard_error"] + 1e-9
    persons = made_up(400)[1]
    first = [
        p for p in persons if sum(q["hid"] == p["hid"] for q in persons[: persons.index(p)]) < 3
    ]
    release = statpress.open(bundle)
    for column in ("relation", "age"):
        named = "child" if column == "relation" else "32"  # of 30 to 34
        figure = release.table(of="persons", where={column: named})
        true = sum(p[column] in ("child", *range(30, 35)) for p in first)
        (cell,) = figure.facts["cells"]
        assert abs(cell["estimate"] - true) < 6 * cell["standard_error"]
        assert "They are of the persons that were counted" in " ".join(figure.notes)
    mean = release.mean("age", of="persons")
    true_mean = np.mean([p["age"] for p in first])
    assert mean.facts["cells"][0]["lower"] - 3 < true_mean < mean.facts["cells"][0]["upper"] + 3
    asked = ["query", str(bundle), "--share", "relation", "--of", "persons"]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        print_outcome(app(asked, exit_on_error=False, result_action="return_value"))
    assert "reference" in printed.getvalue()
    drawn = release.mean("age", of="persons of a population")
    assert drawn.value == mean.value
    assert drawn.frame()["standard_error"].item() > mean.frame()["standard_error"].item()
    assert "Their sampling variance is by households" in " ".join(drawn.notes)
    asked = ["query", str(bundle), "--mean", "age", "--of", "persons", "--population"]
    result = app(asked, exit_on_error=False, result_action="return_value")
    assert result.facts()["cells"] == drawn.facts["cells"]
    assert result.facts()["of"] == "the persons of a population"
    assert result.facts()["sample"] == {"n_units": 400, "unit_records": 3, "absent": True}
    merged = release.persons().merge(release.households(), on="household_id")
    assert len(merged) == len(release.persons())


@pytest.mark.nightly
@pytest.mark.system
@pytest.mark.usefixtures("judged_here")
def test_made_up_households_keep_the_rules_and_pass_every_check(office: Any) -> None:
    pyreadstat = needed("pyreadstat")
    release = load(office.config)
    source = make_up(release, office.config.parent)
    households, persons = (
        pq.read_table(each.pattern).to_pylist() for each in (source.households, source.persons)
    )
    of = Counter(each["hid"] for each in persons)
    assert len(households) == 400 and {of[each["hid"]] for each in households} == {0, 1, 2, 3}
    assert {each["relation"] for each in persons} >= {"reference", "spouse", "child"}
    for hid in of:
        own = [each for each in persons if each["hid"] == hid]
        assert [each["relation"] for each in own].count("reference") == 1
        ages = {r: [p["age"] for p in own if p["relation"] == r and p["age"] is not None]
                for r in ("reference", "child")}  # fmt: skip
        assert all(child + 12 <= max(ages["reference"], default=99) for child in ages["child"])
    office.replace("directory: releases", "directory: releases, formats: [parquet, dta, sav]")
    bundle = run_rehearsal(PlannedOrder.of(Order(office.config)), None, Silent()).bundle
    made = rows(bundle, "survey_households")
    assert len(made) == 400
    assert sum(each["n_persons"] for each in made) == len(rows(bundle, "survey_persons"))
    merged = pd.DataFrame(rows(bundle, "survey_persons")).merge(
        pd.DataFrame(made), on="household_id"
    )
    by_size = merged.groupby("n_persons")["age"].mean()
    shares = merged.groupby(["tenure", "relation"], observed=True).size().to_dict()
    for suffix, read in (("dta", pyreadstat.read_dta), ("sav", pyreadstat.read_sav)):
        own, theirs = (
            read(bundle / "data" / f"survey_{table}.{suffix}", apply_value_formats=True)[0]
            for table in ("households", "persons")
        )
        found = theirs.merge(own, on="household_id", validate="many_to_one")
        assert len(found) == len(merged) and set(found["person_id"]) == set(merged["person_id"])
        assert np.allclose(found.groupby("n_persons")["age"].mean(), by_size, equal_nan=True)
        counted = found.groupby(["tenure", "relation"], observed=True).size().to_dict()
        assert counted == shares


def orphan(households: list[Any], persons: list[Any]) -> None:
    persons.append({"pid": 77, "hid": 9000, "relation": "child", "age": 3})


def key_twice(households: list[Any], persons: list[Any]) -> None:
    persons.append({**persons[0], "age": 40})


def two_references(households: list[Any], persons: list[Any]) -> None:
    place = next(i for i, each in enumerate(persons) if each["relation"] == "spouse")
    persons[place] = {**persons[place], "relation": "reference"}


def household_twice(households: list[Any], persons: list[Any]) -> None:
    households[3] = households[7]


def without_a_key(households: list[Any], persons: list[Any]) -> None:
    households.append({"hid": None, "tenure": "own"})


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (orphan, "named by persons but not there: 1. Deliver the households that 'hid'"),
        pytest.param(
            key_twice,
            "with a person twice: 1. Give each person of a household a 'pid'",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            household_twice,
            "more than one household: 1. Give every household one row",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            without_a_key,
            "households without a key: 1. Fill 'hid' in every row of 'households'",
            marks=pytest.mark.nightly,
        ),
        (two_references, "FAILED in a structural zero: 1"),
    ],
)
def test_faults_are_refused_before_the_charge_without_a_value(
    office: Any, fault: Any, told: str
) -> None:
    households, persons = made_up(400)
    fault(households, persons)
    write(office.config.parent, households, persons)
    with pytest.raises(errors.QualityGateError) as caught:
        office.run(insecure_seed=4)
    said = str(caught.value).replace(str(office.inspector.log.path), "")  # digits by chance
    assert "9000" not in said and charges(office) == 0
    (log,) = (office.home.root / "curator").glob("*.log")
    assert told in log.read_text() and told not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "linked,",
            "linked, copies: 0,",
            "There may be 1 to 100 copies",
        ),
        (
            "linked,",
            "linked, prior: past,",
            "has no key 'prior': only products by marginals do",
        ),
        ("unit: household", "unit: person", "unit: With 'tables' a record holds a household with"),
        ("unit: household", "unit: record", "unit: With 'tables' a record holds a household with"),
    ],
)
def test_what_households_cannot_have_is_refused_at_its_place(
    office: Any, old: str, new: str, told: str
) -> None:
    office.replace(old, new)
    with pytest.raises(errors.ConfigError, match=r"\.yaml:\d+:\d+: \w+\.\w+") as caught:
        office.run(insecure_seed=4)
    assert told in str(caught.value) and charges(office) == 0


@pytest.mark.nightly
def test_dropped_persons_are_in_no_record(office: Any, pressed: Any) -> None:
    """Where they are dropped, one of no household leaves the release as it is without him.

    So do copies, of which this release has none.
    """
    office.replace("    at_most: 3\n", "    at_most: 3\n    orphans: drop\n")
    office.replace("epsilon: 3,", "epsilon: 50,")
    households, persons = made_up(400)
    orphan(households, persons)
    write(office.config.parent, households, persons)
    again = office.run(insecure_seed=4).bundle
    for stem in ("survey_households", "survey_persons", "survey_tables"):
        assert rows(pressed.bundle, stem) == rows(again, stem)


def test_both_sources_have_to_be_the_accounts(office: Any) -> None:
    folder = office.config.parent
    named = [of_path(str(folder / f"{each}.parquet")) for each in ("households", "persons")]
    assert list(source_names(load(office.config))) == named


GEOGRAPHY = """\
geography:
  tenure:
    levels: [tenure]
    file: [tenure, own, rent]
    sizes: ["place,size", "own,150", "rent,250"]
    known_totals: true
rules:
"""
TABLE = "  places: {kind: table, at: {tenure: [[n_persons]]}, share: 0.5, accept: mostly_noise}\n"


def with_places(text: str) -> str:
    """The config with a table of places whose sizes are known, tenure being the place."""
    text = text.replace("rent], other: true}", "rent]}").replace("rules:\n", GEOGRAPHY)
    return text.replace("products:\n", f"products:\n{TABLE}")


def in_lines(key: str, *entries: str) -> str:
    """The linked product with a key whose entries stand on lines of their own."""
    listed = "".join(f"\n      {entry}" for entry in entries)
    return f"    kind: linked\n    columns: [tenure, relation, age]\n    {key}:{listed}\n"


TENURE, OTHER = "tenure: {counts: [150, 250, 0]}", "tenure: {counts: [150, 250]}"
SIZES = "{columns: [tenure, n_persons], counts: [%s]}"


@pytest.mark.parametrize(
    ("key", "entries", "place", "told"),
    [
        ("groups", ["- {columns: [relation, tenure]}", "- {columns: [age, age_1]}"], "groups.1",
         "names 'age_1' twice: 'age' is the column of every place. Leave one of them out"),
        ("groups", ["- {columns: [relation, tenure]}", "- {columns: [age]}"], "groups.1",
         "two different columns or more. Name two columns at least"),
        ("groups", ["- {columns: [relation, age]}", "- {columns: [age, income]}"], "groups.1",
         "no column 'income'. Name columns of the product: tenure, n_persons, relation, age."),
        ("groups", ["- {columns: [relation, age]}", "- {columns: [age, relation]}"], "groups.1",
         "Give each group of columns once"),
        ("groups", ["- {columns: [relation, age], weight: -1}"], "groups.0", "A weight must be"),
        ("known", [TENURE, "both: " + SIZES % "50,50,25,25, 50,50,50,99, 0,0,0,1"], "known.both",
         "of column 'tenure' differ between tables"),
        ("known", ["tenure: {counts: [150, 251, 0]}"], "known.tenure",
         "do not add up to the number of records, 400, but to 401. Correct the counts"),
        ("known", ["tenure: {counts: [150, 250, 0, 0]}"], "known.tenure",
         "4 counts for 3 cells. Give a count for every cell"),
        ("known", ["tenure: {file: outside.csv}"], "known.tenure",
         "no such cell ('outside.csv', line 3). Those that it has: 'own', 'rent', 'other'."),
        ("known", ["tenure: {file: twice.csv}"], "known.tenure",
         "A cell is listed twice, which no table of totals does ('twice.csv', line 3)"),
        ("known", [TENURE, "again: {columns: [tenure], counts: [150, 250, 0]}"], "known.again",
         "'tenure' and 'again' are known totals of the same columns. Leave one of them out"),
        ("known", ["age: {counts: [400]}"], "known.age",
         "no column 'age' of which totals may be known. Those that it has: tenure, n_persons."),
        ("known", ["relation_1: {counts: [400, 0, 0, 0, 0]}"], "known.relation_1",
         "known totals are of households"),
    ],
)  # fmt: skip
def test_groups_and_known_totals_at_fault_are_refused_at_their_own_line(
    tmp_path: Path, key: str, entries: list[str], place: str, told: str
) -> None:
    for name, cell in (("outside", "lease"), ("twice", "own")):
        (tmp_path / f"{name}.csv").write_text(f"tenure,count\nown,150\n{cell},250\n")
    start, end = CONFIG.index("    {kind: linked"), CONFIG.index("publish:")
    config = config_in(tmp_path, CONFIG[:start] + in_lines(key, *entries) + CONFIG[end:])
    line = config.read_text().splitlines().index(f"      {entries[-1]}") + 1
    with pytest.raises(errors.ConfigError) as caught:
        load(config).plan()
    where = rf"\.yaml:{line}:\d+: products\.survey\.{re.escape(place)}: "
    assert re.search(where + ".*" + re.escape(told), str(caught.value))


PEOPLE = """\
  people:
    kind: microdata
    columns: [tenure, n_persons]
    known: {n_persons: {counts: [70, 80, 90, 160]}}
    accept: [mostly_noise, mostly_independent]
"""
KNOWN = "kind: linked, known: {%s},"


@pytest.mark.parametrize(
    ("changes", "place", "told"),
    [
        ({"rent,250": "rent,251"}, "geography.tenure.sizes", "to the 400 records, but to 401"),
        ({"rent,250": "own,250"}, "geography.tenure.sizes", "'own' is listed twice"),
        ({"rent,250": "lease,250"}, "geography.tenure.sizes", "no place 'lease'"),
        ({"kind: linked,": KNOWN % "tenure: {counts: [151, 249]}"}, "products.survey.known.tenure",
         "are not those of 'geography.tenure.sizes'. Give totals that agree"),
        ({"  survey:": f"{PEOPLE}  survey:",
          "kind: linked,": KNOWN % "n_persons: {counts: [70, 80, 91, 159]}"},
         "products.survey.known.n_persons",
         "are not those of 'products.people.known.n_persons'. Give totals that agree"),
    ],
)  # fmt: skip
def test_known_totals_that_disagree_across_sections_are_refused(
    tmp_path: Path, changes: dict[str, str], place: str, told: str
) -> None:
    text = with_places(CONFIG)
    for old, new in changes.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    with pytest.raises(errors.ConfigError) as caught:
        load(config_in(tmp_path, text)).plan()
    where = rf"\.yaml:\d+:\d+: {re.escape(place)}(, line 3)?: "
    assert re.search(where + ".*" + re.escape(told), str(caught.value))


def test_known_totals_that_agree_across_sections_are_planned(tmp_path: Path) -> None:
    load(config_in(tmp_path, with_places(CONFIG))).plan()


def test_in_every_copy_households_and_persons_go_together(pressed: Any) -> None:
    bundle = pressed.bundle
    check_bundle(pressed.home, bundle, verify_bundle(bundle))
    release = statpress.open(bundle)
    households, persons = release.households(copies=True), release.persons(copies=True)
    assert [*households] == ["tenure", "n_persons", "household_id", "copy"]
    assert [*persons] == ["relation", "age", "household_id", "person_id", "copy"]
    assert households["household_id"].tolist() == list(range(1, 801))
    assert persons["person_id"].tolist() == list(range(1, len(persons) + 1))
    assert households.groupby("copy").size().to_dict() == dict.fromkeys((1, 2), 400)
    merged = persons.merge(households, on="household_id", suffixes=("", "_own"))
    assert len(merged) == len(persons) and (merged["copy"] == merged["copy_own"]).all()
    sizes = persons.groupby("household_id").size()
    own = households.set_index("household_id")["n_persons"]
    assert (sizes.reindex(own.index, fill_value=0) == own).all()
    those = persons.groupby("household_id")["relation"]
    assert (those.first() == "reference").all()
    assert those.agg(lambda each: (each == "reference").sum()).max() == 1
    assert those.agg(lambda each: (each == "spouse").sum()).max() <= 1


@pytest.mark.system
def test_copies_of_persons_are_in_files_of_stata_and_spss(agency: Any) -> None:
    pyreadstat = needed("pyreadstat")
    precise(agency).replace("plots: false", "plots: false, formats: [parquet, dta, sav]")
    bundle = agency.run(insecure_seed=4).bundle
    persons = statpress.open(bundle).persons(copies=True)
    for suffix, read in (("dta", pyreadstat.read_dta), ("sav", pyreadstat.read_sav)):
        frame = read(bundle / "data" / f"survey_persons_copies.{suffix}")[0]
        assert frame["household_id"].tolist() == persons["household_id"].tolist()


def test_copies_of_households_answer_what_tables_do_and_more(pressed: Any) -> None:
    release = statpress.open(pressed.bundle)
    for column, of in (("tenure", "records"), ("relation", "persons"), ("age", "persons")):
        measured, figures = (
            each.mean(column, of=of) if column == "age" else each.share(column, of=of)
            for each in (release, release.on_copies)
        )
        for one, other in zip(measured.facts["cells"], figures.facts["cells"], strict=True):
            assert one["values"] == other["values"]
            near = 5 if column == "age" else 0.06
            assert one["estimate"] == pytest.approx(other["estimate"], abs=near)
            assert other["lower"] <= other["estimate"] <= other["upper"]
    with pytest.raises(errors.NotMeasuredError, match="--copies"):
        release.mean("n_persons", by=["tenure", "relation_1"])
    own = release.on_copies.mean("n_persons", where={"tenure": "own"})
    assert 1 < own.value < 2.5  # half of the households have three persons or more

    def with_children(households: pd.DataFrame, persons: pd.DataFrame) -> tuple[float, float]:
        children = persons[persons["relation"] == "child"]["household_id"].nunique()
        share = children / len(households)
        return share, share * (1 - share) / len(households)

    true = np.mean([n >= 3 for n in ((h * 7 + h // 5) % 6 for h in range(400))])
    for of in ("records", "population"):
        (cell,) = release.combine(with_children, of=of).facts["cells"]
        assert cell["lower"] - 0.02 < true < cell["upper"] + 0.02
    households = release.on_copies.regress("n_persons ~ tenure").frame()
    persons = release.on_copies.regress("age ~ relation + n_persons", of="persons").frame()
    assert households["term"].tolist() == ["Intercept", "tenure[T.rent]"]
    child = persons.loc[persons["term"] == "relation[T.child]", "estimate"].item()
    assert -60 < child < -25  # children are under 18, their parents from 30 to 79
    text = (pressed.bundle / "README.md").read_text()
    assert "on each of the 2 sets in `survey_households_copies` and `survey_persons_copies`" in text
    for asked in (
        lambda of: release.on_copies.mean("age", of=of),
        lambda of: release.on_copies.correlation("age", "n_persons", of=of),
        lambda of: release.on_copies.table(where={"relation": "child"}, of=of),
        lambda of: release.on_copies.regress("age ~ n_persons", of=of),
    ):
        counted, drawn = asked("persons"), asked("persons of a population")
        assert drawn.frame()["estimate"].tolist() == counted.frame()["estimate"].tolist()
        assert (drawn.frame()["standard_error"] > counted.frame()["standard_error"]).all()
        assert "Their sampling variance is by households." in drawn.notes
