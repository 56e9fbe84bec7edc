"""The words of a config in the metadata of a bundle, which public tools read and find in order."""

from __future__ import annotations

import datetime
import hashlib
import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import statpress
from statpress.configs.order import from_options
from statpress.tasks.catalogues.data_package import codebook_text
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.release.reprint import check_reprint, reprint
from statpress.tasks.release.succession import propose

N = 400
ABOUT = """\
about:
  description: Pay and opinions of residents, *drawn* & noisy.
  publisher: {name: Office of Numbers, url: "https://numbers.example"}
  contact: {name: Data desk, email: desk@numbers.example}
  licence: cc-by-4.0
  keywords: [pay, opinions]
  temporal: {start: 2000, end: 2001-06}
  spatial: {name: North and South, url: "https://numbers.example/area"}
  landing_page: https://numbers.example/residents
"""
CONFIG = f"""\
title: Residents | of <two> regions
{ABOUT}dataset: packaged
source: {{path: data/source.parquet}}
privacy: {{adjacency: replace_one, unit: record, n_records: {N}}}
budget: {{epsilon: 8.0, delta: 1.0e-6}}
domain:
  region:
    type: categorical
    categories: ["=north", "-|so\\"uth", "'@", plain]
    value_labels: [The <North>, South | islands, At, Plain]
    label: Region
    other: true
    missing: true
  age: {{type: integer, lower: 0, upper: 99, width: 10, label: Age, unit: years}}
  pay: {{type: numeric, lower: 0, upper: 100, bins: 5, missing: true, unit: "1,000 EUR"}}
  born: {{type: date, first: 1950-01-01, last: 2000-12-31, by: year}}
  employed: {{type: categorical, categories: [false, true], label: In work}}
  grade: {{type: ordinal, categories: [1.5, 2, 2.5], missing: true}}
products:
  people: {{kind: microdata, share: 0.125, mechanism: bootstrap, columns: [region, age, pay],
    accept: mostly_noise, title: People, description: Drawn records.}}
  wide: {{kind: microdata, share: 0.125, mechanism: marginals, accept: mostly_independent,
    copies: 2,
    columns: [region, age, pay, born, employed, grade]}}
  noisy: {{kind: microdata, share: 0.125, mechanism: laplace, columns: [born, employed],
    accept: mostly_noise}}
  ages_counts: {{kind: table, share: 0.125, mechanism: laplace, columns: [age],
    accept: mostly_noise,
    bands: [cumulative]}}
  counts: {{kind: table, share: 0.125, mechanism: laplace, columns: [employed, grade],
    accept: mostly_noise,
    bands: [cells]}}
  level: {{kind: estimate, share: 0.125, mechanism: joint_moments, statistic: mean, columns: [age],
    title: Mean age}}
  odds: {{kind: function, share: 0.125, mechanism: bernstein, target: logistic, columns: [age],
    label: employed, degree: 4, order: 2}}
  ages: {{kind: function, share: 0.125, mechanism: bernstein, target: kde, columns: [age],
    bandwidth: 0.2, degree: 6, order: 2}}
publish: {{directory: releases, plots: false, formats: [parquet, csv], name: first}}
"""


def source() -> pa.Table:
    """Private records of the domain."""
    regions = ("=north", '-|so"uth', "'@", "plain", "x", None)
    return pa.table(
        {
            "region": [regions[i % 6] for i in range(N)],
            "age": [i % 90 for i in range(N)],
            "pay": [None if i % 7 == 0 else float(i % 97) for i in range(N)],
            "born": [datetime.date(1950 + i % 50, 1, 1) for i in range(N)],
            "employed": [i % 3 == 0 for i in range(N)],
            "grade": [(1.5, 2.0, 2.5, None)[i % 4] for i in range(N)],
        }
    )


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory, founded: Any) -> Path:
    """A bundle with every kind of product, and every kind of column and file."""
    agency = founded(tmp_path_factory.mktemp("package"), "packaged")
    agency.write_source(source())
    agency.amend(epsilon="20")
    agency.text = CONFIG
    agency.config.write_text(CONFIG)
    return Path(agency.run().bundle)


