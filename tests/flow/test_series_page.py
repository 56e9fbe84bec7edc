"""The page of a series and its files: made of the bundles, and of nothing else."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from acting import Acting, full_disk, refuse_publications
from bad_input import CANARY, N
from monthly import Office
from requirements import needed

from statpress.configs.loading import load_order
from statpress.configs.order import Order
from statpress.flows.cli.bundle_commands import series as series_command
from statpress.flows.runner import run_publication, run_release
from statpress.mechanisms.errors import (
    BundleVerificationError,
    ConfigError,
    LedgerError,
    OutputNotWritableError,
)
from statpress.tasks.bundle.manifest import seal
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.pages.numbers import measured, share
from statpress.tasks.release.opened import open_release
from statpress.tasks.release.review import decide, note_bundle
from statpress.tasks.release.succession import propose
from statpress.tasks.report.series_data import COLUMNS, KEYS, SeriesData
from statpress.tasks.report.series_page import PAGE, write_series

MONTHS = ("2026-01", "2026-02", "2026-04", "2026-05")
"""Of the series; March has no release, and in May a region is declared that was none before."""
LATE = "2026-05"
PRODUCTS = """\
products:
  people: {accept: [mostly_noise, mostly_independent], kind: microdata, mechanism: marginals,
    columns: [region, pay], copies: 2, share: 0.4}
  regions: {accept: mostly_noise, kind: table, mechanism: laplace, columns: [region, grown],
    share: 0.4, title: Regions by age}
  income: {accept: mostly_noise, kind: estimate, statistic: mean, columns: [pay], share: 0.2,
    title: Income}
publish: {directory: releases, plots: false, formats: [csv]}
"""


def describe(agency: Any) -> None:
    """Three products of each kind that a series tracks, in place of one.

    The noise is far from the 214 records of which neither a region nor an age is missing: a share
    is of as many as the noisy table leaves.
    """
    head, _, _ = agency.text.partition("products:")
    agency.text = head.replace("delta: 0", "delta: 1.0e-8") + PRODUCTS
    agency.replace("epsilon: 0.1", "epsilon: 1.5")
    agency.amend(epsilon="30")
    agency.replace(
        "domain:",
        "about:\n  publisher: {name: Office of Numbers}\ndomain:\n"
        '  grown: {type: categorical, categories: ["no", "yes"], missing: true, label: Grown up}',
    )


def released(agency: Any, patch: pytest.MonkeyPatch, publish: str = "") -> Office:
    """A series with a gap and a changed definition."""
    office = Office(agency, patch).on("2026-12-11")
    describe(agency)
    agency.replace("formats: [csv]", f"formats: [csv]{publish}")
    grown = [("no", "yes", None)[i % 5 % 3] for i in range(N)]
    office.table = office.table.append_column("grown", [grown])
    office.deliver(*MONTHS)
    for month in MONTHS:
        if month == LATE:
            agency.replace("[north, south]", "[north, south, east]")
            agency.replace("plots: false, ", "")
        office.release(month)
    return office


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, founded: Callable[..., Any]) -> Iterator[Office]:
    """A series whose last release draws the page's pictures."""
    with pytest.MonkeyPatch.context() as patch:
        yield released(founded(tmp_path_factory.mktemp("series")), patch)


@pytest.fixture
def office(made: Office, tmp_path: Path) -> Office:
    """The same in a folder of its own, which a test may change."""
    copied = shutil.copytree(made.agency.folder, tmp_path / "copy", symlinks=True)
    other = object.__new__(Office)
    vars(other).update(vars(made))
    other.agency = type(made.agency)(copied, made.agency.inspector, made.agency.text)
    return other


def folder_of(office: Office) -> Path:
    return Path(office.agency.releases / "lfs")


def rows_of(office: Office) -> list[dict[str, Any]]:
    """The rows of the CSV file, with numbers for figures."""
    with (folder_of(office) / "series.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        for name in ("value", "lower", "upper", "standard_error", "confidence"):
            row[name] = float(row[name]) if row[name] else None
    return rows


def page_of(office: Office) -> str:
    return (folder_of(office) / PAGE).read_text()


def tables_of(page: str) -> dict[str, list[list[str]]]:
    """The cells of the tables of figures, by their titles, with the headings first."""
    found: dict[str, list[list[str]]] = {}
    for title, body in re.findall(
        r'aria-label="Figures: ([^"]*)">\s*<table>(.*?)</table>', page, re.DOTALL
    ):
        lines = re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
        cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line) for line in lines]
        found.setdefault(unescape(title), [[unescape(cell) for cell in row] for row in cells])
    return found


