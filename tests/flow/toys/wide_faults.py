"""Runs of a wide product, each a fork that meets its fault.

Called as ``python wide_faults.py CONFIG HOME FAULT …``, with ``--`` before another config. Prints,
for each fault, how the run ended, what it said, and what was left in its work folder.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import pressing_ready  # noqa: F401  (what each fork would have to import)
import toys
import victims

from statpress.tasks.private_zone.folders import Home
from statpress.tasks.release.ledger_check import verify_ledger
from statpress.tasks.source import scanning


def _before(place: Any, name: str, act: Any) -> None:
    """Have something happen before each call of a function."""
    honest = getattr(place, name)

    def called(*arguments: Any, **named: Any) -> Any:
        act()
        return honest(*arguments, **named)

    setattr(place, name, called)


def _in_the_midst(number: int) -> None:
    """Send a signal once the files are there and the first codes about to be written."""
    _before(scanning, "write_all", lambda: os.kill(os.getpid(), number))


def _small_files(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


FAULTS = {
    "none": lambda: None,
    "full disk": lambda: _before(scanning, "_make", lambda: _small_files(8)),
    "terminated": lambda: _in_the_midst(signal.SIGTERM),
    "killed": lambda: _in_the_midst(signal.SIGKILL),
    "killed drawing": lambda: _before(
        toys.NoisyFirst, "release", lambda: os.kill(os.getpid(), signal.SIGKILL)
    ),
}


def _run(config: str, home: Path, fault: str, folder: Path) -> dict[str, Any]:
    child = os.fork()
    if child == 0:
        FAULTS[fault]()
        victims._live(victims.Order(config, str(home), str(folder)))
    status = os.waitpid(child, 0)[1]
    left = sorted((home / "work").rglob("*"))
    return {
        "code": os.waitstatus_to_exitcode(status),
        "said": (folder / "said").read_text(),
        "left": [str(path.relative_to(home / "work")) for path in left],
        "modes": sorted({oct(path.stat().st_mode) for path in left}),
    }


def _run_all(config: str, home: Path, faults: list[str]) -> list[dict[str, Any]]:
    found = []
    for i, fault in enumerate(faults):
        (folder := home.parent / "signs" / str(i)).mkdir(parents=True)
        found.append(_run(config, home, fault, folder))
    verify_ledger(Home(home))  # here, where the toys are known
    return found


if __name__ == "__main__":
    ended, words = [], sys.argv[1:]
    while words:
        end = words.index("--") if "--" in words else len(words)
        (config, home, *faults), words = words[:end], words[end + 1 :]
        ended += _run_all(config, Path(home), faults)
    print(json.dumps(ended))
