"""How a command ends: its words are written, all have cleaned up, and its code says how it went."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

from cyclopts import CycloptsError

_INTERRUPTED, _READER_GONE, _USAGE = 130, 141, 2


def print_outcome(result: Any) -> None:
    """Print what a command returned.

    Raises:
        UnwrittenResultError: It cannot be written, although the command has done its work.
        BrokenPipeError: Its reader has gone.
    """
    if result is None:  # cyclopts has printed the help or the version
        return
    from flows.cli.result import print_result

    try:
        print_result(result)
        _flush()
    except OSError as error:
        if isinstance(error, BrokenPipeError) or error.filename is not None:
            raise  # the latter is of a file
        from mechanisms.errors import UnwrittenResultError

        _forget_words()
        raise UnwrittenResultError(
            f"The command has done its work, but its result could not be written to standard "
            f"output: {error.strerror}.",
        ) from error


def status_of(command: Callable[[], object], *, as_json: bool) -> int:
    """Run a command, say what is wrong if it fails, and give its exit code."""
    try:
        try:
            status = _status(command, as_json=as_json)
        except KeyboardInterrupt:
            print("Interrupted. What was charged stays spent.", file=sys.stderr)
            status = _INTERRUPTED
        _flush()
    except BrokenPipeError:
        _forget_words()
        return _READER_GONE
    return status


def _status(command: Callable[[], object], *, as_json: bool) -> int:
    try:
        command()
    except CycloptsError:
        return _USAGE  # cyclopts has printed what is wrong
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # of which rich makes an end with 1
            raise end.__context__ from None
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except Exception as error:
        from mechanisms.errors import StatpressError, UnwrittenResultError

        if not isinstance(error, StatpressError):
            raise
        from flows.report.terminal import show_error

        show_error(error, as_json=as_json and not isinstance(error, UnwrittenResultError))
        return error.exit_code
    return 0


def leave_at_once(ended: list[int]) -> None:
    """End the process, once it is to end, without freeing one module after the other.

    What is registered with ``atexit`` first is called last: when threads have ended and all others
    have cleaned up. What Python would still do takes a fifth of a command.

    Args:
        ended: Gets the exit code once it is known; without one the process ends as ever.
    """
    atexit.register(_leave, ended)


def _leave(ended: list[int]) -> None:
    if not ended:
        return
    try:
        _flush()
    except OSError:
        return  # Python says so, and changes the code
    os._exit(ended[0])


def _flush() -> None:
    """Write what is buffered."""
    for stream in _streams():
        stream.flush()


def _forget_words() -> None:
    """Let what can no longer be written go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in _streams():
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())


def _streams() -> list[TextIO]:
    """Output and errors, where they are open; one that was closed from the start is None."""
    return [s for s in (sys.stdout, sys.stderr) if s is not None and not s.closed]
