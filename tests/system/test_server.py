"""The command line against a real Prefect server, with its database and its log."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from bad_input import CANARY
from postgres import Server
from prefect_server import BIN, ask, free_port

pytestmark = pytest.mark.system


def run(agency: Any, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            str(BIN / "statpress"),
            "run",
            str(agency.config),
            "--home",
            str(agency.home.root),
            "--json",
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def flow_runs(environment: dict[str, str]) -> list[dict[str, Any]]:
    return ask(environment, "/flow_runs/filter", {})


def test_run_on_a_server(agency: Any, server: dict[str, str]) -> None:
    done = run(agency, server)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert Path(facts["bundle"]).is_dir()
    found = [r for r in flow_runs(server) if r["name"] == f"release-{facts['run_id'][:8]}"]
    assert [r["state_type"] for r in found] == ["COMPLETED"]
    assert found[0]["parameters"] == {}


def test_failing_run_on_a_server_tells_nothing(
    agency: Any, server: dict[str, str], postgres_server: Server
) -> None:
    agency.replace("other: true, missing: true", "missing: true")  # the canary has no cell
    done = run(agency, server)
    assert done.returncode == 46
    assert json.loads(done.stdout)["error"]["kind"] == "QualityGate"
    failed = [r for r in flow_runs(server) if r["state_type"] == "FAILED"]
    assert failed
    told = json.dumps(failed) + done.stdout + done.stderr
    assert CANARY not in told
    stored = postgres_server.dump("prefect")
    assert failed[0]["id"] in stored and CANARY not in stored
    for path in Path(server["PREFECT_HOME"]).rglob("*"):
        if path.is_file():
            assert CANARY.encode() not in path.read_bytes(), path
    assert [entry.kind for entry in agency.entries()] == ["register"]


def test_server_out_of_reach(agency: Any, server: dict[str, str]) -> None:
    nowhere = server | {"PREFECT_API_URL": f"http://127.0.0.1:{free_port()}/api"}
    nowhere["PREFECT_CLIENT_MAX_RETRIES"] = "0"
    done = run(agency, nowhere)
    assert done.returncode == 61, done.stdout + done.stderr
    assert [entry.kind for entry in agency.entries()] == ["register"]
