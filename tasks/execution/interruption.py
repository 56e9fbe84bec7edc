"""Interruptions: which exceptions are one, and signals that wait until something is done whole."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)


def is_interruption(error: BaseException) -> bool:
    """Whether an exception says that a person, the system or the orchestrator ends the run."""
    kinds = (KeyboardInterrupt, asyncio.CancelledError)
    return isinstance(error, kinds) or is_termination(error)


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
    before = {
        number: handler for number in _ENDING if callable(handler := signal.getsignal(number))
    }
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
            for each in dict.fromkeys(came):
                stack.callback(signal.raise_signal, each)
            for number, handler in before.items():
                stack.callback(signal.signal, number, handler)
