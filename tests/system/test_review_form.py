"""A release that waits for a form on the run's page: a real server, and no process between."""

from __future__ import annotations

import json
from typing import Any

import pytest
from command_forks import forked_engine
from prefect_server import PASSWORD, ask

from statpress.tasks.bundle.manifest import APPROVAL_NAME, verify_bundle
from statpress.tasks.ledger.accounts import Status
from statpress.tasks.ledger.ledger import Ledger

pytestmark = pytest.mark.system


def state(environment: dict[str, str], run_id: str) -> tuple[str, str]:
    found = ask(environment, f"/flow_runs/{run_id}")["state"]
    return found["type"], found["name"]


def test_a_form_approves_and_publishes(
    agency: Any, server: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger.open(agency.home.ledger) as ledger:
        ledger.set_approvers(dataset="testdata", approvers=[], unsigned=True)
    environment = server | {"STATPRESS_HOME": str(agency.home.root)}
    flow = ask(server, "/flows/", {"name": "statpress-release-with-form"})["id"]
    deployment = {
        "name": "test",
        "flow_id": flow,
        "entrypoint": "statpress.flows.deployed.release_with_form",
    }
    made = ask(server, "/deployments/", deployment)["id"]
    body = {"parameters": {"config": str(agency.config)}}
    run_id = ask(server, f"/deployments/{made}/create_flow_run", body)["id"]

    first = forked_engine(run_id, cwd=agency.folder, environment=environment)
    assert state(server, run_id) == ("PAUSED", "Suspended"), first.stdout + first.stderr
    assert agency.bundles() == []
    run = run_id.replace("-", "")
    with Ledger.open(agency.home.ledger) as ledger:
        assert ledger.state().charges[run].status is Status.PREPARED

    body = {"prefix": "suspended-review", "limit": 9}
    shown = ask(server, f"/flow_runs/{run_id}/input/filter", body)
    told = json.dumps(shown)
    assert "Test release" in told and str(agency.releases / "first") in told
    refused = ask(server, f"/flow_runs/{run_id}/resume", {"run_input": {"decision": "maybe"}})
    assert refused["status"] == "REJECT"
    assert state(server, run_id)[1] == "Suspended"
    form = {"decision": "approve", "reason": "as planned", "name": "A. Officer"}
    assert ask(server, f"/flow_runs/{run_id}/resume", {"run_input": form})["status"] == "ACCEPT"

    second = forked_engine(run_id, cwd=agency.folder, environment=environment)
    assert state(server, run_id) == ("COMPLETED", "Completed"), second.stdout + second.stderr
    assert agency.bundles() == [agency.releases / "first"]
    verify_bundle(agency.releases / "first")
    approval = json.loads((agency.releases / "first" / APPROVAL_NAME).read_text())["body"]
    assert (approval["by"], approval["reason"]) == ("A. Officer", "as planned")
    kinds = [entry.kind for entry in agency.entries()][2:]
    assert kinds == ["look", "charge", "draw", "prepare", "decide", "publish"]
    # Publishing is a flow of its own as well; again, it changes nothing.
    from prefect import settings

    from statpress.flows.deployed import publish

    monkeypatch.setenv("STATPRESS_HOME", str(agency.home.root))
    here = {
        settings.PREFECT_API_URL: server["PREFECT_API_URL"],
        settings.PREFECT_API_AUTH_STRING: PASSWORD,
        settings.PREFECT_LOGGING_TO_API_ENABLED: False,
    }
    with settings.temporary_settings(here):
        assert publish(run_id=run) == str(agency.releases / "first")
    assert [entry.kind for entry in agency.entries()][2:] == kinds
    runs = ask(server, "/flow_runs/filter", {"flows": {"name": {"any_": ["statpress-publish"]}}})
    again = next(each["id"] for each in runs if each["parameters"] == {"run_id": run})
    assert state(server, again) == ("COMPLETED", "Completed")
    assert ask(server, f"/flow_runs/{again}")["name"] == f"testdata, publish {run[:8]}"
    steps = ask(server, "/task_runs/filter", {"flow_runs": {"id": {"any_": [again]}}})
    done = {step["name"] for step in steps}
    assert done == {"check approval", "note publication", "verify ledger"}

    found = ask(server, f"/flow_runs/{run_id}")
    assert found["parameters"] == {"config": str(agency.config)}
