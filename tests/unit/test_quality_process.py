"""The quality process ends with the run that started it, however that ends."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

RUN = """
import sys, threading, time
from pathlib import Path
from tasks.execution.private_zone import CuratorLog
from tasks.quality.inspector import Inspector

def start():
    print(Inspector(CuratorLog(Path(sys.argv[1]), "log"))._process.pid, flush=True)

if sys.argv[2] == "thread":
    starter = threading.Thread(target=start)
    starter.start()
    starter.join()
else:
    start()
time.sleep(60)
"""


@pytest.mark.parametrize("starter", ["main", "thread"])
def test_quality_process_ends_with_a_killed_run(tmp_path: Path, starter: str) -> None:
    command = [sys.executable, "-c", RUN, str(tmp_path), starter]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        quality = psutil.Process(int(run.stdout.readline()))
        try:
            time.sleep(0.7)  # it imports Great Expectations, which takes seconds
            assert alive(quality), "it must outlive the thread that started it"
            run.kill()
            killed = time.monotonic()
            while alive(quality) and time.monotonic() < killed + 20:
                time.sleep(0.01)
            assert time.monotonic() - killed < (0.5 if starter == "main" else 2)
        finally:
            run.kill()
            if alive(quality):
                quality.kill()


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
