"""What analysts do with a bundle: the page with its examples, places, errors and imports."""

from __future__ import annotations

import csv
import doctest
import functools
import http.server
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import threading
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from requirements import needed
from survey import survey

import statpress
from statpress.flows.cli import app
from statpress.mechanisms.errors import BundleVerificationError, NotMeasuredError, QueryError
from statpress.mechanisms.marginals.copied_analyses import CopiedAnalyses
from statpress.tasks.bundle.manifest import seal
from statpress.tasks.release.answers import chart
from statpress.tasks.release.opened import Release

PAGE = Path(__file__).parents[2] / "tasks" / "using-a-release.md"
MADE: dict[str, Path] = {}


@pytest.fixture
def bundle(agency: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The survey's bundle, made once; nobody changes it."""
    if "survey" not in MADE:
        MADE["survey"] = tmp_path_factory.mktemp("survey") / "BUNDLE"
        survey(agency).rename(MADE["survey"])
    return MADE["survey"]


@functools.cache
def opened(bundle: Path) -> Release:
    """The release, whose files are read once."""
    return statpress.open(bundle)


def test_the_examples_of_the_page_are_what_the_release_says(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bundle.parent)
    text = PAGE.read_text(encoding="utf-8").replace("```", "")
    test = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    assert len(test.examples) > 10
    report = io.StringIO()
    with pd.option_context("display.width", 120, "display.max_columns", 20):
        failures, _ = doctest.DocTestRunner().run(test, out=report.write)
    assert not failures, report.getvalue()


def test_the_examples_of_the_docstrings_are_what_the_release_says(bundle: Path) -> None:
    report = io.StringIO()
    finder = doctest.DocTestFinder()
    for test in finder.find(Release, globs={"release": statpress.open(bundle)}):
        name = test.name.rpartition(".")[2]
        asks = name != "Release" and not name.startswith("_")
        without = ("ask", "pairs", "households", "persons", "with_prior")
        assert bool(test.examples) == (asks and name not in without)
        doctest.DocTestRunner().run(test, out=report.write)
    assert not report.getvalue()


def commands() -> list[str]:
    return re.findall(r"^    statpress (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    from statpress.flows.cli import print_outcome

    print_outcome(app(list(arguments), exit_on_error=False, result_action="return_value"))
    return capsys.readouterr().out


def one_of_each(found: list[str]) -> list[Any]:
    """All commands, of which by day only the first of each name is run."""
    first = {command.split()[0]: command for command in reversed(found)}
    by_night = pytest.mark.nightly
    return [
        each if each in first.values() else pytest.param(each, marks=by_night) for each in found
    ]


@pytest.mark.parametrize("command", one_of_each(commands()))
def test_the_commands_of_the_page_say_what_the_library_does(
    command: str, bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        str(bundle) if word in ("BUNDLE", "EARLIER", "LATER") else word
        for word in shlex.split(command)
    ]
    words = [word for word in words if word not in ("--json", "--csv")]
    facts = json.loads(run(capsys, *words, "--json"))
    rows = list(csv.DictReader(io.StringIO(run(capsys, *words, "--csv"))))
    assert len(rows) == len(facts["cells"]) > 0
    for row, cell in zip(rows, facts["cells"], strict=True):
        assert float(row["estimate"]) == cell["estimate"]
        assert {name: row[name] for name in cell["values"]} == cell["values"]
    shown = run(capsys, *words)
    assert ("change" if "EARLIER" in command else "estimate") in shown
    assert "One interval covers with probability 0.95" in shown


def test_terminal_and_library_agree(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release = opened(bundle)
    for words, made in (
        (("--mean", "educ", "--by", "region"), release.mean("educ", by="region")),
        (("--median", "educ"), release.median("educ")),
        (("--quantile", "educ=0.9"), release.quantile("educ", 0.9)),
        (("--columns", "happy", "region"), release.table("happy", "region")),
        (("--mean", "educ", "--population", "--where", "female=0"),
         release.mean("educ", of="population", where={"female": 0})),
    ):  # fmt: skip
        facts = json.loads(run(capsys, "query", str(bundle), *words, "--json"))
        assert [cell["estimate"] for cell in facts["cells"]] == made.frame()["estimate"].tolist()
        assert [cell["upper"] for cell in facts["cells"]] == made.frame()["upper"].tolist()


def test_a_quantile_is_called_as_it_was_asked_for(
    bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, title in (
        (("--median", "educ"), "median of educ"),
        (("--quantile", "educ=0.9"), "0.9 quantile of educ"),
    ):
        assert title in run(capsys, "query", str(bundle), *words)


def test_figures_are_near_those_of_the_confidential_records(bundle: Path) -> None:
    data = files("statpress.tasks.source") / "demo" / "happiness.parquet"
    frame = pq.read_table(str(data)).to_pandas()
    edges = np.array([0, 20, 30, 40, 50, 60, 70, 80, 101.0])  # of whole numbers
    place = np.clip(np.searchsorted(edges, frame["prestige"], side="right") - 1, 0, 7)
    frame["prestige"] = np.where(
        frame["prestige"].isna(), np.nan, (edges[1:] - 1 + edges[:-1])[place] / 2
    )
    release = opened(bundle)
    for made, true in (
        (release.mean("prestige"), frame["prestige"].mean()),
        (
            release.mean("prestige", where={"female": 1}),
            frame["prestige"][frame.female == 1].mean(),
        ),
        (release.total("prestige"), frame["prestige"].sum()),
        (release.table(where={"happy": "very happy"}), (frame["happy"] == "very happy").sum()),
    ):
        (cell,) = made.facts["cells"]
        assert abs(made.value - true) < 6 * cell["standard_error"]
    shares = release.share("happy", by="female").frame()
    assert shares.groupby("female")["estimate"].sum().tolist() == pytest.approx([1, 1])


@pytest.mark.system
def test_records_come_in_a_frame_of_polars(bundle: Path) -> None:
    polars = needed("polars")
    records = opened(bundle).microdata(as_="polars")
    assert isinstance(records, polars.DataFrame) and len(records) == 17_137


def test_records_come_in_two_kinds_of_frames(bundle: Path) -> None:
    release = opened(bundle)
    frame = release.microdata()
    assert isinstance(frame, pd.DataFrame)
    assert len(frame) == 17_137
    assert release.microdata(as_="arrow").num_rows == 17_137
    assert isinstance(release.microdata(as_="arrow"), pa.Table)
    assert frame["region"].dtype == "category"
    assert frame["prestige"].isna().any()
    with pytest.raises(QueryError, match="pandas"):
        release.microdata(as_="excel")  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="Nearest: people"):
        release.microdata("poeple")


def test_a_zip_file_and_an_address_are_opened_too(bundle: Path, tmp_path: Path) -> None:
    packed = shutil.make_archive(str(tmp_path / "packed"), "zip", bundle.parent, bundle.name)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(bundle))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        places = (packed, f"http://127.0.0.1:{server.server_port}/")
        values = [statpress.open(place).mean("educ").value for place in (bundle, *places)]
        server.shutdown()
    assert values[0] == values[1] == values[2]


def test_a_changed_bundle_is_not_opened(bundle: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(bundle, tmp_path / "copy")
    (copy / "data" / "people.csv").write_text("changed")
    with pytest.raises(BundleVerificationError, match=r"people\.csv was changed"):
        statpress.open(copy)


def test_errors_name_what_is_near(bundle: Path) -> None:
    release = opened(bundle)
    for ask, words in (
        (lambda: release.mean("prestig"), "Nearest: prestige"),
        (lambda: release.table(where={"happy": "very hapy"}), "Nearest: very happy"),
        (lambda: release.mean("happy"), "has no numbers"),
        (lambda: release.regress("prestige ~ edu"), "Nearest: educ"),
        (lambda: release.regress("prestige + educ"), "one outcome"),
        (lambda: release.regress("prestige ~ educ +"), "not understood"),
        (lambda: release.regress("prestige ~ center(educ)"), "depends on all records"),
        (lambda: release.regress("prestige ~ log(educ - 30)"), "not a number"),
        (lambda: release.difference("educ", by="female", base="2"), "no cell '2'"),
        (lambda: release.share("happy", by=("region", "female")), "region, happy, female"),
        (lambda: release.table("happy").value, "not one estimate"),
        (lambda: release.mean("educ", of="people"), "'records' or 'population'"),  # type: ignore[arg-type]
    ):
        with pytest.raises(QueryError) as caught:
            ask()
        assert words in f"{caught.value}"


def test_what_was_not_measured_is_refused_with_the_remedy(bundle: Path) -> None:
    with pytest.raises(NotMeasuredError) as caught:
        opened(bundle).regress("prestige ~ educ:female")
    assert "under 'pairs' or 'groups'" in caught.value.next_step
    assert "people_pairs" in caught.value.next_step
    assert "Or ask the copies (--copies)" in caught.value.next_step


def test_what_the_publisher_accepted_is_said(bundle: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(bundle, tmp_path / "copy")
    path = copy / "privacy.json"
    stated = json.loads(path.read_text())
    stated["products"]["people"]["verdict"] |= {"name": "mostly noise", "accepted": True}
    path.write_text(json.dumps(stated))
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").unlink()
    facts = {k: v for k, v in manifest.items() if k not in ("files", "seal", "format")}
    seal(copy, facts)
    assert "accepted that the product is mostly noise" in repr(statpress.open(copy).mean("educ"))


def test_neither_prefect_nor_the_ledger_s_database_is_imported(bundle: Path) -> None:
    asked = "import sys, statpress; print(*sys.modules); r = statpress.open(sys.argv[1])"
    asked += "; r.mean('educ', by='female'); r.regress('educ ~ female'); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", asked, str(bundle)], capture_output=True, text=True, check=True
    )
    at_first, loaded = (set(line.split()) for line in done.stdout.splitlines())
    assert {"numpy", "formulaic"} <= loaded
    unwanted = {"prefect", "great_expectations", "sqlalchemy", "duckdb", "ibis", "matplotlib"}
    assert not loaded & (unwanted | {"statpress.tasks.ledger.ledger", "statpress.flows.cli"})
    assert not at_first & (unwanted | {"numpy", "pandas", "pydantic"})


@pytest.mark.nightly
def test_copies_combine_whatever_a_fit_gives(bundle: Path) -> None:
    """A model as statsmodels has them, a pair, and figures alone, against Rubin by hand."""
    release = opened(bundle)
    copies = release.copies()
    assert list(copies.columns)[-1] == "copy" and copies["copy"].nunique() == 10
    own = copies.groupby("copy")["educ"]
    within, between = (own.var() / own.count()).mean(), 1.1 * own.mean().var()

    def model(records: pd.DataFrame) -> Any:
        assert "copy" not in records
        values = records["educ"].dropna()
        return SimpleNamespace(
            params=pd.Series({"educ": values.mean()}), bse=pd.Series({"educ": values.sem()})
        )

    (cell,) = release.combine(model).facts["cells"]
    assert cell["values"] == {"term": "educ"}
    assert cell["estimate"] == pytest.approx(own.mean().mean())
    assert cell["standard_error"] == pytest.approx((within + between) ** 0.5)
    pair = release.combine(lambda records: (records["educ"].mean(), records["educ"].sem() ** 2))
    assert pair.facts["cells"][0]["upper"] == pytest.approx(cell["upper"], rel=1e-3)
    alone = release.combine(lambda records: records["educ"].mean(), of="records")
    assert alone.facts["cells"][0]["standard_error"] == pytest.approx(between**0.5)
    assert not any("agree" in note for note in alone.notes)
    middle = release.combine(lambda records: 0 * records["educ"].median(), of="records")
    assert any("All copies agree on 0" in note for note in middle.notes)
    with pytest.raises(QueryError, match="variances"):
        release.combine(lambda records: records["educ"].mean())
    with pytest.raises(QueryError, match="same terms"):
        release.combine(lambda records: ({"a": 1.0}, {"b": 1.0}))
    with pytest.raises(QueryError, match="Copy 1 has no finite figure and variance of 'educ'"):
        release.combine(lambda records: model(records[:1]))


def test_differences_of_shares_are_told_alike_everywhere(
    bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A column without numbers has a row for each value, and named values have one together."""
    release = opened(bundle)
    made = release.difference("happy", by="female").frame()
    shares = release.share("happy", by="female").frame()
    men, women = (shares[shares["female"] == code]["estimate"].to_numpy() for code in "01")
    assert made["estimate"].to_numpy() == pytest.approx(women - men, abs=1e-6)
    assert made["happy"].tolist() == ["not too happy", "pretty happy", "very happy"]
    facts = json.loads(
        run(capsys, "query", str(bundle), "--difference", "happy", "--by", "female", "--json")
    )
    assert [cell["p_value"] for cell in facts["cells"]] == made["p_value"].tolist()
    assert facts["columns"] == ["female", "happy"] and facts["notes"] == []
    two = ("happy=pretty happy,very happy", "--by", "female")
    (cell,) = json.loads(run(capsys, "query", str(bundle), "--difference", *two, "--json"))["cells"]
    both = release.difference("happy", by="female", values=["pretty happy", "very happy"])
    assert cell["estimate"] == both.value == pytest.approx((women - men)[1:].sum(), abs=1e-6)
    assert "happy = pretty happy or very happy" in run(
        capsys, "query", str(bundle), "--difference", *two
    )
    words = ("query", str(bundle), "--difference", "prestige", "--by", "happy")
    based = json.loads(run(capsys, *words, "--base", "very happy", "--json"))["cells"]
    wanted = release.difference("prestige", by="happy", base="very happy")
    assert based == [{**cell} for cell in wanted.facts["cells"]]
    assert [cell["values"]["happy"] for cell in based] == ["not too happy", "pretty happy"]
    with pytest.raises(QueryError, match="Only differences have a base"):
        run(capsys, "query", str(bundle), "--mean", "prestige", "--by", "happy", "--base", "x")
    with pytest.raises(QueryError, match="no cell 'merry'"):
        release.difference("happy", by="female", values="merry")


def test_a_regression_on_copies_is_combined_by_rubin(
    bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An interaction of which no table was measured, against NumPy on each copy."""
    release, formula = opened(bundle), "prestige ~ educ * female"
    figures, variances = [], []
    for _, own in release.copies().dropna(subset=["prestige", "educ"]).groupby("copy"):
        x = np.column_stack([np.ones(len(own)), own["educ"], own["female"]]).astype(float)
        x = np.column_stack([x, x[:, 1] * x[:, 2]])
        solution, (rest,), *_ = np.linalg.lstsq(x, own["prestige"].to_numpy(), rcond=None)
        figures.append(solution)
        variances.append(rest / (len(own) - 4) * np.diag(np.linalg.inv(x.T @ x)))
    errors = np.sqrt(np.mean(variances, axis=0) + 1.1 * np.var(figures, axis=0, ddof=1))
    made = release.on_copies.regress(formula, of="population").frame()
    assert made["term"].tolist() == ["Intercept", "educ", "female", "educ:female"]
    assert made["estimate"].to_numpy() == pytest.approx(np.mean(figures, axis=0))
    assert made["standard_error"].to_numpy() == pytest.approx(errors)
    words = ("regress", str(bundle), formula, "--copies", "--population")
    facts = json.loads(run(capsys, *words, "--json"))
    assert [cell["estimate"] for cell in facts["cells"]] == made["estimate"].tolist()
    said = run(capsys, *words)
    assert "by Rubin's rule" in said
    assert re.search(r"[0-9.]+% of the records of the copies have no educ and are left out", said)
    assert "beyond their pairs is mostly a guess" in said
    with pytest.raises(NotMeasuredError):
        release.regress(formula)
    with pytest.raises(QueryError, match="cannot be told apart"):
        release.on_copies.regress("prestige ~ educ + I(2 * educ)")


def test_a_group_of_which_a_copy_has_too_few_records_leaves_the_others_their_answer(
    bundle: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = CopiedAnalyses.mean

    def of_some(self: CopiedAnalyses, name: str, where: Any) -> Any:
        few = where["female"] == [0]
        return honest(self, name, where | ({"happy": []} if few else {}))

    monkeypatch.setattr(CopiedAnalyses, "mean", of_some)
    release = statpress.open(bundle)
    found = release.on_copies.mean("educ", by="female")
    assert found.frame()["estimate"].isna().tolist() == [True, False]
    assert "Where no estimate stands, a copy has too few records of the group." in found.notes
    words = ("query", str(bundle), "--mean=educ", "--by=female", "--copies")
    assert "–" in run(capsys, *words)
    assert json.loads(run(capsys, *words, "--json"))["cells"][0]["estimate"] is None
    with pytest.raises(QueryError, match="too few records"):
        release.on_copies.mean("educ", by="happy", where={"female": 0})


def test_questions_are_answered_on_copies(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As ``combine`` does; of three columns, of which no table was measured, too."""
    release = opened(bundle)
    where = {"happy": "very happy", "female": 1}

    def mean(records: pd.DataFrame) -> tuple[float, float]:
        own = records[(records["happy"] == "very happy") & (records["female"] == 1)]["educ"]
        return own.mean(), own.sem() ** 2

    (cell,) = release.combine(mean).facts["cells"]
    made = release.on_copies.mean("educ", where=where, of="population")
    assert made.value == pytest.approx(cell["estimate"])
    assert made.facts["cells"][0]["upper"] == pytest.approx(cell["upper"])
    assert "Rubin" in made.notes[1]
    with pytest.raises(NotMeasuredError):
        release.mean("educ", where=where)
    words = ("--mean", "educ", "--where", "happy=very happy", "--where", "female=1", "--copies")
    facts = json.loads(run(capsys, "query", str(bundle), *words, "--population", "--json"))
    assert facts["cells"][0]["estimate"] == made.value
    counts = release.on_copies.table("region", "female", "happy").frame()
    assert counts["estimate"].sum() == pytest.approx(17_137)
    found = {float: release.table(where={"educ": 12.0}), str: release.table(where={"educ": "12"})}
    assert found[float].value == found[str].value
    for null in (None, float("nan")):
        assert (
            release.table(where={"educ": null}).value
            == release.table(where={"educ": "missing"}).value
        )
    missing = release.on_copies.table("educ").frame().set_index("educ")["estimate"]["missing"]
    assert missing == pytest.approx(release.copies()["educ"].isna().sum() / 10)


@pytest.mark.parametrize(
    "words",
    [
        ("query", "--columns", "educ", "happy"),
        ("query", "--median", "tvhours", "--by", "happy"),
        ("regress", "prestige ~ educ + C(region)"),
    ],
)
def test_answers_are_drawn(
    words: tuple[str, ...], bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every estimate and interval is in the picture, and every value is named."""
    path = tmp_path / "chart.svg"
    command, *rest = words
    facts = json.loads(run(capsys, command, str(bundle), *rest, "--plot", str(path), "--json"))
    assert path.read_text(encoding="utf-8").startswith("<?xml")
    (axes,) = chart(facts).axes
    drawn = sorted(x for line in axes.lines for x in np.asarray(line.get_xdata()))
    estimates = [cell["estimate"] for cell in facts["cells"]]
    assert {*estimates} <= {*drawn}
    ends = [segment[:, 0].tolist() for each in axes.collections for segment in each.get_segments()]
    assert sorted(ends) == sorted([cell["lower"], cell["upper"]] for cell in facts["cells"])
    named = {label.get_text() for label in axes.get_yticklabels()}
    if axes.get_legend() is not None:
        named |= {text.get_text() for text in axes.get_legend().get_texts()}
    assert {value for cell in facts["cells"] for value in cell["values"].values()} == named


def test_a_chart_shows_what_has_no_end_and_refuses_what_it_cannot(bundle: Path) -> None:
    release = opened(bundle)
    made = release.mean("educ", by="female")
    facts = {**made.facts, "cells": [dict(cell) for cell in made.facts["cells"]]}
    facts["cells"][0]["lower"] = -np.inf
    (axes,) = chart(facts).axes
    segments = np.concatenate([each.get_segments() for each in axes.collections])
    figures = [cell[part] for cell in facts["cells"] for part in ("estimate", "lower", "upper")]
    low, *_, high = sorted(figure for figure in figures if np.isfinite(figure))
    assert np.isfinite(segments).all()
    assert segments[:, 0, 0].min() == pytest.approx(low - 0.05 * (high - low))
    with pytest.raises(QueryError, match="at most 300"):
        chart({**facts, "cells": 151 * facts["cells"]})
    with pytest.raises(QueryError, match=r"chart\.gif"):
        made.plot("chart.gif")


def test_the_truth_is_where_the_copies_say(bundle: Path) -> None:
    data = files("statpress.tasks.source") / "demo" / "happiness.parquet"
    true = pq.read_table(str(data)).to_pandas()
    (cell,) = opened(bundle).combine(
        lambda records: (records["happy"] == "very happy").mean(), of="records"
    ).facts["cells"]  # fmt: skip
    share = (true["happy"] == "very happy").mean()
    assert abs(cell["estimate"] - share) < 6 * cell["standard_error"]
    assert cell["standard_error"] < 0.02