def test_shares_of_microdata_are_those_of_a_query(made: Office) -> None:
    rows = [row for row in rows_of(made) if row["product"] == "people"]
    for month in MONTHS:
        (bundle,) = made.bundles()[month]
        release = open_release(bundle, product="people")
        for column in ("region", "pay"):
            own = [r for r in rows if (r["period"], r["column"]) == (month, column)]
            cells = release.share(column).facts["cells"]
            assert [row["category"] for row in own] == [cell["values"][column] for cell in cells]
            for row, cell in zip(own, cells, strict=True):
                names = ("lower", "upper", "standard_error", "estimate")
                assert [row[n.replace("estimate", "value")] for n in names] == [
                    cell[n] for n in names
                ]
                assert (row["confidence"], row["of"]) == (0.95, "records")


def test_shares_of_a_table_follow_from_its_rows(made: Office) -> None:
    """Of one column and of two; errors by the gradient of the share in every cell."""
    rows = [row for row in rows_of(made) if row["product"] == "regions"]
    assert {(row["column"], row["column_2"]) for row in rows} == {
        ("region", ""), ("grown", ""), ("region", "grown"),
    }  # fmt: skip
    for row in rows:
        with (folder_of(made) / row["bundle"] / "data" / "regions.csv").open(newline="") as file:
            cells = list(csv.DictReader(file))
        named = [(row["column"], row["category"])]
        named += [(row["column_2"], row["category_2"])] if row["column_2"] else []
        counts = np.array([float(cell["estimate"]) for cell in cells])
        errors = np.array([float(cell["standard_error"]) for cell in cells])
        own = np.array([all(cell[c] == v for c, v in named) for cell in cells])
        missing = np.array([any(cell[c] == "" for c, _ in named) for cell in cells])
        total = N - counts[missing].sum()
        value = counts[own].sum() / total
        assert row["value"] == pytest.approx(value, rel=1e-12)
        gradient = (own + value * missing) / total
        error = np.sqrt((gradient**2 * errors**2).sum())
        assert row["standard_error"] == pytest.approx(error, rel=1e-9)
        reach = row["upper"] - row["value"]
        assert row["value"] - row["lower"] == pytest.approx(reach)
        assert 1.95 * error <= reach <= 1.96 * error + 1.1 / total  # it ends at whole records


def test_estimates_are_those_of_their_files(made: Office) -> None:
    rows = [row for row in rows_of(made) if row["product"] == "income"]
    assert [row["period"] for row in rows] == list(MONTHS)
    for row in rows:
        with (folder_of(made) / row["bundle"] / "data" / "income.csv").open(newline="") as file:
            (stated,) = csv.DictReader(file)
        assert row["figure"] == stated["quantity"] == "mean of pay"
        assert row["value"] == float(stated["estimate"])
        for name in ("lower", "upper", "standard_error", "confidence"):
            assert row[name] == float(stated[name])
        assert (row["of"], row["column"], row["category"]) == ("population", "", "")


def test_the_page_shows_the_figures_of_the_file(made: Office) -> None:
    tables, seen = tables_of(page_of(made)), 0
    for row in rows_of(made):
        if row["product"] == "people" or (row["product"], row["column"]) == ("regions", "region"):
            continue  # 'region' is of two products; its table is looked at below
        title = {"grown": "grown: Grown up"}.get(row["column"], "Estimates")
        heading, *body = tables[title]
        label = {"no": "no", "yes": "yes"}.get(row["category"], "mean of pay")
        write = measured if title == "Estimates" else share
        (cells,) = [cells for cells in body if cells[0] == row["period"]]
        shown = f"{write(row['value'])} ({write(row['lower'])} to {write(row['upper'])})"
        assert cells[heading.index(label)] == shown
        seen += 1
    assert seen == 3 * len(MONTHS)
    heading, *body = tables["region by grown: Grown up"]
    assert heading[1:4] == ["north · no", "north · yes", "south · no"]
    assert [cells[0] for cells in body] == ["2026-01", "2026-02", "2026-03", "2026-04", "2026-05"]


