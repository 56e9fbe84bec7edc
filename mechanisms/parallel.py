"""Threads and compiled functions: how a step uses several processors.

Threads gain where the parts of a step let go of Python's lock: in compiled kernels, and in most of
NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")

_THREADS: ContextVar[int] = ContextVar("statpress_threads", default=1)


@contextmanager
def using_threads(count: int) -> Iterator[None]:
    """Let the steps inside use up to ``count`` threads; outside of any such block it is one.

    Raises:
        ValueError: There would be none.
    """
    if count < 1:
        raise ValueError("there must be a thread")
    token = _THREADS.set(count)
    try:
        yield
    finally:
        _THREADS.reset(token)


def threads() -> int:
    """How many threads a step may use at once."""
    return _THREADS.get()


def in_threads(
    function: Callable[[Part], Result], parts: Sequence[Part], *, at_once: int | None = None
) -> list[Result]:
    """The function's result for each part, in order; of ``at_once`` parts at most at a time.

    The parts must not depend on how many threads there are, nor share what they change.

    >>> with using_threads(2):
    ...     in_threads(abs, [-1, 2, -3])
    [1, 2, 3]
    """
    count = min(threads(), len(parts), at_once or len(parts))
    if count <= 1:
        return [function(part) for part in parts]
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(function, parts))


def compiled_kernel(function: Callable[..., Any], signature: Any) -> Any:
    """The machine code of a function for one signature of numba's types.

    It is kept beside the function's file or in the user's cache folder; if neither can be written
    it is compiled anew in each process.
    """
    import numba

    try:
        return numba.njit(signature, cache=True, nogil=True)(function)
    except (OSError, RuntimeError):  # no place for the cache, or it cannot be written
        return numba.njit(signature, nogil=True)(function)
