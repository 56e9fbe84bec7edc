"""Notices to a real server never fail a release, and releases of a dataset wait for each other."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
from prefect_server import as_client, ask, noticed

from statpress.configs.order import Order
from statpress.flows.runner import run_release
from statpress.mechanisms.errors import (
    LedgerUnavailableError,
    OrchestratorError,
)
from statpress.tasks.orchestration import monitoring
from statpress.tasks.orchestration import server as notices
from statpress.tasks.orchestration.server import examine_server, limit_name
from statpress.tasks.private_zone.guards import CuratorLog, new_run_id
from statpress.tasks.private_zone.run_context import Pace
from statpress.tasks.release.runs import Outcome
from statpress.tasks.uploads.heads import destination, send_head

pytestmark = pytest.mark.system


@pytest.fixture
def watched(agency: Any, server: dict[str, str]) -> Iterator[Any]:
    """An agency, with its own dataset, whose releases a server watches."""
    agency.replace("dataset: testdata", "dataset: Löhne 2000")
    agency.replace(", name: first", "")
    agency.register(dataset="Löhne 2000")
    with as_client(server):
        yield agency


def artifacts(server: dict[str, str], run_id: str) -> dict[str, Any]:
    """The artifacts of the run with this id in the ledger, by the last part of their keys."""
    runs = {"flow_runs": {"name": {"like_": run_id[:8]}}}
    found = ask(server, "/artifacts/filter", runs)
    return {each["key"].rpartition("-")[2]: each for each in found if each["key"]}


def run_at(agency: Any, **pace: float) -> Outcome:
    """Run on the server at another pace."""
    agency.inspector.log = CuratorLog(agency.home.folder("curator"), new_run_id())
    context = agency.context(orchestrated=True)
    context.pace = Pace(**pace)
    return run_release(context, Order(agency.config))


def test_progress_and_exclusion(watched: Any, server: dict[str, str]) -> None:
    outcome = run_at(watched, progress=0.0)
    shown = artifacts(server, outcome.run_id)
    assert set(shown) == {"plan", "budget", "progress", "gates", "bundle"}
    assert shown["progress"]["data"] == 100.0
    assert "Löhne 2000" in shown["budget"]["data"]

    # While somebody has the slot a release waits, and gives up before it charges.
    from prefect.concurrency.sync import concurrency

    before = len(watched.entries())
    with concurrency(limit_name("Löhne 2000"), strict=True):
        with pytest.raises(OrchestratorError, match="nothing was charged") as refused:
            run_at(watched, turn=1.0)
        assert f"prefect gcl update {limit_name('Löhne 2000')}" in refused.value.next_step
        assert len(watched.entries()) == before
        watched.run()  # without a server the ledger's lock serves
    assert len(watched.entries()) > before


@pytest.mark.parametrize("twin", [False, True])
def test_a_notice_asks_a_busy_server_once(twin: bool) -> None:
    """Prefect's client as it is, the twin, asks again; its settings are back afterwards."""
    from prefect.client.orchestration import get_client
    from prefect.settings import (
        PREFECT_API_URL,
        PREFECT_CLIENT_MAX_RETRIES,
        get_current_settings,
        temporary_settings,
    )

    asked: list[str] = []

    class Busy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(503)
            self.send_header("Retry-After", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Silence."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as busy:
        threading.Thread(target=busy.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{busy.server_port}/api"
        with temporary_settings({PREFECT_API_URL: address, PREFECT_CLIENT_MAX_RETRIES: 2}):
            before = get_current_settings()
            opened = get_client(sync_client=True) if twin else notices.notice_client()
            with pytest.raises(httpx.HTTPStatusError, match="503"), opened as client:
                client.request("GET", "/work_pools/{name}", path_params={"name": "any"})
            assert get_current_settings() is before
        busy.shutdown()
    assert asked == ["/api/work_pools/any"] * (3 if twin else 1)


def test_a_server_that_does_not_answer_costs_no_bundle(
    watched: Any, server: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Notices fail from the first on; the slot, given back, seems not to be."""
    from prefect.concurrency import _sync

    given_back = _sync.release_concurrency_slots_with_lease

    @contextmanager
    def nobody() -> Iterator[Any]:
        raise httpx.ConnectError("nobody answers")
        yield

    def lost(lease: Any) -> None:
        given_back(lease)
        raise httpx.ReadTimeout("nobody answers")

    for room in (notices, monitoring):
        monkeypatch.setattr(room, "notice_client", nobody)
    monkeypatch.setattr(_sync, "release_concurrency_slots_with_lease", lost)
    outcome = run_at(watched, progress=0.0)
    assert (outcome.bundle / "manifest.json").exists()
    assert watched.entries()[-1].kind == "publish"
    assert artifacts(server, outcome.run_id) == {}
    written = watched.inspector.log.path.read_text()
    assert written.count("The server was not told: ConnectError") >= 4
    assert "The slot was not given back: ReadTimeout" in written


def test_gates_are_not_shown_before_the_bundle_is(watched: Any, server: dict[str, str]) -> None:
    """A run that a gate stops shows its plan, and not which gates it had passed."""
    watched.write_source(pq.read_table(watched.source).slice(1))
    with pytest.raises(Exception, match="gate stopped the run"):
        watched.run(orchestrated=True)
    assert set(artifacts(server, watched.inspector.log.run_id)) == {"plan"}
    assert watched.bundles() == []


def test_the_checkup_finds_late_runs_and_automations_that_are_off(server: dict[str, str]) -> None:
    with as_client(server):
        made = ask(server, "/flows/", {"name": "statpress-of-the-checkup"})
        late = {"type": "SCHEDULED", "name": "Late"}
        late["state_details"] = {"scheduled_time": "2020-01-01T04:00:00Z"}
        run = {"flow_id": made["id"], "name": "calendar", "state": late}
        due = ask(server, "/flow_runs/", run)
        trigger = {"type": "event", "posture": "Reactive", "expect": ["nothing.of.ours"]}
        trigger |= {"threshold": 1, "within": 0}
        off = {"name": "statpress run failed", "enabled": False, "trigger": trigger}
        ask(server, "/automations/", off | {"actions": [{"type": "do-nothing"}]})
        found = {each.check: each for each in examine_server() if each.verdict == "wrong"}
        assert "calendar was due 2020-01-01T04:00:00Z" in found["schedule"].what
        assert "statpress run failed" in found["notices"].what
        end = {"state": {"type": "CANCELLED", "name": "Cancelled"}, "force": True}
        ask(server, f"/flow_runs/{due['id']}/set_state", end)
        assert "schedule" not in {e.check for e in examine_server() if e.verdict == "wrong"}


def test_a_head_goes_to_a_notification_block(watched: Any, server: dict[str, str]) -> None:
    from prefect.blocks.notifications import CustomWebhookNotificationBlock

    with noticed() as (notices, address):
        json_data = {"subject": "{{subject}}", "body": "{{body}}"}
        block = CustomWebhookNotificationBlock(name="heads", url=address, json_data=json_data)
        block.save("heads", overwrite=True)
        sent = send_head(watched.home, destination("block:custom-webhook/heads"))
        (notice,) = notices
        stated = {"entries": sent.entries, "format": "statpress-ledger/1", "head": sent.head}
        assert json.loads(notice["body"]) == stated and sent.head == watched.entries()[-1].hash
    with pytest.raises(LedgerUnavailableError, match="was not sent") as refused:
        send_head(watched.home, destination("block:custom-webhook/heads"))  # nobody listens now
    assert address not in str(refused.value)
    with pytest.raises(LedgerUnavailableError, match="was not sent"):
        send_head(watched.home, destination("block:custom-webhook/of-nobody"))
