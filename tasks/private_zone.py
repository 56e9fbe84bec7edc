"""The wall between the private and the public zone.

Whatever happens inside a guarded call, only two things leave it: its result and
a ``StatpressError``, whose message is public by construction. Any other error
is written, with its traceback, to the run's curator log and replaced by a fixed
message with the incident's number. Warnings and library logs go the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import sys
import traceback
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from mechanisms.errors import InternalError, StatpressError

P = ParamSpec("P")
T = TypeVar("T")

_PUBLIC_FIELDS = {"remaining", "requested", "sequence"}
_LIBRARIES = (
    "duckdb",
    "great_expectations",
    "ibis",
    "pyarrow",
    "sqlalchemy",
    "asyncio",
    "statpress.private",
)


class CuratorLog:
    """A run's log for the curator alone: mode 0600, outside every bundle.

    Args:
        folder: A folder of mode 0700.
        run_id: Names the file, and the incident in public messages.
    """

    def __init__(self, folder: Path, run_id: str) -> None:
        self.path = folder / f"{run_id}.log"
        self.run_id = run_id

    def __repr__(self) -> str:
        return f"CuratorLog({self.run_id})"

    def write(self, text: str) -> None:
        """Append text; never raises, since a full disk must not open the wall."""
        flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path, flags, 0o600)
            with os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text.rstrip("\n") + "\n")

    def handler(self) -> logging.Handler:
        """A handler for the logs of libraries that touch private data."""
        log = self

        class _Handler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                log.write(self.format(record))

        return _Handler()


def new_run_id() -> str:
    """A fresh public identifier, the idempotency key of a charge."""
    return uuid.uuid4().hex


def route_library_logs(log: CuratorLog) -> Callable[[], None]:
    """Send the libraries' logs to the curator log; returns the undoing."""
    handler, previous = log.handler(), {}
    for name in _LIBRARIES:
        logger = logging.getLogger(name)
        previous[name] = (logger.propagate, list(logger.handlers))
        logger.propagate, logger.handlers = False, [handler]

    def undo() -> None:
        for name, (propagate, handlers) in previous.items():
            logger = logging.getLogger(name)
            logger.propagate, logger.handlers = propagate, handlers

    return undo


def guarded(function: Callable[P, T], log: CuratorLog) -> Callable[P, T]:
    """A function out of which no private value comes but its result."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        caught: BaseException | None = None
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                caught = error
        for warning in warned:
            log.write(f"warning: {warning.category.__name__}: {_text(warning.message)}")
        if caught is None:
            return result
        failure = _public(caught, log)
        del caught, args, kwargs  # the frames of the failure hold nothing private
        raise failure

    return call


def _public(error: BaseException, log: CuratorLog) -> BaseException:
    """A fresh exception that says what may be said about an error.

    Errors of our own keep their public fields; interruptions and cancellations keep
    their kind, since an orchestrator acts on it; all else becomes one fixed message.
    """
    if isinstance(error, StatpressError):
        fresh = type(error)(error.what, where=error.where, next_step=error.next_step)
        for name in _PUBLIC_FIELDS & vars(error).keys():
            setattr(fresh, name, getattr(error, name))
        return fresh
    log.write(_text(error, trace=True))
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt()
    if isinstance(error, asyncio.CancelledError):
        return asyncio.CancelledError()
    if type(error).__name__ == "TerminationSignal":  # Prefect's, for a run it stops
        return type(error)(signal=int(getattr(error, "signal", 15)))  # type: ignore[call-arg]
    return InternalError(
        f"An unforeseen error stopped the run; incident {log.run_id}.",
        next_step=f"The curator finds the detail in the curator log {log.run_id}.log.",
    )


def _text(error: object, *, trace: bool = False) -> str:
    """An error as text, even if it cannot say what it is."""
    try:
        if trace and isinstance(error, BaseException):
            return "".join(traceback.format_exception(error))
        return str(error)
    except Exception:
        return f"{type(error).__name__}, which cannot be printed"


def silence_core_dumps() -> None:
    """A crash must not write the process's memory to disk."""
    if sys.platform != "win32":
        import resource

        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