def test_a_period_without_a_release_is_a_gap(made: Office) -> None:
    page = page_of(made)
    assert not [row for row in rows_of(made) if row["period"] == "2026-03"]
    cells = tables_of(page)["Estimates"]
    assert [cell for row in cells for cell in row].count("no figure") == 1
    assert ["2026-03", "no figure"] in cells
    assert "4 of 5" in page and "not shown: 2026-03" in page
    (line,) = re.findall(
        r'mean of pay: [^"]*; no figure in 2026-03.*?class="line" d="([^"]*)"', page
    )
    assert re.findall(r"[ML](\d+)", line) == ["5", "15", "35", "45"]
    assert line.count("M") == 2  # nothing leads across


def test_a_changed_definition_cuts_its_lines_and_is_said(made: Office) -> None:
    page, rows = page_of(made), rows_of(made)
    assert "From 2026-05 on, region: New values: &#39;east&#39;." in page
    assert '<tr><th scope="row">2026-05</th><td>region</td>' in page
    for row in rows:
        late = row["period"] == LATE and "region" in (row["column"], row["column_2"])
        assert row["definition"] == ("2" if late else "1")
    drawings = re.findall(r'aria-label="(north|no|mean of pay)[:,][^"]*".*?</svg>', page)
    assert drawings
    for words, drawing in re.findall(r'role="img" aria-label="([^"]*)".*?(<svg.*?</svg>)', page):
        of_region = words.partition(":")[0].split(" · ")[0] in ("north", "south", "east", "other")
        assert ('class="break" d="M40 0V300"' in drawing) == of_region
    east = [row for row in rows if "east" in (row["category"], row["category_2"])]
    assert {row["period"] for row in east} == {LATE}


def test_a_broken_bundle_is_left_out_and_named(office: Office) -> None:
    (bundle,) = office.bundles()["2026-02"]
    changed = bundle / "data" / "regions.csv"
    changed.write_text(changed.read_text().replace("north", "norht"))
    (office.agency.releases / "lfs" / "2026-06" / "stray").mkdir(parents=True)
    (office.agency.releases / "lfs" / "2026-06" / ".building-x").mkdir()
    done = series_command(office.agency.config)
    path = f"2026-02/{bundle.name}"
    assert done.facts()["left_out"] == {
        path: "data/regions.csv was changed.",
        "2026-06/stray": "This folder is not a bundle: it has no manifest.json.",
    }
    assert f"Left out: {path}. data/regions.csv was changed." in list(done.report())
    assert done.facts()["without_release"] == ["2026-02", "2026-03"]
    page = page_of(office)
    assert f'<p class="warning">Left out of this page: {path}.' in page
    assert {row["period"] for row in rows_of(office)} == {"2026-01", "2026-04", "2026-05"}


def resealed(bundle: Path, **facts: Any) -> None:
    """Give a bundle other facts, with a seal that holds."""
    stated = json.loads((bundle / "manifest.json").read_text())
    (bundle / "manifest.json").unlink()
    seal(bundle, {k: v for k, v in stated.items() if k not in ("format", "files", "seal")} | facts)


def test_a_bundle_of_another_place_or_dataset_does_not_count(office: Office) -> None:
    folder = folder_of(office)
    one, other, third = (office.bundles()[month][0] for month in MONTHS[:3])
    shutil.copytree(one, folder / "2026-03" / "moved")
    resealed(other, dataset="elsewhere")
    resealed(third, publishable=False)
    write_series(folder)
    left_out = series_command(office.agency.config).facts()["left_out"]
    assert left_out == {
        "2026-03/moved": "It is of the period 2026-01.",
        f"2026-02/{other.name}": "It is of the dataset 'elsewhere'.",
        f"2026-04/{third.name}": "It is NOT PUBLISHABLE.",
    }


@pytest.mark.nightly
def test_a_revision_takes_the_place_of_what_it_supersedes(office: Office) -> None:
    (bundle,) = office.bundles()["2026-02"]
    proposal = propose(bundle, None, (), office.agency.folder, office.agency.home)
    revised = run_release(office.context(), proposal.planned).bundle
    rows = [row for row in rows_of(office) if row["period"] == "2026-02"]
    assert {row["bundle"] for row in rows} == {f"2026-02/{revised.name}"}
    with (revised / "data" / "income.csv").open(newline="") as file:
        (stated,) = csv.DictReader(file)
    assert [r["value"] for r in rows if r["product"] == "income"] == [float(stated["estimate"])]
    page = page_of(office)
    assert f'href="./2026-02/{revised.name}/report.html"' in page
    assert f'href="./2026-02/{bundle.name}/report.html">of ' in page
    # Should the revision break, what it superseded stands in, and that is said.
    (revised / "README.md").write_text("")
    write_series(folder_of(office))
    rows = [row for row in rows_of(office) if row["period"] == "2026-02"]
    assert {row["bundle"] for row in rows} == {f"2026-02/{bundle.name}"}
    assert f"Left out of this page: 2026-02/{revised.name}." in page_of(office)


