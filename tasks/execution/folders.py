"""Folders that a run claims: locked while it is at work, removed after it.

A run that was killed leaves folders that nobody holds a lock on; the next run removes them.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mechanisms.errors import OutputNotWritableError
from tasks.execution.home import Home
from tasks.execution.interruption import uninterrupted

_RUN_ID = re.compile("[0-9a-f]{32}")
_TRIES = 20


@contextmanager
def claims() -> Iterator[Callable[[Path], Path]]:
    """Make folders of mode 0700 that are locked while in use and removed after.

    A signal at any moment leaves no folder behind: signals wait while one is made and while
    it is removed, and what a signal just before the removal prevents is done again.

    Yields:
        What makes and locks a folder; it raises ``OutputNotWritableError`` if that cannot
        be made or another process works in it.
    """
    held: list[tuple[Path, int]] = []

    def claim(folder: Path) -> Path:
        with uninterrupted():
            held.append((folder, _made(folder)))
        return folder

    try:
        try:
            yield claim
        finally:
            _remove(held)
    finally:
        _remove(held)


def _made(folder: Path) -> int:
    """Make a folder and lock it; the descriptor that holds the lock."""
    for _ in range(_TRIES):  # another run's sweep may come between making and locking
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            folder.chmod(0o700)
            descriptor = _locked(folder)
            reason = "this very run is at work in another process"
        except OSError as error:
            descriptor, reason = None, str(error.strerror)
        if descriptor is not None:
            return descriptor
    raise OutputNotWritableError(
        f"A working folder cannot be made ({reason}).", where=str(folder.parent)
    )


def _remove(held: list[tuple[Path, int]]) -> None:
    """Remove folders, and only then give their locks back."""
    with uninterrupted():
        while held:
            folder, descriptor = held.pop()
            shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)


def _locked(folder: Path) -> int | None:
    """A descriptor that holds the folder's lock; None if another has it or removed it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), folder.lstat()):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def at_work(home: Home, run_id: str) -> bool:
    """Whether a run holds its folder in this home just now."""
    folder = home.root / "work" / run_id
    try:
        descriptor = _locked(folder)
    except OSError:
        return False
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def remove_abandoned(parent: Path, prefix: str) -> list[str]:
    """Remove folders of runs that were killed, whose lock nobody holds; their ids."""
    removed = []
    for folder in parent.iterdir():
        name = folder.name.removeprefix(prefix)
        if folder.name != f"{prefix}{name}" or not _RUN_ID.fullmatch(name):
            continue  # not one of ours
        try:
            descriptor = _locked(folder)
        except OSError:
            continue
        if descriptor is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)
            removed.append(name)
    return removed


def sync(path: Path) -> None:
    """Have a file or folder on disk before going on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
