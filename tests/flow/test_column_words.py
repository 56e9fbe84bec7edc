"""Labels, descriptions, units and value labels of columns, from the config into the bundle."""

import html
import json
from pathlib import Path
from typing import Any

import pytest

from statpress.configs.loading import load
from statpress.mechanisms.errors import ConfigError
from statpress.tasks.catalogues.data_package import with_words
from statpress.tasks.products.publication import codebook
from statpress.tasks.release.refine import Options, refine
from statpress.tasks.release.reprint import check_reprint, reprint

REGION = "categories: [north, south], "
PAY = "pay: {type: numeric, "
WORDS = {
    "region": {
        "title": "Region <of> residence",
        "description": "At the end of the year",
        "categories": [
            {"value": "north", "label": "North & islands"},
            {"value": "south", "label": "South"},
        ],
    },
    "pay": {"title": "Monthly pay", "unit": "1,000 EUR"},
}


@pytest.fixture(scope="module")
def pressed(tmp_path_factory: pytest.TempPathFactory, founded: Any) -> Path:
    """A bundle of microdata and an estimate whose config describes two of four columns."""
    agency = founded(tmp_path_factory.mktemp("words"), "column words")
    agency.replace(
        REGION,
        REGION + 'label: "Region <of> residence", description: At the end of the year, '
        "value_labels: [North & islands, South], ",
    )
    agency.replace(PAY, PAY + 'label: Monthly pay, unit: "1,000 EUR", ')
    agency.replace("columns: [born], share: 0.5}", "columns: [born], share: 0.3}")
    agency.replace(
        "publish:",
        "  level: {kind: estimate, statistic: mean, columns: [pay], share: 0.2}\npublish:",
    )
    return agency.run().bundle


def fields(folder: Path, stem: str) -> dict[str, Any]:
    package = json.loads((folder / "datapackage.json").read_text())
    (found,) = (r for r in package["resources"] if r["path"] == f"data/{stem}.csv")
    return {field["name"]: field for field in found["schema"]["fields"]}


def test_the_data_package_says_what_the_config_says(pressed: Path) -> None:
    for stem in ("people", "people_debiased"):
        described = fields(pressed, stem)
        for name, words in WORDS.items():
            assert described[name].items() >= words.items()
            assert described[name]["declared"]["kind"] in ("categorical", "numeric")
        assert "title" not in described["age"]
    assert "title" not in fields(pressed, "people_debiased")["estimate"]
    package = json.loads((pressed / "datapackage.json").read_text())
    columns = {each["name"]: each for each in package["columns"]}
    assert list(columns) == ["region", "age", "pay", "born"]
    for name, column in columns.items():
        assert column.pop("declared")["kind"] and column.pop("type")
        assert column == {"name": name} | WORDS.get(name, {})


def test_the_page_says_it_too_and_escapes_it(pressed: Path) -> None:
    page = (pressed / "report.html").read_text()
    table = page.split('<h2 id="columns" tabindex="-1">What the columns mean</h2>')[1]
    for words in ("Region <of> residence", "At the end of the year", "Monthly pay", "1,000 EUR"):
        assert html.escape(words) in table
    assert "north = North &amp; islands; south = South" in table
    assert "<of>" not in page


def test_reprints_and_refined_tables_keep_it(pressed: Path, tmp_path: Path) -> None:
    again = reprint(pressed).bundle
    assert check_reprint(again)
    assert fields(again, "people") == fields(pressed, "people")
    assert '<h2 id="columns"' in (again / "report.html").read_text()
    refine(pressed, tmp_path / "refined", Options(products=("people",), format="csv"))
    assert fields(tmp_path / "refined", "people")["pay"]["title"] == "Monthly pay"


def test_a_config_without_words_adds_nothing(agency: Any) -> None:
    release = load(agency.config)
    assert codebook(release.config.domain, release.domain) == {}
    resource = {"path": "a.csv", "schema": {"fields": [{"name": "age", "declared": {}}]}}
    assert with_words([resource, {"path": "b.json"}], {}) == [resource, {"path": "b.json"}]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (REGION, REGION + "value_labels: [North], ", "1 value_labels for 2 categories"),
        (PAY, PAY + "value_labels: [North], ", "1 value_labels for 0 special values"),
        (PAY, PAY + 'label: "a\\tb", ', "one line of printable text"),
        (PAY, PAY + "unit: 5, ", "valid string"),
    ],
)
def test_what_is_refused_names_its_place(agency: Any, old: str, new: str, said: str) -> None:
    agency.replace(old, new)
    with pytest.raises(ConfigError, match=said) as caught:
        load(agency.config)
    assert caught.value.where.startswith("release.yaml:")
    assert "domain." in caught.value.where
