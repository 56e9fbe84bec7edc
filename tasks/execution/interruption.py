"""Signals that wait: what must be done whole or not at all is not cut short."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)


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
    try:
        for number in before:
            signal.signal(number, lambda number, frame: came.append(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for each in came:
            signal.raise_signal(each)
