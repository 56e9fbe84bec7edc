"""Microdata by marginals through the whole flow: a messy table, its files, and what follows."""

from __future__ import annotations

import csv
import html
import itertools
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from bad_input import CANARY, N
from people import ZEROS, count_persons, put, put_people

import statpress
from statpress.configs.loading import load
from statpress.configs.order import from_options
from statpress.flows.cli import app
from statpress.flows.cli.bundle_commands import conditions_of
from statpress.mechanisms import errors
from statpress.mechanisms.accounting.losses import GaussianLoss
from statpress.mechanisms.planning.plan import Plan
from statpress.mechanisms.registry import REGISTRY
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.pages.blocks import Gallery
from statpress.tasks.products import beside
from statpress.tasks.products.marginal_product import kept_in_words, part_of, too_short_in_words
from statpress.tasks.release.ledger_check import check_bundle, verify_ledger
from statpress.tasks.release.query import Question, ask
from statpress.tasks.release.refine import Options, open_bundle, refine
from statpress.tasks.release.reprint import check_reprint, reprint
from statpress.tasks.release.succession import propose

COLUMNS = """\
  work: {type: categorical, categories: [works, "unempl, laid off", school], missing: true}
  visits: {type: integer, lower: 0, upper: 3}
"""
PRODUCTS = """\
products:
  wide: {accept: [mostly_noise, mostly_independent],
    kind: microdata, columns: [born, region, age, pay, work, visits], share: 0.5}
  small:
    {kind: microdata, mechanism: marginals, columns: [region, pay, visits], screen: "no",
     copies: 2, share: 0.3, accept: mostly_independent}
  pays: {kind: microdata, mechanism: gaussian, columns: [pay], share: 0.2}
"""
FEW = """\
products:
  wide: {kind: microdata, mechanism: marginals, columns: [region, work, visits], copies: 2,
    share: 0.5, accept: [mostly_noise, mostly_independent]}
  pays: {kind: microdata, mechanism: gaussian, columns: [pay], share: 0.5}
"""
WIDE = ["born", "region", "age", "pay", "work", "visits"]
PAIRS = list(itertools.combinations(WIDE, 2))
OF_RECORDS = ["", "_copies", "_tables", "_pairs"]
STEMS = [f"{name}{of}" for name in ("wide", "small") for of in OF_RECORDS] + ["pays"]
MADE: dict[str, tuple[Plan, Path]] = {}


def messy(agency: Any) -> Any:
    """Nulls, a value that is not declared, dates, values with commas, and numbers out of range."""
    agency.replace_products(COLUMNS + PRODUCTS)
    works = ["works", "unempl, laid off", None, "school", "works"]  # 0, 1 and 4: no school
    put(agency, "work", [works[(i * i) % 5] for i in range(N)])
    put(agency, "visits", [min(i % 9, 7) for i in range(N)])
    return agency


def units(agency: Any) -> Any:
    """The same of persons with several records each, and combinations that cannot be."""
    messy(agency).replace("products:", ZEROS + "products:")
    agency.replace("columns: [born", "mechanism: marginals, copies: 2, columns: [born")
    agency.replace("epsilon: 1.0", "epsilon: 3.0")
    count_persons(agency)
    put_people(agency)
    return agency


CASES = {"messy": messy, "units": units}


@pytest.fixture
def press(
    agency: Any,
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
) -> Callable[[str], Path]:
    """A copy of a bundle of each case, made when first asked for."""

    def pressed(case: str) -> Path:
        if case not in MADE:
            CASES[case](agency)
            bundle = agency.run(insecure_seed=5).bundle
            check_bundle(agency.home, bundle, verify_bundle(bundle))
            MADE[case] = (load(agency.config).plan(), tmp_path_factory.mktemp("pressed") / case)
            bundle.rename(MADE[case][1])
        copy = tmp_path / "copies" / case
        if not copy.exists():
            shutil.copytree(MADE[case][1], copy)
        return copy

    return pressed


def table_of(bundle: Path, stem: str, suffix: str = "parquet") -> pa.Table:
    path = bundle / "data" / f"{stem}.{suffix}"
    whole = pyarrow.csv.ParseOptions(ignore_empty_lines=False)  # a missing value by itself
    return pq.read_table(path) if suffix == "parquet" else pyarrow.csv.read_csv(path, None, whole)


def rows_of(bundle: Path, stem: str, suffix: str = "parquet") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table_of(bundle, stem, suffix).to_pylist()
    return found


