"""The wall between the private and the public zone: guarded calls and side channels.

Whatever happens inside a guarded call, only two things leave it: its result and a
``StatpressError``, whose message is public by construction. Any other error is written, with its
traceback, to the run's curator log and replaced by a fixed message with the incident's number.

A library may also print, warn, log, or fail where nobody can catch it: in a thread, in a
destructor. While a side channel is closed, all of it is written to the curator log. Channels belong
to the process, so they are counted: the first call to come in closes one, the last to go out opens
it again.

An interruption keeps its kind, since an orchestrator acts on it; signals wait until something is
done whole.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import traceback
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, ParamSpec, TextIO, TypeVar

from statpress.mechanisms.errors import (
    InternalError,
    OutOfMemoryError,
    QualityGateError,
    StatpressError,
    together,
)

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)


def is_interruption(error: BaseException) -> bool:
    """Whether an exception says that a person, the system or the orchestrator ends the run."""
    return isinstance(error, KeyboardInterrupt) or _is_cancellation(error) or is_termination(error)


def _is_cancellation(error: BaseException) -> bool:
    """Whether it is asyncio's, which takes long to import and is there if anything raised it."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and isinstance(error, asyncio.CancelledError)


def is_termination(error: BaseException) -> bool:
    """Whether it is Prefect's, for a run that it stops; known by name, to import nothing."""
    return type(error).__name__ == "TerminationSignal"


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer the signals that a Python handler turns into an exception until the block ends.

    Handlers run in the main thread only, so the block of any other thread is left as it is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = ending_handlers()
    came: list[int] = []
    waiting = True

    def keep(number: int, frame: FrameType | None) -> None:
        if waiting:
            came.append(number)
        else:  # between the end of the block and the return of this handler
            before[signal.Signals(number)](number, frame)

    try:
        for number in before:
            signal.signal(number, keep)
        yield
    finally:
        waiting = False
        with ExitStack() as stack:  # each handler returns and each signal is raised, come what may
            for deferred in dict.fromkeys(came):
                stack.callback(signal.raise_signal, deferred)
            for number, handler in before.items():
                stack.callback(signal.signal, number, handler)


def ending_handlers() -> dict[signal.Signals, Callable[[int, FrameType | None], Any]]:
    """Those of signals that end a run, as far as they are functions."""
    return {number: handler for number in _ENDING if callable(handler := signal.getsignal(number))}


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
            message = self.format(record)
        except Exception:
            message = f"a record of {record.name} that cannot be put together"
        self._write(message)


def _route(write: Write, chosen: Callable[[str], bool]) -> _Undo:
    """Have the chosen loggers write to the curator, whatever handlers they have."""
    handler, root = _Handler(write), logging.getLogger()
    known = [root, *list(root.manager.loggerDict.values())]
    loggers = [one for one in known if isinstance(one, logging.Logger) and chosen(one.name)]
    kept = [(logger, logger.handlers, logger.propagate) for logger in loggers]
    for logger in loggers:
        top = logger is root or logger.name == _ORCHESTRATOR
        logger.handlers, logger.propagate = [handler] if top else [], not top

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
    """Close some side channels of the process."""
    with contextlib.ExitStack() as stack:
        for channel in channels:
            stack.enter_context(channel.closed(write, open))
        yield


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
        self._folder = folder
        self.become(run_id)

    def become(self, run_id: str) -> None:
        """Go on as the log of a run whose id was not known before."""
        self.path = self._folder / f"{run_id}.log"
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


@contextlib.contextmanager
def keeping_log(folder: Path) -> Iterator[None]:
    """Move the log of what failed out of a folder that goes; only where nothing is private.

    Args:
        folder: Of curator logs, of one run.
    """
    try:
        yield
    except (InternalError, QualityGateError) as error:
        for log in folder.glob("*.log"):
            descriptor, kept = tempfile.mkstemp(prefix="statpress-", suffix=".log")
            os.close(descriptor)
            shutil.copyfile(log, kept)
            error.next_step = f"The detail is in {kept}: report it with that."
        raise


def new_run_id() -> str:
    """A fresh public identifier, the idempotency key of a charge."""
    return uuid.uuid4().hex


def guarded(
    function: Callable[P, T], log: CuratorLog, channels: Channels = BETWEEN_STEPS
) -> Callable[P, T]:
    """A function out of which no private value comes but its result."""

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
    their kind, since an orchestrator acts on it; a lack of memory is named; all else becomes one
    fixed message.
    """
    if isinstance(error, StatpressError):
        fresh = _fresh(error)
        if error.also:
            return together([fresh, *map(_fresh, error.also)])
        return fresh
    log.write(as_text(error, trace=True))
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt()
    if _is_cancellation(error):
        return _cancelled(type(error))
    if is_termination(error):
        return type(error)(signal=int(getattr(error, "signal", 15)))  # type: ignore[call-arg]
    if isinstance(error, MemoryError):
        return OutOfMemoryError("The run needed more memory than this machine gave it.")
    return InternalError(
        f"An unforeseen error stopped the run; incident {log.run_id}.",
        next_step=f"The curator finds the detail in the curator log {log.run_id}.log.",
    )


def _cancelled(kind: type[BaseException]) -> BaseException:
    """A fresh cancellation; Prefect tells its own by its class, and takes others for a crash."""
    known: type[BaseException] = sys.modules["asyncio"].CancelledError
    return kind() if kind.__module__.startswith("prefect.") else known()


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
