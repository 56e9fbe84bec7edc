"""Whether the files of a source are what they were when the first of them was read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from mechanisms.errors import SourceChangedError


@dataclass(frozen=True)
class FileState:
    """A file at one moment: another one, or another content, has another state.

    Attributes:
        path: Where it lies.
        mark: Device, inode, size and times of the last change of its content and of itself, in
            nanoseconds; None if it is not there. Of an object in a store what that says of it.
    """

    path: str
    mark: tuple[object, ...] | None


def states_of(paths: Sequence[str]) -> tuple[FileState, ...]:
    """The states of files, as they are now."""
    return tuple(FileState(path, _mark(path)) for path in paths)


def check_unchanged(states: Sequence[FileState], where: str) -> None:
    """Raise if a file is another, or has another content.

    Args:
        states: As they were.
        where: Public name of the source.

    Raises:
        SourceChangedError: One is.
    """
    if any(_mark(state.path) != state.mark for state in states):
        raise changed(where)


def changed(where: str) -> SourceChangedError:
    """The error of a source that did not stay as it was."""
    return SourceChangedError("The source changed while it was read.", where=where)


def _mark(path: str) -> tuple[object, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