def stated(bundle: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((bundle / "privacy.json").read_text())["products"][name]
    return found


def tables_of(bundle: Path, name: str) -> dict[tuple[str, ...], list[dict[str, str]]]:
    """Rows of the file of noisy tables by their columns, as text."""
    found: dict[tuple[str, ...], list[dict[str, str]]] = {}
    with (bundle / "data" / f"{name}_tables.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            columns = tuple(filter(None, (row["column_1"], row.get("column_2"))))
            found.setdefault(columns, []).append(row)
    return found


# --- what is published ------------------------------------------------------------


def test_the_files_are_those_that_are_described(press: Any) -> None:
    bundle = press("messy")
    stems = [*STEMS, "pays_table"]
    assert {path.name for path in (bundle / "data").iterdir()} == {
        f"{stem}.{suffix}" for stem in stems for suffix in ("parquet", "csv")
    }
    package = json.loads((bundle / "datapackage.json").read_text())
    for resource in package["resources"]:
        stem, suffix = Path(resource["path"]).name.split(".")
        names = [field["name"] for field in resource["schema"]["fields"]]
        table = table_of(bundle, stem, suffix)
        assert table.column_names == names
        assert table.num_rows == table_of(bundle, stem).num_rows > 0
    everything = b"".join(path.read_bytes() for path in (bundle / "data").iterdir())
    assert CANARY.encode() not in everything


def test_records_are_as_many_as_there_were_with_declared_values_only(press: Any) -> None:
    bundle, plan = press("messy"), MADE["messy"][0]
    wide = plan.products[0]
    assert wide.mechanism.name == "marginals"
    assert wide.choice is not None and wide.choice.minimise == "pair_total_variation"
    rows = rows_of(bundle, "wide")
    assert len(rows) == N
    assert list(rows[0]) == WIDE
    published = {name: {row[name] for row in rows} for name in WIDE}
    assert published["region"] <= {"north", "south", "other", None}
    assert published["work"] <= {"works", "unempl, laid off", "school", None}
    assert published["visits"] <= {0, 1, 2, 3}
    assert published["pay"] <= {10.0, 30.0, 50.0, 70.0, 90.0, None}
    assert len(published["born"]) > 20
    # Single columns agree with the source but for the noise, of which a table has little.
    source = pq.read_table(bundle / "data" / "wide.parquet")["work"].to_pylist()
    assert abs(source.count("works") - 240) < 120


def test_estimates_are_the_weighted_least_squares_of_what_was_drawn(press: Any) -> None:
    """By a dense solution over the joint cells, where the tables are few."""
    bundle = press("messy")
    facts, tables = stated(bundle, "small"), tables_of(bundle, "small")
    assert [tuple(each["columns"]) for each in facts["tables"]] == list(tables)
    assert len(tables) == 3 + 3  # nothing was screened out
    values = {row[0]["column_1"]: [each["value_1"] for each in row]
              for columns, row in tables.items() if len(columns) == 1}  # fmt: skip
    cells = list(itertools.product(*values.values()))
    design, drawn, weights = [np.ones(len(cells))], [float(N)], [1e6]  # the number is public
    for each in facts["tables"]:
        positions = [list(values).index(column) for column in each["columns"]]
        for row in tables[tuple(each["columns"])]:
            asked = [row[f"value_{place}"] for place in range(1, len(positions) + 1)]
            design.append(np.array([[c[p] for p in positions] == asked for c in cells], float))
            drawn.append(int(row["raw"]) / facts["grid"])
            weights.append(facts["grid"] / float(Fraction(each["scale"])))
            assert float(row["noisy_count"]) == pytest.approx(drawn[-1])
    matrix, scale = np.array(design), np.array(weights)
    solution = matrix @ np.linalg.pinv(matrix * scale[:, None], rcond=1e-12)
    expected = solution @ (np.array(drawn) * scale)
    deviations = np.sqrt((solution**2).sum(axis=1))
    published = [row for rows in tables.values() for row in rows]
    assert [float(row["estimate"]) for row in published] == pytest.approx(expected[1:], abs=0.01)
    errors = [float(row["standard_error"]) for row in published]
    assert errors == pytest.approx(deviations[1:], rel=1e-3)
    assert expected[1:] != pytest.approx(np.array(drawn)[1:], abs=1)  # twin: not combined


def test_what_is_stated_spends_no_more_than_was_charged(press: Any) -> None:
    bundle, plan = press("messy"), MADE["messy"][0]
    for product in plan.products[:2]:
        facts = stated(bundle, product.name)
        mechanism = REGISTRY[facts["mechanism"]].from_description(facts)
        assert mechanism == product.mechanism
        grid = facts["grid"]
        spent = sum(2 * (grid / float(Fraction(each["scale"]))) ** 2 for each in facts["tables"])
        if facts["score_scale"] is not None:
            pairs = len(rows_of(bundle, f"{product.name}_pairs"))
            spent += 4 * pairs * (grid / float(Fraction(facts["score_scale"]))) ** 2
        assert 0.95 < spent / float(mechanism.mu) ** 2 <= 1 + 1e-9
        loss = GaussianLoss(mechanism.mu)
        assert loss.delta(float(facts["epsilon"])).upper <= float(facts["delta"])
        assert facts["structural_zeros"] == [] and facts["absent_records"] is False
        assert len(facts["raw_sha256"]) == 64
    assert stated(bundle, "wide")["score_scale"] is not None
    assert stated(bundle, "small")["score_scale"] is None


def test_every_pair_has_its_relation(press: Any) -> None:
    bundle = press("messy")
    measured = {tuple(each["columns"]) for each in stated(bundle, "wide")["tables"]}
    rows = rows_of(bundle, "wide_pairs")
    assert [(row["column_1"], row["column_2"]) for row in rows] == PAIRS
    for row in rows:
        assert isinstance(row["score_raw"], int)
        known = (row["column_1"], row["column_2"]) in measured
        assert (row["standard_error"] is not None) == known
        assert (row["relation"] == "assumed independent") == (not known)
    assert all(row["score_raw"] is None for row in rows_of(bundle, "small_pairs"))


APART = "differ from pays by more than"


def test_records_do_not_differ_from_what_stands_beside_them(press: Any) -> None:
    readme = (press("messy") / "README.md").read_text()
    assert APART not in " ".join(readme.split())


def test_the_readme_says_where_they_do(agency: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where any distance counts as one, and with a product less than the others have."""
    monkeypatch.setattr(beside, "MOST_APART", -1e9)
    messy(agency)
    start, end = agency.text.index("  wide:"), agency.text.index("  small:")
    agency.replace(agency.text[start:end], "")
    agency.replace("share: 0.2", "share: 0.7")
    readme = (agency.run(insecure_seed=5).bundle / "README.md").read_text()
    assert " ".join(readme.split()).count(APART) == 1  # the records of small


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_the_page_shows_columns_and_pairs(press: Any, suffix: str) -> None:
    bundle = press("messy")
    anew = reprint(bundle, from_options([f"publish.formats=[{suffix}]"])).bundle
    for folder in (bundle, anew):
        page = (folder / "report.html").read_text()
        for words in ("± ", f"all {len(PAIRS)}", "not measured: do not trust"):
            assert words in page
        assert ">None<" not in page and "memory" not in page.replace("in memory", "")
        assert "could not show" not in page
        for column in WIDE:
            assert f"<figcaption>{column}</figcaption>" in page
    readme = (bundle / "README.md").read_text()
    assert "`wide`: synthetic records of 6 columns" in readme
    assert readme.count("**Records by marginals**") == 1


def test_the_pages_begin_with_what_was_kept_and_count_pairs_alike(press: Any) -> None:
    bundle = press("messy")
    readme, page = ((bundle / name).read_text() for name in ("README.md", "report.html"))
    for product in ("wide", "small"):
        rows, measured = rows_of(bundle, f"{product}_pairs"), stated(bundle, product)["tables"]
        kept = Counter(row["kept"] for row in rows)
        assert sum(kept[each] for each in ("strong", "weak", "lost")) == sum(
            len(each["columns"]) == 2 for each in measured
        )
        said = kept_in_words(rows)
        assert f"{kept['lost']} lost" in said
        words = f"{kept[None]} {'was' if kept[None] == 1 else 'were'} not measured"
        assert (words in said) is bool(kept[None])
        short = too_short_in_words(rows)
        assert "too short, in the median" in short
        assert f"**In {product} {said}{short}**" in readme
        assert html.escape(short) in page
        assert readme.index(said) < readme.index("A release of the dataset")
        shown = html.escape(said).replace("&#x27;", "&#39;")
        assert page.count(shown) == 2  # at the top, and where the pairs are listed
        assert page.index(shown) < page.index('id="product-wide"')
    assert stated(bundle, "small")["verdict"]["name"] == "mostly_independent"
    advice = "do not take columns for unrelated because they are so in these records"
    assert advice in readme and advice in page


# --- questions ----------------------------------------------------------------------


def answer(bundle: Path, *columns: str, where: tuple[str, ...] = (), product: str | None = "wide"):
    return ask(bundle, Question(columns=columns, conditions=conditions_of(where), product=product))


def test_answers_are_the_published_estimates(press: Any) -> None:
    bundle = press("messy")
    for columns, rows in tables_of(bundle, "wide").items():
        cells = answer(bundle, *columns)["cells"]
        assert len(cells) == len(rows)
        for cell, row in zip(cells, rows, strict=True):
            assert cell["estimate"] == pytest.approx(float(row["estimate"]), abs=1e-6)
            error = float(row["standard_error"])
            assert cell["standard_error"] == pytest.approx(error)
            assert cell["upper"] - cell["estimate"] == pytest.approx(1.959964 * error)
            values = [row[f"value_{place}"] for place in range(1, len(columns) + 1)]
            assert list(cell["values"].values()) == [value or "missing" for value in values]


def test_conditions_add_cells_up(press: Any) -> None:
    bundle = press("messy")
    listed = {cell["values"]["work"]: cell for cell in answer(bundle, "work")["cells"]}
    assert list(listed) == ["works", "unempl, laid off", "school", "missing"]
    (both,) = answer(bundle, where=("work=unempl, laid off,school",))["cells"]
    wanted = listed["unempl, laid off"]["estimate"] + listed["school"]["estimate"]
    assert both["values"] == {}
    assert both["estimate"] == pytest.approx(wanted)
    one = answer(bundle, "work", where=("work=missing",))["cells"]
    assert [cell["values"] for cell in one] == [{"work": "missing"}]
    everyone = answer(bundle, where=("work=works,unempl, laid off,school,missing",))["cells"][0]
    assert everyone["estimate"] == pytest.approx(N)
    assert everyone["standard_error"] == pytest.approx(0, abs=1e-6)


def test_what_was_not_measured_is_refused(press: Any) -> None:
    bundle = press("messy")
    with pytest.raises(errors.NotMeasuredError, match=r"together: see data/small_pairs\.parquet"):
        answer(bundle, "region", "pay", "visits", product="small")
    for unknown in ({"columns": ("salary",)}, {"columns": (), "where": ("pay=31",)}):
        with pytest.raises(errors.QueryError, match=r"no column 'salary'|no cell '31'"):
            answer(bundle, *unknown.pop("columns"), **unknown)
    for product in (None, "pays", "nobody"):
        with pytest.raises(errors.QueryError) as caught:
            answer(bundle, "pay", product=product)
        assert caught.value.next_step == "Products that can, by --product: wide, small."
    with pytest.raises(errors.QueryError, match="No column is named"):
        answer(bundle)
    (bundle / "README.md").write_text("changed")
    with pytest.raises(errors.BundleVerificationError):
        answer(bundle, "pay")


def test_the_command_answers_in_text_and_json(press: Any, capsys: Any) -> None:
    bundle = press("messy")
    asked = ["query", str(bundle), "--product", "small", "--columns", "region", "visits"]
    app([*asked, "--where", "visits=0,1", "--json"], exit_on_error=False)
    facts = json.loads(capsys.readouterr().out)
    assert facts == answer(bundle, "region", "visits", where=("visits=0,1",), product="small")
    assert len(facts["cells"]) == 4 * 2
    app([*asked, "--where", "visits=0,1"], exit_on_error=False)
    text = capsys.readouterr().out
    assert "small: records with visits = 0 or 1" in text
    assert f"{facts['cells'][0]['estimate']:,.1f}" in text
    assert "Noisy scores" not in text  # nothing was chosen by them


@pytest.mark.parametrize(
    ("case", "most"), [("messy", 1), pytest.param("units", 3, marks=pytest.mark.nightly)]
)
def test_intervals_for_a_population_are_of_units(
    press: Any, capsys: Any, case: str, most: int
) -> None:
    bundle = press(case)
    asked = ["query", str(bundle), "--product", "wide", "--columns", "visits"]
    app([*asked, "--json"], exit_on_error=False)
    records = json.loads(capsys.readouterr().out)
    app([*asked, "--population", "--json"], exit_on_error=False)
    facts = json.loads(capsys.readouterr().out)
    n = stated(bundle, "wide")["n_records"]
    assert facts["sample"] == {"n_units": n // most, "unit_records": most, "absent": most > 1}
    for cell, counted in zip(facts["cells"], records["cells"], strict=True):
        assert cell["estimate"] == counted["estimate"]
        assert 0 <= cell["lower"] < cell["upper"] <= n
        assert cell["lower"] <= max(counted["lower"], 0) and cell["upper"] >= counted["upper"]
        assert cell.get("share_upper") == (cell["upper"] / n if most == 1 else None)
    app([*asked, "--population"], exit_on_error=False)
    text = capsys.readouterr().out
    assert f"a random sample of {n // most:,} units" in text and "0.95 or more" in text
    assert ("share to" in text, "all alike" in text) == (most == 1, most > 1)


def test_copies_of_units_with_several_records_are_of_the_records(press: Any) -> None:
    """Whose a record is they do not say, so that a model would take persons for several."""
    release = statpress.open(press("units"), product="wide")

    def share(records: Any) -> tuple[float, float]:
        often = (records["visits"] == "0").mean()
        return often, often * (1 - often) / len(records)

    found = release.combine(share)
    own = release.combine(share, of="records")
    assert found.facts == own.facts and found.facts["of"] == "records"
    for asked in (found, release.share("visits")):
        assert any(note.startswith("Of each unit at most 3 records were") for note in asked.notes)
    formula = "visits ~ 1"
    for refused in (
        lambda: release.combine(share, of="population"),
        lambda: release.on_copies.regress(formula, of="population"),
        lambda: release.on_copies.share("visits", of="population"),
    ):
        with pytest.raises(errors.QueryError, match="where a unit may have several records"):
            refused()


# --- plans --------------------------------------------------------------------------


def test_a_plan_needs_no_source_and_says_what_to_expect(agency: Any, capsys: Any) -> None:
    messy(agency).source.unlink()
    app(
        ["plan", str(agency.config), "--home", str(agency.home.root), "--json"], exit_on_error=False
    )
    facts = json.loads(capsys.readouterr().out)["products"]["wide"]
    assert facts["mechanism"] == "marginals"
    assert "next is" in facts["chosen"]
    error = facts["expected_error"]
    assert 0 < error["one_way_total_variation"] < error["pair_total_variation"] < 1
    assert error["memory"] > 10**8
    app(["plan", str(agency.config), "--home", str(agency.home.root)], exit_on_error=False)
    text = " ".join(capsys.readouterr().out.split())
    for label in ("one column", "from independence", "budget for scoring pairs", "memory"):
        assert label in text


# --- what follows from a bundle --------------------------------------------------------


def test_a_reprint_copies_what_has_no_counts(press: Any, tmp_path: Path) -> None:
    bundle = press("messy")
    assert set(open_bundle(bundle).without_counts) == {"wide", "small"}
    done = reprint(bundle, from_options(["title=Anew"]))
    assert set(done.copied) == {"wide", "small"}
    assert check_reprint(done.bundle)
    for path in (bundle / "data").iterdir():
        assert (done.bundle / "data" / path.name).read_bytes() == path.read_bytes()
    assert answer(done.bundle, "work")["cells"] == answer(bundle, "work")["cells"]
    facts = refine(bundle, tmp_path / "refined", Options(integers=True))
    assert list(facts["products"]) == ["pays"]
    assert set(facts["without_counts"]) == {"wide", "small"}
    with pytest.raises(errors.RefinementError, match=r"marginals \(wide\) are not") as caught:
        refine(bundle, tmp_path / "other", Options(products=["wide"]))
    assert "'statpress query'" in caught.value.next_step


@pytest.mark.nightly
def test_it_is_released_again_on_other_data(agency: Any) -> None:
    messy(agency)
    agency.replace("formats: [parquet, csv]", "formats: [csv]")
    agency.replace(PRODUCTS, FEW)
    first = agency.run().bundle
    put(agency, "work", ["school"] * N)
    options = from_options(["publish.name=second"])
    second = agency.run(propose(first, None, options, agency.folder, agency.home).planned).bundle
    assert verify_bundle(second)["supersedes"] == verify_bundle(first)["seal"]
    kinds = [entry.kind for entry in agency.entries()]
    assert kinds == ["register", *["look", "charge", "draw", "publish"] * 2]
    assert verify_ledger(agency.home).entries == 9
    schooled = [answer(bundle, where=("work=school",))["cells"][0] for bundle in (first, second)]
    error = schooled[1]["standard_error"]
    assert abs(schooled[1]["estimate"] - N) < 6 * error
    assert abs(schooled[0]["estimate"]) < 6 * schooled[0]["standard_error"]
    assert abs(schooled[0]["estimate"] - N) > 6 * error  # twin: not the old data


# --- units and structural zeros ---------------------------------------------------------


def test_units_are_not_padded_and_nothing_impossible_is_written(press: Any) -> None:
    bundle, plan = press("units"), MADE["units"][0]
    for suffix in ("parquet", "csv"):
        rows = rows_of(bundle, "wide", suffix)
        assert 120 < len(rows) < 480  # 280 records are present
        for row in rows:
            assert not (row["age"] < 20 and (row["pay"] or 0) > 60)
            assert not (row["region"] == "other" and row["age"] > 20)
    facts = stated(bundle, "wide")
    assert facts["absent_records"] is True
    assert len(facts["structural_zeros"]) == 2
    assert facts["unit_records"] == facts["most_unit_records"] == 3
    mechanism = plan.products[0].mechanism
    assert mechanism.loss(n_records=480, n_cells=10, unit_records=3).delta(
        float(facts["epsilon"])
    ).upper <= float(facts["delta"])
    small = stated(bundle, "small")
    # Replacing three records moves a table three times as far.
    amounts = [(small["grid"] / float(Fraction(each["scale"]))) ** 2 for each in small["tables"]]
    assert 0.95 < 2 * 3**2 * sum(amounts) / float(plan.products[1].mechanism.mu) ** 2 <= 1 + 1e-9
    everyone = answer(bundle, where=("work=works,unempl, laid off,school,missing",))["cells"][0]
    assert everyone["standard_error"] > 1  # how many records there are is private
    assert abs(everyone["estimate"] - 280) < 6 * everyone["standard_error"]
    assert "how many records units really have is private" in (
        (bundle / "README.md").read_text().lower()
    )


# --- what is refused before the charge ----------------------------------------------------


def _one_cell(agency: Any) -> None:
    agency.replace("lower: 0, upper: 3}", "lower: 0, upper: 0}")


def test_shares_of_the_report_are_of_the_records_that_units_have(press: Any) -> None:
    """And not of those that they may have, most of which nobody has."""
    bundle = press("units")
    assert stated(bundle, "wide")["absent_records"] is True
    resources = json.loads((bundle / "datapackage.json").read_text())["resources"]
    part = part_of(bundle, "wide", stated(bundle, "wide"), resources)
    (columns,) = (each for each in part.section.parts if each.title == "Column by column")
    gallery = next(block for block in columns.blocks if isinstance(block, Gallery))
    for chart in gallery.charts:
        if len(chart.data.rows) < 6:  # all of its cells are listed
            shares = [float(str(row[-1]).split()[0].replace("−", "-")) for row in chart.data.rows]
            assert sum(shares) == pytest.approx(100, abs=3)


def _by_marginals(agency: Any) -> None:
    agency.replace("columns: [born", "mechanism: marginals, columns: [born")


def _many_columns(agency: Any) -> None:
    _by_marginals(agency)
    names = [f"x{i}" for i in range(96)]
    declared = "".join(f"  {name}: {{type: integer, lower: 0, upper: 1}}\n" for name in names)
    agency.replace("products:", declared + "products:")
    agency.replace("work, visits], share: 0.5", f"work, visits, {', '.join(names)}], share: 0.5")


def _large_pair(agency: Any) -> None:
    _by_marginals(agency)
    agency.replace("lower: 0, upper: 99, width: 10", "lower: 0, upper: 39999")
    agency.replace("lower: 0, upper: 100, bins: 5", "lower: 0, upper: 100, bins: 30000")


REFUSED: dict[str, tuple[Callable[[Any], None], str]] = {
    "a column of one cell": (_one_cell, "'visits' has only one cell"),
    "more than a hundred columns": (_many_columns, "At most 100 columns"),
    "a pair of a billion cells": (_large_pair, "has 1,200,040,000 cells, more than the 10,000,000"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_served_is_refused_before_the_charge(agency: Any, case: str) -> None:
    breaks, words = REFUSED[case]
    breaks(messy(agency))
    with pytest.raises(errors.ConfigError, match=words) as caught:
        agency.run()
    assert re.match(r"release\.yaml:\d+:\d+: products\.", caught.value.where)
    assert caught.value.next_step
    assert [entry.kind for entry in agency.entries()] == ["register"]
