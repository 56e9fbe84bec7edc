"""The quality process ends with the run that started it, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUN = """
import sys, threading, time
from pathlib import Path
from statpress.tasks.private_zone.guards import CuratorLog
from statpress.tasks.release.quality_gates import Inspector

def start():
    print(Inspector(CuratorLog(Path(sys.argv[1]), "log"))._process.pid, flush=True)

if sys.argv[2] == "thread":
    starter = threading.Thread(target=start)
    starter.start()
    starter.join()
else:
    start()
time.sleep(3600)
"""
ENDLESS = """
import pathlib, time
pathlib.Path(__file__).with_name("importing").touch()
time.sleep(3600)
"""
PATIENCE = 600.0


@pytest.mark.parametrize("starter", ["main", "thread"])
def test_quality_process_ends_with_a_killed_run(tmp_path: Path, starter: str) -> None:
    """In the middle of an import that never ends; with the main thread even while it is stopped."""
    (tmp_path / "great_expectations.py").write_text(ENDLESS)
    command = [sys.executable, "-c", RUN, str(tmp_path), starter]
    root = str(Path(__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), root))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as run:
        assert run.stdout is not None
        quality = int(run.stdout.readline())
        until = time.monotonic() + PATIENCE
        try:
            while not (tmp_path / "importing").exists():
                assert alive(quality) and time.monotonic() < until
                time.sleep(0.01)
            assert alive(quality), "it must outlive the thread that started it"
            if starter == "main":
                os.kill(quality, signal.SIGSTOP)
            run.kill()
            while alive(quality):
                assert time.monotonic() < until, "it outlives its run"
                time.sleep(0.01)
        finally:
            run.kill()
            if alive(quality):
                os.kill(quality, signal.SIGKILL)


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state.rpartition(")")[2].split()[0] not in "ZX"
