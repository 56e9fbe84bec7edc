"""A release on a schedule: server on PostgreSQL, worker, pages in a real browser, notices.

Everything is carried out once: ``statpress deploy`` puts deployments on the server, two on a
schedule, of which one is under review, and one whose config does not exist; a worker runs one that
is due, an officer approves the other; that, what fails and what publishes are run by what a worker
starts for a flow run; the tests look at what came of it.
"""

from __future__ import annotations

import base64
import datetime
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bad_input import CANARY, RARE
from browser import Browser
from command_forks import forked_engine, forked_prefect, forked_with_prefect
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from postgres import Server
from prefect_server import BIN, PASSWORD, as_client, ask, noticed
from ruamel.yaml import YAML
from victims import warm

from statpress.tasks.bundle.manifest import approved_by, verify_bundle
from statpress.tasks.ledger.entries import public_text
from statpress.tasks.ledger.ledger import Ledger

pytestmark = pytest.mark.system
DEPLOY = Path(__file__).parents[2] / "deploy"
POOL, UNWATCHED = "calendar", "calendar without a worker"
PRIVATE = (CANARY, str(RARE), str(int(RARE)))
SEED = b"officer of the calendar, 32 byte"
LOW_BUDGET = "statpress: 16.8 % of the budget of testdata left"
AHEAD = datetime.timedelta(seconds=8)


@dataclass
class Reviewed:
    """An agency whose releases an officer approves, and what happened there."""

    agency: Any
    officer: Ed25519PrivateKey
    prepared: dict[str, Any]
    before: list[str]
    published: dict[str, Any]

    @property
    def run_id(self) -> str:
        """The prepared run's, in the ledger."""
        return str(self.prepared["id"]).replace("-", "")


