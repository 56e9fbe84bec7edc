"""A series on a schedule of a real server: a year of months, one of them late, one config.

The schedule is the installation's, nearer than it would be. The flow runs of a year are those of a
worker; two months are run by what a worker starts for a flow run.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from command_forks import forked_with_prefect
from monthly import monthly
from prefect_server import ask
from ruamel.yaml import YAML
from test_schedule import (
    AHEAD,
    DEPLOY,
    due_run,
    ended,
    fire_once,
    on_demand,
    pool_of,
    succeeded,
    wait,
    worker,
)
from victims import warm

from statpress.mechanisms.periods import SeriesPeriod
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.release.ledger_check import verify_ledger

pytestmark = pytest.mark.system
NAME, POOL = "release-series", "series"
TODAY = datetime.datetime.now(datetime.UTC).date()
YEAR_AGO = SeriesPeriod.of(TODAY.replace(year=TODAY.year - 1, day=1), "month")
YEAR = [str(period) for period in YEAR_AGO.due_from(0, TODAY)]
NEXT = SeriesPeriod.read(YEAR[-1]).following


@pytest.fixture
def months(full: bool) -> list[str]:
    """Those that are due; the file of the second comes after the others."""
    return YEAR[-12 if full else -2 :]


@pytest.fixture
def office(founded: Callable[..., Any], tmp_path: Path, months: list[str]) -> Any:
    """An agency with a series, without the file of one month."""
    agency = founded(tmp_path, "labour")
    monthly(agency, months[0])
    for month in months:
        if month != months[1]:
            deliver(agency, month)
    return agency


def deliver(agency: Any, month: str) -> None:
    pq.write_table(pq.read_table(agency.source), agency.source.parent / f"{month}.parquet")


@pytest.mark.nightly
def test_months_are_released_by_one_schedule(
    server: dict[str, str], office: Any, months: list[str]
) -> None:
    """At the end with hardly any budget left, which a notice says."""
    warm()
    assert len(YEAR) == 12
    late, budget = months[1], (Decimal(len(months)) + 1) / 10
    office.amend(epsilon=str(budget))
    schedule(server, office)
    deployed = ask(server, f"/deployments/name/statpress-release/{NAME}")
    worked = len(months) == 12
    with worker(server, POOL) if worked else nullcontext():
        if worked:
            fire_once(server, deployed)
            waiting = ended(server, deployed, "COMPLETED")
        else:
            waiting = due_run(server, office, deployed)
        assert waiting["state"]["name"] == "WaitingForSource", waiting["state"]
        assert f"{late} waits for its source" in waiting["state"]["message"]
        assert waiting["auto_scheduled"] is True
        assert published(office) == months[:1]
        looks = [entry.kind for entry in office.entries()].count("look")
        assert looks == 1  # that a file is not there is none
        deliver(office, late)
        if worked:
            ask(server, f"/deployments/{deployed['id']}/resume_deployment", {})
            fire_once(server, deployed, but=waiting["id"])
            wait(lambda: published(office) == months, "all months")
            wait(lambda: not at_work(server, deployed), "the last flow run")
        else:
            assert on_demand(server, office, deployed)["state_type"] == "COMPLETED"
            assert published(office) == months
    backfill(server, office, deployed, months[0])
    wait(lambda: noticed(server, "waiting", late), "the event of a period that waits")
    wait(lambda: noticed(server, "running-out", str(NEXT)), "the event of a budget that runs out")
    query = {"artifacts": {"flow_run_id": {"any_": [waiting["id"]]}}}
    (shown,) = ask(server, "/artifacts/filter", query)
    assert shown["key"] == "labour-series-lfs"
    with Ledger.open(office.home.ledger, create=False) as ledger:
        charges = list(ledger.state().charges.values())
    epsilon = charges[0].entry.body["epsilon"]
    assert f"| {months[0]} | released | {epsilon} | 0 |" in shown["data"]
    assert f"| {late} | open | 0 | 0 |" in shown["data"]
    assert f"For {late} is left: epsilon {budget - Decimal(1) / 10}" in shown["data"]
    assert "The budget lasts to" in shown["data"]
    assert len(charges) == len(months) and all(charge.published for charge in charges)
    verify_ledger(office.home)
    folder = office.releases / "lfs"
    folders = {each.name: each for each in folder.iterdir() if each.is_dir()}
    assert sorted(folders) == [*months, "latest"]
    assert all(len(list(folders[month].iterdir())) == 1 for month in months)
    assert Path(os.readlink(folders["latest"])).parts[0] == months[-1]
    assert f"{len(months)} of {len(months)}" in (folder / "series.html").read_text()
    runs = {each["name"].split(", ")[1]: each for each in releases(server) if ", " in each["name"]}
    assert set(months) <= set(runs)
    for month in months:
        assert {"statpress", "release", "labour", "lfs", month} <= set(runs[month]["tags"])
        assert runs[month]["state_type"] == "COMPLETED"


def backfill(server: dict[str, str], office: Any, deployed: dict[str, Any], released: str) -> None:
    """A flow run for a period that is released finds it so, and one of no period fails."""
    ends = [
        on_demand(server, office, deployed, {**deployed["parameters"], "period": period})
        for period in (released, "1999-01")
    ]
    assert [each["state_type"] for each in ends] == ["COMPLETED", "FAILED"]


def published(office: Any) -> list[str]:
    """The months with a publication in the ledger, in its order."""
    places = [entry.body["bundle"] for entry in office.entries() if entry.kind == "publish"]
    return [Path(place).parent.name for place in places]


def noticed(server: dict[str, str], event: str, text: str) -> bool:
    """Whether an event of a series says something, in words for a notice."""
    named = {"filter": {"event": {"name": [f"statpress.series.{event}"]}}}
    events = ask(server, "/events/filter", named)["events"]
    return any(text in each["payload"]["words"] for each in events)


def at_work(server: dict[str, str], deployed: dict[str, Any]) -> Any:
    state = {"type": {"any_": ["PENDING", "RUNNING"]}}
    query = {"flow_runs": {"deployment_id": {"any_": [deployed["id"]]}, "state": state}}
    return ask(server, "/flow_runs/filter", query)


def releases(server: dict[str, str]) -> list[dict[str, Any]]:
    """The flow runs of the series."""
    query = {"flow_runs": {"tags": {"all_": ["lfs"]}}}
    found: list[dict[str, Any]] = ask(server, "/flow_runs/filter", query)
    return found


def schedule(server: dict[str, str], office: Any) -> None:
    """Put the installation's deployment on the server, to look for what is due often."""
    described = YAML(typ="safe").load(DEPLOY / "prefect.yaml")
    described["definitions"] = {"work_pools": [{"name": POOL, "type": "process"}]}
    known = {each["name"]: each for each in described["deployments"]}
    soon = (datetime.datetime.now(datetime.UTC) + AHEAD).isoformat()
    near = {"interval": 60, "anchor_date": soon, "active": True}
    described["deployments"] = [
        known["release"]
        | {
            "name": NAME,
            "parameters": {"config": str(office.config)},
            "schedules": [near],
            "work_pool": pool_of(office, POOL),
        }
    ]
    file = office.folder / "prefect.yaml"
    YAML(typ="safe").dump(described, file)
    words = ("deploy", str(file), "--json")
    said = succeeded(forked_with_prefect(*words, cwd=office.folder, environment=server))
    assert json.loads(said)["deployments"][NAME] == "created"
