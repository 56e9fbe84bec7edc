"""Side channels: whatever a private call says besides its result goes to the curator alone.

A library may print, warn, log, or fail where nobody can catch it: in a thread, in a
destructor. While a channel is closed, all of it is written to a curator log. Channels
belong to the process, so they are counted: the first call to come in closes one, the
last to go out opens it again.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

Write = Callable[[str], None]
Open = Callable[[], int]
_Undo = Callable[[], None]
_ORCHESTRATOR = "prefect"


def _nothing() -> None:
    """Nothing was closed, nothing is opened."""


class Channel:
    """One side channel of the process.

    Args:
        close: Given how to write to the curator, and how to open a descriptor for it,
            closes the channel; returns how to open it again.
    """

    def __init__(self, close: Callable[[Write, Open], _Undo]) -> None:
        self._close, self._lock = close, threading.RLock()
        self._inside, self._undo = 0, _nothing

    @contextmanager
    def closed(self, write: Write, open: Open) -> Iterator[None]:
        """Keep it closed; where another call did, to that call's curator log."""
        with self._lock:
            if not self._inside:
                self._undo = self._close(write, open)
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    self._undo()


class _Handler(logging.Handler):
    """Writes records to the curator; what cannot be put together is left out."""

    def __init__(self, write: Write) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        try:
            said = self.format(record)
        except Exception:
            said = f"a record of {record.name} that cannot be put together"
        self._write(said)


def _route(write: Write, chosen: Callable[[str], bool]) -> _Undo:
    """Have the chosen loggers write to the curator, whatever handlers they have."""
    handler, root = _Handler(write), logging.getLogger()
    known = [root, *list(root.manager.loggerDict.values())]
    loggers = [each for each in known if isinstance(each, logging.Logger) and chosen(each.name)]
    kept = [(each, each.handlers, each.propagate) for each in loggers]
    for each in loggers:
        top = each is root or each.name == _ORCHESTRATOR
        each.handlers, each.propagate = [handler] if top else [], not top

    def undo() -> None:
        for logger, handlers, propagate in kept:
            logger.handlers, logger.propagate = handlers, propagate

    return undo


def _of_orchestrator(name: str) -> bool:
    return name == _ORCHESTRATOR or name.startswith(f"{_ORCHESTRATOR}.")


def _close_logs(write: Write, open: Open) -> _Undo:
    """Every logger but the orchestrator's."""
    return _route(write, lambda name: not _of_orchestrator(name))


def _close_orchestrator(write: Write, open: Open) -> _Undo:
    """The orchestrator's loggers, of which no step has need."""
    return _route(write, _of_orchestrator)


def _close_warnings(write: Write, open: Open) -> _Undo:
    """Warnings, which quote values."""
    shown = warnings.showwarning

    def show(message: Any, category: type[Warning], *rest: Any, **more: Any) -> None:
        write(f"warning: {category.__name__}: {as_text(message)}")

    warnings.showwarning = show

    def undo() -> None:
        warnings.showwarning = shown

    return undo


def _close_hooks(write: Write, open: Open) -> _Undo:
    """Errors that nobody catches, in threads and in destructors."""
    of_threads, of_destructors = threading.excepthook, sys.unraisablehook

    def in_thread(failed: Any) -> None:
        write("in a thread: " + as_text(failed.exc_value, trace=True))

    def in_destructor(failed: Any) -> None:
        if isinstance(failed.exc_value, KeyboardInterrupt):
            of_destructors(failed)  # the command line repeats an interruption
        else:
            write("in a destructor: " + as_text(failed.exc_value, trace=True))

    threading.excepthook, sys.unraisablehook = in_thread, in_destructor

    def undo() -> None:
        threading.excepthook, sys.unraisablehook = of_threads, of_destructors

    return undo


def _close_streams(write: Write, open: Open) -> _Undo:
    """Standard output and error: Python's, and the descriptors that C libraries write to."""
    before = sys.stdout, sys.stderr
    _flush(*before)
    kept = {number: os.dup(number) for number in (1, 2) if _is_open(number)}
    descriptor = open()
    for number in kept:
        os.dup2(descriptor, number)
    stream = os.fdopen(descriptor, "w", buffering=1, errors="backslashreplace")
    sys.stdout = sys.stderr = stream

    def undo() -> None:
        _flush(*before, sys.__stdout__, sys.__stderr__)
        with contextlib.suppress(Exception):
            ctypes.CDLL(None).fflush(None)
        sys.stdout, sys.stderr = before
        for number, original in kept.items():
            os.dup2(original, number)
            os.close(original)
        with contextlib.suppress(OSError):
            stream.close()

    return undo


def _flush(*streams: TextIO | None) -> None:
    for stream in streams:
        with contextlib.suppress(Exception):
            stream.flush()  # type: ignore[union-attr]


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def as_text(error: object, *, trace: bool = False) -> str:
    """An error as text, even if it cannot say what it is."""
    try:
        if trace and isinstance(error, BaseException):
            return "".join(traceback.format_exception(error))
        return str(error)
    except Exception:
        return f"{type(error).__name__}, which cannot be printed"


_LOGS, _ORCHESTRATOR_LOGS = Channel(_close_logs), Channel(_close_orchestrator)
_WARNINGS, _HOOKS, _STREAMS = map(Channel, (_close_warnings, _close_hooks, _close_streams))
Channels = tuple[Channel, ...]

AROUND_A_FLOW: Channels = (_WARNINGS,)
"""While the orchestrator starts, and sets its logs up."""

BETWEEN_STEPS: Channels = (_LOGS, _WARNINGS, _HOOKS, _STREAMS)
"""In a flow's body, where the orchestrator notes what the steps do."""

IN_A_STEP: Channels = (*BETWEEN_STEPS, _ORCHESTRATOR_LOGS)


@contextmanager
def closed(channels: Channels, write: Write, open: Open) -> Iterator[None]:
    """Close some side channels of the process.

    Args:
        channels: One of the above.
        write: Takes what is said.
        open: Opens a descriptor that takes what is printed.
    """
    with contextlib.ExitStack() as stack:
        for channel in channels:
            stack.enter_context(channel.closed(write, open))
        yield
