"""Prefect servers for tests: real processes with a database in PostgreSQL and a log on disk."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from installation import QUIET

BIN = Path(sys.executable).parent
PASSWORD = "officer:correct horse"
"""What the server wants of a client, as Prefect writes it."""

_PATIENT_CLIENT = {"PREFECT_API_REQUEST_TIMEOUT": "600"}
_PATIENT_SERVER = {
    "PREFECT_SERVER_DATABASE_TIMEOUT": "600",
    "PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT": "600",
    "PREFECT_SERVER_DATABASE_SQLALCHEMY_POOL_TIMEOUT": "600",
    "PREFECT_SERVER_API_WEBSOCKET_PING_TIMEOUT": "600",
}
"""Seconds that a busy machine may take; by default 60 for an answer, and 5 to 30 in the server."""
_LEAN_SERVER = {
    "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false",
    "PREFECT_SERVER_SERVICES_SCHEDULER_MIN_SCHEDULED_TIME": "PT5M",
}
"""Kinds of blocks come with the blocks that tests save, and runs are scheduled five minutes ahead,
where the server would take seconds to store all kinds, and an hour of runs of every minute."""


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that refuses connections, and that no other program can take meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield int(bound.getsockname()[1])


@contextmanager
def started(home: Path, database: str) -> Iterator[dict[str, str]]:
    """A server process that asks for a password; yields the environment of a client.

    Args:
        home: A folder for its log and its files.
        database: The address of an empty PostgreSQL database with ``pg_trgm``.
    """
    while True:
        process, environment = _launch(home, database)
        try:
            if _came_up(process, home, environment["PREFECT_API_URL"]):
                yield environment
                return
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask a server to end, and kill it if it does not: nothing it holds is needed."""
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _launch(home: Path, database: str) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
    """A server on a port that nobody listens on just now, and the environment of a client."""
    with closed_port() as port:
        api = f"http://127.0.0.1:{port}/api"
    temporary = home / "tmp"  # in the system's, workers of all users share the first one's folder
    temporary.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "PREFECT_HOME": str(home),
        "TMPDIR": str(temporary),
        "PREFECT_API_URL": api,
        **QUIET,
        **_PATIENT_CLIENT,
        "PREFECT_API_AUTH_STRING": PASSWORD,
        "PREFECT_SERVER_API_AUTH_STRING": PASSWORD,
    }
    command = [str(BIN / "prefect"), "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    unmeasured = {k: v for k, v in environment.items() if not k.startswith("COVERAGE_")}
    own = {
        **_PATIENT_SERVER,
        **_LEAN_SERVER,
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": database,
        "PREFECT_SERVER_UI_STATIC_DIRECTORY": str(home / "ui"),
    }
    with (home / "server.log").open("w") as log:
        process = subprocess.Popen(command, env=unmeasured | own, stdout=log, stderr=log)
    return process, environment


def _came_up(process: subprocess.Popen[bytes], home: Path, api: str) -> bool:
    """Wait until the server answers; False if another program took its port meanwhile."""
    deadline = time.monotonic() + 600
    while not _healthy(api):
        if process.poll() is not None:
            log = (home / "server.log").read_text()
            assert "in use" in log, log
            return False
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.3)
    return True


def ask(environment: dict[str, str], path: str, body: Any = None) -> Any:
    """The server's answer to a POST with a body, or to a GET without."""
    request = urllib.request.Request(
        f"{environment['PREFECT_API_URL']}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Content-Type": "application/json",
            "Authorization": "Basic " + base64.b64encode(PASSWORD.encode()).decode(),
        },
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


@contextmanager
def as_client(environment: dict[str, str]) -> Iterator[None]:
    """Let Prefect in this process talk to the server that an environment names."""
    from prefect import settings as prefect
    from prefect.settings import temporary_settings

    settings = {
        prefect.PREFECT_API_URL: environment["PREFECT_API_URL"],
        prefect.PREFECT_API_AUTH_STRING: environment["PREFECT_API_AUTH_STRING"],
        prefect.PREFECT_API_REQUEST_TIMEOUT: 600,
        prefect.PREFECT_LOCAL_STORAGE_PATH: Path(environment["PREFECT_HOME"]) / "storage",
    }
    with temporary_settings(settings):
        yield


def _healthy(api: str) -> bool:
    """Whether the server answers."""
    try:
        with urllib.request.urlopen(f"{api}/health", timeout=60) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@contextmanager
def noticed() -> Iterator[tuple[list[dict[str, str]], str]]:
    """A place that takes notices, and its address."""
    taken: list[dict[str, str]] = []

    class Taker(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Silence."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Taker) as place:
        threading.Thread(target=place.serve_forever, daemon=True).start()
        try:
            yield taken, f"http://127.0.0.1:{place.server_port}/"
        finally:
            place.shutdown()
