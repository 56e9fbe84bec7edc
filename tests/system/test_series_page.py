"""``series.html`` in a browser: how it looks, whom it asks, who can read it.

Pictures and the printed page are files of the test run (tests/README.md).
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from browser import FEW_ROWS, Browser
from looks import look_at, looks
from monthly import Office

pytestmark = pytest.mark.system
WIDTHS = (360, 768, 1280)
LAST = "datapackage.json."
PRODUCTS = """\
geography:
  region:
    levels: [country, half]
    file: ["country,half", "all,north", "all,south"]
    boundaries: ["place,row,column", "north,1,1", "south,2,1"]
products:
  regions: {accept: mostly_noise, kind: table, mechanism: laplace, columns: [region, born],
    share: 0.4, title: Regions by year of birth}
  income: {accept: mostly_noise, kind: estimate, statistic: mean, columns: [pay], share: 0.3}
  halves: {accept: mostly_noise, kind: table, at: {country: [[born]], half: [[born]]}, share: 0.3}
publish: {directory: releases, plots: false, formats: [csv]}
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, founded: Callable[..., Any]) -> Path:
    """Of a series that drifts, with a gap, a changed definition and a bundle that is broken."""
    with pytest.MonkeyPatch.context() as patch:
        agency = founded(tmp_path_factory.mktemp("series"))
        office = Office(agency, patch).on("2026-12-11")
        head, _, _ = agency.text.partition("products:")
        agency.text = head.replace("delta: 0", "delta: 1.0e-8") + PRODUCTS
        agency.replace("last: 2000-12-31", "last: 1969-12-31")
        agency.replace("epsilon: 0.1", "epsilon: 0.4")
        agency.replace("[north, south], other: true, missing: true", "[north, south]")
        rng = np.random.default_rng(1)
        months = ["2026-01", "2026-02", "2026-04", "2026-05"]
        for number, month in enumerate(months):
            north = rng.random(len(office.table)) < 0.3 + 0.12 * number
            regions = pa.array(np.where(north, "north", "south").tolist())
            table = office.table.set_column(0, "region", regions)
            pq.write_table(table, agency.folder / "data" / f"{month}.parquet")
            if month == "2026-04":
                agency.replace("plots: false, ", "")  # pictures from here on
                agency.replace("[north, south]", "[north, south, <east>]")
                agency.replace('"all,south"]', '"all,south", "all,<east>"]')
                agency.replace('"south,2,1"]', '"south,2,1", "<east>,1,2"]')
            if month == "2026-05":
                (bundle,) = office.bundles()["2026-02"]
                (bundle / "README.md").write_text("")
            office.release(month)
        return Path(agency.releases / "lfs" / "series.html")


def test_all_can_read_it_at_every_width_by_day_and_by_night(
    page: Path, browser: Browser, pictures: Path | None, full: bool
) -> None:
    browser.heard()
    browser.see(page.as_uri(), "Left out of this page: 2026-02/", "<east>", LAST)
    look_at(browser, WIDTHS, full, pictures, "series-")
    if pictures:
        browser.print_to(pictures / "series.pdf")
    browser.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    if not full:
        browser.run(FEW_ROWS)
    for width, scheme in looks(WIDTHS, full):
        browser.look(width, scheme)
        sizes = browser.run(
            "[...document.querySelectorAll('.plot svg')]"
            ".filter(each => !each.closest('details:not([open])'))"
            ".map(each => [each.clientWidth, each.clientHeight])"
        )
        assert len(sizes) > 4 and all(w > 80 and h > 50 for w, h in sizes)
        assert browser.faults() == []
    # Twin: a chart without words would be found.
    browser.run("document.querySelector('.plot').removeAttribute('aria-label')")
    assert {each[1] for each in browser.faults(".plot")} == {"role-img-alt"}
    messages, requests = browser.heard()
    assert messages == [] and requests == [page.as_uri()]


def test_every_chart_has_its_figures_and_every_link_leads_to_a_bundle(
    page: Path, browser: Browser
) -> None:
    browser.see(page.as_uri(), LAST)
    charts, tables = browser.run(
        "[document.querySelectorAll('.trends').length,"
        " document.querySelectorAll('.trends table').length]"
    )
    assert charts == tables > 3
    links = browser.run(
        "[...document.querySelectorAll('main a')].map(each => each.getAttribute('href'))"
    )
    assert len([each for each in links if each.endswith("report.html")]) >= 3
    for link in links:
        assert link.startswith("./") and (page.parent / link).is_file(), link
    reached = browser.run(
        "[...document.querySelectorAll('summary')].every("
        "  each => { each.focus(); return document.activeElement === each; })"
    )
    assert reached is True, "everything that folds opens by keyboard"
    moved = shutil.copytree(page.parent, page.parent.parent / "moved", symlinks=True)
    browser.see((moved / page.name).as_uri(), LAST)


def test_the_map_is_that_of_the_newest_report(page: Path, browser: Browser) -> None:
    def data(path: Path) -> Any:
        (text,) = re.findall(r'<script type="application/json">(.*?)</script>', path.read_text())
        return json.loads(text)

    before, newest = (next(page.parent.glob(f"2026-0{m}/*/report.html")) for m in (4, 5))
    assert data(page) == data(newest) != data(before)
    browser.see(page.as_uri(), "Map of every country and every half, 2026-05", LAST)
    for name, rows in (("half", 3), ("country", 1)):
        browser.run(
            "(() => { const field = document.querySelector('.map select'); field.focus();"
            f" field.value = [...field.options].find(each => each.text === '{name}').value;"
            " field.dispatchEvent(new Event('change')); return 1; })()"
        )
        assert browser.run("document.querySelectorAll('.map tbody tr').length") == rows
