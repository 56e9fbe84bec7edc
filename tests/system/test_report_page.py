"""``report.html`` in a browser: how it looks, whom it asks, who can read it, what it answers.

The figures of its explorer are those of ``statpress query``. Pictures and the printed page are
files of the test run (tests/README.md).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from browser import FEW_ROWS, SERIOUS, Browser
from command_forks import forked
from looks import assert_fits, look_at

from statpress.configs.order import Order, from_options
from statpress.tasks.pages.blocks import Explorer, Page, Section
from statpress.tasks.pages.rendering import rendered
from statpress.tasks.products.answer_words import named_cells
from statpress.tasks.products.distributions import cell_names
from statpress.tasks.products.publication import column_from
from statpress.tasks.source.demo_data import write_demo_data

pytestmark = pytest.mark.system
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
MEASURED = (
    "divorce happy female", "happy educ", "happy region", "educ region", "workstat female",
    "owngun tvhours", "workstat attend", "reg16 region", "prestige educ", "workstat income",
    "income educ", "reg16 black",
)  # fmt: skip
PAIRS = "".join(f"      - {{columns: [{', '.join(each.split())}]}}\n" for each in MEASURED)
KNOBS = f'    share: 0.9\n    screen: "no"\n    copies: 2\n    pairs:\n{PAIRS}'

MOST_BYTES = 1_500_000
MOST_ELEMENTS = 20_000
WIDTHS = (390, 768, 1440)
ROUNDING = 0.05 + 1e-6
"""Half a unit of the last digit shown, and the digits that the page's tables have."""
HELD = 0.5e-5
"""How far a count of the page's tables is from the release's."""
CHOICES = [
    ("happy", ("educ",), None),
    ("owngun", ("tvhours",), None),  # missing values on both sides
    ("workstat", (), ("attend", "missing")),  # a condition that few records meet
]
MORE_CHOICES = [
    ("educ", (), None),
    ("divorce", ("happy",), ("female", "women")),
    ("workstat", ("female",), None),
    ("happy", (), ("divorce", "yes")),
    ("happy", ("female", "divorce"), None),
]
CHOOSE = """(() => {
  const fields = document.querySelectorAll('.explorer select');
  const pick = (field, text) => {
    const option = [...field.options].find(each => each.textContent === text
      || each.textContent.endsWith(`(${text})`));
    field.value = option.value;
    field.dispatchEvent(new Event('change'));
  };
  const [shown, by, also, column, value] = fields;
  for (const field of [also, by, column]) {
    field.value = '';
    field.dispatchEvent(new Event('change'));
  }
  const asked = %s;
  pick(shown, asked.shown);
  asked.by.forEach((each, k) => pick([by, also][k], each));
  if (asked.where) { pick(column, asked.where[0]); pick(value, asked.where[1]); }
  return 1;
})()"""
READ = """[...document.querySelectorAll('.explorer tbody tr')]
  .map(row => [...row.cells].map(cell => cell.textContent))"""
