"""Runs against a real Prefect server, with its database and its log, which may be gone."""

from __future__ import annotations

import datetime
import json
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from bad_input import CANARY, RARE
from command_forks import forked_with_prefect
from leaks import Search, Watch
from prefect_server import BIN, ask, closed_port
from test_robustness import assert_clean, kinds, quickly_planned
from victims import all_ended, press

from statpress.tasks.private_zone.guards import new_run_id

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


def flow_runs(environment: dict[str, str], *names: str) -> list[dict[str, Any]]:
    return ask(environment, "/flow_runs/filter", {"flow_runs": {"name": {"any_": names}}})


def today() -> datetime.date:
    return datetime.datetime.now(datetime.UTC).date()


def test_run_on_a_server(
    founded: Callable[..., Any], tmp_path: Path, server: dict[str, str]
) -> None:
    agency = founded(tmp_path, "served")  # a killed run keeps its dataset's turn for a minute
    before = today()
    process, out, err, shown = run(agency, server)
    assert process.returncode == 0, err
    facts = json.loads(out)
    assert Path(facts["bundle"]).is_dir()
    days = {before, today()}  # it may have run over midnight
    found = flow_runs(server, *(f"served, {day}, {facts['run_id'][:8]}" for day in days))
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


class Line:
    """The line to a server, which can be cut and mended."""

    def __init__(self, api: str) -> None:
        host, _, port = api.removeprefix("http://").removesuffix("/api").rpartition(":")
        self._server = host, int(port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.api = f"http://127.0.0.1:{self._listening.getsockname()[1]}/api"
        self._whole = True
        self.refused = threading.Event()
        """Set once somebody was refused because the line is cut."""
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break what is connected; break what will connect, as a server does that restarts."""
        self._whole = False
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._whole = True

    def _accept(self) -> None:
        while True:
            client, _ = self._listening.accept()
            if not self._whole:
                client.close()
                self.refused.set()
                continue
            server = socket.create_connection(self._server)
            self._open += [client, server]
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                sink.sendall(piece)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "back", [pytest.param(True, marks=pytest.mark.nightly), False], ids=["and back", "for good"]
)
def test_the_orchestrators_server_is_gone(agency: Any, server: dict[str, str], back: bool) -> None:
    quick = quickly_planned(agency)
    line = Line(server["PREFECT_API_URL"])
    environment = {name: value for name, value in server.items() if name.startswith("PREFECT_")}
    environment |= {"PREFECT_API_URL": line.api, "PREFECT_CLIENT_MAX_RETRIES": "4" if back else "0"}
    run_id = new_run_id()
    victim = press(quick, "held", hold="draw_records", run_id=run_id, environment=environment)
    with all_ended(victim):
        victim.held()
        line.cut()
        victim.go()
        if back:
            assert line.refused.wait(600), victim.said
            line.mend()
        code = victim.end()
    # The release does not hang on the server: it was drawn and published all the same.
    assert code == 0, victim.said
    assert ("could not be told" in victim.said) is not back
    assert kinds(quick) == ["look", "charge", "draw", "publish"]
    assert_clean(quick, 1)
    named = {"flow_runs": {"name": {"like_": run_id[:8]}}}
    (seen,) = ask(server, "/flow_runs/filter", named)
    assert seen["state_type"] == ("COMPLETED" if back else "RUNNING")
