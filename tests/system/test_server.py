"""The command line against a real Prefect server, with its database and its log."""

from __future__ import annotations

import datetime
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bad_input import CANARY, RARE
from command_forks import forked_with_prefect
from leaks import Search, Watch
from prefect_server import BIN, ask, closed_port

pytestmark = pytest.mark.system


def run(agency: Any, environment: dict[str, str]) -> tuple[subprocess.Popen[str], str, str, Watch]:
    """Run to the end, watching what the processes show: the process, its output, the watch."""
    process = subprocess.Popen(
        [
            str(BIN / "statpress"),
            "run",
            str(agency.config),
            "--home",
            str(agency.home.root),
            "--json",
        ],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with Watch(process.pid) as shown:
        out, err = process.communicate()
    return process, out, err, shown


def flow_runs(environment: dict[str, str], name: str) -> list[dict[str, Any]]:
    return ask(environment, "/flow_runs/filter", {"flow_runs": {"name": {"any_": [name]}}})


def test_run_on_a_server(
    founded: Callable[..., Any], tmp_path: Path, server: dict[str, str]
) -> None:
    agency = founded(tmp_path, "served")  # a killed run keeps its dataset's turn for a minute
    process, out, err, shown = run(agency, server)
    assert process.returncode == 0, err
    facts = json.loads(out)
    assert Path(facts["bundle"]).is_dir()
    today = datetime.datetime.now(datetime.UTC).date()
    found = flow_runs(server, f"served, {today}, {facts['run_id'][:8]}")
    assert [r["state_type"] for r in found] == ["COMPLETED"]
    assert found[0]["parameters"] == {}

    private = Search((CANARY, "48151623"), (RARE,))
    assert private.in_text(out + err) == []
    assert any("statpress.tasks.release.quality_process" in text for text in shown.seen.values())
    assert any("PREFECT_API_URL" in text for text in shown.seen.values()) or shown.closed
    assert not any(private.in_text(text) for text in shown.seen.values())


def test_server_out_of_reach(agency: Any, server: dict[str, str]) -> None:
    with closed_port() as port:
        nowhere = server | {"PREFECT_API_URL": f"http://127.0.0.1:{port}/api"}
        nowhere["PREFECT_CLIENT_MAX_RETRIES"] = "0"
        arguments = ("run", str(agency.config), "--home", str(agency.home.root), "--json")
        done = forked_with_prefect(*arguments, cwd=agency.folder, environment=nowhere)
    assert done.returncode == 61, done.stdout + done.stderr
    assert [entry.kind for entry in agency.entries()] == ["register"]
