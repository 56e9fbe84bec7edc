"""``report.html`` in a browser: how it looks, whom it asks, who can read it, what it answers.

Pictures and the printed page are files of the test run (tests/README.md).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from browser import Browser
from looks import looks_at

from statpress.configs.order import Order, from_options
from statpress.tasks.source.demo_data import write_demo_data

CONFIGS = Path(__file__).parents[2] / "configs"
SEAL = "5bbe98f6" * 8
ABOUT = """\
about:
  publisher: {name: Office of Numbers, url: "https://numbers.example"}
  contact: {name: Data desk, email: desk@numbers.example}
  licence: CC-BY-4.0
"""
FEMALE = (
    "female: {type: categorical, categories: [0, 1], ",
    'value_labels: ["no", "yes"], label: Female}',
)
MEN = "value_labels: [men, women], label: Sex of the respondent}"
MORE = """\
  schooling: {kind: estimate, statistic: mean, columns: [educ], share: 0.1, title: Years of school}
publish: """
LAST = "Made with"
"""Words at the end of the page; once they are there, all of it is."""

MOST_BYTES = 3_000_000
MOST_ELEMENTS = 20_000
WIDTHS = (390, 768, 1440)
ARE_SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory, founded: Any) -> Path:
    """The wide demo with words and an estimate, which follows another release."""
    agency = founded(tmp_path_factory.mktemp("report"), "reported")
    write_demo_data(agency.folder / "data")
    text = (CONFIGS / "happiness.yaml").read_text()
    for old, new in (
        ("about:\n", ABOUT),
        ("".join(FEMALE), FEMALE[0] + MEN),
        ("    kind: microdata\n", "    kind: microdata\n    share: 0.9\n    copies: 2\n"),
        ("gate: {noise: true}\npublish: ", MORE),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    agency.dataset = "happiness"
    agency.register(n_records=17137)
    agency.config.write_text(text)
    title = from_options(["title=Happiness in the United States"])
    return Path(agency.run(Order(agency.config, title, agency.folder, SEAL)).bundle)


@pytest.fixture(scope="module")
def text(bundle: Path, browser: Browser) -> str:
    """What a person sees, with everything unfolded."""
    browser.see((bundle / "report.html").as_uri(), LAST)
    browser.run("document.querySelectorAll('details').forEach(each => each.open = true)")
    shown = re.sub(r"\s+", " ", str(browser.run("document.body.innerText")))
    browser.run("document.querySelectorAll('details').forEach(each => each.open = false)")
    return shown


@pytest.mark.parametrize("looks", looks_at(WIDTHS))
def test_it_looks_well_at_every_width_by_day_and_by_night(
    bundle: Path, browser: Browser, pictures: Path, looks: list[tuple[int, str]]
) -> None:
    page = (bundle / "report.html").as_uri()
    browser.heard()
    browser.see(page, LAST)
    papers = set()
    for width, scheme in looks:
        browser.look(width, scheme)
        shown, inner = browser.run("[document.documentElement.scrollWidth, innerWidth]")
        assert shown <= inner == width, "it scrolls sideways"
        papers.add(browser.run("getComputedStyle(document.body).backgroundColor"))
        if scheme == "light" or width == WIDTHS[0]:  # else only colours are others
            browser.photograph(pictures / f"{width}-{scheme}.png")
    assert len(papers) == 2
    browser.print_to(pictures / "report.pdf")
    assert (pictures / "report.pdf").read_bytes().startswith(b"%PDF")
    messages, requests = browser.heard()
    assert messages == [] and requests == [page]
    print(f"pictures are in {pictures}")


def test_a_browser_has_little_to_do_for_it(bundle: Path, browser: Browser) -> None:
    page = bundle / "report.html"
    assert page.stat().st_size < MOST_BYTES
    browser.look(1440, "light")
    browser.see(page.as_uri(), LAST)
    assert browser.run("document.querySelectorAll('*').length") < MOST_ELEMENTS
    took = browser.run("performance.getEntriesByType('navigation')[0].loadEventEnd")
    assert took > 0  # it depends on the machine: it is told, and not bounded
    print(f"{page.stat().st_size:,} bytes, loaded and laid out after {took:.0f} ms")


def test_whoever_cannot_see_it_can_read_it(bundle: Path, browser: Browser) -> None:
    """In the dark; by day test_explorer.py asks the same of the whole page."""
    browser.see((bundle / "report.html").as_uri(), LAST)
    browser.look(390, "dark")
    found = browser.faults()
    assert [each for each in found if each[0] in ARE_SERIOUS] == []
    # Twin: the same would find a picture without words, and grey on grey.
    browser.run("""(() => {
      const bad = document.createElement('p');
      bad.innerHTML = 'faint<img src="data:,">';
      bad.style = 'color: #777; background: #888';
      document.querySelector('main').append(bad);
      return 1;
    })()""")
    found = browser.faults("main > p:last-child")
    assert {each[1] for each in found if each[0] in ARE_SERIOUS} == {"color-contrast", "image-alt"}


def test_it_answers_a_strangers_ten_questions(bundle: Path, text: str) -> None:
    """From the page only; what it has to say is taken from the files."""
    stated = json.loads((bundle / "privacy.json").read_text())
    manifest = json.loads((bundle / "manifest.json").read_text())
    rows = pq.read_table(bundle / "data" / "people_tables.parquet").to_pylist()
    (men,) = [
        row
        for row in rows
        if row["column_1"] == "female" and row["column_2"] is None and row["value_1"] == "0"
    ]
    sure = 1.96 * men["standard_error"]
    found = re.search(r"men ([\d,]+) ± (\d+) ", text)
    assert found, "how many men"
    assert found[1] == f"{round(men['estimate']):,}"
    assert found[2] == f"{round(sure)}", "how sure"
    assert "95 %" in text
    assert "The unit of privacy is one record." in text, "what was protected"
    gains = 100 * (1 + stated["attack_advantage"]) / 2
    right = re.search(r"more than ([\d.]+) times in 100", text)
    assert right and gains <= float(right[1]) <= gains + 0.1, "what an attacker gains"
    pairs = pq.read_table(bundle / "data" / "people_pairs.parquet").to_pylist()
    apart = [row for row in pairs if row["relation"] == "assumed independent"]
    assert apart, "the demo does not measure all pairs"
    for row in apart:
        listed = f"{row['column_1']} {row['column_2']} not measured: do not trust"
        assert listed in text, "which pairs are not to be trusted"
    assert f"{len(apart)} were not measured." in text
    assert "Whom to ask Data desk, desk@numbers.example" in text, "who to ask"
    assert "May I reuse it? CC-BY-4.0" in text, "may I reuse it"
    year = manifest["created"][:4]
    cited = f"How to cite Office of Numbers. ({year}). Happiness in the United States [Data set]."
    assert cited in text, "how to cite"
    assert "statpress verify FOLDER" in text, "how to verify"
    assert manifest["ledger_entry"]["hash"] in text
    assert f"It follows the release with the seal {SEAL[:16]}" in text, "what changed"
    assert 'title is "Happiness in the United States"' in text


def test_it_says_the_rest_too(bundle: Path, text: str) -> None:
    stated = json.loads((bundle / "privacy.json").read_text())
    works = [each["work"] for cited in stated["citations"].values() for each in cited]
    assert works
    assert all(" ".join(work.split()) in text for work in works)
    (row,) = pq.read_table(bundle / "data" / "schooling.parquet").to_pylist()
    assert f"mean of educ {row['estimate']:.4g}"[:16] in text
    assert "Years of school" in text and "Sex of the respondent" in text
    assert "None" not in text and "nan" not in text.split()
    for name in ("pseudocount", "one_way_share", "screen_share", "sizes", "scale_1"):
        assert name not in text
