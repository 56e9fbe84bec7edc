"""``statpress rehearse``: the whole way on made-up data; what it makes is never a release."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from acting import DRAWING, Acting, raising
from bad_input import CANARY

from statpress.configs.loading import PlannedOrder, load
from statpress.configs.order import Order
from statpress.flows.cli import app
from statpress.flows.cli.rehearse_command import run_rehearsal
from statpress.mechanisms.errors import (
    ConfigError,
    InternalError,
    MostlyNoiseError,
    OutputNotWritableError,
    RehearsalError,
    StatpressError,
)
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.private_zone.run_context import Silent
from statpress.tasks.release.made_up import make_up

CONFIG = """
title: Pay & <conditions>
about: {{identifier: "https://doi.org/10.1234/real"}}
dataset: testdata
source: {{path: private.csv}}
privacy: {{adjacency: replace_one, {unit}}}
budget: {{epsilon: 6, delta: 1.0e-6}}
domain:
  region: {{type: categorical, categories: [1, 2.5, 4], other: true, missing: true}}
  age: {{type: integer, lower: 0, upper: 99, width: 20}}
  pay: {{type: numeric, lower: 0, upper: 10, bins: 5, missing: true}}
  born: {{type: date, first: 2000-01-01, last: 2000-06-30, by: month}}
structural_zeros:
  - {{age: {{lower: 0, upper: 19}}, pay: {{lower: 2, upper: 10}}}}
checks:
  region: {{missing_at_most: 0.05}}
{more}products:
  ages: {{kind: table, mechanism: gaussian, columns: [age, region], share: 0.2}}
  people: {{kind: microdata, mechanism: marginals, columns: [age, region, born], share: 0.6}}
  middle: {{kind: estimate, statistic: mean, columns: [age], share: 0.2, mechanism: joint_moments}}
