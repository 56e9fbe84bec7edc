"""OpenLineage events of releases: what they say, what they never say, and that they cost nothing.

The events are what OpenLineage's own client sent to a receiver by HTTP, or wrote into a file.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import households
import pytest
from bad_input import CANARY, RARE
from monthly import monthly
from requirements import needed

from statpress.flows.release import publish
from statpress.mechanisms.errors import QualityGateError, StatpressError
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.orchestration import lineage
from statpress.tasks.release.review import decide

pytestmark = pytest.mark.system
needed("openlineage.client")


class Receiver:
    """A server that takes events; with ``silent`` one that accepts a connection and never answers.

    Attributes:
        events: What it was sent, in order.
    """

    def __init__(self, silent: bool = False, status: int = 200) -> None:
        self.events: list[dict[str, Any]] = []
        self.free = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.events.append(json.loads(body))
                if silent:
                    receiver.free.wait(60)
                with suppress(OSError):
                    self.send_response(status)
                    self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def kinds(self) -> list[str]:
        return [event["eventType"] for event in self.events]

    @contextmanager
    def serving(self) -> Iterator[Receiver]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.free.set()
            self._server.shutdown()
            self._server.server_close()


@pytest.fixture(autouse=True)
def off(tmp_path: Path) -> Iterator[None]:
    """No setting of the machine, and none that the client leaves behind."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
        del os.environ[name]
    os.environ["HOME"] = str(tmp_path)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with Receiver().serving() as serving:
        monkeypatch.setenv("OPENLINEAGE_URL", serving.url)
        yield serving


def check_form(event: dict[str, Any]) -> None:
    """That an event has what the specification requires (OpenLineage 2-0-2)."""
    assert event["schemaURL"].startswith("https://openlineage.io/spec/2-0-2/OpenLineage.json#")
    assert event["producer"].startswith("https://pypi.org/project/statpress/")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00", event["eventTime"])
    UUID(event["run"]["runId"])
    for named in (event["job"], *event["inputs"], *event["outputs"]):
        assert named["namespace"] and named["name"]
    facets = [event["run"]["facets"], event["job"]["facets"]]
    facets += [each["facets"] for each in (*event["inputs"], *event["outputs"])]
    for facet in (facet for each in facets for facet in each.values()):
        assert {"_producer", "_schemaURL"} <= facet.keys()


def private_in(events: list[dict[str, Any]]) -> list[str]:
    """What only the source holds, and numbers that are counts, wherever it stands in events."""
    text = json.dumps(events)
    numbers = [each for event in events for each in _numbers(event)]
    return [each for each in (CANARY, str(RARE)) if each in text] + [str(n) for n in numbers]


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _numbers(each)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value


def test_a_release_says_that_it_began_and_what_it_published(
    agency: Any, receiver: Receiver
) -> None:
    outcome = agency.run()
    started, completed = receiver.events
    for event in receiver.events:
        check_form(event)
        assert UUID(event["run"]["runId"]).hex == outcome.run_id
        assert (event["job"]["namespace"], event["job"]["name"]) == ("statpress", "testdata")
    assert receiver.kinds() == ["START", "COMPLETE"]
    (source,) = started["inputs"]
    assert (source["namespace"], source["name"]) == ("file", str(agency.source))
    fields = [(each["name"], each["type"]) for each in source["facets"]["schema"]["fields"]]
    assert fields == [
        ("region", "categorical"), ("age", "integer"), ("pay", "numeric"), ("born", "date"),
    ]  # fmt: skip
    assert started["run"]["facets"]["statpress_release"]["title"] == "Test release"
    (bundle,) = completed["outputs"]
    assert bundle["name"] == str(outcome.bundle)
    assert bundle["facets"]["version"]["datasetVersion"] == outcome.seal
    privacy = bundle["facets"]["statpress_privacy"]
    assert (privacy["epsilon"], privacy["delta"]) == (outcome.epsilon, outcome.delta)
    assert (privacy["adjacency"], privacy["unit"]) == ("replace_one", "record")
    assert privacy["ledger_entry"] == outcome.ledger_entry
    assert private_in(receiver.events) == []


def test_a_period_of_a_series_says_what_time_it_is_about(agency: Any, receiver: Receiver) -> None:
    monthly(agency, "2026-01")
    agency.source.rename(agency.source.parent / "2026-02.parquet")
    agency.replace("series: {name: lfs,", "series: {name: lfs, current: 2026-02,")
    agency.run()
    started = receiver.events[0]
    assert started["job"]["name"] == "testdata.lfs"
    time_of = started["run"]["facets"]["nominalTime"]
    assert time_of["nominalStartTime"] == "2026-02-01T00:00:00Z"
    assert time_of["nominalEndTime"] == "2026-03-01T00:00:00Z"
    assert "2026-02" in started["run"]["facets"]["statpress_release"]["name"]
    assert receiver.kinds() == ["START", "COMPLETE"]


