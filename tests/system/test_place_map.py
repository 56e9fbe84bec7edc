"""The map of places of the shipped example: its figures are the bundle's, and all can use it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from browser import Browser
from countries import country
from looks import assert_fits, looks

from statpress.configs.loading import load
from statpress.configs.order import Order
from statpress.flows.cli.demo_command import PLACES
from statpress.mechanisms.places.place_tables import NoisyPlaces
from statpress.tasks.pages.blocks import Page, Section
from statpress.tasks.pages.rendering import rendered
from statpress.tasks.products.place_product import place_map
from statpress.tasks.release.query import Question, ask
from statpress.tasks.source.demo_data import N_RECORDS, write_demo_data

pytestmark = pytest.mark.system
CONFIGS = Path(__file__).parents[2] / "configs"
LAST = "Made with"
MOST_BYTES = 500_000
WIDTHS = (360, 768, 1280)
CHOOSE = """(() => {
  const fields = document.querySelectorAll('.map select');
  %s.forEach((text, k) => {
    fields[k].value = [...fields[k].options].find(each => each.textContent === text).value;
    fields[k].dispatchEvent(new Event('change'));
  });
  return 1;
})()"""
ROWS = (
    "[...document.querySelectorAll('.map tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
)
TITLES = "[...document.querySelectorAll('.place title')].map(each => each.textContent).sort()"
FILLS = "[...document.querySelectorAll('.place path')].map(each => getComputedStyle(each).fill)"
OUTPUT = "document.querySelector('.map output').textContent"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory, founded: Any) -> Path:
    """The shipped example, released."""
    agency = founded(tmp_path_factory.mktemp("mapped"), "mapped")
    write_demo_data(agency.folder / "data")
    agency.dataset = "census2000"
    agency.register(n_records=N_RECORDS["census2000"])
    agency.config.write_text((CONFIGS / "census2000_places.yaml").read_text())
    for name in PLACES:
        (agency.folder / name).write_text((CONFIGS / name).read_text())
    return Path(agency.run(Order(agency.config, (), agency.folder)).bundle)


def figure_of(bundle: Path) -> str:
    """The part of the report that is the map."""
    found = re.search(r'<figure class="map.*?</figure>', (bundle / "report.html").read_text(), re.S)
    assert found
    return found[0]


def levels_of(bundle: Path) -> dict[str, Any]:
    """What the page's script reads."""
    found = re.search(r'<script type="application/json">(.*?)</script>', figure_of(bundle), re.S)
    assert found
    return {level["name"]: level for level in json.loads(found[1])["levels"]}


def number(text: str) -> float:
    return float(text.replace(",", ""))


def views_of(level: Any) -> dict[str, dict[str, tuple[str, str]]]:
    """By view and place the figure and its interval."""
    return {
        view["label"]: dict(zip(level["places"],
                                zip(view["values"], view["intervals"], strict=True), strict=True))
        for view in level["views"]
    }  # fmt: skip


@pytest.mark.parametrize("level", ["division", "state"])
def test_its_records_are_those_of_the_files(bundle: Path, level: str) -> None:
    table = pq.read_table(bundle / "data" / f"workers_{level}.parquet").to_pandas()
    sums = table.groupby(level)["estimate"].sum()
    shown = views_of(levels_of(bundle)[level])["records"]
    assert {place: number(value) for place, (value, _) in shown.items()} == pytest.approx(
        sums.to_dict(), abs=0.5 + 1e-6
    )
    cells = ask(bundle, Question(columns=(level,), conditions={}, product="workers"))["cells"]
    for cell in cells:
        _, interval = shown[cell["values"][level]]
        ends = [number(each) for each in interval.split(" to ")]
        assert ends == pytest.approx([cell["lower"], cell["upper"]], abs=0.5 + 1e-6)