publish: {{directory: releases, formats: [parquet, csv], plots: false, name: first}}
"""
RECORDS, UNITS = (
    "unit: record, n_records: 4000",
    "unit: {column: who, max_records: 3}, n_units: 900",
)


@pytest.fixture
def folder(
    tmp_path: Path, judged_here: None, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    monkeypatch.setenv("STATPRESS_HOME", str(tmp_path / "home"))
    (tmp_path / "private.csv").write_text(
        f"region,age,pay,born,who\n{CANARY},1,2,2000-01-01,{CANARY}"
    )
    return tmp_path


def written(folder: Path, unit: str = RECORDS, more: str = "") -> Path:
    path = folder / "release.yaml"
    text = CONFIG.format(unit=unit, more=more)
    if unit != RECORDS:
        text = text.replace("mechanism: joint_moments}", "mechanism: joint_moments, per: unit}")
    path.write_text(text)
    return path


def small(path: Path) -> Path:
    """Leave the records, which take longest, out of a config."""
    text = path.read_text()
    (people,) = (line for line in text.splitlines(keepends=True) if line.startswith("  people:"))
    path.write_text(text.replace(people, "").replace("share: 0.2", "share: 0.5"))
    return path


def command(*words: str) -> dict[str, Any]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        app([*words, "--json"], exit_on_error=False)
    facts: dict[str, Any] = json.loads(out.getvalue())
    return facts


def rehearsed(folder: Path, **options: str) -> dict[str, Any]:
    return command("rehearse", str(written(folder, **options)))


def test_it_looks_like_a_release_says_that_it_is_none_and_opens_and_leaves_nothing_else(
    folder: Path,
) -> None:
    first = rehearsed(folder)
    bundle = Path(first["bundle"])
    assert bundle.parent == folder / "rehearsals"
    assert "rehearsal" in bundle.name and bundle.name.endswith("-NOT-PUBLISHABLE")
    assert first["status"] == "rehearsed" and not first["publishable"]
    assert first["would_charge"]["epsilon"] == f"{load(folder / 'release.yaml').plan().epsilon:f}"
    for name in (
        "README.md", "PRIVACY.md", "report.html", "datapackage.json", "dcat.jsonld",
        "croissant.json", "codebook.md", "manifest.json", "CITATION.cff", "csvw.json",
    ):  # fmt: skip
        text = (bundle / name).read_text()
        assert "NOT PUBLISHABLE" in text and "ehears" in text.lower(), name
        assert "10.1234/real" not in text, name
    for name in ("privacy.json", "manifest.json"):
        stated = json.loads((bundle / name).read_text())
        assert stated["rehearsal"] is True and stated["publishable"] is False
        assert not stated.get("ledger_entry") and "lifetime" not in stated
    assert pq.read_table(bundle / "data" / "people.parquet").num_rows == 4000
    assert {path.name for path in bundle.iterdir()} >= {"config.yaml", "privacy.schema.json"}
    left = [path for path in folder.rglob("*") if path.is_file() and path.name != "private.csv"]
    assert len(left) > 10
    assert not any(CANARY.encode() in path.read_bytes() for path in left)
    assert sorted(path.name for path in folder.iterdir()) == [
        "private.csv", "rehearsals", "release.yaml", "temporary",
    ]  # fmt: skip
    assert not list((folder / "temporary").iterdir())
    (folder / "private.csv").unlink()
    second = rehearsed(folder, unit=UNITS, more="gate: {noise: true}\n")
    assert {Path(each["bundle"]) for each in (first, second)} == {
        *(folder / "rehearsals").iterdir()
    }
    size = "900 units (up to 2,700 records)"
    for name in ("README.md", "PRIVACY.md", "report.html"):
        assert size in (Path(second["bundle"]) / name).read_text(), name
        assert "4,000 records" in (Path(first["bundle"]) / name).read_text(), name
    page, path = folder / "plan.html", small(folder / "release.yaml")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        app(["plan", str(path), "--html", str(page)], exit_on_error=False)
    assert size in out.getvalue() and size in page.read_text()


@pytest.mark.parametrize(
    "words",
    [
        ["verify"], ["query"], ["upload"], ["ledger", "note"], ["rerelease", "--reprint"],
        ["rerelease", "--renew"], ["approve", "--by", "me"], ["reject", "--by", "me", "--reason=x"],
    ],
)  # fmt: skip
def test_every_command_on_a_bundle_refuses_it_by_name(
    rehearsal_bundle: Path, words: list[str]
) -> None:
    with pytest.raises(RehearsalError, match="This is a rehearsal, NOT PUBLISHABLE"):
        app([*words, str(rehearsal_bundle)], exit_on_error=False)


@pytest.fixture(scope="module")
def rehearsal_bundle(tmp_path_factory: pytest.TempPathFactory, judged_here: None) -> Path:
    order = PlannedOrder.of(Order(small(written(tmp_path_factory.mktemp("rehearsed")))))
    return run_rehearsal(order, None, Silent()).bundle


def test_one_whose_manifest_is_made_that_of_a_release_is_not_whole(rehearsal_bundle: Path) -> None:
    path = rehearsal_bundle / "manifest.json"
    text = path.read_text()
    try:
        path.write_text(text.replace("statpress-rehearsal/1", "statpress-bundle/2"))
        with pytest.raises(StatpressError, match="was changed"):
            verify_bundle(rehearsal_bundle)
    finally:
        path.write_text(text)


@pytest.mark.parametrize("unit", [RECORDS, UNITS])
def test_what_is_made_up_passes_every_check_and_uses_the_whole_domain(
    folder: Path, unit: str
) -> None:
    release = load(written(folder, unit))
    table = pq.read_table(make_up(release, folder).pattern)
    if unit == RECORDS:
        assert table.num_rows == 4000
    else:
        records = np.bincount(table["who"].to_numpy())
        assert len(records) == 900 and set(records) == {1, 2, 3}
    assert 0 < table["region"].null_count <= 0.05 * table.num_rows  # a sixth, did no check say so
    assert 0.1 < table["pay"].null_count / table.num_rows < 0.25
    assert {*table["region"].to_pylist()} == {1, 2.5, 4, None}
    ages, pays = table["age"].to_numpy(), table["pay"].to_numpy()
    assert (ages.min(), ages.max()) == (0, 99)
    assert not np.any((ages < 20) & (pays >= 2))
    assert np.any((ages < 20) & (pays < 2))
    days = {str(day)[:7] for day in table["born"].to_pylist()}
    assert days == {f"2000-0{month}" for month in range(1, 7)}


def test_it_stops_where_a_run_would_and_never_goes_where_releases_are(folder: Path) -> None:
    path = written(folder)
    with pytest.raises(MostlyNoiseError):
        command("rehearse", str(path), "--set", "budget.epsilon=0.0001")
    for place in ("releases", "releases/below"):
        with pytest.raises(OutputNotWritableError, match="not go into the publishing"):
            command("rehearse", str(path), "--directory", str(folder / place))
    assert not (folder / "releases").exists() and not (folder / "rehearsals").exists()


def test_a_column_that_names_the_unit_and_is_released_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="names the unit is in the domain too"):
        rehearsed(folder, unit=UNITS.replace("who", "age"))


def test_the_detail_of_what_fails_stays_where_the_message_says(folder: Path) -> None:
    order = PlannedOrder.of(Order(written(folder)))
    failing = Acting({DRAWING: raising(ValueError("what went wrong"))})
    with pytest.raises(InternalError) as caught:
        run_rehearsal(order, None, failing)
    (log,) = (folder / "temporary").iterdir()
    assert str(log) in caught.value.next_step and "what went wrong" in log.read_text()
    assert not list((folder / "rehearsals").iterdir())