def test_a_release_that_fails_says_only_that(agency: Any, receiver: Receiver) -> None:
    """What the gate refused holds the canary, which no event does."""
    agency.replace("other: true, missing", "other: false, missing")
    with pytest.raises(QualityGateError):
        agency.run()
    assert receiver.kinds() == ["START", "FAIL"]
    failed = receiver.events[1]
    check_form(failed)
    assert not failed["outputs"] and "errorMessage" not in failed["run"]["facets"]
    assert private_in(receiver.events) == []


def test_the_search_for_what_is_private_finds_it() -> None:
    """The broken twin: events with a value of the source, or with a count."""
    assert private_in([{"run": {"facets": {"why": f"{CANARY} is not declared"}}}]) == [CANARY]
    assert private_in([{"inputs": [{"facets": {"rowCount": 400}}]}]) == ["400"]


def test_a_bundle_that_waits_is_complete_once_it_is_published(
    agency: Any, receiver: Receiver
) -> None:
    with Ledger.open(agency.home.ledger, create=False) as ledger:
        ledger.set_approvers(dataset="testdata", approvers=[], unsigned=True, reason="a test")
    prepared = agency.run()
    assert receiver.kinds() == ["START", "OTHER"]
    assert not receiver.events[1]["outputs"]
    decide(agency.home, prepared.run_id, "approve", reason="fine", by="an officer")
    published = publish(agency.context(), prepared.run_id)
    assert receiver.kinds() == ["START", "OTHER", "COMPLETE"]
    (bundle,) = receiver.events[2]["outputs"]
    assert bundle["name"] == str(published.bundle)
    assert len({event["run"]["runId"] for event in receiver.events}) == 1


def test_the_file_transport_gets_the_same(
    agency: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Configured by ``openlineage.yml``, where the client looks for it."""
    place = tmp_path / ".openlineage"
    place.mkdir()
    file = tmp_path / "events.jsonl"
    text = f"transport: {{type: file, log_file_path: {file}, append: true}}\n"
    (place / "openlineage.yml").write_text(text)
    outcome = agency.run()
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]
    assert events[1]["outputs"][0]["facets"]["version"]["datasetVersion"] == outcome.seal
    assert private_in(events) == []


def test_nothing_is_sent_unless_it_is_configured(
    agency: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Receiver().serving() as serving:
        assert not lineage.is_on()
        agency.run()
        monkeypatch.setenv("OPENLINEAGE_URL", serving.url)
        assert lineage.is_on()
        monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
        assert not lineage.is_on()
        agency.replace("name: first", "name: second")
        agency.run()
        assert serving.events == []


BY_NIGHT = ("refused", "no client", "yaml")


@pytest.mark.parametrize(
    "broken",
    [
        "nobody answers",
        "status 500",
        *(pytest.param(each, marks=pytest.mark.nightly) for each in BY_NIGHT),
    ],
)
def test_what_goes_wrong_with_events_delays_a_release_shortly_and_changes_nothing(
    agency: Any, monkeypatch: pytest.MonkeyPatch, broken: str, tmp_path: Path
) -> None:
    with Receiver(silent=True).serving() as silent, Receiver(status=500).serving() as failing:
        url = {"nobody answers": silent.url, "status 500": failing.url}.get(
            broken, "http://127.0.0.1:9"
        )
        monkeypatch.setenv("OPENLINEAGE_URL", url)
        if broken == "no client":
            monkeypatch.setitem(sys.modules, "openlineage.client", None)
        if broken == "yaml":
            (tmp_path / "bad.yml").write_text("transport: {type: nothing.Known}\n")
            monkeypatch.setenv("OPENLINEAGE_CONFIG", str(tmp_path / "bad.yml"))
        outcome = agency.run()
        with suppress(StatpressError):
            agency.run_again()
    assert outcome.bundle.is_dir()
    kinds = [entry.kind for entry in agency.entries()]
    assert kinds.count("charge") == 1 and kinds.count("publish") == 1
    logs = "".join(each.read_text() for each in agency.home.folder("curator").rglob("*.log"))
    assert logs.count("was not sent") == 2
    if broken == "nobody answers":
        assert logs.count("not within 3 seconds") == 2


def test_both_tables_of_households_are_inputs_with_their_own_columns(tmp_path: Path) -> None:
    release = households.loaded(tmp_path)
    own, persons = lineage._inputs(release)
    linked = release.config.linked
    for found, table in ((own, linked.households), (persons, linked.persons)):
        assert [field.name for field in found.facets["schema"].fields] == list(table.domain)
        assert found.name.endswith(table.source.path.rpartition("/")[2])
    assert own.name != persons.name