def test_its_shares_are_those_of_the_files(bundle: Path) -> None:
    level = levels_of(bundle)["state"]
    table = pq.read_table(bundle / "data" / "workers_state.parquet").to_pandas()
    counts = table.pivot_table(index="state", columns="educ", values="estimate")
    shares = 100 * counts.div(counts.sum(axis=1), axis=0)
    views = views_of(level)
    assert len(views) == 8
    for educ in shares.columns:
        shown = views[f"Educational attainment: {educ}"]
        for place, (value, _) in shown.items():
            assert number(value) == pytest.approx(shares.loc[place, educ], rel=0.006)
    asked = Question(
        statistic="share", of=("educ",), columns=("state",), conditions={}, product="workers"
    )
    cells = ask(bundle, asked)["cells"]
    assert len(cells) == 51 * 7
    for cell in cells:
        label = f"Educational attainment: {cell['values']['educ']}"
        value, interval = views[label][cell["values"]["state"]]
        parts = [cell[part] for part in ("estimate", "lower", "upper")]
        if not all(part is not None and math.isfinite(part) for part in parts):
            assert interval == "not bounded"
            continue
        figures = [number(each) for each in (value, *interval.split(" to "))]
        assert figures == pytest.approx([100 * each for each in parts], rel=0.006, abs=1e-6)


def test_shades_and_hatches_follow_from_the_figures(bundle: Path) -> None:
    for level in levels_of(bundle).values():
        assert len(level["within"]) == 51
        for view in level["views"]:
            values = [number(each) for each in view["values"]]
            by_value = sorted(range(len(values)), key=values.__getitem__)
            shades = [int(view["shades"][place]) for place in by_value]
            assert set(shades) == set(range(5))
            counted = [shades.count(shade) for shade in range(5)]
            assert max(counted) - min(counted) <= 1
            rounding = [k for k in range(1, len(shades)) if shades[k] < shades[k - 1]]
            assert all(values[by_value[k]] == values[by_value[k - 1]] for k in rounding)
            for place, mark in enumerate(view["hatched"]):
                ends = view["intervals"][place].split(" to ")
                if len(ends) < 2:
                    assert mark == "1"
                    continue
                reach = max(abs(number(end) - values[place]) for end in ends)
                if abs(reach / abs(values[place] or 1e-9) - 0.5) > 0.05:  # apart from rounding
                    assert (reach > 0.5 * abs(values[place])) == (mark == "1")


def test_without_scripts_the_first_level_is_shown(bundle: Path) -> None:
    figure = figure_of(bundle)
    assert len(figure.encode()) < MOST_BYTES
    level = levels_of(bundle)["division"]
    shown = views_of(level)["records"]
    titles = re.findall(r"<g class=\"place s\d[^>]*><title>(.*?): (.*?) \((.*?)\)</title>", figure)
    assert len(titles) == 51
    assert {name: (value, interval) for name, value, interval in titles} == shown
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>.*?>(.*?)</td>.*?>(.*?)</td></tr>', figure)
    assert {name: (value, interval) for name, value, interval in rows} == shown
    assert '<div class="fields" hidden>' in figure


def test_a_reader_chooses_level_figure_and_place(bundle: Path, browser: Browser) -> None:
    page = (bundle / "report.html").as_uri()
    browser.heard()
    browser.see(page, LAST)
    for name, level in levels_of(bundle).items():
        for label, shown in views_of(level).items():
            browser.run(CHOOSE % json.dumps([name, label]))
            rows = {row[0]: tuple(row[1:]) for row in browser.run(ROWS)}
            assert rows == shown
            titles = sorted(
                f"{place}: {shown[place][0]} ({shown[place][1]})"
                for place in (level["places"][k] for k in level["within"])
            )
            assert browser.run(TITLES) == titles
    browser.run(CHOOSE % json.dumps(["state", "records", "Texas"]))
    value, interval = views_of(levels_of(bundle)["state"])["records"]["Texas"]
    assert browser.run(OUTPUT) == f"Texas: {value}, 95 % interval {interval}"
    click = "document.querySelector('.place').dispatchEvent(new MouseEvent('click'))"
    title = browser.run("document.querySelector('.place title').textContent")
    browser.run(f"(() => {{ {click}; return 1 }})()")
    assert browser.run(OUTPUT).split(":")[0] == title.split(":")[0]
    fills = set(browser.run(FILLS))
    assert len({each for each in fills if each.startswith("rgb")}) == 5
    assert any("url" in each for each in fills), "small states are hatched"
    messages, requests = browser.heard()
    assert messages == [] and requests == [page]


