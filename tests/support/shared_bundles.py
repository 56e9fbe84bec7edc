"""Bundles that are made once a run, by the first worker that asks for one; all only read them.

What is drawn for a shared bundle follows from its name and the base seed, so it is the same
whoever makes it.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from seeded_streams import STREAMS

DONE = "bundle.txt"
"""The file that names the bundle, once it is whole."""


def shared_bundle(folder: Path, seed: int, make: Callable[[Path], Path]) -> Path:
    """Return the bundle in a folder, making it there if no worker has done that.

    Args:
        folder: Its name is the bundle's; in a folder that all workers have.
        seed: The base seed.
        make: Makes a bundle somewhere in the folder, which exists.
    """
    folder.parent.mkdir(exist_ok=True)
    with _locked(folder.with_suffix(".lock")):
        done = folder / DONE
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # a worker died meanwhile
            folder.mkdir()
            with _streams(f"{seed}/shared/{folder.name}"):
                bundle = make(folder)
            done.write_text(str(bundle), encoding="utf-8")
    return Path(done.read_text(encoding="utf-8"))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait for the other workers that want the same bundle."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _streams(name: str) -> Iterator[None]:
    """Draw from the streams of a name, then go on with the test's own."""
    before = STREAMS.name, STREAMS.root, STREAMS.getstate()
    STREAMS.begin(name)
    try:
        yield
    finally:
        STREAMS.begin(*before[:2])
        STREAMS.setstate(before[2])
