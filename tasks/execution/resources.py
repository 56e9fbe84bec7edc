"""Threads of the libraries that a run works with, for as long as it does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mechanisms.parallel.threads import using_threads


def usable_processors() -> int:
    """How many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


@contextmanager
def limited_threads(declared: int | None) -> Iterator[None]:
    """Let all steps inside work with so many threads; afterwards everything is as it was.

    Args:
        declared: By the config; if it is None, our own steps use as many as there are processors,
            and the libraries what they do by themselves.
    """
    if declared is None:
        with using_threads(usable_processors()):
            yield
        return
    import pyarrow
    from threadpoolctl import threadpool_limits

    before = pyarrow.cpu_count(), pyarrow.io_thread_count()
    pyarrow.set_cpu_count(declared)
    pyarrow.set_io_thread_count(declared)
    try:
        with threadpool_limits(declared), using_threads(declared):
            yield
    finally:
        pyarrow.set_cpu_count(before[0])
        pyarrow.set_io_thread_count(before[1])


def machine_memory() -> int:
    """Bytes of memory that this machine, or the container around the process, has."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        most = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return found
    return min(found, int(most)) if most.isdigit() else found