def test_the_budget_is_what_the_bundles_state(made: Office) -> None:
    heading, *body = tables_of(page_of(made))["What is used of the limit"]
    assert heading == ["period", "ε", "δ"]
    for cells in body:
        if cells[0] == "2026-03":
            assert cells[1:] == ["no figure"] * 2
            continue
        (bundle,) = made.bundles()[cells[0]]
        life = json.loads((bundle / "privacy.json").read_text())["lifetime"]
        shown, limit = cells[1].split(" of ")
        assert limit == life["limit"]["epsilon"]
        spent = float(life["spent"]["epsilon"])
        assert spent <= float(shown) <= spent * 1.01  # rounded against the release


def test_files_are_what_their_descriptions_say(made: Office) -> None:
    folder = folder_of(made)
    package = json.loads((folder / "datapackage.json").read_text())
    (table,) = [each for each in package["resources"] if "schema" in each]
    header = (folder / "series.csv").read_text().partition("\n")[0].split(",")
    assert header == list(COLUMNS) == [each["name"] for each in table["schema"]["fields"]]
    keys = [tuple(row[key] for key in ("period", *KEYS)) for row in rows_of(made)]
    assert len(keys) == len(set(keys))
    assert all((folder / each["path"]).is_file() for each in package["resources"])


@pytest.mark.system
def test_frictionless_finds_the_files_in_order(made: Office) -> None:
    needed("frictionless")
    from frictionless import Package

    folder = folder_of(made)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        report = Package("datapackage.json").validate()
    assert report.valid, report.flatten(["rowNumber", "fieldNumber", "type", "note"])


@pytest.mark.system
def test_sdmx_validates_and_has_the_same_figures(
    agency: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed("pysdmx")
    from pysdmx.io import get_datasets, read_sdmx

    made = released(agency, monkeypatch, ", sdmx: true")
    folder = folder_of(made)
    structure = folder / "series_structure.xml"
    read_sdmx(structure, validate=True)  # against the XML schemas of SDMX 3.0
    (found,) = get_datasets(folder / "series_sdmx.csv", structure)
    names = {
        each.id: {code.id: code.name for code in each.enumeration}
        for each in found.structure.components
        if each.enumeration is not None
    }
    rows, seen = rows_of(made), found.data.to_dict("records")
    assert len(rows) == len(seen)
    for row, observed in zip(rows, seen, strict=True):
        assert observed["TIME_PERIOD"] == row["period"] and observed["FREQ"] == "M"
        for key in KEYS:
            code = names[key.upper()][observed[key.upper()]]
            assert code == (row[key] or "not applicable")
        assert float(observed["OBS_VALUE"]) == row["value"]
        for name in ("lower", "upper", "standard_error", "confidence"):
            assert float(observed[name.upper()]) == row[name]
        broken = row["definition"] == "2" and "east" not in (row["category"], row["category_2"])
        assert observed["OBS_STATUS"] == ("B" if broken else "E")
    dimensions = [each.id for each in found.structure.components.dimensions]
    assert dimensions[0] == "FREQ" and dimensions[-1] == "TIME_PERIOD"


def test_the_same_bundles_give_the_same_files_and_nothing_private(office: Office) -> None:
    folder = folder_of(office)

    def files() -> dict[str, bytes]:
        return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}

    first = files()
    assert sorted(first) == ["datapackage.json", "series.csv", "series.html"]
    shutil.rmtree(office.agency.home.root)  # neither ledger nor source
    shutil.rmtree(office.agency.folder / "data")
    for name in first:
        (folder / name).unlink()
    write_series(folder)
    assert files() == first
    text = b"".join(first.values()).decode()
    assert CANARY not in text and str(office.agency.folder) not in text
    times = re.findall(r"\d\d:\d\d:\d\d", text)
    stated = "".join((b / "manifest.json").read_text() for (b,) in office.bundles().values())
    assert all(time in stated for time in times)


class BrokenError(Exception):
    """Stands for whatever may be wrong with a page."""


