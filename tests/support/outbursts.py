"""Saying a private value in every way there is, in the run's own process or in a worker's."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from bad_input import CANARY, RARE

TWIN = "Zyx-twin-canary-3388"
PATIENCE = 600.0


def outburst(*_: Any, said: str = f"{CANARY} {RARE}", run_logs: bool = True, **__: Any) -> None:
    """Say a private value in every way there is, then fail with it."""
    warnings.warn(said, RuntimeWarning, stacklevel=1)
    np.float64(RARE) / np.float64(0)
    of_runs = ("prefect.flow_runs", "prefect.task_runs") if run_logs else ()
    for name in ("duckdb", "unheard.of", None, *of_runs):
        logging.getLogger(name).error("value %s", said)
    if said != TWIN:  # pytest's own handler, where it hears one, fails on such a record
        logging.getLogger("pyarrow").error("cannot be put together %d", said)
    print(said)
    print(said, file=sys.stderr)
    os.write(1, said.encode())
    os.write(2, said.encode())
    subprocess.run(["/bin/sh", "-c", "read x; echo $x"], input=said.encode(), check=True)

    def fail() -> None:
        raise ValueError(said)

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()

    class Ending:
        def __del__(self) -> None:
            fail()

    Ending()
    try:
        fail()
    except ValueError as error:
        error.add_note(said)
        raise KeyError(said) from error


def unsealed(home: str, run_id: str, task: tuple[str, str]) -> str:
    """What a worker would do without the wall around its work."""
    del home, run_id
    if task[0] == "draw":
        outburst(said=TWIN)
    return "ready"


@dataclass(frozen=True)
class Instead:
    """A mechanism that does something else where it is drawn; everything else is as it was.

    Attributes:
        mechanism: As planned.
        folder: Where it leaves signs.
    """

    mechanism: Any
    folder: str

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "mechanism":
            raise AttributeError(name)
        return getattr(self.mechanism, name)


class Bursting(Instead):
    """Fails with what it was given."""

    def release(self, table: Any, rng: Any, progress: Any = None) -> Any:
        outburst(run_logs=False)


class Stalling(Instead):
    """Says in which process it draws, and waits to be killed there."""

    def release(self, table: Any, rng: Any, progress: Any = None) -> Any:
        unfinished = Path(self.folder) / "drawing"
        unfinished.write_text(str(os.getpid()))
        unfinished.rename(unfinished.with_name("drawn by"))
        time.sleep(PATIENCE)


class FullDisk(Instead):
    """Meets a full disk."""

    def release(self, table: Any, rng: Any, progress: Any = None) -> Any:
        raise OSError(28, CANARY)


def put_in_place(patch: Any, kind: type[Instead], folder: Path, product: str = "people") -> None:
    """Have the workers of runs given such a mechanism for a product, as if it was planned.

    Args:
        patch: Pytest's ``MonkeyPatch``.
        kind: Of the mechanism.
        folder: Where it leaves signs.
        product: Its name.
    """

    def changed(planned: Any, **changes: Any) -> Any:
        if planned.name == product:
            changes["mechanism"] = kind(planned.mechanism, str(folder))
        return replace(planned, **changes)

    patch.setattr("statpress.tasks.release.drawing.replace", changed)


@contextmanager
def killing(folder: Path) -> Iterator[threading.Event]:
    """Kill whoever draws a ``Stalling`` mechanism; says when that is done."""
    killed, over = threading.Event(), threading.Event()

    def kill() -> None:
        sign = folder / "drawn by"
        while not sign.exists():
            if over.wait(0.01):
                return
        os.kill(int(sign.read_text()), signal.SIGKILL)
        killed.set()

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()