@dataclass
class Day:
    """What happened: an agency, the environment of a client, its two runs, the notices."""

    agency: Any
    client: dict[str, str]
    scheduled: dict[str, Any]
    failed: dict[str, Any]
    notices: list[dict[str, str]]
    reviewed: Reviewed

    @property
    def bundle(self) -> Path:
        return self.agency.releases / "first"

    def artifacts(self, run: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
        """The artifacts of a run by key; by default of the scheduled one."""
        query = {"artifacts": {"flow_run_id": {"any_": [(run or self.scheduled)["id"]]}}}
        return {each["key"]: each for each in ask(self.client, "/artifacts/filter", query)}


@pytest.fixture(scope="module")
def day(
    server: dict[str, str],
    founded: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Day]:
    """One day of an agency whose budget is nearly spent."""
    agency = founded(tmp_path_factory.mktemp("calendar"))
    agency.amend(epsilon="1.2")  # of which a release leaves less than a fifth
    office, officer = founded(tmp_path_factory.mktemp("office"), "reviewed"), key_of(SEED)
    office.amend(epsilon="1.2")
    with Ledger.open(office.home.ledger, create=False) as ledger:
        ledger.set_approvers(dataset="reviewed", approvers=[public_text(officer)], unsigned=False)
    with noticed() as (notices, address):
        warm()  # changes the environment for a moment, which the thread reads
        with ThreadPoolExecutor() as beside:
            automated = beside.submit(automate, server, address, agency.folder)
            deploy(server, agency, office)
        automated.result()
        nothing = {"config": str(agency.folder / "missing.yaml")}
        failed = on_demand(server, agency, deployment(server, "release-of-nothing"), nothing)
        with worker(server):
            fire_once(server, deployment(server, "release-calendar"))
            scheduled = ended(server, deployment(server, "release-calendar"), "COMPLETED")
        prepared = due_run(server, office, deployment(server, "release-reviewed"))
        reviewed = approve(server, office, officer, prepared)
        due = {f"statpress: {failed['name']} Failed", LOW_BUDGET, waiting_subject(reviewed)}
        wait(lambda: due <= {notice["subject"] for notice in notices}, "two notices")
        yield Day(agency, server, scheduled, failed, notices, reviewed)


def waiting_subject(reviewed: Reviewed) -> str:
    return f"statpress: Test release prepared, run {reviewed.run_id}"


def key_of(seed: bytes) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(seed)


def on_demand(
    server: dict[str, str],
    agency: Any,
    of: dict[str, Any],
    parameters: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A flow run of a deployment, by what a worker starts for it, while there is no worker."""
    body = {} if parameters is None else {"parameters": parameters}
    made = ask(server, f"/deployments/{of['id']}/create_flow_run", body)
    return carried_out(server, agency, made["id"])


def due_run(server: dict[str, str], agency: Any, of: dict[str, Any]) -> dict[str, Any]:
    """The first flow run of a schedule, which is due, in the same way."""
    first = {"sort": "EXPECTED_START_TIME_ASC", "limit": 1}
    query = first | {"flow_runs": {"deployment_id": {"any_": [of["id"]]}}}
    wait(lambda: ask(server, "/flow_runs/filter", query), f"a run of {of['name']}")
    (due,) = ask(server, "/flow_runs/filter", query)
    run = carried_out(server, agency, due["id"])
    ask(server, f"/deployments/{of['id']}/pause_deployment", {})
    return run


def carried_out(server: dict[str, str], agency: Any, run_id: str) -> dict[str, Any]:
    """A flow run that has come to an end."""
    at = server | {"STATPRESS_HOME": str(agency.home.root)}
    done = forked_engine(run_id, cwd=agency.folder, environment=at)
    run: dict[str, Any] = ask(server, f"/flow_runs/{run_id}")
    assert run["state_type"] in ENDS, done.stdout + done.stderr
    return run


def approve(
    server: dict[str, str], office: Any, officer: Ed25519PrivateKey, prepared: dict[str, Any]
) -> Reviewed:
    """Approve the scheduled release by the command line, and publish it by its flow."""
    before = [path.name for path in office.bundles()]
    run_id = prepared["id"].replace("-", "")
    key = office.folder / "officer.pem"
    key.touch(0o600)
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    key.write_bytes(officer.private_bytes(*form))
    at = server | {"STATPRESS_HOME": str(office.home.root)}
    words = ("approve", run_id, "--key", str(key), "--reason", "Read, and right.")
    succeeded(forked_with_prefect(*words, cwd=office.folder, environment=at))
    publishing = ask(server, "/deployments/name/statpress-publish/publish-reviewed")
    published = on_demand(server, office, publishing, {"run_id": run_id})
    return Reviewed(office, officer, prepared, before, published)


def deploy(server: dict[str, str], agency: Any, office: Any) -> None:
    """Apply the installation's own file, with a pool of our own and a schedule that is near."""
    described = YAML(typ="safe").load(DEPLOY / "prefect.yaml")
    pools = [{"name": name, "type": "process"} for name in (POOL, UNWATCHED)]
    described["definitions"] = {"work_pools": pools}
    known = {each["name"]: each for each in described["deployments"]}
    release = known["release"] | {"work_pool": pool_of(agency)}
    soon = (datetime.datetime.now(datetime.UTC) + AHEAD).isoformat()
    # Again if we are late; a second release finds too little budget.
    near = {"interval": 60, "anchor_date": soon, "active": True}
    described["deployments"] = [
        release
        | {
            "name": "release-calendar",
            "parameters": {"config": str(agency.config)},
            "schedules": [near],
        },
        release | {"name": "release-of-nothing", "parameters": {}, "schedules": []},
        release
        | {
            "name": "release-reviewed",
            "parameters": {"config": str(office.config)},
            "schedules": [near],
            "work_pool": pool_of(office, UNWATCHED),
        },
        known["publish"] | {"name": "publish-reviewed", "work_pool": pool_of(office)},
    ]
    file = agency.folder / "prefect.yaml"
    YAML(typ="safe").dump(described, file)
    said = succeeded(
        forked_with_prefect("deploy", str(file), "--json", cwd=agency.folder, environment=server)
    )
    assert json.loads(said)["deployments"] == {
        "publish-reviewed": "created",
        "release-calendar": "created",
        "release-of-nothing": "created",
        "release-reviewed": "created",
    }


def pool_of(agency: Any, pool: str = POOL) -> dict[str, Any]:
    """The pool, with the home of an agency."""
    return {
        "name": pool,
        "job_variables": {"env": {"STATPRESS_HOME": str(agency.home.root)}},
    }


def automate(server: dict[str, str], address: str, folder: Path) -> None:
    """Create the automations of the installation, whose notices go to an address."""
    from prefect.blocks.notifications import CustomWebhookNotificationBlock

    with as_client(server):
        block = CustomWebhookNotificationBlock(
            name="notices", url=address, json_data={"subject": "{{subject}}", "body": "{{body}}"}
        )
        identifier = str(block.save("notices"))
    file = folder / "automations.yaml"
    text = (DEPLOY / "automations.yaml").read_text()
    file.write_text(text.replace("NOTICE_BLOCK", identifier))
    words = ("automation", "create", "--from-file", str(file))
    said = succeeded(forked_prefect(*words, cwd=folder, environment=server))
    assert "Created 8 automation" in said


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    """What a command printed, which must have succeeded."""
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def worker(server: dict[str, str], pool: str = POOL) -> Iterator[None]:
    """A worker that looks for runs every second."""
    arguments = ["worker", "start", "--pool", pool, "--install-policy", "never"]
    with subprocess.Popen(
        [str(BIN / "prefect"), *arguments, "--no-create-pool-if-not-found"],
        env=server | {"PREFECT_WORKER_QUERY_SECONDS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield
        finally:
            process.kill()  # its runs have ended; on SIGTERM it may wait for ever


def deployment(server: dict[str, str], name: str) -> dict[str, Any]:
    return ask(server, f"/deployments/name/statpress-release/{name}")


ENDS = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


def fire_once(server: dict[str, str], of: dict[str, Any], but: str | None = None) -> None:
    """End a schedule once a worker has taken its first run, or the first but one that it had."""
    taken: dict[str, Any] = {"state": {"type": {"any_": ["PENDING", "RUNNING", *ENDS]}}}
    if but is not None:
        taken["id"] = {"not_any_": [but]}
    query = {"flow_runs": {"deployment_id": {"any_": [of["id"]]}, **taken}}
    wait(lambda: ask(server, "/flow_runs/filter", query), f"the start of {of['name']}")
    ask(server, f"/deployments/{of['id']}/pause_deployment", {})


def ended(server: dict[str, str], of: dict[str, Any], *ends: str) -> dict[str, Any]:
    """The first run of a deployment that has come to an end, or to one of these.

    Where a schedule fires again before its first run is done, the second finds too little
    budget and may fail before the first completes.
    """
    query: dict[str, Any] = {
        "sort": "START_TIME_ASC",
        "flow_runs": {
            "deployment_id": {"any_": [of["id"]]},
            "state": {"type": {"any_": ends or ENDS}},
        },
    }
    wait(lambda: ask(server, "/flow_runs/filter", query), f"a run of {of['name']}")
    return ask(server, "/flow_runs/filter", query)[0]


def wait(come: Callable[[], Any], what: str) -> None:
    until = time.monotonic() + 600
    while not come():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.3)


def test_the_schedule_fires_and_a_bundle_is_published(day: Day) -> None:
    run = day.scheduled
    assert run["state_type"] == "COMPLETED", run["state"]
    assert run["auto_scheduled"] is True
    dataset, _, run_id = run["name"].split(", ")
    assert (dataset, run_id) == ("testdata", run["id"].replace("-", "")[:8])
    assert day.failed["name"].startswith("release 20")  # it never knew its dataset
    assert run["parameters"] == {"config": str(day.agency.config)}
    assert set(run["tags"]) == {"statpress", "release", "testdata", "auto-scheduled"}
    manifest = verify_bundle(day.bundle)
    assert manifest["publishable"] is True
    with Ledger.open(day.agency.home.ledger, create=False) as ledger:
        (charge,) = ledger.state().charges.values()
    assert charge.published
    assert charge.entry.body["run_id"] == run["id"].replace("-", "")
    limits = {each["name"]: each for each in ask(day.client, "/v2/concurrency_limits/filter", {})}
    limit = limits["statpress-testdata"]
    assert (limit["limit"], limit["active_slots"], limit["active"]) == (1, 0, True)


def test_a_scheduled_release_under_review_is_published_once_it_is_approved(day: Day) -> None:
    reviewed = day.reviewed
    assert reviewed.prepared["state_type"] == "COMPLETED", reviewed.prepared["state"]
    assert reviewed.prepared["auto_scheduled"] is True and reviewed.before == []
    state = reviewed.prepared["state"]
    assert state["name"] == "AwaitingApproval"
    assert state["message"].endswith(f"not published: statpress approve {reviewed.run_id}")
    assert reviewed.published["state_type"] == "COMPLETED", reviewed.published["state"]
    run_id = reviewed.run_id
    assert reviewed.published["parameters"] == {"run_id": run_id}
    bundle = reviewed.agency.releases / "first"
    manifest = verify_bundle(bundle)
    assert manifest["run_id"] == run_id
    decision = approved_by(bundle, manifest, [public_text(reviewed.officer)])
    assert decision is not None and decision.body["reason"] == "Read, and right."
    with Ledger.open(reviewed.agency.home.ledger, create=False) as ledger:
        (charge,) = ledger.state().charges.values()
    assert charge.published and charge.entry.body["run_id"] == run_id
    shown = day.artifacts(reviewed.published)
    assert set(shown) == {"reviewed-bundle", "reviewed-gates", "reviewed-review"}
    assert manifest["seal"] in shown["reviewed-bundle"]["description"]
    assert shown["reviewed-gates"]["data"] == day.artifacts()["testdata-gates"]["data"]
    assert f"Run {run_id} is approved" in shown["reviewed-review"]["data"]
    waiting = day.artifacts(reviewed.prepared)
    assert set(waiting) == {"reviewed-plan", "reviewed-budget", "reviewed-review"}
    for command in (f"statpress approve {run_id} --key", f"statpress publish {run_id}"):
        assert command in waiting["reviewed-review"]["data"]


def test_artifacts_show_public_facts(day: Day) -> None:
    shown = day.artifacts()
    assert set(shown) == {f"testdata-{name}" for name in ("plan", "budget", "gates", "bundle")}
    plan = {row["product"]: row for row in json.loads(shown["testdata-plan"]["data"])}
    privacy = json.loads((day.bundle / "privacy.json").read_text())
    assert set(plan) == {"people", "births"}
    for row in plan.values():
        assert (row["mechanism"], row["share"]) == ("bootstrap", "0.5")
        assert 0 < float(row["epsilon"]) < 1 and float(row["rho"]) > 0
        assert row["expected error"].startswith("sd of a cell ")
    assert str(privacy["epsilon"]) in shown["testdata-plan"]["description"]
    with Ledger.open(day.agency.home.ledger, create=False) as ledger:
        account = ledger.account("testdata")
    budget = shown["testdata-budget"]["data"]
    assert f"| {account.remaining.texts()['epsilon']} |" in budget
    assert "16.8 % left" in budget and "█" * 5 + "░" * 25 in budget
    gates = json.loads(shown["testdata-gates"]["data"])
    assert [(row["gate"], row["outcome"]) for row in gates] == [
        ("input", "passed"),
        ("table", "passed"),
        ("release", "passed"),
    ]
    assert day.bundle.as_uri() in shown["testdata-bundle"]["data"]
    assert charge_and_seal(day) <= set(shown["testdata-bundle"]["description"].split("; ")[0:2])


def charge_and_seal(day: Day) -> set[str]:
    with Ledger.open(day.agency.home.ledger, create=False) as ledger:
        (charge,) = ledger.state().charges.values()
    assert charge.publication is not None
    seal = charge.publication.body["manifest_sha256"]
    return {f"Seal {seal}", f"ledger entry {charge.entry.hash}"}


def test_notices_of_a_failure_and_of_a_low_budget(day: Day) -> None:
    assert day.failed["state_type"] == "FAILED"
    about = {notice["subject"]: notice["body"] for notice in day.notices}
    assert set(about) >= {
        f"statpress: {day.failed['name']} Failed",
        LOW_BUDGET,
    }
    assert day.failed["id"] in about[f"statpress: {day.failed['name']} Failed"]
    assert "Remaining: epsilon 0.2" in about[LOW_BUDGET]
    waiting = about[waiting_subject(day.reviewed)]
    assert f"statpress approve {day.reviewed.run_id} --key FILE" in waiting
    assert str(day.reviewed.agency.home.root / "prepared") in waiting


@pytest.mark.parametrize("path", ["/flow_runs/filter", "/artifacts/filter", "/admin/version"])
def test_basic_auth_refuses_without_and_with_wrong_credentials(day: Day, path: str) -> None:
    def status(credentials: str | None) -> int:
        request = urllib.request.Request(
            day.client["PREFECT_API_URL"] + path,
            data=b"{}" if path.endswith("filter") else None,
            headers={"Content-Type": "application/json"},
        )
        if credentials is not None:
            token = base64.b64encode(credentials.encode()).decode()
            request.add_header("Authorization", f"Basic {token}")
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    user, password = PASSWORD.split(":")
    for wrong in (None, "", f"{user}:", f"{user}:wrong", f":{password}", f"{password}:{user}"):
        assert status(wrong) == 401, wrong
    assert status(PASSWORD) == 200


def test_the_database_holds_nothing_private(day: Day, postgres_server: Server) -> None:
    stored = postgres_server.dump("prefect")
    assert day.scheduled["id"] in stored and "testdata-gates" in stored
    assert not [each for each in PRIVATE if each in stored]


@pytest.mark.nightly
def test_pages_in_a_browser(
    day: Day, browser: Browser, pictures: Path | None, tmp_path: Path
) -> None:
    site = day.client["PREFECT_API_URL"].removesuffix("/api")
    run = f"{site}/runs/flow-run/{day.scheduled['id']}"
    kept = pictures or tmp_path

    def page(address: str | None, name: str, *words: str) -> None:
        text = browser.see(address, *words, picture=kept / f"{name}.png")
        assert not [each for each in PRIVATE if each in text]

    log_in(browser, site, page)
    name = day.scheduled["name"]
    steps = f"{ask(day.client, '/task_runs/count', of(day.scheduled))} Task runs"
    page(run, "run", name, "Completed", "testdata", steps, "statpress-release")
    browser.press("Parameters")
    page(None, "parameters", name, '"config"', str(day.agency.config))
    browser.press("Artifacts")
    tab = ("testdata-plan", "testdata-budget", "testdata-gates", "testdata-bundle")
    page(None, "artifacts", name, *tab)
    one = f"{site}/artifacts/artifact"
    shown = {key: f"{one}/{each['id']}" for key, each in day.artifacts().items()}
    page(shown["testdata-plan"], "plan", "people", "births", "bootstrap", "records")
    page(shown["testdata-budget"], "budget", "16.8 % left", "█████", "remaining")
    page(shown["testdata-gates"], "gates", "input", "table", "release", "passed")
    page(shown["testdata-bundle"], "bundle", str(day.bundle), "Seal")


def of(run: dict[str, Any]) -> dict[str, Any]:
    return {"flow_runs": {"id": {"any_": [run["id"]]}}}


def log_in(browser: Browser, site: str, page: Callable[..., None]) -> None:
    """Without the password and with a wrong one there is nothing to see but the form."""
    page(f"{site}/artifacts", "login", "Login")
    assert "testdata" not in browser.see(None)
    browser.enter("officer:wrong")
    page(None, "wrong password", "Authentication failed.")
    assert "testdata" not in browser.see(None)
    browser.enter(PASSWORD)
    browser.see(None, "Dashboard", "Artifacts")