def package_of(bundle: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((bundle / "datapackage.json").read_text())
    return found


def test_every_resource_has_the_bytes_and_the_hash_of_its_file(bundle: Path) -> None:
    resources = package_of(bundle)["resources"]
    for each in resources:
        content = (bundle / each["path"]).read_bytes()
        assert each["bytes"] == len(content)
        assert each["hash"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
        assert each["mediatype"] and each["title"]
    described = {each["path"] for each in resources}
    assert len(described) == len({each["name"] for each in resources}) == len(resources)
    files = {path.relative_to(bundle).as_posix() for path in bundle.rglob("*.*")}
    assert {f for f in files if f.startswith("data/") or f == "evaluate.py"} == described
    shared = {each["path"] for each in resources if "product" not in each}
    assert shared == {"evaluate.py"}  # of two functions


def test_the_package_says_what_the_config_says(bundle: Path) -> None:
    package = package_of(bundle)
    run_id = json.loads((bundle / "manifest.json").read_text())["run_id"]
    assert {key: package[key] for key in package if key not in ("resources", "columns")} == {
        "profile": "data-package",
        "name": "packaged",
        "id": f"urn:uuid:{uuid.UUID(run_id)}",
        "title": "Residents | of <two> regions",
        "description": "Pay and opinions of residents, *drawn* & noisy.",
        "homepage": "https://numbers.example/residents",
        "keywords": ["pay", "opinions"],
        "licenses": [
            {
                "name": "CC-BY-4.0",
                "title": "CC-BY-4.0",
                "path": "https://spdx.org/licenses/CC-BY-4.0.html",
            }
        ],
        "contributors": [
            {
                "title": "Office of Numbers",
                "path": "https://numbers.example",
                "role": "publisher",
            },
            {"title": "Data desk", "email": "desk@numbers.example", "role": "contact"},
        ],
        "temporal": {"start": "2000", "end": "2001-06"},
        "spatial": {"title": "North and South", "path": "https://numbers.example/area"},
        "created": json.loads((bundle / "manifest.json").read_text())["created"],
        "products": [
            {"name": "people", "title": "People", "description": "Drawn records."},
            {"name": "level", "title": "Mean age"},
        ],
    }
    people = next(r for r in package["resources"] if r["path"] == "data/people.csv")
    assert (people["title"], people["description"], people["product"]) == (
        "People: synthetic records", "Drawn records.", "people",
    )  # fmt: skip


@pytest.mark.system
def test_frictionless_finds_every_file_in_order(bundle: Path) -> None:
    from frictionless import Package

    report = Package(str(bundle / "datapackage.json")).validate()
    assert [(t.place, [e.message for e in t.errors][:3]) for t in report.tasks if t.errors] == []
    assert report.valid and not report.warnings and not any(t.warnings for t in report.tasks)
    assert len(report.tasks) == len(package_of(bundle)["resources"])


@pytest.mark.system
def test_values_in_parquet_keep_the_schema_too(bundle: Path) -> None:
    """Frictionless reads a null in Parquet as NaN, so it is given the rows."""
    from frictionless import Resource, Schema

    checked = 0
    for each in package_of(bundle)["resources"]:
        if each["format"] != "parquet":
            continue
        table = pq.read_table(bundle / each["path"])
        rows = [list(row.values()) for row in table.to_pylist()]
        schema = Schema.from_descriptor(each["schema"])
        report = Resource(data=[table.column_names, *rows], schema=schema).validate()
        assert report.valid, (each["path"], [e.message for t in report.tasks for e in t.errors][:3])
        checked += 1
    assert checked > 10


@pytest.mark.system
def test_a_changed_file_is_found_by_frictionless(bundle: Path, tmp_path: Path) -> None:
    from frictionless import Package

    for name, old, new in (("people.csv", b"0", b"1"), ("ages.json", b"-", b"+")):
        copy = tmp_path / name
        shutil.copytree(bundle, copy)
        path = copy / "data" / name
        path.write_bytes(path.read_bytes().replace(old, new, 1))
        package = package_of(copy)
        package["resources"] = [r for r in package["resources"] if r["path"] == f"data/{name}"]
        (copy / "datapackage.json").write_text(json.dumps(package))
        assert not Package(str(copy / "datapackage.json")).validate().valid


def test_the_codebook_says_what_every_column_means(bundle: Path) -> None:
    package = package_of(bundle)
    text = (bundle / "codebook.md").read_text()
    assert text == codebook_text(package)
    lines = text.splitlines()
    for said in (
        "# Codebook: Residents \\| of \\<two\\> regions",
        "### `age`: Age",
        "- Unit: years",
        "- Cells: 10 cells of 10 values: 0 to 9, 10 to 19, ... 90 to 99",
        "- Outside: Fractions were rounded down; a value below 0 counted as 0, one above 99 as 99.",
        "- Cells: 5 cells, each 20 wide; a value on an edge is in the cell above",
        "- Unit: 1,000 EUR",
        "- Cells: 51 cells, one for each year",
        "- Range: 1950-01-01 to 2000-12-31",
        "| `=north` | The \\<North\\> |",
        '| `-\\|so"uth` | South \\| islands |',
        "- Outside: A value that is not listed counted as `other`.",
        "Files: `data/people.parquet`, `data/people.csv`",
        "| `estimate` | number | Unbiased estimate of the count; may be negative. |",
        "### `evaluate.py`",
    ):
        assert said in lines
    fields = {
        f["name"] for r in package["resources"] for f in r.get("schema", {}).get("fields", ())
    }
    assert all(f"| `{name}` |" in text for name in fields)
    assert text.count("### `age`") == 1  # one column in many files


def test_the_readme_says_who_publishes_and_how_to_cite(bundle: Path) -> None:
    package = package_of(bundle)
    readme = (bundle / "README.md").read_text()
    assert readme.splitlines()[2] == "Pay and opinions of residents, \\*drawn\\* \\& noisy."
    section = readme.partition("## Publication\n\n")[2]
    year = package["created"][:4]
    assert section.splitlines() == [
        "- Publisher: Office of Numbers, <https://numbers.example>",
        "- Contact: Data desk, <desk@numbers.example>",
        "- Licence: CC-BY-4.0, <https://spdx.org/licenses/CC-BY-4.0.html>",
        "- Period: 2000 to 2001-06",
        "- Area: North and South, <https://numbers.example/area>",
        "- Page: <https://numbers.example/residents>",
        "- Keywords: pay, opinions",
        f"- Cite as: Office of Numbers. \\({year}\\). Residents \\| of \\<two\\> regions "
        f"\\[Data set\\]. <https://numbers.example/residents> <{package['id']}>",
    ]


def test_a_reprint_keeps_the_words_with_hashes_of_its_own(bundle: Path) -> None:
    again = reprint(bundle, from_options(["title=Anew", "publish.formats=[csv]"])).bundle
    assert check_reprint(again)
    package, old = package_of(again), package_of(bundle)
    same = ("id", "contributors", "licenses", "columns", "products", "keywords")
    assert {key: package[key] for key in same} == {key: old[key] for key in same}
    for each in package["resources"]:
        content = (again / each["path"]).read_bytes()
        assert each["hash"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
    resources, before = ({r["path"]: r for r in p["resources"]} for p in (package, old))
    for path in ("data/people.csv", "data/counts.csv"):
        assert resources[path]["schema"] == before[path]["schema"]
        assert resources[path]["title"] == before[path]["title"]
    back = package_of(reprint(again, from_options(["publish.formats=[parquet]"])).bundle)
    schema = next(r["schema"] for r in back["resources"] if r["path"] == "data/people.parquet")
    assert schema == before["data/people.parquet"]["schema"]  # no escape of a CSV is left in it
    listed = [r["schema"]["fields"][0]["constraints"]["enum"] for r in before.values()
              if r["path"] in ("data/people.parquet", "data/people.csv")]  # fmt: skip
    assert listed == [
        ["=north", '-|so"uth', "'@", "plain", "other"],
        ["'=north", "'-|so\"uth", "''@", "plain", "other"],
    ]
    assert (again / "codebook.md").read_text().startswith("# Codebook: Anew\n")
    readme = (again / "README.md").read_text()
    assert readme.count("## Publication") == 1 and "Anew \\[Data set\\]" in readme


def test_a_classifier_says_which_class_is_positive(bundle: Path) -> None:
    said = "logistic regression, log odds of employed = true"
    assert said in (bundle / "README.md").read_text().replace("\\=", "=")
    assert json.loads((bundle / "data" / "odds.json").read_text())["function"].startswith(said)
    assert said in (bundle / "codebook.md").read_text()
    stated = json.loads((bundle / "privacy.json").read_text())["products"]["odds"]
    assert stated["function"].startswith("logistic regression, log odds of employed,")  # as charged


@pytest.mark.nightly
def test_other_words_alone_change_no_product_and_no_cost(bundle: Path, tmp_path: Path) -> None:
    text = CONFIG.replace("title: People", "title: Persons").replace("cc-by-4.0", "CC0-1.0")
    path = tmp_path / "release.yaml"
    path.write_text(text.replace("label: Age", "label: Years of age"))
    found = propose(bundle, path, (), None, Home(bundle.parents[1] / "home")).difference
    assert set(found["config"]) == {"about.licence", "products.people.title", "domain.age.label"}
    assert {each["fate"] for each in found["products"].values()} == {"unchanged"}
    assert {each["change"] for each in found["cost"].values()} == {"0"}
    assert not found["protected"]


def test_who_asks_for_what_a_table_counts_is_sent_there(bundle: Path) -> None:
    """Records by marginals answer with more noise, mostly."""
    release = statpress.open(bundle, product="wide")
    said = "data/ages_counts.parquet, a table of the same release, counts the same columns"
    for found in (
        release.table("age"),
        release.table(where={"age": ("4.5", "14.5")}),
        release.share("age"),
    ):
        assert any(said in note for note in found.notes)
    for found in (release.table("grade"), release.mean("age")):
        assert not any("counts the same" in note for note in found.notes)