@pytest.mark.parametrize(
    "failure",
    [
        BrokenError,
        *(pytest.param(e, marks=pytest.mark.nightly) for e in (OSError, KeyboardInterrupt)),
    ],
)
def test_no_page_can_fail_or_undo_a_publication(
    agency: Any, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]
) -> None:
    office = Office(agency, monkeypatch).on("2026-05-11")
    office.deliver("2026-01", "2026-02")

    def fail(_: Path) -> None:
        raise failure(CANARY)

    with monkeypatch.context() as patch:
        patch.setattr(SeriesData, "read", fail)
        released, _, said = office.release_due()
    assert released == ["2026-01", "2026-02"]
    assert office.kinds().count("publish") == 2
    assert office.latest.parts[0] == "2026-02"
    assert not (folder_of(office) / PAGE).exists()
    told = [text for text in said if "the page of its series is as it was" in text]
    assert len(told) == 2 and all("'statpress series CONFIG'" in text for text in told)
    assert CANARY not in "".join(said)
    write_series(folder_of(office))
    assert "2 of 2" in page_of(office)


def test_whoever_publishes_refreshes_the_page(agency: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An approved bundle, and one that the ledger had missed."""
    office = Office(agency, monkeypatch).on("2026-05-11")
    office.deliver("2026-01")
    with Ledger.open(agency.home.ledger) as ledger:
        ledger.set_approvers(dataset="testdata", approvers=[], unsigned=True)
    office.release("2026-01")
    with Ledger.open(agency.home.ledger) as ledger:
        (run,) = ledger.state().charges
    assert not folder_of(office).joinpath(PAGE).exists()
    decide(agency.home, run, "approve", reason="right", by="officer")
    run_publication(office.context(), run)
    assert "1 of 1" in page_of(office)


def test_a_bundle_that_is_noted_later_is_on_the_page(
    agency: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from statpress.flows.cli.ledger_commands import note

    office = Office(agency, monkeypatch).on("2026-05-11")
    office.deliver("2026-01")

    acting = Acting({"publish": lambda: refuse_publications(agency.home)})
    with pytest.raises(LedgerError, match="not noted in the ledger"):
        run_release(office.context(acting), Order(agency.config).at_period("2026-01"))
    refuse_publications(agency.home, refuse=False)
    (bundle,) = office.bundles()["2026-01"]
    assert not (folder_of(office) / PAGE).exists()
    assert "page" not in note(bundle, home=agency.home.root).facts()
    assert "1 of 1" in page_of(office)
    note_bundle(agency.home, bundle)


def test_whoever_holds_the_lock_cannot_hold_up_releases(office: Office) -> None:
    folder = folder_of(office)
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(OutputNotWritableError, match="keeps the folder locked"):
        write_series(folder, patience=0.2)
    os.close(descriptor)
    write_series(folder)


def test_processes_that_publish_at_once_write_one_after_the_other(office: Office) -> None:
    folder = folder_of(office)
    (folder / PAGE).unlink()
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    other = threading.Thread(target=write_series, args=[folder])
    other.start()
    other.join(0.5)
    assert other.is_alive() and not (folder / PAGE).exists()
    os.close(descriptor)
    other.join(600)
    assert (folder / PAGE).exists()
    assert not [path for path in folder.iterdir() if path.name.startswith(".new")]


def test_what_cannot_be_written_leaves_the_page_as_it_was(
    office: Office,
) -> None:
    before = page_of(office)
    full = pytest.raises(OutputNotWritableError, match=r"cannot be written \(File too large\)")
    with full_disk("write") as hear, full:
        hear("write")
        write_series(folder_of(office))
    assert page_of(office) == before


def test_the_command_says_what_is_wrong(office: Office, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(BundleVerificationError, match="has no bundle to show"):
        series_command(office.agency.config, directory=empty)
    plain = tmp_path / "plain.yaml"
    plain.write_text(re.sub(r"series: .*\n", "", office.agency.text).replace("{period}", "2026-01"))
    with pytest.raises(ConfigError, match="no section 'series'"):
        series_command(plain)
    assert load_order(Order(plain)).config.series is None
    moved = shutil.copytree(folder_of(office), tmp_path / "lfs", symlinks=True)
    (moved / PAGE).unlink()
    done = series_command(office.agency.config, directory=moved)
    assert done.facts()["page"] == str(moved / PAGE) and (moved / PAGE).exists()
