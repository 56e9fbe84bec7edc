"""Files in the run's private folder: of mode 0600, and an error of ours where the disk fails."""

from __future__ import annotations

import os
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import TypeVar

from mechanisms.errors import OutputNotWritableError

_Result = TypeVar("_Result")


def new_file(path: Path) -> FileIO:
    """A new file of mode 0600, without a buffer that would be left to write at the end."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
    return os.fdopen(os.open(path, flags, 0o600), "wb", buffering=0)


def write_all(file: FileIO, data: memoryview) -> None:
    """Write all bytes, whatever the system takes at once."""
    while data:
        data = data[file.write(data) :]


def writable(act: Callable[[], _Result], place: Path, what: str, next_step: str) -> _Result:
    """Say what is wrong where a private copy cannot be written.

    Args:
        act: Writes.
        place: A folder in that of the run.
        what: Of what it is a copy.
        next_step: What else helps than free space.

    Raises:
        OutputNotWritableError: The disk is full, or fails.
    """
    try:
        return act()
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "the disk fails"
    raise OutputNotWritableError(
        f"The private copy of {what} cannot be written ({reason}). Nothing was charged.",
        where=str(place.parent.parent),
        next_step=f"Free space in the home's work folder, or {next_step}; then run again.",
    )