ORIGIN = "document.querySelector('.explorer .origin').textContent"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory, founded: Any) -> Path:
    """The wide demo with words, an estimate and the tables that are asked for.

    One of them is of three columns. It follows another release.
    """
    agency = founded(tmp_path_factory.mktemp("report"), "reported")
    write_demo_data(agency.folder / "data")
    text = (CONFIGS / "happiness.yaml").read_text()
    for old, new in (
        ("about:\n", ABOUT),
        ("".join(FEMALE), FEMALE[0] + MEN),
        ("    kind: microdata\n", f"    kind: microdata\n{KNOBS}"),
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


def test_it_looks_well_at_every_width_by_day_and_by_night(
    bundle: Path, browser: Browser, pictures: Path | None, tmp_path: Path, full: bool
) -> None:
    page = (bundle / "report.html").as_uri()
    browser.heard()
    browser.see(page, LAST)
    look_at(browser, WIDTHS, full, pictures, "")
    printed = (pictures or tmp_path) / "report.pdf"
    browser.print_to(printed)
    assert printed.read_bytes().startswith(b"%PDF")
    messages, requests = browser.heard()
    assert messages == [] and requests == [page]


def test_a_browser_has_little_to_do_for_it(bundle: Path, browser: Browser) -> None:
    """And without scripts there is something, too."""
    page = bundle / "report.html"
    text = page.read_text(encoding="utf-8")
    assert page.stat().st_size < MOST_BYTES
    charts = text[text.index("Charts of all 15 columns") :]
    folded = charts[: charts.index('<div class="gallery">') + charts.index("</section>")]
    assert folded.count("<svg") >= 15, "what is there without scripts"
    assert "<noscript>" in text and "statpress query answers the rest" in text
    browser.look(1440, "light")
    browser.see("about:blank")
    browser.see(page.as_uri(), LAST)
    assert browser.run("document.querySelectorAll('*').length") < MOST_ELEMENTS
    took, drawn = browser.run(
        "[performance.getEntriesByType('navigation')[0].loadEventEnd,"
        " performance.getEntriesByName('explorer')[0].startTime]"
    )
    assert min(took, drawn) > 0  # it depends on the machine: it is told, and not bounded
    print(f"{page.stat().st_size:,} bytes, loaded after {took:.0f} ms, a chart after {drawn:.0f}")


def test_whoever_cannot_see_it_can_read_and_use_it(
    bundle: Path, browser: Browser, full: bool
) -> None:
    """With everything unfolded; of rows that are alike some are enough, if not ``full``."""
    browser.see((bundle / "report.html").as_uri(), LAST)
    browser.look(390, "light")
    choose(browser, "workstat", ("female",), ("happy", "very happy"))
    choose(browser, "workstat", ("female",))
    browser.run("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert_fits(browser, 390)
    if not full:
        browser.run(FEW_ROWS)
    assert [each for each in browser.faults() if each[0] in SERIOUS] == []
    browser.look(390, "dark")
    assert [each for each in browser.faults() if each[0] in SERIOUS] == []
    assert browser.faults(".explorer") == []  # of no weight either
    # Twin: the same would find a picture without words, and grey on grey.
    browser.run("""(() => {
      const bad = document.createElement('p');
      bad.innerHTML = 'faint<img src="data:,">';
      bad.style = 'color: #777; background: #888';
      document.querySelector('main').append(bad);
      return 1;
    })()""")
    found = browser.faults("main > p:last-child")
    assert {each[1] for each in found if each[0] in SERIOUS} == {"color-contrast", "image-alt"}
    browser.heard()


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


def cells(bundle: Path, name: str) -> dict[str, str]:
    """The cells of a column: as ``statpress query`` names them, how the page does."""
    package = json.loads((bundle / "datapackage.json").read_text())
    (resource,) = (r for r in package["resources"] if r["path"] == "data/people.csv")
    fields = {field["name"]: field for field in resource["schema"]["fields"]}
    column = column_from(fields[name]["declared"])
    return dict(zip(named_cells(column), cell_names(column, fields[name]), strict=True))


def named(bundle: Path, where: tuple[str, str]) -> str:
    """How ``statpress query`` names a value that the page shows."""
    return next(value for value, shown in cells(bundle, where[0]).items() if shown == where[1])


def query(bundle: Path, *arguments: str) -> Any:
    """The answer of the command line."""
    done = forked("query", str(bundle), *arguments, "--json", cwd=bundle)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def choose(
    browser: Browser, shown: str, by: tuple[str, ...] = (), where: tuple[str, str] | None = None
) -> list[list[str]]:
    """Make a choice with the page's fields, and read the table of figures."""
    browser.run(CHOOSE % json.dumps({"shown": shown, "by": by, "where": where}))
    found: list[list[str]] = browser.run(READ)
    return found


def number(text: str) -> float | None:
    """A figure as it is shown; None where it is not bounded."""
    if text == "not bounded":
        return None
    return float(text.removesuffix(" %").replace(",", ""))


def differences(bundle: Path, rows: list[list[str]], choice: Any) -> list[tuple[Any, ...]]:
    """Figures of the page that are not those of ``statpress query``, to the digits shown."""
    shown, by, where = choice
    condition = [f"--where={where[0]}={named(bundle, where)}"] if where else []
    counts = query(bundle, "--columns", *by, shown, *condition)["cells"]
    grouped = [f"--by={each}" for each in by]
    shares = query(bundle, "--share", shown, *grouped, *condition)["cells"]
    labels = {name: cells(bundle, name) for name in (*by, shown)}

    def key(cell: Any) -> tuple[str, ...]:
        return tuple(labels[name][cell["values"][name]] for name in (*by, shown))

    width = 1 + len(by)
    page = {tuple(row[:width]): row[width:] for row in rows}
    assert page.keys() == {key(cell) for cell in counts}
    parts, found = ("estimate", "standard_error", "lower", "upper"), []
    sizes: Counter[tuple[str, ...]] = Counter()
    for cell in counts:
        sizes[key(cell)[:-1]] += cell["estimate"] * (cell["values"][shown] is not None)
        found += [(key(cell), part, number(page[key(cell)][k]), cell[part], ROUNDING)
                  for k, part in enumerate(parts)]  # fmt: skip
    for cell in shares:
        for k, part in enumerate(("estimate", "lower", "upper"), 4):
            figure = cell[part] if cell[part] is None else 100 * cell[part]
            rounded = HELD * len(labels[shown]) / abs(sizes[key(cell)[:-1]])
            near = ROUNDING + (100 + abs(figure or 0)) * rounded  # more for hardly a record
            found.append((key(cell), f"share {part}", number(page[key(cell)][k]), figure, near))
    without = {key(cell) for cell in counts} - {key(cell) for cell in shares}
    assert all(page[each][4:] == ["–"] * 3 for each in without)
    return [
        each for each in found
        if (each[2] is None) != (each[3] is None)
        or (each[2] is not None and abs(each[2] - each[3]) > each[4])
    ]  # fmt: skip


def test_its_figures_are_those_of_the_command_line(
    bundle: Path, browser: Browser, full: bool
) -> None:
    page = (bundle / "report.html").as_uri()
    browser.heard()
    browser.see(page, LAST)
    for choice in CHOICES + MORE_CHOICES * full:
        rows = choose(browser, *choice)
        assert len(rows) > 1
        assert differences(bundle, rows, choice) == []
        shown, by, where = choice
        fragment = "#cols=" + ",".join((shown, *by))
        fragment += f"&where={where[0]}:{named(bundle, where)}" if where else ""
        assert browser.run("location.hash") == fragment
    messages, requests = browser.heard()
    assert messages == [] and requests == [page]


def test_a_page_that_forgets_noise_is_caught(
    bundle: Path, browser: Browser, tmp_path: Path
) -> None:
    """Twin: the variance of what other columns sum up to is left out."""
    text = (bundle / "report.html").read_text(encoding="utf-8")
    right, wrong = "sums / (k * k)", "sums / (k * k * k)"
    assert text.count(right) == 1
    text = text.replace(right, wrong)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = re.sub(r"'sha256-[^']*'|&#39;sha256-.*?&#39;", f"'sha256-{digest}'", text, count=1)
    twin = tmp_path / "report.html"
    twin.write_text(text, encoding="utf-8")
    browser.see(twin.as_uri(), LAST)
    choice = ("happy", ("educ",), None)
    found = differences(bundle, choose(browser, *choice), choice)
    assert {each[1] for each in found} >= {"standard_error", "lower", "upper", "share upper"}
    assert "estimate" not in {each[1] for each in found}


def test_it_says_where_figures_come_from_as_the_command_line_does(
    bundle: Path, browser: Browser
) -> None:
    browser.see((bundle / "report.html").as_uri(), LAST)
    asked = ("query", str(bundle), "--columns", "happy", "educ")
    choose(browser, "happy", ("educ",))
    words = " ".join(forked(*asked, cwd=bundle).stdout.split())
    origin = browser.run(ORIGIN)
    assert origin.startswith("Measured. ") and origin.removeprefix("Measured. ") in words
    # No table has these three columns: what pairs suggest, of the records.
    rows = choose(browser, "happy", ("educ",), ("region", "pacific"))
    assert browser.run(ORIGIN).startswith("Follows from pairs. ")
    assert all(len(row) == 4 for row in rows)  # no interval is claimed
    said = forked(*asked, "--where", "region=pacific", cwd=bundle)
    assert said.returncode == 59
    problem = "No measured table holds these columns together."
    assert problem in " ".join(said.stderr.split()) and problem in browser.run(ORIGIN)
    (apart, *_) = [
        pair.split(",")
        for pair, why in browser.run(
            "JSON.parse(document.querySelector('.explorer script').textContent).unmeasured"
        ).items()
        if why == "assumed"
    ]
    names = browser.run(
        "JSON.parse(document.querySelector('.explorer script').textContent)"
        ".columns.map(column => column.name)"
    )
    one, other = (names[int(each)] for each in apart)
    choose(browser, one, (other,))
    assert browser.run(ORIGIN).startswith("Assumed. ")
    assert f"Not measured: {one} and {other}." in browser.run(ORIGIN)


def test_figures_from_the_records_are_those_of_the_file(bundle: Path, browser: Browser) -> None:
    import pandas as pd

    people = pd.read_csv(bundle / "data" / "people.csv", keep_default_na=False)
    browser.see((bundle / "report.html").as_uri(), LAST)
    rows = choose(browser, "happy", ("divorce", "owngun"))
    shown = {tuple(row[:3]): number(row[3]) for row in rows}
    counted = people.groupby(["divorce", "owngun", "happy"]).size()
    found = {
        tuple(
            cells(bundle, name)[value or "missing"]
            for name, value in zip(counted.index.names, cell, strict=True)
        ): n
        for cell, n in counted.items()
    }
    assert {cell: n for cell, n in shown.items() if n} == found


def test_an_address_shares_a_choice(bundle: Path, browser: Browser) -> None:
    page = (bundle / "report.html").as_uri()
    browser.see("about:blank")
    browser.see(f"{page}#cols=educ,happy&where=region:e.%20nor.%20central", LAST)
    heading = "document.querySelector('.explorer figcaption').textContent"
    assert browser.run(heading) == (
        "Highest year of school completed by General happiness, "
        "where Region of the interview is e. nor. central"
    )
    chosen = browser.run(
        "[...document.querySelectorAll('.explorer select')]"
        ".map(each => each.selectedOptions[0].textContent)"
    )
    assert chosen == [
        "Highest year of school completed (educ)", "General happiness (happy)", "nothing",
        "Region of the interview (region)", "e. nor. central",
    ]  # fmt: skip
    # What is not there is passed over, and the page stays as it was.
    browser.run("(() => { location.hash = '#cols=nothing'; return 1 })()")
    browser.run("(() => { location.hash = '#cols=%E0%A4%A'; return 1 })()")
    assert browser.run(heading).startswith("Highest year of school completed by General")
    assert browser.heard()[0] == []


def test_of_two_explorers_an_address_names_one(
    bundle: Path, browser: Browser, tmp_path: Path
) -> None:
    text = (bundle / "report.html").read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json">(.*?)</script>', text, re.DOTALL)
    assert found
    blocks = [Explorer(json.loads(found[1]) | {"product": name}, "") for name in ("one", "two &")]
    page = tmp_path / "two.html"
    page.write_text(rendered(Page("Two", [Section("a", LAST, blocks)])), encoding="utf-8")
    address = f"{page.as_uri()}#cols=educ&in=two%20%26"
    browser.see("about:blank")
    browser.see(address, LAST)
    headings = "[...document.querySelectorAll('.view figcaption')].map(each => each.textContent)"
    assert browser.run(headings) == ["Year of the interview", "Highest year of school completed"]
    choose(browser, "happy")  # in the first
    assert browser.run("location.hash") == "#cols=happy&in=one"
    assert browser.run(headings) == ["General happiness", "Highest year of school completed"]
    browser.run("(() => { location.hash = '#cols=female'; return 1 })()")  # the first has it
    assert browser.run(headings) == ["Sex of the respondent", "Highest year of school completed"]
    assert browser.heard()[0] == []


@pytest.mark.nightly
def test_the_front_tells_relations_that_the_command_line_confirms(bundle: Path) -> None:
    text = (bundle / "report.html").read_text(encoding="utf-8")
    front = text[: text.index('id="in-short"')]
    told = re.findall(r"<li>\s*<p>(.*?)</p>.*?#cols=(\w+),(\w+)", front, re.DOTALL)
    assert len(told) == 5
    for sentence, of, by in told:
        group, value = re.findall(r"<em>(.*?)</em>", sentence)[:2]
        found = re.search(r"<strong>([\d.]+)\s%\s\(±\s([\d.]+)\)</strong>", sentence)
        assert found
        share, give = found.groups()
        (cell,) = (
            each
            for each in query(bundle, "--share", of, "--by", by)["cells"]
            if cells(bundle, of)[each["values"][of]] == value
            and cells(bundle, by)[each["values"][by]] == group
        )
        half = 0.5 * 10.0 ** -len(share.partition(".")[2])
        assert abs(100 * cell["estimate"] - float(share)) <= half + 1e-9
        assert abs(50 * (cell["upper"] - cell["lower"]) - float(give)) <= half + 1e-9