def test_all_can_use_it_at_every_width(bundle: Path, browser: Browser, full: bool) -> None:
    browser.see((bundle / "report.html").as_uri(), LAST)
    browser.run("document.querySelectorAll('details').forEach(each => each.open = true)")
    for width, scheme in looks(WIDTHS, full):
        browser.look(width, scheme)
        browser.run(CHOOSE % json.dumps(["state", "Educational attainment: 12", "Ohio"]))
        assert_fits(browser, width)
        if scheme == "light" or width == WIDTHS[0]:  # colours are the same at every width
            assert browser.faults(".map") == []
        focused = browser.run(
            "[...document.querySelectorAll('.map select')].map(each => "
            "{ each.focus(); return document.activeElement === each && each.labels.length; })"
        )
        assert focused == [1, 1, 1]


TRACTS = """\
title: t
dataset: d
source: {{path: people.csv}}
privacy: {{adjacency: replace_one, unit: record, n_records: 1000000}}
budget: {{epsilon: 1, delta: 1e-6}}
domain:
  tract: {{type: categorical, categories: {{file: codes.txt}}}}
  age: {{type: integer, lower: 0, upper: 99, width: {width}}}
geography:
  tract: {{levels: [county, tract], file: places.csv, boundaries: tracts.geojson}}
products:
  people: {{kind: table, columns: [age], at: [county, tract]}}
publish: {{directory: releases}}
"""


def test_three_thousand_areas_fit_on_a_page(tmp_path: Path, browser: Browser, full: bool) -> None:
    """Their outlines, of 120,000 points, are in the page once, and so are all figures.

    By day a fifth of the areas, and for outlines a quarter of the bytes.
    """
    side, ages = (55, 5) if full else (25, 2)
    areas = country(side, 3, points=10)
    features = [
        {"type": "Feature", "id": code, "geometry": {"type": "Polygon", "coordinates": rings}}
        for code, rings in areas.items()
    ]
    files = {
        "release.yaml": TRACTS.format(width=100 // ages),
        "codes.txt": "\n".join(areas),
        "places.csv": "county,tract\n" + "".join(f"c{c.split('-')[0]},{c}\n" for c in areas),
        "tracts.geojson": json.dumps({"type": "FeatureCollection", "features": features}),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (product,) = load(tmp_path / "release.yaml").plan().products
    mechanism: Any = product.mechanism
    geography, rng = mechanism.places, np.random.default_rng(1)
    assert sum(map(len, geography.outlines.paths)) < MOST_BYTES / (1 if full else 4)
    values = tuple(
        (2**20 * rng.normal(1e6 / ages / n, 15, (n, ages))).astype(np.int64)
        for n in (geography.tree.sizes[table.level] for table in mechanism.tables)
    )
    raw = NoisyPlaces(
        product.domain, geography, mechanism.tables, mechanism.scales(), values, 10**6
    )
    drawn = place_map(raw, raw.estimates(), {name: {"name": name} for name in product.domain.names})
    assert drawn is not None and [len(level.views) for level in drawn.levels] == [1 + ages] * 2
    page = tmp_path / "page.html"
    page.write_text(rendered(Page("Areas", [Section("a", LAST, [drawn])])), encoding="utf-8")
    assert page.stat().st_size < 3_000_000 / (1 if full else 5)
    browser.see(page.as_uri(), LAST)
    browser.look(360, "dark")
    browser.run(CHOOSE % json.dumps(["tract", f"age: 0 to {100 // ages - 1}", "7-9"]))
    assert browser.run("document.querySelectorAll('.marked').length") == 1
    assert browser.run("document.querySelectorAll('.place').length") == side**2
    assert_fits(browser, 360)
    browser.heard()
