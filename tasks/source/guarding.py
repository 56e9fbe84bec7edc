"""Silence around an engine, whose messages quote values, and private files.

Each failure is found and raised outside the ``except`` block, so that it carries no context.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from io import FileIO
from pathlib import Path
from types import FrameType
from typing import TypeVar

from statpress.mechanisms.errors import InternalError, OutputNotWritableError, StatpressError
from statpress.tasks.private_zone.guards import ending_handlers

PRIVATE = logging.getLogger("statpress.private")
PRIVATE.propagate = False
PRIVATE.addHandler(logging.NullHandler())


_Result = TypeVar("_Result")


def guarded(
    where: str,
    run: Callable[[], _Result],
    failure_of: Callable[[Exception], StatpressError | None],
) -> _Result:
    """Run a step that may touch a source, silencing whatever the engine says.

    Args:
        where: Public name of the source.
        run: The step.
        failure_of: The public error that stands for the engine's; None for one that is not of
            the engine.

    Raises:
        SourceError: What is wrong, in public words.
        InternalError: Something else. What a signal raised is raised as it is.
    """
    try:
        with interruptible():
            return run()
    except StatpressError:
        raise
    except Exception as error:
        PRIVATE.exception("counting")
        caught = error
    try:
        failure = failure_of(caught)
    finally:
        del caught
    raise failure or InternalError("Counting failed.", where=where)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise what a signal raised in the block, where a library made an error of its own of it.

    DuckDB says "Query interrupted", whatever the handler of the signal has raised.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = ending_handlers()
    raised: list[BaseException] = []

    def note(number: int, frame: FrameType | None) -> None:
        try:
            before[signal.Signals(number)](number, frame)
        except BaseException as error:
            raised.append(error)
            raise

    try:
        for number in before:
            signal.signal(number, note)
        yield
    except Exception:
        if not raised:
            raise
    finally:
        with ExitStack() as stack:  # each handler returns, come what may
            for number, handler in before.items():
                stack.callback(signal.signal, number, handler)
    if raised:
        raise raised.pop()


def new_file(path: Path, mode: int = 0o600) -> FileIO:
    """A new file, its owner's only from the start, without a buffer left to write at the end."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
    return os.fdopen(os.open(path, flags, mode), "wb", buffering=0)


def write_all(file: FileIO, data: memoryview) -> None:
    """Write all bytes, whatever the system takes at once."""
    while data:
        data = data[file.write(data) :]


def text_of_owner(path: Path, longest: int) -> tuple[bytes, str]:
    """What a file holds that only its owner can use, or what is wrong with it."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                return b"", "others than its owner can use it"
            return file.read(longest), ""
    except OSError as error:
        return b"", os.strerror(error.errno) if error.errno else "it cannot be read"


def writable(act: Callable[[], _Result], place: Path, what: str, next_step: str) -> _Result:
    """Say what is wrong where a private copy cannot be written.

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
