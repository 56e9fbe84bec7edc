"""Public values that take long to compute, in forks of this process where there are processors."""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import cloudpickle

from statpress.tasks.private_zone.workers import usable_processors

PATIENCE = 30.0
"""Seconds that a fork may take longer than five times what this process took for its part."""

T = TypeVar("T")
R = TypeVar("R")


def in_forks(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """A function of public values, computed in forks of this process where that can be done.

    What a fork does not give, since it failed, was killed or hangs, is computed here.

    Args:
        work: Draws nothing, and opens nothing that the forks would share.
        items: What it is called with.
    """
    begun = time.monotonic()
    parts = max(1, min(usable_processors(), len(items))) if sys.platform == "linux" else 1
    found: dict[int, R] = {}
    forks = [_fork(work, items, range(part, len(items), parts)) for part in range(1, parts)]
    try:
        found |= {number: work(items[number]) for number in range(0, len(items), parts)}
        patience = PATIENCE + 5 * (time.monotonic() - begun)
        for _, pipe in forks:
            with suppress(pickle.UnpicklingError, EOFError), os.fdopen(pipe, "rb") as results:
                if select.select([pipe], [], [], patience)[0]:
                    found |= pickle.load(results)  # noqa: S301 (of a fork of our own)
    finally:
        for process, _ in forks:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    return [found[number] if number in found else work(items[number])
            for number in range(len(items))]  # fmt: skip


def _fork(work: Callable[[T], R], items: Sequence[T], numbers: range) -> tuple[int, int]:
    """A fork that writes its results by number; its process, and where to read them."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are threads, of which the fork has none
        process = os.fork()
    if process:
        os.close(writing)
        return process, reading
    try:
        os.close(reading)
        results = cloudpickle.dumps({number: work(items[number]) for number in numbers})
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(results)
    finally:
        os._exit(0)
