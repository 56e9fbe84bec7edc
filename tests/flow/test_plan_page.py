"""``statpress plan --html``: the page for deciding before paying, from public quantities only."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from statpress.flows.cli import app
from statpress.mechanisms.errors import OutputNotWritableError
from statpress.mechanisms.planning.planner import TIMES

CONFIG = """
title: Births & <deaths>
dataset: testdata
source: {path: data/source.parquet}
privacy: {adjacency: replace_one, unit: record, n_records: 400}
budget: {epsilon: 1, delta: 1.0e-6}
domain:
  region: {type: categorical, categories: [north, south], other: true, missing: true}
  age: {type: integer, lower: 0, upper: 99, width: 20}
products:
  people: {kind: table, mechanism: gaussian, columns: [region, age], share: 0.7}
  ages: {kind: table, mechanism: gaussian, columns: [age], share: 0.3}
publish: {directory: releases}
"""
PERSONS = "{column: person, max_records: 3}"


class Seen(HTMLParser):
    """The text of a page, the labels of its slider, and whatever it might load."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.labels: list[str] = []
        self.loads: list[str] = []
        self._within: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self._within.append(tag)
        if "option" in (found.get("class") or ""):
            self.labels.append(str(found["data-label"]))
        self.loads += [
            str(found[each])
            for each in ("src", "href", "xlink:href")
            if not (found.get(each) or "#").startswith("#")
        ]

    def handle_data(self, data: str) -> None:
        if self._within[-1:] not in (["style"], ["script"]):
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


@dataclass
class Planned:
    """A page of a plan made without the source, and what the command said and left."""

    page: str
    said: str
    place: Path
    before: list[Any]
    after: list[Any]


@pytest.fixture(scope="module")
def planned(founded: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Planned:
    agency = founded(tmp_path_factory.mktemp("plan"))
    before = agency.entries()
    agency.config.write_text(CONFIG)
    agency.source.unlink()
    place, said = agency.folder / "plan.html", io.StringIO()
    command = ["plan", str(agency.config), "--home", str(agency.home.root), "--html", str(place)]
    with contextlib.redirect_stdout(said):
        app(command, exit_on_error=False)
    page = place.read_text(encoding="utf-8")
    return Planned(page, said.getvalue(), place, before, agency.entries())


def test_the_page_says_what_every_budget_would_buy(planned: Planned) -> None:
    seen = Seen(planned.page)
    assert f"Wrote {planned.place}." in planned.said
    assert planned.after == planned.before  # nothing is charged or noted
    assert len(seen.labels) == len(TIMES)
    assert sum("the planned budget" in label for label in seen.labels) == 1
    epsilons = [float(label.split()[1].rstrip(",")) for label in seen.labels]
    assert epsilons == pytest.approx([float(each) for each in TIMES], rel=0.02)
    for words in (
        "Plan: Births & <deaths>",
        "The remaining budget covers this release 3 times.",
        "What each share buys",
        "with half its share",
        "An attacker gains at most",
        "sd of a cell, average",
        "one record",
    ):
        assert words in seen.words, words


def test_errors_on_the_page_fall_as_the_budget_grows(planned: Planned) -> None:
    written = planned.page
    rows = re.findall(r'<th scope="row">ages</th>(.*?)</tr>', written)[: len(TIMES)]
    here = [float(re.findall(r'class="number">([^<]+)', row)[0].replace(",", "")) for row in rows]
    assert len(here) == len(TIMES)
    assert here == sorted(here, reverse=True)
    assert here[0] > 4 * here[-1]


def test_it_runs_its_own_script_and_loads_nothing(planned: Planned) -> None:
    written = planned.page
    assert Seen(written).loads == []
    (script,) = re.findall(r"<script>(.*?)</script>", written, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = "default-src 'none'; img-src data:; script-src 'sha256-{}'; style-src 'unsafe-inline'"
    assert policy.format(digest).replace("'", "&#39;") in written
    assert "<deaths>" not in written  # words of the config are escaped


@pytest.mark.nightly
def test_a_budget_that_cannot_be_met_says_so(agency: Any, capsys: Any) -> None:
    knobs = "mechanism: bootstrap, pseudocount: 1, records: 300"
    changed = CONFIG.replace("mechanism: gaussian, columns: [region, age]", f"{knobs}, columns: "
                             "[region, age], accept: mostly_noise")  # fmt: skip
    agency.config.write_text(changed)
    page = agency.folder / "plan.html"
    home = ["--home", str(agency.home.root)]
    app(["plan", str(agency.config), *home, "--html", str(page), "--set", "budget.epsilon=30",
         "--json"], exit_on_error=False)  # fmt: skip
    seen = Seen(page.read_text(encoding="utf-8"))
    unmet = [label for label in seen.labels if "cannot be met" in label]
    assert unmet
    assert len(unmet) < len(TIMES)
    assert "This budget cannot be met:" in seen.words
    assert "does not cover this release" in seen.words
    assert "nearly discloses" in seen.words


@pytest.mark.parametrize("name", ["release.yaml", "nowhere/plan.html"])
def test_no_other_file_is_replaced(agency: Any, name: str, capsys: Any) -> None:
    agency.config.write_text(CONFIG)
    kept = agency.config.read_bytes()
    page = Path(agency.folder) / name
    with pytest.raises(OutputNotWritableError):
        app(["plan", str(agency.config), "--html", str(page)], exit_on_error=False)
    assert agency.config.read_bytes() == kept
    assert not page.is_file() or page == agency.config


@pytest.mark.parametrize(
    ("unit", "measure"),
    [
        ("record", "epsilon"),
        pytest.param("record", "rho", marks=pytest.mark.nightly),
        pytest.param(PERSONS, "epsilon", marks=pytest.mark.nightly),
        (PERSONS, "rho"),
    ],
)
def test_the_command_that_registers_can_be_run(
    agency: Any, capsys: Any, unit: str, measure: str
) -> None:
    """As a plan prints it for a dataset without an account, with limits for the capitals."""
    agency.replace("{epsilon: 1.0,", f"{{{measure}: 1.0,")
    agency.replace("dataset: testdata", "dataset: my data")
    if unit != "record":
        agency.replace("unit: record, n_records: 400", f"unit: {unit}, n_units: 200")
    home = ["--home", str(agency.home.root)]
    app(["plan", str(agency.config), *home], exit_on_error=False)
    printed = " ".join(capsys.readouterr().out.split())
    shown = re.search(r"capitals: '(statpress ledger register .* DELTA)'", printed)
    assert shown
    _, *words = shlex.split(re.sub("EPSILON|RHO", "2", shown[1]).replace("DELTA", "1e-5"))
    app(words, exit_on_error=False)
    app(["plan", str(agency.config), *home], exit_on_error=False)
    assert "is not registered" not in " ".join(capsys.readouterr().out.split())
