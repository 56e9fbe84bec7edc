"""The wall between the private and the public zone.

Whatever happens inside a guarded call, only two things leave it: its result and
a ``StatpressError``, whose message is public by construction. Any other error
is written, with its traceback, to the run's curator log and replaced by a fixed
message with the incident's number. What a call prints, warns or logs goes the same
way (tasks.execution.side_channels).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import os
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from mechanisms.errors import InternalError, StatpressError, together
from tasks.execution.interruption import is_termination
from tasks.execution.side_channels import BETWEEN_STEPS, Channels, as_text, closed

P = ParamSpec("P")
T = TypeVar("T")

_PUBLIC_FIELDS = {"remaining", "requested", "sequence"}
_NOT_DUMPABLE = 4  # prctl's PR_SET_DUMPABLE


class CuratorLog:
    """A run's log for the curator only: mode 0600, outside every bundle.

    Args:
        folder: A folder of mode 0700.
        run_id: Names the file, and the incident in public messages.
    """

    def __init__(self, folder: Path, run_id: str) -> None:
        self.path = folder / f"{run_id}.log"
        self.run_id = run_id

    def __repr__(self) -> str:
        return f"CuratorLog({self.run_id})"

    def open(self) -> int:
        """A descriptor to append to it; of nothing, where the log cannot be written."""
        flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
        try:
            return os.open(self.path, flags, 0o600)
        except OSError:
            return os.open(os.devnull, os.O_WRONLY)

    def write(self, text: str) -> None:
        """Append text; never raises, since a full disk must not open the wall."""
        with (
            contextlib.suppress(Exception),
            os.fdopen(self.open(), "a", encoding="utf-8", errors="backslashreplace") as file,
        ):
            file.write(text.rstrip("\n") + "\n")


def new_run_id() -> str:
    """A fresh public identifier, the idempotency key of a charge."""
    return uuid.uuid4().hex


def guarded(
    function: Callable[P, T], log: CuratorLog, channels: Channels = BETWEEN_STEPS
) -> Callable[P, T]:
    """A function out of which no private value comes but its result.

    Args:
        function: What is called inside.
        log: Takes whatever else it would say.
        channels: The side channels to close meanwhile.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        caught: BaseException | None = None
        with closed(channels, log.write, log.open):
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                caught = error
        if caught is None:
            return result
        failure = _public(caught, log)
        del caught, args, kwargs  # the frames of the failure hold nothing private
        raise failure

    return call


def _fresh(error: StatpressError) -> StatpressError:
    """An error of our own with its public fields, and nothing else that it knows."""
    fresh = type(error)(error.what, where=error.where, next_step=error.next_step)
    for name in _PUBLIC_FIELDS & vars(error).keys():
        setattr(fresh, name, getattr(error, name))
    return fresh


def _public(error: BaseException, log: CuratorLog) -> BaseException:
    """A fresh exception that says what may be said about an error.

    Errors of our own keep their public fields; interruptions and cancellations keep
    their kind, since an orchestrator acts on it; all else becomes one fixed message.
    """
    if isinstance(error, StatpressError):
        fresh = _fresh(error)
        if error.also:
            return together([fresh, *map(_fresh, error.also)])
        return fresh
    log.write(as_text(error, trace=True))
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt()
    if isinstance(error, asyncio.CancelledError):
        return _cancelled(type(error))
    if is_termination(error):
        return type(error)(signal=int(getattr(error, "signal", 15)))  # type: ignore[call-arg]
    return InternalError(
        f"An unforeseen error stopped the run; incident {log.run_id}.",
        next_step=f"The curator finds the detail in the curator log {log.run_id}.log.",
    )


def _cancelled(kind: type[asyncio.CancelledError]) -> asyncio.CancelledError:
    """A fresh cancellation; Prefect tells its own by its class, and takes others for a crash."""
    return kind() if kind.__module__.startswith("prefect.") else asyncio.CancelledError()


def silence_core_dumps() -> None:
    """A crash must not write the process's memory to disk, nor hand it to a collector.

    A limit of nothing does not bind what the kernel pipes to a program; that a process
    is not dumpable does, and keeps its memory and environment from its user's other
    processes. It ends with the next program that a child starts, which says so again.
    """
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_NOT_DUMPABLE, 0, 0, 0, 0)
