"""What Prefect adds to a release: the command on a server that is up, and as plain functions.

The baseline of the same run is ``statpress run --no-orchestrator``: the same steps, called as
plain functions. Both are whole processes, so that importing Prefect counts. A busy machine
delays either, therefore the quickest of a few runs of each is compared.
"""

from __future__ import annotations

import subprocess
import time
from typing import Any

import pytest
from prefect_server import BIN

pytestmark = pytest.mark.system
MOST = 3.0
"""Seconds a release; about 2 were measured."""
TRIES = 5


def seconds(agency: Any, server: dict[str, str], *options: str) -> float:
    """How long one release takes."""
    home = ["--home", str(agency.home.root)]
    command = [str(BIN / "statpress"), "run", str(agency.config), *home, "--json", *options]
    started = time.perf_counter()
    done = subprocess.run(command, env=server, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return time.perf_counter() - started


def test_overhead_a_release(agency: Any, server: dict[str, str]) -> None:
    agency.replace(", name: first", "")
    agency.amend(epsilon=str(2 * TRIES + 1))
    plain, watched = [], []
    for _ in range(TRIES):
        plain.append(seconds(agency, server, "--no-orchestrator"))
        watched.append(seconds(agency, server))
        if min(watched) - min(plain) < MOST:
            break
    overhead = min(watched) - min(plain)
    print(f"plain {min(plain):.2f} s, on a server {min(watched):.2f} s, {overhead:.2f} s more")
    assert overhead < MOST
