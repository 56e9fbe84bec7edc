"""A Dask cluster of real processes, set up to keep as much as it can: logs, and results on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Self

from requirements import needed

PATIENCE = 600.0
_KEEPING = {
    "DASK_LOGGING__DISTRIBUTED": "debug",
    "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "1e-9",  # every result goes to disk
    "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "false",
    "DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "false",
}
_PAGES = ("workers", "exceptions", "logs")


class DaskCluster:
    """A scheduler and its workers, which know the tests' own modules.

    Args:
        folder: For their logs and files.
    """

    def __init__(self, folder: Path) -> None:
        needed("prefect_dask")
        self.folder = folder
        folder.mkdir()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._file = folder / "scheduler.json"
        self._start("scheduler", "--port", "0", "--dashboard-address", "127.0.0.1:0",
                    "--host", "127.0.0.1")  # fmt: skip

    def __enter__(self) -> Self:
        self._wait(self._file.exists)
        return self

    def __exit__(self, *error: object) -> None:
        """Kill all, so that what they keep on disk stays there."""
        for process in reversed(self._processes):  # a worker without its scheduler would tidy up
            process.kill()
            process.wait()

    @property
    def address(self) -> str:
        """Of the scheduler."""
        return str(json.loads(self._file.read_text())["address"])

    def add(self, number: int = 1, folder: Path | None = None) -> Self:
        """Start workers, in a folder of theirs unless it is given, and wait until all are there."""
        from distributed import Client

        for _ in range(number):
            name = f"worker-{len(self._processes)}"
            self._start("worker", "--nthreads", "1", "--no-nanny", "--name", name, "--host",
                        "127.0.0.1", "--local-directory", str(self.folder / name),
                        "--memory-limit", "4GB", folder=folder)  # fmt: skip
        with Client(self.address, set_as_default=False) as client:
            self._wait(lambda: len(client.nthreads()) == self.workers)
        return self

    @property
    def workers(self) -> int:
        """How many have not ended."""
        return sum(process.poll() is None for process in self._processes[1:])

    def keep(self, text: str) -> None:
        """Have a worker put a result on disk, and leave it there."""
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            client.publish_dataset(kept=client.submit(str.__mul__, text, 100))
            self._wait(lambda: any(text.encode() in p.read_bytes() for p in self._spilled()))

    def _spilled(self) -> list[Path]:
        return [path for path in self.folder.glob("worker-*/**/storage/*") if path.is_file()]

    def told(self) -> str:
        """What the scheduler's pages show."""
        port = json.loads(self._file.read_text())["services"]["dashboard"]
        said = ""
        for page in _PAGES:
            address = f"http://127.0.0.1:{port}/info/main/{page}.html"
            with urllib.request.urlopen(address, timeout=PATIENCE) as got:
                said += got.read().decode()
        return said

    def _start(self, what: str, *options: str, folder: Path | None = None) -> None:
        place = folder or self.folder
        support = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        plain = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
        with (self.folder / f"{what}-{len(self._processes)}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "distributed.cli.dask_" + what, "--scheduler-file",
                     str(self._file), *options],
                    cwd=place, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                    env=plain | _KEEPING | {"PYTHONPATH": support, "TMPDIR": str(self.folder)},
                )
            )  # fmt: skip

    def _wait(self, there: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE
        while not there():
            assert time.monotonic() < until, "the cluster does not come up"
            assert self._processes[0].poll() is None, (self.folder / "scheduler-0.log").read_text()
            time.sleep(0.02)
