"""The explorer of ``report.html`` in a browser: its figures are those of ``statpress query``."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from command_forks import forked

from statpress.configs.order import Order
from statpress.tasks.pages.blocks import Explorer, Page, Section
from statpress.tasks.pages.rendering import rendered
from statpress.tasks.products.answer_words import named_cells
from statpress.tasks.products.distributions import cell_names
from statpress.tasks.products.publication import column_from
from statpress.tasks.source.demo_data import write_demo_data

CONFIG = Path(__file__).parents[2] / "configs" / "happiness.yaml"
LAST = "Made with"
KIND = "    kind: microdata\n"
MEASURED = (
    "divorce happy female", "happy educ", "happy region", "educ region", "workstat female",
    "owngun tvhours", "workstat attend", "reg16 region", "prestige educ", "workstat income",
    "income educ", "reg16 black",
)  # fmt: skip
PAIRS = "".join(f"      - {{columns: [{', '.join(each.split())}]}}\n" for each in MEASURED)
KNOBS = f'    screen: "no"\n    copies: 2\n    pairs:\n{PAIRS}'
MOST_BYTES = 1_500_000
ROUNDING = 0.05 + 1e-6
"""Half a unit of the last digit shown, and the digits that the page's tables have."""
HELD = 0.5e-5
"""How far a count of the page's tables is from the release's."""
CHOICES = [
    ("happy", ("educ",), None),
    ("owngun", ("tvhours",), None),  # missing values on both sides
    ("workstat", (), ("attend", "missing")),  # a condition that few records meet
]
MORE = [
    ("educ", (), None),
    ("divorce", ("happy",), ("female", "yes")),
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
    """The wide demo, with the tables that are asked for, one of them of three columns."""
    agency = founded(tmp_path_factory.mktemp("explored"), "explored")
    write_demo_data(agency.folder / "data")
    agency.dataset = "happiness"
    agency.register(n_records=17137)
    text = CONFIG.read_text()
    assert text.count(KIND) == 1
    agency.config.write_text(text.replace(KIND, f"{KIND}{KNOBS}"))
    return Path(agency.run(Order(agency.config, (), agency.folder)).bundle)


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


@pytest.mark.parametrize(
    "choices",
    [CHOICES, pytest.param(CHOICES + MORE, marks=pytest.mark.nightly)],
    ids=["quick", "full"],
)
def test_its_figures_are_those_of_the_command_line(
    bundle: Path, browser: Browser, choices: list[Any]
) -> None:
    page = (bundle / "report.html").as_uri()
    browser.heard()
    browser.see(page, LAST)
    for choice in choices:
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
    assert browser.run(headings) == ["Female", "Highest year of school completed"]
    assert browser.heard()[0] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_whoever_cannot_see_it_can_use_it(bundle: Path, browser: Browser, scheme: str) -> None:
    browser.see((bundle / "report.html").as_uri(), LAST)
    browser.look(390, scheme)
    choose(browser, "workstat", ("female",), ("happy", "very happy"))
    choose(browser, "workstat", ("female",))
    browser.run("document.querySelectorAll('details').forEach(each => each.open = true)")
    shown, inner = browser.run("[document.documentElement.scrollWidth, innerWidth]")
    assert shown <= inner == 390, "it scrolls sideways"
    if scheme == "light":  # Of the whole page in the dark test_report_page.py asks the same.
        found = [each for each in browser.faults() if each[0] in ("serious", "critical")]
    else:  # What is neither colour nor contrast is the same by day.
        found = browser.faults(".explorer")
    assert found == []


def test_it_is_light_and_needs_no_script(bundle: Path, browser: Browser) -> None:
    page = bundle / "report.html"
    text = page.read_text(encoding="utf-8")
    assert page.stat().st_size < MOST_BYTES
    charts = text[text.index("Charts of all 15 columns") :]
    folded = charts[: charts.index('<div class="gallery">') + charts.index("</section>")]
    assert folded.count("<svg") >= 15, "what is there without scripts"
    assert "<noscript>" in text and "statpress query answers the rest" in text
    browser.see("about:blank")
    browser.see(page.as_uri(), LAST)
    took = browser.run("performance.getEntriesByName('explorer')[0].startTime")
    assert took > 0  # it depends on the machine: it is told, and not bounded
    print(f"{page.stat().st_size:,} bytes; first chart after {took:.0f} ms")


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
