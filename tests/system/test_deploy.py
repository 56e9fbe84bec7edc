"""``statpress deploy`` and the deployed flows: a real server with a password, and a worker."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from bad_input import CANARY
from command_forks import forked_engine, forked_with_prefect
from own_packages import with_packages_of_its_own
from prefect_server import BIN, as_client, ask, closed_port
from ruamel.yaml import YAML

from statpress.mechanisms.errors import DeploymentError, StatpressError
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.orchestration.deployment import apply
from statpress.tasks.private_zone.folders import Home

pytestmark = pytest.mark.system
ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "prefect.yaml"
REFUSED = StatpressError.exit_codes()["DeploymentError"]
HOW = (
    "flow_id", "entrypoint", "path", "pull_steps", "work_pool_name", "work_queue_name",
    "job_variables", "enforce_parameter_schema", "parameter_openapi_schema", "tags",
)  # fmt: skip
"""What decides how a deployment runs, besides its parameters and its schedules."""


@pytest.fixture(scope="module")
def first(server: dict[str, str]) -> dict[str, Any]:
    """What the first 'statpress deploy' on this server said."""
    return deploy(server)


def statpress(environment: dict[str, str], file: Path) -> subprocess.CompletedProcess[str]:
    arguments = ("deploy", str(file), "--json")
    return forked_with_prefect(*arguments, cwd=ROOT, environment=environment)


def deploy(environment: dict[str, str], file: Path = FILE) -> dict[str, Any]:
    done = statpress(environment, file)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def refusal(environment: dict[str, str], file: Path = FILE) -> dict[str, Any]:
    done = statpress(environment, file)
    assert done.returncode == REFUSED, done.stdout + done.stderr
    error = json.loads(done.stdout)["error"]
    assert error["kind"] == "Deployment" and error["next_step"]
    return error


def deployment(environment: dict[str, str], name: str, flow: str) -> dict[str, Any]:
    return ask(environment, f"/deployments/name/{flow}/{name}")


def test_deploy_creates_pools_and_deployments(
    server: dict[str, str], first: dict[str, Any]
) -> None:
    assert first["api"] == server["PREFECT_API_URL"]
    assert first["pools"] == {"statpress-process": "created", "statpress-docker": "created"}
    assert first["deployments"] == dict.fromkeys(
        (
            "publish", "release", "release-in-container", "release-on-demand",
            "release-with-form", "rerelease-on-demand", "verify-ledger",
        ),
        "created",
    )  # fmt: skip
    types = {pool["name"]: pool for pool in ask(server, "/work_pools/filter", {})}
    assert types["statpress-process"]["type"] == "process"
    docker = types["statpress-docker"]["base_job_template"]
    assert docker == json.loads((ROOT / "deploy" / "work-pools" / "docker.json").read_text())

    release = deployment(server, "release", "statpress-release")
    assert release["entrypoint"] == "statpress.flows.deployed.release"
    assert release["pull_steps"] in (None, [])
    assert release["work_pool_name"] == "statpress-process"
    assert release["enforce_parameter_schema"] is True
    assert release["global_concurrency_limit"]["limit"] == 1
    assert release["parameters"] == {"config": "/etc/statpress/release.yaml"}
    schema = release["parameter_openapi_schema"]
    assert schema["required"] == ["config"]
    types = {
        name: each.get("type") or [choice["type"] for choice in each["anyOf"]]
        for name, each in schema["properties"].items()
    }
    assert types == {
        "config": "string", "while_undecided": "string",
        "period": ["string", "null"], "again": "boolean",
    }  # fmt: skip
    assert schema["properties"]["while_undecided"]["default"] == "refuse"
    (schedule,) = release["schedules"]
    assert schedule["active"] is True
    assert schedule["schedule"]["cron"] == "0 4 1 * *"
    assert schedule["schedule"]["timezone"] == "Etc/UTC"

    on_demand = deployment(server, "release-on-demand", "statpress-release")
    assert on_demand["schedules"] == [] and on_demand["parameters"] == {}
    # So it runs as the scheduled one does, which test_schedule.py has a worker run.
    assert {name: on_demand[name] for name in HOW} == {name: release[name] for name in HOW}
    follow = deployment(server, "rerelease-on-demand", "statpress-rerelease")
    assert follow["schedules"] == [] and follow["enforce_parameter_schema"] is True
    schema = follow["parameter_openapi_schema"]
    assert schema["required"] == ["bundle"]
    assert set(schema["properties"]) == {
        "bundle",
        "config",
        "folder",
        "overrides",
        "while_undecided",
        "again",
    }
    form = deployment(server, "release-with-form", "statpress-release-with-form")
    assert (
        form["entrypoint"] == "statpress.flows.deployed.release_with_form"
        and form["schedules"] == []
    )
    publish = deployment(server, "publish", "statpress-publish")
    assert publish["parameter_openapi_schema"]["required"] == ["run_id"]
    verify = deployment(server, "verify-ledger", "statpress-verify-ledger")
    assert verify["entrypoint"] == "statpress.flows.deployed.verify"
    assert verify["schedules"][0]["schedule"]["cron"] == "0 2 1 * *"
    assert set(verify["parameter_openapi_schema"]["properties"]) == {"head", "public_key"}


def test_the_server_schedules_runs(server: dict[str, str], first: dict[str, Any]) -> None:
    """A Prefect server with SQLAlchemy 2.1 accepts schedules and never makes a run of them."""
    query = {"flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}}}
    deadline = time.monotonic() + 600
    while not (runs := ask(server, "/flow_runs/filter", query)):
        assert time.monotonic() < deadline, "no run was scheduled"
        time.sleep(0.5)
    assert all(run["auto_scheduled"] for run in runs)


def test_deploy_again_changes_nothing_and_a_change_is_seen(
    server: dict[str, str], first: dict[str, Any], tmp_path: Path
) -> None:
    before = deployment(server, "release", "statpress-release")
    described = YAML(typ="safe").load(FILE)
    kept = {each["name"]: each for each in described["deployments"]}
    del kept["release-in-container"]
    kept["release"]["schedules"] = [{"cron": "0 5 1 * *", "timezone": "Etc/UTC"}]
    described["deployments"] = list(kept.values())
    described["definitions"]["work_pools"][1].pop("base_job_template")
    changed = tmp_path / "prefect.yaml"
    YAML(typ="safe").dump(described, changed)
    again = deploy(server, changed)
    assert set(again["pools"].values()) == {"present"}
    assert again["deployments"] == {
        "publish": "unchanged",
        "release": "updated",
        "release-in-container": "not in the file",
        "release-on-demand": "unchanged",
        "rerelease-on-demand": "unchanged",
        "release-with-form": "unchanged",
        "verify-ledger": "unchanged",
    }
    after = deployment(server, "release", "statpress-release")
    assert after["id"] == before["id"]
    (schedule,) = after["schedules"]
    assert schedule["schedule"]["cron"] == "0 5 1 * *"


def test_deployments_of_the_first_version_are_renewed_in_place(
    server: dict[str, str], first: dict[str, Any], tmp_path: Path
) -> None:
    """Stored, and in a copy of the file, they name flows as the first version imported them."""
    from prefect.client.orchestration import get_client

    release = deployment(server, "release", "statpress-release")
    described = {
        "flow_id": release["flow_id"],
        "entrypoint": "flows.deployed.release",
        "work_pool_name": "statpress-process",
        "parameters": {"config": "/etc/statpress/annual.yaml"},
        "enforce_parameter_schema": True,
        "parameter_openapi_schema": release["parameter_openapi_schema"],
        "tags": ["annual"],
        "schedules": [{"schedule": {"cron": "0 4 1 1 *", "timezone": "Etc/UTC"}, "active": True}],
    }
    for name in ("release", "annual"):
        ask(server, "/deployments/", {**described, "name": name})
    verify = deployment(server, "verify-ledger", "statpress-verify-ledger")
    old = {"flow_id": verify["flow_id"], "entrypoint": "flows.ledger_verification.verify"}
    ask(server, "/deployments/", {**described, **old, "name": "verify-ledger"})
    annual = deployment(server, "annual", "statpress-release")
    assert annual["entrypoint"] == "flows.deployed.release"

    text = FILE.read_text().replace("work-pools/", f"{FILE.parent}/work-pools/")
    text = text.replace("statpress.flows.deployed.verify", "flows.ledger_verification.verify")
    copied = tmp_path / "prefect.yaml"
    copied.write_text(text.replace("statpress.flows.deployed", "flows.deployed"))
    try:
        became = deploy(server, copied)["deployments"]
        assert became["annual"] == "renewed"
        assert became["release"] == became["verify-ledger"] == "updated"
        assert became["publish"] == "unchanged"
        kept = (
            "id",
            "parameters",
            "tags",
            "schedules",
            "work_pool_name",
            "parameter_openapi_schema",
        )
        renewed = deployment(server, "annual", "statpress-release")
        assert renewed["entrypoint"] == "statpress.flows.deployed.release"
        assert {key: renewed[key] for key in kept} == {key: annual[key] for key in kept}
        again = deployment(server, "release", "statpress-release")
        for key in ("id", *HOW):
            assert again[key] == release[key], key
        assert again["parameters"] == {"config": "/etc/statpress/release.yaml"}
        again = deployment(server, "verify-ledger", "statpress-verify-ledger")
        assert (again["id"], again["entrypoint"]) == (verify["id"], verify["entrypoint"])
    finally:
        with as_client(server), get_client(sync_client=True) as client:
            client.delete_deployment(annual["id"])


def test_deploy_without_a_server(server: dict[str, str], tmp_path: Path) -> None:
    alone = {name: value for name, value in server.items() if not name.startswith("PREFECT_")}
    alone["PREFECT_HOME"] = str(tmp_path / "prefect")
    assert refusal(alone)["where"] == "PREFECT_API_URL"
    assert not list(tmp_path.rglob("*.db"))  # no server of its own was started either
    with closed_port() as port:
        nowhere = f"http://someone:secret@127.0.0.1:{port}/api"
        error = refusal(alone | {"PREFECT_API_URL": nowhere, "PREFECT_CLIENT_MAX_RETRIES": "0"})
    assert "does not answer" in error["what"] and "secret" not in error["where"]


def test_deploy_without_the_password(server: dict[str, str]) -> None:
    error = refusal(server | {"PREFECT_API_AUTH_STRING": "officer:wrong"})
    assert "PREFECT_API_AUTH_STRING" in error["next_step"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("work_pools:", "pools:", "lacks"),
        ("deployments:", "deployments: 3 #", "not YAML"),
        ("name: release-on-demand", "name: release", "one name"),
    ],
)
def test_file_that_is_not_usable(old: str, new: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "prefect.yaml"
    with pytest.raises(DeploymentError, match="cannot be read"):
        apply(file)
    file.write_text(FILE.read_text().replace(old, new, 1))
    with pytest.raises(DeploymentError, match=told):
        apply(file)


def test_what_the_server_or_prefect_refuses(
    server: dict[str, str], first: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "prefect.yaml"
    good = FILE.read_text().replace("work-pools/", f"{FILE.parent}/work-pools/")
    for old, new, told in (
        ("type: docker", "type: process", "of type 'docker'"),
        ("statpress.flows.deployed.release", "statpress.flows.deployed.nothing", "nothing"),
    ):
        assert old in good
        file.write_text(good.replace(old, new))
        assert told in refusal(server, file)["what"]


@pytest.mark.parametrize("by", ["an engine", pytest.param("a worker", marks=pytest.mark.nightly)])
def test_what_is_deployed_runs(
    agency: Any, server: dict[str, str], first: dict[str, Any], tmp_path: Path, by: str
) -> None:
    """By what a worker starts for a run, or by a worker, whose processes take long to start.

    In a folder whose packages are named as ours were, with ``PYTHONPATH=.``.
    """
    before = agency.run()
    ruined = Home(tmp_path / "ruined")
    ruined.folder("")
    (ruined.root / "ledger.sqlite").write_text(CANARY)
    found = deployment(server, "verify-ledger", "statpress-verify-ledger")
    body = {"job_variables": {"env": {"STATPRESS_HOME": str(ruined.root)}}}
    runs = {"ruined": ask(server, f"/deployments/{found['id']}/create_flow_run", body)["id"]}
    found = deployment(server, "rerelease-on-demand", "statpress-rerelease")
    changed = {"publish.name": "after", "source.format": "parquet"}
    body = {
        "parameters": {
            "bundle": str(before.bundle), "folder": str(agency.folder), "overrides": changed
        },
        "job_variables": {"env": {"STATPRESS_HOME": str(agency.home.root)}},
    }  # fmt: skip
    runs["rerelease"] = ask(server, f"/deployments/{found['id']}/create_flow_run", body)["id"]
    folder, here = with_packages_of_its_own(tmp_path / "work"), server | {"PYTHONPATH": "."}
    if by == "a worker":
        said = worked(folder, here)
    else:
        homes = {"ruined": ruined, "rerelease": agency.home}
        done = [
            forked_engine(
                run, cwd=folder, environment=here | {"STATPRESS_HOME": str(homes[name].root)}
            )
            for name, run in runs.items()
        ]
        said = "".join(each.stdout + each.stderr for each in done)
    ended = {name: ask(server, f"/flow_runs/{identifier}") for name, identifier in runs.items()}
    states = {name: run["state_type"] for name, run in ended.items()}
    assert states == {"ruined": "FAILED", "rerelease": "COMPLETED"}, said

    after = json.loads((agency.releases / "after" / "manifest.json").read_text())
    assert after["supersedes"] == before.seal
    with Ledger.open(agency.home.ledger, create=False) as ledger:
        charges = ledger.state().charges
    assert set(charges) == {before.run_id, runs["rerelease"].replace("-", "")}

    told = ended["ruined"]["state"]["message"]
    assert "The ledger could not be verified." in told
    log = ruined.root / "curator" / f"{runs['ruined'].replace('-', '')}.log"
    reason = log.read_text().strip()
    assert reason.startswith("Ledger") and reason not in told
    steps = ask(server, "/task_runs/filter", {"flow_runs": {"id": {"any_": [runs["ruined"]]}}})
    assert [step["name"] for step in steps] == ["verify ledger"]
    logs = ask(server, "/logs/filter", {"logs": {"flow_run_id": {"any_": [runs["ruined"]]}}})
    spoken = json.dumps([ended, steps, logs])
    assert str(ruined.root / "ledger.sqlite") not in spoken and CANARY not in spoken
    assert CANARY not in said
    assert oct(os.stat(log).st_mode & 0o777) == "0o600"


def worked(folder: Path, environment: dict[str, str]) -> str:
    """What a worker said that ran what was due."""
    worker = [str(BIN / "prefect"), "worker", "start", "--pool", "statpress-process", "--run-once"]
    done = subprocess.run(
        [*worker, "--no-create-pool-if-not-found", "--install-policy", "never"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    return done.stdout + done.stderr
